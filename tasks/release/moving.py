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
from tasks.release.ledger import Entry, Event, Ledger, TagChange, written
from tasks.support import console
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
        build = settings.variable("BUILDKITE_BUILD_NUMBER")
        return cls(f"{build or 'local'}-{uuid.uuid4().hex[:8]}", build, settings.variable("BUILDKITE_BUILD_URL"))


def now() -> str:
    """Return the present moment as the ledger writes it."""
    return written(datetime.now(UTC))


def changes(tags: Sequence[TagPlan], done: frozenset[str] = frozenset()) -> tuple[TagChange, ...]:
    """Return the tags as the ledger has them."""
    return tuple(TagChange(tag.tag, tag.old, tag.digest, done=tag.tag in done) for tag in tags)


def move_tags(
    public: Repository, store: ObjectStore, intent: Entry, tags: Sequence[TagPlan], manifests: Mapping[str, Manifest]
) -> None:
    """Write the tags that do not show their digest yet, in their order, and tell the ledger before and after.

    Raises ServiceRefusedError when the ledger cannot be written, before any tag; TemporaryError when another run
    moves the channel elsewhere; RemoteChangedError when a tag is no longer what the plan saw. An error says which
    tags moved and which did not.
    """
    ledger = Ledger(store, intent.channel)
    subject = " ".join(sorted({tag.digest for tag in tags if tag.floating} or {tag.digest for tag in tags}))
    lease = Lease(store, intent.channel, intent.run, subject, intent.about)
    _begin(lease, ledger, intent)
    done = {tag.tag for tag in tags if not tag.writes}
    with _accounted(lease, ledger, intent, tags, done):
        for tag in tags:
            if tag.writes:
                lease.renew()
                _write(public, tag, manifests[tag.digest])
                done.add(tag.tag)
        for tag in tags:
            _verify(public, tag, "at the end")
    _finish(lease, ledger, replace(intent, event=Event.RESULT, time=now(), tags=changes(tags, frozenset(done))))


def complete_record(store: ObjectStore, entry: Entry) -> None:
    """Write the result of a run that did all that it meant to and could not say so."""
    done = tuple(replace(change, done=True) for change in entry.tags)
    Ledger(store, entry.channel).add(replace(entry, event=Event.RESULT, time=now(), tags=done, failure=None))


def _begin(lease: Lease, ledger: Ledger, intent: Entry) -> None:
    lease.hold()
    try:
        ledger.add(intent)
    except (ServiceRefusedError, TemporaryError) as error:
        with suppress(OmniError):
            lease.end()
        raise ServiceRefusedError(
            f"the ledger cannot be written, so no tag was moved: {error.message}",
            hint="make the wheel store reachable (--store, OMNI_CI_STORE), then run this again",
        ) from error


def _write(public: Repository, tag: TagPlan, manifest: Manifest) -> None:
    found = public.head(tag.tag)
    present = found.digest if found is not None else None
    if present == tag.digest:
        return
    if present != tag.old:
        raise RemoteChangedError(
            f"{public.name}:{tag.tag} shows {present or 'nothing'} and no longer {tag.old or 'nothing'}: "
            "somebody else moved it",
            hint=f"look at {next_steps.status()}, then run this again",
        )
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
def _accounted(lease: Lease, ledger: Ledger, intent: Entry, tags: Sequence[TagPlan], done: set[str]) -> Iterator[None]:
    """Tell the ledger and the person how far it came when the block fails, and give the lease back."""
    try:
        yield
    except BaseException as error:
        reason = error.message if isinstance(error, OmniError) else type(error).__name__
        told = replace(
            intent, event=Event.RESULT, time=now(), tags=changes(tags, frozenset(done)), failure=console.mask(reason)
        )
        # The error matters more than its account; the intent stays, and says what may have happened.
        with suppress(OmniError):
            ledger.add(told)
        with suppress(OmniError):
            lease.end()
        if isinstance(error, OmniError):
            error.message = f"{error.message} · {_so_far(tags, done)}"
            error.hint = error.hint or "run the same command again: it completes what is missing"
        raise


def _so_far(tags: Sequence[TagPlan], done: set[str]) -> str:
    moved = [tag.tag for tag in tags if tag.writes and tag.tag in done]
    left = [tag.tag for tag in tags if tag.writes and tag.tag not in done]
    return f"moved: {', '.join(moved) or 'none'}; not moved: {', '.join(left) or 'none'}"


def _finish(lease: Lease, ledger: Ledger, result: Entry) -> None:
    try:
        ledger.add(result)
    except OmniError as error:
        error.message = f"every tag was moved, but the ledger has no result of it: {error.message}"
        error.hint = "run the same command again: it writes only that"
        raise
    finally:
        with suppress(OmniError):
            lease.end()
