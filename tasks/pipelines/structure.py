"""What holds a selection together: the steps that others need, and waits, blocks and inputs between what runs.

Buildkite's rules: a step may name the keys of steps and groups in ``depends_on``, as one text, a list of texts or a
list of mappings with ``step``; a group's ``depends_on`` counts for each of its steps; a wait and a block hold what
follows them, in the pipeline or in their own group (docs: Dependencies, Wait step, Block step).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tasks.pipelines.model import Group, NativeFile, Step

_KINDS = {"wait": "wait", "waiter": "wait", "block": "block", "manual": "block", "input": "input"}
_PLAIN_WAIT = frozenset({"wait", "waiter", "type", "continue_on_failure"})


@dataclass
class Place:
    """A step's place in its file. ``keep`` is None until it is decided; ``text`` says why a structural step is so."""

    step: Step
    group: Group | None
    keep: bool | None = None
    text: str = ""
    needed_by: str | None = None

    @property
    def kind(self) -> str | None:
        """Return ``wait``, ``block`` or ``input``, or None for a step that does something."""
        return structural_kind(self.step)


def structural_kind(step: Step) -> str | None:
    """Return ``wait``, ``block`` or ``input``, or None for a step that does something."""
    return kind_of_body(step.body)


def kind_of_body(body: Mapping[str, Any]) -> str | None:
    """Return the same for what a step is written as."""
    return next((kind for word, kind in _KINDS.items() if word in body), None) or _KINDS.get(str(body.get("type")))


def needs_of(body: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the keys that a step's or a group's ``depends_on`` names, in its order; what is no key is left out."""
    value = body.get("depends_on")
    found = []
    for item in value if isinstance(value, (list, tuple)) else [value]:
        key = item.get("step") if isinstance(item, Mapping) else item
        if isinstance(key, (str, int)) and not isinstance(key, bool):
            found.append(str(key))
    return tuple(found)


def pull_in(places: Sequence[Place]) -> None:
    """Keep what the kept steps need, and what that needs; a needed group is kept whole.

    A key that is in no step of the file may be another upload's: it is left to Buildkite, and to ``check``.
    """
    by_key: dict[str, list[Place]] = {}
    for place in places:
        for key in {place.step.key, place.group.key if place.group else None} - {None}:
            by_key.setdefault(str(key), []).append(place)
    waiting = [place for place in places if place.keep]
    while waiting:
        place = waiting.pop()
        wanted = needs_of(place.step.body) + (needs_of(place.group.body) if place.group else ())
        for needed in (other for key in wanted for other in by_key.get(key, ())):
            if not needed.keep:
                needed.keep, needed.needed_by = True, place.step.name
                waiting.append(needed)


def settle(file: NativeFile, places: Sequence[Place]) -> None:
    """Decide the waits, blocks and inputs that are still open, first inside each group and then of the file.

    A block and an input stay if anything after them runs. Of waits with nothing that runs between them the last one
    stays, since it is the one that holds what follows; a wait before or after all that runs goes, unless the file
    itself begins or ends with it: then it holds other uploads' steps. A wait with a condition may hold
    nothing: it takes no other wait's place.
    """
    rest = iter(places)
    outer: list[tuple[bool, Place | None]] = []  # for each entry: whether something in it runs; its place if structural
    for entry in file.entries:
        inside = [next(rest) for _ in (entry.steps if isinstance(entry, Group) else (entry,))]
        if isinstance(entry, Group):
            _settle_scope([(_runs(place), place if place.kind else None) for place in inside])
            outer.append((any(place.keep and not place.kind for place in inside), None))
        else:
            outer.append((_runs(inside[0]), inside[0] if inside[0].kind else None))
    _settle_scope(outer)


def _runs(place: Place) -> bool:
    return bool(place.keep) and not place.kind


def _settle_scope(entries: Sequence[tuple[bool, Place | None]]) -> None:
    work = [number for number, (_, place) in enumerate(entries) if place is None]
    running = [number for number in work if entries[number][0]]
    for number, (_, place) in enumerate(entries):
        if place is None or place.keep is not None:
            continue
        before = any(other < number for other in running)
        after = any(other > number for other in running)
        if place.kind != "wait":
            place.keep, place.text = after, "what follows runs" if after else "nothing after it runs"
        elif not before and any(other < number for other in work):
            place.keep, place.text = False, "nothing before it runs"
        elif not after and (any(other > number for other in work) or not running):
            place.keep, place.text = False, "nothing after it runs"
        else:
            place.keep, place.text = True, "what follows waits for what is before"
    _drop_doubled(entries)


def _drop_doubled(entries: Sequence[tuple[bool, Place | None]]) -> None:
    """Drop every open wait that another plain wait follows with nothing between that runs or asks."""
    follower = False
    for runs, place in reversed(entries):
        if place is None or place.kind != "wait":
            follower = follower and not runs and not (place is not None and place.keep)
        elif place.keep and place.needed_by is None:
            plain = set(place.step.body) <= _PLAIN_WAIT
            if follower and plain:
                place.keep, place.text = False, "the next wait is enough"
            follower = follower or plain
