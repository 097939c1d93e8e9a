"""The real nox on this repository's noxfile: what it lists with little installed, its exit codes, its last line."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
NOX = str(Path(sys.executable).with_name("nox"))

SMALL_TESTS = """
import os, signal, pytest

def test_passes(): pass
def test_fails(): assert os.environ.get("FAIL") != "1"
def test_dies():
    if os.environ.get("DIE"): os.kill(os.getpid(), int(os.environ["DIE"]))
@pytest.mark.slow
def test_slow(): print("slow ran")
@pytest.mark.service
def test_service(): pass
@pytest.mark.network
def test_network(): pass
"""


def run(folder: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run nox as a person would, the two outputs in one, as a terminal shows them."""
    environ = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    return subprocess.run(
        [sys.executable, NOX, "-f", str(folder / "noxfile.py"), *words],
        env={**environ, "PYTHONUNBUFFERED": "1", **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def closure(name: str) -> set[str]:
    """Return a distribution and all it needs, as normalised names."""
    found: set[str] = set()
    todo = [name]
    while todo:
        one = canonicalize_name(todo.pop())
        if one not in found:
            found.add(one)
            needs = map(Requirement, metadata.requires(one) or [])
            todo += [need.name for need in needs if not need.marker or need.marker.evaluate({"extra": ""})]
    return found


def test_sessions_are_listed_where_only_nox_is_installed(tmp_path: Path) -> None:
    needed = closure("nox")
    hidden = sorted(
        module
        for module, owners in metadata.packages_distributions().items()
        if not needed & {canonicalize_name(owner) for owner in owners}
    )
    assert {"invoke", "pytest", "yaml", "boto3", "rich"} <= set(hidden)
    (tmp_path / "sitecustomize.py").write_text(f"import sys\nsys.modules.update(dict.fromkeys({hidden!r}))\n")
    done = run(ROOT, "-l", "--json", PYTHONPATH=str(tmp_path))
    assert done.returncode == 0, done.stdout
    assert [session["name"] for session in json.loads(done.stdout)] == ["tests"]
    listed = run(ROOT, "-l", PYTHONPATH=str(tmp_path)).stdout
    assert {"tests", "lint", "typecheck"} <= set(re.findall(r"^[*-] (\S+)", listed, re.MULTILINE))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a copy of the noxfile with six small tests, under the same pytest settings."""
    shutil.copy2(ROOT / "noxfile.py", tmp_path)
    shutil.copy2(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_small.py").write_text(SMALL_TESTS)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "env", "code", "summary"),
    [
        # Several processes do not count what they left out.
        ([], {}, 0, "3 passed"),
        (["-s", "tests", "--"], {}, 0, "3 passed"),
        (["-s", "tests", "--", "-n0"], {}, 0, "3 passed, 3 deselected"),
        (["-s", "tests", "--", "--all", "-n0"], {}, 0, "6 passed"),
        (["-s", "tests", "--", "-n0", "-m", "slow"], {}, 0, "1 passed, 5 deselected"),
        (["-s", "tests", "--", "-n0"], {"FAIL": "1"}, 1, "1 failed, 2 passed, 3 deselected"),
        (["-s", "tests", "--", "--all", "-n0", "-k", "absent"], {}, 5, "6 deselected"),
    ],
)
def test_tests_end_with_pytests_code_and_pytests_line(
    project: Path, words: list[str], env: dict[str, str], code: int, summary: str
) -> None:
    done = run(project, *words, **env)
    assert done.returncode == code, done.stdout
    assert re.fullmatch(rf"=* ?{summary} in \S+s ?=*", done.stdout.rstrip().splitlines()[-1]), done.stdout


def test_a_usage_error_keeps_pytests_code(project: Path) -> None:
    assert run(project, "-s", "tests", "--", "-n0", "--no-such-option").returncode == 4


def test_a_pytest_that_dies_of_a_signal_gives_the_shells_code(project: Path) -> None:
    assert run(project, "-s", "tests", "--", "-n0", DIE="9").returncode == 137


def test_words_after_the_dashes_reach_pytest_unchanged(project: Path) -> None:
    done = run(project, "-s", "tests", "--", "-n0", "-k", "passes or slow", "tests/test_small.py", "-m", "", "-rP")
    assert done.returncode == 0, done.stdout
    assert "slow ran" in done.stdout
    assert "2 passed, 4 deselected" in done.stdout


def test_lint_runs_all_its_checks_and_names_those_that_failed(project: Path) -> None:
    # Nothing else of the repository is there, so the allowed imports and the locks fail, after a style that fails too.
    done = run(project, "-s", "lint")
    assert done.returncode == 1
    verdict = done.stdout.rstrip().splitlines()[-1]
    for check in ("ruff check", "ruff format", "lint-imports", "scripts/lock --check"):
        assert check in verdict
