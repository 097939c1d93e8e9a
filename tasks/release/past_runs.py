"""The runs that the ledger knows of a channel, and which of them were taken back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from tasks.registry.interface import Repository
from tasks.release.channels import Channel, floating_group
from tasks.release.ledger import Entry, History, Ledger, RunKind
from tasks.support.store import ObjectStore

NEWEST = 20


@dataclass(frozen=True)
class PastRun:
    """One run as the ledger tells it last, and the rollback that took it back, if one did."""

    entry: Entry
    undone_by: str | None = None

    @property
    def state(self) -> str:
        """Return how it ended and what became of it, for people."""
        if self.undone_by is not None:
            return f"undone by run {self.undone_by}"
        if self.entry.finished:
            return "done"
        return f"failed: {self.entry.failure}" if self.entry.failure is not None else "did not come to its end"

    def as_json(self) -> dict[str, Any]:
        """Return the run for machines."""
        entry = self.entry
        return {
            "channel": entry.channel.value,
            "time": entry.time,
            "deed": entry.deed.value,
            "commit": entry.commit,
            "version": entry.version,
            "run": entry.run,
            "build": entry.build,
            "build_url": entry.build_url,
            "untested": entry.untested,
            "moved_latest": entry.moved_latest,
            "finished": entry.finished,
            "failure": entry.failure,
            "undone_by": self.undone_by,
        }


def past_runs(public: Repository, store: ObjectStore, channel: Channel, count: int = NEWEST) -> list[PastRun]:
    """Return a channel's newest runs, newest first; no older entry is read."""
    entries = list(islice(History.read(Ledger(store, channel), str(public.name)), count))
    undone = _undone(entries, floating_group(channel).tag)
    return [PastRun(entry, undone.get(entry.run)) for entry in entries]


def _undone(entries: Sequence[Entry], tag: str) -> dict[str, str]:
    """Return the rollback that took each run back; ``entries`` are newest first.

    A rollback brings back the line of runs that led to what it brings: what is not in that line any more, it took back.
    """
    found: dict[str, str] = {}
    lines: dict[str, tuple[str, ...]] = {}
    line: tuple[str, ...] = ()
    for entry in reversed(entries):
        change = entry.change(tag)
        if entry.deed is RunKind.ROLLBACK and entry.undone is not None and entry.finished:
            found[entry.undone] = entry.run  # also what had not come as far as this tag
        if change is None or not (change.moves and change.done):
            continue
        before = line
        if entry.deed is RunKind.ROLLBACK:
            line = lines.get(change.new, ())
            found |= dict.fromkeys(set(before) - set(line), entry.run)
            found = {run: by for run, by in found.items() if run not in line}
        line = lines[change.new] = (*line, entry.run)
    return found
