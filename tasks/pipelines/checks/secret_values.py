"""Values of secret-named variables: whoever may read a build may read its pipeline. The values are never shown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tasks.pipelines import dollar
from tasks.pipelines.checks.dollars import texts_of
from tasks.pipelines.checks.findings import Finding, Level, Subject
from tasks.pipelines.model import Group, Step
from tasks.pipelines.rendering import PRIVATE_KEYS

_HINT = "give the name only: the agent's environment, a plugin's list of names or a secretKeyRef brings the value"
_ASSIGNED = re.compile(r"(?:^|[\s;&|(])(?:export\s+|-e\s+|--env[= ])?([A-Za-z_]\w*)=(['\"]?)([^\s;&|)'\"]+)", re.ASCII)


def check(subject: Subject) -> Iterator[Finding]:
    """Yield secrets that are interpolated into the pipeline, and those that are written out in it."""
    for key, value in subject.file.top.items():
        yield from _value(subject, None, key, value)
    for entry in subject.entries():
        for key, value in entry.body.items():
            if key not in PRIVATE_KEYS:
                yield from _value(subject, entry, key, value)


def _value(subject: Subject, entry: Step | Group | None, key: str, value: Any) -> Iterator[Finding]:
    interpolated: set[str] = set()
    for text in texts_of(value):
        for use in dollar.scan(text):
            if use.kind is dollar.Kind.SECRET and use.name not in interpolated:
                interpolated.add(str(use.name))
                yield subject.finding(
                    Level.ERROR,
                    "secret",
                    f"${use.name} is interpolated: its value would be in the pipeline",
                    entry=entry,
                    key=key,
                    fragment=use.text,
                    hint=f"write $${use.name} in a command; elsewhere {_HINT}",
                )
    for name in dict.fromkeys(_written(key, value)):
        if name not in interpolated:
            text = f"the value of {name} is written in the file"
            yield subject.finding(Level.ERROR, "secret", text, entry=entry, key=key, fragment=name, hint=_HINT)


def _written(key: str, value: Any) -> Iterator[str]:
    """Yield the secret-named variables that get a value which is no reference."""
    waiting = [value]
    while waiting:
        current = waiting.pop()
        if isinstance(current, Mapping):
            for name, item in current.items():
                if dollar.is_secret(str(name)) and _is_value(item):
                    yield str(name)
            if dollar.is_secret(str(current.get("name", ""))) and _is_value(current.get("value")):
                yield str(current["name"])
            waiting += reversed(list(current.values()))
        elif isinstance(current, (list, tuple)):
            waiting += reversed(current)
        elif isinstance(current, str) and key != "if":
            for found in _ASSIGNED.finditer(current):
                if dollar.is_secret(found[1]) and _is_value(found[3]):
                    yield found[1]


def _is_value(item: Any) -> bool:
    if isinstance(item, str):
        return bool(item) and "$" not in item and "`" not in item
    return isinstance(item, (int, float)) and not isinstance(item, bool)
