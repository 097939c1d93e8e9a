"""Staged commits, stores with results, and whole publishes: what the tests of releases are made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packaging.version import Version

from tasks.registry.copying import Limits
from tasks.registry.documents import Manifest
from tasks.registry.interface import Repository
from tasks.registry.oci_layout import LayoutRepository
from tasks.release import results
from tasks.release.channels import Channel
from tasks.release.ledger import Entry, Ledger
from tasks.release.moving import Run
from tasks.release.ordering import AskAncestry
from tasks.release.promotion import PublishReport, execute_publish
from tasks.release.promotion_plan import Parties, PublishPlan, Request, no_history, plan_publish
from tasks.release.undo import RollbackPlan, execute_rollback, plan_rollback
from tasks.support.store import open_store
from tests.factory_image import Image, stage


def commit(number: int) -> str:
    """Return the hash of a made-up commit."""
    return f"{number:040x}"


def time_of(number: int) -> str:
    """Return the time of a made-up commit: the higher its number, the later."""
    return f"2026-01-{number:02}T00:00:00Z"


@dataclass
class World:
    """A staging and a public repository and a store, all of which may be wrapped or replaced."""

    staging: Repository
    public: Repository
    store: Any
    images: dict[int, dict[str, Image]] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)

    @classmethod
    def of_folders(cls, folder: Path) -> World:
        """Make one in a folder; a second one of the same folder sees the same."""
        return cls(
            LayoutRepository(folder / "staging"),
            LayoutRepository(folder / "public"),
            open_store(str(folder / "store")),
        )

    @property
    def parties(self) -> Parties:
        return Parties(self.staging, self.public, self.store)

    def staged(self, number: int, *, tested: bool = True, **options: Any) -> dict[str, Image]:
        """Stage a commit's images with their attestations, and record that its tests passed."""
        self.images[number] = stage(self.staging, commit(number), **options)
        if tested:
            passed(self.store, number)
        return self.images[number]

    def plan(self, request: Request, ask: AskAncestry = no_history) -> PublishPlan:
        return plan_publish(self.parties, request, ask)

    def publish(self, request: Request, run: str = "", **build: Any) -> PublishReport:
        plan = self.plan(request)
        named = Run(run, **build) if run else Run(f"run-{request.commit[-4:]}-{self.entries_count(request.channel)}")
        return execute_publish(self.parties, plan, named, limits=self.limits)

    def nightly(self, number: int, run: str = "") -> PublishReport:
        return self.publish(nightly(number), run)

    def release(self, number: int, version: str, run: str = "", **options: Any) -> PublishReport:
        return self.publish(release(number, version, **options), run)

    def rollback(self, channel: Channel = Channel.NIGHTLY, name: str = "back", **options: Any) -> RollbackPlan:
        plan = plan_rollback(self.public, self.store, channel, **options)
        return execute_rollback(self.public, self.store, plan, Run(name))

    def tags(self) -> dict[str, str]:
        """Return every public tag with its digest."""
        return tags_of(self.public)

    def entries(self, channel: Channel = Channel.NIGHTLY) -> list[Entry]:
        return list(Ledger(self.store, channel).entries())

    def entries_count(self, channel: Channel) -> int:
        return len(self.entries(channel))


def tags_of(repository: Repository) -> dict[str, str]:
    found = {tag: repository.head(tag) for tag in repository.tags()}
    return {tag: there.digest for tag, there in found.items() if there is not None}


def nightly(number: int) -> Request:
    return Request(Channel.NIGHTLY, commit(number), commit_time=time_of(number))


def release(number: int, version: str, **options: Any) -> Request:
    return Request(Channel.RELEASE, commit(number), Version(version), commit_time=time_of(number), **options)


def passed(store: Any, number: int, **steps: str) -> None:
    """Record outcomes of a commit's cuda_merge; without any, that it passed."""
    record = results.Record(commit(number), results.REQUIRED, "2026-01-01T00:00:00Z", steps or {"merge": "passed"})
    results.write(store, record)


def is_whole(repository: Repository, digest: str) -> bool:
    """Say whether everything below a manifest is in the repository."""
    manifest = repository.manifest(digest)
    if manifest is None:
        return False
    if manifest.is_index:
        return all(is_whole(repository, child.digest) for child in manifest.children)
    return all(repository.has_blob(blob.digest) for blob in manifest.blobs)


def children_of(repository: Repository, reference: str) -> list[str]:
    manifest = repository.manifest(reference)
    assert isinstance(manifest, Manifest)
    return [child.digest for child in manifest.children]
