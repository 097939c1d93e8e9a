"""Repositories that count what they are asked, fail where they are told to, or kill their own process."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tasks.registry.documents import Descriptor, Manifest
from tasks.registry.interface import Progress, Repository
from tasks.registry.references import RepositoryName

Hook = Callable[[str, str], None]
"""Called with what is done and to what: a tag, else a digest, or in a store a key."""

CHANGES = ("tag", "put_manifest", "put_blob", "mount", "delete_manifest", "put", "delete")
"""What the hooks of repositories and of stores call a change."""


def nothing(_method: str, _what: str) -> None:
    return


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
    """A repository that logs its calls as (method, what), and calls ``hook`` ahead of each, ``after`` behind a change.

    Writing a tag is called ``tag``. Inside a blob ``hook`` is called with ``read`` or ``send`` ahead of every chunk,
    which has at most ``piece`` bytes. What a hook raises is the call's failure.
    """

    hook: Hook = nothing
    after: Hook = nothing
    piece: int = 1 << 20
    log: list[tuple[str, str]] = field(default_factory=list)
    read: Counter[str] = field(default_factory=Counter)
    sent: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def calls(self, *methods: str) -> list[str]:
        """Return to what these methods were applied, in order."""
        return [what for method, what in self.log if method in methods]

    @property
    def changes(self) -> list[tuple[str, str]]:
        """Return what was written, mounted or deleted, in order."""
        return [call for call in self.log if call[0] in CHANGES]

    def head(self, reference: str) -> Descriptor | None:
        self._called("head", reference)
        return super().head(reference)

    def manifest(self, reference: str) -> Manifest | None:
        self._called("manifest", reference)
        return super().manifest(reference)

    def put_manifest(self, manifest: Manifest, tag: str | None = None) -> None:
        with self._change("tag" if tag else "put_manifest", tag or manifest.digest):
            super().put_manifest(manifest, tag)

    def has_blob(self, digest: str) -> bool:
        self._called("has_blob", digest)
        return super().has_blob(digest)

    def read_blob(self, digest: str, start: int = 0) -> Iterator[bytes]:
        self._called("read_blob", digest)
        return self._passed("read", digest, super().read_blob(digest, start), self.read)

    def put_blob(self, blob: Descriptor, chunks: Iterator[bytes], progress: Progress | None = None) -> None:
        with self._change("put_blob", blob.digest):
            super().put_blob(blob, self._passed("send", blob.digest, chunks, self.sent), progress)

    def mount(self, blob: Descriptor, source: Repository) -> bool:
        with self._change("mount", blob.digest):
            return super().mount(blob, source)

    def delete_manifest(self, digest: str) -> bool:
        with self._change("delete_manifest", digest):
            return super().delete_manifest(digest)

    def _called(self, method: str, what: str) -> None:
        with self.lock:
            self.log.append((method, what))
        self.hook(method, what)

    @contextmanager
    def _change(self, method: str, what: str) -> Iterator[None]:
        self._called(method, what)
        yield
        self.after(method, what)

    def _passed(self, method: str, digest: str, chunks: Iterator[bytes], counts: Counter[str]) -> Iterator[bytes]:
        for chunk in chunks:
            for start in range(0, len(chunk), self.piece):
                self.hook(method, digest)
                piece = chunk[start : start + self.piece]
                with self.lock:
                    counts[digest] += len(piece)
                yield piece


class Mountless(Hooked):
    """A repository that mounts nothing."""

    def mount(self, blob: Descriptor, source: Repository) -> bool:
        return False


@dataclass
class Strike:
    """A hook that does something at the calls numbered from ``first`` on, ``times`` times in all.

    It counts over every repository and store that has it; ``methods`` are those that count, none meaning all.
    """

    first: int
    deed: Hook
    methods: tuple[str, ...] = CHANGES
    times: int = 1
    seen: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __call__(self, method: str, what: str) -> None:
        if self.methods and method not in self.methods:
            return
        with self.lock:
            self.seen += 1
            due = self.first <= self.seen < self.first + self.times
        if due:
            self.deed(method, what)

    @property
    def struck(self) -> bool:
        """Say whether it came to that."""
        return self.seen >= self.first


def raising(error: Callable[[], BaseException]) -> Hook:
    """Return what raises an error, for a strike."""

    def deed(_method: str, _what: str) -> None:
        raise error()

    return deed


def kill(_method: str, _what: str) -> None:
    """End this process without any clean-up."""
    os.kill(os.getpid(), signal.SIGKILL)
