"""Every step as Buildkite will see it, held against Buildkite's own schema (the copy that check-jsonschema ships).

Each step is held against the definition of its own kind, not against any of fourteen: so a message is about what the
step is, and names the key and its line.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from tasks.pipelines.checks.amd import as_ordinary
from tasks.pipelines.checks.findings import Finding, Level, Subject
from tasks.pipelines.expanding import choose, expand, is_command
from tasks.pipelines.model import Group, Step
from tasks.pipelines.rendering import PRIVATE_KEYS
from tasks.pipelines.structure import structural_kind
from tasks.suites.presets import Presets
from tasks.support.errors import DataError, did_you_mean

if TYPE_CHECKING:
    from jsonschema import Draft7Validator
    from jsonschema.exceptions import ValidationError

_LONGEST = 200
_TYPES = {
    "object": "a mapping",
    "array": "a list",
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "empty",
}


def check(subject: Subject, presets: Presets) -> Iterator[Finding]:
    """Yield what the schema says of the pipeline, of each group and of each step with its preset written out."""
    for key, value in subject.file.top.items():
        if key in _document()["properties"] and key != "steps":
            for error in _validator(f"#/properties/{key}").iter_errors(value):
                yield _finding(subject, None, key, error, known_keys(None))
    for entry in subject.entries():
        kind = kind_of(entry)
        body = {key: value for key, value in entry.body.items() if key not in PRIVATE_KEYS}
        if isinstance(entry, Group):
            body["steps"] = ["wait"]  # its real ones are looked at one by one
        else:
            body = yield from _rendered(subject, entry, presets)
        for error in _validator(f"#/definitions/{kind}").iter_errors(body):
            yield from _findings(subject, entry, error, known_keys(kind) | PRIVATE_KEYS)


def _rendered(subject: Subject, step: Step, presets: Presets) -> Generator[Finding, None, dict[str, Any]]:
    """Return a step as it is uploaded; where it cannot be, yield why and return it without our keys."""
    public = {key: value for key, value in step.body.items() if key not in PRIVATE_KEYS}
    if not is_command(step.body):
        return public
    try:
        if subject.is_amd:
            step = as_ordinary(subject, step)
    except DataError as problem:
        yield subject.raised(problem, "amd-form", step)
        return public
    try:
        preset = choose(step, presets, agents_above=bool(subject.file.top.get("agents")))
        body = step.body if preset is None else expand(step.body, preset)
    except DataError as problem:
        yield subject.raised(problem, "preset", step)
        return public
    return {key: value for key, value in body.items() if key not in PRIVATE_KEYS}


def kind_of(entry: Step | Group) -> str:
    """Return the name of the schema's definition for what an entry is."""
    if isinstance(entry, Group):
        return "groupStep"
    kind = structural_kind(entry) or (
        "trigger" if _is(entry, "trigger") else "block" if _is(entry, "manual") else "command"
    )
    if "waiter" in entry.body or "manual" in entry.body:
        return f"nested{kind.capitalize()}Step"
    return f"{kind}Step"


def _is(step: Step, kind: str) -> bool:
    return kind in step.body or step.body.get("type") == kind


@cache
def known_keys(kind: str | None) -> frozenset[str]:
    """Return the keys that the schema has for a kind of step, or for the pipeline."""
    holder = _document() if kind is None else _document()["definitions"][kind]
    return frozenset(holder["properties"])


@cache
def _document() -> Mapping[str, Any]:
    import json
    from importlib.resources import files

    path = files("check_jsonschema").joinpath("builtin_schemas", "vendor", "buildkite.json")
    document: Mapping[str, Any] = json.loads(path.read_text("utf-8"))
    return document


@cache
def _validator(reference: str) -> Draft7Validator:
    from jsonschema import Draft7Validator

    holder = {"$schema": _document()["$schema"], "definitions": _document()["definitions"]}
    name = reference.rpartition("/")[2]
    wanted = _document()["properties"][name] if reference.startswith("#/properties/") else {"$ref": reference}
    return Draft7Validator({**holder, "allOf": [wanted]})


def _findings(
    subject: Subject, entry: Step | Group, error: ValidationError, known: Collection[str]
) -> Iterator[Finding]:
    """Yield one finding for an error, but one for each key that is not known."""
    if error.validator == "additionalProperties" and not error.path:
        for key in entry.body:
            if key not in known:
                what = "group" if isinstance(entry, Group) else "step"
                hint = did_you_mean(key, known) or "Buildkite knows no such key, and we have none"
                yield subject.finding(
                    Level.ERROR, "unknown-key", f"unknown key {key!r} of the {what}", entry=entry, key=key, hint=hint
                )
        return
    yield _finding(subject, entry, str(error.path[0]) if error.path else None, error, known)


def _finding(
    subject: Subject, entry: Step | Group | None, key: str | None, error: ValidationError, known: Collection[str]
) -> Finding:
    best = _best(error)
    path = [str(part) for part in best.absolute_path]
    if entry is None and key is not None:
        path.insert(0, key)
    names = [part for part in path if not part.isdecimal()]
    fragment = f"{names[-1]}:" if len(names) > 1 else None
    text, hint = _text(best)
    return subject.finding(
        Level.ERROR,
        "schema",
        f"{_dotted(path)} {text}" if path else text,
        entry=entry,
        key=key,
        fragment=fragment,
        hint=hint or (did_you_mean(key, known) if key and key not in known else None),
    )


def _best(error: ValidationError) -> ValidationError:
    """Return the part of an ``anyOf`` error that comes closest: of the alternative that fits the value's type best."""
    while error.context:
        branches: dict[int, list[ValidationError]] = {}
        for child in error.context:
            branches.setdefault(int(child.relative_schema_path[0]), []).append(child)
        depth = len(error.absolute_path)
        fitting = [
            found
            for found in branches.values()
            if not any(one.validator in {"type", "enum"} and len(one.absolute_path) == depth for one in found)
        ]
        if not fitting:
            return error
        error = max((found[0] for found in fitting), key=lambda one: len(one.absolute_path))
    return error


def _text(error: ValidationError) -> tuple[str, str | None]:
    """Return what an error says of the value, and perhaps a hint."""
    if error.validator == "additionalProperties":
        return _unknown(error)
    shown, wanted = _shown(error.instance), error.validator_value
    texts: Mapping[str, Callable[[], str]] = {
        "type": lambda: f"must be {_types(wanted)}, not {shown}",
        "enum": lambda: f"must be one of {_joined(wanted)}, not {shown}",
        "required": lambda: error.message.replace(" is a required property", " is missing"),
        "anyOf": lambda: _alternatives(error),
        "oneOf": lambda: _alternatives(error),
        "pattern": lambda: f"{shown} has characters that are not allowed; allowed is {wanted}",
        "not": lambda: f"{shown} is not allowed: it looks like a UUID or has a matrix value in it",
    }
    return texts.get(str(error.validator), lambda: _cut(error))(), None


def _unknown(error: ValidationError) -> tuple[str, str | None]:
    known = error.schema.get("properties", {}) if isinstance(error.schema, Mapping) else {}
    extra = [str(key) for key in cast("Mapping[str, Any]", error.instance) if key not in known]
    hint = next((found for key in extra if (found := did_you_mean(key, known))), None)
    return f"has unknown keys: {', '.join(extra)}", hint


def _alternatives(error: ValidationError) -> str:
    found = {_types(child.validator_value) for child in error.context or () if child.validator == "type"}
    return f"must be {' or '.join(sorted(found))}, not {_shown(error.instance)}" if found else _cut(error)


def _joined(words: Any) -> str:
    return ", ".join(map(str, words))


def _types(names: Any) -> str:
    return " or ".join(_TYPES.get(name, str(name)) for name in ([names] if isinstance(names, str) else names))


def _shown(value: Any) -> str:
    if isinstance(value, (Mapping, list)):
        return "a mapping" if isinstance(value, Mapping) else "a list"
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def _cut(error: ValidationError) -> str:
    text = " ".join(error.message.split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def _dotted(path: list[str]) -> str:
    return "".join(f"[{part}]" if part.isdecimal() else f".{part}" for part in path).lstrip(".")
