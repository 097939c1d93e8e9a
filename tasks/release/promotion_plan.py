"""Planning a publish: every source resolved to a digest, every tag with what it shows now; nothing is written.

Only GET and HEAD are sent, so a dry run is this plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from packaging.version import Version

from tasks.registry.assembling import assemble
from tasks.registry.copying import CopyPlan, plan_copy
from tasks.registry.documents import Manifest
from tasks.registry.interface import Repository
from tasks.release import ordering, results, shown
from tasks.release.channels import (
    ARCHITECTURES,
    Channel,
    TagGroup,
    fixed_group,
    floating_group,
    other_spellings,
    platforms_of,
    source_tag,
    version_tag,
)
from tasks.release.ledger import Entry, History, Ledger, RunKind
from tasks.release.moving import TagPlan, refuse_others_moves
from tasks.release.ordering import AskAncestry, Candidate, Verdict
from tasks.release.staged import Staged, resolve, unlabelled
from tasks.support.errors import DataError, MissingInputError, OmniError, RemoteChangedError, UsageError
from tasks.support.source import Ancestry
from tasks.support.store import ObjectStore

PLATFORMS = tuple(ARCHITECTURES.values())


def no_history(_older: str, _newer: str) -> Ancestry:
    """Answer for a run without the library's history at hand."""
    return Ancestry.UNKNOWN


@dataclass(frozen=True)
class Parties:
    """Who takes part: where CI pushed to, where users pull from, and the store with the ledger and the results."""

    staging: Repository
    public: Repository
    store: ObjectStore


@dataclass(frozen=True)
class Request:
    """What is asked for. ``commit_time`` is RFC 3339; None where only the image knows it."""

    channel: Channel
    commit: str
    version: Version | None = None
    move_latest: bool = False
    untested: str | None = None
    commit_time: str | None = None

    def __post_init__(self) -> None:
        """Refuse what contradicts itself, with UsageError."""
        if self.channel is Channel.RELEASE and self.version is None:
            raise UsageError("a release needs a version", hint="pass --version, or set Buildkite's release-version")
        if self.channel is Channel.NIGHTLY and (self.version is not None or self.move_latest):
            raise UsageError("--version and --move-latest belong to release, not to nightly")


@dataclass(frozen=True)
class PublishPlan:
    """A planned publish: what is copied, and the tags in the order in which they are written.

    ``manifests`` has the bytes for every tag's digest. When everything is in place already there is nothing to copy
    and ``images`` may be empty. ``unfinished`` is a run that did all of this and was stopped before its result;
    ``unrecorded`` says that everything is in place and the ledger knows of no run that published it. ``refusal`` is
    what a real run ends with before it writes anything. ``mixed`` says what is wrong with floating tags that stay.
    """

    request: Request
    staging: str
    public: str
    images: tuple[Staged, ...]
    manifests: Mapping[str, Manifest] = field(repr=False)
    index: str
    copy: CopyPlan | None
    tags: tuple[TagPlan, ...]
    verdict: Verdict
    commit_time: str | None = None
    warnings: tuple[str, ...] = ()
    unfinished: Entry | None = None
    unrecorded: bool = False
    refusal: OmniError | None = None
    mixed: str | None = None
    ask: AskAncestry = field(default=no_history, repr=False, compare=False)

    @property
    def writes(self) -> tuple[TagPlan, ...]:
        """Return the tags that are to be written, in their order."""
        return tuple(tag for tag in self.tags if tag.writes)

    @property
    def sources(self) -> dict[str, str]:
        """Return the staged digests by architecture."""
        return {staged.architecture: staged.top.digest for staged in self.images}

    def actions(self) -> list[tuple[str, str, str]]:
        """Return (action, what, why) in the order of execution."""
        rows = []
        if self.writes:
            rows += [("copy", f"{self.staging}:{s.tag}", f"{s.platform}, {s.top.digest}") for s in self.images]
            rows.append(("push index", f"{self.public}@{self.index}", "both architectures, by digest"))
        for tag in self.writes:
            why = f"was {tag.old}" if tag.old else "new"
            rows.append(
                ("move tag" if tag.floating else "write tag", f"{self.public}:{tag.tag}", f"{tag.digest}, {why}")
            )
        if not self.verdict.moves:
            rows.append(("keep", f"{self.public}:{self.request.channel.floating}", self.verdict.reason))
        if self.unfinished is not None:
            rows.append(("record", "the ledger", f"run {self.unfinished.run} has no result"))
        if self.unrecorded:
            rows.append(("record", "the ledger", "it does not know who published what is there"))
        return rows


def plan_publish(parties: Parties, request: Request, ask: AskAncestry = no_history) -> PublishPlan:
    """Plan a publish; nothing is written.

    Raises MissingInputError when an architecture is missing or two nightlies' order cannot be told; DataError when an
    image is another one than it should be, a tag that never changes shows another digest, or the version is there in
    another spelling. A release without the proof of its tests is planned too, with its ``refusal``.
    """
    history = History.read(Ledger(parties.store, request.channel), str(parties.public.name))
    done = _already(parties, request, history)
    if done is not None:
        return replace(done, ask=ask)
    images = resolve(parties.staging, request.commit, request.version)
    index = assemble([staged.source(parties.staging) for staged in images], PLATFORMS)
    try:
        plan = _decide(parties, request, history, images, index, ask=ask)
    except MissingInputError:
        # Another run may have moved the tags since the ledger was read; now it says what they show.
        history = History.read(Ledger(parties.store, request.channel), str(parties.public.name))
        plan = _decide(parties, request, history, images, index, ask=ask)
    if not plan.writes:
        return plan
    return replace(plan, copy=_copy(parties, images, index))


def plan_again(parties: Parties, plan: PublishPlan) -> PublishPlan:
    """Judge a plan's images again by what the ledger and the tags say now, under the channel's lease.

    Raises what ``plan_publish`` raises; RemoteChangedError when somebody outside the ledger moved a tag since, or
    what was in place no longer is.
    """
    if plan.copy is None:
        again = plan_publish(parties, plan.request, plan.ask)
        if again.writes:
            tags = ", ".join(tag.tag for tag in again.writes)
            raise RemoteChangedError(
                f"{tags} in {plan.public} moved since this was planned: nothing was written", hint="run this again"
            )
        return again
    history = History.read(Ledger(parties.store, plan.request.channel), plan.public)
    again = _decide(parties, plan.request, history, plan.images, plan.manifests[plan.index], ask=plan.ask)
    if again.refusal is not None:
        raise again.refusal
    refuse_others_moves(plan.public, history, plan.tags, again.tags)
    return replace(again, copy=plan.copy if again.writes else None)


def _decide(
    parties: Parties,
    request: Request,
    history: History,
    images: tuple[Staged, ...],
    index: Manifest,
    *,
    ask: AskAncestry,
) -> PublishPlan:
    """Return the plan of what the tags come to show; what has to be copied for it is not looked at."""
    manifests = {manifest.digest: manifest for manifest in (index, *(staged.top for staged in images))}
    digests = {staged.architecture: staged.top.digest for staged in images}
    commit_time = request.commit_time or min(filter(None, (s.labels.created for s in images)), default=None)
    fixed = _tags(parties.public, fixed_group(request.channel, request.commit, request.version), index.digest, digests)
    _refuse_other(parties.public, fixed)
    _refuse_other_spelling(parties.public, request, fixed)
    back = history.passed_over(request.channel.floating, index.digest)
    candidate = Candidate(index.digest, request.commit, commit_time, request.version, back)
    verdict = _judge(parties.public, history, request, candidate, ask)
    group = floating_group(request.channel)
    floating = _tags(parties.public, group, index.digest, digests, floating=True) if verdict.moves else ()
    tags = (*fixed, *floating)
    needed = any(tag.writes for tag in tags)
    recorded = any(_same_publish(entry, request) for entry in history) if not needed else True
    unfinished = None if needed else _unfinished(history, tags)
    untested, refusal = _check_tested(parties.store, request)
    mixed = None if verdict.moves else shown.mixed(parties.public, request.channel)
    warnings = (*untested, *unlabelled(images, request.version), *_strangers(history, floating))
    warnings += (mixed,) if mixed is not None else ()
    return PublishPlan(
        request=request,
        staging=str(parties.staging.name),
        public=str(parties.public.name),
        images=images,
        manifests=MappingProxyType(manifests),
        index=index.digest,
        copy=None,
        tags=tags,
        verdict=verdict,
        commit_time=commit_time,
        warnings=(*warnings, *_timeless(request, verdict, commit_time)),
        unfinished=unfinished,
        unrecorded=not recorded and unfinished is None,
        refusal=refusal if needed else None,
        mixed=mixed,
        ask=ask,
    )


def _copy(parties: Parties, images: tuple[Staged, ...], index: Manifest) -> CopyPlan:
    tops = [staged.top for staged in images if staged.top.is_index]
    known = MappingProxyType({staged.image.digest: staged.image for staged in images})
    return plan_copy(parties.staging, parties.public, index.children, [*tops, index], known=known)


def _check_tested(store: ObjectStore, request: Request) -> tuple[tuple[str, ...], OmniError | None]:
    """Return warnings, and why a release is refused whose tests are not known to have passed."""
    if request.channel is Channel.NIGHTLY:
        reason = results.lacking(store, request.commit)
        return ((reason,) if reason else ()), None
    if request.untested is not None:
        return (f"not tested: {request.untested}",), None
    try:
        results.require(store, request.commit)
    except MissingInputError as error:
        return (), error
    return (), None


def _strangers(history: History, floating: tuple[TagPlan, ...]) -> list[str]:
    """Return a warning for each floating tag that is about to move and shows what the ledger does not say."""
    warnings = []
    for tag in floating:
        expected = history.expected(tag.tag)
        if tag.old is None or not tag.writes or tag.old in expected:
            continue
        told = " or ".join(sorted(filter(None, expected)))
        says = f"the ledger says {told}: somebody else moved it" if told else "the ledger does not know it"
        warnings.append(f"{tag.tag} shows {tag.old}, and {says}")
    return warnings


def _timeless(request: Request, verdict: Verdict, commit_time: str | None) -> list[str]:
    """Return a warning when nightly moves to a commit whose time nobody will know."""
    if request.channel is not Channel.NIGHTLY or not verdict.moves or shown.moment_of(commit_time) is not None:
        return []
    lacks = f"the time of commit {request.commit} is not known (--commit-time)"
    return [f"{lacks}: without the library's history nobody can tell whether the next nightly is newer"]


def _already(parties: Parties, request: Request, history: History) -> PublishPlan | None:
    """Return the plan that has nothing to do when the ledger knows these sources and every tag is in place.

    Asks for no body: neither a manifest's nor a blob's.
    """
    entry = next((entry for entry in history if _same_publish(entry, request)), None)
    if entry is None:
        return None
    group = floating_group(request.channel)
    if not all(entry.change(tag) for tag in group.names):
        return None  # the floating tags stayed then; whether they move now has to be decided again
    for architecture in ARCHITECTURES:
        source = parties.staging.head(source_tag(request.commit, architecture))
        if source is None or source.digest != entry.sources.get(architecture):
            return None
    tags = []
    for change in entry.tags:
        there = parties.public.head(change.tag)
        if there is None or there.digest != change.new:
            return None
        tags.append(TagPlan(change.tag, change.new, change.new, change.tag in group.names, platforms_of(change.tag)))
    index = next(tag.digest for tag in tags if tag.tag == group.tag)
    return PublishPlan(
        request=request,
        staging=str(parties.staging.name),
        public=str(parties.public.name),
        images=(),
        manifests=MappingProxyType({}),
        index=index,
        copy=None,
        tags=tuple(tags),
        verdict=Verdict(moves=True, reason="already there"),
        commit_time=entry.commit_time,
        unfinished=None if entry.finished else entry,
    )


def _same_publish(entry: Entry, request: Request) -> bool:
    version = str(request.version) if request.version is not None else None
    return entry.deed is RunKind.PUBLISH and entry.commit == request.commit and entry.version == version


def _unfinished(history: History, tags: tuple[TagPlan, ...]) -> Entry | None:
    """Return the newest run when it did everything and only its result is missing."""
    newest = next(iter(history), None)
    if newest is None or newest.finished or newest.deed is not RunKind.PUBLISH:
        return None
    there = {tag.tag: tag.digest for tag in tags}
    return newest if all(there.get(change.tag) == change.new for change in newest.tags) else None


def _judge(public: Repository, history: History, request: Request, candidate: Candidate, ask: AskAncestry) -> Verdict:
    current = shown.look(public, history, request.channel)
    if request.channel is Channel.NIGHTLY:
        return ordering.judge_nightly(current, candidate, ask)
    newest = shown.newest_stable(public) if current is None else None
    return ordering.judge_latest(current, newest, candidate, move_latest=request.move_latest)


def _tags(
    public: Repository, group: TagGroup, index: str, digests: Mapping[str, str], *, floating: bool = False
) -> tuple[TagPlan, ...]:
    wanted = {alias: digests[architecture] for architecture, alias in group.aliases.items()} | {group.tag: index}
    found = {tag: public.head(tag) for tag in group.names}
    old = {tag: there.digest if there is not None else None for tag, there in found.items()}
    return tuple(TagPlan(tag, wanted[tag], old[tag], floating, platforms_of(tag)) for tag in group.names)


def _refuse_other_spelling(public: Repository, request: Request, fixed: tuple[TagPlan, ...]) -> None:
    """Refuse a version that is there in another spelling: 0.28 and 0.28.0 are the same one (PEP 440)."""
    if request.version is None or not any(tag.writes for tag in fixed):
        return
    for other in other_spellings(request.version):
        tag = version_tag(other)
        if public.head(tag) is not None:
            raise DataError(
                f"{public.name}:{tag} is there already, and {request.version} is the same version",
                hint=f"nothing was changed; did you mean --version {other}?",
            )


def _refuse_other(public: Repository, fixed: tuple[TagPlan, ...]) -> None:
    for tag in fixed:
        if tag.old is not None and tag.writes:
            raise DataError(
                f"{public.name}:{tag.tag} is there already and shows {tag.old}, not {tag.digest}",
                hint="nothing was changed; such a tag never changes: publish another commit or version",
            )
