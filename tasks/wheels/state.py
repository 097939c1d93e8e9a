"""The index's state: one JSON document per project and one per view. Pages are a pure function of both."""

from __future__ import annotations

import gc
import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from functools import cached_property
from itertools import groupby
from json.encoder import encode_basestring as _text
from typing import Any

from tasks.support.errors import DataError, MissingInputError
from tasks.wheels import layout, state_checks

FORMAT = 1
HISTORY = 50
# What reading a document that is not as it should be raises.
UNREADABLE = (ValueError, TypeError, KeyError, AttributeError, RecursionError)


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

    def of_commit(self, commit: str) -> list[FileRecord]:
        """Return one commit's files, sorted by file name."""
        return [*self._by_commit.get(commit, ())]

    @cached_property
    def _by_commit(self) -> Mapping[str, list[FileRecord]]:
        found: dict[str, list[FileRecord]] = {}
        # In one folder the order of the keys is that of the names.
        for commit, keys in groupby(sorted(self.files), key=lambda key: key.partition("/")[0]):
            found[commit] = [self.files[key] for key in keys]
        return found

    def encode(self) -> bytes:
        """Return the document's bytes: deterministic, one file a line. DataError when no revision can follow."""
        _check_next(self.revision, f"project {self.project}")
        lines = [_row(self.files[key]) for key in sorted(self.files)] or [b""]
        lines[0] = b'{"files":{' + lines[0]
        rest = f'"format":{FORMAT},"project":{_text(self.project)},"revision":{self.revision}'
        lines[-1] += f"}},\n{rest}}}\n".encode()
        return b",\n".join(lines)

    @classmethod
    def decode(cls, data: bytes, key: str) -> ProjectState:
        """Read a document, or raise DataError naming its key."""
        try:
            with _without_collection():
                document = _decode(data, "project", key, layout.PROJECT_STATES)
                files = {name: FileRecord(key=name, **row) for name, row in document["files"].items()}
            check_files(files.values())
            state_checks.check_number(document["revision"], "revision")
            return cls(document["project"], document["revision"], files)
        except UNREADABLE as error:
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
            return state.of_commit(self.commit)
        keys = self.files.get(state.project, ())
        gone = [key for key in keys if key not in state.files]
        if gone:
            raise MissingInputError(f"no longer in the store: {gone[0]}", hint="it was pruned; choose a newer revision")
        return sorted((state.files[key] for key in keys), key=lambda record: record.filename)


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
        """Return the document's bytes: deterministic, one revision a line. DataError when no revision can follow."""
        for revision in self.revisions[-1:]:
            _check_next(revision.number, f"view {self.view}")
        rows = {str(revision.number): asdict(revision) for revision in self.revisions}
        document = {"format": FORMAT, "view": self.view, "revisions": rows}
        text = json.dumps(document, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
        # A row a line, for people who compare two versions. Behind the quote that ends a text there is never a word.
        return (_ROW_START.sub('},\n"', text) + "\n").encode()

    @classmethod
    def decode(cls, data: bytes, key: str) -> ViewState:
        """Read a document, or raise DataError naming its key."""
        try:
            document = _decode(data, "view", key, layout.VIEW_STATES)
            revisions = [_revision(name, row) for name, row in document["revisions"].items()]
            return cls(document["view"], tuple(sorted(revisions, key=lambda revision: revision.number)))
        except UNREADABLE as error:
            raise _unreadable(key, error) from error


@contextmanager
def _without_collection() -> Iterator[None]:
    """Keep the collector of cycles away while many objects are made and none is dropped: half of the time was its."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def count_variants(records: Iterable[FileRecord]) -> dict[str, int]:
    """Return the number of files per variant; the default variant is ""."""
    return dict(sorted(Counter(record.variant or "" for record in records).items()))


def _row(record: FileRecord) -> bytes:
    """Write a file's line: what json.dumps makes of its facts sorted by name, in a third of the time.

    Digests, times, versions and labels are plain ASCII without quotes (see ``state_checks``).
    """
    text = f'{_text(record.key)}:{{"commit_time":"{record.commit_time}"'
    text += f',"commit_time_from":"{record.commit_time_from}"'
    if record.metadata_sha256 is not None:
        text += f',"metadata_sha256":"{record.metadata_sha256}"'
    if record.requires_python is not None:
        text += f',"requires_python":{_text(record.requires_python)}'
    text += f',"sha256":"{record.sha256}","size":{record.size},"uploaded":"{record.uploaded}"'
    if record.variant is not None:
        text += f',"variant":"{record.variant}"'
    text += f',"version":"{record.version}"'
    if record.yanked is not None:
        text += f',"yanked":{_text(record.yanked)}'
    return f"{text}}}".encode()


def check_files(files: Collection[FileRecord]) -> None:
    """Check every fact of the files as they were read; raises one of UNREADABLE."""
    state_checks.check_records(files)
    for text in {record.commit_time_from for record in files}:
        TimeSource(text)


def _revision(name: str, row: dict[str, Any]) -> Revision:
    listed = row.pop("files")
    files = None if listed is None else {project: tuple(_list(keys)) for project, keys in listed.items()}
    revision = Revision(files=files, **row)
    state_checks.check_revision(revision, name)
    TimeSource(revision.commit_time_from)
    return revision


def _list(keys: Any) -> list[Any]:
    if type(keys) is not list:
        raise TypeError("a project's files are no list")
    return keys


def _decode(data: bytes, what: str, key: str, folder: str) -> Any:
    # Strictly UTF-8: from bytes, json takes other encodings too, and halves of surrogate pairs.
    document = json.loads(str(data, "utf-8"))
    form, name = document["format"], document[what]
    if type(form) is not int or form != FORMAT:
        raise ValueError(f"format {form!r} is not {FORMAT}: written by another version of this tool")
    if name != key.removeprefix(folder).removesuffix(".json"):
        raise ValueError(f"it is the state of {what} {name!r}")
    state_checks.check_texts(data, document)
    return document


def _check_next(number: int, what: str) -> None:
    if number >= state_checks.LARGEST - 1:
        raise DataError(f"{what} has revision {number}, and none can follow", hint="somebody has changed its state")


def _unreadable(key: str, error: Exception) -> DataError:
    reason = " ".join(str(error).split())[:200].encode("utf-8", "backslashreplace").decode()
    return DataError(
        f"cannot read the state {key}: {type(error).__name__}: {reason}",
        hint="nothing was changed; restore that object from the bucket's version history, "
        "else delete it and run wheels.adopt",
    )
