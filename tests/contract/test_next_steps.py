"""The lines that the tasks print for people to copy: run as they stand, they do what they say, where the run was."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tasks.registry.documents import digest_of
from tests.contract.conftest import ROOT, Invoke
from tests.factory_release import World, commit
from tests.skopeo import skopeo

pytestmark = pytest.mark.slow  # together these take longer than the fast set may

NAMED = re.compile(r"""invoke ([a-z]+(?:\.[a-z_]+)+)|command\("([a-z.]+)\"""")


def paste(line: str, home: Path) -> subprocess.CompletedProcess[str]:
    """Run a line as a shell that has nothing set does."""
    environment = {"PATH": f"{Path(sys.executable).parent}:{os.defpath}", "HOME": str(home)}
    return subprocess.run(["sh", "-c", line], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def labelled(text: str, label: str) -> str:
    """Return the one line that begins with a label, without it."""
    found = [line.removeprefix(f"{label}: ") for line in text.splitlines() if line.startswith(f"{label}: ")]
    assert len(found) == 1, text
    return found[0]


@pytest.fixture
def world(tmp_path: Path) -> World:
    folder = tmp_path / "it's a folder"
    folder.mkdir()
    made = World.of_folders(folder)
    made.staged(1)
    made.staged(2)
    made.nightly(1)
    return made


@pytest.fixture
def where(tmp_path: Path) -> tuple[str, ...]:
    """Return the flags that say where."""
    folder = tmp_path / "it's a folder"
    names = ("--public", (folder / "public").as_uri(), "--store", str(folder / "store"))
    return (*names, "--profile", "local")


@pytest.mark.slow
def test_what_a_run_prints_undoes_and_shows_it_in_the_same_places(
    world: World, where: tuple[str, ...], tmp_path: Path, invoke: Invoke
) -> None:
    first = world.tags()["nightly"]
    words = ("--commit", commit(2), "--commit-time", "2026-01-02T00:00:00Z", "--staging", str(world.staging.name))
    done = invoke("release.publish", "nightly", *words, *where)
    assert done.code == 0, done.err
    second = world.tags()["nightly"]
    assert second != first
    shown = shlex.split(labelled(done.err, "inspect"))
    assert shown[0] == "skopeo"
    assert digest_of(skopeo(*shown[1:]).encode()) == second
    undone = paste(labelled(done.err, "undo"), tmp_path)
    assert undone.returncode == 0, undone.stderr
    assert world.tags()["nightly"] == first
    again = paste(labelled(undone.stderr, "undo"), tmp_path)
    assert again.returncode == 0, again.stderr
    assert world.tags()["nightly"] == second


def test_an_error_points_at_the_places_that_the_run_was_given(
    world: World, where: tuple[str, ...], tmp_path: Path, invoke: Invoke
) -> None:
    refused = invoke("release.rollback", "nightly", "--to", "nothing", *where)
    assert refused.code == 66
    line = re.search(r"invoke release\.status.*?(?= shows what is)", refused.err)
    assert line is not None
    told = paste(f"{line[0]} --json", tmp_path)
    assert world.tags()["nightly"] in told.stdout


@pytest.mark.parametrize("environment", [{}, {"OMNI_CI_STORE": "file:///elsewhere"}])
def test_a_run_without_flags_prints_lines_without_them(
    world: World, tmp_path: Path, invoke: Invoke, environment: dict[str, str]
) -> None:
    environment |= {"OMNI_CI_PUBLIC": str(world.public.name)}
    refused = invoke("release.rollback", "nightly", "--to", "nothing", env=environment)
    assert "  invoke release.status shows what is\n" in refused.err


def test_every_task_that_is_named_anywhere_is_there(invoke: Invoke) -> None:
    listed = set(re.findall(r"^  ([a-z]+(?:\.[a-z-]+)?)\s", invoke("--list").out, re.MULTILINE))
    assert "release.rollback" in listed
    files = [*(ROOT / "tasks").rglob("*.py"), *(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    for file in files:
        for found in NAMED.finditer(file.read_text()):
            assert (found[1] or found[2]) in listed, f"{file}: {found[0]}"
