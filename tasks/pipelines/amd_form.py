"""AMD's form of a native file made ordinary, so that no template is needed.

In that form ``mirror_hardwares`` is a list of the builds that run a step (``amdproduction``), ``agent_pool`` names the
hardware and ``grade`` says whether a failure counts. ``working_dir``, ``parallelism``, ``artifact_paths``, commands and
variables stay as they are: expanding the preset enters the folder, and what is left Buildkite knows itself. The old
template's uninstall of a package on ``mi250`` pools is not made: there is no such preset.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tasks.pipelines.expanding import PLACES, PRESET_KEY, is_command
from tasks.pipelines.model import Decision, Group, NativeFile, Reason, Step, Why
from tasks.pipelines.structure import needs_of
from tasks.support.errors import DataError, did_you_mean

DEFAULT_POOL = "mi300_1"
_POOL, _GRADE = "agent_pool", "grade"
_GRADES = {"Blocking": False, "NonBlocking": True}  # what soft_fail becomes


@dataclass(frozen=True)
class Ordinary:
    """A file without AMD's keys. ``dropped`` are the decisions about the steps that other builds run.

    ``kept`` says for each step of the file as it was written whether it is still in ``file``.
    """

    file: NativeFile
    dropped: tuple[Decision, ...] = ()
    kept: tuple[bool, ...] = ()

    def in_order(self, decisions: tuple[Decision, ...]) -> tuple[Decision, ...]:
        """Return the decisions about the steps of ``file`` and the dropped ones, in the order as written."""
        if not self.dropped:
            return decisions
        of_kept, of_dropped = iter(decisions), iter(self.dropped)
        return tuple(next(of_kept) if keep else next(of_dropped) for keep in self.kept)


def is_amd_form(file: NativeFile) -> bool:
    """Say whether a step has a key that only AMD's form has, or a list of builds."""
    return any(_has_form(step.body) for _, step in file.steps())


def ordinary(file: NativeFile, mirror_hw: str) -> Ordinary:
    """Return a file's steps that the build called ``mirror_hw`` runs, as ordinary steps; any other file as it is.

    A step without ``agent_pool`` gets the preset ``mi300_1``, one with agents of its own keeps them. A step without
    ``grade`` fails its build: only ``NonBlocking`` allows a failure. Raises DataError with file and line for a step
    that no build would run, for contradictions, and for a step that needs one that this build does not run.
    """
    if not is_amd_form(file):
        return Ordinary(file)
    decided: list[Decision] = []
    entries: list[Step | Group] = []
    for entry in file.entries:
        group = entry if isinstance(entry, Group) else None
        steps = entry.steps if isinstance(entry, Group) else (entry,)
        found = [_decide(step, group, file, mirror_hw) for step in steps]
        decided += found
        made = tuple(decision.step for decision in found if decision.keep)
        if group is None:
            entries += made
        elif made:
            entries.append(replace(group, steps=made))
    result = replace(file, entries=tuple(entries))
    dropped = tuple(decision for decision in decided if not decision.keep)
    _check_needs(file, result, mirror_hw)
    return Ordinary(result, dropped, tuple(decision.keep for decision in decided))


def _has_form(body: Mapping[str, Any]) -> bool:
    return _POOL in body or _GRADE in body or isinstance(body.get(PRESET_KEY), list)


def _decide(step: Step, group: Group | None, file: NativeFile, mirror_hw: str) -> Decision:
    """Return the decision about a step, with the ordinary step in it."""
    builds = step.body.get(PRESET_KEY)
    if not _has_form(step.body) and (builds is not None or file.top.get("agents") or not _runs_nowhere(step)):
        return Decision(step, group, True, Reason(Why.ALWAYS, "an ordinary step"))
    if not isinstance(builds, list) or not builds or not all(isinstance(word, str) and word for word in builds):
        given = f"has {PRESET_KEY}: {builds!r}" if PRESET_KEY in step.body else f"has no {PRESET_KEY}"
        hint = f"a step in AMD's form lists the builds that run it, for example {PRESET_KEY}: [amdproduction]"
        raise _fail(step, PRESET_KEY, f"step {step.name!r} {given}: no build would run it", hint)
    made = _made(step)
    if mirror_hw in builds:
        return Decision(made, group, True, Reason(Why.ALWAYS, f"a step of {mirror_hw}"))
    text = f"{PRESET_KEY} names {', '.join(builds)}, and this build runs the steps of {mirror_hw}"
    return Decision(made, group, False, Reason(Why.HARDWARE, text))


def _runs_nowhere(step: Step) -> bool:
    return is_command(step.body) and not any(step.body.get(key) for key in PLACES)


def _made(step: Step) -> Step:
    body: dict[str, Any] = {}
    lines = dict(step.lines)
    for key, value in step.body.items():
        if key == _GRADE:
            body |= _soft_fail(step)
            lines["soft_fail"] = step.lines.get("soft_fail", step.lines[_GRADE])
        elif key not in {_POOL, PRESET_KEY}:
            body.setdefault(key, value)
    pool = _pool(step)
    if pool is not None:
        body[PRESET_KEY] = pool
        lines[PRESET_KEY] = step.lines.get(_POOL) or step.lines[PRESET_KEY]
    return replace(step, body=body, lines={key: line for key, line in lines.items() if key in body})


def _pool(step: Step) -> str | None:
    """Return the preset of a step, None for one that says itself where it runs, or runs nothing."""
    place = next((key for key in PLACES if step.body.get(key)), None)
    pool = step.body.get(_POOL)
    if pool is None:
        return DEFAULT_POOL if place is None and is_command(step.body) else None
    if not isinstance(pool, str) or not pool:
        raise _fail(step, _POOL, f"{_POOL} of step {step.name!r} must be the name of a pool", "write mi300_1")
    if place is not None:
        message = f"step {step.name!r} has {place} of its own and {_POOL}: {pool}"
        raise _fail(step, _POOL, message, f"remove one of them: {_POOL} brings agents and plugins")
    return pool


def _soft_fail(step: Step) -> dict[str, Any]:
    grade, own = step.body[_GRADE], step.body.get("soft_fail")
    if not isinstance(grade, str) or grade not in _GRADES:
        hint = did_you_mean(str(grade), _GRADES) or f"choose from {', '.join(_GRADES)}"
        raise _fail(step, _GRADE, f"unknown {_GRADE} {grade!r} of step {step.name!r}", hint)
    soft = _GRADES[grade]
    if "soft_fail" in step.body and bool(own) != soft:
        message = f"step {step.name!r} has {_GRADE}: {grade} and soft_fail: {own!r}"
        raise _fail(step, _GRADE, message, "remove one of them")
    if own is not None:
        return {"soft_fail": own}
    return {"soft_fail": True} if soft else {}


def _check_needs(written: NativeFile, result: NativeFile, mirror_hw: str) -> None:
    left = {what.key for what in _all(result)}
    gone = {what.key for what in _all(written)} - left
    for what in _all(result):
        for key in needs_of(what.body):
            if key in gone:
                message = f"{key!r} is needed here and does not run on {mirror_hw}"
                raise _fail(what, "depends_on", message, f"add {mirror_hw} to its {PRESET_KEY}")


def _all(file: NativeFile) -> Iterator[Step | Group]:
    for entry in file.entries:
        yield entry
        if isinstance(entry, Group):
            yield from entry.steps


def _fail(what: Step | Group, key: str, message: str, hint: str) -> DataError:
    name, _, line = what.where.rpartition(":")
    return DataError(f"{name}:{what.lines.get(key, line)}: {message}", hint=hint)
