"""A step's preset: which one it means, and the step with the preset's keys written out."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from tasks.pipelines.dollar import UPLOAD_NAMES, double, is_secret
from tasks.pipelines.model import COMMANDS, Step, commands_of
from tasks.suites.presets import Preset, Presets
from tasks.support.errors import DataError, did_you_mean

PRESET_KEY = "mirror_hardwares"
PLACES = ("agents", "plugins")
"""A step that has one of these says itself where it runs."""

_OTHER_STEPS = frozenset({"wait", "waiter", "block", "input", "manual", "trigger", "group"})
_MARKS = re.compile(r"(?:^|\s)-m[\s=]*(?:'([^']*)'|\"([^\"]*)\"|([^\s'\"]+))")
_CARDS = re.compile(r"cards_([0-9]{1,3})")
_LOGIN_PLUGINS = re.compile(
    r"(?:.*/)?(?:docker-login|ecr|gcp-.*auth|vault-.*|aws-sm|aws-ssm|s3-secrets)(?:-buildkite-plugin)?(?:\.git)?(?:#.*)?"
)
_LISTS_OF_NAMES = frozenset({"environment", "env"})


def is_command(body: Mapping[str, Any]) -> bool:
    """Say whether a step runs something on an agent."""
    return _OTHER_STEPS.isdisjoint(body) and str(body.get("type")) not in _OTHER_STEPS


def choose(step: Step, presets: Presets, *, agents_above: bool = False) -> Preset | None:
    """Return the preset of a step: the one it names, else the one that its marks mean; None when it needs none.

    ``agents_above`` says that the pipeline's own ``agents`` are there for steps without any. Raises DataError with file
    and line for a preset that does not exist, for one beside agents or plugins of the step's own, and where the marks
    do not say which.
    """
    named = step.body.get(PRESET_KEY)
    own = [key for key in PLACES if step.body.get(key)]
    if named is not None:
        if not is_command(step.body):
            raise _fail(step, PRESET_KEY, f"step {step.name!r} runs nothing and has {PRESET_KEY}")
        if own:
            message = f"step {step.name!r} has {own[0]} of its own and {PRESET_KEY}: {named}"
            raise _fail(step, PRESET_KEY, message, f"remove one of them: {PRESET_KEY} brings agents and plugins")
        return _named(step, named, presets)
    if own or agents_above or not is_command(step.body):
        return None
    return _inferred(step, presets)


def expand(
    body: Mapping[str, Any], preset: Preset, *, trusted: bool = True, env_above: Collection[str] = ()
) -> dict[str, Any]:
    """Return a step with its preset written out: what the step has itself stays, in its order.

    Commands begin in the preset's folder, or in the step's ``working_dir``. Variables that the pipeline sets
    (``env_above``) win over the preset's. Without ``trusted``, everything that hands out a secret is left out. Every
    dollar that the preset adds survives the agent's interpolation, except names that exist at upload.

    Raises DataError when the step has agents or plugins of its own, or an env or working_dir that is none.
    """
    for key in PLACES:
        if body.get(key):
            raise DataError(f"a step with {key} of its own cannot have the preset {preset.name} too")
    step = {key: value for key, value in body.items() if key not in {PRESET_KEY, "working_dir", *PLACES}}
    _enter(step, body.get("working_dir"), preset)
    added = dict(preset.body)
    env = {name: value for name, value in added.pop("env", {}).items() if name not in env_above}
    own = step.get("env") or {}
    if not isinstance(own, Mapping):
        raise DataError("env must be a mapping of names to values")
    env = {**_doubled(env), **own}
    if env:
        step["env"] = env
    step |= {key: _doubled(value) for key, value in added.items() if key not in step}
    return step if trusted else without_secrets(step)


def hardware_marks(body: Mapping[str, Any]) -> frozenset[str]:
    """Return the marks that the step's ``-m`` expressions ask for; those after ``not`` are not asked for."""
    return frozenset(
        name
        for _, text in commands_of(body)
        for found in _MARKS.finditer(text)
        for name in _wanted(next(filter(None, found.groups()), ""))
    )


def without_secrets(step: Mapping[str, Any]) -> dict[str, Any]:
    """Return a step that is handed no secret: no secret's variable, no mounted secret, no login to a registry."""
    body = {key: value for key, value in step.items() if key != "secrets"}
    cleaned = _cleaned(body, "", frozenset(_secret_volumes(body)))
    return dict(cleaned)


def _named(step: Step, named: Any, presets: Presets) -> Preset:
    if not isinstance(named, str):
        hint = "a list is AMD's form, where each step has an agent_pool" if isinstance(named, list) else None
        raise _fail(step, PRESET_KEY, f"{PRESET_KEY} of step {step.name!r} must be the name of a preset", hint)
    preset = presets.find(named)
    if preset is None:
        hint = did_you_mean(named, presets.names()) or f"choose from {', '.join(presets.presets)}"
        raise _fail(step, PRESET_KEY, f"step {step.name!r} has an unknown preset {named!r}", hint)
    return preset


def _inferred(step: Step, presets: Presets) -> Preset:
    marks = hardware_marks(step.body)
    hardware = sorted(marks & presets.marks())
    families = {preset.family for mark in hardware for preset in presets.with_mark(mark)}
    hint = f"add a line {PRESET_KEY}: <preset>, or agents of its own"
    if not hardware:
        message = f"step {step.name!r} has no agents, no {PRESET_KEY} and no mark of a hardware in -m"
        raise _fail(step, None, message, hint)
    if len(families) > 1:
        message = f"step {step.name!r} has marks of several kinds of hardware: {', '.join(hardware)}"
        raise _fail(step, None, message, hint)
    known = presets.with_mark(hardware[0])
    cards = max((int(found[1]) for mark in marks if (found := _CARDS.fullmatch(mark))), default=0)
    several = not cards and any(mark.startswith("distributed_") for mark in marks)
    enough = [preset for preset in known if preset.count >= (cards or (2 if several else 1))]
    if not enough:
        message = f"step {step.name!r} wants {cards or 2} devices, and no preset has so many {hardware[0]}"
        raise _fail(step, None, message, f"there are {', '.join(preset.name for preset in known)}")
    if several and len(enough) > 1:
        message = f"step {step.name!r} wants several {hardware[0]} and does not say how many"
        raise _fail(step, None, message, f"add {PRESET_KEY}: one of {', '.join(preset.name for preset in enough)}")
    return enough[0]


def _wanted(expression: str) -> Iterator[str]:
    """Return the names of a mark expression that are not negated; nothing for what is no expression."""
    try:
        tree = ast.parse(expression.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    waiting: list[tuple[ast.expr, bool]] = [(tree, True)]
    while waiting:
        node, wanted = waiting.pop()
        if isinstance(node, ast.BoolOp):
            waiting.extend((value, wanted) for value in node.values)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            waiting.append((node.operand, not wanted))
        elif isinstance(node, ast.Call):
            waiting.append((node.func, wanted))
        elif isinstance(node, ast.Name) and wanted:
            yield node.id


def _enter(step: dict[str, Any], working_dir: Any, preset: Preset) -> None:
    """Let the step's commands begin in a folder; the checkout needs nothing."""
    folder = working_dir or (preset.workdir if preset.in_image else "source")
    if not isinstance(folder, str):
        raise DataError(f"working_dir must be a folder, not {folder!r}")
    if folder == "source":
        return
    for key in COMMANDS:  # of two, the agent chooses
        own = step.get(key)
        if own:
            step[key] = [double(f"cd {shlex.quote(folder)}"), *(own if isinstance(own, list) else [own])]


def _doubled(value: Any) -> Any:
    if isinstance(value, str):
        return double(value, keep=UPLOAD_NAMES) if "$" in value else value
    if isinstance(value, Mapping):
        return {key: _doubled(child) for key, child in value.items()}
    if isinstance(value, list):
        return [_doubled(child) for child in value]
    return value


def _cleaned(value: Any, key: str, volumes: frozenset[str]) -> Any:
    """Return a value without what hands out secrets; ``key`` is what it stands under, ``volumes`` are those that go."""
    if isinstance(value, Mapping):
        return {name: _cleaned(child, name, volumes) for name, child in value.items() if not _hands_out(name, child)}
    if isinstance(value, list):
        return [_cleaned(child, key, volumes) for child in value if not _is_secret_element(child, key, volumes)]
    return value


def _secret_volumes(value: Any, key: str = "") -> Iterator[str]:
    """Return the names of the volumes that hold secrets, however deep."""
    children = value.items() if isinstance(value, Mapping) else ((key, child) for child in value)
    for name, child in children:
        if isinstance(child, Mapping) and key == name == "volumes" and _SECRET_SOURCES & _keys(child):
            yield str(child.get("name", ""))
        elif isinstance(child, Mapping | list):
            yield from _secret_volumes(child, name)


def _hands_out(name: Any, value: Any) -> bool:
    text = str(name)
    return (
        text in _HANDED_OVER
        or text.startswith("vault.hashicorp.com/")
        or is_secret(text)
        or (isinstance(value, Mapping) and bool(_LOGIN_PLUGINS.fullmatch(text)))
    )


def _is_secret_element(element: Any, key: str, volumes: frozenset[str]) -> bool:
    if isinstance(element, str):
        if key == "plugins":
            return bool(_LOGIN_PLUGINS.fullmatch(element))
        return key in _LISTS_OF_NAMES and is_secret(element.partition("=")[0])
    if not isinstance(element, Mapping):
        return False
    if key == "plugins" and any(_LOGIN_PLUGINS.fullmatch(str(name)) for name in element):
        return True
    if key in {"env", "envFrom", "gitEnvFrom"}:
        return is_secret(str(element.get("name", ""))) or bool(_SECRET_SOURCES & _keys(element))
    return key in {"volumes", "volumeMounts"} and str(element.get("name", "")) in volumes


_HANDED_OVER = frozenset(
    {"imagePullSecrets", "propagate-aws-auth-tokens", "propagate-gcp-auth-tokens", "mount-ssh-agent"}
)
_SECRET_SOURCES = frozenset({"secret", "secretKeyRef", "secretRef", "serviceAccountToken"})


def _keys(value: Any) -> set[str]:
    if isinstance(value, Mapping):
        return {*map(str, value), *(key for child in value.values() for key in _keys(child))}
    return {key for child in value for key in _keys(child)} if isinstance(value, list) else set()


def _fail(step: Step, key: str | None, message: str, hint: str | None = None) -> DataError:
    where = step.where
    if key is not None and key in step.lines:
        where = f"{where.rpartition(':')[0]}:{step.lines[key]}"
    return DataError(f"{where}: {message}", hint=hint)
