"""A release takes one version of a distribution once, however its file is spelled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tasks.support.errors import DataError
from tasks.support.store import open_store
from tasks.wheels.distribution import read_facts
from tasks.wheels.index import Index
from tasks.wheels.upload import execute_upload, plan_upload
from tasks.wheels.views import Outcome
from tests.factory_index import commit, held, index_of, move, time_of
from tests.faults import broken, tree
from tests.wheel_factory import make_sdist, make_wheel

OTHER = {"sample/other.py": b""}


@pytest.fixture
def index(tmp_path: Path) -> Index:
    return index_of(open_store(str(tmp_path / "store")))


def put(index: Index, number: int, *paths: Path) -> None:
    facts = [read_facts(path, index.rules.variants) for path in paths]
    execute_upload(index, plan_upload(index, commit(number), time_of(number), facts))


@pytest.mark.slow
@pytest.mark.parametrize(
    "spelling",
    [
        {}, {"version": "1.0.0"}, {"version": "1"}, {"version": "1.0", "build": "1"}, {"tag": "py2.py3-none-any"},
        {"filename": "Sample-1.0-py3-none-any.whl"}, {"filename": "sample-1.0-PY3-none-any.whl"},
        {"filename": "SAMPLE-1.0.0-7-py3.py2-none-any.whl"},
    ],
)  # fmt: skip
def test_the_same_distribution_from_another_commit_is_refused(
    index: Index, tmp_path: Path, spelling: dict[str, Any]
) -> None:
    put(index, 1, make_wheel(tmp_path / "1"))
    move(index, "v1.0", 1)
    put(index, 2, make_wheel(tmp_path / "2", files=OTHER, **spelling))
    before = tree(index.store)
    with pytest.raises(DataError, match=f"from commit {commit(1)} with other bytes"):
        move(index, "v1.0", 2)
    assert tree(index.store) == before


@pytest.mark.parametrize(
    "name", ["sample-1.0-py3-none-any.whl", "Sample-1.0-1-py3-none-any.whl", "sample-1-py3-none-any.whl"]
)
def test_the_same_bytes_from_another_commit_change_nothing(index: Index, tmp_path: Path, name: str) -> None:
    first = make_wheel(tmp_path / "1")
    put(index, 1, first)
    move(index, "v1.0", 1)
    second = tmp_path / name
    second.write_bytes(first.read_bytes())
    put(index, 2, second)
    assert move(index, "v1.0", 2).outcome is Outcome.SAME
    assert held(index, "v1.0") == [f"{commit(1)}/{first.name}"]


def test_what_an_installer_tells_apart_comes_from_any_commit(index: Index, tmp_path: Path) -> None:
    one = [make_wheel(tmp_path / "1", build="1"), make_wheel(tmp_path / "1", build="2", files=OTHER)]
    put(index, 1, *one)
    move(index, "v1.0", 1)
    two = [make_wheel(tmp_path / "2", tag="cp311-cp311-linux_x86_64"), make_sdist(tmp_path / "2")]
    two.append(make_wheel(tmp_path / "2", version="1.0+cu130"))
    put(index, 2, *two, *one)
    assert move(index, "v1.0", 2).outcome is Outcome.MOVE
    wanted = [f"{commit(1)}/{path.name}" for path in one] + [f"{commit(2)}/{path.name}" for path in two]
    assert held(index, "v1.0") == sorted(wanted)
    assert broken(index.store) == []


def test_a_second_sdist_of_a_release_is_refused(index: Index, tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path)
    put(index, 1, wheel, make_sdist(tmp_path / "1"))
    move(index, "v1.0", 1)
    put(index, 2, wheel, make_sdist(tmp_path / "2", version="1.0.0"))
    with pytest.raises(DataError, match=r"sample-1\.0\.tar\.gz from commit .* than sample-1\.0\.0\.tar\.gz"):
        move(index, "v1.0", 2)
