"""What promotion, retention and rehearsals need of a repository, wherever it is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from tasks.registry.documents import Descriptor, Manifest
from tasks.registry.references import RepositoryName

Progress = Callable[[int], None]
"""Called with the number of bytes that were sent since the last call; negative when they are to be sent again."""


class Repository(Protocol):
    """One repository of images. Every method may be called from several threads at once.

    A reference is a tag or a digest, checked already. Only a 404 means "not there"; every other failure raises:
    TemporaryError when trying again later is right (429 and 5xx after bounded retries, a cut connection),
    CredentialsError for 401 and 403, ServiceRefusedError for anything else, DataError when bytes do not have
    their digest.
    """

    @property
    def name(self) -> RepositoryName:
        """Return where the repository is."""

    def head(self, reference: str) -> Descriptor | None:
        """Return what a tag or digest points at, without its body; None when it is not there.

        The digest is that of the registry's answer; a registry that leaves it out is asked for the body.
        """

    def manifest(self, reference: str) -> Manifest | None:
        """Return a manifest and its exact bytes, checked when asked for by digest; None when it is not there."""

    def put_manifest(self, manifest: Manifest, tag: str | None = None) -> None:
        """Store a manifest under its digest, or under a tag, and check the digest that the registry answers with."""

    def has_blob(self, digest: str) -> bool:
        """Say whether the repository holds a blob."""

    def read_blob(self, digest: str, start: int = 0) -> Iterator[bytes]:
        """Yield a blob's bytes from ``start`` on; resumes inside the blob when the connection is cut.

        Does not check the digest: whoever reads it whole does.
        """

    def put_blob(self, blob: Descriptor, chunks: Iterator[bytes], progress: Progress | None = None) -> None:
        """Store a blob. Its bytes are hashed on the way: DataError, and nothing stored, when they are others.

        ``chunks`` can be read once, so this does not retry by itself: TemporaryError when the upload was cut.
        A failure takes back the progress that was told.
        """

    def mount(self, blob: Descriptor, source: Repository) -> bool:
        """Make a blob of another repository of the same registry part of this one; False when that is not possible."""

    def tags(self) -> list[str]:
        """Return every tag, sorted; raises when the listing cannot be proved complete."""

    def delete_manifest(self, digest: str) -> bool:
        """Delete a manifest and every tag on it; False when it was not there."""
