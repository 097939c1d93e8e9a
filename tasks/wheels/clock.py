"""Whether this machine's clock agrees with the store's times: ages are measured with it, and it dates uploads.

An S3 server dates objects with its own clock. A folder has the clock of whoever writes: there, a clock that is
behind what was written before can be told from a right one, and one that is ahead cannot.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable
from datetime import UTC, datetime, timedelta
from urllib.parse import unquote, urlsplit

from tasks.support.errors import ConfigurationError
from tasks.wheels import layout
from tasks.wheels.index import Index

PRESENT = timedelta(hours=1)
"""What two clocks may differ by."""


def now_utc() -> datetime:
    """Return the present moment."""
    return datetime.now(UTC)


def is_ahead(written: datetime, now: datetime) -> bool:
    """Say whether something was written later than it can have been by this machine's clock."""
    # Not a sum: times near the calendar's ends have none.
    return written > now and written - now > PRESENT


def contradiction(written: datetime, now: datetime) -> str:
    """Say how the clock contradicts a time in the store."""
    return f"this machine's clock says {now:%F %T}, but something was written at {written:%F %T} (UTC)"


def repair(store_url: str) -> str:
    """Return the hint for a store that was written to later than now."""
    hint = "set this machine's clock"
    parts = urlsplit(store_url)
    if parts.scheme != "file":
        return hint
    # An earlier writer's clock may have been the wrong one; the times of a folder are all that counts of it.
    return f"{hint}; if it is right: find {shlex.quote(unquote(parts.path))} -newermt now -exec touch {{}} +"


def check_before_upload(index: Index, projects: Iterable[str]) -> None:
    """Raise ConfigurationError when a project's state was written later than now, before anything is changed."""
    now = now_utc()
    for project in projects:
        stored = index.store.head(layout.project_state(project))
        if stored is not None and is_ahead(stored.modified, now):
            raise ConfigurationError(contradiction(stored.modified, now), hint=repair(index.store.url))


def check_after_put(index: Index, commit: str, keys: Collection[str], started: datetime) -> None:
    """Raise ConfigurationError when the store dates what was just put otherwise than this machine would.

    To be called before the files are recorded: a wrong time in the state stays. ``started`` is when the first was
    put; S3 dates an upload in parts by its beginning.
    """
    put = set(keys)
    times = [stored.modified for stored in index.store.list(f"{commit}/") if stored.key in put]
    if not times:
        return
    newest, now = max(times), now_utc()
    if is_ahead(newest, now) or is_ahead(started, newest):
        raise ConfigurationError(
            f"this machine's clock says {now:%F %T}, and {index.store.url} has {newest:%F %T} (UTC)",
            hint="set this machine's clock, then run this again; the files are there, but nothing is recorded yet",
        )
