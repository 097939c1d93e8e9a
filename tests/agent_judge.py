"""Programs that judge pipelines as Buildkite's agent does: the agent itself, its own library, or a stand-in."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.agent_standin import Agent

PARSER = Path(__file__).resolve().parent / "agent_parser"
FLAGS = ("pipeline", "upload", "--dry-run", "--format", "json", "--agent-access-token", "x", "--reject-secrets")
COMMIT = "0123456789abcdef" * 2 + "01234567"


@dataclass(frozen=True)
class Judge:
    """A program that judges pipelines, and what it is. ``reads`` says whether it really does."""

    program: str
    what: str
    reads: bool = True

    def dry_run(self, document: str) -> dict[str, Any]:
        """Return what the agent would send, its interpolation done; fail with what it says otherwise."""
        answer = self.run(document)
        assert answer.returncode == 0, f"{self.what}: {answer.stderr}"
        if not self.reads:
            return {}
        found: dict[str, Any] = json.loads(answer.stdout)
        return found

    def run(self, document: str) -> subprocess.CompletedProcess[str]:
        """Run it on a document, in an environment like that of a job."""
        environment = {"PATH": os.defpath, "HOME": "/nowhere", "BUILDKITE_COMMIT": COMMIT}
        return subprocess.run(
            [self.program, *FLAGS], input=document, env=environment, capture_output=True, text=True, check=False
        )


def _go(*words: str) -> str | None:
    go = shutil.which("go")
    if go is None:
        return None
    done = subprocess.run([go, *words], cwd=PARSER, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def find_judge(folder: Path) -> Judge:
    """Return the best judge that this machine has; what has to be made is put into ``folder``."""
    programs = _go("env", "GOPATH")
    found = shutil.which("buildkite-agent") or (programs and shutil.which("buildkite-agent", path=f"{programs}/bin"))
    built = folder / "buildkite-agent"
    if found:
        return Judge(found, "the real agent")
    if _go("build", "-o", str(built), ".") is not None and built.exists():
        return Judge(str(built), "the agent's own pipeline library, not the agent")
    stand_in = Agent(folder / "stand-in")
    return Judge(str(stand_in.folder / "buildkite-agent"), "a stand-in that takes everything", reads=False)
