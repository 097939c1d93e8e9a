"""What the upload's interpolation would eat or reject, with the line as it should be."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from tasks.pipelines import dollar
from tasks.pipelines.checks.findings import Finding, Level, Subject
from tasks.pipelines.model import Group, Step
from tasks.pipelines.rendering import PRIVATE_KEYS

_PROGRAMS = frozenset({"command", "commands", "plugins"})  # where a value from outside could become a program's text
_SHOWN = (dollar.Kind.REJECTED, dollar.Kind.JOB, dollar.Kind.ELSEWHERE, dollar.Kind.OUTSIDE)


def check(subject: Subject) -> Iterator[Finding]:
    """Yield every ``$`` of which the agent would make something else than the job's shell should.

    Names whose value somebody outside chooses may stand in labels, conditions and the environment, not in commands.
    Names of secrets are another family's.
    """
    environment = subject.file.top.get("env")
    declared = frozenset(environment) if isinstance(environment, Mapping) else frozenset()
    for key, value in subject.file.top.items():
        if key not in PRIVATE_KEYS:
            yield from _value(subject, None, key, value, declared)
    for entry in subject.entries():
        for key, value in entry.body.items():
            if key not in PRIVATE_KEYS:
                yield from _value(subject, entry, key, value, declared)


def texts_of(value: Any) -> Iterator[str]:
    """Yield every text inside a value, the keys of mappings too: the agent interpolates both."""
    waiting = [value]
    while waiting:
        current = waiting.pop()
        if isinstance(current, str):
            yield current
        elif isinstance(current, Mapping):
            waiting += [part for pair in reversed(list(current.items())) for part in reversed(pair)]
        elif isinstance(current, (list, tuple)):
            waiting += reversed(current)


def _value(
    subject: Subject, entry: Step | Group | None, key: str, value: Any, declared: Collection[str]
) -> Iterator[Finding]:
    for text in texts_of(value):
        if "$" not in text:
            continue
        fixed = dollar.repaired(text, declared).splitlines()
        lines = text.splitlines()
        seen: set[int] = set()
        for use in dollar.scan(text, declared):
            if use.kind not in _SHOWN or (use.kind is dollar.Kind.OUTSIDE and key not in _PROGRAMS):
                continue
            number = text.count("\n", 0, use.start)
            if number in seen:
                continue  # the corrected line mends all of them
            seen.add(number)
            better = fixed[number].strip() if number < len(fixed) else ""
            yield subject.finding(
                Level.ERROR,
                "dollar",
                dollar.reason(use),
                entry=entry,
                key=key,
                fragment=lines[number],
                hint=None if tells_a_secret(better) else f"write {better}",
            )


def tells_a_secret(line: str) -> bool:
    """Say whether a line sets a variable with a secret's name: then it is not repeated in messages."""
    return any(dollar.is_secret(word.rpartition("=")[0].strip("'\"")) for word in line.split() if "=" in word)
