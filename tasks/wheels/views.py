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
from tasks.wheels.drawing import Drawn, draw_store, draw_view
from tasks.wheels.index import Index, now
from tasks.wheels.state import FileRecord, Revision, ViewState, count_variants
from tasks.wheels.twins import twins_of
from tasks.wheels.upload import CommitTime, best_time, show_commit

AUTO = "auto"

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
    """A planned move of one view, with the reason for its outcome."""

    candidate: Candidate
    outcome: Outcome
    reason: str

    @property
    def view(self) -> str:
        """Return the view's name."""
        return self.candidate.view

    def actions(self) -> list[tuple[str, str, str]]:
        """Return (action, key, reason) in the order of execution."""
        rows = []
        if self.outcome is Outcome.MOVE:
            rows.append(("change state", layout.view_state(self.view), self.reason))
        if self.outcome is not Outcome.KEPT:
            rows.append(("draw pages", f"{self.view}/", "when they differ"))
        else:
            rows.append(("keep", f"{self.view}/", self.reason))
        return rows


@dataclass(frozen=True)
class Moved:
    """What became of one view."""

    view: str
    outcome: Outcome
    reason: str
    drawn: Drawn


def views_wanted(index: Index, request: str, commit: str, *, nightly: bool) -> list[str]:
    """Return the views that a request means.

    ``auto`` is what CI wants: the commit's own view always, ``nightly`` on the nightly schedule, and
    ``v<public version>`` of the configured project unless that is a development version. A release has one view:
    the one that is there, else the one that is spelled as the commit's own files are.
    """
    if request != AUTO:
        view = layout.check_view(request)
        return [_spelled(index, view, commit_records(index, commit)) if layout.is_release(view) else view]
    files = commit_records(index, commit)
    versions = {Version(record.version) for record in files.get(index.rules.project, ())}
    wanted = {layout.release_view(str(version)) for version in versions if not version.is_devrelease}
    releases = sorted({_spelled(index, view, files) for view in wanted})
    return [commit, *([layout.NIGHTLY] if nightly else []), *releases]


def _spelled(index: Index, view: str, files: Mapping[str, Sequence[FileRecord]]) -> str:
    """Return the one name of a release's view; the configured project's files have the first word."""
    own = index.rules.project
    for project in sorted(files, key=lambda project: (project != own, project)):
        names = sorted({layout.release_view(record.version) for record in files[project]})
        same = [name for name in names if layout.same_view(name, view)]
        if same:
            return index.known_view(same[0])
    return index.known_view(view)


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


def plan_move(index: Index, view: str, commit: str, ancestry: AskAncestry = unknown_ancestry) -> Move:
    """Plan the move of one view to a commit's files; nothing is written.

    Raises MissingInputError when the commit lacks what the view needs, DataError when files contradict each
    other, RemoteChangedError when two commits' order cannot be told.
    """
    candidate = _candidate(index, view, commit)
    state = index.view(view).state
    _refuse_other_bytes(index, candidate, state.current)
    outcome, reason = judge(index, state, candidate, ancestry)
    return Move(candidate, outcome, reason)


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
        if _same_files(current, candidate, new_files):
            return Outcome.SAME, "same files"
        return Outcome.MOVE, "more files" if current.commit == candidate.commit else f"adds commit {candidate.commit}"
    back = _rolled_back_from(state, candidate.commit)
    if back is not None:
        return Outcome.KEPT, f"{candidate.commit} was rolled back; wheels.rollback --to {back} brings it back"
    return _nightly_order(current, candidate, ancestry)


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
        outcome, reason = _change(index, move.candidate, ancestry)
    if outcome is Outcome.KEPT:
        return Moved(move.view, outcome, reason, Drawn())
    # Also when it holds these files already: the move that brought them may have been stopped before its end.
    drawn = draw_view(index, move.view, sweep=True) + draw_store(index)
    return Moved(move.view, outcome, reason, drawn)


def _change(index: Index, candidate: Candidate, ancestry: AskAncestry) -> tuple[Outcome, str]:
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
    return verdict[-1]


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
