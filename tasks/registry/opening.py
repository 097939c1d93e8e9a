"""Which repository an address means."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from tasks.registry.interface import Repository
from tasks.registry.references import RepositoryName
from tasks.support.errors import UsageError
from tasks.support.settings import Settings

if TYPE_CHECKING:
    from tasks.registry.client import RegistryClient
    from tasks.registry.wire import Patience

_WAYS_IN = ("DOCKERHUB_USERNAME", "DOCKERHUB_TOKEN", "DOCKER_CONFIG", "HOME")

_clients: dict[tuple[object, ...], RegistryClient] = {}
_clients_lock = threading.Lock()


def open_repository(
    name: str | RepositoryName,
    settings: Settings,
    *,
    chunk_bytes: int | None = None,
    patience: Patience | None = None,
) -> Repository:
    """Return the repository at an address; nothing is asked of a registry before the first call.

    Repositories of one registry share its connections, tokens and pauses for the length of the process, as long
    as the settings name the same credentials. ``chunk_bytes`` cuts uploads into requests of that size.
    """
    where = RepositoryName.parse(name) if isinstance(name, str) else name
    if where.folder is not None:
        from tasks.registry.oci_layout import LayoutRepository

        return LayoutRepository(where.folder)
    if where.registry is None:
        raise UsageError(f"not a repository: {where}")
    from tasks.registry.distribution import DistributionRepository

    return DistributionRepository(where, _client_of(where.registry, settings, patience), chunk_bytes=chunk_bytes)


def _client_of(registry: str, settings: Settings, patience: Patience | None) -> RegistryClient:
    from tasks.registry.client import RegistryClient

    key = (registry, patience, *(settings.variable(name) for name in _WAYS_IN))
    with _clients_lock:
        if key not in _clients:
            _clients[key] = RegistryClient(registry, settings, patience)
        return _clients[key]
