"""What a channel's floating tags show, since when and from what, and where that is not what the ledger says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from tasks.registry.interface import Repository
from tasks.release.channels import Channel, floating_group
from tasks.release.ledger import History, Ledger, moment
from tasks.release.shown import Shown, describe
from tasks.support.errors import DataError
from tasks.support.store import ObjectStore

AS_RECORDED = "as recorded"


@dataclass(frozen=True)
class TagStatus:
    """One tag: what it shows (None for no such tag), since when, by which run, and what is to be said about it.

    ``drift`` says that it shows what no run in the ledger left there; since when, and by whom, is not known then.
    """

    tag: str
    shown: Shown | None
    since: str | None
    run: str | None
    note: str
    drift: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return the status for machines."""
        shown = self.shown
        return {
            "tag": self.tag,
            "digest": shown.digest if shown else None,
            "commit": shown.commit if shown else None,
            "version": str(shown.version) if shown and shown.version else None,
            "since": self.since,
            "run": self.run,
            "note": self.note,
            "drift": self.drift,
        }


def channel_status(public: Repository, store: ObjectStore, channel: Channel) -> list[TagStatus]:
    """Look at every floating tag of a channel; only reads."""
    group = floating_group(channel)
    history = History.read(Ledger(store, channel), str(public.name))
    rows = [_tag_status(public, history, tag) for tag in (group.tag, *group.aliases.values())]
    main = rows[0].shown
    return [_with_mixture(row, main) for row in rows]


def drift_error(rows: Sequence[TagStatus]) -> DataError | None:
    """Return the error of tags that do not show what the ledger says, or None."""
    drift = [row.tag for row in rows if row.drift]
    return DataError(f"not as the ledger says: {', '.join(drift)}") if drift else None


def protected_digests(public: Repository, store: ObjectStore, count: int = 3) -> frozenset[str]:
    """Return the last digests of every moving tag, which a rollback may need, and what the tags show now."""
    found: set[str] = set()
    for channel in Channel:
        history = History.read(Ledger(store, channel), str(public.name))
        for tag in floating_group(channel).names:
            there = public.head(tag)
            found |= {there.digest} if there is not None else set()
            found |= set(history.digests(tag, count))
    return frozenset(found)


def unknown_to_ledger(public: Repository, store: ObjectStore) -> list[str]:
    """Return the moving tags that are there, when the ledger knows none of them; nothing when it knows one."""
    there: list[str] = []
    for channel in Channel:
        history = History.read(Ledger(store, channel), str(public.name))
        for tag in floating_group(channel).names:
            if public.head(tag) is None:
                continue
            if next(history.changes(tag), None) is not None:
                return []
            there.append(tag)
    return there


def push_times(public: Repository, store: ObjectStore) -> dict[str, datetime]:
    """Return when each tag was last moved, as far as the ledgers say."""
    found: dict[str, datetime] = {}
    for channel in Channel:
        for entry in History.read(Ledger(store, channel), str(public.name)):
            for change in entry.tags:
                if change.done and change.moves:
                    found.setdefault(change.tag, moment(entry.time))
    return found


def _tag_status(public: Repository, history: History, tag: str) -> TagStatus:
    found = public.head(tag)
    expected = history.expected(tag)
    newest = history.newest(tag)
    digest = found.digest if found is not None else None
    drift = digest not in expected
    if found is None:
        note = "missing, and the ledger says it is there" if any(expected) else "never published"
        return TagStatus(tag, None, None, None, note, drift)
    shown = describe(public, history, tag, found.digest)
    cause = shown.cause
    if newest is None:
        note = "not in the ledger"
    elif drift:
        told = " or ".join(sorted(filter(None, expected))) or "nothing"
        note = f"moved by somebody else: the ledger says {told}"
    elif not newest.finished:
        note = f"run {newest.run}, {newest.about}, did not come to its end: run it again"
    else:
        note = AS_RECORDED
    if cause is None or drift:
        return TagStatus(tag, shown, None, None, note, drift)
    return TagStatus(tag, shown, cause.time, cause.run, note)


def _with_mixture(row: TagStatus, main: Shown | None) -> TagStatus:
    if row.shown is None or main is None or row.shown.commit == main.commit:
        return row
    return replace(row, note=f"{row.note}; of another commit than {main.tag}")
