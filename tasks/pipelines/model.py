"""What the parts of this package hand to each other: a native file's steps, and one reason for every decision."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

KEYS = ("key", "id", "identifier")  # what Buildkite takes for a step's key, in its order of preference
LABELS = ("label", "name", "group", "command", "block", "input", "trigger")
COMMANDS = ("command", "commands")


def key_of(body: Mapping[str, Any]) -> str | None:
    """Return the key that ``depends_on`` names, or None."""
    return next((str(body[name]) for name in KEYS if body.get(name)), None)


def commands_of(body: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the key and the text of each command of a step as it is written; what is no text is left to the schema."""
    for key in COMMANDS:
        value = body.get(key)
        for item in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(item, str):
                yield key, item


@dataclass(frozen=True)
class Step:
    """A step of a native file that is no group.

    ``body`` is what YAML made of it, private keys included; the bare word ``wait`` is ``{"wait": None}``. ``where`` is
    ``file:line``; ``lines`` has the line of each key of the body.
    """

    body: Mapping[str, Any]
    where: str
    lines: Mapping[str, int]

    @property
    def key(self) -> str | None:
        """Return the key that ``depends_on`` names, or None."""
        return key_of(self.body)

    @property
    def name(self) -> str:
        """Return what people call the step: its key, else its label, else the first word of its body."""
        if self.key is not None:
            return self.key
        for name in LABELS:
            value = self.body.get(name)
            if isinstance(value, str) and value.strip():
                return value.strip().splitlines()[0]
        return next(iter(self.body), "step")


@dataclass(frozen=True)
class Group:
    """A group and its steps. ``body`` is the group without its ``steps``."""

    body: Mapping[str, Any]
    where: str
    lines: Mapping[str, int]
    steps: tuple[Step, ...]

    @property
    def key(self) -> str | None:
        """Return the key that ``depends_on`` names, or None."""
        return key_of(self.body)

    @property
    def label(self) -> str:
        """Return the group's title; an untitled group (``group: ~``) has its ``label`` or an empty one."""
        return str(self.body.get("group") or self.body.get("label") or self.body.get("name") or "")


@dataclass(frozen=True)
class NativeFile:
    """A Buildkite pipeline file as it is written, extension keys included. ``top`` is everything but its steps."""

    name: str
    top: Mapping[str, Any]
    lines: Mapping[str, int]
    entries: tuple[Step | Group, ...]
    warnings: tuple[str, ...] = ()

    def where(self) -> dict[str, str]:
        """Return ``file:line`` of each key above the steps."""
        return {key: f"{self.name}:{line}" for key, line in self.lines.items()}

    def steps(self) -> Iterator[tuple[Group | None, Step]]:
        """Return every step with the group around it, in the file's order."""
        for entry in self.entries:
            if isinstance(entry, Group):
                for step in entry.steps:
                    yield entry, step
            else:
                yield None, entry


class Why(Enum):
    """The kinds of reason for a decision; each decision has exactly one."""

    ALWAYS = "always"  # the step has no path rules
    PATH = "path"  # a changed file matches a path rule of the step or of its group
    AREA = "area"  # a changed file is in an area that the step names
    IMPORTS = "imports"  # a changed file is imported by what the step tests
    IMPLICIT = "implicit"  # a changed file is what every such step depends on: its tests, their conftests, its file
    RUN_ALL = "run-all"  # a changed file, a label, a flag or a variable that runs everything
    UNMATCHED = "unmatched"  # a changed file that no rule covers
    UNKNOWN = "unknown"  # the change set is not known
    NEEDED = "needed"  # a step that runs depends on it
    CHOSEN = "chosen"  # the caller asked for this step or group
    UNCHANGED = "unchanged"  # nothing that the step depends on changed
    SKIPPED = "skipped"  # documentation or skip marks only, or the configuration of other cells only
    GATE = "gate"  # the group's gate does not hold for this build
    GROUP = "group"  # another group was asked for
    HARDWARE = "hardware"  # the step does not run on the hardware that was asked for
    STRUCTURE = "structure"  # wait, block, input: kept, or dropped with the steps around it


@dataclass(frozen=True)
class Reason:
    """Why a step runs or does not: one kind, and one sentence for people."""

    why: Why
    text: str


@dataclass(frozen=True)
class Decision:
    """What was decided for a step."""

    step: Step
    group: Group | None
    keep: bool
    reason: Reason
