"""Publishing into OCI layouts, undisturbed, interleaved, and with a fault or a kill at every change."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tasks.release.channels import Channel
from tasks.release.ledger import Event
from tasks.release.moving import Run
from tasks.release.promotion import execute_publish
from tasks.release.promotion_plan import Parties, Request
from tasks.support.errors import DataError, OmniError, RemoteChangedError, ServiceRefusedError, TemporaryError
from tests import factory_image as images
from tests.factory_release import World, children_of, commit, is_whole, nightly, release, tags_of
from tests.faults import Meddling, in_child, memory_folder
from tests.registry_faults import Hook, Hooked, Mountless, Strike, kill, nothing, raising


@pytest.fixture
def folder() -> Iterator[Path]:
    with memory_folder() as empty:
        yield empty


@pytest.fixture
def world(folder: Path) -> World:
    return World.of_folders(folder)


# Undisturbed


def test_two_staged_indexes_become_one_with_both_attestations(world: World) -> None:
    staged = world.staged(1)
    world.nightly(1)
    x86, arm = staged[f"{commit(1)}-x86_64"], staged[f"{commit(1)}-aarch64"]
    tags = world.tags()
    assert tags["nightly"] == tags[f"nightly-{commit(1)}"]
    assert (tags["nightly-x86_64"], tags["nightly-aarch64"]) == (x86.top.digest, arm.top.digest)
    manifest = world.public.manifest("nightly")
    assert manifest is not None
    expected = [*x86.top.children, *arm.top.children]
    assert [child.digest for child in manifest.children] == [child.digest for child in expected]
    assert [child.attests for child in manifest.children] == [None, x86.below[0].digest, None, arm.below[0].digest]
    assert all(not child.media_type.endswith("index.v1+json") for child in manifest.children)
    assert all(is_whole(world.public, digest) for digest in tags.values())


def test_a_release_is_every_tag_of_its_version_and_of_latest(world: World) -> None:
    staged = world.staged(1, version="1.2.3")
    report = world.publish(release(1, "1.2.3"), "r", build="77", build_url="https://ci.example/77")
    tags = world.tags()
    assert set(tags) == {f"{tag}{end}" for tag in ("v1.2.3", "latest") for end in ("", "-x86_64", "-aarch64")}
    for end in ("", "-x86_64", "-aarch64"):
        assert tags[f"latest{end}"] == tags[f"v1.2.3{end}"]
    result, intent = world.entries(Channel.RELEASE)
    assert (intent.event, result.event, result.run, result.failure) == (Event.INTENT, Event.RESULT, "r", None)
    assert {change.tag: change.new for change in result.tags} == tags
    assert all(change.done and change.old is None for change in result.tags)
    assert result.sources == {end: staged[f"{commit(1)}-{end}"].top.digest for end in ("x86_64", "aarch64")}
    assert (result.version, result.commit, result.build, result.build_url) == (
        "1.2.3",
        commit(1),
        "77",
        "https://ci.example/77",
    )
    assert report.copied is not None
    assert result.mounted == report.copied.mounted.size > 0
    assert (result.untested, result.moved_latest) == (None, False)


def test_images_without_attestations_are_published_as_they_are(world: World) -> None:
    for name, architecture in (("x86_64", "amd64"), ("aarch64", "arm64")):
        images.store(images.image(architecture, commit=commit(1)), world.staging, f"{commit(1)}-{name}")
    world.nightly(1)
    staged = tags_of(world.staging)
    assert children_of(world.public, "nightly") == [staged[f"{commit(1)}-{name}"] for name in ("x86_64", "aarch64")]
    assert all(is_whole(world.public, digest) for digest in world.tags().values())


def test_what_was_not_tested_and_what_was_forced_is_in_the_ledger(world: World) -> None:
    world.staged(1)
    world.staged(2, tested=False)
    world.release(1, "1.4.0")
    world.release(2, "1.3.9", untested="the cards are away", move_latest=True)
    result = world.entries(Channel.RELEASE)[0]
    assert (result.untested, result.moved_latest) == ("the cards are away", True)
    assert world.tags()["latest"] == world.tags()["v1.3.9"]


def test_a_backport_leaves_latest_alone(world: World) -> None:
    world.staged(1)
    world.staged(2)
    world.release(1, "1.4.0")
    before = world.tags()
    report = world.release(2, "1.3.9")
    assert report.plan.verdict.reason == "latest stays at 1.4.0 (1.3.9 is older)"
    after = world.tags()
    assert {tag: digest for tag, digest in after.items() if tag in before} == before
    assert set(after) - set(before) == {"v1.3.9", "v1.3.9-x86_64", "v1.3.9-aarch64"}
    assert not world.release(2, "1.3.9").wrote
    world.release(2, "1.3.9", move_latest=True)
    assert world.tags()["latest"] == after["v1.3.9"]


def test_an_older_nightly_gets_its_own_tag_only(world: World) -> None:
    world.staged(1)
    world.staged(2)
    world.nightly(2)
    before = world.tags()
    world.nightly(1)
    assert {**before, f"nightly-{commit(1)}": world.tags()[f"nightly-{commit(1)}"]} == world.tags()
    assert children_of(world.public, f"nightly-{commit(1)}") != children_of(world.public, "nightly")


# Two at once


@pytest.mark.slow
@pytest.mark.parametrize("at", range(1, 30))
def test_two_nightlies_at_once_never_mix_their_commits(world: World, at: int) -> None:
    world.staged(1)
    world.staged(2)
    other: list[OmniError] = []

    def publish_two(_method: str, _what: str) -> None:
        try:
            world.nightly(2, "two")
        except OmniError as error:
            other.append(error)

    stopped: list[OmniError] = []
    try:
        World(world.staging, Hooked(world.public, hook=Strike(at, publish_two)), world.store).publish(nightly(1), "one")
    except OmniError as error:
        stopped.append(error)
    for failure in stopped:
        assert isinstance(failure, RemoteChangedError)
        assert "not moved: nightly-x86_64, nightly-aarch64, nightly" in failure.message
    tags = world.tags()
    own = {
        number: {tags_of(world.staging)[f"{commit(number)}-{end}"] for end in ("x86_64", "aarch64")}
        for number in (1, 2)
    }
    for number in (1, 2):
        if f"nightly-{commit(number)}" in tags:
            wanted = [child.digest for made in world.images[number].values() for child in made.top.children]
            assert children_of(world.public, f"nightly-{commit(number)}") == wanted
    newest = next(number for number in (1, 2) if tags["nightly"] == tags.get(f"nightly-{commit(number)}"))
    assert {tags["nightly-x86_64"], tags["nightly-aarch64"]} == own[newest]
    for failure in other:
        assert isinstance(failure, TemporaryError)
        assert "run one holds nightly" in failure.message
    # Whoever was stopped is completed by a second run, and the newer commit wins.
    for number in (1, 2):
        world.nightly(number)
    tags = world.tags()
    assert tags["nightly"] == tags[f"nightly-{commit(2)}"]
    assert {tags["nightly-x86_64"], tags["nightly-aarch64"]} == own[2]


@pytest.mark.parametrize("tag", ["nightly", "nightly-x86_64", "nightly-aarch64"])
def test_a_tag_that_somebody_else_moved_since_the_plan_is_left_alone(world: World, tag: str) -> None:
    world.staged(1)
    world.staged(2)
    world.nightly(1)
    plan = world.plan(nightly(2))
    foreign = images.store(images.image(commit=None), world.public, tag)
    with pytest.raises(RemoteChangedError, match=f"{tag} shows {foreign} and no longer") as caught:
        execute_publish(world.parties, plan, Run("late"))
    assert caught.value.exit_code == 76
    assert "no tag was moved" in caught.value.message
    assert world.tags()[tag] == foreign
    assert f"nightly-{commit(2)}" not in world.tags()
    assert world.entries()[0].commit == commit(1)


@pytest.mark.parametrize("tag", ["nightly", "nightly-x86_64", "nightly-aarch64"])
def test_a_tag_that_somebody_else_moves_while_a_run_moves_tags_is_left_alone(world: World, tag: str) -> None:
    world.staged(1)
    world.staged(2)
    world.nightly(1)
    found: list[str] = []

    def meddle(_method: str, what: str) -> None:
        if what == f"nightly-{commit(2)}":
            found.append(images.store(images.image(commit=None), world.public, tag))

    public = Hooked(world.public, after=meddle)
    with pytest.raises(RemoteChangedError, match=f"{tag} shows sha256:.* and no longer") as caught:
        World(world.staging, public, world.store).nightly(2)
    assert f"moved: nightly-{commit(2)}; not moved: nightly-x86_64, nightly-aarch64, nightly" in caught.value.message
    assert world.tags()[tag] == found[0]
    result = world.entries()[0]
    assert result.failure is not None
    assert {change.tag for change in result.tags if change.done} >= {f"nightly-{commit(2)}"}
    assert not next(change for change in result.tags if change.tag == tag).done


def test_a_version_that_appeared_since_the_plan_is_left_alone(world: World) -> None:
    world.staged(1)
    plan = world.plan(release(1, "1.0"))
    foreign = images.store(images.image(commit=None), world.public, "v1.0")
    with pytest.raises(DataError, match=r"v1\.0 is there already and shows"):
        execute_publish(world.parties, plan, Run("late"))
    assert world.tags()["v1.0"] == foreign
    assert not any(tag.startswith("latest") for tag in world.tags())


# The ledger


def test_no_tag_moves_when_the_ledger_takes_no_intent(world: World) -> None:
    world.staged(1)
    plan = world.plan(nightly(1))

    def refuse(_method: str, key: str) -> None:
        if key.startswith("_ledger/nightly/"):
            raise ServiceRefusedError("the disk is full")

    store = Meddling(world.store, before=refuse)
    with pytest.raises(ServiceRefusedError, match="no tag was moved: the disk is full") as caught:
        execute_publish(Parties(world.staging, world.public, store), plan, Run("r"))
    assert caught.value.exit_code == 69
    assert world.tags() == {}


def test_a_result_that_could_not_be_written_is_written_by_the_next_run(world: World) -> None:
    world.staged(1)
    plan = world.plan(nightly(1))
    keys: list[str] = []

    def refuse_second(_method: str, key: str) -> None:
        if key.startswith("_ledger/nightly/"):
            keys.append(key)
            if len(keys) > 1:
                raise ServiceRefusedError("the disk is full")

    store = Meddling(world.store, before=refuse_second)
    with pytest.raises(ServiceRefusedError) as caught:
        execute_publish(Parties(world.staging, world.public, store), plan, Run("r"))
    assert caught.value.message == "every tag was moved, but the ledger has no result of it: the disk is full"
    assert caught.value.hint == "run the same command again: it writes only that"
    before = world.tags()
    report = world.nightly(1)
    assert not report.wrote
    assert [(entry.run, entry.event) for entry in world.entries()] == [("r", Event.RESULT), ("r", Event.INTENT)]
    assert all(change.done for change in world.entries()[0].tags)
    assert world.tags() == before
    world.nightly(1)
    assert world.entries_count(Channel.NIGHTLY) == 2


# A fault or a kill at every change


def prepared(folder: Path) -> World:
    """Return a world with an older publish of both channels, and a newer commit staged."""
    shutil.rmtree(folder / "world", ignore_errors=True)
    if not (folder / "base").exists():
        # Built where it is used: the ledger knows the repository by its address.
        base = World.of_folders(folder / "world")
        base.staged(1)
        base.staged(2)
        base.nightly(1)
        base.release(1, "1.0")
        shutil.copytree(folder / "world", folder / "base")
        return base
    shutil.copytree(folder / "base", folder / "world")
    return World.of_folders(folder / "world")


def disturbed(world: World, request: Request, *, before: Hook = nothing, after: Hook = nothing) -> None:
    public = Hooked(world.public, hook=before, after=after)
    store = Meddling(world.store, before=before, after=after)
    World(world.staging, public, store).publish(request, "disturbed")


def is_mixed(world: World, tag: str) -> bool:
    """Say whether a group shows another commit's alias although its own tag is the new one's."""
    tags = world.tags()
    if tags[tag] in {tags.get("v1.0"), tags.get(f"nightly-{commit(1)}")}:
        return False
    mine = {f"{commit(2)}-{end}": tags[f"{tag}-{end}"] for end in ("x86_64", "aarch64")}
    return any(tags_of(world.staging)[name] != digest for name, digest in mine.items())


STEPS = pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.sweep)])
REQUESTS = pytest.mark.parametrize("request_", [nightly(2), release(2, "1.1")], ids=["nightly", "release"])


def completes(world: World, request: Request, wanted: dict[str, str], where: str) -> None:
    """Judge what a stopped run left behind, and that a second run completes it without sending anything again."""
    floating = request.channel.floating
    for tag, digest in world.tags().items():
        assert is_whole(world.public, digest), f"{where}: {tag}"
    assert not is_mixed(world, floating), where
    public = Hooked(world.public)
    there = {blob for made in world.staging.tags() for blob in blobs_of(world, made) if public.has_blob(blob)}
    World(world.staging, public, world.store).publish(request, "again")
    assert not there & set(public.calls("put_blob", "mount")), where
    assert world.tags() == wanted, where
    newest = world.entries(request.channel)[0]
    assert (newest.event, newest.failure) == (Event.RESULT, None), where
    before = world.entries_count(request.channel)
    world.publish(request, "third")
    assert world.entries_count(request.channel) == before, where


def blobs_of(world: World, tag: str) -> set[str]:
    manifests = [world.staging.manifest(child) for child in children_of(world.staging, tag)]
    return {blob.digest for manifest in manifests if manifest for blob in manifest.blobs}


@pytest.mark.slow
@REQUESTS
@STEPS
def test_a_kill_at_any_change_is_completed_by_a_second_run(folder: Path, request_: Request, step: int) -> None:
    undisturbed = prepared(folder)
    undisturbed.publish(request_, "u")
    wanted = undisturbed.tags()
    codes: list[int] = []
    for number in count(1, step):
        world = prepared(folder)
        strike = Strike(number, kill)
        codes.append(in_child(lambda w=world, s=strike: disturbed(w, request_, after=s)))  # type: ignore[misc]
        assert codes[-1] in {0, -signal.SIGKILL}
        completes(world, request_, wanted, f"killed after change {number}")
        if codes[-1] == 0:
            break
    assert number > 15


@pytest.mark.slow
@pytest.mark.parametrize("lost", [False, True], ids=["before", "answer lost"])
@REQUESTS
@STEPS
def test_a_failure_at_any_change_is_told_and_completed(folder: Path, request_: Request, lost: bool, step: int) -> None:
    undisturbed = prepared(folder)
    undisturbed.publish(request_, "u")
    wanted = undisturbed.tags()
    for number in count(1, step):
        world = prepared(folder)
        before = world.tags()
        strike = Strike(number, raising(lambda: ServiceRefusedError("no")))
        try:
            disturbed(world, request_, **{"after" if lost else "before": strike})
        except OmniError as error:
            moved = {tag for tag, digest in world.tags().items() if before.get(tag) != digest}
            if " · moved: " in error.message:
                told = error.message.partition(" · moved: ")[2].partition(";")[0].split(", ")
                # Of the one whose answer was lost, nobody knows.
                assert len(moved - set(told)) <= lost
                assert set(told) - {"none"} <= moved
            elif not error.message.startswith("every tag was moved"):
                assert moved == set()
        completes(world, request_, wanted, f"failed at change {number}")
        if not strike.struck:
            break
    assert number > 15


def test_nothing_public_changes_when_a_layer_has_other_bytes(world: World, folder: Path) -> None:
    staged = world.staged(1)
    made = staged[f"{commit(1)}-aarch64"]
    layer = made.contents[1].blob.digest.removeprefix("sha256:")
    path = folder / "staging" / "blobs" / "sha256" / layer
    path.chmod(0o644)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    world.public = Mountless(world.public)
    with pytest.raises(OmniError, match=r"mismatch|other bytes") as caught:
        world.nightly(1)
    assert layer in caught.value.message
    assert world.tags() == {}
    assert world.entries() == []
