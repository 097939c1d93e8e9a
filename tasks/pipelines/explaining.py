"""Say which steps run and why, from the decisions themselves: for people, for machines and on the build's page."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tasks.pipelines.model import Decision
from tasks.support import console

if TYPE_CHECKING:
    from tasks.pipelines.changes import ChangeSet

ANNOTATION_LIMIT = 2**20
"""Buildkite refuses a longer annotation (its docs, "Annotations"); in bytes of UTF-8."""

_ROOM = 4096  # for what an annotation says beside its rows, in bytes
_LONGEST = 300  # characters of one text in an annotation
_PUNCTUATION = re.compile(r"([!-/:-@\[-`{-~])")


@dataclass(frozen=True)
class Explanation:
    """Every decision about a pipeline. ``title`` is the cell or file, ``notes`` what else there is to say, last."""

    title: str
    changes: ChangeSet
    decisions: tuple[Decision, ...]
    notes: tuple[str, ...] = ()

    @property
    def steps(self) -> tuple[Decision, ...]:
        """Return the decisions about steps that do something: no wait, block or input."""
        from tasks.pipelines.structure import structural_kind

        return tuple(decision for decision in self.decisions if structural_kind(decision.step) is None)

    @property
    def runs(self) -> bool:
        """Say whether any step is left that does something."""
        return any(decision.keep for decision in self.steps)

    @property
    def heading(self) -> str:
        """Return the first line: the pipeline, and what changed in which comparison."""
        return f"{self.title} · {changed(self.changes)}"

    @property
    def summary(self) -> str:
        """Return the last line: how many steps run, and the notes."""
        steps = self.steps
        kept = sum(decision.keep for decision in steps)
        return " · ".join((f"{kept} of {console.plural(len(steps), 'step')}", *self.notes))


def changed(changes: ChangeSet) -> str:
    """Return how many files changed, and against what; for an unknown change set, why it is unknown."""
    from tasks.pipelines.changes import State

    if changes.state is State.UNKNOWN:
        return f"changed files {changes.how}"
    return f"{console.plural(len(changes.paths), 'changed file')} {changes.how}"


def names_of(decisions: Sequence[Decision]) -> list[str]:
    """Return what each step is called; of several with one name, each with its line."""
    often = Counter(decision.step.name for decision in decisions)
    return [
        decision.step.name if often[decision.step.name] == 1 else f"{decision.step.name} ({decision.step.where})"
        for decision in decisions
    ]


def lines(explanation: Explanation) -> list[str]:
    """Return the table for people: a line that says what changed, one for each step, and one that counts."""
    names = [console.plain(console.mask(name)) for name in names_of(explanation.decisions)]
    width = max(map(len, names), default=0)
    rows = [
        f"  {_verdict(decision):<4}  {name:<{width}}  {console.plain(decision.reason.text)}"
        for name, decision in zip(names, explanation.decisions, strict=True)
    ]
    return [console.plain(explanation.heading), *rows, console.plain(explanation.summary)]


def as_data(explanation: Explanation) -> dict[str, Any]:
    """Return the decisions for machines: the same names and reasons."""
    changes = explanation.changes
    names = names_of(explanation.decisions)
    return {
        "pipeline": explanation.title,
        "changes": {
            "state": changes.state.value,
            "how": changes.how,
            "base": changes.base,
            "commit": changes.commit,
            "files": len(changes.paths),
        },
        "steps": [
            {
                "name": name,
                "key": decision.step.key,
                "group": decision.group.label if decision.group else None,
                "where": decision.step.where,
                "run": decision.keep,
                "why": decision.reason.why.value,
                "reason": decision.reason.text,
            }
            for name, decision in zip(names, explanation.decisions, strict=True)
        ],
        "summary": explanation.summary,
    }


def annotation(explanation: Explanation, limit: int = ANNOTATION_LIMIT) -> str:
    """Return the table as Markdown of at most ``limit`` bytes, in which no name has a meaning of its own.

    What does not fit is counted. Every punctuation mark of a text is escaped (CommonMark 2.4), line breaks and control
    characters are written out: neither a table, a link nor HTML can begin in a name.
    """
    head = f"**{escaped(explanation.heading)}**\n\n| | step | why |\n|---|---|---|\n"
    foot = f"\n{escaped(explanation.summary)}\n"
    room = limit - _ROOM
    rows: list[str] = []
    for name, decision in zip(names_of(explanation.decisions), explanation.decisions, strict=True):
        row = f"| {_verdict(decision)} | {escaped(name)} | {escaped(decision.reason.text)} |\n"
        room -= len(row.encode("utf-8", "replace"))
        if room < 0:
            break
        rows.append(row)
    more = len(explanation.decisions) - len(rows)
    left_out = (
        f"\n{console.plural(more, 'more step')} left out here; pipelines\\.explain has them all\\.\n" if more else ""
    )
    return head + "".join(rows) + left_out + foot


def escaped(text: str) -> str:
    """Return a text as Markdown that shows it and nothing else; a very long one is cut."""
    # A name of git's that is not UTF-8 has surrogates, which nobody can send.
    shown = console.plain(console.mask(text)).replace("\t", " ").encode("utf-8", "backslashreplace").decode()
    if len(shown) > _LONGEST:
        shown = f"{shown[: _LONGEST - 1]}…"
    return _PUNCTUATION.sub(r"\\\1", shown)


def _verdict(decision: Decision) -> str:
    return "run" if decision.keep else "drop"
