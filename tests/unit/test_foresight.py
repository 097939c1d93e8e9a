"""What dry runs of moves and rollbacks show is what the real runs then do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasks.support.errors import RemoteChangedError
from tasks.support.store import open_store
from tasks.wheels import layout, rolling_back, views
from tasks.wheels.drawing import Drawn
from tasks.wheels.index import Index
from tasks.wheels.views import Outcome, execute_move, plan_move
from tasks.wheels.wanted import left_alone, refusal
from tests.factory_index import commit, index_of, move, nightly, rollback, upload
from tests.faults import tree

pytestmark = pytest.mark.slow  # together these take longer than the fast set may


@pytest.fixture
def index(tmp_path: Path) -> Index:
    return index_of(open_store(str(tmp_path / "store")))


def foreseen(index: Index, view: str, number: int) -> views.Move:
    before = tree(index.store)
    plan = views.foresee(index, plan_move(index, view, commit(number)))
    assert tree(index.store) == before
    return plan


def pages(index: Index, view: str, drawn: Drawn) -> tuple[set[str], list[str]]:
    """Return the pages of a view that were written and deleted."""
    return {key for key in drawn.written if key.startswith(f"{view}/")}, list(drawn.deleted)


NEW = (("sample", "0.2"), ("sample", "0.2+rocm"))
OLD = (("sample", "0.1"), ("sample", "0.1+cu130"), ("other-thing", "1.0"))


@pytest.mark.parametrize("foreign", [False, True])
@pytest.mark.parametrize("view", ["nightly", "v0.2", commit(2)])
@pytest.mark.parametrize("first", [False, True])
def test_a_move_draws_and_deletes_what_its_plan_shows(index: Index, view: str, first: bool, foreign: bool) -> None:
    if not first:
        nightly(index, 1, *OLD)
    upload(index, 2, *NEW)
    if foreign:
        index.store.put(f"{view}/gone/index.html", b"foreign", layout.HTML, expected=None)
    plan = foreseen(index, view, 2)
    moved = execute_move(index, plan)
    assert plan.pages is not None
    assert pages(index, view, plan.pages) == pages(index, view, moved.drawn)
    assert layout.BROWSE not in moved.drawn.written or layout.BROWSE in [row[1] for row in plan.actions()]
    assert (f"{view}/gone/index.html" in plan.pages.deleted) is foreign
    assert [row[1] for row in plan.actions() if row[0] == "delete page"] == list(moved.drawn.deleted)
    again = foreseen(index, view, 2)
    assert (again.outcome, again.actions()) == (Outcome.SAME, [])
    assert execute_move(index, again).drawn == Drawn()


def test_a_nightly_that_loses_a_project_or_a_variant_says_so(index: Index) -> None:
    nightly(index, 1, *OLD)
    upload(index, 2, *NEW)
    assert plan_move(index, "nightly", commit(2)).losses == (
        f"nightly loses other-thing: commit {commit(2)[:12]} has no file of it",
        f"nightly loses cu130 of sample: commit {commit(2)[:12]} has none",
    )
    upload(index, 3, *OLD, *NEW)
    assert plan_move(index, "nightly", commit(3)).losses == ()
    move(index, "nightly", 3)
    assert plan_move(index, "nightly", commit(2)).losses == (), "a view that stays loses nothing"
    upload(index, 4, ("sample", "0.1+rocm"))
    assert plan_move(index, "v0.1", commit(4)).losses == (), "a release only grows"


@pytest.mark.parametrize("to", [None, 1, 2, 3])
def test_a_rollback_does_what_its_plan_shows(index: Index, to: int | None) -> None:
    nightly(index, 1, *OLD)
    nightly(index, 2, *NEW)
    nightly(index, 3)
    before = tree(index.store)
    plan = rolling_back.foresee(index, rolling_back.plan_rollback(index, "nightly", to))
    assert tree(index.store) == before
    moved = rolling_back.execute_rollback(index, plan)
    assert plan.pages is not None
    assert pages(index, "nightly", plan.pages) == pages(index, "nightly", moved.drawn)
    assert layout.BROWSE not in moved.drawn.written or layout.BROWSE in [row[1] for row in plan.actions()]
    assert (plan.actions() == []) is (to == 3)
    assert moved.outcome is (Outcome.SAME if to == 3 else Outcome.MOVE)
    assert moved.revision == index.view("nightly").state.current


def test_a_rollback_to_the_same_content_is_nothing_to_do(index: Index) -> None:
    nightly(index, 1)
    nightly(index, 2)
    rollback(index, "nightly")
    plan = rolling_back.foresee(index, rolling_back.plan_rollback(index, "nightly", 1))
    assert plan.actions() == []
    index.store.delete("nightly/index.html")
    plan = rolling_back.foresee(index, rolling_back.plan_rollback(index, "nightly", 1))
    assert plan.actions() == [("draw pages", "nightly/", "1 page to write")]


def test_without_an_older_revision_the_history_and_the_way_forward_are_shown(index: Index) -> None:
    nightly(index, 1)
    with pytest.raises(rolling_back.NoRevisionError, match=r"^nightly shows revision 1, the oldest$") as alone:
        rollback(index, "nightly")
    assert alone.value.exit_code == 66
    nightly(index, 2)
    rollback(index, "nightly")
    with pytest.raises(rolling_back.NoRevisionError) as caught:
        rollback(index, "nightly")
    assert caught.value.message == "nightly (revision 3) already shows revision 1, the oldest"
    assert caught.value.hint is not None
    assert caught.value.hint.endswith("invoke wheels.rollback nightly --to 2")
    assert caught.value.state == index.view("nightly").state
    with pytest.raises(rolling_back.NoRevisionError, match="no revision 9") as unknown:
        rollback(index, "nightly", 9)
    assert unknown.value.state == index.view("nightly").state


@pytest.mark.parametrize("executed", [False, True])
@pytest.mark.parametrize("taken_back", [False, True])
def test_a_refused_move_gives_the_command_that_goes_there(index: Index, executed: bool, taken_back: bool) -> None:
    nightly(index, 1)
    nightly(index, 2)
    asked, command = (2, "--to 2") if taken_back else (1, "--to 1")
    if taken_back:
        rollback(index, "nightly")
    plan = plan_move(index, "nightly", commit(asked))
    error = refusal(index, commit(asked), [execute_move(index, plan) if executed else plan])
    assert isinstance(error, RemoteChangedError)
    assert error.hint == f"invoke wheels.rollback nightly {command}"
    rollback(index, "nightly", int(command.split()[1]))
    current = index.view("nightly").state.current
    assert current is not None
    assert current.commit == commit(asked), "the command does what was wanted"


def test_a_refused_move_to_a_commit_that_was_never_there_promises_no_command(index: Index) -> None:
    upload(index, 1)
    nightly(index, 2)
    error = refusal(index, commit(1), [plan_move(index, "nightly", commit(1))])
    assert error is not None
    assert "rollback" not in (error.hint or "")
    assert refusal(index, commit(2), [plan_move(index, "nightly", commit(2))]) is None


def test_auto_names_what_it_leaves_alone(index: Index) -> None:
    upload(index, 1, ("sample", "0.3.dev1"), ("sample", "0.3.dev1+rocm"), ("other-thing", "7.0.dev1"))
    upload(index, 2, ("sample", "0.3"))
    development = ("v0.3.dev1", "not moved: a development version")
    assert list(left_alone(index, commit(1), nightly=True)) == [development]
    assert list(left_alone(index, commit(1), nightly=False)) == [
        ("nightly", "not moved: NIGHTLY is not 1"),
        development,
    ]
    assert list(left_alone(index, commit(2), nightly=True)) == []


def test_a_release_says_whose_files_it_keeps(index: Index) -> None:
    upload(index, 1, ("sample", "0.2"))
    upload(index, 2, ("sample", "0.2"))
    upload(index, 3, ("sample", "0.2"), ("sample", "0.2+rocm"))
    assert plan_move(index, "v0.2", commit(1)).reason == "first publish"
    move(index, "v0.2", 2)
    assert plan_move(index, "v0.2", commit(2)).reason == "same files"
    for plan in (plan_move(index, "v0.2", commit(1)), plan_move(index, "v0.2", commit(3))):
        assert plan.reason.endswith(f"the same bytes are there: those of commit {commit(2)} stay")
    assert plan_move(index, "v0.2", commit(1)).outcome is Outcome.SAME
    assert plan_move(index, "v0.2", commit(3)).outcome is Outcome.MOVE
    assert move(index, "v0.2", 1).reason == plan_move(index, "v0.2", commit(1)).reason
