"""Limits: a step without one, and an inner ``timeout`` that the step's own limit makes useless."""

from __future__ import annotations

from collections.abc import Iterator

from tasks.pipelines.checks.findings import Finding, Level, Script, Subject
from tasks.pipelines.checks.pytest_calls import timeout_seconds
from tasks.pipelines.checks.shell import ShellError, all_commands
from tasks.pipelines.model import commands_of


def check(subject: Subject) -> Iterator[Finding]:
    """Yield steps with commands and no limit (a warning: a hung pull of an image holds the machine), and bad pairs.

    With two limits that are equal it is chance which one fires; a kill by the agent leaves no test report behind.
    """
    for _, step in subject.file.steps():
        if any(commands_of(step.body)) and step.body.get("timeout_in_minutes") is None:
            yield subject.finding(
                Level.WARNING,
                "no-timeout",
                f"{step.name} has no limit: a hung pull or test holds its machine",
                entry=step,
                hint="add timeout_in_minutes",
            )
    for script in subject.scripts():
        yield from _inner(subject, script)


def _inner(subject: Subject, script: Script) -> Iterator[Finding]:
    minutes = script.step.body.get("timeout_in_minutes")
    if isinstance(minutes, bool) or not isinstance(minutes, (int, float)):
        return
    try:
        found = tuple(all_commands(script.text))
    except ShellError:
        return
    for command in found:
        seconds = timeout_seconds(command)
        if seconds is not None and seconds >= minutes * 60:
            yield subject.finding(
                Level.ERROR,
                "inner-timeout",
                f"the inner limit of {seconds / 60:g} min is not shorter than the step's {minutes:g} min",
                entry=script.step,
                key=script.key,
                fragment=script.text.splitlines()[command.line] if script.text else None,
                hint="make it shorter or take it out: else the agent kills the tests before it, or chance decides",
            )
