"""The index of an image's platforms in the repository where each was pushed; made by whoever pushes the last one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tasks.images.planning import BuildPlan
from tasks.registry.assembling import Source, assemble
from tasks.registry.documents import LARGEST, Manifest
from tasks.registry.interface import Repository
from tasks.registry.opening import open_repository
from tasks.support.errors import DataError, RemoteChangedError
from tasks.support.settings import Settings


@dataclass(frozen=True)
class Indexed:
    """What became of an index: its digest, or the platforms that it waits for, whose images are not pushed yet."""

    tags: tuple[str, ...]
    platforms: tuple[str, ...]
    digest: str | None
    waits_for: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the result as machine output."""
        return {
            "tags": list(self.tags),
            "platforms": list(self.platforms),
            "digest": self.digest,
            "waits_for": list(self.waits_for),
        }


def push_index(plans: Sequence[BuildPlan], settings: Settings) -> Indexed:
    """Put an index of the plans of one image, one for each platform, under its index tags, once all are pushed.

    The same images give the same bytes, so two jobs that end at once put the same. Raises DataError when a tag
    holds an image of another platform, RemoteChangedError when the index is not there afterwards.
    """
    first = plans[0]
    platforms = tuple(str(plan.platform) for plan in plans)
    repository = open_repository(first.repository, settings)
    found = [(plan, repository.manifest(_tag(plan.tags[0]))) for plan in plans]
    waits_for = tuple(str(plan.platform) for plan, manifest in found if manifest is None)
    if waits_for:
        return Indexed(first.index, platforms, None, waits_for)
    sources = [_source(repository, plan, manifest) for plan, manifest in found if manifest is not None]
    made = assemble(sources, [plan.platform for plan in plans])
    for reference in first.index:
        tag = _tag(reference)
        there = repository.head(tag)
        if there is not None and there.digest == made.digest:
            continue
        repository.put_manifest(made)
        repository.put_manifest(made, tag)
        there = repository.head(tag)
        if there is None or there.digest != made.digest:
            raise RemoteChangedError(f"{reference} is not the index that was put there", hint="run this again")
    return Indexed(first.index, platforms, made.digest)


def _source(repository: Repository, plan: BuildPlan, manifest: Manifest) -> Source:
    config = manifest.config
    return Source(
        plan.tags[0], manifest, _config(repository, config.digest) if config is not None else None, plan.platform
    )


def _config(repository: Repository, digest: str) -> bytes:
    kept = bytearray()
    for chunk in repository.read_blob(digest):
        kept += chunk
        if len(kept) > LARGEST:
            raise DataError(f"the configuration {digest} in {repository.name} is too large to be one")
    return bytes(kept)


def _tag(reference: str) -> str:
    return reference.rpartition(":")[2]
