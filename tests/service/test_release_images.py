"""Publishing and rolling back between real registries; skopeo judges what users would pull."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tasks.registry.copying import Limits
from tasks.registry.distribution import DistributionRepository
from tasks.registry.documents import REFERENCE_DIGEST
from tasks.registry.interface import Repository
from tasks.registry.opening import open_repository
from tasks.registry.wire import Patience
from tasks.release.channels import Channel
from tasks.release.ledger import Event
from tasks.support.errors import OmniError
from tasks.support.store import open_store
from tests.factory_image import Image, attested, image, layer, noise, store
from tests.factory_release import World, commit, is_whole, nightly, passed
from tests.hub_server import Credential, hub_before
from tests.registry_proxy import CutRequest, Flip, Proxy, Seen, limited, proxy_before, times
from tests.registry_servers import Registry
from tests.skopeo import skopeo

pytestmark = pytest.mark.service

ROOT = Path(__file__).parents[2]
PATIENCE = Patience(tries=2, first_pause=0.01)
SIZE = 300_000


def opened(registry: Registry, name: str) -> Repository:
    return open_repository(f"{registry.address}/{name}", registry.settings, patience=PATIENCE)


@pytest.fixture
def proxy(other_registry: Registry) -> Iterator[Proxy]:
    """Return a proxy before the public registry."""
    with proxy_before(other_registry) as made:
        yield made


def world_of(staging: Repository, public: Repository, folder: Path) -> World:
    return World(staging, public, open_store(str(folder / "store")), limits=Limits(attempts=3, pause=0.01))


@pytest.fixture
def world(registry: Registry, proxy: Proxy, tmp_path: Path) -> World:
    name = registry.new_name()
    return world_of(opened(registry, f"{name}/staging"), opened(proxy.registry, f"{name}/public"), tmp_path)


def stage_big(world: World, number: int) -> dict[str, Image]:
    """Stage images of four layers each, one of them shared."""
    passed(world.store, number)
    base = layer({"base": noise("base", SIZE)})
    made = {}
    for end, arch in (("x86_64", "amd64"), ("aarch64", "arm64")):
        layers = (base, *(layer({f"{arch}{n}": noise((number, arch, n), SIZE)}) for n in range(3)))
        made[f"{commit(number)}-{end}"] = attested(image(arch, commit=commit(number), layers=layers))
        store(made[f"{commit(number)}-{end}"], world.staging, f"{commit(number)}-{end}")
    world.images[number] = made
    return made


def raw(registry: Registry, world: World, tag: str) -> dict[str, Any]:
    """Return what skopeo reads under a public tag."""
    text = skopeo(
        "inspect", "--raw", "--tls-verify=false", f"docker://{registry.address}/{world.public.name.name}:{tag}"
    )
    document: dict[str, Any] = json.loads(text)
    return document


def digest(world: World, tag: str) -> str:
    found = world.public.head(tag)
    assert found is not None
    return found.digest


def test_what_users_pull_is_what_was_staged_attestations_included(
    world: World, other_registry: Registry, tmp_path: Path
) -> None:
    staged = stage_big(world, 1)
    world.nightly(1)
    x86, arm = staged[f"{commit(1)}-x86_64"].top, staged[f"{commit(1)}-aarch64"].top
    for tag in ("nightly", f"nightly-{commit(1)}"):
        entries = raw(other_registry, world, tag)["manifests"]
        assert [row["digest"] for row in entries] == [child.digest for child in (*x86.children, *arm.children)]
        about = [row.get("annotations", {}).get(REFERENCE_DIGEST) for row in entries]
        assert about == [None, entries[0]["digest"], None, entries[2]["digest"]]
    for tag, top in (("nightly", None), ("nightly-x86_64", x86), ("nightly-aarch64", arm)):
        assert top is None or digest(world, tag) == top.digest
        source = f"docker://{other_registry.address}/{world.public.name.name}:{tag}"
        skopeo("copy", "--all", "--src-tls-verify=false", source, f"oci:{tmp_path / tag}:copied")


def test_a_whole_release_then_a_backport_then_the_way_back(
    world: World, proxy: Proxy, other_registry: Registry
) -> None:
    world.staged(1, version="1.3.9")
    world.staged(2, version="1.4.0")
    world.staged(3, version="1.3.10")
    world.release(1, "1.3.9")
    world.release(2, "1.4.0", run="77")
    report = world.release(3, "1.3.10")
    assert report.plan.verdict.reason == "latest stays at 1.4.0 (1.3.10 is older)"
    assert raw(other_registry, world, "latest") == raw(other_registry, world, "v1.4.0")
    before = {tag: digest(world, tag) for tag in world.public.tags()}
    proxy.seen.clear()
    world.rollback(Channel.RELEASE, run="77")
    puts = [seen.path.rpartition("/")[2] for seen in proxy.seen if seen.method not in {"GET", "HEAD"}]
    assert puts == ["latest-x86_64", "latest-aarch64", "latest"]
    assert not [seen for seen in proxy.seen if seen.is_blob]
    assert raw(other_registry, world, "latest") == raw(other_registry, world, "v1.3.9")
    after = {tag: digest(world, tag) for tag in world.public.tags()}
    assert {tag for tag in after if after[tag] != before[tag]} == {"latest", "latest-x86_64", "latest-aarch64"}
    assert world.entries(Channel.RELEASE)[0].undone == "77"


def test_a_second_publish_and_a_dry_run_only_look(world: World, proxy: Proxy) -> None:
    stage_big(world, 1)
    plan = world.plan(nightly(1))
    assert {seen.method for seen in proxy.seen} <= {"GET", "HEAD"}
    assert world.public.tags() == []
    report = world.nightly(1)
    assert report.plan.index == plan.index
    assert [tag.digest for tag in report.plan.tags] == [tag.digest for tag in plan.tags]
    proxy.seen.clear()
    entries = world.entries()
    assert not world.nightly(1).wrote
    assert {seen.method for seen in proxy.seen} == {"HEAD"}
    assert world.entries() == entries


def test_inside_one_registry_no_layer_moves(registry: Registry, tmp_path: Path) -> None:
    name = registry.new_name()
    with proxy_before(registry) as proxy:
        staging, public = (opened(proxy.registry, f"{name}/{part}") for part in ("staging", "public"))
        world = world_of(staging, public, tmp_path)
        staged = stage_big(world, 1)
        proxy.seen.clear()
        report = world.nightly(1)
        assert proxy.sent == 0
        blobs = {part.blob.digest: part for made in staged.values() for part in made.contents}
        assert report.copied is not None
        assert report.copied.mounted.blobs == len(blobs)
        assert report.copied.copied.blobs == 0
        read = {seen.path.rpartition("/")[2] for seen in proxy.seen if seen.method == "GET" and seen.is_blob}
        configs = {made.below[0].config.digest for made in staged.values() if made.below[0].config}
        assert read <= configs
    assert len(raw(registry, world, "nightly")["manifests"]) == 4


def test_an_upload_that_keeps_breaking_moves_no_tag_and_the_next_run_sends_the_rest(world: World, proxy: Proxy) -> None:
    staged = stage_big(world, 1)
    # From the sixth upload on every connection breaks.
    count = 0

    def rule(seen: Seen) -> Any:
        nonlocal count
        if not (seen.is_upload and seen.method == "PATCH"):
            return None
        count += 1
        return CutRequest(1000) if count > 5 else None

    proxy.rule = rule
    with pytest.raises(OmniError) as caught:
        world.release(1, "1.2.3")
    assert "sha256:" in caught.value.message
    assert "3 attempts" in caught.value.message
    assert world.public.tags() == []
    assert world.entries(Channel.RELEASE) == []
    proxy.rule = lambda _seen: None
    blobs = {part.blob.digest: part.blob for made in staged.values() for part in made.contents}
    missing = {known for known in blobs if not world.public.has_blob(known)}
    assert 0 < len(missing) < len(blobs)
    report = world.release(1, "1.2.3")
    assert report.copied is not None
    assert report.copied.copied.blobs == len(missing)
    assert {"v1.2.3", "latest"} <= set(world.public.tags())


def test_bytes_that_were_turned_on_the_way_never_get_a_tag(
    registry: Registry, other_registry: Registry, tmp_path: Path
) -> None:
    name = registry.new_name()
    with proxy_before(registry) as between:
        world = world_of(opened(between.registry, name), opened(other_registry, name), tmp_path)
        staged = stage_big(world, 1)
        bad = staged[f"{commit(1)}-x86_64"].below[0].layers[1].digest
        between.rule = lambda seen: Flip(1000) if seen.method == "GET" and bad in seen.path else None
        with pytest.raises(OmniError, match="mismatch") as caught:
            world.nightly(1)
    assert bad in caught.value.message
    assert world.public.tags() == []
    assert not world.public.has_blob(bad)


def test_being_asked_too_often_is_waited_for_and_told(world: World, proxy: Proxy) -> None:
    world.staged(1)
    proxy.rule = times(2, lambda _seen: True, limited("1"))
    assert isinstance(world.public, DistributionRepository)
    before = world.public.waited
    world.nightly(1)
    told = str(world.public.waited - before)
    assert told.startswith("rate limited 2 times, waited")
    assert "nightly" in world.public.tags()


def test_a_connection_that_breaks_at_a_tag_is_told_and_completed(
    world: World, proxy: Proxy, other_registry: Registry
) -> None:
    world.staged(1)
    for number, tag in enumerate(("v1.0", "latest-aarch64")):
        world.staged(number + 2)
        version = f"1.{number}"
        name = tag.replace("v1.0", f"v{version}")
        proxy.rule = times(9, lambda seen, n=name: seen.method == "PUT" and seen.path.endswith(f"/{n}"), CutRequest(10))  # type: ignore[misc]
        with pytest.raises(OmniError) as caught:
            world.release(number + 2, version)
        assert f"not moved: {name}" in caught.value.message or f", {name}" in caught.value.message
        assert world.entries(Channel.RELEASE)[0].failure is not None
        proxy.rule = lambda _seen: None
        world.release(number + 2, version)
        assert raw(other_registry, world, "latest") == raw(other_registry, world, f"v{version}")
        assert world.entries(Channel.RELEASE)[0].finished


def test_a_ledger_in_a_bucket_is_as_good_as_one_in_a_folder(s3_url: str, tmp_path: Path) -> None:
    world = World.of_folders(tmp_path)
    world.store = open_store(s3_url)
    for number in (1, 2):
        world.staged(number)
        world.nightly(number)
    entries = world.entries_count(Channel.NIGHTLY)
    assert not world.nightly(2).wrote
    assert world.entries_count(Channel.NIGHTLY) == entries == 4
    world.rollback()
    assert world.tags()["nightly"] == world.tags()[f"nightly-{commit(1)}"]
    assert [entry.event for entry in world.entries()] == [Event.RESULT, Event.INTENT] * 3


# The commands


class Cli:
    """``invoke`` in the production profile, against the two registries."""

    def __init__(self, world: World, registry: Registry, tmp_path: Path) -> None:
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("OMNI_CI_", "BUILDKITE"))},
            **registry.environment,
            "OMNI_CI_PROFILE": "production",
            "OMNI_CI_STAGING": str(world.staging.name),
            "OMNI_CI_PUBLIC": str(world.public.name),
            "OMNI_CI_STORE": str(tmp_path / "store"),
            "DOCKERHUB_TOKEN": "hub-secret-token",
        }

    def __call__(self, *words: str, expect: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "invoke", "-r", str(ROOT), *words]
        done = subprocess.run(
            argv, capture_output=True, text=True, check=False, env={**self.environment, **environment}, cwd=ROOT
        )
        assert done.returncode == expect, done.stderr
        assert "hub-secret-token" not in done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done


@pytest.fixture
def cli(world: World, registry: Registry, tmp_path: Path) -> Cli:
    return Cli(world, registry, tmp_path)


@pytest.mark.slow
def test_a_clean_up_by_command_goes_through_the_account_api_and_leaves_what_is_needed(
    registry: Registry, other_registry: Registry, tmp_path: Path
) -> None:
    """After nightlies, a release and a rollback; what is left is whole, as skopeo reads it."""
    name = registry.new_name()
    world = world_of(opened(registry, f"{name}/staging"), opened(other_registry, name), tmp_path)
    cli = Cli(world, registry, tmp_path)
    for number in range(1, 6):
        world.staged(number, version="0.28.0" if number == 2 else None)
        world.nightly(number)
    passed(world.store, 2)
    cli("release.publish", "release", "--version", "0.28.0", "--commit", commit(2))
    cli("release.rollback", "nightly")
    before = {tag: digest(world, tag) for tag in world.public.tags()}
    with hub_before(other_registry) as hub:
        hub.credentials.append(Credential("somebody", "hub-secret-token"))
        cli.environment |= {"OMNI_CI_HUB_URL": hub.address, "DOCKERHUB_USERNAME": "somebody"}
        words = ("release.cleanup", "--keep", "2", "--reclaim", "--json")
        planned = json.loads(cli(*words, "--dry-run").stdout)
        assert not hub.of("DELETE")
        cli(*words, "--max", "1", expect=65)
        cli(*words, expect=77, DOCKERHUB_USERNAME="nobody")
        assert {tag: digest(world, tag) for tag in world.public.tags()} == before
        done = json.loads(cli(*words).stdout)
    gone = {f"nightly-{commit(number)}" for number in (1, 3)}  # latest shows the second one's
    assert set(done["deleted"]) == gone
    assert {row["what"].rpartition(":")[2] for row in planned["actions"] if row["action"] == "delete tag"} == gone
    assert {tag: digest(world, tag) for tag in world.public.tags()} == {
        tag: known for tag, known in before.items() if tag not in gone
    }
    for tag in world.public.tags():
        source = f"docker://{other_registry.address}/{world.public.name.name}:{tag}"
        skopeo("copy", "--all", "--src-tls-verify=false", source, f"oci:{tmp_path / 'left'}:{tag}")
    cli("release.rollback", "nightly", "--to", f"nightly-{commit(5)}")
    rows = json.loads(cli("release.status", "--json").stdout)["tags"]
    assert {row["note"] for row in rows} == {"as recorded"}


@pytest.mark.slow
def test_the_commands_do_a_nightly_a_release_and_the_way_back(world: World, proxy: Proxy, cli: Cli) -> None:
    for number in (1, 2):
        world.staged(number)
    time = ("--commit-time", "2026-01-01T00:00:00Z")
    proxy.seen.clear()
    dry = json.loads(cli("release.publish", "nightly", "--commit", commit(1), *time, "--dry-run", "--json").stdout)
    assert {seen.method for seen in proxy.seen} <= {"GET", "HEAD"}
    assert [row["action"] for row in dry["actions"]] == ["copy", "copy", "push index", "write tag", *["move tag"] * 3]
    done = cli("release.publish", "nightly", "--commit", commit(1), *time)
    assert done.stderr.startswith("profile production: public things can change · nightly · 00000000 · 127.0.0.1")
    assert f"pull: docker pull {world.public.name}:nightly" in done.stderr
    said = json.loads(cli("release.publish", "release", "--commit", commit(2), "--version", "v0.28.0", "--json").stdout)
    assert said["index"] == digest(world, "latest") == digest(world, "v0.28.0")
    later = ("--commit-time", "2026-01-02T00:00:00Z")
    done = cli("release.publish", "nightly", "--commit", commit(2), *later)
    undo = next(line for line in done.stderr.splitlines() if line.startswith("undo: invoke "))
    assert digest(world, "nightly") == digest(world, f"nightly-{commit(2)}")
    cli(*undo.removeprefix("undo: invoke ").split())
    assert digest(world, "nightly") == digest(world, f"nightly-{commit(1)}")
    rows = {row["tag"]: row for row in json.loads(cli("release.status", "--json").stdout)["tags"]}
    assert {row["note"] for row in rows.values()} == {"as recorded"}
    assert (rows["nightly"]["commit"], rows["latest"]["version"]) == (commit(1), "0.28.0")
    events = [entry.event for entry in world.entries()]
    assert events == [Event.RESULT, Event.INTENT] * 3


@pytest.mark.slow
def test_the_commands_refuse_with_their_codes(world: World, proxy: Proxy, cli: Cli) -> None:
    world.staged(1, tested=False)
    proxy.seen.clear()
    publish = ("release.publish", "release", "--commit", commit(1))
    for version in ("1.0; rm -rf /", "1.0\n2"):
        cli(*publish, "--version", version, expect=64)
    cli(*publish, expect=64)
    cli("release.publish", "nightly", "--commit", commit(1), "--move-latest", expect=64)
    assert proxy.seen == []
    assert "cuda_merge" in cli(*publish, "--version", "1.0", expect=66).stderr
    assert "linux/amd64 is missing" in cli("release.publish", "nightly", "--commit", commit(5), expect=66).stderr
    cli("release.publish", "nightly", "--commit", commit(1), expect=78, OMNI_CI_PROFILE="ci")
    cli("release.publish", "nightly", "--commit", commit(1), expect=78, OMNI_CI_PROFILE="local")
    cli("release.rollback", "nightly", expect=66)
    assert {seen.method for seen in proxy.seen} <= {"GET", "HEAD"}
    assert world.public.tags() == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [3, 12, 20, 26, 30, 34, 38])
def test_a_command_killed_at_any_request_leaves_whole_tags_and_is_completed(
    world: World, proxy: Proxy, cli: Cli, number: int
) -> None:
    for one in (1, 2):
        world.staged(one)
    words = ("release.publish", "nightly", "--commit", commit(2), "--commit-time", "2026-01-02T00:00:00Z")
    world.nightly(1)
    proxy.seen.clear()
    running: list[subprocess.Popen[bytes]] = []

    def rule(_seen: Seen) -> Any:
        if len(proxy.seen) == number:
            running[0].kill()
            running[0].wait()
        return None

    proxy.rule = rule
    argv = [sys.executable, "-m", "invoke", "-r", str(ROOT), *words]
    running.append(subprocess.Popen(argv, env=cli.environment, cwd=ROOT, stderr=subprocess.DEVNULL))
    assert running[0].wait() == -9
    proxy.rule = lambda _seen: None
    for tag in world.public.tags():
        assert is_whole(world.public, digest(world, tag)), tag
    there = {part.blob.digest for made in world.images[2].values() for part in made.contents}
    there = {known for known in there if world.public.has_blob(known)}
    proxy.seen.clear()
    cli(*words)
    committed = {seen.query.get("digest") for seen in proxy.seen if seen.is_upload and seen.method == "PUT"}
    assert not committed & there
    tags = {tag: digest(world, tag) for tag in world.public.tags()}
    assert tags["nightly"] == tags[f"nightly-{commit(2)}"]
    for end in ("x86_64", "aarch64"):
        assert tags[f"nightly-{end}"] == world.images[2][f"{commit(2)}-{end}"].top.digest
    assert world.entries()[0].finished
