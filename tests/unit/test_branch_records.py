"""The record of uploaded commits: what is kept, which ancestor is the newest, and that no trouble fails an upload."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tasks.pipelines.branch_records import KEPT, record_upload, uploaded_ancestor, uploaded_commits
from tasks.pipelines.build_facts import Build
from tasks.pipelines.changes import change_set
from tasks.support.settings import Settings, load
from tasks.support.store import open_store
from tests.git_scenes import MISSING_COMMIT, Repository, isolate

CELL = "cuda_merge"
MAIN = Build(on_buildkite=True, branch="main")


@pytest.fixture(autouse=True)
def _isolated(monkeypatch: pytest.MonkeyPatch) -> None:
    isolate(monkeypatch)


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    made = Repository.new(tmp_path_factory.mktemp("first") / "library")
    made.commit({"a": "1"})
    return made


@pytest.fixture
def library(first: Repository, tmp_path: Path) -> Repository:
    return first.copy(tmp_path / "library")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load(store=(tmp_path / "store").as_uri(), profile="ci", environment={})


def files(tmp_path: Path) -> list[str]:
    return sorted(stored.key for stored in open_store((tmp_path / "store").as_uri()).list())


# ----------------------------------------------------------------------------------------------------------------------
# What is recorded


def test_what_was_recorded_is_read_newest_first(library: Repository, settings: Settings, tmp_path: Path) -> None:
    commits = [library.commit({"a": str(number)}) for number in range(3)]
    assert uploaded_commits(settings, MAIN, CELL) == ()
    for commit in commits:
        assert record_upload(settings, library.path, MAIN, CELL, commit)
    assert uploaded_commits(settings, MAIN, CELL) == tuple(reversed(commits))
    assert files(tmp_path) == ["_branches/main.json"]


def test_each_cell_has_its_own_list(library: Repository, settings: Settings) -> None:
    first, second = library.head, library.commit({"a": "2"})
    for cell, commit in (("cuda_merge", first), ("rocm_merge", first), ("cuda_merge", second)):
        assert record_upload(settings, library.path, MAIN, cell, commit)
    assert uploaded_commits(settings, MAIN, "cuda_merge") == (second, first)
    assert uploaded_commits(settings, MAIN, "rocm_merge") == (first,)
    assert uploaded_commits(settings, MAIN, "cuda_nightly") == ()


def test_the_same_record_is_the_same_bytes(library: Repository, tmp_path: Path) -> None:
    commit = library.head
    texts = []
    for name, cells in (("one", ("b", "a", "c")), ("two", ("c", "b", "a"))):
        settings = load(store=(tmp_path / name).as_uri(), profile="ci", environment={})
        assert all(record_upload(settings, library.path, MAIN, cell, commit) for cell in cells)
        texts.append((tmp_path / name / "_branches" / "main.json").read_bytes())
    assert texts[0] == texts[1]
    assert json.loads(texts[0]) == {
        "branch": "main",
        "format": 1,
        "uploads": {cell: [commit] for cell in ("a", "b", "c")},
    }


def test_a_record_moves_only_forward(library: Repository, settings: Settings) -> None:
    older, newer = library.head, library.commit({"a": "2"})
    assert record_upload(settings, library.path, MAIN, CELL, newer)
    assert not record_upload(settings, library.path, MAIN, CELL, older)  # a slower build of an older commit
    assert not record_upload(settings, library.path, MAIN, CELL, newer)  # a rebuild
    assert uploaded_commits(settings, MAIN, CELL) == (newer,)


def test_a_rewritten_branch_is_recorded_and_goes_back_to_its_old_history(
    library: Repository, settings: Settings
) -> None:
    first, gone = library.head, library.commit({"a": "2"})
    library.branch("rewritten", first)
    new = library.commit({"b": "1"})
    for commit in (first, gone, new):
        assert record_upload(settings, library.path, MAIN, CELL, commit)
    assert uploaded_commits(settings, MAIN, CELL) == (new, gone, first)
    assert record_upload(settings, library.path, MAIN, CELL, gone)
    assert uploaded_commits(settings, MAIN, CELL) == (gone, new, first)


def test_the_last_ones_are_kept(library: Repository, settings: Settings, tmp_path: Path) -> None:
    newest_first = library.git("rev-list", library.grow(KEPT + 5)).split()
    record = tmp_path / "store" / "_branches" / "main.json"
    assert record_upload(settings, library.path, MAIN, CELL, newest_first[-1])
    document = json.loads(record.read_text())
    record.write_text(json.dumps(document | {"uploads": {CELL: newest_first[3:], "other": newest_first[5:10]}}))
    for commit in (newest_first[2], newest_first[1], newest_first[0]):
        assert record_upload(settings, library.path, MAIN, CELL, commit)
    assert uploaded_commits(settings, MAIN, CELL) == tuple(newest_first[:KEPT])
    assert uploaded_commits(settings, MAIN, "other") == tuple(newest_first[5:10])


@pytest.mark.parametrize(
    "branch", ["main", "release/1", "a/b/../c", "..", "-x", "视频", "a b%2Fc", "x\ny", "$(id)", "\udcff", "A", "a\\b"]
)
def test_any_default_branch_has_an_object_of_its_own(
    library: Repository, settings: Settings, tmp_path: Path, branch: str
) -> None:
    build = Build(on_buildkite=True, branch=branch, default_branch=branch)
    other = Build(on_buildkite=True, branch=f"{branch}-2", default_branch=f"{branch}-2")
    assert record_upload(settings, library.path, build, CELL, library.head)
    assert uploaded_commits(settings, build, CELL) == (library.head,)
    assert uploaded_commits(settings, other, CELL) == ()
    (file,) = files(tmp_path)
    assert (tmp_path / "store" / file).parent == tmp_path / "store" / "_branches"


# ----------------------------------------------------------------------------------------------------------------------
# Who records


@pytest.mark.parametrize(
    "build",
    [
        Build(),
        Build(branch="main"),
        Build(on_buildkite=True, branch="topic"),
        Build(on_buildkite=True, branch="main", pull_request=3),
        Build(on_buildkite=True, branch="main", fork=True),
        Build(on_buildkite=True, branch="gh-readonly-queue/main/x", base_branch="main"),
    ],
)
def test_only_builds_of_main_read_and_record(
    library: Repository, settings: Settings, tmp_path: Path, build: Build, capsys: pytest.CaptureFixture[str]
) -> None:
    record_upload(settings, library.path, MAIN, CELL, library.head)
    before = (tmp_path / "store" / "_branches" / "main.json").read_bytes()
    newer = library.commit({"a": "2"})
    assert not record_upload(settings, library.path, build, CELL, newer)
    assert uploaded_commits(settings, build, CELL) == ()
    assert files(tmp_path) == ["_branches/main.json"]
    assert (tmp_path / "store" / "_branches" / "main.json").read_bytes() == before
    assert capsys.readouterr() == ("", "")


def test_without_a_store_a_warning_says_so_once(library: Repository, capsys: pytest.CaptureFixture[str]) -> None:
    settings = load(environment={})
    assert uploaded_commits(settings, MAIN, CELL) == ()
    assert capsys.readouterr().err == ""
    assert not record_upload(settings, library.path, MAIN, CELL, library.head)
    assert "warning: the upload was not recorded: OMNI_CI_STORE is not set" in capsys.readouterr().err


# ----------------------------------------------------------------------------------------------------------------------
# Trouble is a warning


def test_a_store_that_is_no_store_is_a_warning(
    library: Repository, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("no folder")
    (tmp_path / "crowded" / "_branches" / "main.json" / "x").mkdir(parents=True)
    for store in ((tmp_path / "file").as_uri(), (tmp_path / "crowded").as_uri(), "gopher://x/y", "s3://"):
        settings = load(store=store, profile="ci", environment={})
        uploaded_commits(settings, MAIN, CELL)
        assert not record_upload(settings, library.path, MAIN, CELL, library.head)
        assert "warning: the upload was not recorded, so the next build may" in capsys.readouterr().err


def test_a_profile_that_may_not_write_there_is_a_warning(
    library: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = load(store="s3://bucket/prefix", profile="local", environment={})
    assert not record_upload(settings, library.path, MAIN, CELL, library.head)
    assert "profile local may not" in capsys.readouterr().err


def test_a_commit_that_is_none_is_a_warning(
    library: Repository, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    assert record_upload(settings, library.path, MAIN, CELL, library.head)
    for commit in ("main", "", "-x"):
        assert not record_upload(settings, library.path, MAIN, CELL, commit)
        assert "not a full commit hash" in capsys.readouterr().err


DAMAGED = [
    b"",
    b"\xff",
    b"[]",
    b"{",
    b"null",
    b"{}",
    b'{"uploads": []}',
    b'{"uploads": {"cuda_merge": 1}}',
    b'{"uploads": {"cuda_merge": [1]}}',
    b'{"uploads": {"cuda_merge": ["--upload-pack=x", "HEAD", ""]}}',
    b"[" * 100_000,
    b"1" * 10_000,
]


@pytest.mark.parametrize("data", DAMAGED, ids=range(len(DAMAGED)))
def test_a_damaged_record_counts_as_empty_and_heals(
    library: Repository, settings: Settings, tmp_path: Path, data: bytes
) -> None:
    assert record_upload(settings, library.path, MAIN, CELL, library.head)
    (tmp_path / "store" / "_branches" / "main.json").write_bytes(data)
    assert uploaded_commits(settings, MAIN, CELL) == ()
    newer = library.commit({"a": "2"})
    assert record_upload(settings, library.path, MAIN, CELL, newer)
    assert uploaded_commits(settings, MAIN, CELL) == (newer,)


@pytest.mark.parametrize("version", ["2", '"x"', "[]", "1e400"])
def test_a_record_of_a_later_format_is_left_alone(
    library: Repository, settings: Settings, tmp_path: Path, version: str, capsys: pytest.CaptureFixture[str]
) -> None:
    record = tmp_path / "store" / "_branches" / "main.json"
    record.parent.mkdir(parents=True)
    record.write_text(f'{{"format": {version}, "uploads": {{"cuda_merge": ["{library.head}"]}}}}')
    before = record.read_bytes()
    assert uploaded_commits(settings, MAIN, CELL) == ()
    assert not record_upload(settings, library.path, MAIN, CELL, library.head)
    assert capsys.readouterr().err.count("is of format") == 2
    assert record.read_bytes() == before


# ----------------------------------------------------------------------------------------------------------------------
# The newest uploaded ancestor


def test_the_newest_ancestor_is_the_one_that_no_other_comes_after(library: Repository) -> None:
    first = library.head
    library.branch("topic")
    topic = library.commit({"t": "1"})
    library.checkout("main")
    second = library.commit({"a": "2"})
    merged = library.merge("topic")
    top = library.commit({"a": "3"})
    library.branch("aside", first)
    aside = library.commit({"b": "1"})
    ask = {
        (): None,
        (top,): None,
        (aside, MISSING_COMMIT): None,
        (first,): first,
        (first, second): second,
        (second, first): second,
        (first, topic, aside): topic,
        (topic, merged, first): merged,
        (MISSING_COMMIT, top, aside, merged, second): merged,
    }
    assert {given: uploaded_ancestor(library.path, top, given) for given in ask} == ask


def test_a_build_of_main_covers_what_no_upload_covered(library: Repository, settings: Settings) -> None:
    """The pipeline of the second push never came to its upload; a rebuild sees what the first build saw."""
    commits = [library.commit({f"f{number}": "1"}) for number in range(4)]

    def build(commit: str, *, uploads: bool) -> set[str]:
        facts = Build(on_buildkite=True, branch="main", commit=commit)
        found = change_set(library.path, facts, record=uploaded_commits(settings, facts, CELL))
        if uploads:
            record_upload(settings, library.path, facts, CELL, commit)
        return set(found.paths)

    assert build(commits[0], uploads=True) == {"f0"}
    assert build(commits[1], uploads=False) == {"f1"}
    assert build(commits[3], uploads=True) == {"f1", "f2", "f3"}
    assert build(commits[3], uploads=True) == {"f1", "f2", "f3"}
    assert build(commits[2], uploads=True) == {"f1", "f2"}
