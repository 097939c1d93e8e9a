"""The import graph of a commit, read from real repositories."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasks.pipelines.build_facts import Build
from tasks.pipelines.changes import ChangeSet, State, change_set
from tasks.pipelines.importing import chain_finder
from tests.git_scenes import Repository, isolate


@pytest.fixture(autouse=True)
def _isolated(monkeypatch: pytest.MonkeyPatch) -> None:
    isolate(monkeypatch)


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """Return a checkout with more Python files than git is asked for in one go, and something else in it."""
    made = Repository.new(tmp_path_factory.mktemp("first") / "library")
    many = {f"pkg/part_{n}.py": f"from pkg import part_{n + 1}\n" for n in range(450)}
    made.commit({**many, "pkg/part_450.py": "", "pkg/名 前.py": "x = '\\n'\n", "data.bin": b"\0\n\xff", "empty.py": ""})
    made.commit({"tests/e2e/test_a.py": "from pkg import part_447\n", "tests/other/test_b.py": "import os\n"})
    made.commit({"pkg/part_450.py": "changed = 1\n"})
    return made


@pytest.fixture
def library(first: Repository, tmp_path: Path) -> Repository:
    return first.copy(tmp_path / "library")


def test_the_way_from_a_test_to_a_changed_file_is_found_through_files_folders_and_patterns(
    library: Repository, tmp_path: Path
) -> None:
    changes = change_set(library.path, Build(), base="HEAD^")
    chain = chain_finder(library.path, changes, tmp_path / "cache")
    expected = ("tests/e2e/test_a.py", *(f"pkg/part_{n}.py" for n in range(447, 451)))
    for tests in (["tests/e2e/test_a.py"], ["tests/e2e/"], ["tests/*/test_a.py"], ["tests/"]):
        assert chain(tests, changes.paths) == expected
    assert chain(["tests/other/"], changes.paths) is None
    assert chain(["tests/e2e/"], ["pkg/part_3.py"]) is None


def test_what_is_remembered_gives_the_same_answer(library: Repository, tmp_path: Path) -> None:
    changes = change_set(library.path, Build(), base="HEAD^")
    answers = [chain_finder(library.path, changes, tmp_path / "cache")(["tests/e2e/"], changes.paths) for _ in range(2)]
    assert answers[0] == answers[1] is not None
    assert list((tmp_path / "cache").iterdir())


def test_a_deleted_file_is_still_found_by_who_imports_it(library: Repository, tmp_path: Path) -> None:
    library.commit({"pkg/part_450.py": None})
    changes = change_set(library.path, Build(), base="HEAD^")
    chain = chain_finder(library.path, changes, tmp_path / "cache")(["tests/e2e/"], changes.paths)
    assert chain is not None
    assert chain[-1] == "pkg/part_450.py"


def test_an_unknown_commit_has_no_imports(library: Repository, tmp_path: Path) -> None:
    unknown = ChangeSet(State.UNKNOWN, (), None, None, "not known")
    assert chain_finder(library.path, unknown, tmp_path / "cache")(["tests/"], ["pkg/part_450.py"]) is None
