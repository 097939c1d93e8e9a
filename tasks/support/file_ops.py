"""Operations on plain files that a store in a folder is made of."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import stat
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tasks.support.errors import (
    ConfigurationError,
    CredentialsError,
    DataError,
    MissingInputError,
    OmniError,
    ServiceRefusedError,
)
from tasks.support.store import Progress

PIECE = 1 << 20
COPY_PIECE = 16 << 20
STALE_SECONDS = 3600


@dataclass(frozen=True)
class NewFile:
    """A file that is written before it is moved to its place."""

    path: Path
    fd: int


def plain_stat(path: Path) -> os.stat_result | None:
    """Return a plain file's status, or None when there is none; other failures raise OSError."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found if stat.S_ISREG(found.st_mode) else None


def open_plain(path: Path) -> int | None:
    """Open a plain file for reading, or return None when there is none; a pipe in its place does not block."""
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if stat.S_ISREG(os.fstat(opened).st_mode):
        return opened
    os.close(opened)
    return None


def pieces(opened: int, start: int, end: int, size: int = PIECE) -> Iterator[bytes]:
    """Yield the bytes of an open file from ``start`` up to ``end``; OSError when it ends before."""
    while start < end:
        piece = os.pread(opened, min(size, end - start), start)
        if not piece:
            raise OSError(errno.EIO, "the file became shorter while it was read")
        start += len(piece)
        yield piece


def stamp_later(opened: int, current: os.stat_result | None) -> None:
    """Set a modification time later than the replaced file's: clocks step back, and inodes are used again."""
    earlier = -1 if current is None else current.st_mtime_ns
    now = time.time_ns()
    for later in (max(now, earlier + 1), earlier + 2_000_000_000):
        os.utime(opened, ns=(now, later))
        # A file system may keep whole seconds only.
        if os.fstat(opened).st_mtime_ns > earlier:
            return


def write_all(opened: int, data: bytes) -> None:
    """Write all bytes at the file's position."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(opened, rest) :]


class SentBytes:
    """What was sent of a file, in its order, to be compared with the SHA-256 that the sender knows of it."""

    def __init__(self, path: Path, sha256: str | None) -> None:
        """Name the file; None, for a file that nobody hashed, compares nothing."""
        self._path = path
        self._sha256 = sha256
        self._digest = hashlib.sha256()

    def update(self, data: bytes) -> None:
        """Take in the next bytes."""
        if self._sha256 is not None:
            self._digest.update(data)

    def check(self) -> None:
        """Raise DataError when the bytes are not those that were hashed before."""
        if self._sha256 is not None and self._digest.hexdigest() != self._sha256:
            raise DataError(
                f"the file changed since it was read: {self._path} (sha256 {self._digest.hexdigest()}, "
                f"before {self._sha256})",
                hint="run this again when its writer is done",
            )

    def take(self, opened: int, start: int, end: int) -> None:
        """Take in the bytes of an open file from ``start`` up to ``end``."""
        if self._sha256 is not None:
            for piece in pieces(opened, start, end):
                self._digest.update(piece)


def copy_file(source: int, target: int, path: Path, progress: Progress | None, sha256: str | None = None) -> None:
    """Copy one open file to another, sharing blocks where the file system can; DataError when it changes meanwhile.

    ``target`` must be readable when there is a ``sha256`` to compare with: what arrived there is hashed.
    """
    sent = SentBytes(path, sha256)
    before = os.fstat(source)
    if not stat.S_ISREG(before.st_mode):
        raise DataError(f"not a file: {path}")
    done = 0
    while done < before.st_size:
        count = _copy_piece(source, target, done, min(COPY_PIECE, before.st_size - done))
        if count == 0:
            break
        # Piece by piece, while it is still in memory.
        sent.take(target, done, done + count)
        done += count
        if progress is not None:
            progress(count)
    after = os.fstat(source)
    if (done, after.st_size, after.st_mtime_ns) != (before.st_size, before.st_size, before.st_mtime_ns):
        raise DataError(f"the file changed while it was copied: {path}", hint="run this again when it is complete")
    sent.check()


def _copy_piece(source: int, target: int, offset: int, count: int) -> int:
    if hasattr(os, "copy_file_range"):
        try:
            copied = os.copy_file_range(source, target, count, offset, offset)
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM):
                raise
        else:
            if copied:
                return copied
    data = os.pread(source, min(count, PIECE), offset)
    os.lseek(target, offset, os.SEEK_SET)
    write_all(target, data)
    return len(data)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file, which is made, also against threads; the kernel gives it back however a process ends."""
    # Reading is enough for a lock, so that users of one group need no write access to each other's files.
    opened = os.open(path, os.O_RDONLY | os.O_CREAT, 0o666)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)


@contextlib.contextmanager
def new_file(folder: Path, doing: str) -> Iterator[NewFile]:
    """Open a file of a new name, locked while it is written; it is gone afterwards unless it was moved elsewhere."""
    with explained(doing):
        path = folder / uuid.uuid4().hex
        opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with explained(doing):
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield NewFile(path, opened)
    finally:
        with contextlib.suppress(OSError):
            path.unlink()
        os.close(opened)


def sweep(folder: Path) -> None:
    """Remove what killed writers left in a folder of new files; a file that is being written is locked."""
    for path in folder.iterdir():
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime < STALE_SECONDS:
                continue
            opened = os.open(path, os.O_RDONLY)
            try:
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
            finally:
                os.close(opened)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a power failure."""
    # The object is in place already: a folder that went away, or a file system without this call, is no failure.
    with contextlib.suppress(OSError):
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


@contextlib.contextmanager
def explained(doing: str, *, missing: bool = False) -> Iterator[None]:
    """Turn the system's errors into ours; with ``missing``, a file that is not there is a missing input."""
    try:
        yield
    except OSError as error:
        raise _explain(error, doing, missing=missing) from error


def _explain(error: OSError, doing: str, *, missing: bool) -> OmniError:
    reason = f"{doing}: {(error.strerror or str(error)).lower()}"
    if missing and isinstance(error, FileNotFoundError):
        return MissingInputError(reason)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        # Of this object only: what the same command wrote before it stays.
        hint = "this object is as it was, earlier ones may be written; make room, then run this again"
        return ServiceRefusedError(reason, hint=hint)
    if error.errno in (errno.EACCES, errno.EPERM):
        return CredentialsError(reason, hint="this user lacks a right on the folder")
    if error.errno == errno.ENAMETOOLONG:
        return DataError(reason)
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        return ConfigurationError(reason, hint="the store must be a folder")
    return ServiceRefusedError(reason)
