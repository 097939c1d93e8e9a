"""Which repository an address means."""

from __future__ import annotations

from tasks.registry.interface import Repository
from tasks.registry.references import RepositoryName
from tasks.support.settings import Settings


def open_repository(name: str | RepositoryName, settings: Settings) -> Repository:
    """Return the repository at an address; nothing is asked of a registry before the first call."""
    raise NotImplementedError(str(name), settings.profile)
