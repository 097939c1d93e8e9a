"""What an image says of itself: the platform and labels of its configuration (OCI image specification, config.md)."""

from __future__ import annotations

import json
from dataclasses import dataclass

from packaging.version import InvalidVersion, Version

from tasks.registry.documents import INDEXES, LARGEST, Descriptor, Manifest, Platform, digest_of
from tasks.registry.interface import Repository
from tasks.support.errors import DataError, MissingInputError

_PREFIX = "org.opencontainers.image."
_SAME_VARIANT = frozenset({"", "v8"})  # of arm64: the only variant there is, written out or not


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


def read_labels(repository: Repository, image: Manifest) -> Labels:
    """Read the configuration of an image manifest; DataError when it is not what the manifest says."""
    config = image.config
    if config is None:
        raise DataError(f"{repository.name}@{image.digest} is an index, not an image")
    try:
        document = json.loads(_small_blob(repository, config))
        labels = (document.get("config") or {}).get("Labels") or {}
        platform = Platform(document["os"], document["architecture"], document.get("variant") or "")
        texts = [labels.get(f"{_PREFIX}{name}") or None for name in ("revision", "version", "created")]
        sound = all(type(text) is str for text in (platform.os, platform.architecture, platform.variant))
        sound = sound and all(text is None or type(text) is str for text in texts)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _malformed(repository, config, repr(error)) from error
    if not sound:
        raise _malformed(repository, config, "something in it is no text")
    return Labels(platform, *texts)


def _small_blob(repository: Repository, blob: Descriptor) -> bytes:
    if blob.size > LARGEST:
        raise _malformed(repository, blob, f"it has {blob.size} bytes")
    data = bytearray()
    for piece in repository.read_blob(blob.digest):
        data += piece
        if len(data) > blob.size:
            break
    if digest_of(bytes(data)) != blob.digest:
        raise DataError(f"digest mismatch: {repository.name} sent other bytes for {blob.digest}")
    return bytes(data)


def _malformed(repository: Repository, blob: Descriptor, reason: str) -> DataError:
    return DataError(f"{repository.name}: the configuration {blob.digest} is malformed: {reason}")


def same_platform(one: Platform, other: Platform) -> bool:
    """Say whether two platforms are the same; the variant of arm64 may be left out."""
    if (one.os, one.architecture) != (other.os, other.architecture):
        return False
    variants = {one.variant, other.variant}
    return len(variants) == 1 or (one.architecture == "arm64" and variants <= _SAME_VARIANT)


def images_of(repository: Repository, top: Manifest) -> list[Manifest]:
    """Return the image manifests of an index without its attestations, or of an image the image itself.

    Raises DataError for an index of indexes, MissingInputError when a child is not there.
    """
    if not top.is_index:
        return [top]
    found = []
    for child in top.children:
        if child.attests is not None:
            continue
        if child.media_type in INDEXES:
            raise DataError(f"{repository.name}@{top.digest} is an index of indexes ({child.digest})")
        image = repository.manifest(child.digest)
        if image is None:
            raise MissingInputError(f"{repository.name}@{top.digest} lists {child.digest}, which is not there")
        found.append(image)
    return found
