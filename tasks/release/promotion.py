"""Publishing as planned: copy by digest, push the index by digest, write the tags, verify, record.

Whatever is killed or cut off, a second run completes it: blobs that are there are not sent again, and no tag is
written before everything that it needs is there.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from tasks.registry.copying import CopyReport, Limits, execute_copy
from tasks.release.ledger import Entry, Event, RunKind
from tasks.release.moving import Run, changes, complete_record, lease_for, move_tags, now
from tasks.release.promotion_plan import Parties, PublishPlan, plan_again
from tasks.release.recorded import recorded
from tasks.support.transfers import SILENT, Transfers


@dataclass(frozen=True)
class PublishReport:
    """What a publish did. ``copied`` is None when nothing had to be copied; ``seconds`` is the whole run's time."""

    plan: PublishPlan
    run: Run
    copied: CopyReport | None
    seconds: float

    @property
    def wrote(self) -> bool:
        """Say whether a tag was written."""
        return bool(self.plan.writes)


def execute_publish(
    parties: Parties,
    plan: PublishPlan,
    run: Run,
    transfers: Transfers = SILENT,
    *,
    limits: Limits = Limits(),  # noqa: B008 - frozen
) -> PublishReport:
    """Copy as planned, then take the channel's lease, plan its tags again under it, and write them.

    The report has the plan that was made last. Writes nothing at all when every tag is in place. Raises the plan's
    refusal before anything else, and what copying, planning, the lease and ``move_tags`` raise; the error says which
    tags moved.
    """
    if plan.refusal is not None:
        raise plan.refusal
    start = time.monotonic()
    copied = None
    if plan.copy is not None and plan.writes:
        copied = execute_copy(plan.copy, parties.staging, parties.public, transfers=transfers, limits=limits)
    elif plan.unfinished is None and not plan.unrecorded:
        return PublishReport(plan, run, None, time.monotonic() - start)
    with lease_for(parties.store, _intent(plan, run, copied), plan.tags).held() as lease:
        # What was planned may be hours old: other runs have moved the channel since, and their word counts.
        plan = plan_again(parties, plan)
        if plan.writes:
            move_tags(parties.public, parties.store, _intent(plan, run, copied), plan.tags, plan.manifests, lease=lease)
        elif plan.unfinished is not None:
            complete_record(parties.store, plan.unfinished)
        elif plan.unrecorded:
            complete_record(parties.store, _intent(plan, run, None))
    return PublishReport(plan, run, copied, time.monotonic() - start)


def _intent(plan: PublishPlan, run: Run, copied: CopyReport | None) -> Entry:
    request = plan.request
    return Entry(
        event=Event.INTENT,
        deed=RunKind.PUBLISH,
        channel=request.channel,
        run=run.id,
        time=now(),
        repository=plan.public,
        commit=request.commit,
        tags=changes(plan.tags),
        version=str(request.version) if request.version is not None else None,
        commit_time=recorded(plan.commit_time),
        sources=plan.sources,
        copied=copied.copied.size if copied is not None else 0,
        mounted=copied.mounted.size if copied is not None else 0,
        untested=recorded(request.untested),
        moved_latest=request.move_latest,
        build=run.build,
        build_url=run.build_url,
    )
