"""Stores that count their calls or kill their own process, and a judge of what is left: for crash and race tests.

A crash test runs one action again and again in child processes, killed after the first, the second, ... change
of the store, until one run gets to its end.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tasks.support.store import Blob, Expected, Headers, ObjectStore, Progress, Stored, open_store
from tasks.wheels import layout
from tasks.wheels.state import ProjectState, ViewState

Keys = list[str]
Calls = list[tuple[str, str]]


@dataclass
class Wrapped:
    """A store that does what another one does; subclasses change single methods."""

    inner: ObjectStore
    url: str = field(init=False)

    def __post_init__(self) -> None:
        self.url = self.inner.url

    def head(self, key: str) -> Stored | None:
        return self.inner.head(key)

    def get(self, key: str) -> Blob | None:
        return self.inner.get(key)

    def stream(self, key: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        return self.inner.stream(key, start, end)

    def put(self, key: str, data: bytes, headers: Headers, *, expected: Expected) -> str:
        return self.inner.put(key, data, headers, expected=expected)

    def put_file(
        self,
        key: str,
        path: Path,
        headers: Headers,
        *,
        expected: Expected,
        sha256: str | None = None,
        progress: Progress | None = None,
    ) -> str:
        return self.inner.put_file(key, path, headers, expected=expected, sha256=sha256, progress=progress)

    def delete(self, key: str) -> None:
        self.inner.delete(key)

    def list(self, prefix: str = "") -> Iterator[Stored]:
        return self.inner.list(prefix)


@dataclass
class Counting(Wrapped):
    """A store that keeps a log of its calls, in order: (method, key). ``streamed`` has the bytes read per key."""

    log: Calls = field(default_factory=list)
    streamed: dict[str, int] = field(default_factory=dict)

    def head(self, key: str) -> Stored | None:
        self.log.append(("head", key))
        return super().head(key)

    def get(self, key: str) -> Blob | None:
        self.log.append(("get", key))
        return super().get(key)

    def stream(self, key: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        self.log.append(("stream", key))
        for piece in super().stream(key, start, end):
            self.streamed[key] = self.streamed.get(key, 0) + len(piece)
            yield piece

    def put(self, key: str, data: bytes, headers: Headers, *, expected: Expected) -> str:
        self.log.append(("put", key))
        return super().put(key, data, headers, expected=expected)

    def put_file(
        self,
        key: str,
        path: Path,
        headers: Headers,
        *,
        expected: Expected,
        sha256: str | None = None,
        progress: Progress | None = None,
    ) -> str:
        self.log.append(("put", key))
        return super().put_file(key, path, headers, expected=expected, sha256=sha256, progress=progress)

    def delete(self, key: str) -> None:
        self.log.append(("delete", key))
        super().delete(key)

    def list(self, prefix: str = "") -> Iterator[Stored]:
        self.log.append(("list", prefix))
        return super().list(prefix)

    def keys(self, *methods: str) -> Keys:
        """Return the keys of these methods' calls, in order."""
        return [key for method, key in self.log if method in methods]

    @property
    def changes(self) -> Keys:
        """Return the keys that were written or deleted, in order."""
        return self.keys("put", "delete")


@dataclass
class Meddling(Wrapped):
    """A store that calls ``before(method, key)`` ahead of each change, ``after(method, key)`` behind it.

    Changes come one after the other, each with its hooks, also from several threads; so what a hook does happens
    between two changes and not beside one. A hook that itself changes the store is not called for its own changes.
    """

    before: Callable[[str, str], None] = lambda _method, _key: None
    after: Callable[[str, str], None] = lambda _method, _key: None
    _turn: threading.RLock = field(default_factory=threading.RLock)
    _inside: bool = False

    def put(self, key: str, data: bytes, headers: Headers, *, expected: Expected) -> str:
        with self._hooks("put", key):
            return super().put(key, data, headers, expected=expected)

    def put_file(
        self,
        key: str,
        path: Path,
        headers: Headers,
        *,
        expected: Expected,
        sha256: str | None = None,
        progress: Progress | None = None,
    ) -> str:
        with self._hooks("put", key):
            return super().put_file(key, path, headers, expected=expected, sha256=sha256, progress=progress)

    def delete(self, key: str) -> None:
        with self._hooks("delete", key):
            super().delete(key)

    @contextlib.contextmanager
    def _hooks(self, method: str, key: str) -> Iterator[None]:
        with self._turn:
            self._call(self.before, method, key)
            yield
            self._call(self.after, method, key)

    def _call(self, hook: Callable[[str, str], None], method: str, key: str) -> None:
        if self._inside:
            return
        self._inside = True
        try:
            hook(method, key)
        finally:
            self._inside = False


class KillAfter(Meddling):
    """A store that kills its own process, without any clean-up, when ``limit`` changes were made."""

    def __init__(self, inner: ObjectStore, limit: int) -> None:
        """Count from here; a limit of 0 kills ahead of the first change."""
        self._left = limit
        super().__init__(inner, before=self._die_if_due, after=self._count)

    def _die_if_due(self, _method: str, _key: str) -> None:
        if self._left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def _count(self, method: str, key: str) -> None:
        self._left -= 1
        self._die_if_due(method, key)


@contextlib.contextmanager
def memory_folder() -> Iterator[Path]:
    """Make an empty folder, in memory where that is possible: elsewhere each write waits for the disk."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as name:
        yield Path(name)


def in_child(action: Callable[[], object]) -> int:
    """Run an action in a process of its own, and return how that ended: 0, an exit code, or minus a signal."""
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            action()
            code = 0
        except BaseException:  # noqa: BLE001 - nothing may get out of the child
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def run_killed(url: str, limit: int, action: Callable[[ObjectStore], object]) -> bool:
    """Run an action in a process that dies after ``limit`` changes; say whether it died before its end."""
    ended = in_child(lambda: action(KillAfter(open_store(url), limit)))
    if ended not in (0, -signal.SIGKILL):
        pytest.fail(f"the action failed by itself ({ended}) before change {limit}; its traceback is above")
    return ended != 0


def every_kill(
    prepare: Callable[[], str], action: Callable[[ObjectStore], object], *, step: int = 1
) -> Iterator[tuple[int, ObjectStore]]:
    """Yield, for every boundary between changes (or every few), a fresh store in which ``action`` was killed there.

    ``prepare`` makes a store anew and returns its URL. The last one yielded is that of the run which got to its end.
    """
    limit = 0
    died = True
    while died:
        url = prepare()
        died = run_killed(url, limit, action)
        yield limit, open_store(url)
        limit += step
    assert limit > step, "the action changes nothing, so nothing was tested"


_TIMES = re.compile(
    rb'("(?:uploaded|moved|commit_time)":|"upload-time":)"[^"]*"|\d{4}-\d\d-\d\d(?:&nbsp;|[T ])[\d:.]+Z?'
)


def tree(store: ObjectStore) -> dict[str, bytes]:
    """Return everything in a store, with the times that differ from run to run made equal."""
    found: dict[str, bytes] = {}
    for stored in store.list():
        blob = store.get(stored.key)
        if blob is not None:
            is_archive = stored.key.endswith((".whl", ".tar.gz"))
            found[stored.key] = blob.data if is_archive else _TIMES.sub(b"TIME", blob.data)
    return found


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, bool]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag == "a" and (href := values.get("href")) is not None:
            self.found.append((href, "data-core-metadata" in values or "data-dist-info-metadata" in values))


def broken(store: ObjectStore) -> list[str]:
    """Return what is wrong with the pages in a store, as its visitors meet it; an empty list is a valid index.

    Every link must lead to an object, a folder link to that folder's page, every promised sidecar must be there,
    every digest in a page must be that of the object, every state document must be readable and its files there.
    A human page's way up is not judged: pages below are drawn first, and deleted last.
    """
    objects = {stored.key for stored in store.list()}
    wrong: list[str] = []
    for key in sorted(objects):
        if not key.endswith((".html", ".json")):
            continue
        blob = store.get(key)
        assert blob is not None
        if key.startswith(layout.PROJECT_STATES):
            records = ProjectState.decode(blob.data, key).files.values()
            wrong += [f"{key}: {record.key} is not there" for record in records if record.key not in objects]
        elif key.startswith(layout.VIEW_STATES):
            ViewState.decode(blob.data, key)
        elif key.endswith(".html"):
            wrong += _broken_html(store, objects, key, blob.data)
        elif not key.startswith("_"):
            wrong += _broken_json(store, objects, key, blob.data)
    return wrong


def _broken_html(store: ObjectStore, objects: set[str], key: str, data: bytes) -> Iterator[str]:
    parser = _Links()
    parser.feed(data.decode())
    parser.close()
    for href, promised in parser.found:
        yield from _broken_link(store, objects, key, href, promised=promised)


def _broken_json(store: ObjectStore, objects: set[str], key: str, data: bytes) -> Iterator[str]:
    import json

    document = json.loads(data)
    rows = document if isinstance(document, list) else document.get("files", [])
    for row in rows:
        digest = row.get("hashes", {}).get("sha256")
        href = row.get("path") or row["url"]
        yield from _broken_link(
            store, objects, key, href + (f"#sha256={digest}" if digest else ""), promised=bool(row.get("core-metadata"))
        )
    if isinstance(document, dict):
        folder = key.rpartition("/")[0]
        for row in document.get("projects", []):
            target = f"{folder}/{row['name']}/index.json"
            if target not in objects:
                yield f"{key}: project {row['name']} has no page"


def _broken_link(store: ObjectStore, objects: set[str], key: str, href: str, *, promised: bool) -> Iterator[str]:
    parts = urlsplit(href)
    if parts.scheme or parts.netloc or not parts.path:
        return
    path = os.path.normpath(os.path.join(os.path.dirname(key), unquote(parts.path)))  # noqa: PTH118, PTH120 - keys
    target = f"{path}/index.html" if parts.path.endswith("/") else path
    way_up = key.endswith(layout.BROWSE) and target.endswith(layout.BROWSE) and target.count("/") < key.count("/")
    if target not in objects and not way_up:
        yield f"{key}: dead link {href}"
    if promised and f"{path}.metadata" not in objects:
        yield f"{key}: no sidecar for {href}"
    if target in objects and parts.fragment.startswith("sha256="):
        yield from _wrong_digest(store, key, path, parts.fragment.removeprefix("sha256="))


def _wrong_digest(store: ObjectStore, key: str, path: str, digest: str) -> Iterator[str]:
    import hashlib

    blob = store.get(path)
    if blob is None or hashlib.sha256(blob.data).hexdigest() != digest:
        yield f"{key}: {path} has other bytes than its digest says"
