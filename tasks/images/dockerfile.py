"""Reading Dockerfiles: instructions with their lines, stages and arguments (Dockerfile reference, docs.docker.com).

Only what our own files use is understood: no parser directives, no escape character but the backslash.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tasks.support.errors import DataError, MissingInputError, unknown_choice

_HEREDOC = re.compile(r"<<-?\s*([\"']?)([A-Za-z_][A-Za-z0-9_]*)\1")
_HEREDOC_STEPS = frozenset({"RUN", "COPY", "ADD"})
_FLAGS = re.compile(r"(?:--[a-z]\S*\s*)+")
_VARIABLE = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)\}?")
_WORD = re.compile(r"[A-Za-z]+")


@dataclass(frozen=True)
class Instruction:
    """One instruction: its name in capitals, what follows it on one line, its here-documents, and its first line."""

    name: str
    rest: str
    line: int
    documents: tuple[str, ...] = ()

    @cached_property
    def flags(self) -> tuple[str, ...]:
        """Return the leading `--name=value` words."""
        found = _FLAGS.match(self.rest)
        return tuple(found[0].split()) if found else ()

    @cached_property
    def operands(self) -> tuple[str, ...]:
        """Return the words behind the flags, quotes taken off; DataError when a quote is left open."""
        rest = _FLAGS.sub("", self.rest, count=1)
        try:
            if rest.startswith("["):
                with suppress(ValueError):  # a shell's bracket: the form without JSON
                    return tuple(str(word) for word in json.loads(rest))
            return tuple(shlex.split(rest))
        except ValueError as error:
            raise DataError(f"line {self.line}: {self.name}: {str(error).lower()}") from error

    @property
    def assignments(self) -> tuple[tuple[str, str | None], ...]:
        """Return the `name=value` pairs of ARG, ENV and LABEL; None for an argument without a default."""
        words = self.operands
        if self.name != "ARG" and words and "=" not in words[0]:
            return ((words[0], " ".join(words[1:])),)  # the old form, `ENV name value`
        pairs = (word.partition("=") for word in words)
        return tuple((name, value if equals else None) for name, equals, value in pairs)


@dataclass(frozen=True)
class Stage:
    """A build stage: its FROM and what follows up to the next one."""

    start: Instruction
    body: tuple[Instruction, ...]

    @property
    def base(self) -> str:
        """Return what the stage is made from, as written."""
        return self.start.operands[0] if self.start.operands else ""

    @property
    def name(self) -> str | None:
        """Return the name that `AS` gives it."""
        operands = self.start.operands
        return operands[2] if len(operands) == 3 and operands[1].upper() == "AS" else None  # noqa: PLR2004


@dataclass(frozen=True)
class Dockerfile:
    """A parsed file: its instructions before the first FROM, its stages, its comments and its text."""

    text: str
    head: tuple[Instruction, ...]
    stages: tuple[Stage, ...]

    @property
    def instructions(self) -> Iterator[Instruction]:
        """Yield every instruction in the file's order."""
        yield from self.head
        for stage in self.stages:
            yield stage.start
            yield from stage.body

    @property
    def arguments(self) -> tuple[str, ...]:
        """Return the names of all build arguments, each once."""
        declared = (name for step in self.instructions if step.name == "ARG" for name, _ in step.assignments)
        return tuple(dict.fromkeys(declared))

    @property
    def bases(self) -> tuple[str, ...]:
        """Return the names of the arguments that a stage is made from, each once."""
        found = (_VARIABLE.fullmatch(stage.base) for stage in self.stages)
        return tuple(dict.fromkeys(match[1] for match in found if match))

    def lineage(self, target: str | None = None) -> tuple[Stage, ...]:
        """Return a target's stage and, before it, those that it is made from; the last stage without a target.

        UsageError for a target that is not there.
        """
        by_name = {stage.name: number for number, stage in enumerate(self.stages) if stage.name}
        if target is not None and target not in by_name:
            raise unknown_choice("target", target, by_name)
        number: int | None = len(self.stages) - 1 if target is None else by_name[target]
        found: list[Stage] = []
        while number is not None:
            stage = self.stages[number]
            found.insert(0, stage)
            earlier = by_name.get(stage.base)
            number = earlier if earlier is not None and earlier < number else None
        return tuple(found)


def read(path: Path) -> Dockerfile:
    """Read a file; MissingInputError when it is not there, DataError when it is no Dockerfile."""
    return parse(_bytes(path).decode("utf-8", "replace"), path.name)


def digest(path: Path) -> str:
    """Return the sha256 of a file's bytes, in hexadecimal."""
    return hashlib.sha256(_bytes(path)).hexdigest()


def parse(text: str, name: str = "Dockerfile") -> Dockerfile:
    """Parse a file's text; DataError when it has no FROM."""
    head: list[Instruction] = []
    stages: list[tuple[Instruction, list[Instruction]]] = []
    for step in _instructions(text):
        if step.name == "FROM":
            stages.append((step, []))
        else:
            (stages[-1][1] if stages else head).append(step)
    if not stages:
        raise DataError(f"{name} has no FROM")
    return Dockerfile(text, tuple(head), tuple(Stage(start, tuple(body)) for start, body in stages))


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise MissingInputError(f"cannot read {path}: {error.strerror}") from error


def _instructions(text: str) -> Iterator[Instruction]:
    lines = iter(enumerate(text.splitlines(), 1))
    for number, line in lines:
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        joined = _joined(line, lines)
        if not joined:  # nothing but a continuation
            continue
        word = _WORD.match(joined)
        name = word[0].upper() if word else joined.split()[0]
        rest = joined[len(name) :].strip()
        documents = tuple(_document(end[2], lines) for end in _HEREDOC.finditer(rest)) if name in _HEREDOC_STEPS else ()
        yield Instruction(name, rest, number, documents)


def _joined(line: str, lines: Iterator[tuple[int, str]]) -> str:
    """Return an instruction's lines as one; comments and blank lines between them do not end it."""
    parts = [line.strip()]
    while parts[-1].endswith("\\"):
        parts[-1] = parts[-1][:-1].rstrip()
        for _, following in lines:
            if following.strip() and not following.lstrip().startswith("#"):
                parts.append(following.strip())
                break
        else:
            break
    return " ".join(part for part in parts if part)


def _document(end: str, lines: Iterator[tuple[int, str]]) -> str:
    """Return a here-document's text up to the line that ends it."""
    found = []
    for _, line in lines:
        if line.strip() == end:
            break
        found.append(line)
    return "\n".join(found)
