"""Doing a clean-up as planned: one tag after the other, each looked at again just before it goes."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from tasks.registry.interface import Repository
from tasks.registry.reclaiming import Reclaimed, read_contents, reclaim
from tasks.registry.retention import (
    Choice,
    CleanupPlan,
    RetentionRule,
    StoredTag,
    check_cap,
    digests_of,
    plan_cleanup,
)
from tasks.registry.tag_keepers import TagKeeper
from tasks.support.console import plural
from tasks.support.errors import OmniError

PAUSE = 1.0


@dataclass(frozen=True)
class CleanupReport:
    """What a clean-up did. ``gone`` were deleted by somebody else; ``kept`` are planned deletions that did not happen.

    ``left`` were not reached, because of ``failure``. Manifests are digests.
    """

    repository: str
    deleted: tuple[str, ...]
    gone: tuple[str, ...]
    kept: tuple[tuple[str, str], ...]
    left: tuple[str, ...]
    reclaimed: tuple[str, ...] = ()
    unreclaimed: tuple[tuple[str, str], ...] = ()
    failure: OmniError | None = field(default=None, compare=False)

    def as_json(self) -> dict[str, Any]:
        """Return the report for machines."""
        return {
            "repository": self.repository,
            "deleted": list(self.deleted),
            "gone": list(self.gone),
            "kept": [{"tag": tag, "reason": reason} for tag, reason in self.kept],
            "left": list(self.left),
            "reclaimed": list(self.reclaimed),
            "unreclaimed": [{"digest": digest, "reason": reason} for digest, reason in self.unreclaimed],
            "failure": self.failure and self.failure.message,
        }


def survey_and_plan(
    keeper: TagKeeper,
    rule: RetentionRule,
    protected_digests: Iterable[str],
    now: datetime,
    *,
    repository: Repository | None = None,
    moving: Collection[str] = (),
) -> CleanupPlan:
    """List the tags, and with a ``repository`` read what they hold so that manifests are reclaimed; then plan.

    What the ``moving`` tags show keeps every tag that shows it.

    Only reads. Raises what the listing raises: an incomplete one is not planned with.
    """
    tags = keeper.list_tags()
    protected = frozenset(protected_digests) | rule.protected_digests
    contents = None if repository is None else read_contents(repository, digests_of(tags, protected))
    return plan_cleanup(tags, rule, protected, now, repository=keeper.name, contents=contents, moving=moving)


def execute_cleanup(
    keeper: TagKeeper,
    plan: CleanupPlan,
    *,
    repository: Repository | None = None,
    pause: float = PAUSE,
    sleep: Callable[[float], None] = time.sleep,
    tell: Callable[[str], None] = lambda _line: None,
    check: Callable[[], None] = lambda: None,
) -> CleanupReport:
    """Delete the plan's tags, and then its manifests in ``repository``; the first failure ends it.

    A tag that points elsewhere or was pushed again since the plan stays, and is reported. ``pause`` seconds lie
    between two deletions. ``check`` is called before each, and ends it by raising. Raises DataError, and does
    nothing, when the plan is above its cap; every later failure is in the report (see ``report_error``). When it is
    killed, a new plan goes on with the tags that are left.
    """
    check_cap(plan)
    deleted: list[str] = []
    gone: list[str] = []
    kept: list[tuple[str, str]] = []
    failure: OmniError | None = None
    reached = 0
    total = len(plan.deletions)
    for number, choice in enumerate(plan.deletions):
        try:
            if deleted:
                sleep(pause)
            check()
            present = keeper.find_tag(choice.tag)
            why = present and _why_kept(present, choice)
            if why:
                kept.append((choice.tag, why))
            elif present and keeper.delete_tag(choice.tag):
                deleted.append(choice.tag)
                tell(f"deleted {number + 1} of {total}: {choice.tag}")
            else:
                gone.append(choice.tag)
        except OmniError as error:
            failure = error
            break
        reached += 1
    manifests = Reclaimed()
    if failure is None and repository is not None and plan.reclaims:
        manifests = _reclaim(keeper, repository, plan, tell, check)
    return CleanupReport(
        plan.repository,
        tuple(deleted),
        tuple(gone),
        tuple(kept),
        tuple(choice.tag for choice in plan.deletions[reached:]),
        tuple(manifests.deleted),
        tuple(manifests.kept),
        failure or manifests.failure,
    )


def report_error(report: CleanupReport) -> OmniError | None:
    """Return the error that a clean-up ends with, saying how far it came; None when it did all that it should."""
    failure = report.failure
    if failure is None:
        return None
    done = plural(len(report.deleted), "tag")
    where = f"at {report.left[0]}, {plural(len(report.left), 'tag')} left" if report.left else "at the manifests"
    return type(failure)(f"stopped {where}, {done} deleted: {failure.message}", hint=failure.hint)


def _why_kept(present: StoredTag, choice: Choice) -> str | None:
    """Return why a tag that was to go stays after all, as it is now."""
    if present.digest != choice.digest:
        return f"it points at {present.digest} now"
    if present.last_pushed != choice.pushed:
        return "it was pushed again"
    return None


def _reclaim(
    keeper: TagKeeper,
    repository: Repository,
    plan: CleanupPlan,
    tell: Callable[[str], None],
    check: Callable[[], None],
) -> Reclaimed:
    try:
        tags = keeper.list_tags()
    except OmniError as error:
        return Reclaimed(failure=error)
    return reclaim(repository, plan, tags, tell, check)
