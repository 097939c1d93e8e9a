"""Several native files in one: each becomes a group, so that one upload, with one image, runs the steps of all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from tasks.pipelines.model import KEYS, Group, NativeFile, Step
from tasks.pipelines.structure import needs_of, structural_kind
from tasks.support.errors import DataError

_TITLES = frozenset({"group", "label", "name", "type", *KEYS})  # what a flattened group leaves behind
_CONDITION = "if"
_NEEDS = "depends_on"
_HANDED_DOWN = frozenset({"skip", "allow_dependency_failure", "source_file_dependencies", "imports"})


def combine(files: Mapping[str, NativeFile]) -> NativeFile:
    """Return one file that has each file's steps in a group with the file's title, in the order that is given.

    Buildkite has one level of groups: those inside are flattened, and what they say of their steps (what they wait for,
    their condition, their path rules) each step says itself. Extension keys (``x-``) are left out. Raises DataError
    with file and line for a variable or another top-level key that two files set differently, for a key that two steps
    have, and for what cannot be handed down to steps.
    """
    entries = tuple(_group(title, file) for title, file in files.items())
    _check_keys(entries)
    top, lines = _top(list(files.values()))
    warnings = tuple(line for file in files.values() for line in file.warnings)
    return NativeFile(", ".join(file.name for file in files.values()), top, lines, entries, warnings)


def _group(title: str, file: NativeFile) -> Group:
    flattened: dict[str, Group] = {entry.key: entry for entry in file.entries if isinstance(entry, Group) and entry.key}
    steps = tuple(_renamed(_handed_down(step, group), flattened) for group, step in file.steps())
    return Group({"group": title}, f"{file.name}:1", {"group": 1}, steps)


def _handed_down(step: Step, group: Group | None) -> Step:
    """Return a step that says itself what its group said of it."""
    if group is None:
        return step
    body, lines = dict(step.body), dict(step.lines)
    structural = structural_kind(step) is not None
    for key, value in group.body.items():
        if key in _TITLES or (structural and key not in {_CONDITION, "skip"}):
            continue
        if key == _NEEDS:
            body[key] = _both(value, body[key]) if body.get(key) else value
        elif key == _CONDITION:
            body[key] = f"({value}) && ({body[key]})" if body.get(key) else value
        elif key not in _HANDED_DOWN:
            raise _fail(group, key, f"the key {key!r} of a group cannot be handed down to its steps")
        elif key in body and body[key] != value:
            raise _fail(step, key, f"step {step.name!r} has {key!r} and so has its group, differently")
        else:
            body[key] = value
        lines.setdefault(key, group.lines.get(key, 1))
    return replace(step, body=body, lines=lines)


def _both(one: Any, other: Any) -> list[Any]:
    found: list[Any] = []
    for value in (one, other):
        for item in value if isinstance(value, list) else [value]:
            if item is not None and item not in found:
                found.append(item)
    return found


def _renamed(step: Step, flattened: Mapping[str, Group]) -> Step:
    """Return a step that needs the steps of a flattened group where it needed the group."""
    if not any(key in flattened for key in needs_of(step.body)):
        return step
    value = step.body[_NEEDS]
    needs = [new for item in (value if isinstance(value, list) else [value]) for new in _needed(step, item, flattened)]
    return replace(step, body={**step.body, _NEEDS: needs})


def _needed(step: Step, item: Any, flattened: Mapping[str, Group]) -> Iterator[Any]:
    key = item.get("step") if isinstance(item, Mapping) else item
    group = flattened.get(key) if isinstance(key, str) else None
    if group is None:
        yield item
        return
    for inner in group.steps:
        if structural_kind(inner) is not None:
            continue
        if inner.key is None:
            message = f"step {step.name!r} needs the group {key!r}, whose step {inner.name!r} has no key"
            raise _fail(step, _NEEDS, message, f"give {inner.where} a key")
        yield {**item, "step": inner.key} if isinstance(item, Mapping) else inner.key


def _check_keys(groups: tuple[Group, ...]) -> None:
    seen: dict[str, Step] = {}
    for group in groups:
        for step in group.steps:
            if step.key is None:
                continue
            if step.key in seen:
                message = f"the key {step.key!r} is there twice, first in {seen[step.key].where}"
                raise _fail(step, "key", message, "give one of the two another key")
            seen[step.key] = step


def _top(files: list[NativeFile]) -> tuple[dict[str, Any], dict[str, int]]:
    top: dict[str, Any] = {}
    lines: dict[str, int] = {}
    set_in: dict[tuple[str, str], str] = {}
    for file in files:
        for key, value in file.top.items():
            if key.startswith("x-") or (key == "env" and value is None):
                continue
            where = f"{file.name}:{file.lines.get(key, 1)}"
            lines.setdefault(key, file.lines.get(key, 1))
            if key == "env":
                if not isinstance(value, Mapping):
                    raise DataError(f"{where}: env must be a mapping")
                env = top.setdefault(key, {})
                for name, text in value.items():
                    _set(env, name, text, (where, f"the variable {name}", set_in))
            else:
                _set(top, key, value, (where, f"the key {key!r}", set_in))
    return top, lines


def _set(target: dict[str, Any], key: str, value: Any, about: tuple[str, str, dict[tuple[str, str], str]]) -> None:
    where, what, set_in = about
    first = set_in.setdefault((what, key), where)
    if key in target and (target[key] != value or type(target[key]) is not type(value)):
        raise DataError(f"{where}: {what} has another value in {first}", hint="give both files the same value")
    target[key] = value


def _fail(what: Step | Group, key: str, message: str, hint: str | None = None) -> DataError:
    name, _, line = what.where.rpartition(":")
    return DataError(f"{name}:{what.lines.get(key, line)}: {message}", hint=hint)
