"""Repositories that count their calls, meddle, fail or kill their own process at a change: for crash and race tests."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tasks.registry.documents import Descriptor, Manifest
from tasks.registry.interface import Progress, Repository
from tasks.support.store import Expected, Headers, ObjectStore
from tests.faults import Wrapped
from tests.registry_faults import Wrapped as WrappedRepository

Hook = Callable[[str, str], None]
"""Called with what is done and to what: a tag, else a digest."""


def nothing(_method: str, _what: str) -> None:
    return


@dataclass
class Watched(WrappedRepository):
    """A repository that does what another one does; it keeps a log, and calls hooks around each change."""

    before: Hook = nothing
    after: Hook = nothing
    log: list[tuple[str, str]] = field(default_factory=list)
    mounts: bool = True

    def head(self, reference: str) -> Descriptor | None:
        self.log.append(("head", reference))
        return super().head(reference)

    def manifest(self, reference: str) -> Manifest | None:
        self.log.append(("manifest", reference))
        return super().manifest(reference)

    def put_manifest(self, manifest: Manifest, tag: str | None = None) -> None:
        with self._change("tag" if tag else "put_manifest", tag or manifest.digest):
            super().put_manifest(manifest, tag)

    def read_blob(self, digest: str, start: int = 0) -> Iterator[bytes]:
        self.log.append(("read_blob", digest))
        return super().read_blob(digest, start)

    def put_blob(self, blob: Descriptor, chunks: Iterator[bytes], progress: Progress | None = None) -> None:
        with self._change("put_blob", blob.digest):
            super().put_blob(blob, chunks, progress)

    def mount(self, blob: Descriptor, source: Repository) -> bool:
        if not self.mounts:
            return False
        with self._change("mount", blob.digest):
            return super().mount(blob, source)

    def calls(self, *methods: str) -> list[str]:
        """Return to what these methods were applied, in order."""
        return [what for method, what in self.log if method in methods]

    @property
    def changes(self) -> list[tuple[str, str]]:
        return [call for call in self.log if call[0] in {"tag", "put_manifest", "put_blob", "mount"}]

    @contextmanager
    def _change(self, method: str, what: str) -> Iterator[None]:
        self.before(method, what)
        yield
        self.log.append((method, what))
        self.after(method, what)


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
