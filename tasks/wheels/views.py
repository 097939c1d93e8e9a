"""Moving views: the commit's own, ``nightly`` (only forward) and releases."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from fnmatch import fnmatchcase

from packaging.version import Version

from tasks.support.errors import DataError, MissingInputError, OmniError, RemoteChangedError
from tasks.support.source import Ancestry
from tasks.wheels import layout
from tasks.wheels.drawing import STORE_ROW, Drawn, draw_store, draw_view, page_rows, pending, pending_store
from tasks.wheels.index import Index, now
from tasks.wheels.state import FileRecord, Revision, ViewState, count_variants
from tasks.wheels.twins import twins_of
from tasks.wheels.upload import CommitTime, best_time, show_commit

AskAncestry = Callable[[str, str], Ancestry]
"""Answers how an older commit (first) relates to a newer one (second)."""


def unknown_ancestry(_older: str, _newer: str) -> Ancestry:
    """Answer for a run without the library's history at hand."""
    return Ancestry.UNKNOWN


class Outcome(Enum):
    """What a request to move a view comes to."""

    MOVE = "moved"
    SAME = "already there"
    KEPT = "kept"


@dataclass(frozen=True)
class Candidate:
    """One commit's files, chosen for a view."""

    view: str
    commit: str
    time: CommitTime
    files: Mapping[str, tuple[FileRecord, ...]]


@dataclass(frozen=True)
class Move:
    """A planned move of one view, with the reason for its outcome.

    ``losses`` says what the view holds now and no longer would, ``pages`` what would be drawn, once it was looked at.
    """

    candidate: Candidate
    outcome: Outcome
    reason: str
    losses: tuple[str, ...] = ()
    pages: Drawn | None = None

    @property
    def view(self) -> str:
        """Return the view's name."""
        return self.candidate.view

    def actions(self) -> list[tuple[str, str, str]]:
        """Return (action, key, reason) in the order of execution."""
        rows = []
        if self.outcome is Outcome.MOVE:
            rows.append(("change state", layout.view_state(self.view), self.reason))
        if self.outcome is Outcome.KEPT:
            return [("keep", f"{self.view}/", self.reason)]
        if self.pages is None:
            return [*rows, ("draw pages", f"{self.view}/", "when they differ")]
        store = [STORE_ROW] if rows and not layout.is_commit(self.view) else []
        return [*rows, *page_rows(self.view, self.pages), *store]


@dataclass(frozen=True)
class Moved:
    """What became of one view."""

    view: str
    outcome: Outcome
    reason: str
    drawn: Drawn
    revision: Revision | None = None
    """What the view holds now."""

    @property
    def number(self) -> int | None:
        """Return the number of that revision."""
        return self.revision.number if self.revision is not None else None


def commit_records(index: Index, commit: str) -> dict[str, tuple[FileRecord, ...]]:
    """Return a commit's files by project; MissingInputError when nothing was uploaded for it."""
    revision = index.view(layout.check_commit(commit)).state.current
    if revision is None:
        raise MissingInputError(
            f"no wheels were uploaded for commit {commit} to {index.store.url}",
            hint=f"invoke wheels.upload --commit {commit} --store {index.store.url}",
        )
    found = {project: revision.records_of(index.project(project).state) for project in sorted(revision.counts)}
    return {project: tuple(records) for project, records in found.items() if records}


def foresee(index: Index, move: Move) -> Move:
    """Look at what the move would draw and delete, as a dry run shows it; reads only."""
    current = index.view(move.view).state.current
    if move.outcome is Outcome.KEPT:
        return move
    revision = current
    if current is not None and layout.is_commit(move.view):
        revision = replace(current, counts=_counts(move.candidate.files))
    elif move.outcome is Outcome.MOVE:
        revision = _revision(index, index.view(move.view).state, move.candidate)
    pages = pending(index, move.view, revision) if revision is not None else Drawn()
    if move.outcome is Outcome.SAME:
        pages += pending_store(index)
    return replace(move, pages=pages)


def plan_move(index: Index, view: str, commit: str, ancestry: AskAncestry = unknown_ancestry) -> Move:
    """Plan the move of one view to a commit's files; nothing is written.

    Raises MissingInputError when the commit lacks what the view needs, DataError when files contradict each
    other, RemoteChangedError when two commits' order cannot be told.
    """
    candidate = _candidate(index, view, commit)
    state = index.view(view).state
    _refuse_other_bytes(index, candidate, state.current)
    outcome, reason = judge(index, state, candidate, ancestry)
    losses = _losses(state.current, candidate) if outcome is Outcome.MOVE else ()
    return Move(candidate, outcome, reason, tuple(losses))


def _losses(current: Revision | None, candidate: Candidate) -> list[str]:
    """Return a sentence for each project, and each variant of one, that the view holds and the commit lacks."""
    if current is None or candidate.view != layout.NIGHTLY:
        return []
    new = _counts(candidate.files)
    said = []
    for project, counts in current.counts.items():
        if project not in new:
            said.append(f"{candidate.view} loses {project}: commit {candidate.commit[:12]} has no file of it")
            continue
        gone = [variant or "default" for variant in counts if variant not in new[project]]
        if gone:
            builds = ", ".join(gone)
            said.append(f"{candidate.view} loses {builds} of {project}: commit {candidate.commit[:12]} has none")
    return said


def way_back(index: Index, view: str, commit: str) -> str:
    """Return the command that brings a commit back to a view that passed it over, or else what does."""
    held = [revision.number for revision in index.view(view).state.revisions if revision.commit == commit]
    if held:
        return f"invoke wheels.rollback {view} --to {max(held)}"
    return f"{view} never held it, and moves only forward; upload a newer commit, or publish this one as v<version>"


def _candidate(index: Index, view: str, commit: str) -> Candidate:
    files = commit_records(index, commit)
    time = best_time(record for records in files.values() for record in records)
    if time is None:
        raise MissingInputError(f"commit {commit} has no files left in {index.store.url}")
    if view == layout.NIGHTLY:
        _require(index.rules.required_nightly, files, commit)
    elif layout.is_release(view):
        files = _of_version(files, view, commit)
    if not layout.is_commit(view):
        _require_default(files, view)
    return Candidate(view, commit, time, files)


def _require(patterns: Sequence[str], files: Mapping[str, Sequence[FileRecord]], commit: str) -> None:
    names = [record.filename for records in files.values() for record in records]
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise MissingInputError(
                f"commit {commit} has no file {pattern}, which a nightly needs",
                hint="upload it, or change required-nightly in [tool.omni-ci.wheels]",
            )


def _of_version(files: Mapping[str, Sequence[FileRecord]], view: str, commit: str) -> dict[str, tuple[FileRecord, ...]]:
    wanted = Version(view.removeprefix("v"))
    matching = {
        project: tuple(record for record in records if Version(Version(record.version).public) == wanted)
        for project, records in files.items()
    }
    matching = {project: records for project, records in matching.items() if records}
    if not matching:
        have = ", ".join(sorted({record.version for records in files.values() for record in records}))
        raise MissingInputError(f"commit {commit} has no file of version {wanted}; it has {have}")
    return matching


def _require_default(files: Mapping[str, Sequence[FileRecord]], view: str) -> None:
    for project, records in files.items():
        variants = count_variants(records)
        if "" not in variants and len(variants) > 1:
            raise DataError(
                f"no default variant of {project} for {view}: there are only {', '.join(variants)}",
                hint="upload the wheel without an accelerator suffix to the same commit first",
            )


def judge(index: Index, state: ViewState, candidate: Candidate, ancestry: AskAncestry) -> tuple[Outcome, str]:
    """Decide what a move to ``candidate`` comes to, given what the view holds now."""
    current = state.current
    if current is None:
        return Outcome.MOVE, "first publish"
    new_files = _merged(index, current, candidate)
    if current.commit == candidate.commit or candidate.view != layout.NIGHTLY:
        others = _held_from(current, candidate)
        kept = f"the same bytes are there: those of commit {', '.join(others)} stay" if others else ""
        if _same_files(current, candidate, new_files):
            return Outcome.SAME, kept or "same files"
        added = "more files" if current.commit == candidate.commit else f"adds commit {candidate.commit}"
        return Outcome.MOVE, f"{added}; {kept}" if kept else added
    back = _rolled_back_from(state, candidate.commit)
    if back is not None:
        return Outcome.KEPT, f"{candidate.commit} was rolled back; wheels.rollback --to {back} brings it back"
    return _nightly_order(current, candidate, ancestry)


def _held_from(current: Revision, candidate: Candidate) -> list[str]:
    """Return the other commits whose files of the same names, and so of the same bytes, a release keeps."""
    if not layout.is_release(candidate.view):
        return []
    names = {record.filename for records in candidate.files.values() for record in records}
    keys = (key for keys in (current.files or {}).values() for key in keys)
    held = {key.partition("/")[0] for key in keys if key.rpartition("/")[2] in names}
    return sorted(held - {candidate.commit})


def _rolled_back_from(state: ViewState, commit: str) -> int | None:
    """Return the newest revision of a commit that the present rollback passed over, or None.

    A job that is retried after somebody took its nightly back must not bring it again.
    """
    current = state.revisions[-1]
    if current.restores is None:
        return None
    passed = [revision.number for revision in state.revisions if revision.commit == commit]
    return max((number for number in passed if number > current.restores), default=None)


def _nightly_order(current: Revision, candidate: Candidate, ancestry: AskAncestry) -> tuple[Outcome, str]:
    relation = ancestry(current.commit, candidate.commit)
    if relation is Ancestry.ANCESTOR:
        return Outcome.MOVE, f"descends from {current.commit}"
    if relation is Ancestry.DESCENDANT:
        return Outcome.KEPT, f"{current.commit} descends from {candidate.commit}"
    if current.commit_time == candidate.time.moment:
        raise RemoteChangedError(
            f"cannot tell which is newer: {current.commit} (now nightly) and {candidate.commit} "
            f"have the same time {current.commit_time}",
            hint="run it where the library's history is at hand (--source), or upload with --commit-time",
        )
    if current.commit_time < candidate.time.moment:
        return Outcome.MOVE, f"newer than {current.commit} ({current.commit_time}, {current.commit_time_from})"
    return Outcome.KEPT, f"{current.commit} of {current.commit_time} is newer than {candidate.time.moment}"


def _merged(index: Index, current: Revision | None, candidate: Candidate) -> dict[str, tuple[str, ...]]:
    if current is None or not layout.is_release(candidate.view):
        return {project: tuple(record.key for record in records) for project, records in candidate.files.items()}
    merged = {project: set(known) for project, known in (current.files or {}).items()}
    for project, new in candidate.files.items():
        held = records_of_keys(index, project, (current.files or {}).get(project, ()))
        # What another commit built before is there with these bytes, or it would have been refused.
        merged.setdefault(project, set()).update(record.key for record in new if not any(twins_of(record, held)))
    return {project: tuple(sorted(known)) for project, known in sorted(merged.items()) if known}


def _same_files(current: Revision, candidate: Candidate, files: Mapping[str, Sequence[str]]) -> bool:
    if current.files is None:
        return {p: dict(c) for p, c in current.counts.items()} == _counts(candidate.files)
    return {p: set(k) for p, k in current.files.items()} == {p: set(k) for p, k in files.items()}


def _counts(files: Mapping[str, Iterable[FileRecord]]) -> dict[str, dict[str, int]]:
    return {project: count_variants(records) for project, records in files.items()}


def execute_move(index: Index, move: Move, ancestry: AskAncestry = unknown_ancestry) -> Moved:
    """Move the view, re-judged against what it holds at that moment, and bring its pages up to date."""
    if layout.is_commit(move.view):
        before = index.view(move.view).state
        after = show_commit(index, move.view, sorted(move.candidate.files))
        outcome, reason = (Outcome.SAME, "same files") if after == before else (Outcome.MOVE, "more files")
    else:
        # The view's pages for people link to the commit's; an upload that was stopped has not drawn those.
        draw_view(index, move.candidate.commit)
        outcome, reason, after = _change(index, move.candidate, ancestry)
    if outcome is Outcome.KEPT:
        return Moved(move.view, outcome, reason, Drawn(), after.current)
    # Also when it holds these files already: the move that brought them may have been stopped before its end.
    drawn = draw_view(index, move.view, sweep=True) + draw_store(index)
    return Moved(move.view, outcome, reason, drawn, after.current)


def _change(index: Index, candidate: Candidate, ancestry: AskAncestry) -> tuple[Outcome, str, ViewState]:
    verdict: list[tuple[Outcome, str]] = []

    def change(state: ViewState) -> ViewState:
        _refuse_other_bytes(index, candidate, state.current)
        verdict.append(judge(index, state, candidate, ancestry))
        if verdict[-1][0] is not Outcome.MOVE:
            return state
        revision = _revision(index, state, candidate)
        index.refuse_pruned(revision.commits)
        return state.moved_to(revision)

    after = index.change_view(candidate.view, change)
    if verdict[-1][0] is Outcome.MOVE:
        confirm(index, after)
    return *verdict[-1], after


def confirm(index: Index, moved: ViewState) -> None:
    """Take a move back, and raise RemoteChangedError, when a prune began to remove what the view now holds.

    The prune looked at the views before this move, or it would have left the files alone.
    """
    revision = moved.current
    if revision is None:
        return
    try:
        index.refuse_pruned(revision.commits)
        for project, keys in (revision.files or {}).items():
            records_of_keys(index, project, keys)
    except OmniError:
        index.change_view(
            moved.view,
            lambda state: replace(state, revisions=state.revisions[:-1]) if state.current == revision else state,
        )
        # Others may have drawn what the view held for that moment.
        draw_view(index, moved.view, sweep=True)
        draw_store(index, anew=True)
        raise


def _revision(index: Index, state: ViewState, candidate: Candidate) -> Revision:
    current = state.current
    files = _merged(index, current, candidate)
    records = {project: records_of_keys(index, project, keys) for project, keys in files.items()}
    return Revision(
        number=(current.number if current else 0) + 1,
        commit=candidate.commit,
        commit_time=candidate.time.moment,
        commit_time_from=candidate.time.source.value,
        moved=now(),
        note="publish",
        counts=_counts(records),
        files=files,
    )


def records_of_keys(index: Index, project: str, keys: Iterable[str]) -> list[FileRecord]:
    """Return a project's records of these keys, or raise MissingInputError naming the first that is gone."""
    known = index.project(project).state.files
    gone = [key for key in keys if key not in known]
    if gone:
        raise MissingInputError(
            f"no longer in the store: {gone[0]}", hint="run it again to plan from the present state"
        )
    return [known[key] for key in keys]


def _refuse_other_bytes(index: Index, candidate: Candidate, current: Revision | None) -> None:
    """Refuse a release that holds the same distribution, however it is spelled, from another commit in other bytes."""
    if current is None or not layout.is_release(candidate.view):
        return
    for project, new in candidate.files.items():
        held = records_of_keys(index, project, (current.files or {}).get(project, ()))
        for record in new:
            others = list(twins_of(record, held))
            if others and record.sha256 not in {other.sha256 for other in others}:
                other = others[0]
                than = f" than {record.filename}" if record.filename != other.filename else ""
                raise DataError(
                    f"{candidate.view} already holds {other.filename} from commit {other.commit} "
                    f"with other bytes{than}",
                    hint=f"{record.commit} built that version again; a release never changes: give it a new version",
                )
