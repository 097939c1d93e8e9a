"""A file against its cell: labels that upload it and then run nothing."""

from __future__ import annotations

from collections.abc import Iterator

from tasks.pipelines.checks.findings import Finding, Level, Subject
from tasks.pipelines.model import Group
from tasks.suites.tiers import Cell


def check(subject: Subject, cell: Cell) -> Iterator[Finding]:
    """Yield the labels that upload the cell but open none of the groups that its file has."""
    present = set()
    for entry in subject.file.entries:
        label = (
            entry.label if isinstance(entry, Group) else str(entry.body.get("label") or entry.body.get("name") or "")
        )
        present.add(cell.group_of(label, entry.key).name)
    for label in cell.unmatched_labels(present):
        yield Finding(
            Level.WARNING,
            subject.file.name,
            "",
            "label-without-group",
            f"label {label} uploads {cell.name}, but none of its groups is in this file: nothing would run",
            "add a group that the label opens, or take the label out of the cell's gates in tiers.yml",
        )
