"""Moving a channel's tags, one after the other, under a lease and with an account in the ledger.

Each tag is looked at just before it is written and read back after it. Registries have no conditional writes, so the
lease keeps other runs of this tool away, and the look finds what others did.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from tasks.registry.documents import Manifest
from tasks.registry.interface import Repository
from tasks.release import next_steps
from tasks.release.lease import Lease
from tasks.release.ledger import Entry, Event, History, Ledger, RunKind, TagChange, written
from tasks.release.recorded import recorded
from tasks.support.errors import OmniError, RemoteChangedError, ServiceRefusedError, TemporaryError
from tasks.support.settings import Settings
from tasks.support.store import ObjectStore


@dataclass(frozen=True)
class TagPlan:
    """One tag that is to show a digest; ``old`` is what it showed when this was planned, None for no such tag."""

    tag: str
    digest: str
    old: str | None
    floating: bool
    platforms: tuple[str, ...]

    @property
    def writes(self) -> bool:
        """Say whether it does not show the digest yet."""
        return self.old != self.digest


@dataclass(frozen=True)
class Run:
    """What one run calls itself: its id, and the Buildkite build that it belongs to."""

    id: str
    build: str | None = None
    build_url: str | None = None

    @classmethod
    def start(cls, settings: Settings) -> Run:
        """Name a new run."""
        build, url = (recorded(settings.variable(f"BUILDKITE_BUILD_{name}")) for name in ("NUMBER", "URL"))
        return cls(f"{build or 'local'}-{uuid.uuid4().hex[:8]}", build, url)


def now() -> str:
    """Return the present moment as the ledger writes it."""
    return written(datetime.now(UTC))


def changes(tags: Sequence[TagPlan], done: frozenset[str] = frozenset()) -> tuple[TagChange, ...]:
    """Return the tags as the ledger has them."""
    return tuple(TagChange(tag.tag, tag.old, tag.digest, done=tag.tag in done) for tag in tags)


def lease_for(store: ObjectStore, intent: Entry, tags: Sequence[TagPlan]) -> Lease:
    """Return the lease under which a run moves tags; nothing is asked of the store yet."""
    subject = " ".join(sorted({tag.digest for tag in tags if tag.floating} or {tag.digest for tag in tags}))
    # A second rollback goes back from where the first one went.
    look = f"look at {next_steps.status()}: what this run was to take back may be gone"
    then = look if intent.deed is RunKind.ROLLBACK else "run this again"
    return Lease(store, intent.channel, intent.run, subject, intent.about, then=then)


def move_tags(
    public: Repository,
    store: ObjectStore,
    intent: Entry,
    tags: Sequence[TagPlan],
    manifests: Mapping[str, Manifest],
    *,
    lease: Lease,
) -> None:
    """Write the tags that do not show their digest yet, in their order, and tell the ledger before and after.

    The lease is held already, and the tags were looked at under it. Raises TemporaryError when a manifest is gone,
    ServiceRefusedError when the ledger cannot be written, both before any tag; RemoteChangedError when a tag is no
    longer what the plan saw or the lease is lost. An error says which tags moved and which did not.
    """
    ledger = Ledger(store, intent.channel)
    _require_there(public, tags, manifests)
    lease.renew()
    _begin(ledger, intent)
    done = {tag.tag for tag in tags if not tag.writes}
    with _accounted(ledger, intent, tags, done):
        for group in ([tag for tag in tags if not tag.floating], [tag for tag in tags if tag.floating]):
            for tag in group:
                _look(public, tag)  # at all of a group before the first of it changes
            for tag in group:
                if tag.writes:
                    lease.renew()
                    _write(public, tag, manifests[tag.digest])
                    done.add(tag.tag)
        for tag in tags:
            _verify(public, tag, "at the end")
    _finish(ledger, replace(intent, event=Event.RESULT, time=now(), tags=changes(tags, frozenset(done))))


def refuse_others_moves(public: str, history: History, planned: Sequence[TagPlan], found: Sequence[TagPlan]) -> None:
    """Raise RemoteChangedError when a tag moved since it was planned, and not by a run that the ledger knows."""
    old = {tag.tag: tag.old for tag in planned}
    for tag in found:
        if tag.tag not in old or tag.old in {old[tag.tag], tag.digest}:
            continue  # the history is not asked: it would be read to its beginning for a tag that is new
        if tag.old not in history.expected(tag.tag):
            raise _moved(public, tag.tag, tag.old, old[tag.tag], " · no tag was moved")


def complete_record(store: ObjectStore, entry: Entry) -> None:
    """Write the result of a run that did all that it meant to and could not say so; the lease is held."""
    done = tuple(replace(change, done=True) for change in entry.tags)
    Ledger(store, entry.channel).add(replace(entry, event=Event.RESULT, time=now(), tags=done, failure=None))


def _require_there(public: Repository, tags: Sequence[TagPlan], manifests: Mapping[str, Manifest]) -> None:
    """Refuse to write a tag before every manifest that it leads to is there: a clean-up may just have been."""
    tops = {tag.digest: manifests[tag.digest] for tag in tags if tag.writes}
    below = (child.digest for top in tops.values() for child in top.children)
    for digest in dict.fromkeys((*below, *tops)):
        if public.head(digest) is None:
            raise TemporaryError(
                f"{public.name} lacks {digest}, which was there a moment ago: no tag was moved",
                hint="run it again; when it fails again, the registry loses what it accepts",
            )


def _begin(ledger: Ledger, intent: Entry) -> None:
    try:
        ledger.add(intent)
    except (ServiceRefusedError, TemporaryError) as error:
        raise ServiceRefusedError(
            f"the ledger cannot be written, so no tag was moved: {error.message}",
            hint="make the wheel store reachable (--store, OMNI_CI_STORE), then run this again",
        ) from error


def _look(public: Repository, tag: TagPlan) -> bool:
    """Say whether a tag is to be written; RemoteChangedError when it shows neither what it did nor what it will."""
    found = public.head(tag.tag)
    present = found.digest if found is not None else None
    if present not in {tag.old, tag.digest}:
        raise _moved(str(public.name), tag.tag, present, tag.old)
    return present != tag.digest


def _moved(public: str, tag: str, present: str | None, old: str | None, so_far: str = "") -> RemoteChangedError:
    return RemoteChangedError(
        f"{public}:{tag} shows {present or 'nothing'} and no longer {old or 'nothing'}: somebody else moved it{so_far}",
        hint=f"look at {next_steps.status()}, then run this again",
    )


def _write(public: Repository, tag: TagPlan, manifest: Manifest) -> None:
    if not _look(public, tag):
        return
    public.put_manifest(manifest, tag.tag)
    _verify(public, tag, "right after it was written")


def _verify(public: Repository, tag: TagPlan, when: str) -> None:
    found = public.head(tag.tag)
    if found is None or found.digest != tag.digest:
        shows = found.digest if found is not None else "nothing"
        raise RemoteChangedError(
            f"{public.name}:{tag.tag} shows {shows} {when}, not {tag.digest}",
            hint=f"look at {next_steps.status()}, then run this again",
        )


@contextmanager
def _accounted(ledger: Ledger, intent: Entry, tags: Sequence[TagPlan], done: set[str]) -> Iterator[None]:
    """Tell the ledger and the person how far it came when the block fails."""
    try:
        yield
    except BaseException as error:
        reason = error.message if isinstance(error, OmniError) else type(error).__name__
        told = replace(
            intent, event=Event.RESULT, time=now(), tags=changes(tags, frozenset(done)), failure=recorded(reason)
        )
        # The error matters more than its account; the intent stays, and says what may have happened.
        with suppress(OmniError):
            ledger.add(told)
        if isinstance(error, OmniError):
            error.message = f"{error.message} · {_so_far(tags, done)}"
            error.hint = error.hint or "run the same command again: it completes what is missing"
        raise


def _so_far(tags: Sequence[TagPlan], done: set[str]) -> str:
    moved = [tag.tag for tag in tags if tag.writes and tag.tag in done]
    left = [tag.tag for tag in tags if tag.writes and tag.tag not in done]
    return f"moved: {', '.join(moved) or 'none'}; not moved: {', '.join(left) or 'none'}"


def _finish(ledger: Ledger, result: Entry) -> None:
    try:
        ledger.add(result)
    except OmniError as error:
        error.message = f"every tag was moved, but the ledger has no result of it: {error.message}"
        error.hint = "run the same command again: it writes only that"
        raise
