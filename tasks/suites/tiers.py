"""The cells: which tiers run on which device, in which groups, and how each device's builds begin.

Read strictly from `.buildkite/tiers.yml`: what it names must exist, and nothing else is let in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType

from tasks.suites.gates import (
    SCHEDULES,
    Branch,
    Condition,
    Facts,
    Gate,
    holds,
    labels_of,
    schedules_only,
    union,
)
from tasks.support import paths
from tasks.support.errors import UsageError, did_you_mean, unknown_choice
from tasks.support.settings import CHECKOUT
from tasks.support.strict_yaml import Node, read_file

FILE = CHECKOUT / ".buildkite" / "tiers.yml"
DEVICES = ("cuda", "rocm", "xpu", "npu")
TIERS = ("ready", "merge", "nightly", "weekly")
E2E = "e2e"
"""The group that the weekly schedule runs of the tiers ready and merge."""

_WORD = re.compile(r"[a-z0-9]+(?:[-_][a-z0-9]+)*")
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/ -]*")  # nothing that could end a text in an expression


@dataclass(frozen=True)
class Group:
    """A cell's suites that share a gate, and how they are recognised in a native file."""

    name: str
    gate: Gate
    titles: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()

    def fits(self, title: str, key: str | None) -> bool:
        """Say whether a title or key is of this group; a group without patterns takes what is left."""
        return (
            not (self.titles or self.keys)
            or any(part in title for part in self.titles)
            or (key is not None and any(fnmatchcase(key, pattern) for pattern in self.keys))
        )


@dataclass(frozen=True)
class Cell:
    """One tier on one device. ``files`` are where a source may keep its steps, the first that is there counts."""

    name: str
    device: str
    tier: str
    groups: tuple[Group, ...]
    files: tuple[str, ...]

    @property
    def gate(self) -> Gate:
        """Return the gate of its upload: open when that of one of its groups is."""
        return union(group.gate for group in self.groups)

    def group_of(self, title: str, key: str | None = None) -> Group:
        """Return the group of what has this title and key in a native file: a group, or a step outside of all."""
        return next(group for group in self.groups if group.fits(title, key))

    def open_groups(self, build: Facts, *, skipped: bool = False) -> tuple[Group, ...]:
        """Return the groups whose gates are open; ``skipped`` as in ``gate_of``."""
        return tuple(group for group in self.groups if holds(gate_of(group, skipped=skipped), build))

    def record_name(self, build: Facts) -> str:
        """Return under which name an upload is recorded: a build with other groups open ran other steps."""
        names = [group.name for group in self.open_groups(build)]
        return self.name if len(names) in {0, len(self.groups)} else f"{self.name}/{'+'.join(names)}"

    def unmatched_labels(self, present: Iterable[str]) -> tuple[str, ...]:
        """Return the labels that upload the cell, but open none of the groups that its file really has (by name)."""
        there = set(present)
        opening = {label for group in self.groups if group.name in there for label in labels_of(group.gate)}
        return tuple(label for label in labels_of(self.gate) if label not in opening)


def gate_of(what: Cell | Group, *, skipped: bool) -> Gate:
    """Return the gate of a cell or group; of a skipped one only the schedules on main are left."""
    return schedules_only(what.gate) if skipped else what.gate


@dataclass(frozen=True)
class ImageStep:
    """The step that builds an image. ``timeout`` is in minutes; ``not_built`` says why it is left out."""

    image: str
    title: str
    key: str
    preset: str
    timeout: int
    not_built: str | None = None


@dataclass(frozen=True)
class UploadSteps:
    """The steps that upload cells: the preset that they run on, and their limit in minutes."""

    preset: str
    timeout: int


@dataclass(frozen=True)
class OneStep:
    """The step that builds, tests and cleans up on one host. ``inner`` is the tests' own limit; both in minutes."""

    cell: str
    title: str
    key: str
    preset: str
    priority: int
    timeout: int
    inner: int


@dataclass(frozen=True)
class Bootstrap:
    """How the builds of a device begin: with images and uploads, or with one step that does everything."""

    device: str
    images: tuple[ImageStep, ...] = ()
    upload: UploadSteps | None = None
    one_step: OneStep | None = None


@dataclass(frozen=True)
class Tiers:
    """What the file says, in its order."""

    cells: Mapping[str, Cell]
    bootstraps: Mapping[str, Bootstrap]

    def cell(self, name: str) -> Cell:
        """Return a cell; UsageError naming the closest when there is none of this name."""
        if name not in self.cells:
            raise unknown_choice("cell", name, self.cells)
        return self.cells[name]

    def of_device(self, device: str) -> tuple[Cell, ...]:
        """Return a device's cells; UsageError when there is no such device."""
        if device not in self.bootstraps:
            raise unknown_choice("device", device, self.bootstraps)
        return tuple(cell for cell in self.cells.values() if cell.device == device)

    def at_file(self, path: str) -> tuple[Cell, ...]:
        """Return the cells that may have their steps in this file of the source."""
        return tuple(cell for cell in self.cells.values() if path in cell.files)

    def not_covered(self, device: str) -> tuple[str, ...]:
        """Return the tiers that nothing tests on a device."""
        return tuple(tier for tier in TIERS if f"{device}_{tier}" not in self.cells)


def load(path: Path = FILE) -> Tiers:
    """Read the file; DataError with file and line when it is not as it should be."""
    root = read_file(path, shown_as=paths.from_checkout(path))
    keys = ("conditions", "groups", "bootstraps", "cells")
    top = root.table("the file", keys, keys)
    conditions = {name: _condition(node) for name, node in _named(top["conditions"], "conditions")}
    lists = {name: tuple(_groups(node, conditions)) for name, node in _named(top["groups"], "groups")}
    cells = {name: _cell(name, node, lists) for name, node in _named(top["cells"], "cells")}
    bootstraps = {name: _bootstrap(name, node, cells) for name, node in _named(top["bootstraps"], "bootstraps")}
    for cell in cells.values():
        if cell.device not in bootstraps:
            raise top["cells"].items("cells")[cell.name].fail(f"device {cell.device!r} has no bootstrap")
    return Tiers(MappingProxyType(cells), MappingProxyType(bootstraps))


def _named(node: Node, what: str) -> Iterator[tuple[str, Node]]:
    for name, child in node.items(what).items():
        if not _WORD.fullmatch(name):
            raise child.fail(f"a name in {what} is lower-case words joined by - or _, not {name!r}")
        yield name, child


def _condition(node: Node) -> Condition:
    table = node.table("a condition", ("branch", "labels", "schedules", "without", "fork"))
    branch = table["branch"].choice("branch", ("main", "other")) if "branch" in table else "any"
    found = Condition(
        branch=Branch(branch),
        labels=_labels(table["labels"]) if "labels" in table else (),
        schedules=_schedules(table, "schedules"),
        without=_schedules(table, "without"),
        fork=table["fork"].flag("fork") if "fork" in table else None,
    )
    if found.branch is Branch.MAIN and (found.labels or found.fork is not None):
        raise node.fail("main has neither labels nor forks", "it is the default branch outside a pull request")
    return found


def _labels(node: Node) -> tuple[str, ...]:
    labels = node.texts("labels")
    for label in labels:
        if not _LABEL.fullmatch(label):
            raise node.fail(f"{label!r} is no label's name")
    if not labels:
        raise node.fail("labels names none", "leave it out where no label is asked for")
    return labels


def _schedules(table: Mapping[str, Node], key: str) -> tuple[str, ...]:
    if key not in table:
        return ()
    names = tuple(child.choice("schedule", SCHEDULES) for child in table[key].elements(key))
    if not names:
        raise table[key].fail(f"{key} names none", "leave it out where no schedule is asked for")
    return names


def _groups(node: Node, conditions: Mapping[str, Condition]) -> Iterator[Group]:
    listed = list(_named(node, "a list of groups"))
    for place, (name, child) in enumerate(listed, 1):
        table = child.table(f"group {name}", ("titles", "keys", "when"), ("when",))
        names = [word.choice("condition", conditions) for word in table["when"].elements("when")]
        titles = table["titles"].texts("titles") if "titles" in table else ()
        keys = table["keys"].texts("keys") if "keys" in table else ()
        if bool(titles or keys) == (place == len(listed)):
            raise child.fail("the last group of a list takes the rest: it, and no other, has neither titles nor keys")
        yield Group(name, Gate(tuple(dict.fromkeys(conditions[word] for word in names))), titles, keys)
    if not listed:
        raise node.fail("a list of groups is empty")


def _cell(name: str, node: Node, lists: Mapping[str, tuple[Group, ...]]) -> Cell:
    device, _, tier = name.partition("_")
    if device not in DEVICES or tier not in TIERS:
        names = [f"{device}_{tier}" for device in DEVICES for tier in TIERS]
        raise node.fail(f"{name!r} is no cell", did_you_mean(name, names) or "a cell is named device_tier")
    table = node.table(f"cell {name}", ("groups", "files"), ("groups", "files"))
    files = table["files"].texts("files")
    if not files:
        raise table["files"].fail(f"cell {name} has no file")
    for path in files:
        if path.startswith("/") or ".." in path.split("/"):
            raise table["files"].fail(f"{path!r} is not a path in the source")
    return Cell(name, device, tier, lists[table["groups"].choice("list of groups", lists)], files)


def _bootstrap(device: str, node: Node, cells: Mapping[str, Cell]) -> Bootstrap:
    if device not in DEVICES:
        raise node.fail(f"unknown device {device!r}", did_you_mean(device, DEVICES))
    table = node.table(f"bootstrap {device}", ("images", "upload", "one-step"))
    if ("one-step" in table) == ("images" in table) or ("upload" in table) != ("images" in table):
        raise node.fail(f"{device} begins with images and upload, or with one-step")
    if "one-step" in table:
        return Bootstrap(device, one_step=_one_step(table["one-step"], device, cells))
    images = tuple(_image_step(name, child) for name, child in _named(table["images"], "images"))
    if all(image.not_built for image in images):
        raise table["images"].fail(f"{device} has no image that is built")
    upload = table["upload"].table("upload", ("preset", "timeout"), ("preset", "timeout"))
    return Bootstrap(device, images, UploadSteps(upload["preset"].text("preset"), _minutes(upload["timeout"])))


def _image_step(name: str, node: Node) -> ImageStep:
    keys = ("title", "key", "preset", "timeout")
    table = node.table(f"image {name}", (*keys, "not-built"), keys)
    return ImageStep(
        image=name,
        title=table["title"].text("title"),
        key=table["key"].text("key"),
        preset=table["preset"].text("preset"),
        timeout=_minutes(table["timeout"]),
        not_built=table["not-built"].text("not-built") if "not-built" in table else None,
    )


def _one_step(node: Node, device: str, cells: Mapping[str, Cell]) -> OneStep:
    keys = ("cell", "title", "key", "preset", "priority", "timeout", "inner")
    table = node.table("one-step", keys, keys)
    found = OneStep(
        cell=table["cell"].choice("cell", [name for name, cell in cells.items() if cell.device == device]),
        title=table["title"].text("title"),
        key=table["key"].text("key"),
        preset=table["preset"].text("preset"),
        priority=table["priority"].count("priority"),
        timeout=_minutes(table["timeout"]),
        inner=_minutes(table["inner"]),
    )
    if found.inner >= found.timeout:
        raise table["inner"].fail("the tests' own limit must be shorter than the step's")
    return found


def _minutes(node: Node) -> int:
    minutes = node.count("a limit in minutes")
    if not minutes:
        raise node.fail("a limit in minutes is at least 1")
    return minutes


def chosen_cells(tiers: Tiers, device: str, names: Iterable[str]) -> tuple[Cell, ...]:
    """Return the cells that ``--tier`` names, in the order given, or all of the device when it names none.

    Raises UsageError for a tier that the device does not have and for one that is named twice.
    """
    cells = {cell.tier: cell for cell in tiers.of_device(device)}
    found: dict[str, Cell] = {}
    for name in names:
        if name not in cells:
            raise unknown_choice(f"tier of {device}", name, cells)
        if name in found:
            raise UsageError(f"tier {name!r} is named twice", hint="name each tier once")
        found[name] = cells[name]
    return tuple(found.values()) or tuple(cells.values())
