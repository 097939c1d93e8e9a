"""Tiny images for a rehearsal: made of bytes, or built by the engine and copied out of it."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from hashlib import sha1
from pathlib import Path
from typing import Any

from tasks.images import building, catalogue
from tasks.images.clients import find_client
from tasks.images.engine import Engine, open_engine
from tasks.images.planning import BuildPlan
from tasks.registry.documents import OCI_CONFIG, OCI_LAYER, OCI_MANIFEST, Descriptor, Manifest, Platform, digest_of
from tasks.registry.interface import Repository
from tasks.release.channels import ARCHITECTURES, source_tag
from tasks.support.errors import ConfigurationError, CredentialsError, DataError, ServiceRefusedError
from tasks.support.settings import Settings

NAME = "localhost/omni-ci-rehearsal"
"""What the images are called in the engine, so that nobody takes them for the library's."""

_LARGEST = 16 * 1024 * 1024
_GZIP = b"\x1f\x8b"
_DOCKERFILE = "FROM scratch\nCOPY rehearsal.txt /rehearsal.txt\n"


class NoEngineError(Exception):
    """There is no engine here that could build: a rehearsal goes on without one."""


def made_up_commit(seed: str) -> str:
    """Return the hash of a commit that nobody made; the same for the same seed."""
    return sha1(f"rehearsal {seed}".encode(), usedforsecurity=False).hexdigest()


@dataclass(frozen=True)
class Nightly:
    """One nightly of a rehearsal: its commit and the commit's time (RFC 3339)."""

    commit: str
    time: str

    @property
    def labels(self) -> Mapping[str, str]:
        """Return the labels of its images (OCI image specification, annotations.md)."""
        return {
            "org.opencontainers.image.title": "rehearsal image",
            "org.opencontainers.image.revision": self.commit,
            "org.opencontainers.image.created": self.time,
        }

    def text(self, platform: Platform) -> str:
        """Return what the only file of an image says."""
        return f"A rehearsal image of {self.commit} for {platform}; it holds nothing else.\n"


def make(staging: Repository, nightly: Nightly, platform: Platform) -> None:
    """Stage an image made of bytes: one layer with one file."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as archive:
        data = nightly.text(platform).encode()
        member = tarfile.TarInfo("rehearsal.txt")
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))
    layer = raw.getvalue()
    config = {
        "created": nightly.time,
        "os": platform.os,
        "architecture": platform.architecture,
        "config": {"Labels": dict(nightly.labels)},
        "rootfs": {"type": "layers", "diff_ids": [digest_of(layer)]},
    }
    _put(staging, nightly, platform, json.dumps(config, sort_keys=True).encode(), [layer])


@contextmanager
def builder(settings: Settings, folder: Path, staging: Repository) -> Iterator[Callable[[Nightly, Platform], None]]:
    """Yield what builds an image with the engine and stages it; NoEngineError when none can be used here."""
    with ExitStack() as stack:
        try:
            find_client(settings)
            engine = stack.enter_context(open_engine(settings))
        except (ServiceRefusedError, CredentialsError, ConfigurationError) as error:
            raise NoEngineError(error.message) from error

        def build(nightly: Nightly, platform: Platform) -> None:
            config, layers = _build(settings, engine, folder, nightly, platform)
            _put(staging, nightly, platform, config, layers)

        yield build


def _build(
    settings: Settings, engine: Engine, folder: Path, nightly: Nightly, platform: Platform
) -> tuple[bytes, list[bytes]]:
    """Build an image, and return its configuration and layers; nothing of it stays in the engine."""
    tag = f"{NAME}:{source_tag(nightly.commit, _architecture(platform))}"
    context = folder / tag.partition(":")[2]
    context.mkdir(parents=True)
    (context / "rehearsal.txt").write_text(nightly.text(platform), encoding="utf-8")
    (context / "Dockerfile").write_text(_DOCKERFILE, encoding="utf-8")
    plan = BuildPlan(
        image="rehearsal",
        device="cpu",
        platform=platform,
        engine=catalogue.Engine.DOCKER,
        context=context,
        dockerfile=context / "Dockerfile",
        target=None,
        args={},
        tags=(tag,),
        labels=nightly.labels,
        recipe="",
        reusable=False,
        local=True,
        repository=NAME,
    )
    building.build(plan, settings, catalogue.load(), logs=folder / "logs", pauses=())
    try:
        with engine.api(f"copying {tag} out of the engine") as client:
            return _unpack(client.get_image(tag), tag)
    finally:
        with engine.api(f"removing {tag} from the engine") as client:
            client.remove_image(tag)


def _architecture(platform: Platform) -> str:
    return next(name for name, known in ARCHITECTURES.items() if known == platform)


def _unpack(chunks: Iterable[bytes], tag: str) -> tuple[bytes, list[bytes]]:
    """Return the configuration and the layers of an image as `docker save` writes it (moby's image specification)."""
    data = io.BytesIO()
    for chunk in chunks:
        data.write(chunk)
        if data.tell() > _LARGEST:
            raise DataError(f"{tag} is larger than a rehearsal image can be")
    data.seek(0)
    try:
        with tarfile.open(fileobj=data) as archive:
            (row,) = json.loads(_member(archive, "manifest.json"))
            return _member(archive, row["Config"]), [_member(archive, name) for name in row["Layers"]]
    except (tarfile.TarError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"the engine's archive of {tag} cannot be read: {error!r}") from error


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    found = archive.extractfile(name)  # follows a link to a layer that two images share
    if found is None:
        raise KeyError(name)
    return found.read()


def _put(staging: Repository, nightly: Nightly, platform: Platform, config: bytes, layers: Iterable[bytes]) -> None:
    """Stage an image under its commit's tag; a layer that is not packed yet is packed."""
    packed = [layer if layer.startswith(_GZIP) else gzip.compress(layer, mtime=0) for layer in layers]
    blobs = [(OCI_LAYER, data) for data in packed]
    manifest: dict[str, Any] = {"schemaVersion": 2, "mediaType": OCI_MANIFEST, "layers": []}
    for media_type, data in (*blobs, (OCI_CONFIG, config)):
        blob = Descriptor(media_type, digest_of(data), len(data))
        staging.put_blob(blob, iter((data,)))
        row = {"mediaType": media_type, "digest": blob.digest, "size": blob.size}
        if media_type == OCI_CONFIG:
            manifest["config"] = row
        else:
            manifest["layers"].append(row)
    document = json.dumps(manifest, sort_keys=True, separators=(",", ":")).encode()
    staging.put_manifest(Manifest(OCI_MANIFEST, document), source_tag(nightly.commit, _architecture(platform)))
