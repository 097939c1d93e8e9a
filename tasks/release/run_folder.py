"""The folder of one run: made, held by a lock while the run lasts, and removed when newer ones have come."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from tasks.support import console
from tasks.support.errors import ConfigurationError, CredentialsError, OmniError, ServiceRefusedError

_OWN_NAME = re.compile(r"\d{8}-\d{6}(-\d{6})?-\d+")
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_DENIED = (errno.EACCES, errno.EPERM)
_NO_FOLDER = (errno.ENOTDIR, errno.EEXIST, errno.EROFS, errno.ELOOP)


@contextmanager
def new_folder(parent: Path, kept: int) -> Iterator[Path]:
    """Make a run's own folder below ``parent``, lock it while the block runs, and leave the ``kept`` newest.

    Finished folders of earlier runs are removed; what runs do not make there is left alone. Raises
    CredentialsError, ConfigurationError or ServiceRefusedError when ``parent`` cannot hold a folder.
    """
    with explained(f"cannot make a folder in {parent}"):
        parent.mkdir(parents=True, exist_ok=True)
        # Under the parent's lock, or another run could take a new folder for a finished one before it is locked.
        with _locked(parent):
            folder = _make(parent)
            held = _lock(folder, wait=False)
            _remove_oldest(parent, kept)
    try:
        yield folder
    finally:
        os.close(held)


@contextmanager
def explained(doing: str) -> Iterator[None]:
    """Turn the system's errors about files into ours, each with one line that begins with ``doing``."""
    try:
        yield
    except BrokenPipeError:  # nobody reads our output any more, which is no failure of what was done
        raise
    except OSError as error:
        raise explain(error, doing) from error


def explain(error: OSError, doing: str) -> OmniError:
    """Make our error of one of the system's, or of the list of them that copying a tree raises."""
    number, reason = error.errno, error.strerror or str(error)
    if isinstance(error, shutil.Error) and error.args and isinstance(error.args[0], list) and error.args[0]:
        # Of each failure shutil keeps only the text.
        reason = str(error.args[0][0][-1])
        found = re.match(r"\[Errno (\d+)\] ([^:]*)", reason)
        number, reason = (int(found[1]), found[2]) if found else (None, reason)
    where = f" ({error.filename})" if error.filename else ""
    line = " ".join(f"{doing}: {reason[:1].lower()}{reason[1:]}{where}".split())
    if number in _FULL:
        return ServiceRefusedError(line, hint="make room on that disk and run this again")
    if number in _DENIED:
        return CredentialsError(line, hint="run this as the user who owns that place")
    if number in _NO_FOLDER:
        return ConfigurationError(line, hint="a folder that can be written to is needed there")
    return ServiceRefusedError(line)


def _make(parent: Path) -> Path:
    while True:
        # Sorted by name they are sorted by time, also those of one process and one second.
        folder = parent / f"{datetime.now(UTC):%Y%m%d-%H%M%S-%f}-{os.getpid()}"
        with suppress(FileExistsError):
            folder.mkdir()
            return folder


def _remove_oldest(parent: Path, kept: int) -> None:
    runs = sorted(path for path in parent.iterdir() if _OWN_NAME.fullmatch(path.name) and not path.is_symlink())
    for old in [path for path in runs if path.is_dir()][:-kept]:
        try:
            with suppress(BlockingIOError, FileNotFoundError), _locked(old, wait=False):
                shutil.rmtree(old)
        except OSError as error:  # somebody else's, perhaps: that is no reason not to rehearse
            console.say(f"{explain(error, f'the old run {old} stays')}")


@contextmanager
def _locked(folder: Path, *, wait: bool = True) -> Iterator[None]:
    descriptor = _lock(folder, wait=wait)
    try:
        yield
    finally:
        os.close(descriptor)


def _lock(folder: Path, *, wait: bool) -> int:
    """Lock a folder and return the descriptor that holds the lock; BlockingIOError when another has it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
