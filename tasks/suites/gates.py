"""When a tier or a group of it runs: gates as data, held against a build here and written out as Buildkite's ``if``.

A gate is a list of conditions, of which one is enough. "main" is the default branch, outside a pull request and not of
a fork; every other build is "other", whatever its branch is called.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Protocol

SCHEDULES = ("NIGHTLY", "WEEKLY", "NON_CRITICAL")  # build variables that say, when exactly 1, which schedule this is


class Facts(Protocol):
    """What a gate asks about a build."""

    @property
    def is_main(self) -> bool:
        """Say whether this is the default branch, outside a pull request and not of a fork."""

    @property
    def pull_request(self) -> int | None:
        """Return the pull request's number, or None."""

    @property
    def fork(self) -> bool:
        """Say whether the pull request comes from another repository."""

    @property
    def labels(self) -> frozenset[str]:
        """Return the pull request's labels."""

    @property
    def schedules(self) -> frozenset[str]:
        """Return those of SCHEDULES that are set to exactly 1."""


class Branch(Enum):
    """Which builds a condition is about."""

    ANY = "any"
    MAIN = "main"
    OTHER = "other"


@dataclass(frozen=True)
class Condition:
    """What must be true of a build, all of it. Empty tuples and None ask for nothing.

    ``labels``: one of them is on the pull request. ``schedules``: one of them is set. ``without``: none of them is set.
    """

    branch: Branch = Branch.ANY
    labels: tuple[str, ...] = ()
    schedules: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    fork: bool | None = None


@dataclass(frozen=True)
class Gate:
    """Conditions of which one is enough; without any it never opens."""

    conditions: tuple[Condition, ...] = ()


def holds(gate: Gate, build: Facts) -> bool:
    """Say whether a gate is open for a build."""
    return any(_is_met(condition, build) for condition in gate.conditions)


def _is_met(condition: Condition, build: Facts) -> bool:
    labels = build.labels if build.pull_request is not None else frozenset()  # a build of a branch has none
    return (
        (condition.branch is Branch.ANY or (condition.branch is Branch.MAIN) == build.is_main)
        and (condition.fork is None or condition.fork == build.fork)
        and (not condition.labels or any(label in labels for label in condition.labels))
        and (not condition.schedules or any(name in build.schedules for name in condition.schedules))
        and not any(name in build.schedules for name in condition.without)
    )


def union(gates: Iterable[Gate]) -> Gate:
    """Return the gate that is open when one of these is; what differs only in its labels or schedules is put together.

    (A and x) or (A and y) is A and (x or y).
    """
    found: list[Condition] = []
    for condition in (condition for gate in gates for condition in gate.conditions):
        for place, other in enumerate(found):
            together = _together(other, condition)
            if together:
                found[place] = together
                break
        else:
            found.append(condition)
    return Gate(tuple(found))


def _together(one: Condition, other: Condition) -> Condition | None:
    if one == other:
        return one
    labels = tuple(dict.fromkeys((*one.labels, *other.labels)))
    if one.labels and other.labels and replace(one, labels=labels) == replace(other, labels=labels):
        return replace(one, labels=labels)
    schedules = tuple(dict.fromkeys((*one.schedules, *other.schedules)))
    if one.schedules and other.schedules and replace(one, schedules=schedules) == replace(other, schedules=schedules):
        return replace(one, schedules=schedules)
    return None


def schedules_only(gate: Gate) -> Gate:
    """Return the gate narrowed to builds of main that a schedule started: what is left of it when there is no change.

    A pull request opens nothing then, whatever its labels.
    """
    kept = []
    for condition in gate.conditions:
        schedules = condition.schedules or tuple(name for name in SCHEDULES if name not in condition.without)
        if condition.branch is not Branch.OTHER and not condition.labels and condition.fork is not True and schedules:
            kept.append(replace(condition, branch=Branch.MAIN, schedules=schedules, fork=None))
    return Gate(tuple(dict.fromkeys(kept)))


def labels_of(gate: Gate) -> tuple[str, ...]:
    """Return the labels that can open a gate, each once, in its order."""
    return tuple(dict.fromkeys(label for condition in gate.conditions for label in condition.labels))


def expression(gate: Gate) -> str:
    """Return a gate as a conditional of Buildkite's, which holds for the same builds.

    The branch's name is not in it: the pipeline's own setting says which one is the default. Only names of labels and
    variables that the gate's file declares are, so nothing that a build brings with it. Grammar: Buildkite's "Using
    conditionals"; no ``!`` and no regular expression is used.
    """
    if not gate.conditions:
        return "false"
    written = [_written(condition) for condition in gate.conditions]
    if "" in written:
        return "true"
    return written[0] if len(written) == 1 else " || ".join(f"({text})" for text in written)


_DEFAULT_BRANCH = "build.branch {} pipeline.default_branch"
_PULL_REQUEST = "build.pull_request.id {} null"
_FORK = "build.pull_request.repository.fork {} true"


def _written(condition: Condition) -> str:
    terms: list[str] = []
    if condition.branch is Branch.MAIN:
        terms += [_DEFAULT_BRANCH.format("=="), _PULL_REQUEST.format("=="), _FORK.format("!=")]
    elif condition.branch is Branch.OTHER:
        terms.append(_any((_DEFAULT_BRANCH.format("!="), _PULL_REQUEST.format("!="), _FORK.format("=="))))
    if condition.fork is not None:
        terms.append(_FORK.format("==" if condition.fork else "!="))
    if condition.labels:
        terms.append(_any(f'build.pull_request.labels includes "{label}"' for label in condition.labels))
    if condition.schedules:
        terms.append(_any(f'build.env("{name}") == "1"' for name in condition.schedules))
    terms += [f'build.env("{name}") != "1"' for name in condition.without]
    return " && ".join(dict.fromkeys(terms))


def _any(terms: Iterable[str]) -> str:
    found = list(terms)
    return found[0] if len(found) == 1 else f"({' || '.join(found)})"


def opened_by(gate: Gate, build: Facts) -> Condition | None:
    """Return the first condition that a build meets, or None."""
    return next((condition for condition in gate.conditions if _is_met(condition, build)), None)


def described(condition: Condition) -> str:
    """Return a condition in words, as a part of a sentence: ``main with NIGHTLY``, ``label ready outside main``."""
    labels = f"label {' or '.join(condition.labels)}" if condition.labels else ""
    words = {Branch.ANY: "" if labels else "any build", Branch.MAIN: "main", Branch.OTHER: "outside main"}
    found = [labels, words[condition.branch]]
    if condition.fork is not None:
        found.append("from a fork" if condition.fork else "not from a fork")
    if condition.schedules:
        found.append(f"with {' or '.join(condition.schedules)}")
    if condition.without:
        found.append(f"without {', '.join(condition.without)}")
    return " ".join(word for word in found if word)


def wanted(gate: Gate) -> str:
    """Return in words what would open a gate."""
    return ", or ".join(described(condition) for condition in gate.conditions) or "what no build has"
