"""Where a pipeline's steps come from: the native file of a cell or one that the caller names, here or in a commit."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tasks.pipelines.changes import file_at
from tasks.pipelines.model import NativeFile
from tasks.pipelines.reading import read_native
from tasks.suites.tiers import Cell
from tasks.support import paths
from tasks.support.errors import DataError, MissingInputError

LARGEST = 16 * 2**20
"""Bytes; nobody writes a larger pipeline."""


@dataclass(frozen=True)
class Origin:
    """Where native files are read: the source's working tree, or what a revision of it holds."""

    source: Path
    revision: str | None = None

    def read(self, name: str) -> bytes | None:
        """Return a file's bytes, or None when it is not there; ``name`` is its path below the source."""
        if self.revision is not None:
            return file_at(self.source, self.revision, name)
        return _read(self.source / name)

    def __str__(self) -> str:
        """Return how messages call it."""
        return str(self.source) if self.revision is None else f"{self.source} at {self.revision}"


def read(cell: Cell, origin: Origin) -> NativeFile:
    """Return a cell's steps: the first of its native files that is there; MissingInputError naming what was tried.

    This is the only place that knows what a cell's steps are written in.
    """
    for name in cell.files:
        data = origin.read(name)
        if data is not None:
            return read_native(data, name)
    raise MissingInputError(
        f"{cell.name} has no pipeline in {origin}; tried {', '.join(cell.files)}",
        hint="pass --file, or another --source",
    )


def read_file(word: str, origin: Origin) -> NativeFile:
    """Return the steps of a file that ``find_file`` finds."""
    name, data = find_file(word, origin)
    return read_native(data, name)


def find_file(word: str, origin: Origin) -> tuple[str, bytes]:
    """Return a file's name and bytes: a path as seen from the current folder or, where that is nothing, the source.

    A file of the source is called by its path below it, as path rules are, and read where ``origin`` says; any other is
    read as it lies there. Raises MissingInputError when it is nowhere.
    """
    given = paths.without_steps_up(paths.absolute(paths.as_path(word, "the file's path")))
    source = paths.without_steps_up(paths.absolute(origin.source))
    if not given.is_relative_to(source) and (paths.is_there(given) or Path(word).is_absolute()):
        data, name = _read(given), str(given)
    else:
        name = (given.relative_to(source) if given.is_relative_to(source) else Path(word)).as_posix()
        data = origin.read(name)
    if data is None:
        raise MissingInputError(f"there is no file {paths.shown(word)} in {origin}", hint="correct its path")
    return name, data


def _read(path: Path) -> bytes | None:
    if not paths.is_there(path):
        return None
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise MissingInputError(f"cannot read {paths.shown(path)}: {(error.strerror or str(error)).lower()}") from error
    if len(data) > LARGEST:
        raise DataError(f"{paths.shown(path)} is longer than {LARGEST} bytes: that is no pipeline")
    return data
