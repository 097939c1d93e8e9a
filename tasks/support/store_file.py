"""A folder as an object store: whole files appear at once, and conditions hold between processes.

Everything of the store's own (locks, files being written) lies in one hidden folder, which listings leave out.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shlex
import stat
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from tasks.support.errors import DataError, MissingInputError, ServiceRefusedError, UsageError
from tasks.support.file_ops import (
    NewFile,
    copy_file,
    explained,
    locked,
    new_file,
    open_plain,
    pieces,
    plain_stat,
    stamp_later,
    sweep,
    sync_folder,
    write_all,
)
from tasks.support.store import (
    ABSENT,
    Blob,
    ConditionFailedError,
    Expected,
    Headers,
    Progress,
    Stored,
    check_key,
    check_range,
)

OWN_FOLDER = ".omni-store"
NAME_MAX = 255


class FileStore:
    """An object store in a folder, which the first write makes.

    An entity tag is made from modification time, size and inode; each write moves the time forward, so a tag
    never comes back. A folder keeps no headers: ``Stored.headers`` is None. Folders and files get the modes that
    the umask leaves. The folder may be a symbolic link; one below it is a DataError for every call that meets it.
    A writer that is killed leaves at most a hidden file, which a later writer removes.
    """

    def __init__(self, root: Path) -> None:
        """Name the folder, which need not exist."""
        self.root = root
        self.url = root.as_uri()
        self._swept = False

    def head(self, key: str) -> Stored | None:
        """Return an object's facts, or None when there is no such object."""
        path = self._path(key)
        with explained(f"cannot look at {path}"):
            found = plain_stat(path)
            if found is None:
                self._check_root()
        return None if found is None else _stored(key, path, found)

    def get(self, key: str) -> Blob | None:
        """Read a small object whole, or return None when there is no such object."""
        path = self._path(key)
        with explained(f"cannot read {path}"), contextlib.ExitStack() as stack:
            opened = open_plain(path)
            if opened is None:
                self._check_root()
                return None
            stack.callback(os.close, opened)
            stored = _stored(key, path, os.fstat(opened))
            # In one piece, as a rule: joining several would hold the object twice.
            return Blob(stored, b"".join(pieces(opened, 0, stored.size, stored.size)))

    def stream(self, key: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """Yield the bytes from ``start`` up to, not including, ``end``; MissingInputError when there is no object."""
        check_range(start, end)
        path = self._path(key)
        with contextlib.ExitStack() as stack:
            with explained(f"cannot read {path}"):
                opened = open_plain(path)
                self._check_root()
            if opened is None:
                raise MissingInputError(f"no such object: {path}")
            stack.callback(os.close, opened)
            size = os.fstat(opened).st_size
            rest = pieces(opened, start, size if end is None else min(end, size))
            while True:
                # The caller's own errors, raised at the yield, must not be taken for the store's.
                with explained(f"cannot read {path}"):
                    piece = next(rest, None)
                if piece is None:
                    return
                yield piece

    def put(self, key: str, data: bytes, headers: Headers, *, expected: Expected) -> str:  # noqa: ARG002 - a folder keeps none
        """Write a small object and return its entity tag; ConditionFailedError when the condition does not hold."""
        path = self._path(key)
        with self._new_file(path) as new:
            with explained(f"cannot write {path}"):
                write_all(new.fd, data)
            return self._commit(new, key, path, expected)

    def put_file(
        self,
        key: str,
        path: Path,
        headers: Headers,  # noqa: ARG002 - a folder keeps none
        *,
        expected: Expected,
        sha256: str | None = None,
        progress: Progress | None = None,
    ) -> str:
        """Copy a file into the store and return its entity tag; blocks are shared where the file system can."""
        target = self._path(key)
        with explained(f"cannot write {target}"):
            # A large copy for nothing is saved here; the check that counts is made under the lock.
            _check_condition(expected, plain_stat(target), self._name(key))
        with explained(f"cannot read {path}", missing=True):
            source = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            with self._new_file(target) as new:
                with explained(f"cannot write {target}"):
                    copy_file(source, new.fd, path, progress, sha256)
                return self._commit(new, key, target, expected)
        finally:
            os.close(source)

    def delete(self, key: str) -> None:
        """Delete an object and the folders that this leaves empty; a missing object is no error."""
        path = self._path(key)
        with explained(f"cannot delete {path}"):
            if plain_stat(path) is None:
                self._check_root()
                return
            with self._locked(key), contextlib.suppress(FileNotFoundError):
                path.unlink()
            for folder in path.parents:
                if folder == self.root:
                    break
                try:
                    folder.rmdir()
                except OSError:
                    # Not empty, or somebody else was first: a put that loses its folder here makes it again.
                    break

    def list(self, prefix: str = "") -> Iterator[Stored]:
        """Yield every object whose key starts with ``prefix``, folder by folder; raise when a folder cannot be read."""
        above, _, beginning = prefix.rpartition("/")
        if above:
            check_key(above)
            self._refuse_links(above.split("/"))
        elif prefix.startswith("/"):
            raise UsageError(f"not a store prefix: {prefix!r}")
        with explained(f"cannot list {self.root}"):
            self._check_root()
        yield from self._walk(f"{above}/" if above else "", beginning)

    def _walk(self, above: str, beginning: str) -> Iterator[Stored]:
        folder = self.root / above
        with explained(f"cannot list {folder}"):
            try:
                with os.scandir(folder) as found:
                    names = sorted(entry.name for entry in found if entry.name.startswith(beginning))
            except (FileNotFoundError, NotADirectoryError):
                # Deleted since it was seen in the folder above, or nothing has this prefix.
                return
        for name in names:
            if name == OWN_FOLDER:
                # This store's, or that of a store whose root is a folder of this one.
                continue
            key = above + name
            path = self.root / key
            with explained(f"cannot list {path}"):
                stored = self._entry(key, path)
            if stored is not None:
                yield stored
            elif path.is_dir():
                yield from self._walk(f"{key}/", "")

    def _entry(self, key: str, path: Path) -> Stored | None:
        """Return the object at a path, or None for a folder or a path that has gone meanwhile."""
        try:
            check_key(key)
        except UsageError as error:
            raise DataError(f"{self.url} holds a file whose name is no key: {key!r}", hint="remove it") from error
        try:
            found = path.lstat()
        except FileNotFoundError:
            return None
        if stat.S_ISREG(found.st_mode):
            return _stored(key, path, found)
        if stat.S_ISLNK(found.st_mode):
            raise _linked(path, key)
        if not stat.S_ISDIR(found.st_mode):
            raise DataError(f"neither a file nor a folder is in the store: {path}", hint="remove it")
        return None

    def _check_root(self) -> None:
        """Raise OSError when the root is there but no folder: that must not read as an empty store."""
        try:
            found = self.root.stat()
        except FileNotFoundError:
            return
        if not stat.S_ISDIR(found.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))

    def _name(self, key: str) -> str:
        return f"{self.url.rstrip('/')}/{key}"

    def _path(self, key: str) -> Path:
        parts = check_key(key).split("/")
        if OWN_FOLDER in parts:
            raise UsageError(f"{OWN_FOLDER} is a store's own folder: {key!r}")
        for part in parts:
            if len(part.encode()) > NAME_MAX:
                raise DataError(
                    f"a file name may have {NAME_MAX} bytes, this has {len(part.encode())}: {part!r} in {key!r}"
                )
        self._refuse_links(parts)
        return self.root.joinpath(*parts)

    def _refuse_links(self, parts: Sequence[str]) -> None:
        """Raise DataError for a symbolic link below the root: what lies behind it is not the store's."""
        path = os.fspath(self.root)
        for part in parts:
            path = f"{path}/{part}"
            try:
                mode = os.lstat(path).st_mode
            except OSError:
                # Not there, or no way to it: the call that follows meets the same, and explains it.
                return
            if stat.S_ISLNK(mode):
                raise _linked(path, "/".join(parts))

    def _own(self, name: str) -> Path:
        self._refuse_links((OWN_FOLDER, name))
        folder = self.root / OWN_FOLDER / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    @contextlib.contextmanager
    def _locked(self, key: str) -> Iterator[None]:
        """Hold the lock of a key."""
        with locked(self._own("locks") / hashlib.sha256(key.encode()).hexdigest()[:2]):
            yield

    @contextlib.contextmanager
    def _new_file(self, target: Path) -> Iterator[NewFile]:
        """Open a hidden file beside the objects; it is gone afterwards unless it was moved to its place."""
        with explained(f"cannot write {target}"):
            folder = self._own("new")
            if not self._swept:
                self._swept = True
                sweep(folder)
        with new_file(folder, f"cannot write {target}") as new:
            yield new

    def _commit(self, new: NewFile, key: str, target: Path, expected: Expected) -> str:
        """Move a finished file to its place if the condition holds, and return its entity tag."""
        with explained(f"cannot write {target}"):
            os.fsync(new.fd)
            with self._locked(key):
                current = plain_stat(target)
                _check_condition(expected, current, self._name(key))
                stamp_later(new.fd, current)
                self._move(new.path, target, key)
            sync_folder(target.parent)
            return _etag(os.fstat(new.fd))

    def _move(self, path: Path, target: Path, key: str) -> None:
        for _ in range(100):
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                path.replace(target)
            except FileNotFoundError:
                # A delete removed the folder, empty until now, between the two calls.
                continue
            except (FileExistsError, NotADirectoryError) as error:
                if not any(plain_stat(parent) for parent in target.parents):
                    # mkdir found a folder there, and then found it gone.
                    continue
                raise DataError(f"a key above it is an object, so a folder cannot hold {key!r} ({self.url})") from error
            except IsADirectoryError as error:
                try:
                    target.rmdir()
                except FileNotFoundError:
                    continue
                except OSError:
                    raise DataError(f"objects are below it, so a folder cannot hold {key!r} ({self.url})") from error
            else:
                return
        raise ServiceRefusedError(f"cannot write {target}: its folder is removed again and again")


def _linked(path: Path | str, key: str) -> DataError:
    hint = "replace it by what it leads to, or remove it; the store's own folder may be a link"
    return DataError(f"a symbolic link is in the store: {path} (met at {key!r})", hint=hint)


def _etag(found: os.stat_result) -> str:
    return f'"{found.st_mtime_ns:x}-{found.st_size:x}-{found.st_ino:x}"'


def _stored(key: str, path: Path, found: os.stat_result) -> Stored:
    try:
        modified = datetime.fromtimestamp(found.st_mtime, UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise DataError(
            f"{path} has a modification time outside the years 1 to 9999", hint=f"touch {shlex.quote(str(path))}"
        ) from error
    return Stored(key=key, size=found.st_size, etag=_etag(found), modified=modified)


def _check_condition(expected: Expected, current: os.stat_result | None, name: str) -> None:
    if expected is None:
        return
    if expected is ABSENT:
        if current is not None:
            raise ConditionFailedError(f"there is an object already: {name}")
    elif current is None or _etag(current) != expected:
        raise ConditionFailedError(f"the object changed since it was read: {name}")
