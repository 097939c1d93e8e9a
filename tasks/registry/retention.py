"""Which tags are old enough to go: the rule as data, and a pure planner that gives every tag a choice and a reason."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain, pairwise
from typing import Protocol

from tasks.registry.references import is_digest
from tasks.support.console import age, plural
from tasks.support.errors import DataError, UsageError

KEEP = "keep"
DELETE = "delete"
NIGHTLY_OF_COMMIT = r"nightly-[0-9a-f]{40}"
_PRESENT = timedelta(hours=1)
"""How far a server's clock may be ahead of ours."""

Contents = Mapping[str, Sequence[str]]
"""Per digest, every manifest below it: an index's children and theirs, parents first; none for a single image."""


class StoredTag(Protocol):
    """A tag as it is listed. The digest and the time of its last push are None where nobody can tell."""

    @property
    def name(self) -> str:
        """Return the tag."""

    @property
    def digest(self) -> str | None:
        """Return what it points at."""

    @property
    def last_pushed(self) -> datetime | None:
        """Return when it was last pushed, with a time zone."""


@dataclass(frozen=True)
class RetentionRule:
    """What may be deleted. A tag is a candidate when the whole of it matches ``pattern``.

    The newest ``keep`` candidates stay, and all that are younger than ``younger_than``; so does every tag of which
    the whole matches one of ``protected_patterns``. A manifest in ``protected_digests`` is never reclaimed.
    A plan of more than ``most_deletions`` is refused whole.
    """

    pattern: str = NIGHTLY_OF_COMMIT
    keep: int = 14
    younger_than: timedelta = timedelta()
    protected_patterns: tuple[str, ...] = (r"latest(?:-.+)?", r"nightly(?:-(?:x86_64|aarch64))?", r"v[0-9].*")
    protected_digests: frozenset[str] = frozenset()
    most_deletions: int = 20

    def __post_init__(self) -> None:
        """Refuse a rule that cannot be meant, with UsageError."""
        if self.keep < 1:
            raise UsageError(f"cannot keep {self.keep} tags", hint="give 1 or more")
        if self.most_deletions < 0 or self.younger_than < timedelta():
            raise UsageError("a clean-up's age and its largest number of deletions are not negative")
        for pattern in (self.pattern, *self.protected_patterns):
            try:
                re.compile(pattern)
            except re.error as error:
                raise UsageError(f"not a pattern: {pattern!r}: {error}") from error
        for digest in self.protected_digests:
            if not is_digest(digest):
                raise UsageError(f"not a sha256 digest: {digest!r}")


@dataclass(frozen=True)
class Choice:
    """What becomes of one tag, and why. ``verdict`` is ``keep`` or ``delete``.

    ``candidate`` says whether the rule's pattern matches; ``needed_by`` names what else needs the manifest of a
    tag that goes.
    """

    verdict: str
    tag: str
    digest: str | None
    pushed: datetime | None
    reason: str
    candidate: bool = False
    needed_by: str | None = None


@dataclass(frozen=True)
class Reclaim:
    """A manifest that nothing needs when its ``tags`` are gone, and those of its children that nothing needs then."""

    digest: str
    tags: tuple[str, ...]
    children: tuple[str, ...] = ()


@dataclass(frozen=True)
class CleanupPlan:
    """A choice for every tag, deletions first and oldest first, and what is reclaimed after them."""

    repository: str
    choices: tuple[Choice, ...]
    most_deletions: int
    reclaims: tuple[Reclaim, ...] = ()

    @property
    def deletions(self) -> tuple[Choice, ...]:
        """Return the tags that go, in the order of execution."""
        return tuple(choice for choice in self.choices if choice.verdict == DELETE)

    def actions(self) -> list[tuple[str, str, str]]:
        """Return (action, what, why) in the order of execution."""
        rows = [("delete tag", f"{self.repository}:{choice.tag}", choice.reason) for choice in self.deletions]
        for reclaim in self.reclaims:
            why = f"only {', '.join(reclaim.tags)} pointed at it"
            rows.append(("delete manifest", f"{self.repository}@{reclaim.digest}", why))
            below = f"only {reclaim.digest} held it"
            rows += [("delete manifest", f"{self.repository}@{child}", below) for child in reclaim.children]
        return rows


def plan_cleanup(
    tags: Iterable[StoredTag],
    rule: RetentionRule,
    protected_digests: Iterable[str],
    now: datetime,
    *,
    repository: str = "",
    contents: Contents | None = None,
    moving: Collection[str] = (),
) -> CleanupPlan:
    """Choose the tags that go; pure, so a dry run shows what a real run does, whatever order ``tags`` come in.

    ``protected_digests`` are what a rollback may need (the last digests of the moving tags). ``contents`` asks for
    manifests to be reclaimed too, and tells what each tag's digest holds. A plan above the rule's cap is returned
    too, to be looked at: ``check_cap`` refuses it. A tag that shows what one of the ``moving`` tags shows stays.

    Raises DataError when the clock disagrees with the tags, a tag is listed twice, or ``contents`` misses a tag.
    """
    listed = sorted(tags, key=lambda tag: tag.name)
    _check(listed, now)
    order = sorted(
        (tag for tag in listed if _is_candidate(tag, rule) and tag.last_pushed and tag.digest),
        key=lambda tag: (_time(tag), tag.name),
    )
    going, place = order[: -rule.keep], {tag.name: number for number, tag in enumerate(reversed(order), 1)}
    shown = {tag.digest: tag.name for tag in listed if tag.name in moving and tag.digest is not None}
    old = {tag.name for tag in going if now - _time(tag) >= rule.younger_than and tag.digest not in shown}
    protected = rule.protected_digests | frozenset(protected_digests)
    kept = [tag for tag in listed if tag.name not in old]
    needed = _needs(kept, protected, contents)
    deletions = [_deletion(tag, rule, needed, now) for tag in order if tag.name in old]
    stays = [
        Choice(
            KEEP, tag.name, tag.digest, tag.last_pushed, _why_kept(tag, rule, place, shown, now), _matches(tag, rule)
        )
        for tag in sorted(kept, key=lambda tag: (place.get(tag.name, len(listed) + 1), tag.name))
    ]
    reclaims = _reclaims(deletions, needed, contents) if contents is not None else ()
    return CleanupPlan(repository, (*deletions, *stays), rule.most_deletions, reclaims)


def check_cap(plan: CleanupPlan) -> None:
    """Refuse a plan that would delete more tags than were agreed on, with DataError; nothing is deleted then."""
    count = len(plan.deletions)
    if count > plan.most_deletions:
        raise DataError(
            f"this would delete {plural(count, 'tag')} of {plan.repository}, and {plan.most_deletions} are allowed",
            hint="nothing was deleted; look at the plan with --dry-run, then give the --max that is right",
        )


def plan_rows(plan: CleanupPlan, *, every: bool = False) -> list[tuple[str, str, str, str, str]]:
    """Return a plan as rows of (action, tag, digest, last pushed, why); without ``every``, only the candidates'."""
    return [
        (
            choice.verdict,
            choice.tag,
            choice.digest or "unknown",
            f"{choice.pushed:%Y-%m-%d %H:%M}" if choice.pushed else "unknown",
            choice.reason,
        )
        for choice in plan.choices
        if every or choice.candidate
    ]


def _check(listed: Sequence[StoredTag], now: datetime) -> None:
    for tag, after in pairwise(listed):
        if tag.name == after.name:
            raise DataError(f"the tag {tag.name} is listed twice")
    times = [(tag.last_pushed, tag.name) for tag in listed if tag.last_pushed]
    newest, name = max(times, default=(now, ""))
    if newest > now + _PRESENT:
        raise DataError(
            f"this machine's clock says {now:%F %T %Z}, but {name} was pushed at {newest:%F %T %Z}",
            hint="ages are measured with this clock: set it, and run this again",
        )


def _matches(tag: StoredTag, rule: RetentionRule) -> bool:
    return re.fullmatch(rule.pattern, tag.name) is not None


def _protecting(tag: StoredTag, rule: RetentionRule) -> str | None:
    return next((pattern for pattern in rule.protected_patterns if re.fullmatch(pattern, tag.name)), None)


def _is_candidate(tag: StoredTag, rule: RetentionRule) -> bool:
    return _matches(tag, rule) and _protecting(tag, rule) is None


def _time(tag: StoredTag) -> datetime:
    assert tag.last_pushed is not None  # noqa: S101 - candidates without one were left out
    return tag.last_pushed


def _why_kept(
    tag: StoredTag, rule: RetentionRule, place: Mapping[str, int], shown: Mapping[str, str], now: datetime
) -> str:
    pattern = _protecting(tag, rule)
    if pattern is not None:
        return f"protected: it matches {pattern}"
    if not _matches(tag, rule):
        return "not a candidate"
    if tag.last_pushed is None:
        return "when it was pushed is not known"
    if tag.digest is None:
        return "what it points at is not known"
    if place[tag.name] <= rule.keep:
        return f"number {place[tag.name]} of the newest {rule.keep}"
    holder = shown.get(tag.digest)
    return (
        f"{holder} shows the same now"
        if holder
        else f"pushed {age(now - tag.last_pushed)} ago, within {age(rule.younger_than)}"
    )


def _needs(kept: Sequence[StoredTag], protected: Iterable[str], contents: Contents | None) -> dict[str, str]:
    """Return per digest that must stay what needs it, for people to read."""
    needed: dict[str, str] = {}
    for tag in kept:
        if contents is not None and (tag.digest is None or tag.digest not in contents):
            raise DataError(
                f"what the tag {tag.name} points at cannot be read, so nothing can be reclaimed safely",
                hint="clean up without reclaiming, or delete or push that tag",
            )
        for digest in (tag.digest, *(contents or {}).get(tag.digest or "", ())):
            if digest is not None:
                needed.setdefault(digest, tag.name)
    for root in protected:
        for digest in (root, *(contents or {}).get(root, ())):
            needed.setdefault(digest, "a rollback")
    return needed


def _deletion(tag: StoredTag, rule: RetentionRule, needed: Mapping[str, str], now: datetime) -> Choice:
    holder = needed.get(tag.digest or "")
    reason = f"older than the newest {rule.keep}, pushed {age(now - _time(tag))} ago"
    if holder is not None:
        reason += f"; its manifest stays for {holder}"
    return Choice(DELETE, tag.name, tag.digest, tag.last_pushed, reason, candidate=True, needed_by=holder)


def _reclaims(deletions: Sequence[Choice], needed: Mapping[str, str], contents: Contents) -> tuple[Reclaim, ...]:
    by_digest: dict[str, list[str]] = {}
    for choice in deletions:
        if choice.digest is not None and choice.digest not in needed and choice.digest in contents:
            by_digest.setdefault(choice.digest, []).append(choice.tag)
    # Whatever holds another goes before it: the more holders, the later.
    order = sorted(by_digest, key=lambda digest: sum(digest in contents[other] for other in by_digest))
    # A child of several goes with the last of them; a manifest that had tags of its own is in this list itself.
    last_holder = {child: digest for digest in order for child in contents[digest]}
    return tuple(
        Reclaim(
            digest,
            tuple(by_digest[digest]),
            tuple(
                child
                for child in dict.fromkeys(contents[digest])
                if child not in needed and child not in by_digest and last_holder[child] == digest
            ),
        )
        for digest in order
    )


def digests_of(tags: Iterable[StoredTag], protected_digests: Iterable[str]) -> frozenset[str]:
    """Return the digests of which ``contents`` must tell what they hold."""
    return frozenset(chain((tag.digest for tag in tags if tag.digest), protected_digests))
