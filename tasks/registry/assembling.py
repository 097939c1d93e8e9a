"""Multi-arch indexes from staged images: bytes in, bytes out; nothing is asked of a registry here.

Sources: OCI image specification (image-index.md, config.md); BuildKit's attestation-storage.md for how an index
names the image that an attestation is about; containerd's platform defaults for what ``variant`` means.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from tasks.registry.documents import (
    DOCKER_INDEX,
    INDEXES,
    MANIFESTS,
    OCI_INDEX,
    OCI_MANIFEST,
    REFERENCE_DIGEST,
    REFERENCE_TYPE,
    Descriptor,
    Manifest,
    Platform,
    parse_json,
)
from tasks.support.errors import DataError, MissingInputError

_DEFAULT_VARIANTS = {"amd64": "v1", "arm64": "v8"}
_FIRST_KEYS = ("mediaType", "digest", "size", "platform", "annotations")
_PLATFORM_KEYS = ("architecture", "os", "variant")


@dataclass(frozen=True)
class Source:
    """A staged reference: its name for messages, its manifest or index, and what it must be an image of.

    ``config`` is the bytes of an image manifest's configuration, which knows the platform; an index knows it itself.
    """

    name: str
    manifest: Manifest
    config: bytes | None = None
    platform: Platform | None = None


@dataclass(frozen=True)
class ImageFacts:
    """What an image's configuration says: its platform and its labels."""

    platform: Platform
    labels: Mapping[str, str]


def read_facts(config: bytes, where: str) -> ImageFacts:
    """Read an image configuration; DataError naming ``where`` when it is malformed."""
    try:
        document = parse_json(config)
        platform = Platform.read(document)
        labels = (document.get("config") or {}).get("Labels") or {}
        pairs = dict(labels.items())
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"malformed image configuration of {where}: {error!r}") from error
    if not all(isinstance(word, str) for pair in pairs.items() for word in pair):
        raise DataError(f"malformed image configuration of {where}")
    return ImageFacts(normal(platform), MappingProxyType(pairs))


def normal(platform: Platform) -> Platform:
    """Return a platform without the variant that its architecture means anyway: ``linux/arm64/v8`` is linux/arm64."""
    if platform.variant and _DEFAULT_VARIANTS.get(platform.architecture) == platform.variant:
        return replace(platform, variant="")
    return platform


def images_of(source: Source) -> tuple[Descriptor, ...]:
    """Return a source's images, each with its platform; DataError when one is not what the source must be.

    Children of an index that say neither a platform nor whose attestation they are, and indexes in an index,
    are refused: clients would choose one of them or fail on them.
    """
    found = tuple(child for child in _children(source) if not _is_attestation(child))
    for child in found:
        if child.media_type in INDEXES:
            raise DataError(f"an index in an index: {source.name} lists {child.digest}")
        if child.media_type not in MANIFESTS:
            raise DataError(f"not an image: {source.name} lists {child.digest} as {child.media_type}")
        if child.platform is None or "unknown" in {child.platform.os, child.platform.architecture}:
            raise DataError(f"an image without a platform: {source.name} lists {child.digest}")
        if source.platform is not None and normal(child.platform) != normal(source.platform):
            raise DataError(
                f"{source.name} is an image of {child.platform}, not of {source.platform}",
                hint="it was built for another platform or pushed under another's tag; build it again",
            )
    if not found:
        raise DataError(f"an index without an image: {source.name}")
    return found


def attestations_of(source: Source) -> dict[str, tuple[Descriptor, ...]]:
    """Return a source's attestation manifests, in its order, by the digest of the image that they are about.

    One about an image that is not in the source is refused with a DataError. Leaving it out would lose a
    provenance in silence, and it means that the source was changed after its build.
    """
    subjects = {child.digest for child in _children(source) if not _is_attestation(child)}
    found: dict[str, tuple[Descriptor, ...]] = {}
    for child in _children(source):
        if not _is_attestation(child):
            continue
        if child.attests not in subjects:
            about = child.annotations.get(REFERENCE_DIGEST, "nothing")
            raise DataError(
                f"{source.name} has the attestation {child.digest} about {about}, which is not in it",
                hint="build the image again, or publish without attestations",
            )
        if child.digest not in {other.digest for other in found.get(child.attests, ())}:
            found[child.attests] = (*found.get(child.attests, ()), child)
    return found


def assemble(sources: Sequence[Source], platforms: Sequence[Platform], *, attestations: bool = True) -> Manifest:
    """Make one flat index of exactly one image for each platform, in the order of ``platforms``.

    Each image's attestations follow it, with their annotations, unless they are not wanted. Descriptors keep
    every field that they had. It is an OCI index if any child is OCI's. The same children give the same bytes,
    whatever the order of the sources. MissingInputError for a platform without an image; DataError for one with
    two, for an image of another platform, and for what ``images_of`` and ``attestations_of`` refuse.
    """
    wanted = [normal(platform) for platform in platforms]
    chosen: dict[Platform, tuple[Source, Descriptor]] = {}
    for source in sources:
        for image in images_of(source):
            platform = normal(image.platform or Platform("", ""))
            if platform not in wanted:
                listed = ", ".join(map(str, platforms))
                raise DataError(f"{source.name} holds an image of {image.platform}; wanted are {listed}")
            if platform in chosen:
                names = " and ".join(dict.fromkeys((chosen[platform][0].name, source.name)))
                raise DataError(
                    f"two images of {image.platform}: {chosen[platform][1].digest}, {image.digest} ({names})"
                )
            chosen[platform] = (source, image)
    missing = [str(shown) for shown, platform in zip(platforms, wanted, strict=True) if platform not in chosen]
    if missing:
        names = ", ".join(source.name for source in sources) or "no source at all"
        raise MissingInputError(f"no image of {', '.join(missing)} in {names}")
    children: list[Descriptor] = []
    for platform in dict.fromkeys(wanted):
        source, image = chosen[platform]
        children += (image, *(attestations_of(source).get(image.digest, ()) if attestations else ()))
    return _index(children)


def _children(source: Source) -> tuple[Descriptor, ...]:
    """Return what an index lists, or an image manifest itself with the platform that its configuration says."""
    if source.manifest.is_index:
        return source.manifest.children
    if source.config is None:
        raise DataError(f"the configuration is needed to know the platform of {source.name}")
    return (source.manifest.descriptor(read_facts(source.config, source.name).platform),)


def _is_attestation(child: Descriptor) -> bool:
    return REFERENCE_TYPE in child.annotations


def _index(children: Sequence[Descriptor]) -> Manifest:
    is_oci = any(child.media_type == OCI_MANIFEST for child in children)
    media_type = OCI_INDEX if is_oci else DOCKER_INDEX
    document = {
        "schemaVersion": 2,
        "mediaType": media_type,
        "manifests": [_written(child) for child in children],
    }
    return Manifest(media_type, json.dumps(document, indent=2).encode())


def _written(child: Descriptor) -> dict[str, Any]:
    """Return a descriptor as a JSON object whose keys have one order."""
    document: dict[str, Any] = {"mediaType": child.media_type, "digest": child.digest, "size": child.size}
    if child.platform is not None:
        named = {"architecture": child.platform.architecture, "os": child.platform.os}
        document["platform"] = named | ({"variant": child.platform.variant} if child.platform.variant else {})
    document |= child.document
    if isinstance(document.get("platform"), Mapping):
        document["platform"] = _ordered(document["platform"], _PLATFORM_KEYS)
    if isinstance(document.get("annotations"), Mapping):
        document["annotations"] = _ordered(document["annotations"], ())
    return _ordered(document, _FIRST_KEYS)


def _ordered(document: Mapping[str, Any], first: Sequence[str]) -> dict[str, Any]:
    keys = [*(key for key in first if key in document), *sorted(key for key in document if key not in first)]
    return {key: document[key] for key in keys}
