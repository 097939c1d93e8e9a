"""Everything that a store holds, read once and compared with itself, for tasks that delete.

A listing that leaves something out must never look like a store that lacks it. So whatever the state promises
must be in the listing, and whatever state the listing leaves out is asked for by name.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tasks.support.errors import DataError
from tasks.support.store import Stored
from tasks.wheels import layout
from tasks.wheels.drawing import expected_keys
from tasks.wheels.index import Index
from tasks.wheels.state import FileRecord, ProjectState, ViewState

_TRIES = 3
_MOVING_VIEW = re.compile(r"nightly|v\d.*")


@dataclass(frozen=True)
class Survey:
    """One consistent look at a store.

    ``views`` are nightly and the releases; a commit's view follows from its files. ``leaving`` are the commits
    that a prune began to remove.
    """

    projects: Mapping[str, ProjectState]
    views: Mapping[str, ViewState]
    leaving: frozenset[str]
    objects: Mapping[str, Stored]

    @property
    def commits(self) -> dict[str, dict[str, tuple[FileRecord, ...]]]:
        """Return per commit and project the files that the state knows."""
        found: dict[str, dict[str, list[FileRecord]]] = defaultdict(lambda: defaultdict(list))
        for project, state in self.projects.items():
            for record in state.files.values():
                found[record.commit][project].append(record)
        return {commit: {name: tuple(files) for name, files in by.items()} for commit, by in found.items()}

    @property
    def folders(self) -> dict[str, list[Stored]]:
        """Return the objects in each commit's folder."""
        found: dict[str, list[Stored]] = defaultdict(list)
        for stored in self.objects.values():
            commit = stored.key.partition("/")[0]
            if layout.is_commit(commit):
                found[commit].append(stored)
        return dict(found)


def survey_store(index: Index) -> Survey:
    """Read all states and list the whole store; DataError when the listing is empty, incomplete or not understood.

    Others may change the store meanwhile, which looks like a gap too; so a look with a gap is repeated.
    """
    gap = ""
    for _ in range(_TRIES):
        survey = _look(index)
        gap = next(_gaps(index, survey), "")
        if not gap:
            _refuse_foreign_views(survey)
            return survey
    raise DataError(
        f"the listing of {index.store.url} is not complete: {gap}",
        hint="nothing was changed; run it again, and wheels.check when that does not help",
    )


def _look(index: Index) -> Survey:
    # The configured project and nightly are asked for by name, so that they count even when no listing shows them.
    project_names = {index.rules.project, *index.project_names()}
    view_names = {layout.NIGHTLY, *(view for view in index.view_names() if not layout.is_commit(view))}
    projects = {name: index.project(name).state for name in sorted(project_names)}
    views = {name: index.view(name).state for name in sorted(view_names)}
    objects = {stored.key: stored for stored in index.store.list()}
    return Survey(
        projects={name: state for name, state in projects.items() if state.revision},
        views={name: state for name, state in views.items() if state.revisions},
        leaving=frozenset(_names(objects, layout.PRUNINGS)),
        objects=objects,
    )


def _names(keys: Iterable[str], prefix: str) -> set[str]:
    return {key.removeprefix(prefix).removesuffix(".json") for key in keys if key.startswith(prefix)}


def _gaps(index: Index, survey: Survey) -> Iterator[str]:
    """Yield what is promised and not listed, and states that were listed in one of two listings only."""
    if not survey.objects:
        yield "it is empty"
    yield from (f"{key} is not in it" for key in _promised(survey) if key not in survey.objects)
    for name in _names(survey.objects, layout.PROJECT_STATES) - set(survey.projects):
        yield f"it showed {layout.project_state(name)} only the second time"
    for name in _names(survey.objects, layout.VIEW_STATES) - set(survey.views):
        if not layout.is_commit(name) and index.view(name).state.revisions:
            yield f"it showed {layout.view_state(name)} only the second time"
    for key in _suspected(survey, index.rules.alias_of_default):
        if key not in survey.objects and index.store.head(key) is not None:
            yield f"{key} is not in it"


def _promised(survey: Survey) -> Iterator[str]:
    for name, state in survey.projects.items():
        yield layout.project_state(name)
        for key, record in state.files.items():
            yield key
            if record.metadata_sha256:
                yield key + layout.METADATA_SUFFIX
    yield from map(layout.view_state, survey.views)


def _suspected(survey: Survey, alias_of_default: str | None) -> Iterator[str]:
    """Yield the keys of states and pages that may be there, from what points at them."""
    yield layout.BROWSE
    for name, view in survey.views.items():
        if view.current is not None:
            yield from map(layout.project_state, view.current.counts)
            yield from expected_keys(view.current, name, alias_of_default)
    yield from map(layout.view_state, survey.commits)
    yield from map(layout.view_state, _moving_folders(survey))


def _moving_folders(survey: Survey) -> set[str]:
    tops = {key.partition("/")[0] for key in survey.objects if "/" in key}
    return {top for top in tops if _MOVING_VIEW.fullmatch(top)}


def _refuse_foreign_views(survey: Survey) -> None:
    foreign = sorted(_moving_folders(survey) - set(survey.views))
    if foreign:
        raise DataError(
            f"{foreign[0]}/ has pages, but no state that says which files they link to",
            hint=f"draw it (invoke wheels.index {foreign[0]} --commit SHA), or remove the folder",
        )
