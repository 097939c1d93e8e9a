"""Which views a request means, and which of those that CI may want it leaves alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from packaging.version import Version

from tasks.support.errors import RemoteChangedError
from tasks.wheels import layout
from tasks.wheels.index import Index
from tasks.wheels.state import FileRecord
from tasks.wheels.views import Move, Moved, Outcome, commit_records, way_back

AUTO = "auto"


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


def left_alone(index: Index, commit: str, *, nightly: bool) -> Iterator[tuple[str, str]]:
    """Yield the views that ``auto`` does not move for a commit, each with the reason."""
    if not nightly:
        yield layout.NIGHTLY, "not moved: NIGHTLY is not 1"
    records = commit_records(index, commit).get(index.rules.project, ())
    for version in sorted({Version(record.version).public for record in records}, key=Version):
        if Version(version).is_devrelease:
            yield layout.release_view(version), "not moved: a development version"


def refusal(index: Index, commit: str, moves: Sequence[Move | Moved]) -> RemoteChangedError | None:
    """Return the error of a view that was asked for by name and stays where it is, with the way back to the commit."""
    kept = [move for move in moves if move.outcome is Outcome.KEPT]
    if not kept:
        return None
    view = kept[0].view
    return RemoteChangedError(f"{view} was not moved: {kept[0].reason}", hint=way_back(index, view, commit))
