"""The real Docker Engine for tests: Debian's ``dockerd``, started by hand with folders and a socket of its own."""

from __future__ import annotations

import contextlib
import io
import os
import select
import shutil
import signal
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

from tasks.support.settings import Settings, load
from tests.services import find_program, running, service_missing

CLIENT = Path("/usr/bin/docker")
"""Debian's own client: it has BuildKit built in. One before it on PATH may lack the buildx plugin."""


@dataclass(frozen=True)
class DockerEngine:
    """A running engine; ``folder`` is removed with it. It has no network but the host's, and reaches no registry
    but those on loopback."""

    folder: Path

    @property
    def address(self) -> str:
        """Return what DOCKER_HOST is set to."""
        return f"unix://{self.folder}/s"

    @property
    def environment(self) -> Mapping[str, str]:
        """Return what a process needs to use this engine, and no login of whoever runs the tests."""
        return {
            "DOCKER_HOST": self.address,
            "DOCKER_CONFIG": str(self.folder / "config"),
            "HOME": str(self.folder),
            "PATH": f"{CLIENT.parent}:{os.defpath}",
        }

    @property
    def settings(self) -> Settings:
        """Return settings with nothing but this engine's environment."""
        return load(environment=self.environment)

    @property
    def root(self) -> Path:
        """Return the engine's data root."""
        return self.folder / "d"

    @cached_property
    def client(self) -> Any:
        """Return docker-py's own client, for looking behind our back."""
        return import_module("docker").APIClient(self.address, version="auto", timeout=60)

    def docker(self, *words: str | Path, stdin: bytes | None = None) -> str:
        """Run Debian's client against this engine and return what it says."""
        done = subprocess.run(
            [CLIENT, *words],
            input=stdin,
            capture_output=True,
            check=False,
            env={**self.environment, "DOCKER_BUILDKIT": "1"},
        )
        assert done.returncode == 0, done.stderr.decode(errors="replace")
        return done.stdout.decode().strip()

    def stop(self) -> None:
        """Ask the engine and what it started to end, and wait until they have."""
        _stop(self.folder / "p")
        _stop(self.folder / "x" / "containerd" / "containerd.pid")

    def load_files(self, tag: str, files: Mapping[str, bytes]) -> str:
        """Make an image of files that can be run when they are programs, and return its id."""
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            for name, data in files.items():
                facts = tarfile.TarInfo(name.lstrip("/"))
                facts.size, facts.mode = len(data), 0o755
                tar.addfile(facts, io.BytesIO(data))
        return self.docker("import", "-", tag, stdin=archive.getvalue())

    def load_shell(self, tag: str) -> str:
        """Make an image of this machine's own shell and a few programs, for recipes with steps; return its id."""
        programs = ("/bin/sh", "/bin/cat", "/bin/sleep", "/bin/env")
        return self.load_files(tag, {name: Path(name).read_bytes() for name in closure(programs)})


def closure(programs: Iterable[str]) -> set[str]:
    """Return programs and the libraries that they load, under the names by which they are looked for."""
    found = set(programs)
    for name in programs:
        said = subprocess.run(["ldd", name], capture_output=True, text=True, check=False).stdout
        found |= {word for line in said.splitlines() for word in line.split() if word.startswith("/")}
    return found


@contextlib.contextmanager
def engine_in(folder: Path) -> Iterator[DockerEngine]:
    """Run an engine in ``folder``, whose path must be short; skip where it cannot run (not root, no dockerd)."""
    program = find_program("dockerd") or shutil.which("dockerd", path="/usr/sbin")
    if program is None or not CLIENT.exists():
        service_missing("the Docker Engine is missing: no `dockerd` (apt-get install docker.io)")
    if os.geteuid() != 0:
        service_missing("the Docker Engine can only be started by root")
    engine = DockerEngine(folder)
    (folder / "config").mkdir()
    argv = [
        *("/usr/bin/env", f"PATH=/usr/sbin:/sbin:{os.defpath}", program),  # runc is there
        *("--data-root", str(engine.root), "--exec-root", str(folder / "x"), "--pidfile", str(folder / "p")),
        *("--host", engine.address, "--bridge=none", "--iptables=false", "--ip-masq=false", "--log-level=warn"),
    ]
    with running(argv, folder=folder, ready=lambda: _answers(engine)) as is_ready:
        try:
            if not is_ready:
                words = (folder / "log").read_text(errors="replace")[-2000:]
                service_missing(f"the Docker Engine did not start:\n{words}")
            yield engine
        finally:
            engine.stop()
    for mounted in _mounts_below(folder):
        subprocess.run(["umount", mounted], check=False)


@contextlib.contextmanager
def own_engine() -> Iterator[DockerEngine]:
    """Run an engine in a folder with a short path, because a unix socket's name has at most 107 bytes."""
    folder = Path(tempfile.mkdtemp(prefix="ed-", dir="/tmp"))
    try:
        with engine_in(folder) as engine:
            yield engine
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _answers(engine: DockerEngine) -> bool:
    with contextlib.suppress(Exception):
        return bool(engine.client.ping())
    return False


def _stop(pidfile: Path) -> None:
    """Ask a process of ours to end, and wait until it has: it takes its own children and mounts with it."""
    with contextlib.suppress(OSError, ValueError):
        pid = int(pidfile.read_text())
        handle = os.pidfd_open(pid)
        try:
            signal.pidfd_send_signal(handle, signal.SIGTERM)
            select.select([handle], [], [], 20)
        finally:
            os.close(handle)


def _mounts_below(folder: Path) -> list[str]:
    """Return what is mounted in a folder, the deepest first; the engine leaves its network's name space mounted."""
    points = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    return sorted((point for point in points if point.startswith(f"{folder}/")), key=len, reverse=True)
