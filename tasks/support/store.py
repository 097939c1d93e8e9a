"""The object store's interface: keys, conditional writes and listings, the same for a folder and for S3.

Conditions follow RFC 9110 section 13.1 (If-Match, If-None-Match) as S3 implements them for PUT.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Protocol, TypeVar

from tasks.support.errors import RemoteChangedError, TemporaryError, UsageError

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
    CredentialsError, TemporaryError). ``list`` is complete or raises.
    """

    url: str

    def head(self, key: str) -> Stored | None:
        """Return an object's facts, or None when there is no such object."""

    def get(self, key: str) -> Blob | None:
        """Read a small object whole, or return None when there is no such object."""

    def stream(self, key: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """Yield the bytes from ``start`` up to, not including, ``end``; MissingInputError when there is no object."""

    def put(self, key: str, data: bytes, headers: Headers, *, expected: Expected) -> str:
        """Write a small object and return its entity tag; ConditionFailedError when the condition does not hold."""

    def put_file(
        self, key: str, path: Path, headers: Headers, *, expected: Expected, progress: Progress | None = None
    ) -> str:
        """Write a file's bytes, in parts when it is large, and return the entity tag; nothing is left on failure."""

    def delete(self, key: str) -> None:
        """Delete an object; a missing one is no error."""

    def list(self, prefix: str = "") -> Iterator[Stored]:
        """Yield every object whose key starts with ``prefix``, in no promised order."""


def check_key(key: str) -> str:
    """Return the key, or raise UsageError when it could leave the store or name a folder."""
    parts = key.split("/")
    if not key or "\\" in key or "\0" in key or any(part in ("", ".", "..") for part in parts):
        raise UsageError(f"not a store key: {key!r}")
    return key


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
