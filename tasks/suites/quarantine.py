"""The quarantined tests, `.buildkite/quarantine.yml`: tests whose failure does not count for a while, and why."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, timedelta
from enum import Enum
from pathlib import Path

from tasks.support import paths
from tasks.support.settings import CHECKOUT
from tasks.support.strict_yaml import Node, read_bytes, read_file

FILE = CHECKOUT / ".buildkite" / "quarantine.yml"
LONGEST = timedelta(days=30)

_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_KEYS = ("test", "until", "owner", "issue", "reason")


class State(Enum):
    """What an entry does on a day."""

    SOFT = "soft"  # a failure does not count
    LAPSED = "lapsed"  # past its end: a failure counts again
    REFUSED = "refused"  # not a proper entry: a failure counts


@dataclass(frozen=True)
class Entry:
    """A quarantined test: a test file, a folder or a pytest node. ``until`` is its last day; ``where`` is file:line."""

    test: str
    until: date | None
    owner: str | None
    issue: str | None
    reason: str | None
    where: str


def load(path: Path = FILE) -> tuple[Entry, ...]:
    """Read the list; MissingInputError when it is not there, DataError with file and line when it is no such list.

    Entries without an end, an owner or an issue are read: `state_of` refuses them.
    """
    return _entries(read_file(path, shown_as=paths.from_checkout(path)))


def read(data: bytes, name: str) -> tuple[Entry, ...]:
    """Read a list's text; errors as in `load`."""
    return _entries(read_bytes(data, name))


def state_of(entry: Entry, today: date) -> tuple[State, str]:
    """Return what an entry does on a day, and why in a few words; ``until`` is still part of the time."""
    missing = [name for name in ("owner", "issue") if not getattr(entry, name)]
    if missing:
        return State.REFUSED, f"{' and '.join(missing)} needed"
    if entry.until is None:
        return State.REFUSED, "until needed"
    if entry.until - today > LONGEST:
        return State.REFUSED, f"more than {LONGEST.days} days: it may end on {today + LONGEST} at the latest"
    if entry.until < today:
        return State.LAPSED, f"lapsed on {entry.until}, so its failures count again"
    return State.SOFT, f"until {entry.until} ({entry.owner}, {entry.issue})"


def _entries(root: Node) -> tuple[Entry, ...]:
    table = root.table("the quarantine", ("quarantine",), ("quarantine",))
    found: dict[str, Entry] = {}
    for node in table["quarantine"].elements("quarantine"):
        fields = node.table("an entry", _KEYS, ("test",))
        entry = Entry(
            test=fields["test"].text("test"),
            until=_day(fields["until"]) if "until" in fields else None,
            owner=_text(fields.get("owner"), "owner"),
            issue=_text(fields.get("issue"), "issue"),
            reason=_text(fields.get("reason"), "reason"),
            where=node.where,
        )
        if entry.test in found:
            line = found[entry.test].where.rpartition(":")[2]
            raise node.fail(f"{entry.test} is quarantined twice: line {line} has it already")
        found[entry.test] = entry
    return tuple(found.values())


def _text(node: Node | None, what: str) -> str | None:
    if node is None or node.value is None or node.value == "":
        return None
    return str(node.value) if isinstance(node.value, int) else node.text(what)


def _day(node: Node) -> date:
    text = node.text("until")
    try:
        if _DAY.fullmatch(text):
            return date.fromisoformat(text)
    except ValueError:
        pass  # a thirteenth month
    raise node.fail(f"until is a day, not {text!r}", "write it as '2026-01-31'")
