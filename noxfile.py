"""The checks of this repository: `nox` runs the fast tests, `nox -s lint typecheck tests` everything but the slow ones.

The sessions make no environment: they use the interpreter that runs nox, which scripts/test takes from `.venv`.
`nox -l` needs nothing but nox.
"""

from __future__ import annotations

import logging
import os
import shlex
import sys
from pathlib import Path

import nox

ROOT = Path(__file__).resolve().parent
# The console script `nox` does not put this folder on the path, and sessions call the same functions as the tasks.
sys.path.insert(0, str(ROOT))

nox.needs_version = ">=2026.10.20"
nox.options.sessions = ["tests"]
nox.options.default_venv_backend = "none"
nox.options.error_on_external_run = True

FAST = "not slow and not service and not network"
# Python files whose names do not say so: ruff looks at them when it is told to.
SCRIPTS = ("scripts/lock", "scripts/rehearse", "scripts/test")


@nox.session
def tests(session: nox.Session) -> None:
    """Run the fast tests; `-- --all` runs every test, and further words go to pytest.

    Ends with pytest's own exit code and pytest's own last line, where nox would give 1 and add a line.
    """
    words = list(session.posargs)
    everything = words[:1] == ["--all"]
    # Tests with real servers and processes mostly wait, so twice as many as there are cores run at a time.
    workers = min(8, (os.cpu_count() or 1) * (2 if everything else 1))
    command = [sys.executable, "-m", "pytest", "-n", str(workers), "--dist", "worksteal"]
    if not everything:
        command += ["-m", FAST]
    _keep_back(f"Session {session.name} was successful", f"Command {shlex.join(command[:3])}")
    try:
        # A test's servers are stopped by fixtures, which must be given the time.
        session.run(*command, *words[everything:], external=True, interrupt_timeout=60, terminate_timeout=30)
    except nox.command.CommandFailed as failure:
        if session.parallel or not failure.return_code:
            raise
        # nox turns every failure into 1. A signal becomes 128+n, as in a shell.
        code = failure.return_code
        sys.exit(code if code > 0 else 128 - code)


@nox.session(default=False, allow_parallel=True)
def lint(session: nox.Session) -> None:
    """Run every check of the text: ruff, its format, the allowed imports, the locks. All run, whatever fails."""
    scripts = Path(sys.executable).parent
    python = (sys.executable, "-m")
    _all(
        session,
        [*python, "ruff", "check", ".", *SCRIPTS],
        [*python, "ruff", "format", "--check", ".", *SCRIPTS],
        [str(scripts / "lint-imports"), "--no-cache"],
        [sys.executable, "scripts/lock", "--check"],
    )


@nox.session(default=False, allow_parallel=True)
def typecheck(session: nox.Session) -> None:
    """Run mypy, strict, over everything."""
    session.run(sys.executable, "-m", "mypy", *session.posargs, external=True)


def _all(session: nox.Session, *commands: list[str]) -> None:
    """Run every command, and fail at the end if one did: nox itself stops at the first."""
    failed = []
    for command in commands:
        try:
            session.run(*command, external=True)
        except nox.command.CommandFailed:
            failed.append(shlex.join([Path(command[0]).name, *command[1:]]))
    if failed:
        session.error("failed: " + " · ".join(failed))


def _keep_back(*starts: str) -> None:
    """Keep nox's own verdicts on pytest off the screen, so that pytest's summary is the last line there."""
    logging.getLogger("nox").addFilter(lambda record: not record.getMessage().startswith(starts))
