"""AMD's form: steps that would vanish, may fail without anybody having said so, or name hardware that is not there."""

from __future__ import annotations

from collections.abc import Iterator

from tasks.pipelines.checks.findings import Finding, Level, Subject, commands_of
from tasks.pipelines.model import Step
from tasks.suites.presets import Presets
from tasks.support.errors import did_you_mean

_GRADES = ("Blocking", "NonBlocking")


def check(subject: Subject, presets: Presets) -> Iterator[Finding]:
    """Yield what is wrong with the keys of that form; nothing for other files."""
    if not subject.is_amd:
        return
    for _, step in subject.file.steps():
        if any(commands_of(step.body)):
            yield from _step(subject, step, presets)


def _step(subject: Subject, step: Step, presets: Presets) -> Iterator[Finding]:
    builds = step.body.get("mirror_hardwares")
    if not isinstance(builds, list) or not all(isinstance(name, str) for name in builds):
        text = f"{step.name} has no list mirror_hardwares: no build would ever run it"
        hint = "add mirror_hardwares: [amdproduction]"
        yield subject.finding(Level.ERROR, "amd-builds", text, entry=step, key="mirror_hardwares", hint=hint)
    grade = step.body.get("grade")
    if grade is None:
        text = f"{step.name} has no grade, which does not say whether its failure counts"
        hint = "add grade: Blocking, or grade: NonBlocking where it may fail"
        yield subject.finding(Level.WARNING, "amd-grade", text, entry=step, hint=hint)
    elif grade not in _GRADES:
        hint = did_you_mean(str(grade), _GRADES) or f"choose from {', '.join(_GRADES)}"
        yield subject.finding(Level.ERROR, "amd-grade", f"unknown grade {grade!r}", entry=step, key="grade", hint=hint)
    pool = step.body.get("agent_pool")
    if pool is not None and (not isinstance(pool, str) or presets.find(pool) is None):
        hint = did_you_mean(str(pool), presets.names()) or f"choose from {', '.join(presets.presets)}"
        text = f"unknown agent_pool {pool!r}"
        yield subject.finding(Level.ERROR, "preset", text, entry=step, key="agent_pool", hint=hint)
