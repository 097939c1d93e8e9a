"""Keys of the pipeline that nobody reads, keys of ours in the wrong place, and keys of steps that are there twice.

Other unknown keys of steps and groups are found by the schema.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from tasks.pipelines.checks.findings import Finding, Level, Subject, name_of
from tasks.pipelines.model import COMMANDS, KEYS, Group, Step, commands_of
from tasks.pipelines.rendering import PRIVATE_KEYS
from tasks.suites import areas
from tasks.support.errors import did_you_mean

TOP_KEYS = frozenset({"selection_tests", *areas.KEYS})
GROUP_KEYS = frozenset({"source_file_dependencies", "imports"})
STEP_KEYS = GROUP_KEYS | {"mirror_hardwares", "agent_pool", "grade", "working_dir"}
_UPLOAD = "artifact upload"
_ALIASES = (KEYS, ("label", "name"), COMMANDS)


def check(subject: Subject) -> Iterator[Finding]:
    """Yield unknown keys of the pipeline, names for one thing that disagree, and doubled keys of steps."""
    yield from _unknown_at_the_top(subject)
    yield from _doubled(subject)
    yield from _without_key(subject)
    yield from _misplaced(subject)
    for entry in subject.entries():
        for names in _ALIASES:
            found = [name for name in names if name in entry.body]
            if len(found) > 1 and len({str(entry.body[name]) for name in found}) > 1:
                yield subject.finding(
                    Level.ERROR,
                    "two-names",
                    f"{' and '.join(found)} mean the same and say different things",
                    entry=entry,
                    key=found[1],
                    hint=f"keep {found[0]}",
                )


def _unknown_at_the_top(subject: Subject) -> Iterator[Finding]:
    from tasks.pipelines.checks.schema import known_keys

    known: Collection[str] = known_keys(None) | TOP_KEYS
    for key in subject.file.top:
        if key not in known and not key.startswith("x-"):
            hint = did_you_mean(key, known) or "a key that holds shared text begins with x-"
            yield subject.finding(
                Level.ERROR, "unknown-key", f"unknown key {key!r} of the pipeline", key=key, hint=hint
            )


def _doubled(subject: Subject) -> Iterator[Finding]:
    first: dict[str, Step | Group] = {}
    for entry in subject.entries():
        if entry.key is None:
            continue
        other = first.setdefault(entry.key, entry)
        if other is not entry:
            at = subject.where(other, _key_name(other)).rpartition(":")[2]
            yield subject.finding(
                Level.ERROR,
                "duplicate-key",
                f"duplicate key {entry.key}: line {at} has it already"
                + (f" ({name_of(other)})" if name_of(other) != entry.key else ""),
                entry=entry,
                key=_key_name(entry),
                hint="Buildkite refuses the upload; give one of them another key",
            )


def _misplaced(subject: Subject) -> Iterator[Finding]:
    for entry in subject.entries():
        what, read = ("group", GROUP_KEYS) if isinstance(entry, Group) else ("step", STEP_KEYS)
        for key in entry.body:
            if key in PRIVATE_KEYS and key not in read:
                text = f"{key!r} is not read in a {what}"
                yield subject.finding(Level.ERROR, "unknown-key", text, entry=entry, key=key, hint="move or remove it")


def _without_key(subject: Subject) -> Iterator[Finding]:
    """Yield steps whose artifacts others could want, and that have no key to fetch them by."""
    for _, step in subject.file.steps():
        uploads = "artifact_paths" in step.body or any(_UPLOAD in text for _, text in commands_of(step.body))
        if uploads and step.key is None:
            text = f"{step.name} has artifacts and no key: nobody can wait for it or fetch them by step"
            yield subject.finding(Level.NOTE, "no-key", text, entry=step, hint="add a key")


def _key_name(entry: Step | Group) -> str:
    return next(name for name in KEYS if entry.body.get(name))
