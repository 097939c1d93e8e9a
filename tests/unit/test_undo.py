"""Rolling channels back, and what release.status says of them, on OCI layouts."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tasks.release.channels import Channel, channel_of_tag
from tasks.release.lease import Holder, Lease
from tasks.release.ledger import HEADERS, Entry, Event, Ledger, RunKind, TagChange
from tasks.release.moving import Run, now
from tasks.release.past_runs import past_runs
from tasks.release.status import AS_RECORDED, channel_status, protected_digests
from tasks.release.undo import execute_rollback, plan_rollback
from tasks.support.errors import MissingInputError, RemoteChangedError, TemporaryError, UsageError
from tasks.support.store import open_store
from tests import factory_image as images
from tests.factory_release import World, commit, nightly
from tests.faults import Meddling, in_child, memory_folder
from tests.registry_faults import Hooked, Strike, kill

pytestmark = pytest.mark.slow  # together these take longer than the fast set may

GROUP = ("nightly-x86_64", "nightly-aarch64", "nightly")


@pytest.fixture
def folder() -> Iterator[Path]:
    with memory_folder() as empty:
        yield empty


@pytest.fixture
def world(folder: Path) -> World:
    """Return a world of three nightlies."""
    made = World.of_folders(folder / "world")
    for number in (1, 2, 3):
        made.staged(number)
        made.publish(nightly(number), f"run-{number}", build=str(number))
    return made


def group(world: World) -> dict[str, str]:
    return {tag: digest for tag, digest in world.tags().items() if tag in GROUP}


def of(world: World, number: int) -> dict[str, str]:
    """Return what the group shows when it shows a commit."""
    staged = world.images[number]
    return {
        "nightly": world.tags()[f"nightly-{commit(number)}"],
        **{f"nightly-{end}": staged[f"{commit(number)}-{end}"].top.digest for end in ("x86_64", "aarch64")},
    }


def test_a_rollback_takes_the_whole_group_back_and_nothing_else(world: World) -> None:
    before = world.tags()
    public = world.public = Hooked(world.public)
    plan = world.rollback()
    assert group(world) == of(world, 2)
    assert {tag: d for tag, d in world.tags().items() if tag not in GROUP} == {
        tag: d for tag, d in before.items() if tag not in GROUP
    }
    assert public.changes == [("tag", tag) for tag in GROUP]
    assert public.calls("read_blob", "put_blob") == []
    assert plan.undone is not None
    result, intent = world.entries()[:2]
    assert (intent.event, result.event, result.deed, result.undone) == (
        Event.INTENT,
        Event.RESULT,
        RunKind.ROLLBACK,
        "run-3",
    )
    assert (result.commit, result.failure) == (commit(2), None)
    assert all(change.done for change in result.tags)


def test_each_rollback_goes_one_further_back_until_nothing_is_known(world: World) -> None:
    world.rollback(name="one")
    world.rollback(name="two")
    assert group(world) == of(world, 1)
    with pytest.raises(MissingInputError, match="run-1 was the first publish") as caught:
        world.rollback(name="three")
    assert "--to" in (caught.value.hint or "")
    assert group(world) == of(world, 1)


@pytest.mark.parametrize("word", ["run-3", "3"])
def test_a_run_is_rolled_back_by_its_id_or_its_builds_number(world: World, word: str) -> None:
    world.rollback(run=word)
    assert group(world) == of(world, 2)


def test_only_the_run_that_the_tags_show_can_be_rolled_back(world: World) -> None:
    with pytest.raises(RemoteChangedError, match="no longer shows") as caught:
        world.rollback(run="run-2")
    assert caught.value.exit_code == 76
    with pytest.raises(UsageError, match="no run 'run-9'"):
        world.rollback(run="run-9")
    with pytest.raises(UsageError, match="contradict"):
        world.rollback(run="run-3", to="nightly")
    assert group(world) == of(world, 3)


def test_a_channel_is_not_rolled_back_to_a_tag_of_the_other_one(world: World) -> None:
    """One wrong word would show every user a nightly that nobody released; its digest says that it is meant."""
    world.release(1, "1.0")
    before = world.tags()
    others = {Channel.RELEASE: Channel.NIGHTLY, Channel.NIGHTLY: Channel.RELEASE}
    for channel, other in others.items():
        for tag in (tag for tag in before if channel_of_tag(tag) is other):
            with pytest.raises(UsageError, match=f"that tag is {other.value}'s"):
                world.rollback(channel, to=tag)
    assert world.tags() == before
    world.rollback(Channel.RELEASE, to=before["nightly"])
    assert world.tags()["latest"] == before["nightly"]


def test_a_tag_of_no_channel_is_gone_back_to(world: World) -> None:
    there = world.public.manifest(f"nightly-{commit(1)}")
    assert there is not None
    world.public.put_manifest(there, "known-good")
    world.rollback(to="known-good")
    assert world.tags()["nightly"] == there.digest


def test_a_version_that_a_run_found_in_place_is_remembered(world: World) -> None:
    """As after a ledger was lost: the run that wrote it anew knows the version, although it moved nothing."""
    world.release(1, "1.0")
    world.store = open_store(str(world.public.name.folder) + "-another-store")
    world.release(1, "1.0", untested="the results are gone too")
    world.release(2, "1.1", untested="the results are gone too")
    plan = plan_rollback(world.public, world.store, Channel.RELEASE, to="v1.0")
    assert (str(plan.target.version), plan.target.commit) == ("1.0", commit(1))


@pytest.mark.parametrize("half_way", [False, True])
def test_who_loses_to_another_run_is_not_told_to_roll_back_blindly(world: World, half_way: bool) -> None:
    """A second rollback goes one further back: it is looked first whether there is anything left to undo."""
    plan = plan_rollback(world.public, world.store, Channel.NIGHTLY)
    store, key = world.store, "_ledger/nightly.lease.json"

    def steal(_method: str, written: str) -> None:
        if written.startswith("_ledger/nightly/"):
            other = Holder("other", "elsewhere", datetime.now(UTC) + timedelta(seconds=60))
            store.put(key, other.encode(), HEADERS, expected=store.get(key).etag)

    if half_way:
        world.store = Meddling(store, after=steal)
    else:
        Lease(store, Channel.NIGHTLY, "other", "elsewhere").hold()
    with pytest.raises((TemporaryError, RemoteChangedError), match="run other holds") as caught:
        execute_rollback(world.public, world.store, plan, Run("mine"))
    hint = caught.value.hint or ""
    assert "release.status" in hint
    assert "run this again" not in hint


def test_after_the_first_publish_there_is_nothing_to_go_back_to(folder: Path) -> None:
    world = World.of_folders(folder / "first")
    world.staged(1)
    world.nightly(1, "run-1")
    for run in (None, "run-1"):
        with pytest.raises(MissingInputError, match="run-1 was the first publish"):
            world.rollback(run=run)


def test_what_a_tag_showed_before_the_ledger_is_not_known(world: World, folder: Path) -> None:
    world.store = open_store(str(folder / "another"))
    world.nightly(3)
    with pytest.raises(MissingInputError, match="does not know what"):
        world.rollback()


def test_a_run_of_another_channel_is_named_as_such(world: World) -> None:
    world.release(1, "1.0", "release-1")
    with pytest.raises(UsageError, match="run release-1 moved release, not nightly") as caught:
        world.rollback(run="release-1")
    assert "release.rollback release --run release-1" in (caught.value.hint or "")
    with pytest.raises(UsageError, match="run run-3 moved nightly, not release"):
        world.rollback(Channel.RELEASE, run="run-3")


@pytest.mark.parametrize("prefix", ["", "sha256:"])
@pytest.mark.parametrize("digits", [12, 40, 63])
def test_a_digest_may_be_begun(world: World, prefix: str, digits: int) -> None:
    wanted = world.tags()[f"nightly-{commit(1)}"].removeprefix("sha256:")
    world.rollback(to=prefix + wanted[:digits])
    assert group(world) == of(world, 1)


@pytest.mark.parametrize("to", ["0" * 12, "sha256:" + "0" * 12, "sha256:" + "0" * 64, "nightly-9", f"{'0' * 40}"])
def test_a_target_that_is_not_there_lists_the_newest_that_are(world: World, to: str) -> None:
    with pytest.raises(MissingInputError, match="is not there") as caught:
        world.rollback(to=to)
    hint = caught.value.hint or ""
    digests = [world.tags()[f"nightly-{commit(number)}"][:19] for number in (3, 2, 1)]
    places = [hint.find(f"{digest} (commit ") for digest in digests]
    assert -1 not in places
    assert places == sorted(places)


@pytest.mark.parametrize("to", ["sha256:" + "0" * 11, "sha256:", "sha256:" + "G" * 12, "sha256:" + "0" * 65])
def test_what_is_no_digest_is_a_usage_error(world: World, to: str) -> None:
    with pytest.raises(UsageError):
        world.rollback(to=to)


def test_digests_that_begin_alike_are_not_guessed_between(world: World) -> None:
    digests = [f"sha256:{'a' * 20}{number:044x}" for number in (1, 2)]
    for number, digest in enumerate(digests):
        change = TagChange("nightly", None, digest, done=True)
        entry = Entry(
            Event.RESULT, RunKind.PUBLISH, Channel.NIGHTLY, f"r{number}", now(), str(world.public.name), None, (change,)
        )
        Ledger(world.store, Channel.NIGHTLY).add(entry)
    with pytest.raises(UsageError, match="begins 2 digests") as caught:
        world.rollback(to="a" * 12)
    assert "whole digest" in (caught.value.hint or "")


def test_a_run_is_undone_only_by_going_where_it_came_from(world: World) -> None:
    assert plan_rollback(world.public, world.store, Channel.NIGHTLY, to=f"nightly-{commit(1)}").undone is None
    assert plan_rollback(world.public, world.store, Channel.NIGHTLY, to="nightly").undone is None
    undone = plan_rollback(world.public, world.store, Channel.NIGHTLY, to=f"nightly-{commit(2)}").undone
    assert undone is not None
    assert undone.run == "run-3"


# The history


def test_the_history_tells_which_runs_were_undone(world: World) -> None:
    def states() -> dict[str, str | None]:
        runs = past_runs(world.public, world.store, Channel.NIGHTLY)
        return {run.entry.run: run.undone_by for run in runs}

    assert list(states()) == ["run-3", "run-2", "run-1"]
    assert set(states().values()) == {None}
    world.rollback(to=f"nightly-{commit(1)}", name="far")
    assert states() == {"far": None, "run-3": "far", "run-2": "far", "run-1": None}
    world.rollback(to=f"nightly-{commit(2)}", name="near")
    assert states() == {"near": None, "far": "near", "run-3": "far", "run-2": None, "run-1": None}
    world.staged(4)
    world.nightly(4, "run-4")
    world.rollback(name="again")
    assert states()["run-4"] == "again"
    assert states()["run-3"] == "far"
    world.rollback(to=f"nightly-{commit(3)}", name="third")
    assert states()["run-3"] is None
    assert states()["run-4"] == "again"


def test_the_history_is_as_long_as_it_is_asked_for(world: World) -> None:
    runs = past_runs(world.public, world.store, Channel.NIGHTLY, count=2)
    assert [run.entry.run for run in runs] == ["run-3", "run-2"]
    assert [run.state for run in runs] == ["done", "done"]


def test_the_history_has_what_was_not_tested_and_what_did_not_end(world: World) -> None:
    world.staged(5, tested=False)
    world.release(5, "1.0", "untested", untested="the cards are away")
    ledger = Ledger(world.store, Channel.RELEASE)
    entry = replace(world.entries(Channel.RELEASE)[0], event=Event.INTENT, run="killed", untested=None)
    ledger.add(entry)
    killed, untested = past_runs(world.public, world.store, Channel.RELEASE)
    assert killed.state == "did not come to its end"
    assert untested.as_json()["untested"] == "the cards are away"
    ledger.add(replace(entry, event=Event.RESULT, run="failed", failure="the line was cut"))
    assert past_runs(world.public, world.store, Channel.RELEASE)[0].state == "failed: the line was cut"


@pytest.mark.parametrize("by", ["digest", "tag"])
def test_a_rollback_goes_where_it_is_told(world: World, by: str) -> None:
    tag = f"nightly-{commit(1)}"
    world.rollback(to=tag if by == "tag" else world.tags()[tag])
    assert group(world) == of(world, 1)
    # And forward again.
    world.rollback(to=f"nightly-{commit(3)}", name="forward")
    assert group(world) == of(world, 3)


@pytest.mark.parametrize("to", ["nightly:1", "../x", "sha256:12", "", "a b", "x" * 200])
def test_a_hostile_place_to_go_to_is_a_usage_error(world: World, to: str) -> None:
    public = world.public = Hooked(world.public)
    with pytest.raises(UsageError, match="not a tag"):
        world.rollback(to=to)
    assert public.log == []


@pytest.mark.parametrize("to", ["known-good", f"nightly-{commit(9)}", f"sha256:{5:064x}"])
def test_a_place_that_is_not_there_is_named(world: World, to: str) -> None:
    with pytest.raises(MissingInputError, match=to) as caught:
        world.rollback(to=to)
    assert caught.value.exit_code == 66


def test_a_rollback_to_what_was_deleted_changes_nothing(world: World) -> None:
    gone = of(world, 2)["nightly"]
    world.public.delete_manifest(gone)
    with pytest.raises(MissingInputError, match=f"{gone} is gone"):
        world.rollback()
    assert group(world) == {**of(world, 3)}
    assert world.entries()[0].deed is RunKind.PUBLISH


@pytest.mark.parametrize("tag", GROUP)
def test_tags_that_somebody_else_moved_are_rolled_back_only_on_demand(world: World, tag: str) -> None:
    foreign = images.store(images.image(commit=None), world.public, tag)
    with pytest.raises(RemoteChangedError, match=f"{tag} shows {foreign}") as caught:
        world.rollback()
    assert caught.value.exit_code == 76
    assert world.tags()[tag] == foreign
    world.rollback(to=f"nightly-{commit(2)}")
    assert group(world) == of(world, 2)


def test_a_tag_that_moves_between_plan_and_execution_is_left_alone(world: World) -> None:
    plan = plan_rollback(world.public, world.store, Channel.NIGHTLY)
    foreign = images.store(images.image(commit=None), world.public, "nightly-x86_64")
    with pytest.raises(RemoteChangedError) as caught:
        execute_rollback(world.public, world.store, plan, Run("late"))
    assert caught.value.exit_code == 76
    assert world.entries()[0].deed is RunKind.PUBLISH
    assert world.tags()["nightly-x86_64"] == foreign
    assert world.tags()["nightly"] == of(world, 3)["nightly"]


def test_what_was_before_the_first_publish_can_come_back(folder: Path) -> None:
    world = World.of_folders(folder / "new")
    old = images.index(images.image(commit=None), images.image("arm64", commit=None))
    digest = images.store(old, world.public, "nightly")
    world.staged(1)
    world.nightly(1)
    world.rollback()
    tags = world.tags()
    assert tags["nightly"] == digest
    # The aliases did not exist then; they show the same images.
    assert [tags["nightly-x86_64"], tags["nightly-aarch64"]] == [child.digest for child in old.top.children]


def test_rolling_back_latest_leaves_the_versions(folder: Path) -> None:
    world = World.of_folders(folder / "new")
    for number, version in ((1, "1.3.9"), (2, "1.4.0")):
        world.staged(number)
        world.release(number, version)
    before = world.tags()
    world.rollback(Channel.RELEASE)
    for end in ("", "-x86_64", "-aarch64"):
        assert world.tags()[f"latest{end}"] == before[f"v1.3.9{end}"]
        assert world.tags()[f"v1.4.0{end}"] == before[f"v1.4.0{end}"]
    # A retried job does not bring it again, a fixed version does.
    report = world.release(2, "1.4.0")
    assert "was taken back" in report.plan.verdict.reason
    assert world.tags()["latest"] == before["v1.3.9"]
    world.staged(3)
    world.release(3, "1.4.1")
    assert world.tags()["latest"] == world.tags()["v1.4.1"]


def test_a_retried_nightly_does_not_undo_its_rollback(world: World) -> None:
    world.rollback()
    report = world.nightly(3)
    assert "was taken back" in report.plan.verdict.reason
    assert group(world) == of(world, 2)
    world.staged(4)
    world.nightly(4)
    assert group(world) == of(world, 4)


@pytest.mark.parametrize("again", [None, "run-3"], ids=["plain", "run"])
def test_a_rollback_that_was_killed_is_completed_and_goes_no_further(
    world: World, folder: Path, again: str | None
) -> None:
    shutil.copytree(folder / "world", folder / "base")
    number, code = 0, -signal.SIGKILL
    wanted = of(world, 2)
    while code == -signal.SIGKILL:
        number += 1
        shutil.rmtree(folder / "world")
        shutil.copytree(folder / "base", folder / "world")
        strike = Strike(number, kill)
        public, store = Hooked(world.public, after=strike), Meddling(world.store, after=strike)
        code = in_child(lambda p=public, s=store: World(world.staging, p, s).rollback(run=again))  # type: ignore[misc]
        assert code in {0, -signal.SIGKILL}
        newest = world.entries()[0]
        if not (newest.deed is RunKind.ROLLBACK and newest.finished):
            world.rollback(name="again", run=again)
        assert group(world) == wanted, f"killed after change {number}"
        assert world.entries()[0].finished
    assert number > 5


# Status


def test_status_says_what_the_tags_show_and_since_when(world: World) -> None:
    rows = {row.tag: row for row in channel_status(world.public, world.store, Channel.NIGHTLY)}
    assert list(rows) == ["nightly", "nightly-x86_64", "nightly-aarch64"]
    for tag, row in rows.items():
        assert row.shown is not None
        assert (row.shown.digest, row.shown.commit, row.run, row.note) == (
            of(world, 3)[tag],
            commit(3),
            "run-3",
            AS_RECORDED,
        )
        assert row.since == world.entries()[0].time
    assert [row.note for row in channel_status(world.public, world.store, Channel.RELEASE)] == ["never published"] * 3


def test_status_tells_of_what_the_ledger_does_not_know(world: World) -> None:
    foreign = images.store(images.image(commit=commit(9)), world.public, "nightly-x86_64")
    rows = {row.tag: row for row in channel_status(world.public, world.store, Channel.NIGHTLY)}
    row = rows["nightly-x86_64"]
    assert row.shown is not None
    assert (row.shown.digest, row.shown.commit) == (foreign, commit(9))
    assert row.note.startswith(f"moved by somebody else: the ledger says {of(world, 3)['nightly-x86_64']}")
    assert "of another commit than nightly" in row.note
    images.store(images.image(commit=None), world.public, "latest")
    assert channel_status(world.public, world.store, Channel.RELEASE)[0].note == "not in the ledger"
    world.public.delete_manifest(of(world, 3)["nightly"])
    assert "missing" in channel_status(world.public, world.store, Channel.NIGHTLY)[0].note


def test_the_last_three_digests_of_every_moving_tag_are_protected(world: World) -> None:
    world.staged(4)
    world.nightly(4)
    wanted = {digest for number in (2, 3, 4) for digest in of(world, number).values()}
    assert protected_digests(world.public, world.store) == wanted
