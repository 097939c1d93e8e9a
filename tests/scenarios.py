"""What may be killed or repeated anywhere: each scenario prepares a store and names the one action that is tried."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from tasks.support.store import ObjectStore
from tasks.wheels import adopting, layout, pruning, redrawing, yanking
from tasks.wheels.index import Index
from tasks.wheels.state import ProjectState
from tests.factory_index import commit, move, nightly, rollback, upload, wheels

BIG = (("sample", "0.1"), ("sample", "0.1+cu130"), ("other", "2.0"))


@dataclass(frozen=True)
class Scenario:
    """``prepare`` and ``act`` get a fresh Index each; ``act`` must be complete when it is run again."""

    name: str
    prepare: Callable[[Index], object]
    act: Callable[[Index], object]


def put_foreign(store: ObjectStore, number: int, *specs: tuple[str, str]) -> None:
    """Put wheels into a commit's folder as an older tool would: without state, with a page of its own."""
    with wheels(*specs) as paths:
        for path in paths:
            store.put_file(layout.distribution(commit(number), path.name), path, layout.DISTRIBUTION, expected=None)
    page = b'<html><body><a href="sample/">sample</a></body></html>'
    store.put(f"{commit(number)}/sample/index.html", b"<html><body></body></html>", layout.HTML, expected=None)
    store.put(f"{commit(number)}/index.html", page, layout.HTML, expected=None)
    store.put(f"{commit(number)}/rocm/index.html", b"<html><body></body></html>", layout.HTML, expected=None)


def prune(index: Index, *, keep: int = 1, share: float = 1.0, days: int = 30, young: int = 7) -> pruning.PruneReport:
    """Prune as if it were ``days`` later."""
    now = datetime.now(UTC) + timedelta(days=days)
    plan = pruning.plan_prune(index, keep=keep, younger_than=timedelta(days=young), max_share=share, now=now)
    return pruning.execute_prune(index, plan)


def yank(
    index: Index,
    version: str,
    reason: str | None = "broken",
    *,
    project: str = "sample",
    commit: str | None = None,
    files: tuple[str, ...] = (),
) -> object:
    """Yank, or take it back when the reason is None."""
    asked = yanking.request(project, version, commit=commit, files=files, reason=reason, undo=reason is None)
    return yanking.execute_yank(index, yanking.plan_yank(index, asked))


def adopt(index: Index, *commits: str) -> adopting.AdoptReport:
    return adopting.execute_adopt(index, adopting.plan_adopt(index, commits))


def _nothing(_index: Index) -> None:
    return


def _two_nightlies(index: Index) -> None:
    nightly(index, 1, *BIG)
    nightly(index, 2, ("sample", "0.2"))


def _many(index: Index) -> None:
    upload(index, 1, *BIG)
    for number in (2, 3, 4):
        nightly(index, number, ("sample", f"0.{number}"))
    upload(index, 5, ("other", "2.5"))
    move(index, "v0.3", 3)


def _foreign(index: Index) -> None:
    put_foreign(index.store, 1, *BIG)
    put_foreign(index.store, 2, ("sample", "0.2"))
    upload(index, 3)


def _stale(index: Index) -> None:
    _two_nightlies(index)
    for project in ("sample", "other"):
        index.change_project(project, _with_all_yanked)
    index.store.put("nightly/gone/index.html", b"left over", layout.HTML, expected=None)


def _with_all_yanked(state: ProjectState) -> ProjectState:
    return state.with_files({key: replace(record, yanked="all") for key, record in state.files.items()})


SCENARIOS = (
    Scenario("first upload", _nothing, lambda index: upload(index, 1, *BIG)),
    Scenario("upload of more", lambda index: upload(index, 1), lambda index: upload(index, 1, *BIG)),
    Scenario("first nightly", lambda index: upload(index, 1, *BIG), lambda index: move(index, "nightly", 1)),
    Scenario(
        "next nightly",
        lambda index: (nightly(index, 1, *BIG), upload(index, 2, ("sample", "0.2"))),
        lambda index: move(index, "nightly", 2),
    ),
    Scenario(
        "release of two commits",
        lambda index: (upload(index, 1), move(index, "v0.1", 1), upload(index, 2, *BIG)),
        lambda index: move(index, "v0.1", 2),
    ),
    Scenario("rollback", _two_nightlies, lambda index: rollback(index, "nightly", 1)),
    Scenario("prune", _many, prune),
    Scenario("yank", _two_nightlies, lambda index: yank(index, "0.2")),
    Scenario("adopt", _foreign, adopt),
    Scenario("redraw", _stale, redrawing.redraw_all),
)
