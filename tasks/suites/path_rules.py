"""The language of path rules: what a suite, an area or a pipeline step says of the files it depends on."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise

from tasks.support.errors import DataError, did_you_mean

AREA_PREFIX = "area:"
AREA_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")

_LONGEST = 1000
_MOST_WILDCARDS = 10  # nobody means more, and every one costs time on each changed file
_OTHER_GLOBS = frozenset("?[]{}")


@dataclass(frozen=True)
class Rule:
    """One path rule. ``path`` has neither ``!`` nor ``./`` nor a closing slash, and is in Unicode's composed form.

    Without a ``*`` it covers the file or submodule of that name and everything below a folder of that name. With one it
    covers the files whose whole path fits: ``*`` is any part of one name, ``**`` any number of folders. ``folder`` says
    that a glob ended in a slash: it covers everything below the folders that fit. ``inside`` are the rules of ``area``.
    """

    text: str
    path: str
    negated: bool = False
    folder: bool = False
    area: str | None = None
    inside: tuple[Rule, ...] = field(default=(), hash=False)

    @property
    def is_glob(self) -> bool:
        """Say whether the rule has a wildcard."""
        return self.area is None and "*" in self.path


Areas = Mapping[str, tuple[Rule, ...]]


def literal(path: str) -> Rule:
    """Make the rule for one path that code knows, whatever characters it has; a ``*`` in it would be a wildcard."""
    return Rule(text=path, path=composed(path))


def parse_rules(value: object, areas: Areas, where: str) -> tuple[Rule, ...]:
    """Read a list of rules, or a single one; ``where`` is what messages call it, e.g. ``areas.yml:12``.

    A bare word is an area when there is one of that name, else a path; ``area:x`` is always an area. The order of a
    list has no meaning: a file counts when a rule covers it and no rule with ``!`` does. Raises DataError for a rule
    that is not in the language, for one that is there twice, for a list that only excludes and for what is no list
    of texts.
    """
    found: dict[tuple[str, bool, bool, str | None], Rule] = {}
    for text in [value] if isinstance(value, str) else value if isinstance(value, list | tuple) else [value]:
        if not isinstance(text, str):
            raise DataError(
                f"{where}: path rules must be a list of paths or areas", hint="write each as a path or an area's name"
            )
        rule = parse_rule(text, areas, where)
        key = (rule.path, rule.negated, rule.folder, rule.area)
        if key in found:
            raise DataError(f"{where}: {text!r} says the same as {found[key].text!r}", hint="remove one of them")
        found[key] = rule
    if found and all(rule.negated for rule in found.values()):
        raise DataError(f"{where}: every rule starts with !, so no file can match", hint="add a rule without !")
    return tuple(found.values())


def parse_rule(text: str, areas: Areas, where: str) -> Rule:
    """Read one rule; DataError with ``where`` when it is not in the language or names an area that is not there."""
    negated = text.startswith("!")
    body = text.removeprefix("!")
    name = body.removeprefix(AREA_PREFIX)
    if body.startswith(AREA_PREFIX) and name not in areas:
        hint = did_you_mean(name, areas) or f"known areas are {', '.join(sorted(areas)) or 'none'}"
        raise DataError(f"{where}: there is no area {name!r}", hint=hint)
    if name in areas:
        return Rule(text=text, path=name, negated=negated, area=name, inside=areas[name])
    path = _checked(body, text, where)
    folder = path.endswith("/") and "*" in path
    return Rule(text=text, path=composed(path.rstrip("/")), negated=negated, folder=folder)


def composed(path: str) -> str:
    """Return a path in Unicode's composed form: macOS and Linux write one name with different bytes."""
    return path if path.isascii() else unicodedata.normalize("NFC", path)


def _checked(body: str, text: str, where: str) -> str:
    path = body
    while path.startswith("./"):
        path = path[2:]
    problem = _problem(path)
    if problem:
        raise DataError(f"{where}: path rule {text!r} {problem[0]}", hint=problem[1])
    return path


@lru_cache(maxsize=4096)
def _problem(path: str) -> tuple[str, str | None] | None:
    """Return what is wrong with a path and how to write it, or None."""
    segments = path.removesuffix("/").split("/")
    faults: tuple[tuple[bool, str, str | None], ...] = (
        (path.startswith("/"), "starts with a slash", "rules start at the source's top folder: leave the slash out"),
        (path.startswith("!"), "starts with two !", None),
        (path != path.strip() or not path.isprintable(), "has white space around it or unprintable characters", None),
        (
            any(segment in {"", ".", ".."} for segment in segments),
            "has an empty, . or .. part",
            "name a file or folder below the source's top folder",
        ),
        ("\\" in path, "has a backslash", "folders are parted by /"),
        (
            bool(_OTHER_GLOBS & set(path)),
            "has one of ?[]{}",
            "the wildcards are * (inside a name) and ** (any folders); write one rule for each case",
        ),
    )
    first = next(((what, hint) for wrong, what, hint in faults if wrong), None)
    return first or _bad_wildcards(path, segments)


def _bad_wildcards(path: str, segments: list[str]) -> tuple[str, str | None] | None:
    if len(path) > _LONGEST or len(re.findall(r"\*+", path)) > _MOST_WILDCARDS:
        return (
            f"is longer than {_LONGEST} characters or has more than {_MOST_WILDCARDS} wildcards",
            "write several rules",
        )
    for segment in segments:
        if "**" in segment and segment != "**":
            fixed = segment.replace("**", "**/*") if segment.startswith("**") else segment.replace("**", "*/**/*")
            whole = path.replace(segment, fixed, 1).replace("**/**", "**/*")
            hint = f"** stands for whole folders: write {whole}" if "***" not in segment else None
            return "has a ** that is only a part of a name", hint
    if any(pair == ("**", "**") for pair in pairwise(segments)):
        return "has two ** in a row", "one ** already stands for any number of folders"
    return None
