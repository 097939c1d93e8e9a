"""Scripts that do not do what they look like: quotes that end too early, options that are not read, lost statuses."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tasks.pipelines.checks.dollars import tells_a_secret
from tasks.pipelines.checks.findings import Finding, Level, Script, Subject
from tasks.pipelines.checks.pytest_calls import pytest_calls
from tasks.pipelines.checks.shell import Command, ShellError, all_commands, commands, shell_script

_POSITIONAL = re.compile(r"\$(?:[0-9@*#]|\{[0-9@*#])")
_LONGEST = 80
_ORED = re.compile(r"\$\(\(\s*\$?\{?[A-Za-z_]\w*\}?(?:\s*\|\s*\$?\{?[A-Za-z_]\w*\}?)+\s*\)\)")


def check(subject: Subject) -> Iterator[Finding]:
    """Yield the findings about how commands are written."""
    for script in subject.scripts():
        try:
            commands(script.text)
        except ShellError as error:
            yield _finding(subject, script, Level.ERROR, "open-quote", f"no shell can read this: {error}", line=0)
            continue
        for command in all_commands(script.text):
            yield from _nested(subject, script, command)
        for call in pytest_calls(script.text):
            for option in call.repeated:
                text = f"pytest takes only the last {option}, and there are several"
                yield _finding(
                    subject, script, Level.ERROR, "last-wins", text, line=call.line, hint="join them with `and`"
                )
        for number, line in enumerate(script.text.splitlines()):
            if _ORED.search(line):
                yield _finding(
                    subject,
                    script,
                    Level.WARNING,
                    "ored-statuses",
                    "exit statuses are OR-ed: 1 | 4 is 5, which pytest uses for no tests",
                    line=number,
                    hint="keep the first status that is not 0",
                )


def _nested(subject: Subject, script: Script, command: Command) -> Iterator[Finding]:
    position = shell_script(command.words)
    if position is None:
        return
    inner, lost = command.words[position], command.words[position + 1 :]
    if lost and not _POSITIONAL.search(inner):
        shown = f": {' '.join(lost)}" if not tells_a_secret(" ".join(lost)) else ""
        yield _finding(
            subject,
            script,
            Level.ERROR,
            "nested-quotes",
            f"words after the -c script{shown if len(shown) <= _LONGEST else shown[:_LONGEST] + '...'}",
            line=command.line,
            hint="a quote inside the script ended it, and no program gets them: use the other kind of quotes inside",
        )
        return
    try:
        commands(inner)
    except ShellError as error:
        text = f"the script after -c cannot be read: {error}"
        yield _finding(subject, script, Level.ERROR, "open-quote", text, line=command.line)


def _finding(
    subject: Subject, script: Script, level: Level, rule: str, text: str, *, line: int, hint: str | None = None
) -> Finding:
    lines = script.text.splitlines()
    fragment = lines[line] if line < len(lines) else None
    return subject.finding(level, rule, text, entry=script.step, key=script.key, fragment=fragment, hint=hint)
