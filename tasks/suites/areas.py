"""The catalogue of areas, `.buildkite/areas.yml`: named path rules, and those that hold for every suite."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from types import MappingProxyType

from tasks.suites.path_rules import AREA_NAME, Areas, Rule, parse_rules
from tasks.support import paths
from tasks.support.errors import DataError, did_you_mean
from tasks.support.settings import CHECKOUT
from tasks.support.strict_yaml import Node, read_bytes, read_file

FILE = CHECKOUT / ".buildkite" / "areas.yml"

KEYS = ("run_all", "ignore", "unmatched", "docs", "areas")
_AREA_HINT = "use small letters, digits and single hyphens"


class Unmatched(Enum):
    """What a changed file does that no rule covers: run everything, or only what always runs."""

    RUN_ALL = "run_all"
    UNGATED = "ungated"


@dataclass(frozen=True)
class PathRules:
    """The rules that hold for every suite.

    A file under ``run_all`` runs everything. A file under ``ignore`` matches no suite and is not looked for in
    ``unmatched``; a file under ``docs`` is not either, and a change of nothing else runs nothing. An ignored file
    alone skips nothing: what always runs still does.
    """

    run_all: tuple[Rule, ...] = ()
    ignore: tuple[Rule, ...] = ()
    unmatched: Unmatched = Unmatched.RUN_ALL
    docs: tuple[Rule, ...] = ()
    areas: Areas = field(default_factory=lambda: MappingProxyType({}))

    def parse(self, value: object, where: str) -> tuple[Rule, ...]:
        """Read a step's list of rules, which may name areas; DataError with ``where`` when it is none, or empty."""
        found = parse_rules(value, self.areas, where)
        if not found:
            raise DataError(
                f"{where}: path rules must be a list of paths or areas", hint="remove the key from what always runs"
            )
        return found

    def with_own(self, top: Mapping[str, object], where: Mapping[str, str]) -> PathRules:
        """Return these rules with those that a pipeline file has above its steps.

        Its ``run_all``, ``ignore``, ``docs`` and ``areas`` come in addition, an area of the same name and
        ``unmatched`` instead. ``where`` has ``file:line`` of each key. Raises DataError for what is no such rule.
        """
        own = {key: top[key] for key in KEYS if key in top}
        if not own:
            return self
        areas = own.get("areas", {})
        if not isinstance(areas, Mapping):
            raise DataError(f"{where['areas']}: areas must be a mapping of names to path rules")
        unmatched = own.get("unmatched", self.unmatched.value)
        words = [choice.value for choice in Unmatched]
        if unmatched not in words:
            hint = did_you_mean(str(unmatched), words) or f"choose from {', '.join(words)}"
            raise DataError(f"{where['unmatched']}: unknown unmatched {unmatched!r}", hint=hint)
        named = {}
        for name, value in areas.items():
            if not AREA_NAME.fullmatch(name) or not value:
                raise DataError(f"{where['areas']}: area {name!r} has no rules or no good name", hint=_AREA_HINT)
            named[name] = parse_rules(value, {}, f"{where['areas']}: area {name}")
        more = {key: parse_rules(own.get(key, ()), {}, where.get(key, "")) for key in ("run_all", "ignore", "docs")}
        return PathRules(
            run_all=self.run_all + more["run_all"],
            ignore=self.ignore + more["ignore"],
            unmatched=Unmatched(unmatched),
            docs=self.docs + more["docs"],
            areas=MappingProxyType({**self.areas, **named}),
        )


def load(path: Path = FILE) -> PathRules:
    """Read the catalogue; MissingInputError when it is not there, DataError with file and line when it is wrong."""
    return _read(read_file(path, shown_as=paths.from_checkout(path)))


def read(data: bytes, name: str) -> PathRules:
    """Read a catalogue's text; DataError with ``name`` and line when it is wrong."""
    return _read(read_bytes(data, name))


def _read(root: Node) -> PathRules:
    found = root.table("the catalogue of areas", KEYS, ("unmatched",))
    areas = found["areas"].items("areas") if "areas" in found else {}
    return PathRules(
        run_all=_rules(found, "run_all"),
        ignore=_rules(found, "ignore"),
        unmatched=Unmatched(found["unmatched"].choice("unmatched", [choice.value for choice in Unmatched])),
        docs=_rules(found, "docs"),
        areas=MappingProxyType({name: _area(name, areas) for name in areas}),
    )


def _area(name: str, areas: Mapping[str, Node]) -> tuple[Rule, ...]:
    if not AREA_NAME.fullmatch(name):
        raise areas[name].fail(f"an area cannot be called {name!r}", _AREA_HINT)
    rules = _rules(areas, name)
    if not rules:
        raise areas[name].fail(f"area {name} has no rules")
    return rules


def _rules(table: Mapping[str, Node], key: str) -> tuple[Rule, ...]:
    """Read a list of rules in which no area can be named, each error with its own line."""
    if key not in table:
        return ()
    node = table[key]
    for entry in node.elements(key):
        parse_rules([entry.text(f"an entry of {key}").removeprefix("!")], {}, entry.where)
    return parse_rules(node.texts(key), {}, node.where)
