"""Kills every action that changes the store behind any of its changes: what is left is valid, and can be completed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks.support.store import open_store
from tests.factory_index import commit, index_of, nightly, rollback
from tests.faults import broken, every_kill, memory_folder, tree
from tests.scenarios import SCENARIOS, Scenario

pytestmark = pytest.mark.slow


@pytest.fixture
def folder() -> Iterator[Path]:
    with memory_folder() as empty:
        yield empty


@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.sweep)])
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_a_kill_at_any_boundary_leaves_a_valid_index_that_a_second_run_completes(
    scenario: Scenario, step: int, folder: Path
) -> None:
    scenario.prepare(index_of(open_store((folder / "base").as_uri())))
    (folder / "base").mkdir(exist_ok=True)

    def prepare() -> str:
        shutil.rmtree(folder / "store", ignore_errors=True)
        shutil.copytree(folder / "base", folder / "store")
        return (folder / "store").as_uri()

    undisturbed = open_store(prepare())
    scenario.act(index_of(undisturbed))
    assert broken(undisturbed) == []
    wanted = tree(undisturbed)
    for limit, store in every_kill(prepare, lambda store: scenario.act(index_of(store)), step=step):
        assert broken(store) == [], f"killed after {limit} changes"
        scenario.act(index_of(store))
        assert broken(store) == [], f"killed after {limit} changes, then completed"
        assert tree(store) == wanted, f"killed after {limit} changes, then completed"


def test_a_rollback_that_was_stopped_is_completed_and_goes_no_further(folder: Path) -> None:
    base = index_of(open_store(str(folder / "base")))
    for number in (1, 2, 3):
        nightly(base, number)

    def prepare() -> str:
        shutil.rmtree(folder / "store", ignore_errors=True)
        shutil.copytree(folder / "base", folder / "store")
        return (folder / "store").as_uri()

    undisturbed = index_of(open_store(prepare()))
    rollback(undisturbed, "nightly")
    wanted = tree(undisturbed.store)
    reached = []
    for _limit, store in every_kill(prepare, lambda store: rollback(index_of(store), "nightly")):
        if tree(store) != wanted:
            rollback(index_of(store), "nightly")
        assert tree(store) == wanted
        current = index_of(store).view("nightly").state.current
        assert current is not None
        reached.append(current.commit)
    assert set(reached) == {commit(2)}
    assert len(reached) > 3
