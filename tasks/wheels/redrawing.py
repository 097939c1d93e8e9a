"""Drawing every page anew from the state; pages that are right are not written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from tasks.support import console
from tasks.support.errors import DataError, MissingInputError
from tasks.wheels import layout
from tasks.wheels.drawing import (
    PAGE_NAMES,
    Drawn,
    draw_store,
    draw_view,
    in_deletion_order,
    page_rows,
    pending,
    pending_store,
)
from tasks.wheels.index import Index

PARALLEL = 4


@dataclass(frozen=True)
class RedrawPlan:
    """What a redraw would do, and the error in which it would end, if any."""

    rows: tuple[tuple[str, str, str], ...]
    error: DataError | None

    def actions(self) -> list[tuple[str, str, str]]:
        """Return (action, key, reason) in the order of execution."""
        return list(self.rows)


def plan_redraw(index: Index) -> RedrawPlan:
    """Compare the pages of every view, and the store's own, with what the state says; reads only."""
    views = index.view_names()
    with ThreadPoolExecutor(PARALLEL) as pool:
        results = list(pool.map(partial(_try, _pending, index), views))
    rows = [
        row
        for view, result in zip(views, results, strict=True)
        if isinstance(result, Drawn)
        for row in page_rows(view, result)
    ]
    if pending_store(index, anew=True).written:
        rows.append(("draw page", layout.BROWSE, "it differs"))
    return RedrawPlan(tuple(rows), _failure(views, results))


def _pending(index: Index, view: str) -> Drawn:
    read = index.view(view).state
    if read.current is not None:
        return pending(index, view, read.current)
    there = (stored.key for stored in index.store.list(f"{view}/") if stored.key.endswith(PAGE_NAMES))
    return Drawn(deleted=tuple(in_deletion_order(there)))


def redraw_all(index: Index) -> Drawn:
    """Bring the pages of every view and the store's own page up to date, and delete left-over ones.

    A view that cannot be drawn does not keep the others from it; DataError names the first such view at the end.
    """
    views = index.view_names()
    with ThreadPoolExecutor(PARALLEL) as pool:
        results = list(pool.map(partial(_try, partial(draw_view, sweep=True), index), views))
    drawn = sum((result for result in results if isinstance(result, Drawn)), Drawn()) + draw_store(index, anew=True)
    error = _failure(views, results)
    if error is not None:
        raise error
    return drawn


_Result = Drawn | DataError | MissingInputError


def _try(work: Callable[[Index, str], Drawn], index: Index, view: str) -> _Result:
    try:
        return work(index, view)
    except (DataError, MissingInputError) as error:
        return error


def _failure(views: Sequence[str], results: Sequence[_Result]) -> DataError | None:
    failed = [(view, result) for view, result in zip(views, results, strict=True) if not isinstance(result, Drawn)]
    if not failed:
        return None
    view, error = failed[0]
    return DataError(
        f"{len(failed)} of {console.plural(len(views), 'view')} could not be drawn, "
        f"the first is {view}: {error.message}",
        hint=f"the others are up to date; {error.hint or 'look at its state'}",
    )
