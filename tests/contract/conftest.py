"""Running the real ``invoke`` executable as a person would: in a fresh process, with a clean environment."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
INHERITED = ("PATH", "LANG", "TMPDIR", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Count all cases of a test but its first as slow: each starts a process of its own, for a second or more."""
    seen: set[str] = set()
    for item in items:
        if Path(__file__).parent not in item.path.parents:
            continue
        name = item.nodeid.partition("[")[0]
        if name in seen:
            item.add_marker(pytest.mark.slow)
        seen.add(name)


@dataclass(frozen=True)
class Answer:
    """What a process said and how it ended."""

    code: int
    out: str
    err: str


Invoke = Callable[..., Answer]


def bare_site(folder: Path, *names: str) -> Path:
    """Make a site folder that holds only these distributions of the running python, for ``python -S``."""
    folder.mkdir()
    for name in names:
        installed = distribution(name)
        for part in {file.parts[0] for file in installed.files or () if file.parts[0] != ".."}:
            (folder / part).symlink_to(str(installed.locate_file(part)))
    return folder


@pytest.fixture
def invoke(tmp_path: Path) -> Invoke:
    """Return a function that runs ``invoke`` with words, environment additions and a folder to start in."""
    home = tmp_path / "home"
    home.mkdir()

    def run(*words: str, env: Mapping[str, str] | None = None, cwd: Path = ROOT) -> Answer:
        environment = {name: os.environ[name] for name in INHERITED if name in os.environ}
        environment |= {"HOME": str(home), "PYTHONWARNINGS": "error::SyntaxWarning", **(env or {})}
        argv = [sys.executable, "-m", "invoke", "-r", str(ROOT), *words]
        done = subprocess.run(
            argv, cwd=cwd, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
        )
        return Answer(done.returncode, done.stdout, done.stderr)

    return run
