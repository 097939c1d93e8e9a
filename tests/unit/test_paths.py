"""Paths that are odd, too long, forbidden or gone: an error of one line from whatever is given one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tasks.support import paths
from tasks.support.doctor import examine
from tasks.support.errors import OmniError
from tasks.support.settings import CHECKOUT, load
from tasks.support.source import library_python, resolve_source
from tasks.support.store import open_store
from tasks.wheels import begin

TAKERS: dict[str, Callable[[str], object]] = {
    "--source": lambda word: resolve_source(load(source=word, environment={}), Path("/")),
    "--source of a wheels task": lambda word: begin.find_source(load(source=word, environment={})),
    "--dist": lambda word: begin.choose_files(word, None, None, sdist=False),
    "--wheel": lambda word: begin.choose_files(None, [word], None, sdist=False),
    "--store": lambda word: [*open_store(word).list()],
}


def outcome(call: Callable[[], object]) -> tuple[int, str]:
    try:
        call()
    except OmniError as error:
        return error.exit_code, error.message
    return 0, ""


@pytest.mark.parametrize("taker", TAKERS)
@pytest.mark.parametrize("word", ["/" + "n" * 5000, "n" * 300, "/" + "d/" * 2500, "~nosuchuser/x", "a\0b"])
def test_an_impossible_path_is_a_short_line(
    taker: str, word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, message = outcome(lambda: TAKERS[taker](word))
    if word == "~nosuchuser/x" and taker == "--store":  # the shell's to expand: here it is a folder of that name
        assert code == 0
        return
    assert code in ((64, 65, 69) if taker == "--store" else (64,))
    assert "\n" not in message
    assert taker == "--store" or len(message) < 300


def test_an_impossible_python_is_a_short_line() -> None:
    for word in ("~nosuchuser/python", "/" + "n" * 5000, "a\0b"):
        code, message = outcome(lambda word=word: library_python(load(python=word, environment={})))  # type: ignore[misc]
        assert code in (64, 66)
        assert len(message) < 300


def test_a_loop_of_links_is_told(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    for taker in ("--source", "--dist", "--wheel"):
        assert outcome(lambda taker=taker: TAKERS[taker](f"{tmp_path}/loop/x"))[0] == 64  # type: ignore[misc]


AS_NOBODY = """
import os, sys
sys.path.insert(0, sys.argv[1])
from tests.unit.test_paths import TAKERS, outcome
if os.getuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
for taker in TAKERS:
    for word in sys.argv[2:]:
        print(outcome(lambda: TAKERS[taker](word))[0])
"""


@pytest.fixture
def closed() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp())  # pytest's own folders are closed to other users
    (folder / "closed" / "below").mkdir(parents=True)
    folder.chmod(0o755)
    (folder / "closed").chmod(0o000)
    yield folder / "closed"
    (folder / "closed").chmod(0o755)
    shutil.rmtree(folder)


def test_a_folder_that_may_not_be_entered_is_a_missing_right(closed: Path) -> None:
    argv = [sys.executable, "-c", AS_NOBODY, str(CHECKOUT), f"{closed}/below", f"{closed}/nothing"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["77"] * 2 * len(TAKERS), done.stderr


def test_a_folder_that_may_not_be_read_holds_unknown_wheels(closed: Path) -> None:
    code = AS_NOBODY.replace("for taker in TAKERS", "for taker in ['--dist']")
    argv = [sys.executable, "-c", code, str(CHECKOUT), str(closed)]
    assert subprocess.run(argv, capture_output=True, text=True, check=False).stdout.split() == ["77"]


@pytest.fixture
def gone(tmp_path: Path) -> Iterator[None]:
    before = Path.cwd()
    (tmp_path / "gone").mkdir()
    os.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    yield
    os.chdir(before)


@pytest.mark.usefixtures("gone")
def test_without_a_current_folder_what_needs_it_says_so_and_the_rest_works(tmp_path: Path) -> None:
    for call in (
        paths.current_folder,
        lambda: begin.choose_files(None, None, None, sdist=False),
        lambda: open_store("relative"),
        lambda: begin.find_source(load(source="relative", environment={})),
    ):
        assert outcome(call) == (66, "the current folder is gone")
    assert begin.find_source(load(environment={}), checkout=tmp_path / "tool") is None
    assert open_store(str(tmp_path)).url == tmp_path.as_uri()
    (found,) = (row for row in examine(load(environment={"PATH": os.environ["PATH"]})) if row.name == "source")
    assert (found.state.value, found.detail) == ("missing", "the current folder is gone")
