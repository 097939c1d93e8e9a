from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import pytest

from tasks.support.errors import DataError, MissingInputError, OmniError, RemoteChangedError, UsageError
from tasks.support.store import Stored, open_store
from tasks.wheels import layout, pruning, removal
from tasks.wheels.drawing import draw_view
from tasks.wheels.index import Index
from tasks.wheels.state import FileRecord
from tests.factory_index import commit, held, index_of, move, nightly, rollback, upload
from tests.faults import Counting, Meddling, Wrapped, broken, memory_folder, run_killed, tree
from tests.scenarios import adopt, prune, put_foreign, yank

pytestmark = pytest.mark.slow  # together these take longer than the fast set may

SOON = timedelta(days=30)
REQUIRED = ("key", "version", "sha256", "uploaded", "commit_time", "commit_time_from")


@pytest.fixture
def folder() -> Iterator[Path]:
    with memory_folder() as empty:
        yield empty


@pytest.fixture
def index(folder: Path) -> Index:
    return index_of(Counting(open_store(str(folder / "store"))))


def many(index: Index) -> None:
    """Make nightlies 2, 3 and 4, release 0.3 of commit 3, release 7.0 of commit 7, and commits 0, 1 and 5 besides."""
    for number in (0, 1, 5):
        upload(index, number, ("sample", f"0.{number}"), ("sample", f"0.{number}+cu130"), ("other", f"1.{number}"))
    for number in (2, 3, 4):
        nightly(index, number)
    move(index, "v0.3", 3)
    upload(index, 7, ("other", "7.0"))
    move(index, "v7.0", 7)


def plan(
    index: Index, *, keep: int = 1, share: float = 1.0, young: int = 7, now: datetime | None = None
) -> pruning.PrunePlan:
    return pruning.plan_prune(
        index, keep=keep, younger_than=timedelta(days=young), max_share=share, now=now or datetime.now(UTC) + SOON
    )


def removed(planned: pruning.PrunePlan) -> set[int]:
    """Return the numbers of the commits that are to go."""
    return {int(choice.commit[:1], 16) for choice in planned.choices if choice.verdict == pruning.REMOVE}


def commits_there(index: Index) -> set[int]:
    return {int(stored.key[:1], 16) for stored in index.store.list() if layout.is_commit(stored.key.partition("/")[0])}


# What stays


@pytest.mark.parametrize(
    ("keep", "gone"),
    # Nightly holds 4 and a rollback goes to 3, whatever is asked for; 3 and 7 are released.
    [(1, {0, 1, 2, 5}), (2, {0, 1, 2, 5}), (3, {0, 1, 5}), (99, {0, 1, 5})],
)
def test_the_newest_nightlies_and_what_views_hold_stay(index: Index, keep: int, gone: set[int]) -> None:
    many(index)
    assert removed(plan(index, keep=keep)) == gone
    report = prune(index, keep=keep)
    assert {int(sha[:1], 16) for sha in report.commits} == gone
    assert commits_there(index) == {0, 1, 2, 3, 4, 5, 7} - gone
    assert broken(index.store) == []
    for view in ("nightly", "v0.3", "v7.0"):
        assert held(index, view)
    rollback(index, "nightly")
    assert broken(index.store) == []


def test_every_choice_has_a_reason(index: Index) -> None:
    many(index)
    put_foreign(index.store, 8, ("sample", "0.8"))
    put_foreign(index.store, 5, ("more", "0.5"))
    reasons = {choice.commit[:1]: (choice.verdict, choice.reason) for choice in plan(index).choices}
    assert len(reasons) == 8
    assert reasons["4"] == ("keep", "nightly holds it")
    assert reasons["3"] == ("keep", "v0.3 holds it")
    assert reasons["5"][0] == "keep"
    assert "not in the state: more-0.5-py3-none-any.whl; run wheels.adopt" in reasons["5"][1]
    assert "not in the state" in reasons["8"][1]
    assert reasons["0"][0] == "remove"
    assert "30 days ago" in reasons["0"][1]


def test_rolled_back_nightlies_count_as_nightlies(index: Index) -> None:
    for number in range(5):
        nightly(index, number)
    rollback(index, "nightly", 2)
    # The order in which nightly held them, newest first: 1, 4, 3, 2, 0.
    assert removed(plan(index, keep=3)) == {2}, "and a rollback goes to 0"


@pytest.mark.parametrize("age", [0, 6, 8])
def test_young_commits_stay(index: Index, age: int) -> None:
    upload(index, 1)
    upload(index, 2)
    planned = plan(index, now=datetime.now(UTC) + timedelta(days=age))
    assert removed(planned) == ({1, 2} if age > 7 else set())


def test_an_old_commit_with_a_young_file_stays(index: Index, folder: Path) -> None:
    """Somebody may be uploading to it right now."""
    upload(index, 1)
    upload(index, 2)
    old = "2026-01-01T00:00:00.000000Z"
    index.change_project(
        "sample",
        lambda state: state.with_files({key: _dated(record, old) for key, record in state.files.items()}),
    )
    for stored in index.store.list():
        os.utime(folder / "store" / stored.key, (1_767_225_600, 1_767_225_600))
    upload(index, 1, ("sample", "0.1+cu130"))
    assert removed(plan(index, now=datetime.now(UTC))) == {2}
    # A time that was recorded by a clock that is behind makes no young file old.
    index.change_project(
        "sample",
        lambda state: state.with_files({key: _dated(record, old) for key, record in state.files.items()}),
    )
    assert removed(plan(index, now=datetime.now(UTC))) == {2}


def _dated(record: FileRecord, moment: str) -> FileRecord:
    return replace(record, uploaded=moment)


@pytest.mark.parametrize("keep", [0, -1])
def test_the_present_nightly_cannot_be_given_up(index: Index, keep: int) -> None:
    many(index)
    with pytest.raises(UsageError, match="cannot keep"):
        plan(index, keep=keep)


# The share


@pytest.mark.parametrize(("share", "refused"), [(0.2, True), (0.57, True), (4 / 7, False), (0.58, False), (1.0, False)])
def test_more_than_the_share_is_refused(index: Index, share: float, refused: bool) -> None:
    for number in range(7):
        upload(index, number)
        if number > 3:
            move(index, "nightly", number)
    before = tree(index.store)
    if refused:
        with pytest.raises(DataError, match=r"4 of 7 commits \(57%\)") as caught:
            prune(index, share=share, keep=3)
        assert caught.value.exit_code == 65
        assert tree(index.store) == before
    else:
        assert len(prune(index, share=share, keep=3).commits) == 4


def test_the_share_of_files_counts_too(index: Index) -> None:
    upload(index, 1, *(("sample", f"1.{number}") for number in range(8)))
    for number in (2, 3, 4, 5):
        nightly(index, number)
    planned = plan(index, keep=4, share=0.5)
    assert "8 of 12 files" in planned.refusal.message if planned.refusal else False
    # The table of a plan that is refused is whole, so that a person can choose the right share.
    assert [choice.verdict for choice in planned.choices] == ["remove", *["keep"] * 4]
    before = tree(index.store)
    with pytest.raises(DataError, match="8 of 12 files"):
        pruning.execute_prune(index, planned)
    assert tree(index.store) == before
    assert pruning.foretold(DataError("x", hint="y")).message == "a real run would be refused: x"


def test_nothing_to_do_is_success_without_a_change(index: Index) -> None:
    nightly(index, 1)
    assert plan(index, share=0.0).actions() == []
    before = tree(index.store)
    assert prune(index, share=0.0).commits == ()
    assert tree(index.store) == before


# Listings that leave something out, and clocks that are wrong


@dataclass
class Hiding(Wrapped):
    """A store whose listings leave keys out."""

    hide: Callable[[str], bool] = lambda _key: False

    def list(self, prefix: str = "") -> Iterator[Stored]:
        return (stored for stored in super().list(prefix) if not self.hide(stored.key))


@dataclass
class Cut(Wrapped):
    """A store whose listings end early."""

    limit: int = 0

    def list(self, prefix: str = "") -> Iterator[Stored]:
        return iter(sorted(super().list(prefix), key=lambda stored: stored.key)[: self.limit])


def deletions(before: dict[str, bytes], index: Index) -> list[str]:
    after = tree(index.store)
    return sorted(key for key in before if key not in after)


def test_a_listing_that_is_cut_anywhere_deletes_nothing(index: Index) -> None:
    many(index)
    before = tree(index.store)
    limits = {*range(0, len(before), 7), *range(len(before) - 10, len(before))}
    for limit in sorted(limits):
        with pytest.raises(OmniError) as caught:
            prune(index_of(Cut(index.store, limit=limit)))
        assert caught.value.exit_code == 65, limit
        assert deletions(before, index) == [], limit


def test_a_listing_without_any_one_key_never_breaks_a_page(folder: Path) -> None:
    """What the state promises must be there; a commit's page that is not listed is known from the state."""
    base = index_of(open_store(str(folder / "base")))
    many(base)
    keys = sorted(tree(base.store))
    pages = [key for key in keys if layout.is_commit(key[:40]) and key.endswith((".html", ".json"))]
    promised = [key for key in keys if key not in pages]
    states = [key for key in promised if key.startswith("_")]
    before = tree(base.store)
    for hidden in {*states, *promised[::5]}:
        with pytest.raises(DataError, match="not complete"):
            prune(index_of(Hiding(base.store, hide=hidden.__eq__)))
        assert tree(base.store) == before, hidden
    prune(index_of(Hiding(base.store, hide=lambda key: key in pages)))
    assert broken(base.store) == []
    assert commits_there(base) == {3, 4, 7}


def test_an_empty_store_is_an_incomplete_listing(index: Index) -> None:
    with pytest.raises(DataError, match="not complete: it is empty"):
        plan(index)


@pytest.mark.parametrize(
    "now",
    [
        datetime(2036, 1, 1, tzinfo=UTC),
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime.now(UTC) - timedelta(days=1),
        datetime.now(UTC) + timedelta(days=400),
    ],
)
def test_a_clock_that_contradicts_the_store_is_refused(index: Index, now: datetime) -> None:
    many(index)
    before = tree(index.store)
    with pytest.raises(DataError, match="clock"):
        plan(index, now=now)
    assert tree(index.store) == before


@pytest.mark.parametrize("view", ["nightly", "v0.14.0"])
def test_pages_of_a_view_without_state_stop_it(index: Index, view: str) -> None:
    """They are an older tool's: nobody knows what they link to."""
    upload(index, 1)
    index.store.put(f"{view}/sample/index.html", b"<html></html>", layout.HTML, expected=None)
    with pytest.raises(DataError, match=f"{view}/ has pages, but no state"):
        plan(index)


@pytest.mark.parametrize("key", [layout.project_state("sample"), layout.view_state("nightly")])
def test_a_damaged_state_stops_it(index: Index, key: str) -> None:
    many(index)
    index.store.put(key, b"{}", layout.PLAIN_JSON, expected=None)
    with pytest.raises(DataError, match=key):
        plan(index)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b'{"format": 2, "files": {}}',
        b'{"format": 1, "files": {"sample": [{}]}}',
        b'{"format": 1, "files": {"sample": [%s]}}' % json.dumps(dict.fromkeys(REQUIRED, "x") | {"size": 1}).encode(),
        b"[" * 200_000 + b"]" * 200_000,
    ],
    ids=range(6),
)
def test_a_damaged_note_stops_it(index: Index, data: bytes) -> None:
    many(index)
    index.store.put(layout.pruning(commit(0)), data, layout.PLAIN_JSON, expected=None)
    with pytest.raises(DataError, match="note"):
        plan(index)


# The order of deletion, and resuming


def test_deletion_is_in_the_reverse_order_of_publishing(index: Index) -> None:
    many(index)
    planned = plan(index)
    assert isinstance(index.store, Counting)
    index.store.log.clear()
    pruning.execute_prune(index, planned)
    for number in removed(planned):
        sha = commit(number)
        own = [key for method, key in index.store.log if method in ("put", "delete") and sha in key]
        assert own[0] == own[-1] == layout.pruning(sha)
        ranks = [_rank(key, sha) for key in own[1:-1]]
        assert ranks == sorted(ranks)
        assert set(ranks) == {0, 1, 2, 3, 4}


def _rank(key: str, sha: str) -> int:
    if key == layout.view_state(sha):
        return 2
    if key.endswith(".metadata"):
        return 3
    if key.endswith(".whl"):
        return 4
    return 0 if key in (f"{sha}/{layout.BROWSE}", f"{sha}/index.html") or key.endswith(layout.BROWSE) else 1


def test_the_plan_names_what_the_run_changes(index: Index) -> None:
    many(index)
    planned = plan(index)
    shown = {key for _, key, _ in planned.actions()}
    report = pruning.execute_prune(index, planned)
    for key in report.deleted:
        assert key in shown or any(key.startswith(prefix) for prefix in shown if prefix.endswith("/")), key
    sizes = sum(record.size for removal in planned.removals for record in removal.records)
    assert report.freed == sizes > 0


def test_a_stopped_prune_is_completed_by_the_next_whatever_it_is_asked(index: Index) -> None:
    """Its orphans are known from the note, also when no state names them any more, and outside the share."""
    many(index)
    url = index.store.url
    finished = False
    limit = 20
    while not finished:
        died = run_killed(url, limit, lambda store: prune(index_of(store)))
        assert broken(index.store) == []
        prune(index, keep=50, share=0.0, young=999)
        assert list(index.store.list(layout.PRUNINGS)) == []
        assert broken(index.store) == []
        survey = {stored.key for stored in index.store.list() if stored.key.endswith((".whl", ".metadata"))}
        state = {key for name in index.project_names() for key in index.project(name).state.files}
        assert survey == state | {f"{key}.metadata" for key in state}, "no orphan is left"
        finished = not died
        limit += 17
    assert commits_there(index) == {3, 4, 7}


def test_an_unrecorded_wheel_beside_a_pruned_commit_is_never_deleted(index: Index) -> None:
    many(index)
    put_foreign(index.store, 9, ("sample", "0.9"))
    wheel = f"{commit(0)}/late-1.0-py3-none-any.whl"
    planned = plan(index)
    index.store.put(wheel, b"late", layout.DISTRIBUTION, expected=None)
    pruning.execute_prune(index, planned)
    assert index.store.head(wheel) is not None
    assert commits_there(index) == {0, 3, 4, 7, 9}
    assert broken(index.store) == []
    assert removed(plan(index)) == set()
    adopt(index, commit(9))
    assert removed(plan(index)) == {9}


def test_pages_that_a_stopped_move_left_are_redrawn_before_their_files_go(index: Index) -> None:
    nightly(index, 1)
    nightly(index, 2)
    old = {key: data for key, data in tree(index.store).items() if key.startswith("nightly/")}
    nightly(index, 3)
    nightly(index, 4)
    for key, data in old.items():
        index.store.put(key, data, layout.headers_for(key), expected=None)
    prune(index)
    assert commits_there(index) == {3, 4}
    assert broken(index.store) == []


def test_the_stores_page_is_redrawn(index: Index) -> None:
    many(index)
    prune(index)
    page = index.store.get(layout.BROWSE)
    assert page is not None
    assert commit(4) in page.data.decode()
    assert commit(0) not in page.data.decode()


def test_a_rollback_to_a_pruned_revision_is_refused(index: Index) -> None:
    for number in range(1, 5):
        nightly(index, number)
    prune(index, keep=2)
    before = tree(index.store)
    with pytest.raises(MissingInputError, match=f"no longer in the store: {commit(1)}/"):
        rollback(index, "nightly", 1)
    assert tree(index.store) == before
    rollback(index, "nightly", 3)
    with pytest.raises(MissingInputError, match=f"no longer in the store: {commit(2)}/"):
        rollback(index, "nightly")


def test_a_pruned_commit_can_be_uploaded_again(index: Index) -> None:
    many(index)
    prune(index)
    upload(index, 0)
    assert held(index, commit(0)) == [f"{commit(0)}/sample-0.0-py3-none-any.whl"]
    assert broken(index.store) == []


# Others at the same time

Act = Callable[[Index], object]
Places = Iterator[tuple[int, Index]]


@pytest.fixture(params=[7, pytest.param(1, marks=pytest.mark.sweep)], ids=["some", "every"])
def places(
    request: pytest.FixtureRequest, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[int, Index]]:
    """Yield (place, a fresh index) without end: commits 0 and 5 may go, 3 and 4 stay.

    Prunes remove one commit after the other here, so that a place is the same in every run.
    """
    monkeypatch.setattr(removal, "PARALLEL", 1)
    base = index_of(open_store(str(folder / "base")))
    upload(base, 0)
    for number in (3, 4):
        nightly(base, number)
    upload(base, 5, ("sample", "0.5"), ("sample", "0.5+cu130"), ("other", "1.5"))

    def fresh() -> Iterator[tuple[int, Index]]:
        for place in count(0, request.param):
            shutil.rmtree(folder / "store", ignore_errors=True)
            shutil.copytree(folder / "base", folder / "store")
            yield place, index_of(open_store(str(folder / "store")))

    return fresh()


def at_every_change(places: Places, act: Act, check: Callable[[Index, bool, int], None]) -> None:
    """Prune again and again; ``act`` runs in between, behind the first change, the second, ...

    ``check`` is told whether the act succeeded, and how many changes came before it.
    """
    for place, index in places:
        outcome = _Outcome(place, act, index)
        with_act = index_of(Meddling(index.store, after=outcome.hook))
        prune(with_act)
        assert broken(index.store) == [], place
        if not outcome.ran:
            assert place > 20
            return
        check(index, outcome.error is None, place)


@dataclass
class _Outcome:
    place: int
    act: Act
    index: Index
    ran: bool = False
    error: OmniError | None = None
    seen: list[str] = field(default_factory=list)

    def hook(self, _method: str, key: str) -> None:
        self.seen.append(key)
        if len(self.seen) <= self.place or self.ran:
            return
        self.ran = True
        try:
            self.act(self.index)
        except OmniError as error:
            self.error = error


@pytest.mark.parametrize("view", ["nightly", "v0.5"])
def test_a_move_to_a_commit_that_is_being_pruned(places: Places, view: str) -> None:
    """Either the move comes first, and the commit stays, or the move is refused."""

    def check(index: Index, moved: bool, place: int) -> None:
        assert (5 in commits_there(index)) is moved, place
        assert (commit(5) in {key.partition("/")[0] for key in held(index, view)}) is moved, place
        draw_view(index, view, sweep=True)
        assert broken(index.store) == [], place

    at_every_change(places, lambda index: move(index, view, 5), check)


def test_an_upload_of_more_to_a_commit_that_is_being_pruned(places: Places) -> None:
    """It is refused or its file stays; and it never says that a file is there which is not."""

    def act(index: Index) -> None:
        upload(index, 5, ("sample", "0.5"), ("more", "0.5"))

    def check(index: Index, done: bool, place: int) -> None:
        there = set(held(index, commit(5)))
        assert not done or there >= {f"{commit(5)}/{name}-0.5-py3-none-any.whl" for name in ("sample", "more")}, place
        upload(index, 5, ("sample", "0.5"), ("more", "0.5"))
        assert broken(index.store) == [], place

    at_every_change(places, act, check)


def test_an_upload_that_began_before_the_prune_and_ends_within_it(places: Places) -> None:
    """The prune runs to its end between two of the upload's changes, whichever."""
    for place, index in places:
        outcome = _Outcome(place, prune, index)
        try:
            upload(index_of(Meddling(index.store, after=outcome.hook)), 5, ("sample", "0.5"), ("more", "0.5"))
        except RemoteChangedError:
            assert outcome.ran
        assert broken(index.store) == [], place
        upload(index, 5, ("sample", "0.5"), ("more", "0.5"))
        assert broken(index.store) == [], place
        assert f"{commit(5)}/sample-0.5-py3-none-any.whl" in held(index, commit(5))
        if not outcome.ran:
            assert place > 10
            return


def test_a_yank_of_files_that_are_being_pruned(places: Places) -> None:
    def check(index: Index, done: bool, place: int) -> None:
        assert commits_there(index) <= {3, 4, 5}, place

    at_every_change(places, lambda index: yank(index, "0.5"), check)


def test_a_redraw_during_a_prune(places: Places) -> None:
    from tasks.wheels.redrawing import redraw_all

    def check(index: Index, done: bool, place: int) -> None:
        assert commits_there(index) == {3, 4}, place

    at_every_change(places, redraw_all, check)


def test_a_second_prune_takes_over_and_both_end_well(places: Places) -> None:
    def check(index: Index, done: bool, place: int) -> None:
        assert done, place
        assert commits_there(index) == {3, 4}, place
        assert list(index.store.list(layout.PRUNINGS)) == [], place

    at_every_change(places, prune, check)


def test_a_prune_that_was_overtaken_deletes_nothing_of_a_new_upload(places: Places) -> None:
    """The second prune completes the first one's work, and then the commit is uploaded anew."""

    def act(index: Index) -> None:
        prune(index)
        upload(index, 5)

    def check(index: Index, done: bool, place: int) -> None:
        assert done, place
        assert held(index, commit(5)) == [f"{commit(5)}/sample-0.5-py3-none-any.whl"], place

    at_every_change(places, act, check)


def test_prunes_uploads_and_moves_at_once(index: Index) -> None:
    many(index)
    url = index.store.url

    def run(act: Act) -> None:
        with contextlib.suppress(RemoteChangedError):
            act(index_of(open_store(url)))

    acts: list[Act] = [
        prune,
        lambda index: move(index, "nightly", 5),
        prune,
        lambda index: upload(index, 0, ("sample", "0.0+cu131")),
        lambda index: nightly(index, 6),
        lambda index: move(index, "v0.1", 1),
        prune,
    ]
    with ThreadPoolExecutor(len(acts)) as pool:
        list(pool.map(run, acts))
    assert broken(index.store) == []
    prune(index)
    assert broken(index.store) == []
    assert list(index.store.list(layout.PRUNINGS)) == []
