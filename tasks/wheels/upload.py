"""Uploading one commit's wheels: files, metadata sidecars, state and pages, in the order that keeps pages valid."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial

from packaging.version import Version

from tasks.support.errors import DataError, RemoteChangedError, UsageError
from tasks.support.store import ABSENT, ConditionFailedError, Progress
from tasks.wheels import clock, layout, pages
from tasks.wheels.distribution import DistributionFacts, Facts
from tasks.wheels.drawing import Drawn, draw_store, draw_view
from tasks.wheels.index import Index, now
from tasks.wheels.state import FileRecord, ProjectState, Revision, TimeSource, ViewState, count_variants
from tasks.wheels.twins import refuse_twins

PARALLEL = 6


@dataclass(frozen=True)
class CommitTime:
    """A commit's time, RFC 3339 in UTC, and where it comes from."""

    moment: str
    source: TimeSource


class Standing(Enum):
    """What the store knows of a file before the upload."""

    NEW = "new"
    PUBLISHED = "already there, same bytes"
    LOST = "recorded, but not there whole: put again"


@dataclass(frozen=True)
class FilePlan:
    """One file of an upload: its facts, its key and what is to be done."""

    facts: Facts
    key: str
    standing: Standing

    @property
    def metadata_key(self) -> str | None:
        """Return the key of the metadata sidecar (PEP 658), or None for an sdist."""
        return self.key + layout.METADATA_SUFFIX if self.facts.metadata_sha256 else None


@dataclass(frozen=True)
class UploadPlan:
    """What an upload will do. ``actions`` is what ``--dry-run`` prints and what the executor runs."""

    commit: str
    time: CommitTime
    files: tuple[FilePlan, ...]
    warnings: tuple[str, ...]

    @property
    def missing(self) -> tuple[FilePlan, ...]:
        """Return the files that the store does not have, or not whole."""
        return tuple(plan for plan in self.files if plan.standing is not Standing.PUBLISHED)

    def actions(self) -> list[tuple[str, str, str]]:
        """Return (action, key, reason) in the order of execution."""
        rows = [(f"put {file.facts.kind.value}", file.key, file.standing.value) for file in self.missing]
        rows += [
            ("put metadata", key, "core metadata (PEP 658)") for plan in self.missing if (key := plan.metadata_key)
        ]
        projects = sorted({plan.facts.project for plan in self.files})
        if self.missing:
            rows += [("change state", layout.project_state(project), "record the files") for project in projects]
            rows.append(("change state", layout.view_state(self.commit), "the commit's view"))
        rows += [("draw pages", f"{self.commit}/{project}/", "when they differ") for project in projects]
        rows.append(("draw pages", f"{self.commit}/", "when they differ"))
        return rows


@dataclass(frozen=True)
class UploadReport:
    """What an upload did."""

    plan: UploadPlan
    uploaded: tuple[str, ...]
    drawn: Drawn


def plan_upload(index: Index, commit: str, time: CommitTime | None, facts: Sequence[Facts]) -> UploadPlan:
    """Compare the files with the state and plan the upload; nothing is written.

    ``time`` None means the time of the upload itself. A recorded file whose object is gone or cut, by the listing
    of the commit's folder, is put again. Raises DataError when a published file has other bytes, when two files have
    one name or are one distribution in two spellings, or when a project's name collides with a folder of the index.
    """
    layout.check_commit(commit)
    if not facts:
        raise UsageError("nothing to upload", hint="give --wheel FILE, or a --dist folder that holds wheels")
    _refuse_duplicates(facts)
    files: list[FilePlan] = []
    for project in sorted({fact.project for fact in facts}):
        layout.check_project_name(project, index.rules.variants)
        state = index.project(project).state
        files += [_plan_file(state, commit, fact) for fact in facts if fact.project == project]
        refuse_twins_of(state, commit, [fact.filename for fact in facts if fact.project == project])
        check_variants(index, state, commit, [plan.facts for plan in files if plan.facts.project == project])
    warnings = tuple(warning for fact in facts for warning in fact.warnings)
    return UploadPlan(commit, time or _first_time(index, commit), _find_lost(index, commit, files), warnings)


def _first_time(index: Index, commit: str) -> CommitTime:
    """Return the time that the commit is already known by, else the present moment."""
    known = index.view(commit).state.current
    if known is not None:
        return CommitTime(known.commit_time, TimeSource(known.commit_time_from))
    return CommitTime(now(), TimeSource.UPLOAD)


def check_labels(commit: str, facts: Iterable[Facts]) -> None:
    """Refuse a file whose version names another commit, as setuptools_scm's ``+g<hash>`` does; DataError."""
    for fact in facts:
        for label in (Version(fact.version).local or "").split("."):
            named = re.fullmatch(r"g([0-9a-f]{7,40})", label)
            if named and not commit.startswith(named[1]):
                raise DataError(
                    f"{fact.filename} was built from commit {named[1]}, not from {commit}",
                    hint="pass the commit that it was built from, or build this one",
                )


def _refuse_duplicates(facts: Sequence[Facts]) -> None:
    by_name: dict[str, Facts] = {}
    for fact in facts:
        other = by_name.setdefault(fact.filename, fact)
        if other is not fact and other.sha256 != fact.sha256:
            raise DataError(f"two files have the name {fact.filename}: {other.path} and {fact.path}")


def _plan_file(state: ProjectState, commit: str, fact: Facts) -> FilePlan:
    key = layout.distribution(commit, fact.filename)
    known = state.files.get(key)
    if known is None:
        return FilePlan(fact, key, Standing.NEW)
    if known.sha256 != fact.sha256:
        raise _other_bytes(key, known.sha256, fact)
    return FilePlan(fact, key, Standing.PUBLISHED)


def _find_lost(index: Index, commit: str, files: Sequence[FilePlan]) -> tuple[FilePlan, ...]:
    """Mark the recorded files that are not there whole; one listing, no request per file."""
    if all(file.standing is Standing.NEW for file in files):
        return tuple(files)
    sizes = {stored.key: stored.size for stored in index.store.list(f"{commit}/")}

    def whole(file: FilePlan) -> bool:
        sidecar = file.metadata_key is None or sizes.get(file.metadata_key) == len(file.facts.metadata)
        return sidecar and sizes.get(file.key) == file.facts.size

    return tuple(
        file if file.standing is Standing.NEW or whole(file) else replace(file, standing=Standing.LOST)
        for file in files
    )


def _other_bytes(key: str, published: str, fact: Facts) -> DataError:
    return DataError(
        f"{key} is already published with other bytes: sha256 {published}, {fact.path} has {fact.sha256}",
        hint="a published file never changes; build from another commit, or give the build another version",
    )


def refuse_twins_of(state: ProjectState, commit: str, filenames: Iterable[str]) -> None:
    """Raise DataError when the commit would hold one distribution of the project in two spellings."""
    there = [record.filename for record in state.of_commit(commit)]
    refuse_twins(commit, [name for name in dict.fromkeys(filenames) if name not in there], there)


def check_variants(index: Index, state: ProjectState, commit: str, facts: Sequence[DistributionFacts]) -> None:
    """Raise DataError when the commit's view could not show these files beside those that it has."""
    unknown = CommitTime("", TimeSource.UPLOAD)
    added = {layout.distribution(commit, fact.filename): make_record(commit, unknown, fact, "") for fact in facts}
    there = (record for record in state.of_commit(commit) if record.key not in added)
    pages.group_by_variant([*there, *added.values()], index.rules.alias_of_default)


def make_record(commit: str, time: CommitTime, fact: DistributionFacts, uploaded: str) -> FileRecord:
    """Return what the state keeps of a file."""
    return FileRecord(
        key=layout.distribution(commit, fact.filename),
        version=fact.version,
        size=fact.size,
        sha256=fact.sha256,
        uploaded=uploaded,
        commit_time=time.moment,
        commit_time_from=time.source.value,
        variant=fact.variant,
        requires_python=fact.requires_python,
        metadata_sha256=fact.metadata_sha256,
    )


def execute_upload(index: Index, plan: UploadPlan, progress: Progress | None = None) -> UploadReport:
    """Upload what is new, record it, and bring the commit's pages up to date.

    Safe to repeat after a failure or a kill at any point; several uploads may run at once. Raises
    RemoteChangedError while a prune removes the commit, and when it removed files that the plan found published;
    ConfigurationError, before anything is recorded, when this machine's clock and the store's times disagree.
    """
    index.refuse_pruned([plan.commit])
    projects = sorted({file.facts.project for file in plan.files})
    if plan.missing:
        clock.check_before_upload(index, projects)
    started = clock.now_utc()
    with ThreadPoolExecutor(PARALLEL) as pool:
        done = pool.map(partial(_put_file, index, progress), plan.missing)
        uploaded = [key for keys in done for key in keys]
    if uploaded:
        clock.check_after_put(index, plan.commit, uploaded, started)
    for project in projects:
        chosen = [file.facts for file in plan.missing if file.facts.project == project]
        added = [make_record(plan.commit, plan.time, facts, now()) for facts in chosen]
        record_files(index, project, added)
    show_commit(index, plan.commit, projects)
    drawn = draw_view(index, plan.commit, projects) + draw_store(index)
    _check_recorded(index, plan, projects)
    return UploadReport(plan, tuple(uploaded), drawn)


def _check_recorded(index: Index, plan: UploadPlan, projects: Iterable[str]) -> None:
    recorded = {key for project in projects for key in index.project(project).state.files}
    gone = [file.key for file in plan.files if file.key not in recorded]
    if gone:
        raise RemoteChangedError(f"{gone[0]} was pruned during the upload", hint="run it again to upload it anew")


def _put_file(index: Index, progress: Progress | None, file: FilePlan) -> list[str]:
    put = []
    headers = layout.headers_for(file.key)
    old = index.store.head(file.key) if file.standing is Standing.LOST else None
    cut = old is not None and old.size != file.facts.size
    expected = old.etag if old is not None and cut else ABSENT
    try:
        index.store.put_file(
            file.key, file.facts.path, headers, expected=expected, sha256=file.facts.sha256, progress=progress
        )
        put.append(file.key)
    except ConditionFailedError:
        # Left by an upload that was stopped before it could record the file, or by one that runs now.
        _check_same_bytes(index, file)
    if file.metadata_key and put_metadata(index, file.metadata_key, file.facts.metadata):
        put.append(file.metadata_key)
    return put


def _check_same_bytes(index: Index, file: FilePlan) -> None:
    digest = hashlib.sha256()
    for chunk in index.store.stream(file.key):
        digest.update(chunk)
    if digest.hexdigest() != file.facts.sha256:
        raise _other_bytes(file.key, digest.hexdigest(), file.facts)


def put_metadata(index: Index, key: str, metadata: bytes) -> bool:
    """Write a metadata sidecar unless it has these bytes already, and say whether it was written."""
    old = index.store.get(key)
    if old is not None and old.data == metadata:
        return False
    try:
        index.store.put(key, metadata, layout.METADATA, expected=old.etag if old else ABSENT)
    except ConditionFailedError:
        # Another upload of the same wheel wrote the same bytes; anything else is refused.
        again = index.store.get(key)
        if again is None or again.data != metadata:
            raise
        return False
    return True


def record_files(index: Index, project: str, records: Iterable[FileRecord]) -> ProjectState:
    """Add records to their project's state; a file that is already recorded keeps its first upload time."""
    by_key = {record.key: record for record in records}

    def change(state: ProjectState) -> ProjectState:
        fresh = {}
        for key, record in by_key.items():
            known = state.files.get(key)
            if known is None:
                fresh[key] = record
            elif known.sha256 != record.sha256:
                raise DataError(f"{key} was published with other bytes meanwhile: sha256 {known.sha256}")
        for commit in {record.commit for record in fresh.values()}:
            refuse_twins_of(state, commit, [record.filename for record in fresh.values() if record.commit == commit])
        return state.with_files(fresh) if fresh else state

    return index.change_project(project, change)


def show_commit(index: Index, commit: str, projects: Sequence[str]) -> ViewState:
    """Bring the commit's own view up to what the given projects hold for it; no write when it is."""

    def change(view: ViewState) -> ViewState:
        old = view.current
        counts = dict(old.counts) if old else {}
        time = CommitTime(old.commit_time, TimeSource(old.commit_time_from)) if old else None
        for project in projects:
            records = index.project(project).state.of_commit(commit)
            counts[project] = count_variants(records)
            time = best_time(records, time)
        counts = {project: count for project, count in sorted(counts.items()) if count}
        if time is None or (old and dict(old.counts) == counts):
            return view
        revision = Revision(
            number=(old.number if old else 0) + 1,
            commit=commit,
            commit_time=time.moment,
            commit_time_from=time.source.value,
            moved=now(),
            note="upload",
            counts=counts,
        )
        return view.moved_to(revision)

    return index.change_view(commit, change)


def best_time(records: Iterable[FileRecord], known: CommitTime | None = None) -> CommitTime | None:
    """Return a commit's time from its files: git's, else the given one, else the first upload's; None without files."""
    rank = [TimeSource.GIT, TimeSource.GIVEN, TimeSource.UPLOAD]
    distinct = {(record.commit_time, record.commit_time_from) for record in records}
    times = [CommitTime(moment, TimeSource(source)) for moment, source in distinct]
    if known is not None:
        times.append(known)
    return min(times, key=lambda time: (rank.index(time.source), time.moment), default=None)
