from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from tasks.support.errors import DataError, MissingInputError, OmniError, RemoteChangedError, UsageError
from tasks.support.source import Ancestry
from tasks.support.store import open_store
from tasks.wheels import layout, rolling_back, views, wanted
from tasks.wheels.checking import check_view
from tasks.wheels.drawing import draw_store
from tasks.wheels.index import Index
from tasks.wheels.redrawing import redraw_all
from tasks.wheels.state import TimeSource
from tasks.wheels.views import Outcome
from tests.factory_index import RULES, commit, held, index_of, move, nightly, rollback, time_of, upload
from tests.faults import Counting, Meddling, broken, tree


@pytest.fixture
def index(tmp_path: Path) -> Index:
    return index_of(Counting(open_store(str(tmp_path / "store"))))


def changes(index: Index) -> list[str]:
    """Return what was changed since the last call."""
    assert isinstance(index.store, Counting)
    found = index.store.changes
    index.store.log.clear()
    return found


def says(relation: Ancestry) -> views.AskAncestry:
    return lambda _older, _newer: relation


# Nightly's order


@pytest.mark.parametrize(
    ("first", "second", "relation", "outcome"),
    [
        (1, 2, Ancestry.UNKNOWN, Outcome.MOVE),
        (2, 1, Ancestry.UNKNOWN, Outcome.KEPT),
        (1, 2, Ancestry.DIVERGED, Outcome.MOVE),
        (2, 1, Ancestry.DIVERGED, Outcome.KEPT),
        (1, 2, Ancestry.ANCESTOR, Outcome.MOVE),
        # History wins over a time that a rebase or a wrong clock made.
        (2, 1, Ancestry.ANCESTOR, Outcome.MOVE),
        (1, 2, Ancestry.DESCENDANT, Outcome.KEPT),
        (2, 1, Ancestry.DESCENDANT, Outcome.KEPT),
    ],
)
def test_nightly_moves_forward_by_ancestry_else_by_time(
    index: Index, first: int, second: int, relation: Ancestry, outcome: Outcome
) -> None:
    nightly(index, first)
    upload(index, second)
    changes(index)
    assert move(index, "nightly", second, says(relation)).outcome is outcome
    newest = second if outcome is Outcome.MOVE else first
    assert held(index, "nightly") == [f"{commit(newest)}/sample-0.{newest}-py3-none-any.whl"]
    assert bool(changes(index)) is (outcome is Outcome.MOVE)
    assert broken(index.store) == []


@pytest.mark.parametrize("relation", [Ancestry.UNKNOWN, Ancestry.DIVERGED])
def test_commits_of_one_time_are_refused_unless_history_tells_them_apart(index: Index, relation: Ancestry) -> None:
    nightly(index, 1)
    upload(index, 2, time=time_of(1))
    changes(index)
    with pytest.raises(RemoteChangedError, match=f"{commit(1)}.*{commit(2)}") as caught:
        move(index, "nightly", 2, says(relation))
    assert caught.value.exit_code == 76
    assert changes(index) == []
    assert move(index, "nightly", 2, says(Ancestry.ANCESTOR)).outcome is Outcome.MOVE


def test_the_same_commit_again_is_success_without_a_write(index: Index) -> None:
    nightly(index, 1)
    changes(index)
    assert move(index, "nightly", 1).outcome is Outcome.SAME
    assert changes(index) == []


def test_the_same_commit_with_more_files_moves(index: Index) -> None:
    nightly(index, 1)
    upload(index, 1, ("sample", "0.1+cu130"))
    assert move(index, "nightly", 1).outcome is Outcome.MOVE
    assert len(held(index, "nightly")) == 2


@pytest.mark.parametrize("source", list(TimeSource))
def test_the_first_nightly_needs_no_order_and_says_where_its_time_is_from(index: Index, source: TimeSource) -> None:
    upload(index, 1, time=replace(time_of(1), source=source))
    assert move(index, "nightly", 1).reason == "first publish"
    current = index.view("nightly").state.current
    assert current is not None
    assert current.commit_time_from == source.value


def test_a_commit_without_wheels_is_missing(index: Index) -> None:
    with pytest.raises(MissingInputError, match=commit(7)):
        move(index, "nightly", 7)


@pytest.mark.parametrize(
    ("patterns", "specs", "missing"),
    [
        (("sample-*-py3-none-any.whl",), [("other", "1.0")], "sample-"),
        (("sample-*.whl", "other-*.whl"), [("sample", "1.0")], "other-"),
        (("sample-*+cu130-*.whl",), [("sample", "1.0")], "cu130"),
    ],
)
def test_a_nightly_needs_its_required_files_and_other_views_do_not(
    index: Index, patterns: tuple[str, ...], specs: list[tuple[str, str]], missing: str
) -> None:
    strict = Index(index.store, replace(RULES, required_nightly=patterns))
    upload(strict, 1, *specs)
    changes(index)
    with pytest.raises(MissingInputError, match="which a nightly needs") as caught:
        move(strict, "nightly", 1)
    assert missing in caught.value.message
    assert changes(index) == []
    assert move(strict, "v1.0", 1).outcome is Outcome.MOVE


def test_two_variants_without_a_default_make_no_moving_view(index: Index) -> None:
    upload(index, 1, ("sample", "0.1+cu130"), ("sample", "0.1+rocm"))
    for view in ("nightly", "v0.1"):
        with pytest.raises(DataError, match="no default variant of sample"):
            move(index, view, 1)
    assert broken(index.store) == []
    upload(index, 2, ("sample", "0.2+cu130"))
    assert move(index, "nightly", 2).outcome is Outcome.MOVE


# Releases


@pytest.mark.parametrize(
    ("view", "versions", "names"),
    [
        ("v0.18.0", ["0.18.0", "0.18.0rc1", "10.18.0", "0.18.0.post1", "0.18.1", "0.18.0.dev3"], ["0.18.0"]),
        ("v0.18.0rc1", ["0.18.0", "0.18.0rc1", "0.18.0rc10"], ["0.18.0rc1"]),
        ("v0.18.0", ["0.18.0", "0.18.0+cu130", "0.18.0rc1+cu130"], ["0.18.0", "0.18.0+cu130"]),
        ("v0.18", ["0.18.0", "0.18.1"], ["0.18.0"]),
        ("v1!2.0", ["2.0", "1!2.0"], ["1!2.0"]),
        ("v2.0", ["2.0", "1!2.0"], ["2.0"]),
    ],
)
def test_a_release_holds_exactly_the_files_of_its_version(
    index: Index, view: str, versions: list[str], names: list[str]
) -> None:
    upload(index, 1, *(("sample", version) for version in versions))
    move(index, view, 1)
    assert held(index, view) == sorted(f"{commit(1)}/sample-{version}-py3-none-any.whl" for version in names)
    assert broken(index.store) == []


def test_a_release_without_a_file_of_its_version_is_missing_and_names_those_there(index: Index) -> None:
    upload(index, 1, ("sample", "0.18.0rc1"), ("other", "10.18.0"))
    changes(index)
    with pytest.raises(MissingInputError, match=r"0\.18\.0.*0\.18\.0rc1.*10\.18\.0"):
        move(index, "v0.18.0", 1)
    assert changes(index) == []


def test_a_release_gathers_files_of_several_commits_and_refuses_other_bytes(index: Index) -> None:
    upload(index, 1, ("sample", "1.0"))
    upload(index, 2, ("sample", "1.0+cu130"), ("other", "1.0"))
    move(index, "v1.0", 1)
    assert move(index, "v1.0", 2).outcome is Outcome.MOVE
    assert [key[:1] for key in held(index, "v1.0")] == ["1", "2", "2"]
    upload(index, 3, ("sample", "1.0"))
    assert move(index, "v1.0", 3).outcome is Outcome.SAME
    with_other_bytes(index, 4)
    changes(index)
    with pytest.raises(DataError, match=f"sample-1.0-py3-none-any.whl from commit {commit(1)} with other bytes"):
        move(index, "v1.0", 4)
    assert changes(index) == []
    assert broken(index.store) == []


def with_other_bytes(index: Index, number: int) -> None:
    """Upload sample 1.0 with other contents than usual."""
    import tempfile

    from tasks.wheels.distribution import read_facts
    from tasks.wheels.upload import execute_upload, plan_upload
    from tests.wheel_factory import make_wheel

    with tempfile.TemporaryDirectory() as folder:
        path = make_wheel(Path(folder), version="1.0", files={"sample/more.py": b""})
        facts = [read_facts(path, index.rules.variants)]
        execute_upload(index, plan_upload(index, commit(number), time_of(number), facts))


def test_a_view_may_be_moved_though_its_commits_pages_were_never_drawn(index: Index) -> None:
    """An upload that was stopped before drawing is followed by a move: its pages link to the commit's."""
    upload(index, 1)
    for stored in list(index.store.list()):
        if stored.key.endswith((".html", ".json")) and not stored.key.startswith("_"):
            index.store.delete(stored.key)
    move(index, "nightly", 1)
    assert broken(index.store) == []


@pytest.mark.parametrize(
    ("word", "view"),
    [("nightly", "nightly"), ("v0.28.0", "v0.28.0"), ("v0.28.0+cu130", "v0.28.0"), ("v1.0-rc1", "v1.0rc1")],
)
def test_view_names(word: str, view: str) -> None:
    assert layout.check_view(word) == view


@pytest.mark.parametrize("word", ["Nightly", "latest", "0.28.0", "v", "vnext", "v1..0", "a" * 39, "A" * 40, "../x", ""])
def test_other_view_names_are_refused(word: str) -> None:
    with pytest.raises(UsageError):
        layout.check_view(word)


@pytest.mark.parametrize(
    ("version", "on_schedule", "moved"),
    [
        ("0.28.0", False, ["v0.28.0"]),
        ("0.28.0+cu130", False, ["v0.28.0"]),
        ("0.28.0rc1", True, ["nightly", "v0.28.0rc1"]),
        ("0.28.1.dev3+g1234567", True, ["nightly"]),
        ("0.28.1.dev3+g1234567.cu130", False, []),
    ],
)
def test_auto_means_what_ci_wants(index: Index, version: str, on_schedule: bool, moved: list[str]) -> None:
    upload(index, 1, ("sample", version), ("other", "7.0"))
    assert wanted.views_wanted(index, "auto", commit(1), nightly=on_schedule) == [commit(1), *moved]


# Rollback


def test_rollback_goes_back_step_by_step_and_ends_with_a_clear_refusal(index: Index) -> None:
    for number in (1, 2, 3):
        nightly(index, number)
    for number in (2, 1):
        rollback(index, "nightly")
        assert held(index, "nightly")[0].startswith(commit(number))
        assert broken(index.store) == []
    with pytest.raises(MissingInputError, match=r"^nightly \(revision 5\) already shows revision 1, the oldest$"):
        rollback(index, "nightly")
    assert held(index, "nightly")[0].startswith(commit(1))


def test_rollback_to_a_revision_and_forward_again(index: Index) -> None:
    pages = {}
    for number in (1, 2, 3):
        nightly(index, number, ("sample", f"0.{number}"), *([("other", "1.0")] if number == 2 else []))
        pages[number] = {key: data for key, data in tree(index.store).items() if key.startswith("nightly/")}
    for number in (1, 3, 2):
        rollback(index, "nightly", number)
        now = {key: data for key, data in tree(index.store).items() if key.startswith("nightly/")}
        machine = {key for key in now if not key.endswith(layout.BROWSE)}
        assert machine == {key for key in pages[number] if not key.endswith(layout.BROWSE)}
        assert all(now[key] == pages[number][key] for key in machine)
        assert broken(index.store) == []
    with pytest.raises(MissingInputError, match="no revision 99"):
        rollback(index, "nightly", 99)


def test_after_a_rollback_the_next_newer_nightly_moves_and_the_bad_one_does_not(index: Index) -> None:
    nightly(index, 1)
    nightly(index, 2)
    rollback(index, "nightly")
    kept = move(index, "nightly", 2)
    assert kept.outcome is Outcome.KEPT
    assert "wheels.rollback --to 2 brings it back" in kept.reason
    rollback(index, "nightly", 2)
    assert held(index, "nightly")[0].startswith(commit(2))
    rollback(index, "nightly")
    assert held(index, "nightly")[0].startswith(commit(1))
    nightly(index, 3)
    assert held(index, "nightly")[0].startswith(commit(3))
    rollback(index, "nightly")
    assert held(index, "nightly")[0].startswith(commit(1)), "what was rolled back is not a target again"


def test_rollback_again_to_the_same_revision_writes_nothing(index: Index) -> None:
    nightly(index, 1)
    nightly(index, 2)
    rollback(index, "nightly", 1)
    changes(index)
    assert rollback(index, "nightly", 1).outcome is Outcome.SAME
    assert changes(index) == []


def test_a_rollback_planned_before_a_move_is_refused(index: Index) -> None:
    nightly(index, 1)
    nightly(index, 2)
    plan = rolling_back.plan_rollback(index, "nightly", None)
    nightly(index, 3)
    with pytest.raises(RemoteChangedError, match="moved since the plan"):
        rolling_back.execute_rollback(index, plan)
    assert held(index, "nightly")[0].startswith(commit(3))


def test_a_view_that_was_never_published_has_nothing_to_go_back_to(index: Index) -> None:
    with pytest.raises(MissingInputError, match="never published"):
        rollback(index, "nightly")


# Races


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_moves_in_any_order_at_once_end_at_the_newest(index: Index, seed: int) -> None:
    numbers = list(range(1, 9))
    for number in numbers:
        upload(index, number, ("sample", f"0.{number}"), *([("other", f"1.{number}")] if number % 2 else []))
    Random(seed).shuffle(numbers)
    together = threading.Barrier(len(numbers))

    def run(number: int) -> Outcome:
        own = index_of(open_store(index.store.url))
        plan = views.plan_move(own, "nightly", commit(number))
        together.wait()
        return views.execute_move(own, plan).outcome

    with ThreadPoolExecutor(len(numbers)) as pool:
        outcomes = list(pool.map(run, numbers))
    assert outcomes[numbers.index(8)] is Outcome.MOVE
    assert held(index, "nightly") == [f"{commit(8)}/sample-0.8-py3-none-any.whl"]
    assert broken(index.store) == []
    moved = [revision.commit_time for revision in index.view("nightly").state.revisions]
    assert moved == sorted(moved)
    quiet = tree(index.store)
    move(index, "nightly", 8)
    assert tree(index.store) == quiet, "the pages were those of the newest state"


def test_a_move_that_is_overtaken_while_it_draws_does_not_leave_older_pages(index: Index) -> None:
    """The other one finds its own pages still there, and so writes nothing that the first could lose a race to."""
    nightly(index, 1)
    upload(index, 2)
    done: list[str] = []

    def overtake(_method: str, key: str) -> None:
        if key == "nightly/sample/index.html" and not done:
            done.append(key)
            rollback(index, "nightly", 1)

    move(index_of(Meddling(index.store, before=overtake)), "nightly", 2)
    assert done
    assert held(index, "nightly")[0].startswith(commit(1))
    page = index.store.get("nightly/sample/index.html")
    assert page is not None
    assert commit(1) in page.data.decode()


def test_pages_of_a_project_that_left_the_view_while_they_were_drawn_are_taken_back(index: Index) -> None:
    nightly(index, 1)
    upload(index, 2, ("sample", "0.2"), ("other", "1.2"))
    done: list[str] = []

    def overtake(_method: str, key: str) -> None:
        if key == "nightly/other/index.html" and not done:
            done.append(key)
            rollback(index, "nightly", 1)

    move(index_of(Meddling(index.store, before=overtake)), "nightly", 2)
    assert done
    assert [key for key in tree(index.store) if key.startswith("nightly") and "other" in key] == []
    assert broken(index.store) == []


Act = Callable[[Index], object]


@pytest.mark.slow
@pytest.mark.parametrize(
    "act",
    [
        lambda index: move(index, "nightly", 3),
        lambda index: move(index, "v0.1", 1),
        lambda index: upload(index, 1, ("sample", "0.1+cu130")),
        lambda index: rollback(index, "nightly", 1),
    ],
    ids=["nightly", "release", "upload", "rollback"],
)
def test_what_a_prune_is_removing_is_left_alone(index: Index, act: Act) -> None:
    nightly(index, 1)
    nightly(index, 2)
    upload(index, 3)
    for number in (1, 3):
        index.store.put(layout.pruning(commit(number)), b"{}", layout.PLAIN_JSON, expected=None)
    changes(index)
    with pytest.raises(OmniError, match=r"is being removed by wheels\.prune"):
        act(index)
    assert changes(index) == []


@pytest.mark.slow
@pytest.mark.parametrize(("view", "number"), [("nightly", 2), ("v0.2", 2)])
@pytest.mark.parametrize("draw", [redraw_all, draw_store, lambda _index: None], ids=["all", "store", "nothing"])
def test_a_move_that_crosses_a_prune_is_taken_back(index: Index, view: str, number: int, draw: Act) -> None:
    """Nothing of it is left, also where somebody drew pages from what the view held for a moment."""
    nightly(index, 1)
    upload(index, number)
    before = tree(index.store)

    def begin_prune(_method: str, key: str) -> None:
        if key == layout.view_state(view) and index.store.head(layout.pruning(commit(number))) is None:
            index.store.put(layout.pruning(commit(number)), b"{}", layout.PLAIN_JSON, expected=None)
            draw(index)
            assert broken(index.store) == []

    with pytest.raises(RemoteChangedError, match="is being removed"):
        move(index_of(Meddling(index.store, after=begin_prune)), view, number)
    index.store.delete(layout.pruning(commit(number)))
    draw_store(index)
    assert {key: data for key, data in tree(index.store).items() if not key.startswith(layout.VIEW_STATES)} == {
        key: data for key, data in before.items() if not key.startswith(layout.VIEW_STATES)
    }
    assert broken(index.store) == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [pytest.param(n, marks=[pytest.mark.sweep] if n % 7 else []) for n in range(60)])
def test_the_stores_page_never_links_to_what_is_still_to_be_drawn(index: Index, number: int) -> None:
    """Somebody else draws it between any two changes of a nightly, a release and an upload."""
    nightly(index, 1)
    seen: list[str] = []

    def draw(_method: str, key: str) -> None:
        seen.append(key)
        if len(seen) == number:
            draw_store(index)
            assert broken(index.store) == [], key

    with_hook = index_of(Meddling(index.store, after=draw))
    nightly(with_hook, 2)
    move(with_hook, "v0.2", 2)
    upload(with_hook, 3)
    assert broken(index.store) == []
    page = index.store.get(layout.BROWSE)
    assert page is not None
    assert all(f'href="{name}/browse.html"' in page.data.decode() for name in ("nightly", "v0.2", commit(2), commit(3)))


# Spellings of one release


@pytest.mark.slow
@pytest.mark.parametrize("version", ["0.8", "0.8.0", "0.8.0.0"])
def test_a_release_has_one_view_however_it_is_asked_for(index: Index, version: str) -> None:
    upload(index, 1, ("sample", version), ("sample", f"{version}+cu130"), ("other", "0.8.0.0.0"))
    spellings = ["v0.8.0", "v0.8", "v0.8.0.0", wanted.AUTO]
    for request in spellings:
        for name in wanted.views_wanted(index, request, commit(1), nightly=False):
            move(index, name, 1)
    assert [name for name in index.view_names() if not layout.is_commit(name)] == [f"v{version}"]
    upload(index, 2, ("sample", "0.8.0+cu132"), ("another", "0.8"))
    for request in spellings:
        for name in wanted.views_wanted(index, request, commit(2), nightly=False):
            move(index, name, 2)
    assert [name for name in index.view_names() if not layout.is_commit(name)] == [f"v{version}"]
    assert len(held(index, f"v{version}")) == 5
    for request in ("v0.8.0", "v0.8", "v0.8.0.0"):
        assert check_view(index, request).view == f"v{version}"
        assert rolling_back.plan_rollback(index, request, 1).state.view == f"v{version}"
    assert broken(index.store) == []
