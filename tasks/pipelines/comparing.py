"""What differs between two rendered pipelines: steps that came, went, changed or moved, found by key, then by label."""

from __future__ import annotations

import bisect
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tasks.pipelines.model import LABELS, key_of

_LONGEST = 120


class How(Enum):
    """What became of a step; the value is how its line begins."""

    ADDED = "+"
    REMOVED = "-"
    CHANGED = "~"


@dataclass(frozen=True)
class Change:
    """One step, group, or the part above the steps (``the pipeline``), and what changed in it, a line each.

    A step that only stands elsewhere is CHANGED; its detail says so.
    """

    how: How
    name: str
    details: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Row:
    body: Mapping[str, Any]
    group: str | None

    @property
    def key(self) -> str | None:
        return key_of(self.body)

    @property
    def label(self) -> str:
        found = next((str(self.body[key]) for key in LABELS if self.body.get(key)), next(iter(self.body), "step"))
        return found.strip().splitlines()[0] if found.strip() else found

    @property
    def name(self) -> str:
        own = self.key or self.label
        return f"{self.group} › {own}" if self.group is not None else own


def diff(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[Change, ...]:
    """Return the changes from ``old`` to ``new`` in the order of ``new``; what went comes last, in that of ``old``.

    Steps with equal keys are the same step; of the others those with equal labels are, in the same group first.
    """
    before, after = list(_rows(old)), list(_rows(new))
    pairs = _pairs(before, after)
    renamed = {before[place].name: after[here].name for here, place in pairs.items() if "group" in after[here].body}
    stayed: dict[str | None, dict[int, int]] = {}
    for here, place in pairs.items():
        if _place(before[place], renamed) == after[here].group:
            stayed.setdefault(after[here].group, {})[here] = place
    moved = frozenset(here for inner in stayed.values() for here in _moved(inner))
    changes = []
    above = tuple(_details(_above(old), _above(new)))
    if above:
        changes.append(Change(How.CHANGED, "the pipeline", above))
    for number, row in enumerate(after):
        if number not in pairs:
            changes.append(Change(How.ADDED, row.name))
            continue
        there = before[pairs[number]]
        same = _place(there, renamed) == row.group
        details = [*_places(there, row, same=same, moved=number in moved), *_details(there.body, row.body)]
        if details:
            changes.append(Change(How.CHANGED, row.name, tuple(details)))
    kept = set(pairs.values())
    changes += [Change(How.REMOVED, row.name) for number, row in enumerate(before) if number not in kept]
    return tuple(changes)


def lines(changes: tuple[Change, ...]) -> list[str]:
    """Return the changes for people: ``+``, ``-`` or ``~`` and the name, what changed below it."""
    return [line for change in changes for line in (f"{change.how.value} {change.name}", *_indented(change.details))]


def _indented(details: tuple[str, ...]) -> Iterator[str]:
    return (f"    {detail}" for detail in details)


def _rows(document: Mapping[str, Any]) -> Iterator[_Row]:
    for entry in document.get("steps") or ():
        step = entry if isinstance(entry, Mapping) else {str(entry): None}
        inner = step.get("steps")
        if not isinstance(inner, list):
            yield _Row(step, None)
            continue
        group = _Row({key: value for key, value in step.items() if key != "steps"}, None)
        yield group
        for child in inner:
            yield _Row(child if isinstance(child, Mapping) else {str(child): None}, group.name)


def _pairs(before: list[_Row], after: list[_Row]) -> dict[int, int]:
    """Return which row of ``after`` is which of ``before``."""
    pairs: dict[int, int] = {}
    ways: tuple[Callable[[_Row], Any], ...] = (
        lambda row: row.key,
        lambda row: ("group" in row.body, row.group, row.label),
        lambda row: ("group" in row.body, row.label),
    )
    for way in ways:
        taken = set(pairs.values())
        waiting: dict[Any, list[int]] = {}
        for number, row in enumerate(before):
            if number not in taken and way(row) is not None:
                waiting.setdefault(way(row), []).append(number)
        for number, row in enumerate(after):
            if number not in pairs and waiting.get(way(row)):
                pairs[number] = waiting[way(row)].pop(0)
    return pairs


def _moved(pairs: Mapping[int, int]) -> frozenset[int]:
    """Return the fewest rows that have to move for the others to stand in their old order."""
    numbers = sorted(pairs)
    ends: list[int] = []  # the smallest last place of a run of each length (patience sorting)
    last: list[int] = []
    came_from: dict[int, int | None] = {}
    for number in numbers:
        place = bisect.bisect_left(ends, pairs[number])
        came_from[number] = last[place - 1] if place else None
        ends[place : place + 1] = [pairs[number]]
        last[place : place + 1] = [number]
    kept: set[int] = set()
    current: int | None = last[-1] if last else None
    while current is not None:
        kept.add(current)
        current = came_from[current]
    return frozenset(number for number in numbers if number not in kept)


def _place(row: _Row, renamed: Mapping[str, str]) -> str | None:
    """Return what the group of an old row is called now."""
    return None if row.group is None else renamed.get(row.group, row.group)


def _places(old: _Row, new: _Row, *, same: bool, moved: bool) -> Iterator[str]:
    if not same:
        yield f"moved from {_group(old)} to {_group(new)}"
    elif moved:
        yield "moved"


def _group(row: _Row) -> str:
    return "no group" if row.group is None else f"group {row.group!r}"


def _above(document: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key != "steps"}


def _details(old: Any, new: Any, path: str = "") -> Iterator[str]:
    """Yield a line for each value that differs, by its path."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in dict.fromkeys((*old, *new)):
            inner = f"{path}.{key}" if path else str(key)
            if key not in new:
                yield f"{inner}: {_shown(old[key])} is gone"
            elif key not in old:
                yield f"{inner}: {_shown(new[key])} is new"
            else:
                yield from _details(old[key], new[key], inner)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for number, (left, right) in enumerate(zip(old, new, strict=True)):
            yield from _details(left, right, f"{path}[{number}]")
    elif old != new or type(old) is not type(new):
        yield f"{path}: {_shown(old)} -> {_shown(new)}"


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
