"""Drawing every page anew from the state; pages that are right are not written."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial

from tasks.support.errors import DataError, MissingInputError
from tasks.wheels import layout
from tasks.wheels.drawing import Drawn, draw_store, draw_view
from tasks.wheels.index import Index

PARALLEL = 4


def plan_redraw(index: Index) -> list[tuple[str, str, str]]:
    """Return (action, key, reason) for every view; which pages differ is known only when they are drawn."""
    rows = [("draw pages", f"{view}/", "when they differ") for view in index.view_names()]
    return [*rows, ("draw pages", layout.BROWSE, "when it differs")]


def redraw_all(index: Index) -> Drawn:
    """Bring the pages of every view and the store's own page up to date, and delete left-over ones.

    A view that cannot be drawn does not keep the others from it; DataError names the first such view at the end.
    """
    views = index.view_names()
    with ThreadPoolExecutor(PARALLEL) as pool:
        results = list(pool.map(partial(_draw, index), views))
    drawn = sum((result for result in results if isinstance(result, Drawn)), Drawn()) + draw_store(index, anew=True)
    failed = [(view, result) for view, result in zip(views, results, strict=True) if not isinstance(result, Drawn)]
    if failed:
        view, error = failed[0]
        raise DataError(
            f"{len(failed)} of {len(views)} views could not be drawn, the first is {view}: {error.message}",
            hint=f"the others are up to date; {error.hint or 'look at its state'}",
        )
    return drawn


def _draw(index: Index, view: str) -> Drawn | DataError | MissingInputError:
    try:
        return draw_view(index, view, sweep=True)
    except (DataError, MissingInputError) as error:
        return error
