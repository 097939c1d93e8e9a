"""Which docker client can build here: found by asking each one what it can do, never by its version."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tasks.support.command_line import Changes, CommandFailedError, last_useful_line
from tasks.support.errors import ConfigurationError
from tasks.support.process import Captured, capture
from tasks.support.settings import Settings

DEBIANS = Path("/usr/bin/docker")
"""Asked after those on PATH: Debian's own client has BuildKit built in, a newer one needs the buildx plugin for it."""

_PATIENCE = 30.0
# The classic builder knows neither; with BuildKit asked for, a client that lacks it refuses even its help.
_BUILDKIT = frozenset({"--secret", "--progress"})


@dataclass(frozen=True)
class Client:
    """A docker client that builds with BuildKit, and which of the newer options its ``build`` knows."""

    path: Path
    has_buildx: bool
    has_metadata_file: bool = False

    @property
    def build(self) -> tuple[str | Path, ...]:
        """Return the words that a build starts with."""
        return (self.path, "buildx", "build") if self.has_buildx else (self.path, "build")

    def __str__(self) -> str:
        """Return the client as people read it."""
        return f"{self.path} ({'buildx' if self.has_buildx else 'its own BuildKit'})"


def find_client(settings: Settings, candidates: Iterable[Path] | None = None) -> Client:
    """Return the first client that can build with BuildKit: those on PATH in their order, then Debian's.

    Raises ConfigurationError naming each one and what it lacks.
    """
    lacking = []
    for path in on_path(settings) if candidates is None else candidates:
        found = probe(path)
        if isinstance(found, Client):
            return found
        lacking.append(f"{path}: {found}")
    raise ConfigurationError(
        f"no docker client that builds with BuildKit: {'; '.join(lacking) or 'there is no docker on PATH'}",
        hint="install the buildx plugin beside that client, or Debian's package docker.io",
    )


def on_path(settings: Settings) -> list[Path]:
    """Return every client named docker on PATH and Debian's own, each file once."""
    folders = (settings.variable("PATH") or os.defpath).split(os.pathsep)
    found = [shutil.which("docker", path=folder) for folder in folders if folder]
    paths = [Path(name) for name in found if name]
    if shutil.which(DEBIANS):
        paths.append(DEBIANS)
    # /bin is often a link to /usr/bin.
    return list({path.resolve(): path for path in reversed(paths)}.values())[::-1]


def probe(path: Path) -> Client | str:
    """Ask a client what it can do; a text says why it cannot build with BuildKit. No engine is needed for this."""
    options = _options(_ask(path, "buildx", "build", "--help"))
    if options >= _BUILDKIT:
        return Client(path, True, "--metadata-file" in options)
    answer = _ask(path, "build", "--help", env={"DOCKER_BUILDKIT": "1"})
    options = _options(answer)
    if options >= _BUILDKIT:
        return Client(path, False, "--metadata-file" in options)
    said = last_useful_line(answer.stderr) if answer.code else "its build knows no --secret"
    return said or f"its build --help ended with exit code {answer.code}"


def _ask(path: Path, *words: str, env: Changes | None = None) -> Captured:
    try:
        return capture((path, *words), cwd=Path("/"), env=env, timeout=_PATIENCE, check=False)
    except CommandFailedError as error:
        return Captured(error.code, b"", error.message.encode())


def _options(answer: Captured) -> set[str]:
    words = answer.text.split() if answer.code == 0 else []
    return {word.rstrip(",") for word in words if word.startswith("--")}
