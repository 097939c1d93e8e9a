from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from tasks.registry.documents import OCI_CONFIG, OCI_INDEX, OCI_MANIFEST, Manifest
from tasks.registry.oci_layout import REF_NAME
from tasks.registry.references import RepositoryName
from tasks.release import ordering
from tasks.release.channels import Channel
from tasks.release.ordering import Candidate, judge_latest, judge_nightly
from tasks.release.promotion_plan import Request, plan_publish
from tasks.release.shown import Shown
from tasks.support import next_steps
from tasks.support.errors import MissingInputError, OmniError, UsageError
from tasks.support.source import Ancestry
from tests import factory_image as images
from tests.factory_release import World, commit, nightly, passed, release, time_of
from tests.registry_faults import Hooked


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World.of_folders(tmp_path)
    made.staging, made.public = Hooked(made.staging), Hooked(made.public)
    return made


def refused(world: World, request: Request) -> OmniError:
    """Plan what must be refused; nothing may have been written to the public repository."""
    assert isinstance(world.public, Hooked)
    world.public.log.clear()
    with pytest.raises(OmniError) as caught:
        world.publish(request)
    assert world.public.changes == []
    assert world.entries(request.channel) == []
    return caught.value


REQUESTS = [nightly(1), release(1, "1.2.3")]


# What must be there


BROKEN = {
    "no configuration": (OCI_MANIFEST, b'{"schemaVersion":2,"layers":[]}'),
    "a configuration that is none": (OCI_MANIFEST, b'{"schemaVersion":2,"layers":[],"config":"x"}'),
    "no layers": (OCI_MANIFEST, b'{"schemaVersion":2,"config":{}}'),
    "no JSON": (OCI_MANIFEST, b"<html>"),
    "nested without an end": (OCI_MANIFEST, b"[" * 100_000),
    "an index of nothing": (OCI_INDEX, b'{"schemaVersion":2}'),
    "an index of a text": (OCI_INDEX, b'{"schemaVersion":2,"manifests":["x"]}'),
    "an empty index": (OCI_INDEX, b'{"schemaVersion":2,"manifests":[]}'),
}


@pytest.mark.parametrize("name", BROKEN)
def test_whatever_is_wrong_with_a_staged_manifest_its_tag_is_named(world: World, tmp_path: Path, name: str) -> None:
    """A person knows the tag; a digest alone is nowhere to be found."""
    world.staged(1)
    top, tag = Manifest(*BROKEN[name]), f"{commit(1)}-aarch64"
    folder = tmp_path / "staging"
    (folder / "blobs" / "sha256" / top.digest.removeprefix("sha256:")).write_bytes(top.data)
    index = json.loads((folder / "index.json").read_bytes())
    row = next(row for row in index["manifests"] if row["annotations"][REF_NAME] == tag)
    row |= {"mediaType": top.media_type, "digest": top.digest, "size": top.size}
    (folder / "index.json").write_text(json.dumps(index))
    error = refused(world, nightly(1))
    assert (error.exit_code, error.message.count(tag)) == (65, 1)
    assert "Error(" not in error.message
    assert "nothing was changed" in (error.hint or "")


@pytest.mark.parametrize("request_", REQUESTS, ids=["nightly", "release"])
@pytest.mark.parametrize(("architecture", "platform"), [("x86_64", "linux/amd64"), ("aarch64", "linux/arm64")])
def test_a_missing_architecture_is_named_with_the_next_command(
    world: World, request_: Request, architecture: str, platform: str
) -> None:
    passed(world.store, 1)
    for name, made in (("x86_64", "amd64"), ("aarch64", "arm64")):
        if name != architecture:
            top = images.attested(images.image(made, commit=commit(1)))
            images.store(top, world.staging, f"{commit(1)}-{name}")
    error = refused(world, request_)
    assert error.exit_code == 66
    reference = f"{world.staging.name}:{commit(1)}-{architecture}"
    assert error.message == f"staging image for {platform} is missing: {reference} (404)"
    assert error.hint is not None
    assert f"{world.staging.name.folder}:{commit(1)}-{architecture}" in error.hint


class OfRegistry(Hooked):
    """A repository that says it is in a registry."""

    @property
    def name(self) -> RepositoryName:
        return RepositoryName.parse("r.example/a/b")


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        ({}, "(invoke images.build cuda-release {words})"),
        (
            {"staging": "r.example/a/b", "source": "/a b", "profile": "ci", "store": "s", "json": True},
            "(OMNI_CI_STAGING=r.example/a/b invoke images.build cuda-release {words} --source '/a b' --profile ci)",
        ),
    ],
    ids=["plain", "flags"],
)
def test_a_missing_image_of_a_registry_is_built_for_where_it_is_missed(
    world: World, flags: dict[str, Any], line: str
) -> None:
    world.staging = OfRegistry(world.staging)
    with next_steps.given(flags):
        error = refused(world, nightly(1))
    words = f"--platform linux/amd64 --commit {commit(1)} --push"
    assert line.format(words=words) in (error.hint or "")


def test_both_architectures_missing_is_an_error_too(world: World) -> None:
    passed(world.store, 1)
    assert refused(world, nightly(1)).exit_code == 66


def stage_pair(world: World, first: images.Image, second: images.Image) -> None:
    passed(world.store, 1)
    images.store(first, world.staging, f"{commit(1)}-x86_64")
    images.store(second, world.staging, f"{commit(1)}-aarch64")


def image(architecture: str = "amd64", **options: Any) -> images.Image:
    return images.image(architecture, **{"commit": commit(1), **options})


WRONG = {
    "two of amd64": (image(), image(), "linux/amd64, not (for|of) linux/arm64"),
    "swapped": (image("arm64"), image(), "linux/arm64, not (for|of) linux/amd64"),
    "windows": (image(os="windows"), image("arm64"), "windows/amd64"),
    "arm v7": (image(), image("arm", variant="v7"), "linux/arm/v7"),
    "amd64 v3": (image(variant="v3"), image("arm64"), "linux/amd64/v3"),
    "another commit": (image(commit=commit(2)), image("arm64"), commit(2)),
    "another commit second": (image(), image("arm64", commit=commit(2)), commit(2)),
}


@pytest.mark.parametrize("attested", [False, True], ids=["image", "index"])
@pytest.mark.parametrize("case", WRONG)
def test_an_image_of_another_platform_or_commit_is_refused(world: World, case: str, attested: bool) -> None:
    first, second, message = WRONG[case]
    if attested:
        first, second = images.attested(first), images.attested(second)
    stage_pair(world, first, second)
    for request in REQUESTS:
        error = refused(world, request)
        assert error.exit_code == 65
        assert re.search(message, error.message), error.message


def test_an_index_that_lies_about_its_image_is_refused(world: World) -> None:
    honest = images.attested(image())
    lying = Manifest(honest.top.media_type, honest.top.data.replace(b'"amd64"', b'"arm64"'))
    stage_pair(world, honest, images.Image(lying, honest.below, honest.contents))
    assert "linux/amd64, not for linux/arm64" in refused(world, nightly(1)).message


def test_an_index_of_both_platforms_under_one_architectures_tag_is_refused(world: World) -> None:
    both = images.index(image(), image("arm64"))
    stage_pair(world, both, images.attested(image("arm64")))
    assert "holds 2 images" in refused(world, nightly(1)).message


def test_an_index_of_indexes_is_refused(world: World) -> None:
    stage_pair(world, images.index(images.attested(image())), image("arm64"))
    assert refused(world, nightly(1)).exit_code == 65


@pytest.mark.parametrize(
    ("label", "fits"),
    [
        ("1.2.3", True),
        ("v1.2.3", True),
        ("1.2.3+cu130", True),
        (None, True),
        ("1.2.4", False),
        ("1.2.3rc1", False),
        ("1.2.3.dev4", False),
        ("latest", False),
    ],
)
def test_the_version_must_agree_with_the_images_label(world: World, label: str | None, fits: bool) -> None:
    world.staged(1, version=label)
    if fits:
        assert [tag.tag for tag in world.plan(release(1, "1.2.3")).writes][2] == "v1.2.3"
    else:
        error = refused(world, release(1, "1.2.3"))
        assert (error.exit_code, str(label) in error.message) == (65, True)
    # A nightly's image has whatever version the source had.
    assert world.plan(nightly(1)).writes


def test_images_that_do_not_say_their_commit_are_warned_about(world: World) -> None:
    stage_pair(world, image(commit=None), image("arm64", commit=None))
    assert [warning.split()[0] for warning in world.plan(nightly(1)).warnings] == [
        f"{commit(1)}-x86_64",
        f"{commit(1)}-aarch64",
    ]


def test_arm64_may_write_out_its_only_variant(world: World) -> None:
    stage_pair(world, image(), image("arm64", variant="v8"))
    assert world.plan(nightly(1)).writes


# Tests


def test_a_release_needs_the_green_merge(world: World) -> None:
    world.staged(1, tested=False, version="1.2.3")
    error = refused(world, release(1, "1.2.3"))
    assert error.exit_code == 66
    planned = world.plan(release(1, "1.2.3"))
    assert planned.writes
    assert str(planned.refusal) == error.message
    assert "cuda_merge" in error.message
    assert "--untested" in (error.hint or "")
    for bad in ("hard_failed", "soft_failed", "errored"):
        passed(world.store, 1, one="passed", two=bad)
        assert f"two: {bad}" in refused(world, release(1, "1.2.3")).message
    assert world.plan(release(1, "1.2.3", untested="the cards are away")).writes
    passed(world.store, 1, one="passed", two="passed")
    assert world.plan(release(1, "1.2.3")).warnings == ()


def test_a_nightly_only_warns_of_tests_that_did_not_pass(world: World) -> None:
    world.staged(1, tested=False)
    plan = world.plan(nightly(1))
    assert plan.writes
    assert "no result of cuda_merge" in plan.warnings[0]


@pytest.mark.parametrize("change", [{"version": Version("1.0")}, {"move_latest": True}])
def test_what_belongs_to_a_release_is_refused_for_a_nightly(change: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Request(Channel.NIGHTLY, commit(1), **change)
    with pytest.raises(UsageError, match="needs a version"):
        Request(Channel.RELEASE, commit(1))


# Tags that never change


@pytest.mark.parametrize("tag", ["v1.2.3", "v1.2.3-x86_64", "v1.2.3-aarch64"])
def test_a_version_that_is_there_with_other_bytes_is_refused(world: World, tag: str) -> None:
    world.staged(1)
    images.store(image(version="other"), world.public, tag)
    error = refused(world, release(1, "1.2.3"))
    assert error.exit_code == 65
    assert f"{tag} is there already" in error.message


def test_a_commits_nightly_that_is_there_with_other_bytes_is_refused(world: World) -> None:
    world.staged(1)
    images.store(image(), world.public, f"nightly-{commit(1)}")
    assert refused(world, nightly(1)).exit_code == 65


# The dry run and the second run


@pytest.mark.parametrize("request_", REQUESTS, ids=["nightly", "release"])
def test_a_plan_only_looks_and_is_what_happens(world: World, request_: Request) -> None:
    world.staged(1)
    assert isinstance(world.public, Hooked)
    assert isinstance(world.staging, Hooked)
    world.staging.log.clear()
    world.public.log.clear()
    plan = world.plan(request_)
    assert {method for method, _ in world.staging.log + world.public.log} <= {
        "head",
        "manifest",
        "has_blob",
        "read_blob",
    }
    configs = {staged.image.config.digest for staged in plan.images if staged.image.config}
    assert set(world.staging.calls("read_blob")) == configs
    assert world.public.calls("read_blob") == []
    done = world.publish(request_)
    assert done.plan.index == plan.index
    assert [(tag.tag, tag.digest) for tag in done.plan.tags] == [(tag.tag, tag.digest) for tag in plan.tags]
    assert world.public.calls("tag") == [tag.tag for tag in plan.writes]
    assert {tag: world.tags()[tag] for tag in world.public.calls("tag")} == {t.tag: t.digest for t in plan.tags}


@pytest.mark.parametrize("request_", REQUESTS, ids=["nightly", "release"])
def test_what_is_published_already_asks_for_no_body_and_writes_nothing(world: World, request_: Request) -> None:
    world.staged(1)
    world.publish(request_)
    entries = world.entries(request_.channel)
    assert isinstance(world.public, Hooked)
    assert isinstance(world.staging, Hooked)
    world.public.log.clear()
    world.staging.log.clear()
    report = world.publish(request_)
    assert not report.wrote
    assert {method for method, _ in world.staging.log + world.public.log} == {"head"}
    assert world.entries(request_.channel) == entries


# Order


def says(relation: Ancestry) -> ordering.AskAncestry:
    return lambda _older, _newer: relation


def showing(number: int, **facts: Any) -> Shown:
    return Shown("nightly", f"sha256:{number:064x}", commit(number), time_of(number), **facts)


def candidate(number: int, **facts: Any) -> Candidate:
    return Candidate(f"sha256:{number:064x}", commit(number), time_of(number), **facts)


@pytest.mark.parametrize(
    ("there", "new", "relation", "moves"),
    [
        (1, 2, Ancestry.UNKNOWN, True),
        (2, 1, Ancestry.UNKNOWN, False),
        (1, 2, Ancestry.DIVERGED, True),
        (2, 1, Ancestry.DIVERGED, False),
        (2, 1, Ancestry.ANCESTOR, True),
        (1, 2, Ancestry.DESCENDANT, False),
        (1, 1, Ancestry.UNKNOWN, True),
    ],
)
def test_nightly_moves_forward_by_ancestry_else_by_time(there: int, new: int, relation: Ancestry, moves: bool) -> None:
    verdict = judge_nightly(showing(there), candidate(new), says(relation))
    assert verdict.moves is moves
    assert moves or commit(there) in verdict.reason


@pytest.mark.parametrize("time", [time_of(1), None, "yesterday", ""])
def test_two_nightlies_whose_order_nobody_knows_are_refused(time: str | None) -> None:
    two = Candidate("sha256:2", commit(2), time)
    with pytest.raises(MissingInputError, match=f"{commit(1)}.*{commit(2)}") as caught:
        judge_nightly(showing(1), two, says(Ancestry.UNKNOWN))
    assert caught.value.exit_code == 66
    assert judge_nightly(showing(1), two, says(Ancestry.ANCESTOR)).moves


@pytest.mark.parametrize(
    ("there", "ours", "lacks", "helps"),
    [
        (None, time_of(2), f"the time of {commit(1)} (now nightly) is not known", False),
        (time_of(1), None, f"the time of {commit(2)} is not known", True),
        (None, None, "the time of neither is known", False),
        (time_of(1), time_of(1), "they have the same time", False),
    ],
)
def test_a_lacking_time_is_told_with_only_what_helps(
    there: str | None, ours: str | None, lacks: str, helps: bool
) -> None:
    now = Shown("nightly", "sha256:1", commit(1), there)
    with pytest.raises(MissingInputError) as caught:
        judge_nightly(now, Candidate("sha256:2", commit(2), ours), says(Ancestry.UNKNOWN))
    assert caught.value.message.endswith(lacks)
    hint = caught.value.hint or ""
    assert "--source" in hint
    assert ("--commit-time" in hint) is helps


def test_a_nightly_without_a_time_is_warned_about(world: World) -> None:
    world.staged(1)
    timeless = Request(Channel.NIGHTLY, commit(1))
    assert [line for line in world.plan(timeless).warnings if "--commit-time" in line]
    assert world.plan(nightly(1)).warnings == ()


def test_the_first_nightly_needs_no_order() -> None:
    assert judge_nightly(None, Candidate("sha256:2", commit(2), None), says(Ancestry.UNKNOWN)).moves
    unlabelled = Shown("nightly", "sha256:1")
    assert judge_nightly(unlabelled, candidate(2), says(Ancestry.UNKNOWN)).moves


LATEST = [
    # latest shows, published, moves, says
    ("1.4.0", "1.4.1", True, "newer than 1.4.0"),
    ("1.4.0", "1.3.9", False, "latest stays at 1.4.0 (1.3.9 is older)"),
    ("1.4.0", "1.5.0rc1", False, "latest stays at 1.4.0 (1.5.0rc1 is a pre-release)"),
    ("1.4.0", "1.10.0", True, "newer than 1.4.0"),
    ("1.4.0", "1.4.0.post1", True, "newer than 1.4.0"),
    ("1.4.0rc1", "1.4.0", True, "newer than 1.4.0rc1"),
    ("0.9", "0.10", True, "newer than 0.9"),
]


@pytest.mark.parametrize(("there", "new", "moves", "says_"), LATEST)
def test_latest_moves_only_to_the_newest_stable_version(there: str, new: str, moves: bool, says_: str) -> None:
    verdict = judge_latest(showing(1, version=Version(there)), None, candidate(2, version=Version(new)))
    assert (verdict.moves, verdict.reason) == (moves, says_)
    forced = judge_latest(
        showing(1, version=Version(there)), None, candidate(2, version=Version(new)), move_latest=True
    )
    assert forced.moves


def test_a_latest_of_unknown_version_stays() -> None:
    verdict = judge_latest(showing(1), None, candidate(2, version=Version("1.0")))
    assert not verdict.moves
    assert "--move-latest" in verdict.reason


@pytest.mark.parametrize(("newest", "moves"), [(None, True), ("1.0", True), ("1.1", False), ("0.9", True)])
def test_the_first_latest_is_the_newest_stable_version(newest: str | None, moves: bool) -> None:
    version = Version(newest) if newest else None
    assert judge_latest(None, version, candidate(2, version=Version("1.0"))).moves is moves


@pytest.mark.parametrize("labelled", [True, False], ids=["label", "version tag"])
def test_the_version_of_latest_comes_from_its_image_or_from_its_version_tag(world: World, labelled: bool) -> None:
    version = "1.4.0" if labelled else None
    both = images.index(*(images.image(a, commit=None, version=version) for a in ("amd64", "arm64")))
    images.store(both, world.public, "latest")
    if not labelled:
        images.store(both, world.public, "v1.4.0")
    world.staged(1)
    assert world.plan(release(1, "1.3.9")).verdict.reason == "latest stays at 1.4.0 (1.3.9 is older)"
    assert world.plan(release(1, "1.4.1")).verdict.moves


def test_the_time_of_a_commit_is_its_images_when_nobody_else_knows(world: World) -> None:
    passed(world.store, 1)
    for name, architecture in (("x86_64", "amd64"), ("aarch64", "arm64")):
        labels = {images.REVISION: commit(1), "org.opencontainers.image.created": time_of(7)}
        document = {"architecture": architecture, "os": "linux", "config": {"Labels": labels}}
        config = images.content(json.dumps(document).encode(), OCI_CONFIG)
        part = images.layer({"file": b"x"})
        made = images.Image(images.manifest_of(config, (part,)), (), (part, config))
        images.store(made, world.staging, f"{commit(1)}-{name}")
    assert plan_publish(world.parties, Request(Channel.NIGHTLY, commit(1))).commit_time == time_of(7)
    assert world.plan(nightly(1)).commit_time == time_of(1)
