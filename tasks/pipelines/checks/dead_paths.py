"""Path rules that no file of the source answers to: what they were to watch was moved or removed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tasks.pipelines.checks.findings import Finding, Level, Subject
from tasks.pipelines.rules import Files
from tasks.pipelines.selecting import RULES
from tasks.suites.areas import PathRules
from tasks.suites.path_rules import Rule
from tasks.support.errors import DataError


def check(subject: Subject, rules: PathRules, files: Files | None) -> Iterator[Finding]:
    """Yield rules that cannot be read, and, where the source's files are known, those that cover none of them."""
    for entry in subject.entries():
        if RULES not in entry.body:
            continue
        where = subject.where(entry, RULES)
        try:
            parsed = rules.parse(entry.body[RULES], where)
        except DataError as error:
            text = error.message.removeprefix(f"{where}: ")
            yield subject.finding(Level.ERROR, "path-rule", text, entry=entry, key=RULES, hint=error.hint)
            continue
        for rule in dead(parsed, files) if files is not None else ():
            yield subject.finding(
                Level.ERROR,
                "dead-path",
                f"no file of the source is under {rule.text}",
                entry=entry,
                key=RULES,
                fragment=rule.text,
                hint="name where it moved to, or remove the rule",
            )


def check_areas(rules: PathRules, files: Files, name: str) -> Iterator[Finding]:
    """Yield the rules of named areas that cover no file: warnings, since one catalogue serves many versions."""
    for area, inside in rules.areas.items():
        for rule in dead(inside, files):
            text = f"area {area}: no file of the source is under {rule.text}"
            yield Finding(Level.WARNING, name, "", "dead-path", text, "name where it moved to, or remove the rule")


def dead(parsed: Sequence[Rule], files: Files) -> Iterator[Rule]:
    """Yield the rules that cover no file."""
    return (rule for rule in parsed if not files.spans(rule))
