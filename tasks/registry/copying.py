"""Copies of images between two repositories: by digest, and only what the target lacks.

The order is that of the OCI distribution specification ("Pushing Manifests"): blobs, then the manifests that refer
to them, then the indexes that refer to those. No tag is touched here, so a stop at any point changes nothing that a
user sees, and the next run goes on where this one was.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import TypeVar

from tasks.registry.documents import INDEXES, Descriptor, Manifest
from tasks.registry.gate import StoppedError, heed
from tasks.registry.interface import Repository
from tasks.support.errors import DataError, MissingInputError, OmniError, TemporaryError
from tasks.support.transfers import SILENT, Transfers

_LONGEST_PAUSE = 30.0
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class Way(StrEnum):
    """How a blob gets into the target."""

    THERE = "there"
    MOUNT = "mount"
    STREAM = "stream"


@dataclass(frozen=True)
class Limits:
    """How many blobs move at once, how often one is tried, and the first pause in seconds (doubled each time)."""

    workers: int = 4
    attempts: int = 5
    pause: float = 1.0


@dataclass(frozen=True)
class BlobStep:
    """A blob and how it is to get into the target."""

    blob: Descriptor
    way: Way


@dataclass(frozen=True)
class ManifestStep:
    """A manifest that must be in the target: whether it is, its bytes where they are known, and its blobs.

    Each blob is listed once in a plan, with the first manifest that has it; later ones list it as there.
    """

    descriptor: Descriptor
    there: bool
    manifest: Manifest | None = None
    blobs: tuple[BlobStep, ...] = ()


@dataclass(frozen=True)
class CopyPlan:
    """What a copy would do: image and attestation manifests in their order, then indexes."""

    source: str
    target: str
    manifests: tuple[ManifestStep, ...]
    indexes: tuple[ManifestStep, ...] = ()

    @property
    def steps(self) -> tuple[ManifestStep, ...]:
        """Return all manifests in the order in which they are written."""
        return (*self.manifests, *self.indexes)

    def size(self, way: Way) -> int:
        """Return the bytes of the blobs that take a way."""
        return sum(step.blob.size for manifest in self.manifests for step in manifest.blobs if step.way is way)


@dataclass(frozen=True)
class Tally:
    """A number of blobs and their bytes."""

    blobs: int = 0
    size: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.blobs + other.blobs, self.size + other.size)


@dataclass(frozen=True)
class ManifestReport:
    """What became of one manifest: whether it was written, and its blobs by the way that they took.

    The blobs of a manifest that was there are counted only where the plan knew its bytes.
    """

    descriptor: Descriptor
    written: bool
    copied: Tally = Tally()
    mounted: Tally = Tally()
    there: Tally = Tally()


@dataclass(frozen=True)
class CopyReport:
    """What a copy did, how long it took in seconds, and how often a blob had to be tried again."""

    manifests: tuple[ManifestReport, ...]
    indexes: tuple[ManifestReport, ...]
    seconds: float
    retries: int

    @property
    def copied(self) -> Tally:
        """Return what was sent."""
        return sum((part.copied for part in self.manifests), Tally())

    @property
    def mounted(self) -> Tally:
        """Return what was mounted from the source."""
        return sum((part.mounted for part in self.manifests), Tally())

    @property
    def there(self) -> Tally:
        """Return what the target had."""
        return sum((part.there for part in self.manifests), Tally())


def plan_copy(
    source: Repository,
    target: Repository,
    manifests: Sequence[Descriptor] = (),
    indexes: Sequence[Manifest] = (),
    *,
    known: Mapping[str, Manifest] = MappingProxyType({}),
    limits: Limits = Limits(),
) -> CopyPlan:
    """Find out what the target lacks of image and attestation manifests, and of indexes with all that they list.

    ``known`` holds manifests by digest that need not be fetched. Nothing else than missing manifests is read;
    the rest are HEAD requests. A manifest that the target has is complete: registries take none without its blobs.
    MissingInputError when the source lacks a manifest.
    """
    listed = (child for index in indexes for child in index.children)
    distinct = {descriptor.digest: descriptor for descriptor in (*listed, *manifests)}
    same = _same_registry(source, target)

    def look(descriptor: Descriptor) -> ManifestStep:
        there = target.head(descriptor.digest) is not None
        manifest = known.get(descriptor.digest)
        if manifest is None and not there:
            manifest = _fetched(source, descriptor)
        return ManifestStep(descriptor, there, manifest)

    def way(blob: Descriptor) -> BlobStep:
        if target.has_blob(blob.digest):
            return BlobStep(blob, Way.THERE)
        return BlobStep(blob, Way.MOUNT if same else Way.STREAM)

    found = _each(look, distinct.values(), limits.workers)
    missing = {blob.digest: blob for step in found if not step.there for blob in _blobs(step)}
    ways = {step.blob.digest: step for step in _each(way, missing.values(), limits.workers)}
    steps = []
    for step in found:
        # Taken out, so that the next manifest with the same blob has it as there.
        blobs = [ways.pop(blob.digest, BlobStep(blob, Way.THERE)) for blob in _blobs(step) if not step.there]
        if step.there:
            blobs = [BlobStep(blob, Way.THERE) for blob in _blobs(step)]
        steps.append(replace(step, blobs=tuple(blobs)))
    heads = _each(lambda index: target.head(index.digest) is not None, indexes, limits.workers)
    tops = [ManifestStep(index.descriptor(), there, index) for index, there in zip(indexes, heads, strict=True)]
    return CopyPlan(str(source.name), str(target.name), tuple(steps), tuple(tops))


def execute_copy(
    plan: CopyPlan,
    source: Repository,
    target: Repository,
    *,
    transfers: Transfers = SILENT,
    limits: Limits = Limits(),
) -> CopyReport:
    """Do what a plan says, largest blobs first; what has come into the target meanwhile is left alone.

    The first failure stops everything else, and is raised with the blob's digest: the TemporaryError of a blob
    that was tried as often as the limits allow, and any other error at once. ``transfers`` is told about blobs that
    are sent; its total should be the plan's bytes to mount and to stream.
    """
    start = time.monotonic()
    copy = _Copy(source, target, transfers, limits)
    steps = [step for manifest in plan.manifests for step in manifest.blobs if step.way is not Way.THERE]
    copy.run(sorted(steps, key=lambda step: -step.blob.size))
    manifests = tuple(copy.write(step) for step in plan.manifests)
    indexes = tuple(copy.write(step) for step in plan.indexes)
    return CopyReport(manifests, indexes, time.monotonic() - start, copy.retries)


@dataclass
class _Copy:
    """One copy while it runs."""

    source: Repository
    target: Repository
    transfers: Transfers
    limits: Limits
    took: dict[str, Way] = field(default_factory=dict)
    retries: int = 0
    stop: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, steps: Sequence[BlobStep]) -> None:
        """Move blobs with several workers; raise the first error as soon as the others have stopped."""
        if not steps:
            return
        _each(self._move_or_stop, steps, min(self.limits.workers, len(steps)), self.stop)
        self.stop.clear()

    def write(self, step: ManifestStep) -> ManifestReport:
        """Put a manifest into the target unless it is there, and report on its blobs."""
        written = False
        if not step.there and step.manifest is not None:
            manifest = step.manifest

            def put() -> bool:
                if self.target.head(manifest.digest) is not None:
                    return False
                self.target.put_manifest(manifest)
                return True

            written = self._tried(f"manifest {manifest.digest}", put)
        tallies = dict.fromkeys(Way, Tally())
        for blob in step.blobs:
            # Taken out: a blob that two manifests share was moved for the first of them.
            way = self.took.pop(blob.blob.digest, Way.THERE) if blob.way is not Way.THERE else Way.THERE
            tallies[way] += Tally(1, blob.blob.size)
        return ManifestReport(step.descriptor, written, tallies[Way.STREAM], tallies[Way.MOUNT], tallies[Way.THERE])

    def _move_or_stop(self, step: BlobStep) -> None:
        try:
            way = self._tried(f"blob {step.blob.digest}", lambda: self._move(step))
        except BaseException:
            self.stop.set()
            raise
        if way is not Way.STREAM:
            self.transfers.spare(step.blob.size)
        with self.lock:
            self.took[step.blob.digest] = way

    def _move(self, step: BlobStep) -> Way:
        blob = step.blob
        # A mount of what came meanwhile changes nothing, so it needs no look ahead of it.
        if step.way is Way.MOUNT and self.target.mount(blob, self.source):
            return Way.MOUNT
        if self.target.has_blob(blob.digest):
            return Way.THERE
        sent = 0
        with self.transfers.transfer(blob.digest.removeprefix("sha256:")[:12], blob.size) as advance:

            def count(size: int) -> None:
                nonlocal sent
                sent += size
                advance(size)

            try:
                with contextlib.closing(self._chunks(blob)) as chunks:
                    self.target.put_blob(blob, chunks, count)
            except BaseException:
                count(-sent)  # what the repository has not taken back itself
                raise
        return Way.STREAM

    def _chunks(self, blob: Descriptor) -> Generator[bytes]:
        for chunk in self.source.read_blob(blob.digest):
            self._check_stop()
            yield chunk

    def _check_stop(self) -> None:
        if self.stop.is_set():
            raise StoppedError

    def _tried(self, what: str, deed: Callable[[], _Result]) -> _Result:
        """Do something, again after a temporary failure; the error names what it was and how often it was tried."""
        attempt = 1
        while True:
            self._check_stop()
            try:
                return deed()
            except TemporaryError as error:
                if attempt >= self.limits.attempts:
                    raise self._named(error, f"cannot copy {what} to {self.target.name}", attempt) from error
            except OmniError as error:
                raise self._named(error, f"cannot copy {what} to {self.target.name}", attempt) from error
            with self.lock:
                self.retries += 1
            # Spread, so that workers who failed together do not come back together.
            pause = min(self.limits.pause * 2 ** (attempt - 1), _LONGEST_PAUSE) * random.uniform(0.5, 1)  # noqa: S311
            self.stop.wait(pause)
            attempt += 1

    @staticmethod
    def _named(error: OmniError, doing: str, attempt: int) -> OmniError:
        tries = "1 attempt" if attempt == 1 else f"{attempt} attempts"
        hint = error.hint or "no tag was moved; run this again, and only what is missing is sent"
        return type(error)(f"{doing} ({tries}): {error.message}", hint=hint)


def _same_registry(source: Repository, target: Repository) -> bool:
    """Say whether a mount can succeed: on one registry, or between two layouts."""
    return source.name.registry == target.name.registry


def _fetched(source: Repository, descriptor: Descriptor) -> Manifest:
    manifest = source.manifest(descriptor.digest)
    if manifest is None:
        raise MissingInputError(f"{source.name} lacks the manifest {descriptor.digest}")
    if manifest.media_type in INDEXES:
        raise DataError(f"an index where an image was expected: {descriptor.digest} in {source.name}")
    return manifest


def _blobs(step: ManifestStep) -> Iterable[Descriptor]:
    """Return a manifest's distinct blobs; none when its bytes are not known."""
    return {blob.digest: blob for blob in step.manifest.blobs}.values() if step.manifest else ()


def _each(
    deed: Callable[[_Item], _Result], items: Iterable[_Item], workers: int, stop: threading.Event | None = None
) -> list[_Result]:
    """Do something with each item, several at once, and return the results in the items' order.

    The first error, whosever, is raised as soon as the others have stopped; ``stop`` is set when they shall.
    """
    stop = stop or threading.Event()
    with ThreadPoolExecutor(workers, "copy", heed, (stop,)) as pool:
        try:
            futures = [pool.submit(deed, item) for item in items]
            wait(futures, return_when=FIRST_EXCEPTION)
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)
    errors = [error for future in futures if not future.cancelled() and (error := future.exception())]
    # Whoever stopped because of another's failure says nothing about its cause.
    for error in sorted(errors, key=lambda error: isinstance(error, StoppedError)):
        raise error
    return [future.result() for future in futures]
