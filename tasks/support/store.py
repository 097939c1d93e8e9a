"""The object store's interface: keys, conditional writes and listings, the same for a folder and for S3.

Conditions follow RFC 9110 section 13.1 (If-Match, If-None-Match) as S3 implements them for PUT.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Protocol, TypeVar
from urllib.parse import unquote

from tasks.support.errors import RemoteChangedError, TemporaryError, UsageError, did_you_mean

T = TypeVar("T")


class Absent(Enum):
    """The condition that no object may be under the key yet (If-None-Match: *)."""

    ABSENT = "absent"


ABSENT = Absent.ABSENT
"""A write's condition: ``ABSENT``, an entity tag that must still be the current one, or None for no condition."""
Expected = str | Absent | None

Progress = Callable[[int], None]
"""Called with the number of bytes done since the last call."""


class ConditionFailedError(RemoteChangedError):
    """A conditional write lost its race: somebody else wrote the key first."""


@dataclass(frozen=True)
class Headers:
    """What a stored object says of itself to HTTP clients."""

    content_type: str
    cache_control: str


@dataclass(frozen=True)
class Stored:
    """An object's facts without its bytes."""

    key: str
    size: int
    etag: str
    modified: datetime
    headers: Headers | None = None


@dataclass(frozen=True)
class Blob:
    """A small object, read whole."""

    stored: Stored
    data: bytes

    @property
    def etag(self) -> str:
        """Return the entity tag to write back with."""
        return self.stored.etag


class ObjectStore(Protocol):
    """A flat map from keys to bytes. Keys are relative, ``/``-separated, without ``.`` and ``..`` parts.

    Only a missing object reads as None; every other failure raises (ServiceRefusedError,
    CredentialsError, TemporaryError). ``list`` is complete or raises; as it yields while it reads,
    only a caller that has seen its end knows the whole. All methods may be called from several threads.
    A key may not be the beginning of another one (``a/b`` and ``a/b/c``): DataError where the store cannot hold both.
    """

    url: str

    def head(self, key: str) -> Stored | None:
        """Return an object's facts, or None when there is no such object."""

    def get(self, key: str) -> Blob | None:
        """Read a small object whole, or return None when there is no such object."""

    def stream(self, key: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """Yield the bytes from ``start`` up to, not including, ``end``; what lies past the object's end is left out.

        Raises MissingInputError, at the first byte asked for, when there is no object.
        """

    def put(self, key: str, data: bytes, headers: Headers, *, expected: Expected) -> str:
        """Write a small object and return its entity tag; ConditionFailedError when the condition does not hold."""

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
        """Write a file's bytes, in parts when it is large, and return the entity tag; nothing is left on failure.

        With ``sha256``, lower-case hex, bytes of another digest are a DataError naming the file: whatever became of
        the file since that was taken, the object is as it was.
        """

    def delete(self, key: str) -> None:
        """Delete an object; a missing one is no error."""

    def list(self, prefix: str = "") -> Iterator[Stored]:
        """Yield every object whose key starts with ``prefix``, in no promised order."""


def check_key(key: str) -> str:
    """Return the key, or raise UsageError when it could leave the store, name a folder or not be sent as UTF-8."""
    parts = key.split("/")
    lone = not key.isascii() and any("\ud800" <= letter <= "\udfff" for letter in key)
    odd = not key or "\\" in key or "\0" in key or lone
    if odd or any(part in ("", ".", "..") for part in parts):
        raise UsageError(f"not a store key: {key!r}")
    return key


def check_range(start: int, end: int | None) -> None:
    """Raise UsageError for a range that no byte can be in by mistake: a negative start, or an end before the start."""
    if start < 0 or (end is not None and end < start):
        raise UsageError(f"not a range of bytes: {start} to {end}")


def open_store(url: str) -> ObjectStore:
    """Open the store that a URL (``file:///folder``, ``s3://bucket/prefix``) or a bare path names.

    Nothing is read, written or created, and no service is asked. Raises UsageError for a URL of another form;
    a URL that could hold a credential is refused without being repeated.
    """
    scheme, colon, rest = url.partition(":")
    if not colon or not re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*", scheme):
        return _open_folder(url)
    if "@" in rest or "?" in rest or "#" in rest:
        raise UsageError(
            f"a store URL has no user, query or fragment (this is a {scheme.lower()} URL; not repeated here)",
            hint="credentials come from the environment: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_PROFILE",
        )
    if scheme.lower() not in ("file", "s3"):
        close = did_you_mean(scheme.lower(), ("file", "s3"))
        known = "write file:///folder or s3://bucket/prefix (another S3 server: AWS_ENDPOINT_URL_S3)"
        raise UsageError(f"unknown kind of store {scheme + ':'!r}", hint=close or known)
    if not rest.startswith("//"):
        raise UsageError(f"not a store URL: {url!r}", hint=f"write {scheme.lower()}://..., or ./{url} for a folder")
    if scheme.lower() == "s3":
        from tasks.support.store_s3 import S3Store

        bucket, _, prefix = rest.removeprefix("//").partition("/")
        return S3Store(bucket, prefix.strip("/"))
    return _open_folder_url(url, rest.removeprefix("//"))


def _open_folder_url(url: str, rest: str) -> ObjectStore:
    """Open the folder of a file URL (RFC 8089): an empty host or localhost, and an absolute path."""
    host, slash, path = rest.partition("/")
    if host not in ("", "localhost") or not slash or not path.strip("/"):
        raise UsageError(f"not an absolute file URL: {url!r}", hint="write file:///absolute/folder, or a bare path")
    return _open_folder("/" + unquote(path))


def _open_folder(path: str) -> ObjectStore:
    """Open a folder as a store; a relative path starts at the current directory."""
    if not path.strip() or "\0" in path:
        raise UsageError("the store has no name", hint="write file:///folder, s3://bucket/prefix or a folder's path")
    from tasks.support.paths import absolute, without_steps_up
    from tasks.support.store_file import FileStore

    return FileStore(without_steps_up(absolute(path)))


def redo_on_conflict(attempt: Callable[[], T], *, what: str, seconds: float = 60.0) -> T:
    """Run a read-modify-write until it wins its race, for at most ``seconds``.

    ``attempt`` must re-read what it builds on. Raises TemporaryError when the time is up.
    """
    deadline = time.monotonic() + seconds
    pause = 0.02
    while True:
        try:
            return attempt()
        except ConditionFailedError as error:
            if time.monotonic() + pause > deadline:
                raise TemporaryError(
                    f"{what}: other writers won every race for {seconds:.0f} s",
                    hint="nothing is lost; run the same command again",
                ) from error
        time.sleep(random.uniform(pause / 2, pause))  # noqa: S311 - jitter, not a secret
        pause = min(pause * 1.7, 2.0)
