"""Changes that need no test, on real histories and on change sets made by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from tasks.pipelines.build_facts import Build
from tasks.pipelines.changes import ChangedFile, ChangeSet, State, change_set, file_at
from tasks.pipelines.model import Why
from tasks.pipelines.skipping import MOST_TESTS, Skip, SkipKind, decide_skip
from tasks.suites import areas, tiers
from tasks.support.errors import DataError
from tests.git_scenes import Repository, isolate

RULES = areas.load()
TIERS = tiers.load()
READY = TIERS.cells["cuda_ready"].files[0]
MERGE = TIERS.cells["cuda_merge"].files[0]
ROCM = TIERS.cells["rocm_ready"].files[0]

OLD = "import pytest\n\n\ndef test_a():\n    assert 1\n"
SKIPPED = OLD.replace("def test_a", "@pytest.mark.skipif(\n    True,\n    reason='broken',\n)\ndef test_a")
NEW_SKIPPED = "import pytest\npytestmark = pytest.mark.skip\n"
COMMENTED = OLD.replace("assert 1", "assert 1  # is true")

Edit = tuple[str | None, str | None]
MARK: Edit = (OLD, SKIPPED)
ANY: Edit = ("a\n", "b\n")


def _status(edit: Edit) -> str:
    return "A" if edit[0] is None else "D" if edit[1] is None else "M"


def _decide(edits: Mapping[str, Edit], *, build: Build | None = None, run_all: bool = False) -> Skip:
    changed = tuple(ChangedFile(path, _status(edit)) for path, edit in edits.items())
    state = State.KNOWN if changed else State.EMPTY
    found = ChangeSet(state, changed, "1" * 40, "2" * 40, "against origin/main")
    return decide_skip(found, RULES, build or Build(), TIERS, _reader(edits, 0), _reader(edits, 1), run_all=run_all)


def _reader(edits: Mapping[str, Edit], version: int) -> Callable[[str], bytes | None]:
    def read(path: str) -> bytes | None:
        text = edits[path][version]
        return None if text is None else text.encode()

    return read


def _unread(path: str) -> NoReturn:
    raise AssertionError(f"{path} was read")


@pytest.mark.parametrize(
    ("edits", "kind"),
    [
        ({"docs/conf.py": ANY}, SkipKind.DOCS),
        ({"mkdocs.yml": ANY, "a/b.md": ANY}, SkipKind.DOCS),
        ({"docs/a.md": (None, "x"), "docs/b.md": ("x", None)}, SkipKind.DOCS),
        ({"tests/helpers/README.md": ANY}, SkipKind.DOCS),
        ({"sub/mkdocs.yml": ANY}, SkipKind.NONE),
        ({"README.MD": ANY}, SkipKind.NONE),
        ({"docs/a.md": ANY, "pkg/a.py": ANY}, SkipKind.NONE),
        ({"LICENSE": ANY}, SkipKind.NONE),
        ({"docs/a.md": ANY, ".github/CODEOWNERS": ANY}, SkipKind.NONE),
        ({"tests/e2e/test_a.py": MARK}, SkipKind.SKIP_MARKS),
        ({"tests/e2e/test_a.py": MARK, "tests/test_b.py": (None, NEW_SKIPPED)}, SkipKind.SKIP_MARKS),
        ({"docs/a.md": ANY, "tests/e2e/test_a.py": MARK}, SkipKind.MIXED),
        ({"tests/e2e/test_a.py": (SKIPPED, OLD)}, SkipKind.NONE),
        ({"tests/e2e/test_a.py": MARK, "tests/test_b.py": (SKIPPED, OLD)}, SkipKind.NONE),
        ({"tests/e2e/test_a.py": (OLD, COMMENTED)}, SkipKind.NONE),
        ({"tests/e2e/test_a.py": MARK, "tests/test_b.py": (OLD, COMMENTED)}, SkipKind.NONE),
        ({"tests/e2e/test_a.py": (OLD, None)}, SkipKind.NONE),
        ({"tests/e2e/test_a.py": (OLD, "def (")}, SkipKind.NONE),
        ({"tests/e2e/test_a.py": MARK, "vllm_omni/a.py": ANY}, SkipKind.NONE),
        ({"tests/conftest.py": MARK}, SkipKind.NONE),
        ({"tests/e2e/conftest.py": MARK}, SkipKind.NONE),
        ({"tests/helpers/test_a.py": MARK}, SkipKind.NONE),
        ({"vllm_omni/test_a.py": MARK}, SkipKind.NONE),
        ({"tests/e2e/test_a.yaml": ANY}, SkipKind.NONE),
        ({"pyproject.toml": ANY}, SkipKind.NONE),
        ({".buildkite/unknown.yml": ANY}, SkipKind.NONE),
    ],
)
def test_what_a_change_consists_of(edits: Mapping[str, Edit], kind: SkipKind) -> None:
    for order in (edits, dict(reversed(list(edits.items())))):
        found = _decide(order)
        assert (found.kind, found.cells) == (kind, ())
        assert found.reason.why is (Why.PATH if kind is SkipKind.NONE else Why.SKIPPED)
        if kind is SkipKind.NONE:
            assert any(path in found.reason.text for path in edits)
        else:
            assert "only" in found.reason.text


@pytest.mark.parametrize(
    ("edits", "cells"),
    [
        ({READY: ANY}, ("cuda_ready",)),
        ({ROCM: ANY, READY: ANY}, ("cuda_ready", "rocm_ready")),
        ({READY: (None, "x")}, ("cuda_ready",)),
        ({READY: ("x", None), MERGE: ANY}, ("cuda_ready", "cuda_merge")),
        ({READY: ANY, "docs/a.md": ANY}, ("cuda_ready",)),
        ({READY: ANY, "tests/test_a.py": MARK, "a.md": ANY}, ("cuda_ready",)),
        ({READY: ANY, "vllm_omni/a.py": ANY}, None),
        ({READY: ANY, "tests/test_a.py": (OLD, COMMENTED)}, None),
        ({READY: ANY, ".buildkite/automation.lock": ANY}, None),
        ({f"{READY}.bak": ANY}, None),
        ({f"sub/{READY}": ANY}, None),
    ],
)
def test_configuration_of_cells(edits: Mapping[str, Edit], cells: tuple[str, ...] | None) -> None:
    found = _decide(edits)
    if cells is None:
        assert (found.kind, found.cells) == (SkipKind.NONE, ())
    else:
        assert (found.kind, found.cells) == (SkipKind.CI_CONFIG, cells)
        assert all(cell in found.reason.text for cell in cells)


@pytest.mark.parametrize("cell", list(TIERS.cells))
def test_every_cell_has_files_of_its_own(cell: str) -> None:
    for file in TIERS.cells[cell].files:
        found = _decide({file: ANY})
        assert cell in found.cells
        assert {other.device for other in TIERS.at_file(file)} == {TIERS.cells[cell].device}


CHANGES: list[Mapping[str, Edit]] = [
    {"docs/a.md": ANY},
    {"tests/test_a.py": MARK},
    {READY: ANY},
    {"a.md": ANY, "tests/test_a.py": MARK},
]


@pytest.mark.parametrize("edits", CHANGES)
def test_what_switches_skipping_off(edits: Mapping[str, Edit]) -> None:
    assert _decide(edits).kind is not SkipKind.NONE
    for off in (Build(run_all=True), Build(docs_only_disable=True)):
        found = _decide(edits, build=off)
        assert (found.kind, found.reason.why, found.cells) == (SkipKind.NONE, Why.RUN_ALL, ())
    assert _decide(edits, run_all=True).kind is SkipKind.NONE
    assert _decide(edits, build=Build(labels=frozenset({"ready", "docs"}), fork=True)).kind is not SkipKind.NONE


def test_an_empty_or_unknown_change_is_no_reason_to_skip() -> None:
    empty = _decide({})
    assert (empty.kind, empty.reason.why) == (SkipKind.NONE, Why.UNCHANGED)
    unknown = ChangeSet(State.UNKNOWN, (), None, None, "not known: no merge base")
    for found in (unknown, replace(unknown, files=(ChangedFile("docs/a.md", "M"),))):
        skip = decide_skip(found, RULES, Build(), TIERS, _unread, _unread)
        assert (skip.kind, skip.reason.why) == (SkipKind.NONE, Why.UNKNOWN)
        assert "no merge base" in skip.reason.text


@pytest.mark.parametrize("status", ["D", "T", "X"])
def test_only_added_and_modified_tests_are_compared(status: str) -> None:
    found = ChangeSet(State.KNOWN, (ChangedFile("tests/test_a.py", status),), "1" * 40, "2" * 40, "")
    assert decide_skip(found, RULES, Build(), TIERS, _unread, _unread).kind is SkipKind.NONE


def test_a_version_that_cannot_be_read_is_no_reason_to_skip() -> None:
    def refuse(path: str) -> NoReturn:
        raise DataError(f"{path} has more than 16 MiB")

    found = ChangeSet(State.KNOWN, (ChangedFile("tests/test_a.py", "M"),), "1" * 40, "2" * 40, "")
    old, new = (_reader({"tests/test_a.py": MARK}, version) for version in (0, 1))
    assert decide_skip(found, RULES, Build(), TIERS, old, new).kind is SkipKind.SKIP_MARKS
    for readers in ((old, refuse), (refuse, new), (lambda _: None, new), (old, lambda _: None)):
        skip = decide_skip(found, RULES, Build(), TIERS, *readers)
        assert skip.kind is SkipKind.NONE
        assert "tests/test_a.py cannot be read" in skip.reason.text


@pytest.mark.parametrize("count", [1_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_a_large_change_reads_nothing(count: int) -> None:
    tests = [ChangedFile(f"tests/test_{number}.py", "M") for number in range(MOST_TESTS + 1)]
    code = [ChangedFile(f"pkg/a{number}.py", "M") for number in range(count)]
    for files in (tests, [*tests[:2], *code]):
        found = ChangeSet(State.KNOWN, tuple(files), "1" * 40, "2" * 40, "")
        assert decide_skip(found, RULES, Build(), TIERS, _unread, _unread).kind is SkipKind.NONE
    docs = tuple(ChangedFile(f"docs/a{number}.md", "M") for number in range(count))
    many = ChangeSet(State.KNOWN, docs, "1" * 40, "2" * 40, "")
    assert decide_skip(many, RULES, Build(), TIERS, _unread, _unread).kind is SkipKind.DOCS


@pytest.mark.parametrize(
    ("edits", "kind"),
    [
        ({"tests/e2e/test_a.py": SKIPPED}, SkipKind.SKIP_MARKS),
        ({"tests/e2e/test_a.py": SKIPPED, "docs/视频.md": "words"}, SkipKind.MIXED),
        ({"tests/e2e/test_new.py": NEW_SKIPPED}, SkipKind.SKIP_MARKS),
        ({"tests/e2e/test_new.py": NEW_SKIPPED, "tests/e2e/test_a.py": None}, SkipKind.NONE),
        ({"tests/e2e/test_off.py": OLD}, SkipKind.NONE),
        (
            {"tests/conftest.py": "import pytest\n\n\ndef pytest_runtest_setup():\n    pytest.skip('all')\n"},
            SkipKind.NONE,
        ),
        ({"docs/a.md": None}, SkipKind.DOCS),
        ({READY: "steps: []\n"}, SkipKind.CI_CONFIG),
    ],
)
def test_real_commits(
    edits: dict[str, str | bytes | None], kind: SkipKind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    isolate(monkeypatch)
    library = Repository.new(tmp_path / "library")
    base = library.commit(
        {
            "tests/e2e/test_a.py": OLD,
            "tests/e2e/test_off.py": SKIPPED,
            "tests/conftest.py": "import pytest\n\n\ndef pytest_runtest_setup():\n    pass\n",
            "docs/a.md": "words",
        }
    )
    commit = library.commit(edits)
    changes = change_set(library.path, Build(), base=base, commit=commit)
    found = decide_skip(
        changes,
        RULES,
        Build(),
        TIERS,
        lambda path: file_at(library.path, base, path),
        lambda path: file_at(library.path, commit, path),
    )
    assert found.kind is kind, found.reason


def test_a_link_in_place_of_a_test_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    isolate(monkeypatch)
    library = Repository.new(tmp_path / "library")
    base = library.commit({"tests/test_a.py": OLD, "tests/test_b.py": NEW_SKIPPED})
    (library.path / "tests/test_a.py").unlink()
    (library.path / "tests/test_a.py").symlink_to("test_b.py")
    (library.path / "tests/test_c.py").symlink_to("test_b.py")
    library.git("add", "--all")
    commit = library.commit()
    changes = change_set(library.path, Build(), base=base, commit=commit)
    assert {file.path: file.status for file in changes.files} == {"tests/test_a.py": "T", "tests/test_c.py": "A"}
    for files in (changes.files, changes.files[:1], changes.files[1:]):
        found = decide_skip(
            replace(changes, files=files),
            RULES,
            Build(),
            TIERS,
            lambda path: file_at(library.path, base, path),
            lambda path: file_at(library.path, commit, path),
        )
        assert found.kind is SkipKind.NONE
