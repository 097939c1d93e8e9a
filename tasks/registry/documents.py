"""Manifests, indexes and descriptors as they are on the wire: bytes first, so that digests never change.

Sources: OCI image specification (manifest.md, image-index.md, descriptor.md) and Docker's image manifest version 2,
schema 2, which has the same shape under other media types.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any

from tasks.registry.references import is_digest
from tasks.support.errors import DataError, UsageError

OCI_INDEX = "application/vnd.oci.image.index.v1+json"
OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
OCI_CONFIG = "application/vnd.oci.image.config.v1+json"
OCI_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
DOCKER_INDEX = "application/vnd.docker.distribution.manifest.list.v2+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
INDEXES = frozenset({OCI_INDEX, DOCKER_INDEX})
MANIFESTS = frozenset({OCI_MANIFEST, DOCKER_MANIFEST})
LARGEST = 4 * 1024 * 1024
_SHOWN = 200
"""Bytes of the largest manifest that registries must accept (OCI distribution specification, "Pushing Manifests")."""

REFERENCE_TYPE = "vnd.docker.reference.type"
REFERENCE_DIGEST = "vnd.docker.reference.digest"
ATTESTATION = "attestation-manifest"


def digest_of(data: bytes) -> str:
    """Return the sha256 digest of bytes as registries write it."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def parse_json(data: bytes) -> Any:
    """Parse JSON as registries do; ValueError or RecursionError for anything else.

    Python's own parser also takes UTF-16, UTF-32 and the words NaN and Infinity, which RFC 8259 does not know.
    """
    return json.loads(data.decode("utf-8"), parse_constant=_refuse_constant)


def _refuse_constant(word: str) -> None:
    raise ValueError(f"{word} is no number of JSON")


@dataclass(frozen=True, order=True)
class Platform:
    """An operating system and an architecture, as in ``linux/arm64`` or ``linux/arm/v7``."""

    os: str
    architecture: str
    variant: str = ""

    @classmethod
    def parse(cls, text: str) -> Platform:
        """Read ``os/architecture[/variant]``; UsageError when it is none."""
        parts = text.split("/")
        if len(parts) not in {2, 3} or not all(part.isalnum() and part.isascii() for part in parts):
            raise UsageError(f"not a platform: {text!r}", hint="write it as linux/amd64 or linux/arm64")
        return cls(*parts)

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Platform:
        """Read a JSON object's fields; its variant may be missing or null. KeyError or TypeError when malformed."""
        variant = document.get("variant")
        words = (document["os"], document["architecture"], "" if variant is None else variant)
        if not all(isinstance(word, str) for word in words):
            raise TypeError("a platform's field is not a text")
        return cls(*words)

    def __str__(self) -> str:
        """Return the platform as people write it."""
        return "/".join(filter(None, (self.os, self.architecture, self.variant)))


@dataclass(frozen=True)
class Descriptor:
    """A pointer to content: its media type, digest, size in bytes, and in an index its platform and annotations.

    ``document`` is the JSON object that it was read from, so that fields we do not know survive.
    """

    media_type: str
    digest: str
    size: int
    platform: Platform | None = None
    annotations: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    document: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}), compare=False, repr=False)

    @classmethod
    def read(cls, document: Any, where: str) -> Descriptor:
        """Read a descriptor's JSON object; DataError naming ``where`` when it is malformed."""
        try:
            media_type, digest, size = document["mediaType"], document["digest"], document["size"]
            platform = document.get("platform")
            annotations = {} if document.get("annotations") is None else document["annotations"]
            shown = None if platform is None or platform == {} else Platform.read(platform)
            sound = isinstance(media_type, str) and type(size) is int and size >= 0 and is_digest(digest)
            sound = sound and all(isinstance(text, str) for pair in annotations.items() for text in pair)
        except (KeyError, TypeError, AttributeError) as error:
            raise DataError(f"malformed descriptor in {where}: {_short(document)}") from error
        if not sound:
            raise DataError(f"malformed descriptor in {where}: {_short(document)}")
        return cls(media_type, digest, size, shown, MappingProxyType(annotations), MappingProxyType(document))

    @property
    def attests(self) -> str | None:
        """Return the digest of the image that this attestation manifest is about, or None for anything else."""
        if self.annotations.get(REFERENCE_TYPE) != ATTESTATION:
            return None
        return self.annotations.get(REFERENCE_DIGEST)


@dataclass(frozen=True)
class Manifest:
    """An image manifest or an index: its media type and its exact bytes."""

    media_type: str
    data: bytes = field(repr=False)

    @cached_property
    def digest(self) -> str:
        """Return the sha256 digest of the bytes."""
        return digest_of(self.data)

    @property
    def size(self) -> int:
        """Return the number of bytes."""
        return len(self.data)

    @property
    def is_index(self) -> bool:
        """Say whether it lists other manifests and not layers."""
        return self.media_type in INDEXES

    @cached_property
    def document(self) -> dict[str, Any]:
        """Return the parsed bytes; DataError when they are no JSON object or contradict the media type."""
        try:
            document = parse_json(self.data)
        except (ValueError, RecursionError) as error:
            raise DataError(f"manifest {self.digest} is not JSON: {error}") from error
        if not isinstance(document, dict) or document.get("mediaType", self.media_type) != self.media_type:
            raise DataError(f"manifest {self.digest} is not the {self.media_type} that it was sent as")
        return document

    @cached_property
    def children(self) -> tuple[Descriptor, ...]:
        """Return an index's descriptors in their order; none for an image manifest."""
        return self._descriptors("manifests") if self.is_index else ()

    @cached_property
    def config(self) -> Descriptor | None:
        """Return an image manifest's configuration; None for an index."""
        if self.is_index:
            return None
        return Descriptor.read(self.document.get("config"), f"manifest {self.digest}")

    @cached_property
    def layers(self) -> tuple[Descriptor, ...]:
        """Return an image manifest's layers, lowest first; none for an index."""
        return () if self.is_index else self._descriptors("layers")

    @property
    def blobs(self) -> tuple[Descriptor, ...]:
        """Return everything that must be there before an image manifest: its layers and its configuration."""
        return (*self.layers, self.config) if self.config else ()

    def descriptor(self, platform: Platform | None = None) -> Descriptor:
        """Return a descriptor of this manifest."""
        return Descriptor(self.media_type, self.digest, self.size, platform)

    def _descriptors(self, key: str) -> tuple[Descriptor, ...]:
        rows = self.document.get(key)
        if not isinstance(rows, Sequence) or isinstance(rows, str):
            raise DataError(f"manifest {self.digest} has no {key}")
        return tuple(Descriptor.read(row, f"manifest {self.digest}") for row in rows)


def _short(document: Any) -> str:
    return "nothing" if document is None else repr(document)[:_SHOWN]
