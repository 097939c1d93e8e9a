"""The presets, `.buildkite/presets.yml`: the queue, hardware, image and retries with which steps run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tasks.support import paths
from tasks.support.errors import UsageError, did_you_mean
from tasks.support.settings import CHECKOUT
from tasks.support.strict_yaml import Node, read_file

FILE = CHECKOUT / ".buildkite" / "presets.yml"
DEVICES = ("cuda", "rocm", "xpu", "npu", "cpu")

_FAMILY = ("device", "marks", "image", "reference", "in-image", "workdir", "cache", "retry", "step")
_FAMILY_NEEDS = ("device", "in-image", "workdir", "retry", "step")
_PRESET = ("family", "count", "queue", "also")
_PLACEHOLDER = re.compile(r"\$\{([a-z]+)\}")
_NAME = re.compile(r"[a-z0-9]+(?:_[a-z0-9]+)*")
_EXIT_STATUS = re.compile(r"-?[0-9]{1,4}")
_LAST_OF_TESTS = 127  # pytest's, the shell's and people's own exit codes; above are signals and git
_STEP = frozenset({"agents", "plugins", "env", "priority"})


@dataclass(frozen=True)
class Preset:
    """Where a step runs. ``count`` is the number of devices, 0 where there is none.

    ``marks`` are pytest's marks for the hardware. ``image`` is its name in the catalogue of images, ``reference`` where
    jobs pull it, with ``$BUILDKITE_COMMIT`` to be interpolated at upload. ``workdir`` is where commands start;
    ``source`` is the checkout. ``body`` has the step's keys, ``retry`` included; `expand` writes it for the agent.
    """

    name: str
    family: str
    device: str
    count: int
    queue: str
    marks: tuple[str, ...]
    image: str | None
    reference: str | None
    in_image: bool
    workdir: str
    cache: str | None
    body: Mapping[str, Any]
    also: tuple[str, ...] = ()
    where: str = ""


@dataclass(frozen=True)
class Presets:
    """All presets in the file's order, and their other names."""

    presets: Mapping[str, Preset]
    aliases: Mapping[str, str]

    def __iter__(self) -> Iterator[Preset]:
        return iter(self.presets.values())

    def names(self) -> tuple[str, ...]:
        """Return every name that `get` takes."""
        return (*self.presets, *self.aliases)

    def find(self, name: str) -> Preset | None:
        """Return the preset of this name or other name, or None."""
        return self.presets.get(self.aliases.get(name, name))

    def get(self, name: str) -> Preset:
        """Return the preset of this name or other name, or raise UsageError naming the closest."""
        found = self.find(name)
        if found is None:
            hint = did_you_mean(name, self.names()) or f"choose from {', '.join(self.presets)}"
            raise UsageError(f"unknown preset {name!r}", hint=hint)
        return found

    def with_mark(self, mark: str) -> tuple[Preset, ...]:
        """Return the presets whose hardware has this mark, those with fewer devices first."""
        return tuple(sorted((preset for preset in self if mark in preset.marks), key=lambda preset: preset.count))

    def marks(self) -> frozenset[str]:
        """Return every hardware mark."""
        return frozenset(mark for preset in self for mark in preset.marks)


def load(file: Path = FILE) -> Presets:
    """Read the presets; DataError with file and line for the first thing that is wrong."""
    known = ("retries", "families", "presets")
    table = read_file(file, shown_as=paths.from_checkout(file)).table("the presets", known, known)
    retries = {name: _retries(name, node) for name, node in table["retries"].items("retries").items()}
    families = {
        name: node.table(f"family {name}", _FAMILY, _FAMILY_NEEDS)
        for name, node in table["families"].items("families").items()
    }
    presets: dict[str, Preset] = {}
    aliases: dict[str, str] = {}
    for name, node in table["presets"].items("presets").items():
        preset = _preset(name, node, families, retries)
        for word in (name, *preset.also):
            if word in presets or word in aliases or (word == name and name in preset.also):
                raise node.fail(f"two presets are called {word!r}")
            if not _NAME.fullmatch(word):
                raise node.fail(f"not a preset's name: {word!r}", "use lower-case letters, digits and single _")
        presets[name] = preset
        aliases |= dict.fromkeys(preset.also, name)
    return Presets(MappingProxyType(presets), MappingProxyType(aliases))


def _preset(
    name: str, node: Node, families: Mapping[str, Mapping[str, Node]], retries: Mapping[str, list[dict[str, Any]]]
) -> Preset:
    table = node.table(f"preset {name}", _PRESET, ("family", "count", "queue"))
    family = families[table["family"].choice("family", tuple(families))]
    count, queue = table["count"].count("count"), table["queue"].text("queue")
    reference = family["reference"].text("reference") if "reference" in family else None
    cache = family["cache"].text("cache") if "cache" in family else None
    values: dict[str, str | int | None] = {"count": count, "queue": queue, "reference": reference, "cache": cache}
    step = family["step"].items("step")
    for key, value in step.items():
        if key not in _STEP:
            raise value.fail(f"unknown key {key!r} in a template", did_you_mean(key, _STEP))
    body = {key: _filled(value, values) for key, value in step.items()}
    body["retry"] = {"automatic": retries[family["retry"].choice("retry", tuple(retries))]}
    return Preset(
        name=name,
        family=table["family"].text("family"),
        device=family["device"].choice("device", DEVICES),
        count=count,
        queue=queue,
        marks=family["marks"].texts("marks") if "marks" in family else (),
        image=family["image"].text("image") if "image" in family else None,
        reference=reference,
        in_image=family["in-image"].flag("in-image"),
        workdir=family["workdir"].text("workdir"),
        cache=cache,
        body=MappingProxyType(body),
        also=table["also"].texts("also") if "also" in table else (),
        where=node.where,
    )


def _filled(node: Node, values: Mapping[str, str | int | None]) -> Any:
    """Return what a template's value is for one preset; a text that is one placeholder gets the value's own type."""
    if isinstance(node.value, Mapping):
        return {key: _filled(child, values) for key, child in node.value.items()}
    if isinstance(node.value, tuple):
        return [_filled(child, values) for child in node.value]
    if not isinstance(node.value, str):
        return node.value
    for name in _PLACEHOLDER.findall(node.value):
        if values.get(name) is None:
            raise node.fail(f"{name!r} has no value here", did_you_mean(name, [key for key in values if values[key]]))
    whole = _PLACEHOLDER.fullmatch(node.value)
    if whole:
        return values[whole[1]]
    return _PLACEHOLDER.sub(lambda found: str(values[found[1]]), node.value)


def _retries(name: str, node: Node) -> list[dict[str, Any]]:
    """Read one list; a rule that would try a test's own failure again is refused."""
    rules = []
    for element in node.elements(f"retries {name}"):
        rule = element.table("a retry", ("exit_status", "signal_reason", "limit"), ("limit",))
        found: dict[str, Any] = {}
        if "exit_status" in rule:
            found["exit_status"] = _exit_status(rule["exit_status"])
        if "signal_reason" in rule:
            found["signal_reason"] = rule["signal_reason"].choice("signal_reason", ("agent_stop", "stack_error"))
        if not found:
            raise element.fail("a retry without exit_status or signal_reason would try everything again")
        found["limit"] = rule["limit"].count("limit")
        rules.append(found)
    return rules


def _exit_status(node: Node) -> int:
    words = str(node.value)  # strict YAML knows no negative numbers: they are in quotes
    if isinstance(node.value, bool) or not _EXIT_STATUS.fullmatch(words):
        raise node.fail("exit_status must be a whole number, a negative one in quotes")
    status = int(words)
    if 0 <= status <= _LAST_OF_TESTS:
        raise node.fail(f"exit status {status} can be a test's own, and a failed test is never tried again")
    return status
