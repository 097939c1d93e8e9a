"""Going back to an older revision of a view."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tasks.support.errors import MissingInputError, RemoteChangedError
from tasks.wheels import layout
from tasks.wheels.drawing import STORE_ROW, Drawn, draw_store, draw_view, is_drawn, page_rows, pending, pending_store
from tasks.wheels.index import Index, now
from tasks.wheels.state import Revision, ViewState
from tasks.wheels.views import Moved, Outcome, confirm, records_of_keys


@dataclass(frozen=True)
class RollbackPlan:
    """A planned return of a view to an older revision."""

    state: ViewState
    target: Revision
    pages: Drawn | None = None
    """What would be drawn, once it was looked at."""

    @property
    def same(self) -> bool:
        """Say whether the view holds the target's files already."""
        return self.state.current is not None and self.state.current.files == self.target.files

    @property
    def number(self) -> int:
        """Return the number of the revision that the view goes back to."""
        return self.target.restores or self.target.number

    def actions(self) -> list[tuple[str, str, str]]:
        """Return (action, key, reason) in the order of execution."""
        view = self.state.view
        rows = [] if self.same else [("change state", layout.view_state(view), f"back to revision {self.number}")]
        if self.pages is None:
            return [*rows, ("draw pages", f"{view}/", "when they differ")]
        return [*rows, *page_rows(view, self.pages), *([] if self.same else [STORE_ROW])]


class NoRevisionError(MissingInputError):
    """The view has no revision to go back to; ``state`` has those that there are."""

    def __init__(self, state: ViewState, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.state = state


def foresee(index: Index, plan: RollbackPlan) -> RollbackPlan:
    """Look at what the rollback would draw and delete, as a dry run shows it; reads only."""
    present = plan.state.current if plan.same else None
    pages = pending(index, plan.state.view, present or plan.target)
    return replace(plan, pages=pages + pending_store(index) if plan.same else pages)


def plan_rollback(index: Index, view: str, to: int | None) -> RollbackPlan:
    """Choose the revision to go back to: the given one, else the one before the present.

    A rollback that was stopped before all its pages were drawn is completed, not followed by another. Raises
    MissingInputError when there is none, or when one of its files was pruned.
    """
    view = index.known_view(view)
    state = index.view(view).state
    current = state.current
    if current is None:
        raise MissingInputError(f"view {view} was never published in {index.store.url}")
    if to is None:
        stopped = current.restores is not None and not is_drawn(index, view)
        target = current if stopped else revision_before(state)
    else:
        found = [r for r in state.revisions if r.number == to]
        if not found:
            known = ", ".join(str(r.number) for r in state.revisions)
            raise NoRevisionError(state, f"view {view} has no revision {to}", hint=f"it has {known}")
        target = found[0]
    for project, keys in (target.files or {}).items():
        records_of_keys(index, project, keys)
    return RollbackPlan(state, target)


def revision_before(state: ViewState) -> Revision:
    """Return what the view held before; what was rolled back from, and the same files again, do not count."""
    current = target = state.revisions[-1]
    while target.files == current.files:
        place = target.restores or target.number
        older = [revision for revision in state.revisions if revision.number < place]
        if not older:
            there = f"{state.view} shows revision {place}"
            if place != current.number:
                there = f"{state.view} (revision {current.number}) already shows revision {place}"
            raise NoRevisionError(state, f"{there}, the oldest", hint=_other(state, current))
        target = older[-1]
    return target


def _other(state: ViewState, current: Revision) -> str:
    """Return what may be meant: going forward again, to the newest revision that holds something else."""
    others = [revision for revision in state.revisions if revision.files != current.files]
    if not others:
        return "there is nothing else to go back to; what it should show must be published"
    newest = others[-1].restores or others[-1].number
    return f"to go to another one: invoke wheels.rollback {state.view} --to {newest}"


def execute_rollback(index: Index, plan: RollbackPlan) -> Moved:
    """Make the target the view's newest revision again; RemoteChangedError when the view moved since the plan."""
    planned, target = plan.state, plan.target

    def change(state: ViewState) -> ViewState:
        current = state.current
        if current is None or planned.current is None or current.number != planned.current.number:
            raise RemoteChangedError(f"view {state.view} moved since the plan", hint="look at it, then run this again")
        restored = Revision(
            number=current.number + 1,
            commit=target.commit,
            commit_time=target.commit_time,
            commit_time_from=target.commit_time_from,
            moved=now(),
            note=f"rollback to {plan.number}",
            counts=target.counts,
            files=target.files,
            restores=plan.number,
        )
        index.refuse_pruned(restored.commits)
        return state.moved_to(restored)

    state = planned
    if not plan.same:
        state = index.change_view(planned.view, change)
        confirm(index, state)
    outcome = Outcome.SAME if state is planned else Outcome.MOVE
    drawn = draw_view(index, planned.view, sweep=True) + draw_store(index)
    return Moved(planned.view, outcome, f"revision {plan.number}", drawn, state.current)
