"""A finding, and what every family of checks is given to look at."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

from tasks.pipelines.amd_form import is_amd_form
from tasks.pipelines.checks.shell import undoubled
from tasks.pipelines.model import Group, NativeFile, Step, commands_of
from tasks.support.errors import DataError

_PLACED = re.compile(r"(.+?:\d+): (.+)", re.DOTALL)


class Level(Enum):
    """How bad a finding is: an error fails the check, a warning with ``--strict`` only, a note never."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong. ``where`` is ``file:line`` or a file, ``step`` what people call the step, or empty."""

    level: Level
    where: str
    step: str
    rule: str
    text: str
    hint: str | None = None

    @property
    def order(self) -> tuple[str, int, str, str]:
        """Return what findings are sorted by: file, line, rule, text."""
        name, _, line = self.where.rpartition(":")
        return (name, int(line), self.rule, self.text) if line.isdecimal() else (self.where, 0, self.rule, self.text)


@dataclass(frozen=True)
class Script:
    """One command of a step as its shell gets it: the doubled ``$`` of the upload are single again."""

    text: str
    step: Step
    group: Group | None
    key: str


@dataclass(frozen=True)
class Subject:
    """A file under check: what was read from it, and its text line by line to find a line of a script again."""

    file: NativeFile
    text: Sequence[str] = ()

    def entries(self) -> Iterator[Step | Group]:
        """Yield every group and every step, in the file's order."""
        for entry in self.file.entries:
            yield entry
            if isinstance(entry, Group):
                yield from entry.steps

    def scripts(self) -> Iterator[Script]:
        """Yield every command of every step, each element of ``commands`` by itself."""
        for group, step in self.file.steps():
            for key, text in commands_of(step.body):
                yield Script(undoubled(text), step, group, key)

    def where(self, entry: Step | Group | None, key: str | None = None, fragment: str | None = None) -> str:
        """Return ``file:line`` of a key, or of the first line from there on that holds a fragment of a script."""
        lines = self.file.lines if entry is None else entry.lines
        if key is not None and key in lines:
            line = lines[key]
        elif entry is not None:
            return entry.where
        else:
            return self.file.name
        return f"{self.file.name}:{self._line_of(fragment, line)}"

    def _line_of(self, fragment: str | None, first: int) -> int:
        """Return the first line that holds a fragment, up to where the next step begins; the first line without one."""
        wanted = fragment.strip() if fragment else ""
        later = bisect_right(self._starts, first)
        last = self._starts[later] - 1 if later < len(self._starts) else len(self.text)
        for number in range(first, min(last, len(self.text)) + 1) if wanted else ():
            shown = self.text[number - 1]
            if wanted in shown or wanted in undoubled(shown):
                return number
        return first

    @cached_property
    def _starts(self) -> list[int]:
        return sorted(int(entry.where.rpartition(":")[2]) for entry in self.entries())

    @cached_property
    def is_amd(self) -> bool:
        """Say whether the file is in AMD's form, where a list says on which builds a step runs."""
        return is_amd_form(self.file)

    def raised(
        self, error: DataError, rule: str, entry: Step | Group | None = None, *, level: Level = Level.ERROR
    ) -> Finding:
        """Make the finding for an error that reading something raised; its message may begin with file and line."""
        found = _PLACED.fullmatch(error.message)
        where, text = (found[1], found[2]) if found else (self.where(entry), error.message)
        return Finding(level, where, name_of(entry), rule, text, error.hint)

    def finding(
        self,
        level: Level,
        rule: str,
        text: str,
        *,
        entry: Step | Group | None = None,
        key: str | None = None,
        fragment: str | None = None,
        hint: str | None = None,
    ) -> Finding:
        """Make a finding about a key of a step, a group or, without an entry, the file itself."""
        return Finding(level, self.where(entry, key, fragment), name_of(entry), rule, text, hint)


def name_of(entry: Step | Group | None) -> str:
    """Return what people call a step or a group; empty for the file itself."""
    if isinstance(entry, Group):
        return entry.key or entry.label or "group"
    return entry.name if entry is not None else ""


@dataclass(frozen=True)
class Tree:
    """The source's files. ``read`` returns a file's bytes, or None when it is not there."""

    paths: frozenset[str] = field(default_factory=frozenset)
    read: Callable[[str], bytes | None] = lambda _path: None
