"""Cleaning up the public repository: the catalogue's rule, and what a rollback may still need."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from tasks.images import catalogue
from tasks.registry.cleaning import PAUSE, CleanupReport, execute_cleanup, report_error, survey_and_plan
from tasks.registry.interface import Repository
from tasks.registry.retention import CleanupPlan, RetentionRule, check_cap
from tasks.registry.tag_keepers import LayoutKeeper, TagKeeper, open_keeper
from tasks.release.channels import Channel, channel_of_tag, floating_group
from tasks.release.lease import Lease
from tasks.release.moving import Run
from tasks.release.promotion_plan import Parties
from tasks.release.status import protected_digests, push_times, unknown_to_ledger
from tasks.support import console
from tasks.support.arguments import parse_age, parse_count
from tasks.support.errors import ConfigurationError, MissingInputError, OmniError, TemporaryError
from tasks.support.settings import Settings


@dataclass(frozen=True)
class Cleanup:
    """A clean-up's plan, and where it deletes; ``repository`` is None when no manifest is reclaimed.

    ``protected`` are the digests that a rollback may need, when it was planned.
    """

    keeper: TagKeeper
    repository: Repository | None
    plan: CleanupPlan
    parties: Parties
    run: Run
    protected: frozenset[str]

    @property
    def refusal(self) -> OmniError | None:
        """Return what a real run ends with before it deletes anything, or None."""
        try:
            check_cap(self.plan)
        except OmniError as error:
            return error
        return None


def read_rule(keep: str | None, younger_than: str | None, most: str | None) -> RetentionRule:
    """Return the catalogue's rule with what a command line changes of it; UsageError for a word that is none."""
    said = catalogue.load().retention
    return replace(
        said,
        keep=parse_count(keep, "--keep", least=1) if keep is not None else said.keep,
        younger_than=parse_age(younger_than, "--younger-than") if younger_than is not None else said.younger_than,
        most_deletions=parse_count(most, "--max") if most is not None else said.most_deletions,
    )


def plan_cleanup(
    settings: Settings, parties: Parties, rule: RetentionRule, *, reclaim: bool, without_ledger: bool = False
) -> Cleanup:
    """List the tags and choose; only reads. What the moving tags showed lately is protected.

    Raises ConfigurationError for a rule that would take a release's tags; MissingInputError when the ledger knows none
    of the moving tags that are there, unless ``without_ledger``: then only what they show now is protected.
    """
    if not without_ledger:
        _require_known(parties)
    local = parties.public.name.folder is not None
    pushed = push_times(parties.public, parties.store) if local else None
    keeper = open_keeper(parties.public.name, settings, pushed)
    repository = parties.public if reclaim else None
    protected = protected_digests(parties.public, parties.store)
    moving = frozenset(tag for channel in Channel for tag in floating_group(channel).names)
    plan = survey_and_plan(keeper, rule, protected, datetime.now(UTC), repository=repository, moving=moving)
    _refuse_releases(plan)
    return Cleanup(keeper, repository, plan, parties, Run.start(settings), protected)


def _refuse_releases(plan: CleanupPlan) -> None:
    """Refuse a rule that is wide enough for a release's tags, whatever it protects: they never come again."""
    released = [choice.tag for choice in plan.deletions if channel_of_tag(choice.tag) is Channel.RELEASE]
    if released:
        raise ConfigurationError(
            f"the rule would delete {', '.join(released[:3])} in {plan.repository}, and a release's tags stay",
            hint="correct the pattern of retention in docker/images.yml; nothing was deleted",
        )


def _require_known(parties: Parties) -> None:
    strangers = unknown_to_ledger(parties.public, parties.store)
    if strangers:
        raise MissingInputError(
            f"the ledger in {parties.store.url} knows none of {', '.join(strangers)} in {parties.public.name}, so "
            "nobody can say what a rollback needs",
            hint="name the store with the ledger (--store, OMNI_CI_STORE), or pass --without-ledger",
        )


def run_cleanup(cleanup: Cleanup, tell: Callable[[str], None] = console.say) -> tuple[CleanupReport, OmniError | None]:
    """Delete as planned while no other run moves a channel; the error is what it ended with, and says how far it came.

    Raises TemporaryError, before anything is deleted, when another run holds a channel or moved one since the plan.
    """
    if not cleanup.plan.deletions and not cleanup.plan.reclaims:
        return _execute(cleanup, tell, lambda: None)
    check_cap(cleanup.plan)
    with ExitStack() as stack:
        about = f"clean-up of {cleanup.parties.public.name}"
        leases = [Lease(cleanup.parties.store, channel, cleanup.run.id, cleanup.run.id, about) for channel in Channel]
        for lease in leases:
            stack.enter_context(lease.held())
        if protected_digests(cleanup.parties.public, cleanup.parties.store) != cleanup.protected:
            raise TemporaryError(
                f"another run moved a tag of {cleanup.parties.public.name} since this was planned: nothing was deleted",
                hint="run this again",
            )

        def renew() -> None:
            for lease in leases:
                lease.renew()

        return _execute(cleanup, tell, renew)


def _execute(
    cleanup: Cleanup, tell: Callable[[str], None], check: Callable[[], None]
) -> tuple[CleanupReport, OmniError | None]:
    local = isinstance(cleanup.keeper, LayoutKeeper)  # only an account API has a rate that it allows
    pause = 0.0 if local else PAUSE
    report = execute_cleanup(
        cleanup.keeper, cleanup.plan, repository=cleanup.repository, pause=pause, tell=tell, check=check
    )
    return report, report_error(report)
