"""What an image says of itself: the platform and labels of its configuration (OCI image specification, config.md)."""

from __future__ import annotations

from dataclasses import dataclass

from packaging.version import InvalidVersion, Version

from tasks.registry.assembling import Source, images_of, read_facts
from tasks.registry.documents import LARGEST, Descriptor, Manifest, Platform, digest_of
from tasks.registry.interface import Repository
from tasks.support.errors import DataError, MissingInputError

_PREFIX = "org.opencontainers.image."
REVISION = f"{_PREFIX}revision"
VERSION = f"{_PREFIX}version"
CREATED = f"{_PREFIX}created"
_LONGEST = 128
_SHOWN = 40


@dataclass(frozen=True)
class Labels:
    """An image's platform, and its labels as far as publishing reads them; None where it has none."""

    platform: Platform
    revision: str | None = None
    version: str | None = None
    created: str | None = None

    @property
    def public_version(self) -> Version | None:
        """Return the version without its local part, or None when the label is missing or no version."""
        try:
            return Version(Version(self.version or "").public)
        except InvalidVersion:
            return None


def read_config(repository: Repository, image: Manifest) -> bytes:
    """Read the configuration of an image manifest; DataError when its bytes are others than the manifest says."""
    config = image.config
    if config is None:
        raise DataError(f"{repository.name}@{image.digest} is an index, not an image")
    return _small_blob(repository, config)


def labels_of(config: bytes, where: str) -> Labels:
    """Return what a configuration says; DataError naming ``where`` when it is malformed."""
    facts = read_facts(config, where)
    revision, version, created = (facts.labels.get(name) or None for name in (REVISION, VERSION, CREATED))
    return Labels(facts.platform, _shortened(revision), _shortened(version), created if _is_plain(created) else None)


def _is_plain(text: str | None) -> bool:
    """Say whether a label is what such a label can be: anybody who pushes an image writes it."""
    return text is not None and len(text) <= _LONGEST and text.isprintable()


def _shortened(text: str | None) -> str | None:
    """Return a label as it is, or where it is none of ours its beginning, escaped: it is compared and shown only."""
    if text is None or _is_plain(text):
        return text
    return f"{text[:_SHOWN]!a}..."


def image_manifests(repository: Repository, top: Manifest, name: str) -> list[Manifest]:
    """Return the image manifests of an index without its attestations, or of an image the image itself.

    Raises DataError for an index of indexes, MissingInputError when a child is not there.
    """
    if not top.is_index:
        return [top]
    found = []
    for child in images_of(Source(name, top)):
        image = repository.manifest(child.digest)
        if image is None:
            raise MissingInputError(f"{name} lists {child.digest}, which is not in {repository.name}")
        found.append(image)
    return found


def _small_blob(repository: Repository, blob: Descriptor) -> bytes:
    if blob.size > LARGEST:
        raise DataError(f"the configuration {blob.digest} in {repository.name} has {blob.size} bytes")
    data = bytearray()
    for piece in repository.read_blob(blob.digest):
        data += piece
        if len(data) > blob.size:
            break
    if digest_of(bytes(data)) != blob.digest:
        raise DataError(f"digest mismatch: {repository.name} sent other bytes for {blob.digest}")
    return bytes(data)
