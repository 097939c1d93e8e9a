"""What an adoption shows before it is done: what it takes, what it refuses, and what it leaves where it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tasks.support.errors import MissingInputError
from tasks.support.store import open_store
from tasks.wheels import adopting, layout
from tasks.wheels.begin import require_folder
from tasks.wheels.index import Index
from tests.factory_index import commit, index_of, nightly
from tests.faults import tree
from tests.scenarios import put_foreign
from tests.wheel_factory import BROKEN_WHEELS, make_sdist


@pytest.fixture
def index(tmp_path: Path) -> Index:
    return index_of(open_store(str(tmp_path / "store")))


def put(index: Index, key: str, data: bytes = b"somebody's") -> None:
    index.store.put(key, data, layout.headers_for(key), expected=None)


@pytest.mark.slow
@pytest.mark.parametrize("make", BROKEN_WHEELS)
def test_a_dry_run_refuses_what_a_real_run_refuses(index: Index, tmp_path: Path, make: Callable[[Path], Path]) -> None:
    (tmp_path / "broken").mkdir()
    path = make(tmp_path / "broken")
    index.store.put_file(f"{commit(1)}/{path.name}", path, layout.DISTRIBUTION, expected=None)
    put_foreign(index.store, 1, ("good", "1.0"))
    before = tree(index.store)
    plan = adopting.plan_adopt(index)
    judged = adopting.judge(index, plan)
    assert tree(index.store) == before
    would = {stored.key: facts for stored, facts in judged if isinstance(facts, str)}
    report = adopting.execute_adopt(index, plan)
    assert dict(report.refused) == would
    assert (adopting.judged_error(judged) is None) is (adopting.report_error(report) is None)
    assert set(would).isdisjoint(key for _, key, _ in plan.actions(judged))


def test_a_dry_run_sees_files_that_cannot_be_shown_together(index: Index) -> None:
    put_foreign(index.store, 1, ("sample", "1.0"), ("sample", "1.0.0"))
    judged = adopting.judge(index, adopting.plan_adopt(index))
    refused = [stored.key for stored, facts in judged if isinstance(facts, str)]
    assert refused == [f"{commit(1)}/sample-1.0.0-py3-none-any.whl"]
    error = adopting.judged_error(judged)
    assert error is not None
    assert (error.exit_code, error.message) == (65, f"a real run would not adopt {refused[0]}")


def test_what_is_not_taken_over_is_named_with_the_reason(index: Index, tmp_path: Path) -> None:
    put_foreign(index.store, 1, ("sample", "1.0"))
    sdist = make_sdist(tmp_path, name="sample", version="1.0")
    index.store.put_file(f"{commit(1)}/{sdist.name}", sdist, layout.DISTRIBUTION, expected=None)
    others = ["wheels/a-1.0-py3-none-any.whl", "b-1.0-py3-none-any.whl", f"{commit(1)}/deep/c-1.0-py3-none-any.whl"]
    pages = ["nightly/index.html", "v1.0/sample/index.html"]
    ours = ["_ledger/x.json", layout.BROWSE, f"{commit(1)}/index.html", f"{commit(1)}/sample/index.html"]
    for key in (*others, *pages, *ours, f"{commit(1)}/notes.txt"):
        put(index, key)
    left = dict(adopting.plan_adopt(index).left)
    assert set(left) == {*others, *pages, f"{commit(1)}/{sdist.name}", f"{commit(1)}/notes.txt"}
    assert "--sdist" in left[f"{commit(1)}/{sdist.name}"]
    assert "first move of nightly" in left["nightly/index.html"]
    assert "first move of v1.0" in left["v1.0/sample/index.html"]
    assert f"{commit(1)}/{sdist.name}" not in dict(adopting.plan_adopt(index, sdists=True).left)
    adopting.execute_adopt(index, adopting.plan_adopt(index))
    assert set(left) == set(dict(adopting.plan_adopt(index).left)), "what was left is left again"


def test_in_a_store_of_ours_nothing_is_left(index: Index) -> None:
    nightly(index, 1, ("sample", "1.0"), ("sample", "1.0+cu130"))
    plan = adopting.plan_adopt(index)
    assert (plan.new, plan.left) == ((), ())


def test_a_store_that_is_empty_or_not_there_is_missing_input(index: Index, tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match=r"there is nothing in file://.*/store"):
        adopting.plan_adopt(index)
    with pytest.raises(MissingInputError, match=rf"there is no folder {tmp_path}/store"):
        require_folder(index.store)
    (tmp_path / "store").mkdir()
    require_folder(index.store)
