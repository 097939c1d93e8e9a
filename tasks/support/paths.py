"""Paths as people give them: whatever the system says against one is an error of one line."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path

from tasks.support.errors import CredentialsError, MissingInputError, OmniError, ServiceRefusedError, UsageError
from tasks.support.settings import CHECKOUT

_SHOWN = 120


def from_checkout(path: Path) -> str:
    """Return how messages call a file: as seen from this checkout where it lies in it."""
    return path.relative_to(CHECKOUT).as_posix() if path.is_relative_to(CHECKOUT) else str(path)


def current_folder() -> Path:
    """Return the current folder; MissingInputError when it was deleted meanwhile."""
    try:
        return Path.cwd()
    except OSError as error:
        raise MissingInputError("the current folder is gone", hint="change to a folder that exists") from error


def absolute(path: Path | str) -> Path:
    """Return the path, a relative one as seen from the current folder; only that one asks where it is."""
    found = Path(path)
    return found if found.is_absolute() else current_folder() / found


def without_steps_up(path: Path) -> Path:
    """Return the same place without ``..``: up from a link is up from where it leads, as the system sees it."""
    parts = path.parts
    if ".." not in parts:
        return path
    last = len(parts) - parts[::-1].index("..")
    with _explained(path):
        try:
            return Path(*parts[:last]).resolve().joinpath(*parts[last:])
        except RuntimeError as error:  # of links that lead to each other, before Python 3.13
            raise UsageError(f"not a path: {shown(path)!r}", hint="correct it") from error


def as_path(word: str, what: str) -> Path:
    """Return the path that a person means, ``~`` expanded; UsageError naming ``what`` when it can be none."""
    if "\0" in word:
        raise UsageError(f"{what} holds a NUL byte", hint=f"correct {what}")
    try:
        return Path(word).expanduser()
    except RuntimeError as error:
        raise UsageError(f"{what} names a user without a home folder: {shown(word)}", hint=f"correct {what}") from error


def is_folder(path: Path) -> bool:
    """Say whether there is a folder; unlike Path.is_dir, with an OmniError when that cannot be known."""
    found = _stat(path)
    return found is not None and stat.S_ISDIR(found.st_mode)


def is_there(path: Path) -> bool:
    """Say whether there is anything; unlike Path.exists, with an OmniError when that cannot be known."""
    return _stat(path) is not None


def matching(folder: Path, pattern: str) -> list[Path]:
    """Return the folder's entries of these names, sorted; unlike Path.glob, with an OmniError for an unreadable one."""
    with _explained(folder):
        return sorted(path for path in folder.iterdir() if fnmatchcase(path.name, pattern))


def shown(path: Path | str) -> str:
    """Return the path as text for a message; of a very long one the beginning."""
    text = str(path)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text)} characters)"


def _stat(path: Path) -> os.stat_result | None:
    with _explained(path):
        try:
            return path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _explain(error, shown(path)) from error
    except ValueError as error:
        raise UsageError(f"not a path: {shown(path)!r}", hint="correct it") from error


def _explain(error: OSError, path: str) -> OmniError:
    reason = f"cannot look at {path}: {(error.strerror or str(error)).lower()}"
    if error.errno in (errno.ENAMETOOLONG, errno.ELOOP):
        return UsageError(reason, hint="give another path")
    if error.errno in (errno.EACCES, errno.EPERM):
        return CredentialsError(reason, hint="this user lacks a right on it, or on a folder above it")
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return MissingInputError(reason)
    return ServiceRefusedError(reason)
