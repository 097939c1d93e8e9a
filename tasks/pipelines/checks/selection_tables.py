"""Tables of what must be selected: ``selection_tests`` in a file names, for a path, the steps that its change runs."""

from __future__ import annotations

from collections.abc import Iterator

from tasks.pipelines.build_facts import Build
from tasks.pipelines.changes import ChangedFile, ChangeSet, State
from tasks.pipelines.checks.findings import Finding, Level, Subject
from tasks.pipelines.model import Why
from tasks.pipelines.selecting import select
from tasks.suites.areas import PathRules
from tasks.support.errors import OmniError, did_you_mean

KEY = "selection_tests"
_BY_RULES = frozenset({Why.PATH, Why.AREA, Why.IMPORTS, Why.IMPLICIT, Why.RUN_ALL})


def check(subject: Subject, rules: PathRules) -> Iterator[Finding]:
    """Yield the paths of the file's table whose change selects other steps than it says.

    Only steps with path rules count, and only what rules say: a file that no rule covers selects none here, whatever
    ``unmatched`` does with it.
    """
    table = subject.file.top.get(KEY)
    if table is None:
        return
    if not isinstance(table, dict) or not all(isinstance(names, list) for names in table.values()):
        text = f"{KEY} must map paths to lists of steps"
        yield subject.finding(Level.ERROR, "selection-test", text, key=KEY)
        return
    known = {step.name for _, step in subject.file.steps()}
    for path, names in table.items():
        wanted = list(map(str, names))
        unknown = next((name for name in wanted if name not in known), None)
        if unknown is not None:
            text = f"{path}: there is no step {unknown}"
            yield _finding(subject, path, text, did_you_mean(unknown, known))
            continue
        try:
            decisions = select(subject.file, _changed(path), rules, Build())
        except OmniError:
            return  # a rule that cannot be read is another family's finding
        found = [one.step.name for one in decisions if one.keep and one.reason.why in _BY_RULES]
        missing = [name for name in wanted if name not in found]
        others = [name for name in found if name not in wanted]
        if missing or others:
            parts = ([f"missing {', '.join(missing)}"] if missing else []) + (
                [f"also {', '.join(others)}"] if others else []
            )
            yield _finding(subject, path, f"{path}: {'; '.join(parts)}", "correct the path rules, or the table")


def _changed(path: str) -> ChangeSet:
    return ChangeSet(State.KNOWN, (ChangedFile(path, "M"),), None, None, "a table's path")


def _finding(subject: Subject, path: str, text: str, hint: str | None) -> Finding:
    return subject.finding(Level.ERROR, "selection-test", text, key=KEY, fragment=path, hint=hint)
