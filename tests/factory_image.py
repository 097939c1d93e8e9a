"""Tiny images made from bytes, like those that BuildKit pushes, and large ones that are streamed and never kept."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import random
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tasks.registry.documents import (
    ATTESTATION,
    DOCKER_INDEX,
    DOCKER_MANIFEST,
    OCI_CONFIG,
    OCI_INDEX,
    OCI_LAYER,
    OCI_MANIFEST,
    REFERENCE_DIGEST,
    REFERENCE_TYPE,
    Descriptor,
    Manifest,
    Platform,
    digest_of,
)
from tasks.registry.interface import Repository

DOCKER_CONFIG = "application/vnd.docker.container.image.v1+json"
DOCKER_LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"
IN_TOTO = "application/vnd.in-toto+json"
PREDICATE = "in-toto.io/predicate-type"
REVISION = "org.opencontainers.image.revision"
VERSION = "org.opencontainers.image.version"
COMMIT = "1a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d"
AMD64, ARM64 = Platform("linux", "amd64"), Platform("linux", "arm64")
UNKNOWN = Platform("unknown", "unknown")
PIECE = 1 << 20


@dataclass(frozen=True)
class Content:
    """A blob: its descriptor, the digest of what it unpacks to, and a way to read its bytes again and again."""

    blob: Descriptor
    diff_id: str
    read: Callable[[], Iterator[bytes]]


@dataclass(frozen=True)
class Image:
    """What one reference leads to: the manifest or index itself, every manifest below it, and every blob."""

    top: Manifest
    below: tuple[Manifest, ...]
    contents: tuple[Content, ...]
    platform: Platform | None = None

    @property
    def manifests(self) -> tuple[Manifest, ...]:
        """Return every manifest, children before their index."""
        return (*self.below, self.top)

    @property
    def blobs(self) -> dict[str, Content]:
        """Return the distinct blobs by digest."""
        return {content.blob.digest: content for content in self.contents}

    @property
    def size(self) -> int:
        """Return the bytes of the distinct blobs."""
        return sum(content.blob.size for content in self.blobs.values())


def content(data: bytes, media_type: str, diff_id: str = "") -> Content:
    """Make a blob of bytes."""
    return Content(Descriptor(media_type, digest_of(data), len(data)), diff_id, lambda: iter((data,)))


def layer(files: Mapping[str, bytes], media_type: str = OCI_LAYER) -> Content:
    """Make a layer of files: a tar archive, packed with gzip; the same files give the same bytes."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return content(gzip.compress(raw.getvalue(), mtime=0), media_type, digest_of(raw.getvalue()))


def noise(seed: object, size: int) -> bytes:
    """Return bytes that do not compress; the same seed gives the same."""
    return random.Random(str(seed)).randbytes(size)


def large_layer(seed: object, size: int) -> Content:
    """Make a layer with one file of ``size`` bytes of noise, made anew each time that it is read and never kept."""

    def files() -> Iterator[bytes]:
        member = tarfile.TarInfo("noise.bin")
        member.size = size
        yield member.tobuf(tarfile.PAX_FORMAT)
        block = noise(seed, min(PIECE, size))
        # Much more than deflate's window lies between two equal parts.
        for number in range(-(-size // PIECE)):
            piece = number.to_bytes(8, "big") + block[8:]
            yield piece[: size - number * PIECE]
        yield bytes(-size % 512 + 1024)

    def packed() -> Iterator[bytes]:
        # Level 0: gzip in form, for readers that look, without the time that packing noise would take.
        packer = zlib.compressobj(0, wbits=31)
        for piece in files():
            yield packer.compress(piece)
        yield packer.flush()

    whole, inner, length = hashlib.sha256(), hashlib.sha256(), 0
    for piece in files():
        inner.update(piece)
    for piece in packed():
        whole.update(piece)
        length += len(piece)
    blob = Descriptor(OCI_LAYER, f"sha256:{whole.hexdigest()}", length)
    return Content(blob, f"sha256:{inner.hexdigest()}", packed)


def image(
    architecture: str = "amd64",
    *,
    commit: str | None = COMMIT,
    version: str | None = None,
    layers: Sequence[Content] | None = None,
    os: str = "linux",
    variant: str = "",
    docker: bool = False,
) -> Image:
    """Make an image of one platform. Without ``layers`` it has a shared one and one of its own."""
    if layers is None:
        kind = DOCKER_LAYER if docker else OCI_LAYER
        mine = f"{os}/{architecture}{variant} {commit} {version}".encode(errors="backslashreplace")
        layers = (layer({"etc/base": b"the same for all"}, kind), layer({"etc/image": mine}, kind))
    labels = {key: value for key, value in ((REVISION, commit), (VERSION, version)) if value is not None}
    config: dict[str, Any] = {
        "architecture": architecture,
        "os": os,
        "config": {"Labels": labels},
        "rootfs": {"type": "layers", "diff_ids": [part.diff_id for part in layers]},
        "history": [{"created_by": f"layer {number}"} for number, _ in enumerate(layers)],
    }
    if variant:
        config["variant"] = variant
    packed = content(json.dumps(config).encode(), DOCKER_CONFIG if docker else OCI_CONFIG)
    top = manifest_of(packed, layers, DOCKER_MANIFEST if docker else OCI_MANIFEST)
    return Image(top, (), (*layers, packed), Platform(os, architecture, variant))


def manifest_of(config: Content, layers: Sequence[Content], media_type: str = OCI_MANIFEST) -> Manifest:
    """Write an image manifest, indented as BuildKit does it."""
    document = {
        "schemaVersion": 2,
        "mediaType": media_type,
        "config": descriptor(config.blob),
        "layers": [descriptor(part.blob) for part in layers],
    }
    return Manifest(media_type, json.dumps(document, indent=2).encode())


def attestation(subject: Image) -> Image:
    """Make the attestation manifest that BuildKit puts beside an image: an in-toto statement about its digest."""
    name, _, value = subject.top.digest.partition(":")
    statement: dict[str, Any] = {
        "_type": "https://in-toto.io/Statement/v0.1",
        "predicateType": "https://slsa.dev/provenance/v0.2",
        "subject": [{"name": "image", "digest": {name: value}}],
        "predicate": {"buildType": "https://mobyproject.org/buildkit@v1"},
    }
    part = content(json.dumps(statement).encode(), IN_TOTO)
    part = replace(part, blob=replace(part.blob, annotations={PREDICATE: statement["predicateType"]}))
    rootfs = {"type": "layers", "diff_ids": [part.blob.digest]}
    config = {"architecture": "unknown", "os": "unknown", "config": {}, "rootfs": rootfs}
    packed = content(json.dumps(config).encode(), OCI_CONFIG)
    return Image(manifest_of(packed, (part,)), (), (part, packed), UNKNOWN)


def attested(subject: Image) -> Image:
    """Make what BuildKit pushes for one platform: an index of the image and its attestation manifest."""
    return index(subject, attest=True)


def index(*images: Image, attest: bool = False, docker: bool = False) -> Image:
    """Make an index of images in their order, each followed by its attestation manifest when ``attest`` is set."""
    entries: list[dict[str, Any]] = []
    members: list[Image] = []
    for member in images:
        members.append(member)
        entries.append(descriptor(member.top.descriptor(member.platform)))
        if attest:
            about = attestation(member)
            marks = {REFERENCE_DIGEST: member.top.digest, REFERENCE_TYPE: ATTESTATION}
            members.append(about)
            entries.append(descriptor(replace(about.top.descriptor(UNKNOWN), annotations=marks)))
    media_type = DOCKER_INDEX if docker else OCI_INDEX
    document = {"schemaVersion": 2, "mediaType": media_type, "manifests": entries}
    below = tuple(manifest for member in members for manifest in member.manifests)
    contents = tuple(part for member in members for part in member.contents)
    return Image(Manifest(media_type, json.dumps(document, indent=2).encode()), below, contents)


def descriptor(value: Descriptor) -> dict[str, Any]:
    """Write a descriptor as JSON."""
    written: dict[str, Any] = {"mediaType": value.media_type, "digest": value.digest, "size": value.size}
    if value.platform is not None:
        written["platform"] = {"architecture": value.platform.architecture, "os": value.platform.os}
        if value.platform.variant:
            written["platform"]["variant"] = value.platform.variant
    if value.annotations:
        written["annotations"] = dict(value.annotations)
    return written


def store(made: Image, repository: Repository, tag: str | None = None) -> str:
    """Put an image with everything below it into a repository, under a tag when one is given; return its digest."""
    for part in made.blobs.values():
        if not repository.has_blob(part.blob.digest):
            repository.put_blob(part.blob, part.read())
    for manifest in made.below:
        repository.put_manifest(manifest)
    repository.put_manifest(made.top, tag)
    return made.top.digest


def stage(repository: Repository, commit: str = COMMIT, **options: Any) -> dict[str, Image]:
    """Stage a commit as CI does it: ``<commit>-x86_64`` and ``<commit>-aarch64``, each with its attestation."""
    staged = {
        f"{commit}-x86_64": attested(image("amd64", commit=commit, **options)),
        f"{commit}-aarch64": attested(image("arm64", commit=commit, **options)),
    }
    for tag, made in staged.items():
        store(made, repository, tag)
    return staged
