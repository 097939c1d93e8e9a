"""Yanking a version (PEP 592): its files stay, but installers choose them only when asked for exactly them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from packaging.utils import InvalidName, canonicalize_name
from packaging.version import Version

from tasks.support.errors import MissingInputError, UsageError
from tasks.wheels import layout
from tasks.wheels.drawing import Drawn, draw_store, draw_view
from tasks.wheels.index import Index
from tasks.wheels.state import FileRecord, ProjectState
from tasks.wheels.versions import parse_version

REASON_LIMIT = 500


@dataclass(frozen=True)
class YankRequest:
    """Which files to yank, and the reason, which may be empty; ``reason`` None takes the yank back.

    Without a local part ``version`` means all of its variants too, as ``==`` does (PEP 440).
    """

    project: str
    version: Version
    commit: str | None
    files: tuple[str, ...]
    reason: str | None


@dataclass(frozen=True)
class YankPlan:
    """The files that were found, those of them that change, and the views that show them."""

    request: YankRequest
    found: tuple[FileRecord, ...]
    changed: tuple[FileRecord, ...]
    views: tuple[str, ...]

    def actions(self) -> list[tuple[str, str, str]]:
        """Return (action, key, reason) in the order of execution."""
        project, reason = self.request.project, self.request.reason
        verb = "take the yank back" if reason is None else f"yank: {reason or '(no reason)'}"
        rows = [("change state", record.key, verb) for record in self.changed]
        return [*rows, *(("draw pages", f"{view}/{project}/", "when they differ") for view in self.views)]


def request(
    project: str, version: str, *, commit: str | None, files: tuple[str, ...], reason: str | None, undo: bool
) -> YankRequest:
    """Check what a person asks for; UsageError says what is wrong with it."""
    if undo and reason is not None:
        raise UsageError("--reason and --undo contradict each other", hint="an undone yank has no reason")
    try:
        name = canonicalize_name(project, validate=True)
    except InvalidName:
        raise UsageError(f"not a project's name: {project!r}") from None
    parsed = parse_version(version, "0.28.0 or 0.28.0+rocm")
    if commit is not None:
        layout.check_commit(commit)
    return YankRequest(name, parsed, commit, files, None if undo else _check_reason(reason or ""))


def _check_reason(reason: str) -> str:
    if len(reason) > REASON_LIMIT:
        raise UsageError(f"the reason has {len(reason)} characters, and {REASON_LIMIT} are possible")
    if not reason.isprintable():
        raise UsageError("the reason must be one line of text without control characters")
    return reason


def plan_yank(index: Index, wanted: YankRequest) -> YankPlan:
    """Find the files and the views that show them; nothing is written. MissingInputError when there is no such file."""
    found = _matching(index.project(wanted.project).state, wanted)
    names = {record.filename for record in found}
    missing = [name for name in wanted.files if name not in names]
    if missing or not found:
        what = missing[0] if missing else f"{wanted.project} {wanted.version}"
        where = f" of commit {wanted.commit}" if wanted.commit else ""
        hint = _what_there_is(index.project(wanted.project).state, wanted)
        raise MissingInputError(f"no file {what}{where} in {index.store.url}", hint=hint)
    changed = tuple(record for record in found if record.yanked != wanted.reason)
    return YankPlan(wanted, tuple(found), changed, tuple(_views_with(index, wanted.project, found)))


def _what_there_is(state: ProjectState, wanted: YankRequest) -> str:
    """Return the hint for a file or version that is not there: its version's files, else the versions."""
    alike = sorted({record.filename for record in _matching(state, replace(wanted, files=()))})
    if wanted.files and alike:
        return f"of {wanted.version} there are {', '.join(alike)}"
    there = sorted({record.version for record in state.files.values()}, key=Version)
    return f"there are {', '.join(there[-10:])}" if there else "nothing of that project was ever uploaded there"


def _matching(state: ProjectState, wanted: YankRequest) -> list[FileRecord]:
    return [record for record in state.files.values() if _matches(record, wanted)]


def _matches(record: FileRecord, wanted: YankRequest) -> bool:
    version = Version(record.version)
    same = version == wanted.version or (wanted.version.local is None and Version(version.public) == wanted.version)
    right_commit = wanted.commit is None or record.commit == wanted.commit
    return same and right_commit and (not wanted.files or record.filename in wanted.files)


def _views_with(index: Index, project: str, records: Iterable[FileRecord]) -> list[str]:
    """Return the views that hold one of the files: their commits' own, and the moving ones that list them."""
    keys = {record.key for record in records}
    commits = {record.commit for record in records}
    views = []
    for view in index.view_names():
        if layout.is_commit(view):
            if view in commits:
                views.append(view)
            continue
        current = index.view(view).state.current
        if current is not None and keys.intersection((current.files or {}).get(project, ())):
            views.append(view)
    return views


def execute_yank(index: Index, plan: YankPlan) -> Drawn:
    """Change the files that are still there, and redraw the views that show them; no write when all is as asked.

    Safe to repeat after a failure or a kill at any point.
    """
    wanted = plan.request
    keys = [record.key for record in plan.found]

    def change(state: ProjectState) -> ProjectState:
        there = [state.files[key] for key in keys if key in state.files]
        fresh = {r.key: replace(r, yanked=wanted.reason) for r in there if r.yanked != wanted.reason}
        return state.with_files(fresh) if fresh else state

    index.change_project(wanted.project, change)
    # Looked up again: a view may have moved since the plan, and drawn its pages just before the change.
    drawn = Drawn()
    for view in _views_with(index, wanted.project, plan.found):
        drawn += draw_view(index, view, [wanted.project])
    return drawn + draw_store(index)
