"""AMD's form: steps that no build would run, and steps of which nobody said whether their failure counts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tasks.pipelines.amd_form import ordinary
from tasks.pipelines.checks.findings import Finding, Level, Subject
from tasks.pipelines.expanding import PLACES, PRESET_KEY
from tasks.pipelines.model import Step, commands_of

_FORM = ("agent_pool", "grade", PRESET_KEY)


def check(subject: Subject) -> Iterator[Finding]:
    """Yield what turning the form into ordinary steps does not refuse; what it does, the schema family says."""
    if not subject.is_amd:
        return
    for _, step in subject.file.steps():
        if not any(commands_of(step.body)):
            continue
        placed = any(step.body.get(key) for key in PLACES) or bool(subject.file.top.get("agents"))
        if not any(key in step.body for key in _FORM):
            if not placed:
                text = f"{step.name} has no list {PRESET_KEY}: no build would run it"
                hint = f"add {PRESET_KEY}: [amdproduction]"
                yield subject.finding(Level.ERROR, "amd-form", text, entry=step, hint=hint)
        elif "grade" not in step.body:
            text = f"{step.name} has no grade, which does not say whether its failure counts"
            hint = "add grade: Blocking, or grade: NonBlocking where it may fail"
            yield subject.finding(Level.WARNING, "amd-grade", text, entry=step, hint=hint)


def as_ordinary(subject: Subject, step: Step) -> Step:
    """Return a step of AMD's form as an ordinary one, for a build that runs it; DataError where it cannot be one."""
    builds = step.body.get(PRESET_KEY)
    build = str(builds[0]) if isinstance(builds, list) and builds else ""
    made = ordinary(replace(subject.file, entries=(step,)), build).file
    return next((found for _, found in made.steps()), step)
