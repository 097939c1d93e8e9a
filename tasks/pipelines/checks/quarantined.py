"""The list of quarantined tests: entries that are not allowed, have lapsed, or name no test of the source."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import date

from tasks.pipelines.checks.findings import Finding, Level
from tasks.suites.quarantine import Entry, State, state_of


def check(entries: Sequence[Entry], today: date, paths: Collection[str] | None) -> Iterator[Finding]:
    """Yield one finding for each entry that is refused (error) or lapsed (warning: it blocks again by itself)."""
    for entry in entries:
        state, text = state_of(entry, today)
        if state is State.REFUSED:
            hint = "an entry has an owner, an issue and an end at most 30 days away"
            yield Finding(Level.ERROR, entry.where, "", "quarantine", f"{entry.test}: {text}", hint)
        elif state is State.LAPSED:
            hint = "remove the entry, or give it a new end and say in the issue why"
            yield Finding(Level.WARNING, entry.where, "", "quarantine", f"{entry.test}: {text}", hint)
        path = entry.test.partition("::")[0].partition("[")[0].rstrip("/")
        if paths is not None and not any(name == path or name.startswith(f"{path}/") for name in paths):
            text = f"{entry.test}: the source has no such test"
            yield Finding(
                Level.WARNING, entry.where, "", "quarantine", text, "remove the entry, or name where it moved"
            )
