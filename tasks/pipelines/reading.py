"""Read a native Buildkite file: its steps with their lines, its values as Buildkite's agent takes them.

The agent parses with Go's yaml.v3: the words ``yes`` and ``on`` are texts, ``017`` and ``0o17`` are 15, ``1_000`` is
1000, ``1:30`` and dates are texts. The source of these rules is that library's ``resolve.go`` and the package
``ordered`` of Buildkite's go-pipeline.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from tasks.pipelines.model import Group, NativeFile, Step
from tasks.pipelines.yaml_values import Document, read_document
from tasks.support.errors import DataError, did_you_mean

_BARE = {"wait": "wait", "waiter": "wait", "block": "block", "input": "input", "manual": "block"}
_KINDS = ("command", "commands", "plugins", "wait", "waiter", "block", "input", "manual", "trigger")  # never a group
_COMMANDS = ("command", "commands", "script")
_NESTED = frozenset({*_COMMANDS, *_BARE, "trigger"})
_TYPES = ("command", "script", "wait", "waiter", "block", "input", "manual", "trigger", "group")


def read_native(data: bytes, name: str) -> NativeFile:
    """Read a pipeline file; DataError with ``name`` and line when the agent could not, or would read it in two ways.

    The file is a mapping with ``steps`` or, as Buildkite allows it, the list of steps alone. What two aliases name is
    one and the same object: whoever changes a value makes a new one. A step that is nested in its kind
    (``command: {...}``) is read as one that is not.
    """
    document = read_document(data, name)
    root = document.value
    if root is None:
        raise DataError(f"{name} is empty", hint="a pipeline has steps: and a list under it")
    if isinstance(root, list):
        where = document.line
        return NativeFile(name, {}, {}, _entries(document, root, where, "the pipeline"), document.warnings)
    if not isinstance(root, dict):
        raise DataError(f"{name}:{document.line}: a pipeline is a mapping with steps, not {_shown(root)}")
    lines = document.key_lines(root)
    if "steps" not in root:
        near = next((key for key in islice(root, 20) if did_you_mean(key, ("steps",))), None)
        hint = f"did you mean steps where {near!r} is?" if near else "a pipeline has steps: and a list under it"
        raise DataError(f"{name}:{document.line}: there are no steps", hint=hint)
    entries = _entries(document, root["steps"], lines["steps"], "the pipeline")
    return NativeFile(
        name, {key: value for key, value in root.items() if key != "steps"}, lines, entries, document.warnings
    )


def _entries(document: Document, steps: Any, line: int, owner: str) -> tuple[Step | Group, ...]:
    return tuple(
        _entry(document, item, item_line, inside=False) for item, item_line in _items(document, steps, line, owner)
    )


def _items(document: Document, steps: Any, line: int, owner: str) -> Iterator[tuple[Any, int]]:
    where = f"{document.name}:{line}"
    if not isinstance(steps, list):
        raise DataError(f"{where}: the steps of {owner} must be a list, not {_shown(steps)}")
    if not steps:
        raise DataError(f"{where}: the steps of {owner} are an empty list", hint="write a step or remove the file")
    return zip(steps, document.item_lines(steps), strict=True)


def _entry(document: Document, item: Any, line: int, *, inside: bool) -> Step | Group:
    where = f"{document.name}:{line}"
    if isinstance(item, str):
        if item not in _BARE:
            hint = did_you_mean(item, _BARE) or f"a step is a mapping or one of the words {', '.join(sorted(_BARE))}"
            raise DataError(f"{where}: {_cut(item)!r} is no step", hint=hint)
        word = _BARE[item]
        return Step({word: None}, where, {word: line})
    if not isinstance(item, dict):
        raise DataError(f"{where}: a step must be a mapping, not {_shown(item)}")
    lines = document.key_lines(item)
    if len(item) == 1:
        item, lines = _unnested(document, item, lines)
    if not item:
        raise DataError(f"{where}: a step must not be empty")
    if not _is_group(item, lines, document.name):
        return Step(item, where, lines)
    if inside:
        raise DataError(f"{where}: a group must not be in a group", hint="Buildkite has one level of groups")
    body = {key: value for key, value in item.items() if key != "steps"}
    title = f"the group {_cut(str(item.get('group') or item.get('label') or ''))!r}"
    if "steps" not in item:
        raise DataError(f"{where}: {title} has no steps")
    found = _items(document, item["steps"], lines["steps"], title)
    steps = [_entry(document, child, child_line, inside=True) for child, child_line in found]
    return Group(body, where, lines, tuple(step for step in steps if isinstance(step, Step)))


def _unnested(
    document: Document, item: Mapping[str, Any], lines: Mapping[str, int]
) -> tuple[Mapping[str, Any], Mapping[str, int]]:
    """Return the step inside ``command: {...}``, Buildkite's other way to write one, as it is written else."""
    ((word, inner),) = item.items()
    if word not in _NESTED or not isinstance(inner, dict):
        return item, lines
    inside = document.key_lines(inner)
    if word in inner or word in _COMMANDS:
        return inner, inside
    kind = _BARE.get(word, word)
    return {kind: None, **inner}, {kind: lines[word], **inside}


def _is_group(item: Mapping[str, Any], lines: Mapping[str, int], name: str) -> bool:
    kind = item.get("type", "command")
    if not isinstance(kind, str) or kind not in _TYPES:
        hint = did_you_mean(str(kind), _TYPES) or f"choose from {', '.join(_TYPES)}"
        raise DataError(f"{name}:{lines['type']}: {_cut(str(kind))!r} is no type of a step", hint=hint)
    other = next((key for key in _KINDS if key in item), None)
    if "group" in item or kind == "group":
        if other is not None:
            raise DataError(f"{name}:{lines[other]}: a group has no {other!r}", hint="move it into a step of the group")
        return True
    if "steps" in item:
        raise DataError(f"{name}:{lines['steps']}: a step with steps is a group: it needs group: and a title")
    return False


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    names: dict[type, str] = {list: "a list", dict: "a mapping", bool: "a truth value", str: "a text"}
    return names.get(type(value)) or f"the number {value}"


def _cut(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."  # noqa: PLR2004 - a message is one line
