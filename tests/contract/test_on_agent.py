"""A copy of this tool on an agent: its environment is made once, and `omni-ci` is on PATH of what it becomes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # a real environment is made

SCRIPTS = Path(__file__).parents[2] / "scripts"
# Stands for invoke, which the lock of this copy leaves out.
INVOKE = "import os, sys\nprint(*sys.argv[1:], os.environ['PATH'].split(os.pathsep)[0])\n"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    root = tmp_path / "a tool's place"
    (root / "scripts" / "locks").mkdir(parents=True)
    for name in ("bootstrap.py", "image_tool.py", "interpreter.py", "on_agent.py"):
        shutil.copy(SCRIPTS / name, root / "scripts" / name)
    (root / "scripts" / "locks" / "dev.txt").write_text("# nothing\n")
    (root / "tasks").mkdir()
    (root / "tasks" / "one.py").write_text("one = 1\n")
    return root


def run(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, str(root / "scripts" / "on_agent.py"), *words]
    env = {**os.environ, "PYTHONPATH": "/nowhere"}
    return subprocess.run(argv, cwd="/", env=env, capture_output=True, text=True, check=False)


def test_the_command_is_there_for_this_job_and_the_next(copy: Path) -> None:
    found = run(copy, "sh", "-c", "command -v omni-ci")
    assert (found.returncode, found.stdout) == (0, f"{copy}/bin/omni-ci\n"), found.stderr
    assert "made .venv" in found.stderr
    assert len([*(copy / "tasks" / "__pycache__").glob("one.*.pyc")]) == 1
    (packages,) = (copy / ".venv" / "lib").glob("python*/site-packages")
    (packages / "invoke.py").write_text(INVOKE)
    done = run(copy, "omni-ci", "pipelines.bootstrap", "cuda", "a b")
    assert (done.returncode, done.stdout) == (0, f"-r {copy} pipelines.bootstrap cuda a b {copy}/bin\n"), done.stderr
    assert "made .venv" not in done.stderr
    assert run(copy, "sh", "-c", "exit 75").returncode == 75


def test_no_command_and_an_unknown_one(copy: Path) -> None:
    nothing = run(copy)
    assert (nothing.returncode, nothing.stderr) == (64, "error: no command: on_agent.py omni-ci TASK ...\n")
    assert not (copy / ".venv").exists()
    unknown = run(copy, "no-such-command")
    assert unknown.returncode == 64
    assert unknown.stderr.endswith("error: there is no command no-such-command.\n")
