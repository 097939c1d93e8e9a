"""Real registries for tests: Debian's ``docker-registry`` on loopback ports, each with a folder of its own."""

from __future__ import annotations

import contextlib
import http.client
import json
import secrets
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tasks.support.settings import Settings, load
from tests.services import find_program, free_ports, running, service_missing

if TYPE_CHECKING:
    from tasks.registry.interface import Repository


@dataclass(frozen=True)
class Registry:
    """A running registry. ``storage`` is the root of its blobs and repositories, ``log`` what it says.

    ``environment`` is what a process needs to be let in, and keeps it from looking for credentials elsewhere.
    """

    address: str
    storage: Path
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def settings(self) -> Settings:
        """Return settings with nothing but this registry's environment."""
        return load(environment=self.environment)

    def repository(self, name: str) -> Repository:
        """Return a repository of this registry, through the code under test."""
        from tasks.registry.opening import open_repository

        return open_repository(f"{self.address}/{name}", self.settings)

    def new_name(self) -> str:
        """Return the name of a repository that nobody has used."""
        return f"test/{secrets.token_hex(8)}"

    def blobs(self) -> set[str]:
        """Return the digests of all blobs and manifests that it holds, read from its disk."""
        found = self.storage.glob("docker/registry/v2/blobs/sha256/??/*/data")
        return {f"sha256:{path.parent.name}" for path in found}

    def uploads(self, name: str) -> list[Path]:
        """Return the upload sessions of a repository that nobody has ended, read from its disk."""
        # A cancelled one leaves its folder, with only the state of its hash in it.
        return sorted(self.storage.glob(f"docker/registry/v2/repositories/{name}/_uploads/*/startedat"))


@contextlib.contextmanager
def registry_in(folder: Path, auth: Mapping[str, Any] | None = None) -> Iterator[Registry]:
    """Run a registry with its data in ``folder``, removed at the end; skip where the program is missing.

    ``auth`` is that section of its configuration.
    """
    program = find_program("docker-registry")
    if program is None:
        service_missing("the registry is missing: no `docker-registry` (apt-get install docker-registry)")
    try:
        for attempt in range(3):
            home = folder / f"registry-{attempt}"
            (home / "storage").mkdir(parents=True)
            address = f"127.0.0.1:{free_ports(1)[0]}"
            (home / "no-docker").mkdir()
            registry = Registry(
                address, home / "storage", home / "log", {"DOCKER_CONFIG": str(home / "no-docker"), "HOME": str(home)}
            )
            config = home / "config.yml"
            config.write_text(json.dumps(_configuration(registry, auth)))  # JSON is YAML
            with running([program, "serve", str(config)], folder=home, ready=lambda: _answers(address)) as is_ready:  # noqa: B023 - called in this turn
                if is_ready:
                    yield registry
                    return
        last_words = registry.log.read_text(errors="replace")[-2000:]
        service_missing(f"the registry did not start:\n{last_words}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _configuration(registry: Registry, auth: Mapping[str, Any] | None) -> dict[str, Any]:
    configuration: dict[str, Any] = {
        "version": "0.1",
        "log": {"level": "info", "accesslog": {"disabled": False}},
        "storage": {
            "filesystem": {"rootdirectory": str(registry.storage)},
            "delete": {"enabled": True},
            "maintenance": {"uploadpurging": {"enabled": False}},
        },
        "http": {"addr": registry.address, "secret": secrets.token_hex(16)},
    }
    return configuration | ({"auth": dict(auth)} if auth else {})


def _answers(address: str) -> bool:
    connection = http.client.HTTPConnection(address, timeout=5)
    with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
        connection.request("GET", "/v2/")
        return connection.getresponse().status in {200, 401}
    return False
