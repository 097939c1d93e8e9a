"""Taking over wheels that lie in the store's commit folders without state: read in parts, hashed once, shown."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from typing import BinaryIO, cast

from tasks.support.errors import DataError, MissingInputError, RemoteChangedError
from tasks.support.store import Progress, Stored
from tasks.wheels import layout
from tasks.wheels.distribution import DistributionFacts, facts_from_reader, parse_filename
from tasks.wheels.drawing import PAGE_NAMES, Drawn, draw_store, draw_view
from tasks.wheels.index import Index, timestamp
from tasks.wheels.ranged import RangedReader
from tasks.wheels.state import TimeSource
from tasks.wheels.upload import (
    CommitTime,
    check_variants,
    make_record,
    put_metadata,
    record_files,
    refuse_twins_of,
    show_commit,
)

PARALLEL = 4
# What is hashed is recorded at the latest after so many bytes, so that a kill costs little.
RECORD_AFTER = 2**30

Judged = tuple[Stored, DistributionFacts | str]
"""One object with its facts, or with the reason why it is not taken over."""

AskTime = Callable[[str], CommitTime | None]
"""Answers when a commit was made, or None when that is not known."""


@dataclass(frozen=True)
class AdoptPlan:
    """What will be taken over, and what is known already, both sorted by key: the files of one commit lie together."""

    new: tuple[Stored, ...]
    known: tuple[Stored, ...]
    left: tuple[tuple[str, str], ...] = ()
    """What lies there too and is not taken over: (key, reason)."""

    @property
    def size(self) -> int:
        """Return the number of bytes to hash."""
        return sum(stored.size for stored in self.new)

    @property
    def commits(self) -> list[str]:
        """Return the commits whose views are brought up to date."""
        return sorted({_commit(stored) for stored in (*self.new, *self.known)})

    def actions(self, judged: Sequence[Judged] = ()) -> list[tuple[str, str, str]]:
        """Return (action, key, reason) in the order of execution, without what was judged to be no distribution."""
        refused = {stored.key for stored, facts in judged if isinstance(facts, str)}
        rows = []
        for stored in self.new:
            if stored.key in refused:
                continue
            rows.append(("read", stored.key, f"{stored.size} bytes, once"))
            if stored.key.endswith(".whl"):
                rows.append(("put metadata", stored.key + layout.METADATA_SUFFIX, "when it is missing or differs"))
            rows.append(("change state", stored.key, "record the file"))
        return rows + [("draw pages", f"{commit}/", "when they differ; foreign pages go") for commit in self.commits]


@dataclass(frozen=True)
class AdoptReport:
    """The keys that were taken over and those known before, and (key, reason) of what was refused."""

    adopted: tuple[str, ...]
    known: tuple[str, ...]
    refused: tuple[tuple[str, str], ...]
    drawn: Drawn


def report_error(report: AdoptReport) -> DataError | None:
    """Return the error to end with when files were refused."""
    if not report.refused:
        return None
    return DataError(f"not adopted: {_first(report.refused)}", hint="all other files were adopted")


def judged_error(judged: Sequence[Judged]) -> DataError | None:
    """Return the error that a dry run ends with where a real run would refuse files."""
    refused = [(stored.key, facts) for stored, facts in judged if isinstance(facts, str)]
    if not refused:
        return None
    return DataError(f"a real run would not adopt {_first(refused)}", hint="it would adopt all other files")


def _first(refused: Sequence[tuple[str, str]]) -> str:
    return f"{refused[0][0]} and {len(refused) - 1} more" if len(refused) > 1 else refused[0][0]


def plan_adopt(index: Index, commits: Sequence[str] = (), *, sdists: bool = False) -> AdoptPlan:
    """List the files in the given commits' folders, or in all, and tell the known ones apart; nothing is written.

    Raises MissingInputError for a given commit that has none, and for an empty store. What a prune is removing is
    left alone.
    """
    suffixes = (".whl", ".tar.gz") if sdists else (".whl",)
    prefixes = [f"{layout.check_commit(commit)}/" for commit in dict.fromkeys(commits)] or [""]
    there = [stored for prefix in prefixes for stored in index.store.list(prefix)]
    if not commits and not there:
        raise MissingInputError(f"there is nothing in {index.store.url}", hint="correct --store or OMNI_CI_STORE")
    found = [stored for stored in there if _is_file(stored.key, suffixes)]
    for commit in commits:
        if all(_commit(stored) != commit for stored in found):
            raise MissingInputError(f"no wheels below {index.store.url}/{commit}/", hint="nothing was changed")
    recorded = {key for name in index.project_names() for key in index.project(name).state.files}
    # Asked after the state was read: what a prune forgets is not new, and its note stays until the files are gone.
    index.refuse_pruned(commits)
    leaving = set(index.pruned_commits())
    found = sorted((stored for stored in found if _commit(stored) not in leaving), key=lambda stored: stored.key)
    return AdoptPlan(
        new=tuple(stored for stored in found if stored.key not in recorded),
        known=tuple(stored for stored in found if stored.key in recorded),
        left=tuple(_left(index, sorted(stored.key for stored in there), suffixes)),
    )


def _left(index: Index, keys: Sequence[str], suffixes: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield the keys that are neither ours nor taken over, each with the reason."""
    views = set(index.view_names())
    for key in keys:
        folder, _, name = key.partition("/")
        if key.startswith("_") or key == layout.BROWSE or (folder in views and key.endswith(PAGE_NAMES)):
            continue
        if layout.is_commit(folder):
            if "/" not in name and name.endswith(".tar.gz") and ".tar.gz" not in suffixes:
                yield key, "an sdist: --sdist takes it over"
            elif not _is_file(key.removesuffix(layout.METADATA_SUFFIX), suffixes) and not key.endswith(PAGE_NAMES):
                yield key, "neither a wheel nor an sdist"
        elif key.endswith(PAGE_NAMES) and (folder == layout.NIGHTLY or layout.is_release(folder)):
            yield key, f"a foreign page: the first move of {folder} replaces or deletes it"
        else:
            yield key, "not in a commit's folder: only <commit>/<file> is taken over"


def judge(index: Index, plan: AdoptPlan) -> list[Judged]:
    """Read the facts of the new files in parts, as a dry run needs them, and say which would be refused; reads only."""
    with ThreadPoolExecutor(PARALLEL) as pool:
        reads = list(pool.map(partial(_judge, index), plan.new))
    judged: dict[str, Judged] = {read[0].key: read for read in reads}
    for _, group in groupby(reads, key=lambda read: _commit(read[0])):
        for key, reason in _accept(index, list(group))[1]:
            judged[key] = (judged[key][0], reason)
    return list(judged.values())


def _judge(index: Index, stored: Stored) -> Judged:
    try:
        return stored, _facts(index, stored)[1]
    except (DataError, MissingInputError, RemoteChangedError) as error:
        return stored, error.message


def _is_file(key: str, suffixes: tuple[str, ...]) -> bool:
    commit, _, name = key.partition("/")
    return layout.is_commit(commit) and "/" not in name and name.endswith(suffixes)


def _commit(stored: Stored) -> str:
    return stored.key.partition("/")[0]


def _name(key: str) -> str:
    return key.rpartition("/")[2]


def execute_adopt(
    index: Index, plan: AdoptPlan, time_of: AskTime = lambda _commit: None, progress: Progress | None = None
) -> AdoptReport:
    """Take the files over, commit by commit; one that is not a sound distribution is left alone and reported.

    Safe to repeat after a failure or a kill: what is recorded is not read again. The upload time of a file is that
    of the object, the first publication that is known of; what somebody recorded meanwhile keeps its own.
    """
    taken = _Taken()
    times = _times(plan, time_of)
    with ThreadPoolExecutor(PARALLEL) as pool:
        reads = pool.map(partial(_read, index, progress), plan.new)
        for commit, group in groupby(reads, key=lambda read: _commit(read[0])):
            for batch in _batches(group):
                _take(index, times[commit], batch, taken)
    drawn = Drawn()
    for commit in plan.commits:
        keys = [*taken.adopted, *(stored.key for stored in plan.known)]
        names = [_name(key) for key in keys if key.startswith(f"{commit}/")]
        projects = sorted({parse_filename(name).project for name in names})
        if projects:
            show_commit(index, commit, projects)
            drawn += draw_view(index, commit, sweep=True)
    drawn += draw_store(index)
    return AdoptReport(tuple(taken.adopted), tuple(stored.key for stored in plan.known), tuple(taken.refused), drawn)


@dataclass
class _Taken:
    adopted: list[str] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)


def _times(plan: AdoptPlan, time_of: AskTime) -> dict[str, CommitTime]:
    """Return the time of each commit with new files: the known one, else that of its first object."""
    first: dict[str, str] = {}
    for stored in (*plan.new, *plan.known):
        moment = timestamp(stored.modified)
        first[_commit(stored)] = min(moment, first.get(_commit(stored), moment))
    new = {_commit(stored) for stored in plan.new}
    return {commit: time_of(commit) or CommitTime(first[commit], TimeSource.UPLOAD) for commit in sorted(new)}


def _facts(index: Index, stored: Stored) -> tuple[Stored, DistributionFacts]:
    """Read a file's metadata in parts; return the object as it is now too."""
    before = index.store.head(stored.key)
    if before is None or before.size != stored.size:
        raise _changed(stored)
    reader = cast("BinaryIO", RangedReader(index.store, before))
    facts = facts_from_reader(_name(stored.key), stored.size, reader, "", index.rules.variants)
    layout.check_project_name(facts.project, index.rules.variants)
    return before, facts


def _read(index: Index, progress: Progress | None, stored: Stored) -> Judged:
    """Read a file's metadata in parts, and only if that is sound all of it, once."""
    try:
        before, facts = _facts(index, stored)
        digest = hashlib.sha256()
        for piece in index.store.stream(stored.key):
            digest.update(piece)
            if progress is not None:
                progress(len(piece))
        if not index.still_current(stored.key, before.etag):
            raise _changed(stored)
    except (DataError, MissingInputError, RemoteChangedError) as error:
        return stored, error.message
    return stored, replace(facts, sha256=digest.hexdigest())


def _changed(stored: Stored) -> RemoteChangedError:
    return RemoteChangedError(f"{stored.key} was changed while it was read")


def _batches(reads: Iterable[Judged]) -> Iterator[list[Judged]]:
    batch: list[Judged] = []
    for read in reads:
        batch.append(read)
        if sum(stored.size for stored, _ in batch) >= RECORD_AFTER:
            yield batch
            batch = []
    if batch:
        yield batch


_Accepted = dict[str, list[tuple[Stored, DistributionFacts]]]


def _accept(index: Index, batch: Sequence[Judged]) -> tuple[_Accepted, list[tuple[str, str]]]:
    """Part one commit's files into those that its view can show, per project, and (key, reason) of the others."""
    accepted: _Accepted = {}
    refused = []
    for stored, facts in batch:
        if isinstance(facts, str):
            refused.append((stored.key, facts))
            continue
        fellows = accepted.setdefault(facts.project, [])
        state = index.project(facts.project).state
        names = [known.filename for _, known in fellows]
        try:
            refuse_twins_of(state, _commit(stored), [*names, facts.filename])
            check_variants(index, state, _commit(stored), [*(known for _, known in fellows), facts])
        except DataError as error:
            refused.append((stored.key, error.message))
            continue
        fellows.append((stored, facts))
    return accepted, refused


def _take(index: Index, time: CommitTime, batch: Sequence[Judged], taken: _Taken) -> None:
    """Write the sidecars of one commit's files, then record them."""
    accepted, refused = _accept(index, batch)
    taken.refused.extend(refused)
    for project, files in accepted.items():
        records = []
        for stored, facts in files:
            if facts.metadata_sha256:
                put_metadata(index, stored.key + layout.METADATA_SUFFIX, facts.metadata)
            records.append(make_record(_commit(stored), time, facts, timestamp(stored.modified)))
        record_files(index, project, records)
        taken.adopted.extend(stored.key for stored, _ in files)
