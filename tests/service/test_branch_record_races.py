"""Branch records in each kind of store: builds that upload at the same time lose nothing of each other."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tasks.pipelines.branch_records import record_upload, uploaded_commits
from tasks.pipelines.build_facts import Build
from tasks.support.settings import load
from tasks.support.store import ObjectStore
from tests.git_scenes import Repository, isolate

MAIN = Build(on_buildkite=True, branch="main")
CELLS = tuple(f"cell_{number}" for number in range(4))


def test_builds_that_upload_at_once_lose_nothing(
    store_any: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    isolate(monkeypatch)
    library = Repository.new(tmp_path / "library")
    commits = [library.commit({"a": str(number)}) for number in range(2)]
    settings = load(store=store_any.url, profile="ci", environment={})
    assert uploaded_commits(settings, MAIN, CELLS[0]) == ()
    for done, commit in enumerate(commits):

        def record(cell: str, commit: str = commit) -> bool:
            return record_upload(settings, library.path, MAIN, cell, commit)

        with ThreadPoolExecutor(len(CELLS)) as pool:
            assert all(pool.map(record, CELLS))
        for cell in CELLS:
            assert uploaded_commits(settings, MAIN, cell) == tuple(reversed(commits[: done + 1]))
    assert [stored.key for stored in store_any.list()] == ["_branches/main.json"]
