"""Whole clean-ups, against the stand-in for the account API with a real registry behind it, and in OCI layouts."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tasks.registry.cleaning import CleanupReport, execute_cleanup, report_error, survey_and_plan
from tasks.registry.hub import HubRepository
from tasks.registry.interface import Repository
from tasks.registry.oci_layout import LayoutRepository
from tasks.registry.opening import open_repository
from tasks.registry.references import RepositoryName
from tasks.registry.retention import CleanupPlan, RetentionRule
from tasks.registry.tag_keepers import LayoutKeeper, TagKeeper, open_keeper
from tasks.registry.wire import Patience
from tasks.support.errors import (
    ConfigurationError,
    CredentialsError,
    DataError,
    OmniError,
    ServiceRefusedError,
    TemporaryError,
)
from tasks.support.settings import load
from tests.factory_image import Image, attestation, attested, image, index, store
from tests.hub_faults import HangUp, Reply, Seen, times
from tests.hub_scenes import NOW, USER, Scene, commit, days_ago, nightly, plain_image, quick_registry
from tests.hub_server import READ, WRITE, Credential, Hub, hub_before
from tests.registry_servers import Registry
from tests.skopeo import skopeo

pytestmark = pytest.mark.service

READER = Credential("reader", "dckr_pat_reader", scopes=frozenset({READ, WRITE}))
ORGANIZATION = Credential("some-org", "dckr_oat_organization", kind="oat")
KEEP_1 = RetentionRule(keep=1)


@pytest.fixture(scope="module")
def own_registry() -> Iterator[Registry]:
    with quick_registry() as registry:
        yield registry


@pytest.fixture
def hub(own_registry: Registry) -> Iterator[Hub]:
    with hub_before(own_registry) as hub:
        hub.credentials = [USER, READER, ORGANIZATION]
        yield hub


@pytest.fixture
def scene(hub: Hub) -> Scene:
    return Scene(hub, hub.registry.new_name())


@dataclass
class Cleanup:
    """A clean-up of a scene, and the pauses that it made."""

    scene: Scene
    rule: RetentionRule = field(default_factory=RetentionRule)
    who: Credential = USER
    reclaims: bool = False
    protected: frozenset[str] = frozenset()
    pauses: list[float] = field(default_factory=list)

    @property
    def keeper(self) -> HubRepository:
        return self.scene.open(self.who, attempts=2)

    @property
    def repository(self) -> Repository | None:
        """Return the registry's face of the stand-in, through the client that promotions use."""
        address = self.scene.hub.address.removeprefix("http://")
        settings = load(environment=self.scene.hub.registry.environment)
        patience = Patience(tries=2, first_pause=0.01)
        return (
            open_repository(f"{address}/{self.scene.repository}", settings, patience=patience)
            if self.reclaims
            else None
        )

    def plan(self) -> CleanupPlan:
        return survey_and_plan(self.keeper, self.rule, self.protected, NOW, repository=self.repository)

    def execute(self, plan: CleanupPlan, tell: Callable[[str], None] = lambda _: None) -> CleanupReport:
        return execute_cleanup(
            self.keeper, plan, repository=self.repository, sleep=self.pauses.append, tell=tell, pause=0.5
        )

    def run(self) -> CleanupReport:
        return self.execute(self.plan())


def numbers(first: int, last: int) -> tuple[str, ...]:
    """Return the nightlies' tags from the oldest to the newest."""
    return tuple(nightly(number) for number in range(last, first - 1, -1))


def push_all(scene: Scene) -> list[str]:
    """Push 16 builds and what is no build; return the tags that are none."""
    scene.push_builds(16)
    others = {name: plain_image(name) for name in ("nightly", "nightly-x86_64", "nightly-aarch64", "latest", "v1.4.0")}
    others["nightly-fix-please"] = plain_image("fix")
    scene.push(others, {**dict.fromkeys(others, 0), "nightly-fix-please": 300})
    return list(others)


def manifests(scene: Scene, tag: str) -> int:
    """Return the status of a tag's manifest at the registry."""
    return scene.hub.forward("GET", f"/v2/{scene.repository}/manifests/{tag}")[0]


def assert_pullable(scene: Scene, folder: Path, *references: str) -> None:
    """Let skopeo copy each whole: the index, every image and every attestation."""
    for number, reference in enumerate(references):
        mark = "@" if reference.startswith("sha256:") else ":"
        source = f"docker://{scene.hub.registry.address}/{scene.repository}{mark}{reference}"
        skopeo("copy", "-q", "--all", "--src-tls-verify=false", source, f"oci:{folder / str(number)}:x")


# The whole run


def test_the_14_newest_builds_stay_and_the_rest_are_no_builds(scene: Scene) -> None:
    others = push_all(scene)
    cleanup = Cleanup(scene)
    report = cleanup.run()
    assert report.deleted == numbers(15, 16)
    assert scene.tags == sorted([*others, *numbers(1, 14)])
    assert (report.kept, report.left, report.gone, report_error(report)) == ((), (), (), None)
    assert cleanup.pauses == [0.5]
    again = cleanup.run()
    assert (again.deleted, scene.tags) == ((), sorted([*others, *numbers(1, 14)]))


def test_a_dry_run_only_reads_and_says_what_a_real_run_does(scene: Scene) -> None:
    push_all(scene)
    before = scene.tags
    cleanup = Cleanup(scene, reclaims=True)
    dry = cleanup.plan()
    assert {seen.method for seen in scene.hub.seen} <= {"GET", "HEAD", "POST"}
    assert {seen.path for seen in scene.hub.of("POST")} == {"/v2/auth/token"}
    assert not scene.hub.of("GET", "/blobs/")
    assert scene.tags == before
    real = cleanup.plan()
    assert real == dry
    report = cleanup.execute(real)
    assert list(report.deleted) == [choice.tag for choice in dry.deletions] != []
    assert list(report.reclaimed) == [part for item in dry.reclaims for part in (item.digest, *item.children)] != []
    done = [*report.deleted, *report.reclaimed]
    assert [what.removeprefix(real.repository)[1:] for _, what, _ in dry.actions()] == done


def test_builds_on_the_first_and_last_page_are_found_oldest_first(scene: Scene) -> None:
    scene.push_builds(20)
    filler = plain_image("filler")
    scene.push({f"other-{number}": filler for number in range(310)})
    # Ten builds older than everything, ten newer.
    for number in range(310):
        scene.hub.pushed[f"other-{number}"] = days_ago(100 + number / 1000)
    for number in range(11, 21):
        scene.hub.pushed[nightly(number)] = days_ago(200 + number)
    scene.hub.order = "oldest"
    cleanup = Cleanup(scene)
    plan = cleanup.plan()
    assert [seen.query.get("page", "1") for seen in scene.hub.of("GET")] == ["1", "2", "3", "4"]
    assert cleanup.execute(plan).deleted == numbers(15, 20)
    assert len(scene.tags) == 324


def test_an_organization_token_is_enough(scene: Scene) -> None:
    scene.push_builds(15)
    report = Cleanup(scene, who=ORGANIZATION).run()
    assert report.deleted == (nightly(15),)
    assert scene.hub.routes == {("POST", "/v2/auth"), ("GET", "/v2/namespaces"), ("DELETE", "/v2/namespaces")}


def test_young_builds_stay(scene: Scene) -> None:
    scene.push_builds(5)
    assert Cleanup(scene, RetentionRule(keep=1, younger_than=timedelta(days=4))).run().deleted == numbers(4, 5)


def test_a_build_without_a_push_time_stays(scene: Scene) -> None:
    scene.push_builds(4)
    scene.hub.pushed[nightly(4)] = None
    scene.hub.pushed[nightly(3)] = "0001-01-01T00:00:00Z"
    assert Cleanup(scene, KEEP_1).run().deleted == (nightly(2),)


# When something is wrong


@pytest.mark.parametrize("page", ["1", "2", "3"])
@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (Reply(503), TemporaryError),
        (Reply(429), TemporaryError),
        (Reply(401), CredentialsError),
        (Reply(403), CredentialsError),
        (Reply(200, b"{}"), ServiceRefusedError),
    ],
    ids=["503", "429", "401", "403", "no page"],
)
def test_nothing_is_deleted_when_a_page_fails(scene: Scene, page: str, reply: Reply, error: type[OmniError]) -> None:
    scene.push_builds(5)
    scene.hub.page_cap = 2
    scene.hub.rule = times(99, lambda seen: seen.query.get("page", "1") == page and seen.method == "GET", reply)
    with pytest.raises(error):
        Cleanup(scene, KEEP_1).run()
    assert len(scene.tags) == 5
    assert not scene.hub.of("DELETE")


@pytest.mark.parametrize("hides", [False, True])
def test_nothing_is_deleted_when_the_token_lacks_the_right(scene: Scene, hides: bool) -> None:
    scene.push_builds(5)
    scene.hub.hides_refusals = hides
    report = Cleanup(scene, KEEP_1, who=READER, reclaims=True).run()
    error = report_error(report)
    assert isinstance(error, CredentialsError)
    assert error.message.startswith(f"stopped at {nightly(5)}, 4 tags left, 0 tags deleted: the token of reader lacks")
    assert (report.deleted, report.reclaimed, report.left) == ((), (), numbers(2, 5))
    assert len(scene.tags) == 5
    assert len(scene.hub.of("DELETE")) == 1


def test_a_plan_above_the_cap_deletes_nothing(scene: Scene) -> None:
    scene.push_builds(5)
    cleanup = Cleanup(scene, RetentionRule(keep=1, most_deletions=3))
    plan = cleanup.plan()
    asked = len(scene.hub.seen)
    with pytest.raises(DataError, match=r"would delete 4 tags of .*, and 3 are allowed"):
        cleanup.execute(plan)
    assert len(scene.tags) == 5
    assert len(scene.hub.seen) == asked


@pytest.mark.parametrize("done", [0, 1, 3])
@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Reply(500), TemporaryError),
        (Reply(429), TemporaryError),
        (Reply(403, b'{"detail": "access denied"}'), CredentialsError),
        (Reply(400), ServiceRefusedError),
        (HangUp(), TemporaryError),
        (HangUp(after=True), TemporaryError),
    ],
    ids=["500", "429", "403", "400", "cut", "cut after it was done"],
)
def test_the_first_failure_stops_and_a_second_run_completes(
    scene: Scene, done: int, fault: Reply | HangUp, error: type[OmniError]
) -> None:
    scene.push_builds(5)
    deletes = [0]

    def rule(seen: Seen) -> Reply | HangUp | None:
        deletes[0] += seen.method == "DELETE"
        return fault if seen.method == "DELETE" and deletes[0] > done else None

    scene.hub.rule = rule
    cleanup = Cleanup(scene, KEEP_1)
    report = cleanup.run()
    there = report.as_json()
    assert there["deleted"] == list(numbers(2, 5)[:done])
    if fault == HangUp(after=True):
        assert set(scene.tags) <= set(numbers(1, 5 - done))
    else:
        failure = report_error(report)
        assert type(failure) is error
        assert f"stopped at {nightly(5 - done)}, {4 - done} tag" in failure.message
        assert f", {done} tag" in failure.message
        assert report.left == numbers(2, 5 - done)
        assert scene.tags == sorted(numbers(1, 5 - done))
    scene.hub.rule = lambda _: None
    assert report_error(cleanup.run()) is None
    assert scene.tags == [nightly(1)]


def test_whenever_it_ends_the_next_run_completes(hub: Hub) -> None:
    """Stop behind every action, tags and manifests; what is left is always a whole repository."""
    for stop in range(1, 8):
        scene = Scene(hub, hub.registry.new_name())
        builds = {nightly(number): attested(image(commit=commit(number), layers=())) for number in range(1, 4)}
        scene.push_copy("attested", builds)
        hub.pushed = {nightly(number): days_ago(number) for number in range(1, 4)}
        told: list[str] = []

        def tell(line: str, told: list[str] = told, stop: int = stop) -> None:
            told.append(line)
            if len(told) == stop:
                raise KeyboardInterrupt

        cleanup = Cleanup(scene, KEEP_1, reclaims=True)
        with pytest.raises(KeyboardInterrupt):
            cleanup.execute(cleanup.plan(), tell)
        assert report_error(cleanup.run()) is None
        assert scene.tags == [nightly(1)]
        assert manifests(scene, nightly(1)) == 200


# What changes between the plan and its execution


def test_what_changed_since_the_plan_stays_and_is_reported(scene: Scene) -> None:
    scene.push_builds(6)
    cleanup = Cleanup(scene, KEEP_1, reclaims=True)
    plan = cleanup.plan()
    other = plain_image("other")
    scene.push({nightly(6): other})
    scene.hub.pushed[nightly(5)] = days_ago(0)
    Cleanup(scene).keeper.delete_tag(nightly(4))
    report = cleanup.execute(plan)
    assert report.deleted == numbers(2, 3)
    assert report.gone == (nightly(4),)
    assert report.kept == (
        (nightly(6), f"it points at {other.top.digest} now"),
        (nightly(5), "it was pushed again"),
    )
    assert report_error(report) is None
    assert scene.tags == sorted([nightly(1), nightly(5), nightly(6)])
    stays = {choice.digest for choice in plan.choices if choice.tag == nightly(5)}
    assert not stays & set(report.reclaimed)


def test_a_manifest_that_a_new_tag_points_at_or_holds_stays(scene: Scene, tmp_path: Path) -> None:
    whole = {number: index(image(commit=commit(number), layers=()), attest=True) for number in range(1, 5)}
    scene.push({nightly(number): one for number, one in whole.items()})
    scene.hub.pushed = {nightly(number): days_ago(number) for number in whole}
    cleanup = Cleanup(scene, KEEP_1, reclaims=True)
    plan = cleanup.plan()
    # Somebody tags the one that goes, and makes an index that holds the image of another.
    both = index(image(commit=commit(3), layers=()), image("arm64", layers=()))
    scene.push({"v1": whole[4], "v2": both})
    report = cleanup.execute(plan)
    assert report.deleted == numbers(2, 4)
    held = both.below[0].digest
    kept = {digest for digest, _ in report.unreclaimed}
    assert kept == {whole[4].top.digest, *(one.digest for one in whole[4].below), held}
    assert dict(report.unreclaimed)[held] == "v2 needs it"
    assert_pullable(scene, tmp_path, nightly(1), "v1", "v2")


# Reclaiming


def shared(number: int) -> Image:
    return index(image(commit=commit(number), layers=()), image("arm64", commit=commit(number), layers=()), attest=True)


def test_a_digest_with_a_protected_twin_loses_its_tag_and_nothing_else(scene: Scene, tmp_path: Path) -> None:
    old = shared(15)
    scene.push_builds(14)
    scene.push(
        {nightly(15): old, "v1.4.0": old, "latest": old},
        {nightly(15): 15, "v1.4.0": 14, "latest": 14},
    )
    report = Cleanup(scene, reclaims=True).run()
    assert (report.deleted, report.reclaimed, report.unreclaimed) == ((nightly(15),), (), ())
    assert not scene.hub.of("DELETE", "/manifests/")
    assert_pullable(scene, tmp_path, "latest", "v1.4.0")


def test_what_nothing_needs_is_reclaimed_index_first(scene: Scene, tmp_path: Path) -> None:
    builds = {number: shared(number) for number in (1, 2, 3)}
    scene.push_copy(f"shared-{len(builds)}", {nightly(number): one for number, one in builds.items()})
    scene.hub.pushed = {nightly(number): days_ago(number) for number in builds}
    scene.push({"nightly-x86_64": index(image(commit=commit(2), layers=()), attest=True)})
    report = Cleanup(scene, KEEP_1, reclaims=True).run()
    order = [seen.path.rpartition("/")[2] for seen in scene.hub.of("DELETE", "/manifests/")]
    assert tuple(order) == report.reclaimed
    assert order.index(builds[3].top.digest) < min(order.index(one.digest) for one in builds[3].below)
    assert {seen.status for seen in scene.hub.of("DELETE", "/manifests/")} == {202}
    kept = {one.digest for one in builds[2].below[:2]}  # the image and its attestation, which the other index holds
    gone = {one.digest for number in (2, 3) for one in builds[number].manifests} - kept
    assert set(report.reclaimed) == gone
    assert {manifests(scene, digest) for digest in gone} == {404}
    assert {manifests(scene, digest) for digest in kept} == {200}
    assert_pullable(scene, tmp_path, nightly(1), "nightly-x86_64")


def test_what_a_rollback_may_need_is_not_reclaimed(scene: Scene, tmp_path: Path) -> None:
    builds = {number: shared(number) for number in (1, 2, 3)}
    scene.push_copy(f"shared-{len(builds)}", {nightly(number): one for number, one in builds.items()})
    scene.hub.pushed = {nightly(number): days_ago(number) for number in builds}
    protected = frozenset({builds[3].top.digest, f"sha256:{'0' * 64}"})
    report = Cleanup(scene, KEEP_1, reclaims=True, protected=protected).run()
    assert report.deleted == numbers(2, 3)
    assert set(report.reclaimed) == {one.digest for one in builds[2].manifests}
    assert_pullable(scene, tmp_path, nightly(1), builds[3].top.digest)


def test_a_refused_manifest_stays_with_what_it_holds(scene: Scene) -> None:
    builds = {number: shared(number) for number in (1, 2, 3)}
    scene.push_copy(f"shared-{len(builds)}", {nightly(number): one for number, one in builds.items()})
    scene.hub.pushed = {nightly(number): days_ago(number) for number in builds}
    scene.hub.refuses = {builds[3].top.digest}
    report = Cleanup(scene, KEEP_1, reclaims=True).run()
    assert report_error(report) is None
    assert set(report.reclaimed) == {one.digest for one in builds[2].manifests}
    reasons = dict(report.unreclaimed)
    assert set(reasons) == {one.digest for one in builds[3].manifests}
    assert reasons[builds[3].top.digest].startswith("refused: something refers to it, or the token lacks the right")
    assert {manifests(scene, one.digest) for one in builds[3].manifests} == {200}


@pytest.mark.parametrize("at_once", [True, False], ids=["done when asked again", "not done yet"])
def test_a_queued_deletion_is_believed_when_it_shows(scene: Scene, at_once: bool) -> None:
    builds = {number: shared(number) for number in (1, 2)}
    scene.push_copy(f"shared-{len(builds)}", {nightly(number): one for number, one in builds.items()})
    scene.hub.pushed = {nightly(number): days_ago(number) for number in builds}
    queued = builds[2].top.digest
    if at_once:
        scene.hub.queues = {queued}
    else:
        scene.hub.rule = times(9, lambda seen: seen.method == "DELETE" and seen.path.endswith(queued), Reply(500))
    report = Cleanup(scene, KEEP_1, reclaims=True).run()
    assert report_error(report) is None
    if at_once:
        assert set(report.reclaimed) == {one.digest for one in builds[2].manifests}
        return
    assert report.reclaimed == ()
    reasons = dict(report.unreclaimed)
    assert reasons[queued].startswith("perhaps deleted later (")
    assert {reasons[one.digest] for one in builds[2].below} == {f"{queued} stays and holds it"}


FAILING: dict[str, Callable[[Seen], bool]] = {
    "the listing before it": lambda seen: "page_size" in seen.query,
    "what a tag holds": lambda seen: seen.method == "GET" and "/manifests/" in seen.path,
}


@pytest.mark.parametrize("what", FAILING)
def test_nothing_is_reclaimed_when_it_cannot_be_seen_what_is_needed(scene: Scene, what: str) -> None:
    scene.push_builds(3)
    cleanup = Cleanup(scene, KEEP_1, reclaims=True)
    plan = cleanup.plan()
    scene.hub.rule = times(99, FAILING[what], Reply(503))
    report = cleanup.execute(plan)
    assert report.deleted == numbers(2, 3)
    assert report.reclaimed == ()
    assert not scene.hub.of("DELETE", "/manifests/")
    error = report_error(report)
    assert isinstance(error, TemporaryError)
    assert error.message.startswith("stopped at the manifests, 2 tags deleted: ")


def test_nothing_is_planned_when_it_cannot_be_seen_what_is_needed(scene: Scene) -> None:
    scene.push_builds(3)
    scene.hub.rule = times(99, FAILING["what a tag holds"], Reply(503))
    with pytest.raises(TemporaryError):
        Cleanup(scene, KEEP_1, reclaims=True).run()
    assert len(scene.tags) == 3


def test_nothing_is_reclaimed_after_a_deletion_that_failed(scene: Scene) -> None:
    scene.push_builds(4)
    scene.hub.rule = times(9, lambda seen: seen.method == "DELETE", Reply(400), after=2)
    report = Cleanup(scene, KEEP_1, reclaims=True).run()
    assert report.deleted == numbers(3, 4)
    assert (report.reclaimed, report.unreclaimed) == ((), ())
    assert not scene.hub.of("DELETE", "/manifests/")
    assert isinstance(report_error(report), ServiceRefusedError)


def test_an_index_in_an_index_goes_from_the_outside(scene: Scene) -> None:
    inner = index(image(commit="inner", layers=()), attest=True)
    outer = index(replace(inner, platform=None), image("arm64", layers=()))
    scene.push({nightly(2): outer, nightly(1): plain_image("newest")}, {nightly(2): 2, nightly(1): 1})
    report = Cleanup(scene, KEEP_1, reclaims=True).run()
    assert set(report.reclaimed) == {one.digest for one in outer.manifests}
    place = {digest: number for number, digest in enumerate(report.reclaimed)}
    assert place[outer.top.digest] < place[inner.top.digest] < min(place[one.digest] for one in inner.below)


# OCI layouts


@dataclass
class Folder:
    """Builds in an OCI layout; their ages come from their files unless the keeper is told otherwise."""

    repository: LayoutRepository

    @property
    def keeper(self) -> TagKeeper:
        return open_keeper(self.repository.name, load(environment={}))

    def push(self, made: dict[str, Image], ages: dict[str, float]) -> None:
        for tag, one in made.items():
            store(one, self.repository, tag)
        for tag, age in ages.items():
            digest = made[tag].top.digest.removeprefix("sha256:")
            moment = (NOW - timedelta(days=age)).timestamp()
            os.utime(self.repository.folder / "blobs" / "sha256" / digest, (moment, moment))


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    made = Folder(LayoutRepository(tmp_path / "public"))
    builds = {nightly(number): shared(number) for number in range(1, 6)}
    # Storing a manifest again makes its file new: what has an age comes last.
    others = {"nightly": builds[nightly(1)], "latest": builds[nightly(4)]}
    made.push({**others, **builds}, {nightly(number): number for number in range(1, 6)})
    return made


def test_a_layout_is_cleaned_like_a_registry(folder: Folder) -> None:
    plan = survey_and_plan(folder.keeper, RetentionRule(keep=2), (), NOW, repository=folder.repository)
    assert plan.repository == folder.repository.folder.as_uri()
    report = execute_cleanup(folder.keeper, plan, repository=folder.repository, pause=0)
    assert report.deleted == numbers(3, 5)
    assert folder.repository.tags() == sorted(["latest", "nightly", nightly(1), nightly(2)])
    assert set(report.reclaimed) == {one.digest for number in (3, 5) for one in shared(number).manifests}
    assert all(folder.repository.head(digest) is None for digest in report.reclaimed)
    for tag in ("latest", nightly(2)):
        top = folder.repository.manifest(tag)
        assert top is not None
        assert all(folder.repository.manifest(child.digest) for child in top.children)
    again = survey_and_plan(folder.keeper, RetentionRule(keep=2), (), NOW, repository=folder.repository)
    assert again.deletions == ()


def test_the_ledger_knows_better_than_the_files_of_a_layout(folder: Folder) -> None:
    pushed = {nightly(number): NOW - timedelta(days=10 - number) for number in range(1, 6)}
    keeper = LayoutKeeper(folder.repository, pushed)
    plan = survey_and_plan(keeper, RetentionRule(keep=2), (), NOW)
    assert [choice.tag for choice in plan.deletions] == [nightly(number) for number in (1, 2, 3)]
    assert execute_cleanup(keeper, plan, pause=0).deleted == tuple(nightly(number) for number in (1, 2, 3))


def test_a_layout_that_is_not_there_has_nothing_to_clean(tmp_path: Path) -> None:
    keeper = LayoutKeeper(LayoutRepository(tmp_path / "nowhere"))
    plan = survey_and_plan(keeper, RetentionRule(), (), NOW)
    assert execute_cleanup(keeper, plan).deleted == ()
    assert not (tmp_path / "nowhere").exists()


# Which repositories can be cleaned


def test_other_registries_are_refused_because_they_would_delete_siblings(scene: Scene) -> None:
    environment: dict[str, Any] = {
        key: value for key, value in scene.settings.environment.items() if "HUB_URL" not in key
    }
    with pytest.raises(ConfigurationError, match=r"tags of quay\.io/a/b cannot be deleted one by one"):
        open_keeper(RepositoryName.parse("quay.io/a/b"), load(environment=environment))
    assert (
        open_keeper(RepositoryName.parse("vllm/vllm-omni"), load(environment=environment)).name
        == "docker.io/vllm/vllm-omni"
    )


def test_a_named_account_api_serves_any_registry(scene: Scene) -> None:
    scene.push_builds(2)
    name = RepositoryName.parse(f"{scene.hub.registry.address}/{scene.repository}")
    keeper = open_keeper(name, scene.settings)
    assert [tag.name for tag in keeper.list_tags()] == sorted(numbers(1, 2))
    assert keeper.name == str(name)


def test_attestations_have_digests_of_their_own() -> None:
    """Show that the tests above tell attestations of different builds apart."""
    made = {attestation(image(commit=commit(number))).top.digest for number in (1, 2)}
    assert len(made) == 2
