"""Where tags can be deleted one by one: DockerHub through its account API, and an OCI layout's folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from tasks.registry.hub import open_hub
from tasks.registry.oci_layout import LayoutRepository
from tasks.registry.references import DOCKER_HUB, RepositoryName
from tasks.registry.retention import StoredTag
from tasks.support.errors import ConfigurationError
from tasks.support.settings import Settings


class TagKeeper(Protocol):
    """A repository whose tags can be listed, looked up and deleted one by one.

    Only "not there" is an answer; every other failure raises one of our errors.
    """

    @property
    def name(self) -> str:
        """Return the repository's name, for people."""

    def list_tags(self) -> Sequence[StoredTag]:
        """Return every tag; raises when the list cannot be proved complete."""

    def find_tag(self, tag: str) -> StoredTag | None:
        """Return a tag as it is now, None when it is not there."""

    def delete_tag(self, tag: str) -> bool:
        """Delete a tag and see that it is gone, leaving others on its manifest; False when it was gone already."""


@dataclass(frozen=True)
class LayoutTag:
    """A tag of an OCI layout. ``size`` is its manifest's, in bytes."""

    name: str
    digest: str | None
    last_pushed: datetime | None
    size: int = 0


class LayoutKeeper:
    """The tags of an OCI layout, pushed when ``pushed`` says so, else when the manifest's file was written."""

    def __init__(self, repository: LayoutRepository, pushed: Mapping[str, datetime] | None = None) -> None:
        self._repository = repository
        self._pushed = pushed or {}
        self.name = str(repository.name)

    def list_tags(self) -> tuple[LayoutTag, ...]:
        """Return every tag, sorted by name."""
        found = (self.find_tag(tag) for tag in self._repository.tags())
        return tuple(tag for tag in found if tag is not None)

    def find_tag(self, tag: str) -> LayoutTag | None:
        """Return a tag as it is now, None when it is not there."""
        descriptor = self._repository.head(tag)
        if descriptor is None:
            return None
        return LayoutTag(
            tag, descriptor.digest, self._pushed.get(tag) or self._written(descriptor.digest), descriptor.size
        )

    def delete_tag(self, tag: str) -> bool:
        """Delete a tag; False when it was gone already."""
        return self._repository.delete_tag(tag)

    def _written(self, digest: str) -> datetime | None:
        path = self._repository.folder / "blobs" / "sha256" / digest.removeprefix("sha256:")
        try:
            return datetime.fromtimestamp(path.stat().st_mtime, UTC)
        except OSError:
            return None


def open_keeper(name: RepositoryName, settings: Settings, pushed: Mapping[str, datetime] | None = None) -> TagKeeper:
    """Return what lists and deletes the tags of a repository; nothing is sent yet.

    ``pushed`` tells when a layout's tags were pushed (from the ledger). A repository on another registry than
    docker.io goes through the account API that OMNI_CI_HUB_URL names; ConfigurationError when that is not set,
    because registries delete a tag's siblings with it.
    """
    if name.folder is not None:
        return LayoutKeeper(LayoutRepository(name.folder), pushed)
    if name.registry != DOCKER_HUB and settings.hub_url is None:
        raise ConfigurationError(
            f"tags of {name} cannot be deleted one by one",
            hint="that needs DockerHub's account API (docker.io, or OMNI_CI_HUB_URL) or a file: repository",
        )
    return open_hub(name, settings)
