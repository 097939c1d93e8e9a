from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tasks.release.channels import Channel
from tasks.release.lease import Lease
from tasks.release.ledger import HEADERS, Entry, Event, History, Ledger, RunKind, TagChange, written
from tasks.support.errors import DataError, RemoteChangedError, TemporaryError, UsageError
from tasks.support.store import ObjectStore, open_store

D = [f"sha256:{number:064x}" for number in range(10)]
PUBLIC = "docker.io/some/thing"


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(str(tmp_path / "store"))


@pytest.fixture
def ledger(store: ObjectStore) -> Ledger:
    return Ledger(store, Channel.NIGHTLY)


def entry(run: str, old: int | None, new: int, **changed: Any) -> Entry:
    change = TagChange("nightly", None if old is None else D[old], D[new], done=True)
    made = Entry(
        event=Event.RESULT,
        deed=RunKind.PUBLISH,
        channel=Channel.NIGHTLY,
        run=run,
        time="2026-01-01T00:00:00.000000Z",
        repository=PUBLIC,
        commit=f"{new:040x}",
        tags=(change,),
        sources={"x86_64": D[9]},
        build="77",
    )
    return replace(made, **changed)


def intent(run: str, old: int | None, new: int, **changed: Any) -> Entry:
    made = entry(run, old, new, event=Event.INTENT, **changed)
    return replace(made, tags=tuple(replace(change, done=False) for change in made.tags))


def history(ledger: Ledger, *entries: Entry) -> History:
    """Write entries, oldest first, and read them."""
    for made in entries:
        ledger.add(made)
    return History.read(ledger, PUBLIC)


def test_an_entry_is_read_as_it_was_written(ledger: Ledger) -> None:
    made = entry(
        "a",
        None,
        1,
        version="1.0rc1",
        untested="because: \u00e9\n",
        failure="x",
        moved_latest=True,
        copied=5,
        undone="b",
    )
    key = ledger.add(made)
    assert list(ledger.entries()) == [made]
    assert key == "_ledger/nightly/20260101T000000.000000Z-77.json"
    blob = ledger.store.get(key)
    assert blob is not None
    assert blob.data == made.encode()


def test_entries_of_one_moment_and_of_a_late_clock_keep_their_order(ledger: Ledger) -> None:
    runs = ["a", "b", "c", "d"]
    for run in runs:
        ledger.add(entry(run, 1, 2, time="2026-01-01T00:00:00.000000Z" if run != "d" else "2020-01-01T00:00:00+00:00"))
    assert [found.run for found in ledger.entries()] == runs[::-1]
    assert len({found.time for found in ledger.entries()}) == len(runs)


def test_channels_have_their_own_entries_and_a_lease_is_none(store: ObjectStore) -> None:
    nightly, release = Ledger(store, Channel.NIGHTLY), Ledger(store, Channel.RELEASE)
    Lease(store, Channel.NIGHTLY, "r", "s").hold()
    nightly.add(entry("a", None, 1))
    assert list(release.entries()) == []
    assert [found.run for found in nightly.entries()] == ["a"]


@pytest.mark.parametrize("build", ["../../x", "a/b", "77 \n", "x" * 300, "\u00e9"])
def test_a_build_is_no_way_out_of_the_ledger(ledger: Ledger, build: str) -> None:
    key = ledger.add(entry("a", None, 1, build=build))
    assert key.startswith("_ledger/nightly/2026")
    assert key.count("/") == 2
    assert [found.build for found in ledger.entries()] == [build]


def broken_documents() -> dict[str, dict[str, Any]]:
    good = json.loads(entry("a", 1, 2).encode())
    tag = good["tags"][0]
    changes: list[dict[str, Any]] = [
        {"format": 2},
        {"format": True},
        {"event": "done"},
        {"channel": "stable"},
        {"tags": [{**tag, "new": "sha256:1"}]},
        {"tags": [{**tag, "old": 5}]},
        {"tags": [{**tag, "tag": "../x"}]},
        {"tags": [{**tag, "done": "yes"}]},
        {"tags": [{**tag, "more": 1}]},
        {"tags": None},
        {"commit": "main"},
        {"copied": -1},
        {"copied": True},
        {"moved_latest": 1},
        {"time": "2026-01-01"},
        {"time": None},
        {"run": ""},
        {"sources": {"x86_64": "latest"}},
        {"untested": ["x"]},
        {"surprise": 1},
    ]
    broken = {f"{number}-{next(iter(change))}": {**good, **change} for number, change in enumerate(changes)}
    for missing in ("run", "tags", "format"):
        broken[f"no-{missing}"] = {key: value for key, value in good.items() if key != missing}
    return broken


@pytest.mark.parametrize("document", broken_documents().values(), ids=broken_documents())
def test_an_entry_that_is_not_as_it_should_be_is_refused_with_its_key(ledger: Ledger, document: dict[str, Any]) -> None:
    key = ledger.add(entry("a", None, 1))
    ledger.store.put(key, json.dumps(document).encode(), HEADERS, expected=None)
    with pytest.raises(DataError, match=key):
        list(ledger.entries())


@pytest.mark.parametrize("data", [b"", b"null", b"[]", b"\xff", b"[" * 100_000])
def test_an_entry_that_is_no_document_is_refused(ledger: Ledger, data: bytes) -> None:
    key = ledger.add(entry("a", None, 1))
    ledger.store.put(key, data, HEADERS, expected=None)
    with pytest.raises(DataError, match=r"cannot read the ledger"):
        list(ledger.entries())


def test_a_strange_object_among_the_entries_is_named(ledger: Ledger) -> None:
    ledger.store.put("_ledger/nightly/notes.txt", b"", HEADERS, expected=None)
    with pytest.raises(DataError, match=r"notes\.txt"):
        list(ledger.entries())


# What the ledger says of a tag


def test_a_history_has_an_intent_only_while_its_run_has_no_result(ledger: Ledger) -> None:
    found = history(ledger, intent("a", None, 1), entry("a", None, 1), intent("b", 1, 2))
    assert [(e.run, e.event) for e in found] == [("b", Event.INTENT), ("a", Event.RESULT)]
    assert [(e.run, e.event) for e in found] == [("b", Event.INTENT), ("a", Event.RESULT)]
    assert found.expected("nightly") == {D[1], D[2]}
    assert found.expected("other") == {None}


def test_a_history_is_that_of_one_repository(ledger: Ledger) -> None:
    ledger.add(entry("a", None, 1, repository="docker.io/some/other"))
    assert list(History.read(ledger, PUBLIC)) == []


def test_going_back_again_goes_further_back(ledger: Ledger) -> None:
    back = entry("back", 3, 2, deed=RunKind.ROLLBACK)
    found = history(ledger, entry("a", None, 1), entry("b", 1, 2), entry("c", 2, 3), back)
    assert found.before("nightly", D[3]) == D[2]
    assert found.before("nightly", D[2]) == D[1]
    assert found.before("nightly", D[1]) is None
    cause = found.cause("nightly", D[2])
    assert cause is not None
    assert cause.run == "back"


def test_a_second_run_that_found_a_tag_in_place_did_not_move_it(ledger: Ledger) -> None:
    found = history(ledger, entry("a", None, 1), intent("b", 1, 2), entry("c", 2, 2))
    assert found.before("nightly", D[2]) == D[1]
    cause = found.cause("nightly", D[2])
    assert cause is not None
    assert cause.run == "b"


@pytest.mark.parametrize(
    ("entries", "digest", "held"),
    [
        ([entry("a", None, 1), entry("b", 1, 2)], 1, False),
        ([entry("a", None, 1), entry("b", 1, 2), entry("x", 2, 1, deed=RunKind.ROLLBACK)], 2, True),
        ([entry("a", None, 1), entry("b", 1, 2), entry("x", 2, 1, deed=RunKind.ROLLBACK)], 1, False),
        ([entry("a", None, 1), entry("b", 1, 2), entry("x", 2, 1, deed=RunKind.ROLLBACK)], 3, False),
        # It went past 2 as well.
        ([entry("a", None, 1), entry("b", 1, 2), entry("c", 2, 3), entry("x", 3, 1, deed=RunKind.ROLLBACK)], 2, True),
        # Twice.
        (
            [
                entry("a", None, 1),
                entry("b", 1, 2),
                entry("c", 2, 3),
                entry("x", 3, 2, deed=RunKind.ROLLBACK),
                entry("y", 2, 1, deed=RunKind.ROLLBACK),
            ],
            3,
            True,
        ),
        # A later publish ends it.
        (
            [entry("a", None, 1), entry("b", 1, 2), entry("x", 2, 1, deed=RunKind.ROLLBACK), entry("d", 1, 4)],
            2,
            False,
        ),
        # One that failed before the tag does not.
        (
            [
                entry("a", None, 1),
                entry("b", 1, 2),
                entry("x", 2, 1, deed=RunKind.ROLLBACK),
                replace(intent("d", 1, 4), event=Event.RESULT, failure="no"),
            ],
            2,
            True,
        ),
    ],
)
def test_what_was_taken_back_does_not_come_again_by_itself(
    ledger: Ledger, entries: list[Entry], digest: int, held: bool
) -> None:
    assert (history(ledger, *entries).passed_over("nightly", D[digest]) is not None) is held


def test_the_last_digests_of_a_tag(ledger: Ledger) -> None:
    entries = [entry("a", None, 1), entry("b", 1, 2), entry("c", 2, 3), entry("d", 3, 2), entry("e", 2, 4)]
    found = history(ledger, *entries)
    assert found.digests("nightly", 3) == [D[4], D[2], D[3]]
    assert found.digests("nightly", 9) == [D[4], D[2], D[3], D[1]]
    assert found.digests("other", 3) == []


def test_digests_that_may_have_been_shown_are_extra(ledger: Ledger) -> None:
    found = history(ledger, entry("a", None, 1), entry("b", 1, 2), entry("c", 2, 3), intent("d", 3, 5))
    assert found.digests("nightly", 3) == [D[5], D[3], D[2], D[1]]


def test_a_run_is_found_by_its_id_or_by_the_number_of_its_build(ledger: Ledger) -> None:
    found = history(ledger, entry("a", None, 1, build="76"), entry("b", 1, 2, build="77"), entry("c", 2, 3, build="77"))
    assert [found.run(word).run for word in ("a", "76", "77", "b")] == ["a", "a", "c", "b"]
    with pytest.raises(UsageError, match="no run '78'") as caught:
        found.run("78")
    assert caught.value.hint == "the newest are: c, b, a"


# The lease


def test_a_channel_has_one_holder(store: ObjectStore) -> None:
    first, second = Lease(store, Channel.NIGHTLY, "a", D[1]), Lease(store, Channel.NIGHTLY, "b", D[2])
    first.hold()
    first.renew()
    with pytest.raises(TemporaryError, match=f"run a holds nightly to {D[1]}") as caught:
        second.hold()
    assert caught.value.exit_code == 75
    Lease(store, Channel.RELEASE, "b", D[2]).hold()
    first.end()
    second.hold()
    with pytest.raises(RemoteChangedError, match="run b holds"):
        first.renew()
    first.end()
    second.renew()


def test_a_lease_says_what_its_holder_does_and_for_which_commit(store: ObjectStore) -> None:
    Lease(store, Channel.NIGHTLY, "a", D[1], f"publish of commit {'1' * 40}").hold()
    with pytest.raises(TemporaryError) as caught:
        Lease(store, Channel.NIGHTLY, "b", D[2]).hold()
    assert caught.value.message.startswith(f"run a holds nightly: publish of commit {'1' * 40} (until ")
    assert D[1] not in caught.value.message


def test_a_lease_of_an_older_version_of_this_tool_is_read(store: ObjectStore) -> None:
    lease = Lease(store, Channel.NIGHTLY, "a", D[1], "publish")
    lease.hold()
    (stored,) = store.list("_ledger/")
    blob = store.get(stored.key)
    assert blob is not None
    document = json.loads(blob.data)
    del document["about"]
    store.put(stored.key, json.dumps(document).encode(), HEADERS, expected=None)
    with pytest.raises(TemporaryError, match=f"run a holds nightly to {D[1]}"):
        Lease(store, Channel.NIGHTLY, "b", D[2]).hold()


@pytest.mark.parametrize(
    ("deed", "commit", "version", "about"),
    [
        (RunKind.PUBLISH, "1" * 40, "1.0", f"publish of 1.0 (commit {'1' * 40})"),
        (RunKind.PUBLISH, "1" * 40, None, f"publish of commit {'1' * 40}"),
        (RunKind.ROLLBACK, "1" * 40, None, f"rollback to commit {'1' * 40}"),
        (RunKind.ROLLBACK, None, "1.0", "rollback to 1.0"),
        (RunKind.ROLLBACK, None, None, "rollback"),
    ],
)
def test_an_entry_says_what_it_is_about(deed: RunKind, commit: str | None, version: str | None, about: str) -> None:
    made = Entry(Event.INTENT, deed, Channel.NIGHTLY, "r", "2026-01-01T00:00:00Z", "x", commit, (), version)
    assert made.about == about


def test_a_run_that_was_killed_holds_nothing_up_for_one_to_the_same_place(store: ObjectStore) -> None:
    Lease(store, Channel.NIGHTLY, "a", D[1]).hold()
    Lease(store, Channel.NIGHTLY, "b", D[1]).hold()


def test_a_lease_ends_with_its_time(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    from tasks.release import lease

    monkeypatch.setattr(lease, "SECONDS", -1.0)
    Lease(store, Channel.NIGHTLY, "a", D[1]).hold()
    Lease(store, Channel.NIGHTLY, "b", D[2]).hold()


def test_times_are_written_in_utc() -> None:
    moment = datetime(2026, 1, 1, 1, tzinfo=UTC) + timedelta(microseconds=5)
    assert written(moment) == "2026-01-01T01:00:00.000005Z"
