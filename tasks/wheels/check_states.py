"""Reading the states that a view is made from, for a check: one that is broken is a finding, not the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tasks.support.errors import DataError, MissingInputError, UsageError
from tasks.support.store import ABSENT, Expected
from tasks.wheels import findings, layout
from tasks.wheels.findings import Finding
from tasks.wheels.index import Index
from tasks.wheels.state import FileRecord, ProjectState, Revision, count_variants


@dataclass
class States:
    """A view's present revision and the states of its projects, as far as they can be read.

    ``records`` has each project's files in the view, as far as its state knows them; ``whole`` are the projects
    whose pages can be made from their state. ``etags`` are what was read, by key; ``found`` is what is wrong.
    """

    view: str
    revision: Revision
    projects: dict[str, ProjectState] = field(default_factory=dict)
    records: dict[str, list[FileRecord]] = field(default_factory=dict)
    whole: set[str] = field(default_factory=set)
    etags: dict[str, Expected] = field(default_factory=dict)
    found: list[Finding] = field(default_factory=list)

    @property
    def names(self) -> set[str]:
        """Return every project that the view holds, whether its state can be read or not."""
        return {*self.revision.counts, *(self.revision.files or {})}

    @property
    def files(self) -> dict[str, FileRecord]:
        """Return every known file of the view, by key."""
        return {record.key: record for records in self.records.values() for record in records}

    def unmoved(self, index: Index) -> bool:
        """Say whether every state is still the one that was read."""
        return all(index.still_current(key, etag) for key, etag in self.etags.items())


def read_states(index: Index, view: str) -> States | Finding:
    """Read a view's state and those of its projects; a view whose own state cannot be read is a finding.

    Raises MissingInputError for a view that was never published.
    """
    key = layout.view_state(view)
    try:
        read = index.view(view)
    except DataError as failure:
        return findings.error(key, failure.message, findings.RESTORE)
    revision = read.state.current
    if revision is None:
        raise MissingInputError(
            f"view {view} was never published in {index.store.url}",
            hint=f"publish it: invoke wheels.index {view} --commit SHA --store {index.store.url}",
        )
    states = States(view, revision, etags={key: read.etag})
    for project in sorted(states.names):
        _read_project(index, states, project)
    return states


def _read_project(index: Index, states: States, project: str) -> None:
    key = layout.project_state(project)
    try:
        read = index.project(project)
    except (DataError, UsageError) as failure:
        states.found.append(findings.error(key, failure.message, findings.RESTORE))
        return
    states.etags[key] = read.etag
    if read.etag is ABSENT:
        what = f"this state is missing, and view {states.view} holds files of the project"
        states.found.append(findings.error(key, what, findings.RESTORE))
        return
    states.projects[project] = read.state
    _match(states, project, read.state)


def _match(states: States, project: str, state: ProjectState) -> None:
    """Match the view's list of a project's files, and its count of them, with the project's state."""
    revision = states.revision
    if revision.files is None:
        listed = [key for key, record in state.files.items() if record.commit == revision.commit]
    else:
        listed = list(revision.files.get(project, ()))
    unknown = [key for key in listed if key not in state.files]
    records = [state.files[key] for key in listed if key in state.files]
    states.records[project] = records
    where = layout.project_state(project)
    if unknown:
        what = f"view {states.view} holds it, but {where} does not know it"
        states.found += [findings.error(key, what, findings.ROLLBACK) for key in unknown]
        return
    said, counted = dict(revision.counts.get(project, {})), count_variants(records)
    if said != counted:
        what = f"it counts {_counts(said)} of {project}, but {where} has {_counts(counted)}"
        hint = findings.UPLOAD if layout.is_commit(states.view) else findings.RESTORE
        states.found.append(findings.error(layout.view_state(states.view), what, hint))
        return
    states.whole.add(project)


def _counts(counts: Mapping[str, int]) -> str:
    files = ", ".join(f"{count} {variant or 'default'}" for variant, count in sorted(counts.items()))
    return f"files: {files}" if files else "no files"
