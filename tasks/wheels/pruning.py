"""Choosing which old commits to remove; what removes them is in ``removal``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from tasks.support import console
from tasks.support.console import size
from tasks.support.errors import DataError, MissingInputError, UsageError
from tasks.wheels import clock, layout
from tasks.wheels.drawing import PAGE_NAMES
from tasks.wheels.index import Index
from tasks.wheels.removal import Removal, Removed, holders, read_note, remove_commits
from tasks.wheels.rolling_back import revision_before
from tasks.wheels.state import FileRecord
from tasks.wheels.survey import Survey, survey_store

KEEP = "keep"
REMOVE = "remove"
YOUNG = timedelta(days=7)
_LONG_IDLE = timedelta(days=366)

Files = Mapping[str, Sequence[FileRecord]]
"""A commit's files per project."""


@dataclass(frozen=True)
class Choice:
    """What becomes of one commit, and why. ``verdict`` is ``keep`` or ``remove``."""

    verdict: str
    commit: str
    reason: str


@dataclass(frozen=True)
class PrunePlan:
    """What a prune will do: a choice for every commit in the store, and the removals in their order.

    ``refusal`` is what a real run ends in, because the share is too large.
    """

    choices: tuple[Choice, ...]
    removals: tuple[Removal, ...]
    refusal: DataError | None = None

    def actions(self) -> list[tuple[str, str, str]]:
        """Return (action, key, reason) in the order of execution."""
        if not self.removals:
            return []
        rows = [("write note", layout.pruning(removal.commit), "uploads and moves see it") for removal in self.removals]
        rows.append(("draw pages", layout.BROWSE, "without the commits that go"))
        for removal in self.removals:
            rows += removal.actions()
        return rows


@dataclass(frozen=True)
class PruneReport:
    """What a prune did. ``kept`` are planned removals that did not happen, each with its reason; sizes are bytes."""

    commits: tuple[str, ...]
    deleted: tuple[str, ...]
    freed: int
    kept: tuple[tuple[str, str], ...]


def plan_prune(
    index: Index, *, keep: int, younger_than: timedelta, max_share: float, now: datetime | None = None
) -> PrunePlan:
    """Choose the commits to remove; nothing is written.

    What an earlier prune began to remove is removed to its end, outside the share. Raises DataError when the
    store's listing or the clock says that something is wrong; a share that is too large is the plan's refusal.
    """
    if keep < 1:
        raise UsageError(f"cannot keep {keep} nightlies", hint="the present nightly always stays: give 1 or more")
    moment = now or datetime.now(UTC)
    survey = survey_store(index)
    commits = survey.commits
    _check_clock(index, survey, moment)
    reasons = _reasons_to_keep(survey, commits, keep=keep, younger_than=younger_than, now=moment)
    notes = (read_note(index, commit) for commit in sorted(survey.leaving))
    resumed = [note for note in notes if note is not None]
    candidates = {commit: files for commit, files in commits.items() if commit not in survey.leaving}
    fresh = [Removal(commit, files) for commit, files in candidates.items() if commit not in reasons]
    fresh.sort(key=lambda removal: _newest(survey, removal.records, moment))
    refusal = _share_error(fresh, candidates, max_share)
    choices = [Choice(REMOVE, removal.commit, "a prune that was stopped began to remove it") for removal in resumed]
    choices += [Choice(REMOVE, removal.commit, _why_removed(survey, removal, moment)) for removal in fresh]
    choices += [Choice(KEEP, commit, reason) for commit, reason in reasons.items() if commit not in survey.leaving]
    return PrunePlan(tuple(choices), (*resumed, *fresh), refusal)


def foretold(refusal: DataError) -> DataError:
    """Return the error that a dry run ends in where a real run would be refused."""
    return DataError(f"a real run would be refused: {refusal.message}", hint=refusal.hint)


def _all(files: Files) -> list[FileRecord]:
    return [record for records in files.values() for record in records]


def _moment(record: FileRecord) -> datetime:
    try:
        return datetime.fromisoformat(record.uploaded).astimezone(UTC)
    except ValueError as error:
        raise DataError(f"{record.key} has an upload time that is none: {record.uploaded!r}") from error


def _came(survey: Survey, record: FileRecord, now: datetime) -> datetime:
    """Return when a file came: the later of the recorded time and the object's own.

    A recorded time ahead of this machine's clock was made by a wrong one; the store's time decides then.
    """
    stored, recorded = survey.objects[record.key].modified, _moment(record)
    return stored if clock.is_ahead(recorded, now) else max(stored, recorded)


def _newest(survey: Survey, records: Iterable[FileRecord], now: datetime) -> datetime:
    return max(_came(survey, record, now) for record in records)


def _check_clock(index: Index, survey: Survey, now: datetime) -> None:
    """Refuse a clock that disagrees with the times of the objects: every age is measured with it."""
    newest = max(stored.modified for stored in survey.objects.values())
    if clock.is_ahead(newest, now):
        raise DataError(clock.contradiction(newest, now), hint=clock.repair(index.store.url))
    if now - newest > _LONG_IDLE:
        raise DataError(
            f"this machine's clock says {now:%F %T}, but nothing was written since {newest:%F %T} (UTC)",
            hint="when the clock is right and the store is merely old, upload something first",
        )


def _reasons_to_keep(
    survey: Survey,
    commits: Mapping[str, Files],
    *,
    keep: int,
    younger_than: timedelta,
    now: datetime,
) -> dict[str, str]:
    """Return every commit that stays, with the first reason that holds."""
    reasons = {commit: f"{view} holds it" for commit, view in holders(survey.views.values()).items()}
    for commit, reason in _nightlies(survey, keep):
        reasons.setdefault(commit, reason)
    for commit, files in commits.items():
        # The newest file counts, so that a commit to which somebody is uploading right now stays too.
        age = now - _newest(survey, _all(files), now)
        if age < younger_than:
            reasons.setdefault(commit, f"uploaded {console.age(age)} ago, within {console.age(younger_than)}")
    for commit, names in _unknown(survey).items():
        others = f" and {len(names) - 1} more" if len(names) > 1 else ""
        reasons.setdefault(commit, f"not in the state: {names[0]}{others}; run wheels.adopt, or upload it again")
    return {commit: reason for commit, reason in reasons.items() if commit in commits or commit in survey.folders}


def _nightlies(survey: Survey, keep: int) -> Iterator[tuple[str, str]]:
    """Yield the commits of the newest nightlies, and what a rollback would go back to."""
    view = survey.views.get(layout.NIGHTLY)
    if view is None:
        return
    newest_first = list(dict.fromkeys(revision.commit for revision in reversed(view.revisions)))
    for number, commit in enumerate(newest_first[:keep], 1):
        yield commit, f"nightly {number} of the newest {keep}"
    with contextlib.suppress(MissingInputError):
        yield from ((commit, "a rollback goes there") for commit in revision_before(view).commits)


def _unknown(survey: Survey) -> dict[str, list[str]]:
    """Return per commit the names of the objects that are neither in the state nor pages."""
    known = {key for state in survey.projects.values() for key in state.files}
    found: dict[str, list[str]] = {}
    for commit, objects in survey.folders.items():
        keys = (stored.key for stored in objects if not stored.key.endswith(PAGE_NAMES))
        names = [key.partition("/")[2] for key in keys if key.removesuffix(layout.METADATA_SUFFIX) not in known]
        if names and commit not in survey.leaving:
            found[commit] = sorted(names)
    return found


def _share_error(fresh: Sequence[Removal], there: Mapping[str, Files], max_share: float) -> DataError | None:
    """Return the error of removing more of the commits, or of the files, than the share that was agreed on."""
    for what, part, whole in (
        ("commits", len(fresh), len(there)),
        ("files", sum(len(removal.records) for removal in fresh), sum(len(_all(files)) for files in there.values())),
    ):
        if whole and part / whole > max_share + 1e-9:  # 29 of 100 is not more than 0.29
            return DataError(
                f"this would remove {part} of {whole} {what} ({part / whole:.0%}), and {max_share:.0%} are allowed",
                hint="nothing was changed; look at the table, then give the share that is right: --max-share",
            )
    return None


def _why_removed(survey: Survey, removal: Removal, now: datetime) -> str:
    age = console.age(now - _newest(survey, removal.records, now))
    return f"no view holds it, uploaded {age} ago, {size(sum(record.size for record in removal.records))}"


def execute_prune(index: Index, plan: PrunePlan) -> PruneReport:
    """Remove the planned commits; one that changed or came into use since the plan stays, and is reported.

    Raises the plan's refusal, if there is one, before anything is changed.
    """
    if plan.refusal is not None:
        raise plan.refusal
    removed = remove_commits(index, plan.removals) if plan.removals else Removed((), (), ())
    deleted = set(removed.deleted)
    freed = sum(r.size for removal in plan.removals for r in removal.records if r.key in deleted)
    return PruneReport(removed.commits, removed.deleted, freed, removed.kept)
