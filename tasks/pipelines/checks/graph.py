"""What needs what: keys that no step has, and circles.

A needed step that selection drops is no finding: it is pulled in again, with the step that needs it as its reason.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from tasks.pipelines.checks.findings import Finding, Level, Subject
from tasks.pipelines.model import Group, Step
from tasks.pipelines.structure import needs_of
from tasks.support.errors import did_you_mean


def check(subject: Subject, elsewhere: Collection[str]) -> Iterator[Finding]:
    """Yield dangling ``depends_on`` and circles; ``elsewhere`` are the keys of uploads that come before this one."""
    own = {entry.key: entry for entry in subject.entries() if entry.key}
    labels = {entry.name: entry for entry in subject.entries() if isinstance(entry, Step) and not entry.key}
    for entry in subject.entries():
        for needed in dict.fromkeys(needs_of(entry.body)):
            if needed not in own and needed not in elsewhere:
                yield _dangling(subject, entry, needed, {*own, *elsewhere}, labels)
    yield from _circles(subject, own)


def _dangling(
    subject: Subject, entry: Step | Group, needed: str, known: Collection[str], labels: Mapping[str, Step | Group]
) -> Finding:
    hint = did_you_mean(needed, known) or "Buildkite waits for such a step for ever"
    if needed in labels:
        hint = f"the step on line {labels[needed].where.rpartition(':')[2]} has that label, but no key: add key: to it"
    name = entry.name if isinstance(entry, Step) else entry.key or entry.label
    return subject.finding(
        Level.ERROR,
        "dangling-need",
        f"{name} needs unknown step {needed}",
        entry=entry,
        key="depends_on",
        fragment=needed,
        hint=hint,
    )


def _circles(subject: Subject, own: Mapping[str, Step | Group]) -> Iterator[Finding]:
    """Yield one finding for each circle that a search from each key in the file's order meets first."""
    needs: dict[str, list[str]] = {key: [] for key in own}
    for group, step in subject.file.steps():
        inherited = needs_of(group.body) if group else ()
        if step.key:
            needs[step.key] += [key for key in (*needs_of(step.body), *inherited) if key in own]
        if group and group.key and step.key:
            needs[group.key].append(step.key)  # a group is done when its steps are
    done: set[str] = set()
    for start in needs:
        circle = _circle_from(start, needs, done)
        if circle:
            text = f"cycle {' -> '.join((*circle, circle[0]))}"
            hint = "none of these steps can ever start"
            yield subject.finding(Level.ERROR, "cycle", text, entry=own[circle[0]], key="depends_on", hint=hint)


def _circle_from(start: str, needs: Mapping[str, list[str]], done: set[str]) -> list[str]:
    """Return the first circle that is met from a key, and mark as done what was looked at; no recursion."""
    path: list[str] = []
    on_path: set[str] = set()
    waiting: list[tuple[str, bool]] = [(start, False)]
    circle: list[str] = []
    while waiting:
        key, leaving = waiting.pop()
        if leaving:
            path.pop()
            on_path.discard(key)
            done.add(key)
        elif key in on_path:
            circle = circle or path[path.index(key) :]
        elif key not in done:
            path.append(key)
            on_path.add(key)
            waiting.append((key, True))
            waiting += [(needed, False) for needed in reversed(needs[key])]
    return circle
