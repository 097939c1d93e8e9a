"""Publishes, rollbacks and clean-ups that come in each other's way, at every point where they can, on OCI layouts."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tasks.registry.cleaning import CleanupReport
from tasks.registry.retention import RetentionRule
from tasks.release.channels import Channel, floating_group
from tasks.release.cleanup import plan_cleanup, run_cleanup
from tasks.release.lease import SECONDS, Holder, Lease
from tasks.release.ledger import HEADERS, Event, Ledger, RunKind, written
from tasks.release.moving import Run
from tasks.release.past_runs import past_runs
from tasks.release.promotion import execute_publish
from tasks.release.promotion_plan import Request
from tasks.release.status import channel_status
from tasks.release.undo import execute_rollback, plan_rollback
from tasks.support.errors import DataError, OmniError, RemoteChangedError, TemporaryError
from tasks.support.settings import load
from tests import factory_image as images
from tests.factory_release import World, commit, is_whole, nightly, release
from tests.faults import Counting, Meddling, memory_folder
from tests.registry_faults import Hooked, Strike, raising

pytestmark = pytest.mark.slow  # together these take longer than the fast set may

GROUP = floating_group(Channel.NIGHTLY).names
RULE = RetentionRule(keep=2, younger_than=timedelta(0))
REFUSED = raising(lambda: OmniError("no"))


@pytest.fixture
def world() -> Iterator[World]:
    """Return a world of one nightly and three more staged commits."""
    with memory_folder() as folder:
        made = World.of_folders(folder)
        for number in (1, 2, 3, 4):
            made.staged(number)
        made.nightly(1, "one")
        yield made


def shows(world: World) -> set[int]:
    """Return the commits whose images the moving tags of nightly show; 0 for none that we know."""
    tags, found = world.tags(), set()
    for tag in GROUP:
        end = tag.removeprefix("nightly-")
        tops = {
            tags.get(f"nightly-{commit(n)}") if tag == "nightly" else made[f"{commit(n)}-{end}"].top.digest: n
            for n, made in world.images.items()
        }
        found.add(tops.get(tags[tag], 0))
    return found


def drift(world: World) -> list[str]:
    return [row.tag for row in channel_status(world.public, world.store, Channel.NIGHTLY) if row.drift]


def key(channel: Channel = Channel.NIGHTLY) -> str:
    return f"_ledger/{channel.value}.lease.json"


def hand_over(world: World, run: str, *, seconds: float = SECONDS, channel: Channel = Channel.NIGHTLY) -> None:
    """Write a lease as another run would have, whatever was there."""
    other = Holder(run, "elsewhere", datetime.now(UTC) + timedelta(seconds=seconds), "publish of another one")
    world.store.put(key(channel), other.encode(), HEADERS, expected=None)


# Two publishes


def test_a_publish_that_was_planned_before_a_newer_one_stays_behind_it(world: World) -> None:
    plan = world.plan(nightly(2))
    assert plan.verdict.moves
    world.nightly(3)
    report = execute_publish(world.parties, plan, Run("late"))
    assert (report.plan.verdict.moves, shows(world)) == (False, {3})
    assert commit(3) in report.plan.verdict.reason
    assert {change.tag for change in world.entries()[0].tags} == {f"nightly-{commit(2)}"}
    assert drift(world) == []


@pytest.mark.parametrize(
    "at", [pytest.param(at, marks=[pytest.mark.sweep] if at % 6 != 1 else []) for at in range(1, 80)]
)
def test_whatever_a_publish_is_doing_when_a_newer_one_runs_nightly_is_the_newer_one(world: World, at: int) -> None:
    failed: list[OmniError] = []

    def newer(_method: str, _what: str) -> None:
        try:
            world.nightly(3, "newer")
        except OmniError as error:
            failed.append(error)

    hook = Strike(at, newer, methods=())
    World(Hooked(world.staging, hook=hook), Hooked(world.public, hook=hook), world.store).nightly(2, "older")
    assert all("run older holds nightly" in error.message for error in failed)
    assert shows(world) == ({2} if failed else {3})
    assert drift(world) == []
    world.nightly(3)
    assert shows(world) == {3}


def test_an_order_that_cannot_be_told_any_more_changes_nothing(world: World) -> None:
    plan = world.plan(nightly(2))
    world.publish(replace(nightly(3), commit_time=nightly(2).commit_time))
    before = world.tags()
    with pytest.raises(OmniError, match="cannot tell which is newer"):
        execute_publish(world.parties, plan, Run("late"))
    assert world.tags() == before


def test_a_publish_that_was_planned_before_its_rollback_does_not_come_again(world: World) -> None:
    world.nightly(2, "two")
    plan = replace(world.plan(nightly(3)))
    world.nightly(3, "three")
    world.rollback()
    report = execute_publish(world.parties, plan, Run("late"))
    assert "was taken back" in report.plan.verdict.reason
    assert shows(world) == {2}


def test_the_missing_result_of_an_older_run_is_never_written_after_a_newer_run(world: World) -> None:
    ledger = Strike(2, REFUSED, methods=("entry",))
    store = Meddling(world.store, before=lambda _method, what: ledger("entry" if "lease" not in what else "", what))
    with pytest.raises(OmniError) as caught:
        World(world.staging, world.public, store).nightly(2, "two")
    assert "the ledger has no result of it" in caught.value.message
    plan = world.plan(nightly(2))
    assert plan.unfinished is not None
    world.nightly(3, "three")
    report = execute_publish(world.parties, plan, Run("late"))
    assert not report.wrote
    assert world.entries()[0].run == "three"
    assert drift(world) == []


def test_the_second_look_reads_no_more_of_the_ledger_than_the_first(world: World) -> None:
    for number in range(5, 15):
        world.staged(number)
        world.nightly(number)
    world.staged(16)
    plan = world.plan(nightly(16))
    store = Counting(world.store)
    execute_publish(World(world.staging, world.public, store).parties, plan, Run("r"))
    assert len([read for read in store.keys("get") if read.startswith("_ledger/nightly/")]) <= 3


# A rollback and a publish


def test_a_rollback_that_would_go_elsewhere_by_now_does_nothing(world: World) -> None:
    world.nightly(2)
    plan = plan_rollback(world.public, world.store, Channel.NIGHTLY)
    world.nightly(3)
    with pytest.raises(RemoteChangedError, match="another run moved the channel") as caught:
        execute_rollback(world.public, world.store, plan, Run("late"))
    assert caught.value.exit_code == 76
    assert shows(world) == {3}
    assert world.entries()[0].deed is RunKind.PUBLISH


def test_a_rollback_to_a_named_place_goes_there_from_wherever_a_run_moved_the_channel(world: World) -> None:
    world.nightly(2)
    plan = plan_rollback(world.public, world.store, Channel.NIGHTLY, to=f"nightly-{commit(1)}")
    world.nightly(3)
    done = execute_rollback(world.public, world.store, plan, Run("late"))
    assert shows(world) == {1}
    assert done.tags[-1].old == world.tags()[f"nightly-{commit(3)}"]
    assert {change.tag: change.old for change in world.entries()[0].tags}["nightly"] == world.tags()[
        f"nightly-{commit(3)}"
    ]


def test_a_rollback_to_an_index_without_its_images_moves_no_tag(world: World) -> None:
    world.nightly(2)
    child = world.images[1][f"{commit(1)}-aarch64"].top.children[0].digest
    world.public.delete_manifest(child)
    before = world.tags()
    with pytest.raises(OmniError, match=f"{child} was deleted") as caught:
        world.rollback()
    assert caught.value.exit_code == 66
    assert world.tags() == before


# A run that was stopped half-way


def half_done(world: World, number: int, tag: str, run: str) -> None:
    """Publish a nightly that fails when it writes one of the moving tags."""

    def refuse(method: str, what: str) -> None:
        if (method, what) == ("tag", tag):
            raise OmniError("denied")

    with pytest.raises(OmniError, match="denied"):
        World(world.staging, Hooked(world.public, hook=refuse), world.store).nightly(number, run)


@pytest.mark.parametrize("tag", ["nightly", "nightly-aarch64"])
@pytest.mark.parametrize("how", [{}, {"run": "half"}, {"to": f"nightly-{commit(2)}"}])
@pytest.mark.parametrize("tries", [1, 2])
def test_a_half_done_publish_is_undone_in_one_step_and_does_not_come_again(
    world: World, tag: str, how: dict[str, Any], tries: int
) -> None:
    world.nightly(2)
    for left in reversed(range(tries)):
        half_done(world, 3, tag, f"earlier-{left}" if left else "half")
    assert shows(world) == {2, 3}
    plan = world.rollback(**how)
    assert plan.undone is not None
    assert (plan.undone.run, shows(world), drift(world)) == ("half", {2}, [])
    states = {past.entry.run: past.state for past in past_runs(world.public, world.store, Channel.NIGHTLY)}
    assert states["half"] == "undone by run back"
    report = world.nightly(3)
    assert "was taken back" in report.plan.verdict.reason
    assert shows(world) == {2}
    world.rollback(name="further")
    assert shows(world) == {1}
    assert not world.nightly(3).plan.verdict.moves
    world.nightly(4)
    assert shows(world) == {4}


def test_a_publish_that_moved_no_floating_tag_is_no_step_to_undo(world: World) -> None:
    world.nightly(2)
    half_done(world, 3, "nightly-x86_64", "none")
    world.rollback()
    assert shows(world) == {1}


def test_a_run_that_came_too_late_is_not_believed(world: World) -> None:
    world.nightly(3, "three")
    tags, (one,) = world.tags(), [entry for entry in world.entries() if entry.run == "one"][:1]
    # As runs wrote that had planned before another one: from where the tags had been, to where they never came.
    late = tuple(
        replace(change, old=change.new, new=f"sha256:{number:064x}", done=False)
        for number, change in enumerate(one.tags)
        if change.tag in GROUP
    )
    lost = replace(one, run="late", tags=late, commit=commit(2), failure="nightly-x86_64 shows another one")
    ledger = Ledger(world.store, Channel.NIGHTLY)
    ledger.add(replace(lost, event=Event.INTENT, failure=None, time=written(datetime.now(UTC))))
    ledger.add(replace(lost, event=Event.RESULT, time=written(datetime.now(UTC))))
    rows = channel_status(world.public, world.store, Channel.NIGHTLY)
    assert [(row.drift, row.run, row.note) for row in rows] == [(False, "three", "as recorded")] * 3
    world.rollback()
    assert shows(world) == {1}
    assert world.tags()[f"nightly-{commit(3)}"] == tags["nightly"]


@pytest.mark.parametrize("number", [2, 3])
@pytest.mark.parametrize("end", ["x86_64", "aarch64"])
def test_tags_that_are_mixed_are_mended_or_told(world: World, number: int, end: str) -> None:
    world.nightly(2)
    world.nightly(3)
    late = world.images[2][f"{commit(2)}-{end}"].top
    world.public.put_manifest(late, f"nightly-{end}")
    report = world.nightly(number)
    if number == 3:
        assert shows(world) == {3}
        return
    assert report.plan.mixed is not None
    assert report.plan.mixed.startswith(f"nightly-{end}: no image of what nightly shows")
    assert report.plan.mixed in report.plan.warnings
    word = world.tags()["nightly"]
    assert f"--to {word}" in report.plan.mixed
    world.rollback(to=word)
    assert shows(world) == {3}
    assert world.nightly(2).plan.mixed is None


# The lease


def test_a_lease_is_renewed_while_its_block_runs(world: World) -> None:
    renewed = threading.Semaphore(0)
    store = Meddling(world.store, after=lambda _method, _key: renewed.release())
    with Lease(store, Channel.NIGHTLY, "a", "x", every=0.01).held() as lease:
        for _ in range(4):
            assert renewed.acquire(timeout=20)
        lease.renew()
    Lease(world.store, Channel.NIGHTLY, "b", "y").hold()


@pytest.mark.parametrize("error", [OmniError("the store is away"), RuntimeError("a fault of ours")])
def test_a_renewal_that_failed_stops_the_next_write(world: World, error: Exception) -> None:
    failed = threading.Event()

    def refuse(_method: str, _key: str) -> None:
        if threading.current_thread() is not threading.main_thread():
            failed.set()
            raise error

    store = Meddling(world.store, before=refuse)
    with Lease(store, Channel.NIGHTLY, "a", "x", every=0.01).held() as lease:
        assert failed.wait(20)
        for thread in threading.enumerate():
            if thread.name == "lease of nightly":
                thread.join(20)
        with pytest.raises(OmniError, match=r"the store is away|a fault of ours"):
            lease.renew()


@pytest.mark.parametrize("seconds", [SECONDS, -1.0], ids=["held", "used and ended"])
@pytest.mark.parametrize("tag", [f"nightly-{commit(2)}", "nightly-x86_64", "nightly-aarch64"])
def test_a_run_whose_lease_another_run_had_writes_no_further_tag(world: World, tag: str, seconds: float) -> None:
    def lose(_method: str, what: str) -> None:
        if what == tag:
            hand_over(world, "other", seconds=seconds)

    public = Hooked(world.public, after=lose)
    with pytest.raises(RemoteChangedError, match=r"run other (holds|held) nightly: publish of another one") as caught:
        World(world.staging, public, world.store).nightly(2)
    assert public.calls("tag")[-1] == tag
    assert f"moved: {', '.join(public.calls('tag'))}; not moved: " in caught.value.message
    blob = world.store.get(key())
    assert json.loads(blob.data)["run"] == "other"


def test_a_lease_that_was_removed_is_lost(world: World) -> None:
    lease = Lease(world.store, Channel.NIGHTLY, "a", "x")
    lease.hold()
    world.store.delete(key())
    with pytest.raises(RemoteChangedError, match="is gone"):
        lease.renew()


def test_a_lease_of_a_wrong_clock_holds_nothing_and_others_say_their_date(world: World) -> None:
    hand_over(world, "ahead", seconds=2 * SECONDS + 60)
    world.nightly(2)
    hand_over(world, "mine", seconds=SECONDS)
    with pytest.raises(
        TemporaryError, match=r"run mine holds nightly: .* \(until \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC\)"
    ):
        world.nightly(3)


@pytest.mark.parametrize("error", [OmniError("x"), RuntimeError("x"), KeyboardInterrupt()])
def test_a_lease_is_given_back_whatever_ends_the_run(world: World, error: BaseException) -> None:
    def fail(method: str, what: str) -> None:
        if (method, what) == ("tag", "nightly-aarch64"):
            raise error

    with pytest.raises(type(error)):
        World(world.staging, Hooked(world.public, hook=fail), world.store).nightly(2)
    world.nightly(3)
    assert shows(world) == {3}


# A clean-up


@pytest.fixture
def full(world: World) -> World:
    """Return a world of four nightlies of which two go, and of which a rollback needs none of the first."""
    for number in (2, 3, 4):
        world.nightly(number)
    for number in range(5, 9):
        world.staged(number)
        world.nightly(number)
    return world


def clean(world: World) -> tuple[CleanupReport, OmniError | None]:
    planned = plan_cleanup(load(environment={}), world.parties, RULE, reclaim=True)
    assert planned.plan.reclaims
    return run_cleanup(planned, lambda _line: None)


DEEDS: dict[str, Callable[[World], Any]] = {
    "nightly": lambda world: world.nightly(8),
    "new nightly": lambda world: (world.staged(9), world.nightly(9)),
    "release of what goes": lambda world: world.release(3, "1.0"),
    "rollback to what goes": lambda world: world.rollback(to=f"nightly-{commit(3)}"),
}


@pytest.mark.parametrize("name", ["new nightly", "release of what goes", "rollback to what goes"])
@pytest.mark.parametrize("at", [1, 2, 5])
def test_nothing_moves_a_tag_while_manifests_go(full: World, name: str, at: int) -> None:
    refused: list[OmniError] = []

    def meddle(_method: str, _what: str) -> None:
        try:
            DEEDS[name](World(full.staging, full.public, full.store))
        except OmniError as error:
            refused.append(error)

    hooked = Hooked(full.public, hook=Strike(at, meddle, methods=("delete_manifest",)))
    report, error = clean(World(full.staging, hooked, full.store))
    assert (error, len(refused)) == (None, 1)
    assert report.reclaimed
    if isinstance(refused[0], TemporaryError):
        assert "clean-up of" in refused[0].message
    else:
        assert refused[0].exit_code == 66  # it is gone already
    assert all(is_whole(full.public, digest) for digest in full.tags().values())
    full.staged(9)
    full.nightly(9)
    full.release(3, "1.0")
    assert all(is_whole(full.public, digest) for digest in full.tags().values())


@pytest.mark.parametrize("channel", list(Channel))
def test_a_clean_up_waits_for_a_run_that_moves_tags(full: World, channel: Channel) -> None:
    before = full.tags()
    hand_over(full, "busy", channel=channel)
    with pytest.raises(TemporaryError, match=f"run busy holds {channel.value}: publish of another one") as caught:
        clean(full)
    assert caught.value.exit_code == 75
    assert full.tags() == before
    hand_over(full, "busy", channel=channel, seconds=-1)
    assert clean(full)[1] is None


def test_a_clean_up_that_was_planned_before_a_tag_moved_deletes_nothing(full: World) -> None:
    planned = plan_cleanup(load(environment={}), full.parties, RULE, reclaim=True)
    full.rollback(to=f"nightly-{commit(2)}")
    before = full.tags()
    with pytest.raises(TemporaryError, match="nothing was deleted"):
        run_cleanup(planned, lambda _line: None)
    assert full.tags() == before
    assert clean(full)[1] is None
    assert shows(full) == {2}


@pytest.mark.parametrize("channel", list(Channel))
def test_a_clean_up_that_lost_a_lease_deletes_no_further(full: World, channel: Channel) -> None:
    hooked = Hooked(full.public)
    hooked.after = lambda method, _what: (
        hand_over(full, "other", channel=channel) if method == "delete_manifest" else None
    )
    report, error = clean(World(full.staging, hooked, full.store))
    assert isinstance(error, RemoteChangedError)
    assert f"run other holds {channel.value}" in error.message
    assert len(report.reclaimed) == len(hooked.calls("delete_manifest")) == 1


@pytest.mark.parametrize("which", ["index", "top", "child", "attestation"])
@pytest.mark.parametrize("request_", [nightly(2), release(2, "1.0")], ids=["nightly", "release"])
def test_no_tag_is_written_when_a_manifest_went_after_the_copy(world: World, which: str, request_: Request) -> None:
    plan = world.plan(request_)
    top = world.images[2][f"{commit(2)}-x86_64"].top
    digest = {
        "index": plan.index,
        "top": top.digest,
        "child": top.children[0].digest,
        "attestation": top.children[1].digest,
    }[which]
    gone: list[str] = []

    def delete(_method: str, what: str) -> None:
        if what == key(request_.channel) and not gone:
            gone.append(digest)
            assert world.public.delete_manifest(digest)

    before = world.tags()
    disturbed = World(world.staging, world.public, Meddling(world.store, before=delete))
    with pytest.raises(TemporaryError, match=f"lacks {digest}") as caught:
        execute_publish(disturbed.parties, plan, Run("r"))
    assert (caught.value.exit_code, gone) == (75, [digest])
    assert "run it again" in (caught.value.hint or "")
    assert world.tags() == before
    world.publish(request_)
    assert all(is_whole(world.public, found) for found in world.tags().values())


# What others have written


@pytest.mark.parametrize("said", ["deadbeef", "main", "x" * 5000, "a\x1b[31mb", "\u202e", "\udc80", "F" * 40])
def test_a_foreign_nightly_whose_label_is_no_commit_does_not_say_its_commit(world: World, said: str) -> None:
    foreign = images.index(images.image(commit=said), images.image("arm64", commit=said))
    images.store(foreign, world.public, "nightly")
    plan = world.plan(nightly(2), lambda older, _newer: pytest.fail(f"asked about {older}"))
    assert plan.verdict.reason == "what it shows does not say its commit"


@pytest.mark.parametrize("said", ["x" * 100_000, "a\x1b[31mb", "\u202eb", "\udc80"])
def test_a_staged_image_with_a_hostile_label_is_refused_shortly(world: World, said: str) -> None:
    for name, architecture in (("x86_64", "amd64"), ("aarch64", "arm64")):
        images.store(images.image(architecture, commit=said), world.staging, f"{commit(9)}-{name}")
    with pytest.raises(DataError) as caught:
        world.nightly(9)
    message = caught.value.message
    assert len(message) < 400
    assert message.isprintable()


BAD_KEYS = (
    "20261301T000000.000000Z-1",
    "20260230T000000.000000Z-1",
    "20260101T250000.000000Z-1",
    "99991231T235959.999999Z-1",
    "20260101T00000\u0660.000000Z-1",
)


@pytest.mark.parametrize("name", BAD_KEYS)
@pytest.mark.parametrize("request_", [nightly(2), release(2, "1.0")], ids=["nightly", "release"])
def test_a_key_that_is_no_moment_is_named_before_anything_is_copied(world: World, name: str, request_: Request) -> None:
    bad = f"_ledger/{request_.channel.value}/{name}.json"
    world.store.put(bad, world.entries()[0].encode(), HEADERS, expected=None)
    public = Hooked(world.public)
    with pytest.raises(DataError) as caught:
        World(world.staging, public, world.store).publish(request_, "r")
    assert (caught.value.exit_code, public.changes) == (65, [])
    assert bad in caught.value.message
    assert "remove that object" in (caught.value.hint or "")


@pytest.mark.parametrize(
    "change", [{"version": "abc"}, {"version": "1.0; x"}, {"time": "0001-01-01T00:00:00+14:00"}, {"run": "\udc80"}]
)
def test_an_entry_that_cannot_be_used_is_named_before_anything_is_copied(world: World, change: dict[str, str]) -> None:
    bad = "_ledger/release/20260101T000000.000000Z-1.json"
    document = json.loads(world.entries()[0].encode()) | {"channel": "release"} | change
    world.store.put(bad, json.dumps(document).encode(), HEADERS, expected=None)
    public = Hooked(world.public)
    with pytest.raises(DataError) as caught:
        World(world.staging, public, world.store).release(2, "1.0")
    assert (caught.value.exit_code, public.changes) == (65, [])
    assert bad in caught.value.message


def test_what_a_build_says_of_itself_comes_plain_and_without_its_login(world: World) -> None:
    address = "https://me:hunter2@ci.example/1?token=hunter2&x=\udc80"
    run = Run.start(load(environment={"BUILDKITE_BUILD_NUMBER": "7\udc80\n", "BUILDKITE_BUILD_URL": address}))
    execute_publish(world.parties, world.plan(nightly(2)), run)
    entry = world.entries()[0]
    assert entry.build_url is not None
    assert "hunter2" not in entry.build_url
    assert "\\udc80" in entry.build_url
    assert entry.build is not None
    assert (entry.build + entry.build_url + entry.run).isprintable()
