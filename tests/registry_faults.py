"""Repositories that count what they are asked, fail where they are told to, or kill their own process."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tasks.registry.documents import Descriptor, Manifest
from tasks.registry.interface import Progress, Repository
from tasks.registry.references import RepositoryName

Hook = Callable[[str, str], None]


@dataclass
class Wrapped:
    """A repository that does what another one does; subclasses change single methods."""

    inner: Repository

    @property
    def name(self) -> RepositoryName:
        return self.inner.name

    def head(self, reference: str) -> Descriptor | None:
        return self.inner.head(reference)

    def manifest(self, reference: str) -> Manifest | None:
        return self.inner.manifest(reference)

    def put_manifest(self, manifest: Manifest, tag: str | None = None) -> None:
        self.inner.put_manifest(manifest, tag)

    def has_blob(self, digest: str) -> bool:
        return self.inner.has_blob(digest)

    def read_blob(self, digest: str, start: int = 0) -> Iterator[bytes]:
        return self.inner.read_blob(digest, start)

    def put_blob(self, blob: Descriptor, chunks: Iterator[bytes], progress: Progress | None = None) -> None:
        self.inner.put_blob(blob, chunks, progress)

    def mount(self, blob: Descriptor, source: Repository) -> bool:
        return self.inner.mount(blob, source.inner if isinstance(source, Wrapped) else source)

    def tags(self) -> list[str]:
        return self.inner.tags()

    def delete_manifest(self, digest: str) -> bool:
        return self.inner.delete_manifest(digest)


@dataclass
class Hooked(Wrapped):
    """A repository that logs its calls as (method, reference) and calls ``hook`` ahead of each.

    Inside a blob the hook is called with ``read`` or ``send`` ahead of every chunk, which has at most ``piece``
    bytes; behind each change with ``done``. What it raises is the call's failure.
    """

    hook: Hook = lambda _method, _reference: None
    piece: int = 1 << 20
    log: list[tuple[str, str]] = field(default_factory=list)
    read: Counter[str] = field(default_factory=Counter)
    sent: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def calls(self, *methods: str) -> list[str]:
        """Return the references of these methods' calls, in order."""
        return [reference for method, reference in self.log if method in methods]

    @property
    def changes(self) -> list[str]:
        """Return what was written, mounted or deleted, in order."""
        return self.calls("put_blob", "put_manifest", "mount", "delete_manifest")

    def head(self, reference: str) -> Descriptor | None:
        self._called("head", reference)
        return super().head(reference)

    def manifest(self, reference: str) -> Manifest | None:
        self._called("manifest", reference)
        return super().manifest(reference)

    def put_manifest(self, manifest: Manifest, tag: str | None = None) -> None:
        self._called("put_manifest", tag or manifest.digest)
        super().put_manifest(manifest, tag)
        self.hook("done", tag or manifest.digest)

    def has_blob(self, digest: str) -> bool:
        self._called("has_blob", digest)
        return super().has_blob(digest)

    def read_blob(self, digest: str, start: int = 0) -> Iterator[bytes]:
        self._called("read_blob", digest)
        return self._passed("read", digest, super().read_blob(digest, start), self.read)

    def put_blob(self, blob: Descriptor, chunks: Iterator[bytes], progress: Progress | None = None) -> None:
        self._called("put_blob", blob.digest)
        super().put_blob(blob, self._passed("send", blob.digest, chunks, self.sent), progress)
        self.hook("done", blob.digest)

    def mount(self, blob: Descriptor, source: Repository) -> bool:
        self._called("mount", blob.digest)
        mounted = super().mount(blob, source)
        self.hook("done", blob.digest)
        return mounted

    def _called(self, method: str, reference: str) -> None:
        with self.lock:
            self.log.append((method, reference))
        self.hook(method, reference)

    def _passed(self, method: str, digest: str, chunks: Iterator[bytes], counts: Counter[str]) -> Iterator[bytes]:
        for chunk in chunks:
            for start in range(0, len(chunk), self.piece):
                self.hook(method, digest)
                piece = chunk[start : start + self.piece]
                with self.lock:
                    counts[digest] += len(piece)
                yield piece


@dataclass
class FailAt:
    """A hook that raises ``error()`` at the calls numbered from ``first`` on, ``times`` times in all."""

    first: int
    error: Callable[[], BaseException]
    methods: tuple[str, ...] = ()
    times: int = 1
    seen: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __call__(self, method: str, reference: str) -> None:
        if self.methods and method not in self.methods:
            return
        with self.lock:
            self.seen += 1
            due = self.first <= self.seen < self.first + self.times
        if due:
            raise self.error()

    @property
    def struck(self) -> bool:
        """Say whether it came to that."""
        return self.seen >= self.first


def kill_at(number: int) -> Hook:
    """Return a hook that kills this process, without any clean-up, at its call of that number."""
    left = [number]

    def hook(_method: str, _reference: str) -> None:
        left[0] -= 1
        if left[0] <= 0:
            os.kill(os.getpid(), signal.SIGKILL)

    return hook
