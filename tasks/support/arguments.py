"""Reading the words of a command line: counts, shares, ages and moments, each with its own usage error."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from tasks.support.errors import UsageError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def parse_count(word: str, what: str, *, least: int = 0) -> int:
    """Return a whole number of at least ``least``."""
    if not re.fullmatch(r"[0-9]{1,9}", word) or int(word) < least:
        raise UsageError(f"{what} takes a whole number from {least}, not {word!r}")
    return int(word)


def parse_share(word: str, what: str) -> float:
    """Return a share between 0 and 1; a percentage such as ``20%`` is one too."""
    match = re.fullmatch(r"([0-9]{1,3}(?:\.[0-9]{1,9})?)(%?)", word)
    share = float(match[1]) / (100 if match[2] else 1) if match else -1.0
    if not 0 <= share <= 1:
        raise UsageError(f"{what} takes a share from 0 to 1, or a percentage, not {word!r}")
    return share


def parse_age(word: str, what: str) -> timedelta:
    """Return a length of time: a number with its unit, for example ``90m``, ``36h``, ``14d``; ``0`` is none."""
    match = re.fullmatch(r"([0-9]{1,6})([smhdw])", word)
    if word == "0":
        return timedelta()
    if not match:
        raise UsageError(f"{what} takes an age such as 90m, 36h or 14d, not {word!r}")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


def parse_moment(word: str, what: str) -> datetime:
    """Return a moment in UTC, not before 1970: RFC 3339 with an offset, or seconds since 1970."""
    try:
        if re.fullmatch(r"[0-9]{1,11}", word):
            return datetime.fromtimestamp(int(word), UTC)
        given = datetime.fromisoformat(word)
        # A moment at either end of the calendar may lie outside of it in UTC.
        moment = given.astimezone(UTC) if given.tzinfo is not None else None
    except (ValueError, OverflowError, OSError):
        moment = None
    if moment is None:
        raise UsageError(f"{what} takes a moment such as 2026-08-28T03:00:00Z, not {word!r}")
    if moment < _EPOCH:
        raise UsageError(f"{what} takes a moment from 1970 on, not {word!r}")
    return moment
