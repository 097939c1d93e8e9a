"""A ``buildkite-agent`` for tests: an executable on PATH that records each call and its input, and fails when asked to.

agent = Agent(tmp_path / "agent")
settings = load(environment={"BUILDKITE": "true", "PATH": agent.path})
agent.refuse("pipeline", after=1, code=3, said="fatal: no")
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

_PROGRAM = """#!{python} -IS
import json, os, sys
folder = {folder!r}
data = sys.stdin.buffer.read()
calls = sorted(name for name in os.listdir(folder) if name.startswith("call-"))
with open(os.path.join(folder, "call-%04d" % len(calls)), "w") as file:
    json.dump({{"argv": sys.argv[1:], "stdin": data.decode("utf-8", "surrogateescape")}}, file)
try:
    with open(os.path.join(folder, "refusal.json")) as file:
        refusal = json.load(file)
except FileNotFoundError:
    sys.exit(0)
same = [name for name in calls if json.load(open(os.path.join(folder, name)))["argv"][0] == refusal["command"]]
if sys.argv[1] == refusal["command"] and len(same) >= refusal["after"]:
    sys.stderr.write(refusal["said"] + "\\n")
    sys.exit(refusal["code"])
"""


@dataclass(frozen=True)
class Call:
    """One call of the agent: its words, and what it was given on stdin."""

    argv: tuple[str, ...]
    stdin: str


class Agent:
    """The stand-in and what it recorded."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        program = folder / "buildkite-agent"
        program.write_text(_PROGRAM.format(python=sys.executable, folder=str(folder)))
        program.chmod(0o755)

    @property
    def path(self) -> str:
        """Return a PATH with nothing but the stand-in."""
        return str(self.folder)

    def refuse(self, command: str, *, after: int = 0, code: int = 1, said: str = "fatal: refused") -> None:
        """Let calls of a command fail from the given one on."""
        refusal = {"command": command, "after": after, "code": code, "said": said}
        (self.folder / "refusal.json").write_text(json.dumps(refusal))

    @property
    def calls(self) -> list[Call]:
        """Return what was called so far, in order."""
        found = [json.loads(path.read_text()) for path in sorted(self.folder.glob("call-*"))]
        return [Call(tuple(call["argv"]), call["stdin"]) for call in found]
