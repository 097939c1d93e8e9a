"""Repositories that count their calls, meddle, fail or kill their own process at a change: for crash and race tests."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tasks.registry.documents import Descriptor, Manifest
from tasks.registry.interface import Progress, Repository
from tasks.registry.references import RepositoryName
from tasks.support.store import Expected, Headers, ObjectStore
from tests.faults import Wrapped

Hook = Callable[[str, str], None]
"""Called with what is done and to what: a tag, else a digest."""


def nothing(_method: str, _what: str) -> None:
    return


@dataclass
class Watched:
    """A repository that does what another one does; it keeps a log, and calls hooks around each change."""

    inner: Repository
    before: Hook = nothing
    after: Hook = nothing
    log: list[tuple[str, str]] = field(default_factory=list)
    mounts: bool = True

    @property
    def name(self) -> RepositoryName:
        return self.inner.name

    def head(self, reference: str) -> Descriptor | None:
        self.log.append(("head", reference))
        return self.inner.head(reference)

    def manifest(self, reference: str) -> Manifest | None:
        self.log.append(("manifest", reference))
        return self.inner.manifest(reference)

    def put_manifest(self, manifest: Manifest, tag: str | None = None) -> None:
        what = tag or manifest.digest
        method = "tag" if tag else "put_manifest"
        self.before(method, what)
        self.inner.put_manifest(manifest, tag)
        self.log.append((method, what))
        self.after(method, what)

    def has_blob(self, digest: str) -> bool:
        return self.inner.has_blob(digest)

    def read_blob(self, digest: str, start: int = 0) -> Iterator[bytes]:
        self.log.append(("read_blob", digest))
        return self.inner.read_blob(digest, start)

    def put_blob(self, blob: Descriptor, chunks: Iterator[bytes], progress: Progress | None = None) -> None:
        self.before("put_blob", blob.digest)
        self.inner.put_blob(blob, chunks, progress)
        self.log.append(("put_blob", blob.digest))
        self.after("put_blob", blob.digest)

    def mount(self, blob: Descriptor, source: Repository) -> bool:
        if not self.mounts:
            return False
        self.before("mount", blob.digest)
        done = self.inner.mount(blob, source.inner if isinstance(source, Watched) else source)
        self.log.append(("mount", blob.digest))
        self.after("mount", blob.digest)
        return done

    def tags(self) -> list[str]:
        return self.inner.tags()

    def delete_manifest(self, digest: str) -> bool:
        self.before("delete", digest)
        return self.inner.delete_manifest(digest)

    def calls(self, *methods: str) -> list[str]:
        """Return to what these methods were applied, in order."""
        return [what for method, what in self.log if method in methods]

    @property
    def changes(self) -> list[tuple[str, str]]:
        return [call for call in self.log if call[0] in {"tag", "put_manifest", "put_blob", "mount", "delete"}]


@dataclass
class Countdown:
    """Does something at the n-th change, counted over every repository and store that has its hooks."""

    left: int
    deed: Callable[[str], None]
    happened: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def hook(self, method: str, what: str) -> None:
        with self._lock:
            self.left -= 1
            if self.left == 0:
                self.happened = True
                self.deed(f"{method} {what}")


@dataclass
class HookedStore(Wrapped):
    """A store with hooks around each write."""

    inner: ObjectStore
    before: Hook = nothing
    after: Hook = nothing

    def put(self, key: str, data: bytes, headers: Headers, *, expected: Expected) -> str:
        self.before("put", key)
        etag = super().put(key, data, headers, expected=expected)
        self.after("put", key)
        return etag


def kill(_what: str) -> None:
    """End this process without any clean-up."""
    os.kill(os.getpid(), signal.SIGKILL)
