"""Rolling a channel back: its floating tags, all of them, return to what they showed before.

Tags that never change (``v<version>``, ``nightly-<commit>``) stay. A manifest is read by digest and written under the
tag; no blob is read or written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from types import MappingProxyType

from tasks.registry.documents import Manifest
from tasks.registry.interface import Repository
from tasks.registry.references import check_tag, is_digest, is_tag
from tasks.release import next_steps
from tasks.release.channels import ARCHITECTURES, Channel, TagGroup, channel_of_tag, floating_group, platforms_of
from tasks.release.ledger import Entry, Event, History, Ledger, RunKind
from tasks.release.moving import Run, TagPlan, changes, complete_record, lease_for, move_tags, now, refuse_others_moves
from tasks.release.shown import Shown, describe
from tasks.support.errors import MissingInputError, RemoteChangedError, UsageError
from tasks.support.store import ObjectStore

_PREFIX = re.compile(r"(?:sha256:)?[0-9a-f]{12,63}")
_SHORT = len("sha256:") + 12


@dataclass(frozen=True)
class RollbackPlan:
    """Where a channel's floating tags go back to.

    ``undone`` is the run that is taken back, where the ledger knows it; ``unfinished`` a rollback to the same place
    that was stopped before it wrote its result. ``to`` and ``run`` are what it was asked with.
    """

    channel: Channel
    public: str
    target: Shown
    tags: tuple[TagPlan, ...]
    manifests: Mapping[str, Manifest] = field(repr=False)
    undone: Entry | None = None
    unfinished: Entry | None = None
    to: str | None = None
    run: str | None = None

    @property
    def writes(self) -> tuple[TagPlan, ...]:
        """Return the tags that are to be written, in their order."""
        return tuple(tag for tag in self.tags if tag.writes)

    def actions(self) -> list[tuple[str, str, str]]:
        """Return (action, what, why) in the order of execution."""
        return [("move tag", f"{self.public}:{tag.tag}", f"{tag.digest}, was {tag.old}") for tag in self.writes]


def plan_rollback(
    public: Repository, store: ObjectStore, channel: Channel, *, to: str | None = None, run: str | None = None
) -> RollbackPlan:
    """Choose what a channel goes back to: ``to``, else what it showed before a run or the newest.

    ``to`` is a tag of the channel or of none, a digest, or the beginning of a digest that the ledger knows.
    Raises MissingInputError when that is not known or gone; RemoteChangedError when the tags do not show what the
    ledger says, unless ``to`` is given; UsageError for a run that did not move the channel.
    """
    if to is not None and run is not None:
        raise UsageError("--to and --run contradict each other", hint="give one of them")
    if to is not None and not is_digest(to) and not _is_prefix(to):
        _refuse_others_tag(channel, check_tag(to))
    group = floating_group(channel)
    history = History.read(Ledger(store, channel), str(public.name))
    present = _present(public, group)
    newest = next(iter(history), None)
    undone = history.cause(group.tag, present[group.tag] or "")
    if to is not None:
        targets = _companions(public, history, group, _digest(public, history, group, to), to)
        half = _half_done(public, history, group, present, None)
        undone = half[0] if half is not None and half[1] == targets else undone
        undone = undone if _takes_back(undone, group, targets) else None
    elif newest is not None and _stopped(newest, run):
        _refuse_others_moves(public, history, present)
        targets = {change.tag: change.new for change in newest.tags}
        undone = next((entry for entry in history if entry.run == newest.undone), None)
    elif (half := _half_done(public, history, group, present, run)) is not None:
        _refuse_others_moves(public, history, present)
        undone, targets = half
    else:
        undone = _run(public, store, channel, history, run) if run is not None else undone
        targets = _before(public, history, group, present, undone if run is not None else None)
    manifests = {digest: _manifest(public, digest) for digest in dict.fromkeys(targets.values())}
    tags = tuple(TagPlan(tag, targets[tag], present[tag], True, platforms_of(tag)) for tag in group.names)
    return RollbackPlan(
        channel=channel,
        public=str(public.name),
        target=describe(public, history, group.tag, targets[group.tag]),
        tags=tags,
        manifests=MappingProxyType(manifests),
        undone=undone,
        unfinished=newest if _only_unrecorded(newest, tags) else None,
        to=to,
        run=run,
    )


def execute_rollback(public: Repository, store: ObjectStore, plan: RollbackPlan, run: Run) -> RollbackPlan:
    """Take the channel's lease, plan again under it, move the tags, and return that plan.

    Writes nothing when all are in place. Raises RemoteChangedError when the channel would go elsewhere than planned by
    now, or somebody outside the ledger moved a tag since; and what planning, the lease and ``move_tags`` raise.
    """
    if not plan.writes and plan.unfinished is None:
        return plan
    with lease_for(store, _intent(plan, run), plan.tags).held() as lease:
        again = plan_rollback(public, store, plan.channel, to=plan.to, run=plan.run)
        _refuse_another(plan, again)
        refuse_others_moves(plan.public, History.read(Ledger(store, plan.channel), plan.public), plan.tags, again.tags)
        if again.writes:
            _require_whole(public, again)
            move_tags(public, store, _intent(again, run), again.tags, again.manifests, lease=lease)
        elif again.unfinished is not None:
            complete_record(store, again.unfinished)
    return again


def _refuse_another(plan: RollbackPlan, again: RollbackPlan) -> None:
    """Refuse a second plan that goes elsewhere than the first one."""
    wanted = {tag.tag: tag.digest for tag in plan.tags}
    for tag in again.tags:
        if tag.digest != wanted[tag.tag]:
            raise RemoteChangedError(
                f"{plan.public}:{tag.tag} would go back to {tag.digest} now, no longer to {wanted[tag.tag]}: another "
                "run moved the channel; no tag was moved",
                hint=f"look at {next_steps.status()}, then run this again",
            )


def _require_whole(public: Repository, plan: RollbackPlan) -> None:
    """Refuse to go back to an index whose images were deleted; running it again would not bring them."""
    for digest, manifest in plan.manifests.items():
        for child in manifest.children:
            if public.head(child.digest) is None:
                raise MissingInputError(
                    f"{plan.public}@{digest} is not whole: {child.digest} was deleted",
                    hint="no tag was moved; choose another digest or tag with --to",
                )


def _intent(plan: RollbackPlan, run: Run) -> Entry:
    target = plan.target
    return Entry(
        event=Event.INTENT,
        deed=RunKind.ROLLBACK,
        channel=plan.channel,
        run=run.id,
        time=now(),
        repository=plan.public,
        commit=target.commit,
        tags=changes(plan.tags),
        version=str(target.version) if target.version is not None else None,
        commit_time=target.commit_time,
        build=run.build,
        build_url=run.build_url,
        undone=plan.undone.run if plan.undone is not None else None,
    )


def _present(public: Repository, group: TagGroup) -> dict[str, str | None]:
    found = {tag: public.head(tag) for tag in group.names}
    if found[group.tag] is None:
        raise MissingInputError(f"there is no tag {public.name}:{group.tag}", hint="publish first")
    return {tag: there.digest if there is not None else None for tag, there in found.items()}


def _refuse_others_tag(channel: Channel, tag: str) -> None:
    """Refuse another channel's tag: latest would come to show a nightly that nobody released, because of one word."""
    owner = channel_of_tag(tag)
    if owner not in {None, channel}:
        raise UsageError(
            f"--to {tag}: that tag is {owner.value}'s, not {channel.value}'s",
            hint=f"name a tag of {channel.value}, or the digest when it is meant all the same",
        )


def _is_prefix(word: str) -> bool:
    return _PREFIX.fullmatch(word) is not None


def _digest(public: Repository, history: History, group: TagGroup, to: str) -> str:
    """Return the digest that a tag, a digest or the beginning of a known digest names."""
    if is_tag(to) or is_digest(to):
        found = public.head(to)
        if found is not None:
            return found.digest
    known = _known(history, group)
    if _is_prefix(to):
        begun = [digest for digest in known if digest.removeprefix("sha256:").startswith(to.removeprefix("sha256:"))]
        if len(begun) == 1:
            return begun[0]
        if begun:
            raise UsageError(f"{to} begins {len(begun)} digests", hint="pass the whole digest")
    sign = "@" if to.startswith("sha256:") else ":"
    newest = [f"{digest[:_SHORT]} ({about})" for digest, about in islice(known.items(), 5)]
    hint = f"{next_steps.status()} shows what is" + (f"; the newest are {', '.join(newest)}" if newest else "")
    raise MissingInputError(f"{public.name}{sign}{to} is not there", hint=hint)


def _known(history: History, group: TagGroup) -> dict[str, str]:
    """Return the digests that the ledger knows of a group's index, newest first, and what each is, for people."""
    found: dict[str, str] = {}
    for entry, change in history.changes(group.tag):
        found.setdefault(change.new, entry.version or f"commit {entry.commit}")
    return found


def _half_done(
    public: Repository, history: History, group: TagGroup, present: Mapping[str, str | None], run: str | None
) -> tuple[Entry, dict[str, str]] | None:
    """Return the newest run when it is a publish that was stopped among the group's tags, and what was before it.

    None when ``run`` names another one.
    """
    newest = next(iter(history), None)
    if (
        newest is None
        or newest.finished
        or newest.deed is not RunKind.PUBLISH
        or run not in {None, newest.run, newest.build}
    ):
        return None
    change = newest.change(group.tag)
    if change is None or not change.moves or change.old is None or present[group.tag] != change.old:
        return None  # it did not come so far that a tag moved, or so far that all did
    parts = [part for tag in group.names if (part := newest.change(tag)) is not None]
    if not any(present[part.tag] == part.new for part in parts):
        return None
    targets = _companions(public, history, group, change.old, None)
    return (newest, targets) if targets != present else None


def _takes_back(undone: Entry | None, group: TagGroup, targets: Mapping[str, str]) -> bool:
    """Say whether a run is undone by going where it came from; elsewhere, it is only left behind."""
    change = undone.change(group.tag) if undone is not None else None
    return change is not None and change.old == targets[group.tag]


def _run(public: Repository, store: ObjectStore, channel: Channel, history: History, word: str) -> Entry:
    """Return the run of that name; UsageError says so when it is one of another channel."""
    try:
        return history.run(word)
    except UsageError:
        for other in Channel:
            others = History.read(Ledger(store, other), str(public.name)) if other is not channel else ()
            if any(word in (entry.run, entry.build) for entry in others):
                raise UsageError(
                    f"run {word} moved {other.value}, not {channel.value}",
                    hint=f"{next_steps.rollback_of(other, word)} takes it back",
                ) from None
        raise


def _stopped(newest: Entry, run: str | None) -> bool:
    """Say whether the newest run is a rollback that was stopped and is meant again: it is completed, not followed."""
    return newest.deed is RunKind.ROLLBACK and not newest.finished and run in {None, newest.undone}


def _only_unrecorded(newest: Entry | None, tags: tuple[TagPlan, ...]) -> bool:
    """Say whether the newest run is this rollback, did everything, and only its result is missing."""
    if newest is None or newest.deed is not RunKind.ROLLBACK or newest.finished:
        return False
    return {tag.tag: tag.old for tag in tags} == {change.tag: change.new for change in newest.tags}


def _before(
    public: Repository, history: History, group: TagGroup, present: Mapping[str, str | None], undone: Entry | None
) -> dict[str, str]:
    """Return what the group showed before a run (None: before what it shows now)."""
    _refuse_others_moves(public, history, present)
    now_at = present[group.tag] or ""
    if undone is None:
        former = history.before(group.tag, now_at)
    else:
        change = undone.change(group.tag)
        if change is None or not (change.moves or history.before(group.tag, change.new)):
            raise UsageError(f"run {undone.run} did not move {group.tag}", hint=f"{next_steps.status()} names the runs")
        if change.new != now_at:
            raise RemoteChangedError(
                f"{public.name}:{group.tag} no longer shows {change.new}, which run {undone.run} brought: "
                f"it shows {now_at}",
                hint=f"look at {next_steps.status()}, then say where to go with --to",
            )
        former = change.old if change.moves else history.before(group.tag, change.new)
    if former is None:
        raise _nothing_before(public, history, group, now_at)
    return _companions(public, history, group, former, None)


def _nothing_before(public: Repository, history: History, group: TagGroup, now_at: str) -> MissingInputError:
    hint = "say where to go with --to DIGEST or --to TAG"
    for entry, change in history.changes(group.tag):
        if entry.deed is RunKind.PUBLISH and change.new == now_at and change.moves:
            return MissingInputError(
                f"run {entry.run} was the first publish: there was no {public.name}:{group.tag} before it", hint=hint
            )
    return MissingInputError(
        f"the ledger does not know what {public.name}:{group.tag} showed before {now_at}", hint=hint
    )


def _refuse_others_moves(public: Repository, history: History, present: Mapping[str, str | None]) -> None:
    for tag, digest in present.items():
        expected = history.expected(tag)
        if digest not in expected:
            told = " or ".join(map(str, sorted(filter(None, expected)))) or "nothing"
            raise RemoteChangedError(
                f"{public.name}:{tag} shows {digest or 'nothing'}, and the ledger says {told}: somebody else moved it",
                hint=f"look at {next_steps.status()}, then say where to go with --to",
            )


def _companions(public: Repository, history: History, group: TagGroup, digest: str, to: str | None) -> dict[str, str]:
    """Return the group's digests that belong to an index: as the ledger has them, else its version's, else its own."""
    known = _recorded(history, group, digest)
    if known is not None:
        return known
    index = _manifest(public, digest)
    children = {str(child.platform): child.digest for child in index.children if child.attests is None}
    found = {group.tag: digest}
    for architecture, alias in group.aliases.items():
        platform = str(ARCHITECTURES[architecture])
        other = public.head(f"{to}-{architecture}") if to is not None and is_tag(to) else None
        if other is None and platform not in children:
            raise MissingInputError(
                f"{public.name}@{digest} has no image for {platform}, so {alias} cannot go with it",
                hint="choose an index of all platforms with --to",
            )
        found[alias] = other.digest if other is not None else children[platform]
    return found


def _recorded(history: History, group: TagGroup, digest: str) -> dict[str, str] | None:
    for entry, change in history.changes(group.tag):
        for old in (False, True):
            if digest != (change.old if old else change.new):
                continue
            parts = [part for tag in group.names if (part := entry.change(tag)) is not None]
            found = {part.tag: known for part in parts if (known := part.old if old else part.new) is not None}
            # What a run found when it began may be another's half-done work; what it brought is whole.
            if len(found) == len(group.names) and (not old or all(part.moves for part in parts)):
                return found
    return None


def _manifest(public: Repository, digest: str) -> Manifest:
    manifest = public.manifest(digest)
    if manifest is None:
        raise MissingInputError(
            f"{public.name}@{digest} is gone: it was deleted", hint="choose another digest or tag with --to"
        )
    return manifest
