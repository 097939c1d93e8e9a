"""Removing whole commits from the store, in the reverse order of publishing, so that it can stop anywhere.

Before anything is deleted a note is written for the commit, with all its files; it is deleted last. The note does
three things. An upload or a move that finds it gives way, and one that came first is seen by the prune, which looks
at the views after writing it. A prune that was stopped can be completed, because the note names the files even when
the state no longer does; so a wheel that was never recorded, which no note names, is never mistaken for a left-over.
And as each prune puts its own word into the note, a prune that lost its note to another one stops deleting.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain

from tasks.support.console import plural
from tasks.support.errors import DataError
from tasks.support.store import ABSENT, ConditionFailedError, Expected
from tasks.wheels import layout, state_checks
from tasks.wheels.drawing import PAGE_NAMES, draw_store, draw_view, expected_keys, in_deletion_order
from tasks.wheels.index import Index
from tasks.wheels.state import FORMAT, UNREADABLE, FileRecord, ProjectState, ViewState, check_files
from tasks.wheels.upload import show_commit

PARALLEL = 8


@dataclass(frozen=True)
class Removal:
    """One commit to remove, with its files per project.

    ``etag`` is the entity tag of its note, once there is one; ``resumed`` says that a stopped prune wrote it.
    """

    commit: str
    files: Mapping[str, tuple[FileRecord, ...]]
    etag: str | None = None
    resumed: bool = False

    @property
    def records(self) -> list[FileRecord]:
        """Return all its files."""
        return list(chain.from_iterable(self.files.values()))

    @property
    def sidecars(self) -> list[str]:
        """Return the keys of its metadata sidecars."""
        return [record.key + layout.METADATA_SUFFIX for record in self.records if record.metadata_sha256]

    def actions(self) -> list[tuple[str, str, str]]:
        """Return (action, key, reason) in the order of execution, without the note's writing."""
        rows = [("delete pages", f"{self.commit}/", "before what they link to")]
        rows.append(("delete state", layout.view_state(self.commit), "the commit's view"))
        for project, records in self.files.items():
            rows.append(("change state", layout.project_state(project), f"forget {plural(len(records), 'file')}"))
        rows += [("delete metadata", key, "no page names it") for key in self.sidecars]
        rows += [("delete file", record.key, "no page names it") for record in self.records]
        rows.append(("delete note", layout.pruning(self.commit), "the commit is gone"))
        return rows


@dataclass(frozen=True)
class Removed:
    """What became of the removals: commits that are gone, keys that were deleted, commits that stay and why."""

    commits: tuple[str, ...]
    deleted: tuple[str, ...]
    kept: tuple[tuple[str, str], ...]


def read_note(index: Index, commit: str) -> Removal | None:
    """Return the removal that a note describes, or None when it was completed meanwhile."""
    key = layout.pruning(commit)
    blob = index.store.get(key)
    if blob is None:
        return None
    try:
        document = json.loads(blob.data)
        known = document["format"] == FORMAT
        files = {
            project: tuple(FileRecord(**row) for row in rows) for project, rows in sorted(document["files"].items())
        }
        for records in files.values():
            check_files(records)
        state_checks.check_texts(blob.data, document)
    except UNREADABLE as error:
        raise DataError(f"cannot read the note {key}: {repr(error)[:200]}", hint="nothing was changed") from error
    if not known:
        raise DataError(f"the note {key} was written by another version of this tool", hint="nothing was changed")
    if any(record.commit != commit for records in files.values() for record in records):
        raise DataError(f"the note {key} names files of another commit", hint="nothing was changed")
    return Removal(commit, files, blob.etag, resumed=True)


def holders(views: Iterable[ViewState]) -> dict[str, str]:
    """Return per commit a view whose present revision holds files of it."""
    held: dict[str, str] = {}
    for view in views:
        for commit in view.current.commits if view.current else ():
            held.setdefault(commit, view.view)
    return held


def remove_commits(index: Index, removals: Sequence[Removal]) -> Removed:
    """Remove the commits, except those that changed since they were chosen.

    Safe to repeat after a failure or a kill at any point, next to uploads, moves and other prunes. Pages of the
    moving views are brought up to date first: a move that was stopped may have left older ones, with older links.
    """
    for view in _moving_views(index):
        draw_view(index, view, sweep=True)
    owner = uuid.uuid4().hex
    with ThreadPoolExecutor(PARALLEL) as pool:
        claimed = list(pool.map(partial(_claim, index, owner), removals))
    claims = [claim for claim in claimed if claim is not None]
    kept = {removal.commit: "another prune removes it" for removal in removals}
    stay = _changed(index, claims)
    claims = _give_up(index, claims, stay)
    draw_store(index)
    with ThreadPoolExecutor(PARALLEL) as pool:
        done = list(pool.map(partial(_remove, index), claims))
    draw_store(index)
    gone = tuple(claim.commit for claim, deleted in zip(claims, done, strict=True) if deleted is not None)
    kept = {commit: reason for commit, reason in {**kept, **stay}.items() if commit not in gone}
    return Removed(gone, tuple(key for deleted in done for key in deleted or ()), tuple(kept.items()))


def _moving_views(index: Index) -> list[str]:
    return [view for view in index.view_names() if not layout.is_commit(view)]


def _claim(index: Index, owner: str, removal: Removal) -> Removal | None:
    """Write the note, or put this prune's own word into it; None when another prune was faster."""
    document = {
        "format": FORMAT,
        "commit": removal.commit,
        "owner": owner,
        "files": {project: [asdict(record) for record in records] for project, records in removal.files.items()},
    }
    key = layout.pruning(removal.commit)
    expected: Expected = removal.etag or ABSENT
    try:
        data = (json.dumps(document, sort_keys=True, indent=1) + "\n").encode()
        etag = index.store.put(key, data, layout.headers_for(key), expected=expected)
    except ConditionFailedError:
        return None
    return replace(removal, etag=etag)


def _changed(index: Index, claims: Sequence[Removal]) -> dict[str, str]:
    """Return the commits that a view came to hold, or whose files changed, since they were chosen."""
    held = holders(index.view(view).state for view in _moving_views(index))
    names = {project for claim in claims for project in claim.files}
    states = {name: index.project(name).state for name in sorted(names)}
    stay: dict[str, str] = {}
    for claim in claims:
        whole = all(_rows(states[project], claim.commit) == _times(files) for project, files in claim.files.items())
        shown = index.view(claim.commit).state.current
        whole = whole and (shown is None or set(shown.counts) <= set(claim.files))
        if claim.commit in held:
            stay[claim.commit] = f"{held[claim.commit]} holds it now"
        elif not whole and not claim.resumed:
            stay[claim.commit] = "its files changed since it was chosen"
    return stay


def _rows(state: ProjectState, commit: str) -> dict[str, str]:
    return _times(state.of_commit(commit))


def _times(records: Iterable[FileRecord]) -> dict[str, str]:
    return {record.key: record.uploaded for record in records}


def _give_up(index: Index, claims: Sequence[Removal], stay: Mapping[str, str]) -> list[Removal]:
    """Delete the notes of the commits that stay, and return the others."""
    for claim in claims:
        if claim.commit in stay and _is_ours(index, claim):
            index.store.delete(layout.pruning(claim.commit))
    return [claim for claim in claims if claim.commit not in stay]


def _remove(index: Index, claim: Removal) -> list[str] | None:
    """Remove one commit and return the deleted keys; None when another prune has taken it over."""
    deleted: list[str] = []
    for key in _steps(index, claim):
        if not _is_ours(index, claim):
            return None
        index.store.delete(key)
        deleted.append(key)
    return deleted


def _is_ours(index: Index, claim: Removal) -> bool:
    return index.still_current(layout.pruning(claim.commit), claim.etag or ABSENT)


def _steps(index: Index, claim: Removal) -> Iterator[str]:
    """Yield the keys to delete in their order, and forget the files in between."""
    commit = claim.commit
    projects = set(claim.files)
    current = index.view(commit).state.current
    if current is not None:
        projects |= set(current.counts)
    yield from _pages_and_view(index, commit)
    for project, records in claim.files.items():
        index.change_project(project, partial(_forget, _times(records)))
    left = [name for name in sorted(projects) if _rows(index.project(name).state, commit)]
    if left:
        # An upload that was on its way when the note was written has added files: they stay, and are shown.
        show_commit(index, commit, sorted(projects))
        draw_view(index, commit, sweep=True)
    else:
        yield from _pages_and_view(index, commit)
    yield from claim.sidecars
    yield from (record.key for record in claim.records)
    yield layout.pruning(commit)


def _forget(times: Mapping[str, str], state: ProjectState) -> ProjectState:
    """Forget files by key; one that was uploaded anew since is another file."""
    gone = frozenset(key for key, record in state.files.items() if times.get(key) == record.uploaded)
    return state.with_files({}, gone) if gone else state


def _pages_and_view(index: Index, commit: str) -> Iterator[str]:
    """Yield the commit's pages, each before those that it links to, then its view's state."""
    current = index.view(commit).state.current
    keys = {stored.key for stored in index.store.list(f"{commit}/") if stored.key.endswith(PAGE_NAMES)}
    if current is not None:
        keys |= expected_keys(current, commit, index.rules.alias_of_default)
    yield from in_deletion_order(keys)
    if current is not None:
        yield layout.view_state(commit)
