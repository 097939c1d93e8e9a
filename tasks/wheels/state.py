"""The index's state: one JSON document per project and one per view. Pages are a pure function of both."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from typing import Any

from tasks.support.errors import DataError, MissingInputError
from tasks.wheels import layout

FORMAT = 1
HISTORY = 50


class TimeSource(Enum):
    """Where a commit's time comes from."""

    GIT = "git"
    GIVEN = "given"
    UPLOAD = "upload"


@dataclass(frozen=True, slots=True)
class FileRecord:
    """One published file. Times are RFC 3339 in UTC with microseconds; sizes are bytes, digests lower-case hex.

    ``yanked`` is None, or the reason (PEP 592), which may be empty. ``metadata_sha256`` is None for an sdist.
    """

    key: str
    version: str
    size: int
    sha256: str
    uploaded: str
    commit_time: str
    commit_time_from: str
    variant: str | None = None
    requires_python: str | None = None
    metadata_sha256: str | None = None
    yanked: str | None = None

    @property
    def commit(self) -> str:
        """Return the commit whose folder holds the file."""
        return self.key.partition("/")[0]

    @property
    def filename(self) -> str:
        """Return the file's name."""
        return self.key.rpartition("/")[2]


_ROW_START = re.compile(r'\},"(?=\w)')
_ROW = tuple(name for name in FileRecord.__slots__ if name != "key")


@dataclass(frozen=True)
class ProjectState:
    """All files of one project, over all commits, by key."""

    project: str
    revision: int = 0
    files: Mapping[str, FileRecord] = field(default_factory=dict)

    def with_files(self, changed: Mapping[str, FileRecord], removed: frozenset[str] = frozenset()) -> ProjectState:
        """Return the next revision with files added or replaced, and others removed."""
        kept = {key: record for key, record in self.files.items() if key not in removed}
        return replace(self, revision=self.revision + 1, files=dict(sorted({**kept, **changed}.items())))

    def encode(self) -> bytes:
        """Return the document's bytes: deterministic, one file a line."""
        head = {"format": FORMAT, "project": self.project, "revision": self.revision}
        return _encode(head, "files", {key: _row(record) for key, record in self.files.items()})

    @classmethod
    def decode(cls, data: bytes, key: str) -> ProjectState:
        """Read a document, or raise DataError naming its key."""
        try:
            document = _decode(data)
            files = {name: FileRecord(key=name, **row) for name, row in document["files"].items()}
            for record in files.values():
                _check_types(record)
            return cls(str(document["project"]), int(document["revision"]), files)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise _unreadable(key, error) from error


@dataclass(frozen=True)
class Revision:
    """What a view held at one time, and the commit that it moved to.

    ``counts`` has per project the number of files of each variant ("" is the default one); root pages are made
    from it alone, so that adding a wheel never reads another project's files. ``files`` has per project the keys
    of its files; None, in a commit's own view, means every file of that commit. ``restores`` is the number of the
    revision that a rollback went back to.
    """

    number: int
    commit: str
    commit_time: str
    commit_time_from: str
    moved: str
    note: str
    counts: Mapping[str, Mapping[str, int]]
    files: Mapping[str, tuple[str, ...]] | None = None
    restores: int | None = None

    @property
    def commits(self) -> list[str]:
        """Return every commit that the revision holds files of, and the one that it moved to."""
        held = {key.partition("/")[0] for keys in (self.files or {}).values() for key in keys}
        return sorted(held | {self.commit})

    def records_of(self, state: ProjectState) -> list[FileRecord]:
        """Return the project's files in this revision, sorted by file name; MissingInputError when one is gone."""
        if self.files is None:
            chosen = [record for key, record in state.files.items() if key.startswith(f"{self.commit}/")]
        else:
            keys = self.files.get(state.project, ())
            gone = [key for key in keys if key not in state.files]
            if gone:
                raise MissingInputError(
                    f"no longer in the store: {gone[0]}", hint="it was pruned; choose a newer revision"
                )
            chosen = [state.files[key] for key in keys]
        return sorted(chosen, key=lambda record: record.filename)


@dataclass(frozen=True)
class ViewState:
    """A view's revisions, oldest first. A commit's view keeps only its current one."""

    view: str
    revisions: tuple[Revision, ...] = ()

    @property
    def current(self) -> Revision | None:
        """Return what the view holds now, or None when nothing was ever published in it."""
        return self.revisions[-1] if self.revisions else None

    def moved_to(self, revision: Revision) -> ViewState:
        """Return the state after a move, with the history cut to its limit."""
        limit = 1 if layout.is_commit(self.view) else HISTORY
        return replace(self, revisions=(*self.revisions, revision)[-limit:])

    def encode(self) -> bytes:
        """Return the document's bytes: deterministic, one revision a line."""
        rows = {str(revision.number): asdict(revision) for revision in self.revisions}
        return _encode({"format": FORMAT, "view": self.view}, "revisions", rows)

    @classmethod
    def decode(cls, data: bytes, key: str) -> ViewState:
        """Read a document, or raise DataError naming its key."""
        try:
            document = _decode(data)
            revisions = tuple(_revision(row) for row in document["revisions"].values())
            return cls(document["view"], tuple(sorted(revisions, key=lambda revision: revision.number)))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise _unreadable(key, error) from error


def count_variants(records: Iterable[FileRecord]) -> dict[str, int]:
    """Return the number of files per variant; the default variant is ""."""
    return dict(sorted(Counter(record.variant or "" for record in records).items()))


def _row(record: FileRecord) -> dict[str, Any]:
    return {name: value for name in _ROW if (value := getattr(record, name)) is not None}


def _check_types(record: FileRecord) -> None:
    texts = (record.version, record.sha256, record.uploaded, record.commit_time, record.commit_time_from)
    optional = (record.variant, record.requires_python, record.metadata_sha256, record.yanked)
    if type(record.size) is not int or not all(type(text) is str for text in texts):
        raise ValueError(f"{record.key} lacks a fact, or has one of the wrong type")
    if not all(text is None or type(text) is str for text in optional):
        raise ValueError(f"{record.key} has a fact of the wrong type")


def _revision(row: dict[str, Any]) -> Revision:
    listed = row.pop("files")
    files = None if listed is None else {project: tuple(keys) for project, keys in listed.items()}
    return Revision(files=files, **row)


def _encode(head: Mapping[str, Any], name: str, rows: Mapping[str, Any]) -> bytes:
    text = json.dumps({**head, name: rows}, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    # A row a line, for people who compare two versions. Behind the quote that ends a text there is never a word.
    return (_ROW_START.sub('},\n"', text) + "\n").encode()


def _decode(data: bytes) -> Any:
    document = json.loads(data)
    if document["format"] != FORMAT:
        raise ValueError(f"format {document['format']!r} is not {FORMAT}: written by another version of this tool")
    return document


def _unreadable(key: str, error: Exception) -> DataError:
    return DataError(
        f"cannot read the state {key}: {type(error).__name__}: {error}",
        hint="nothing was changed; restore that object from the bucket's version history, "
        "else delete it and run wheels.adopt",
    )
