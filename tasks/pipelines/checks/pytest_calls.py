"""The pytest calls of a script: which paths, marks, keyword and run level each of them has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tasks.pipelines.checks.shell import Command, ShellError, all_commands

_VALUED = frozenset({
    "-c", "-k", "-m", "-n", "-o", "-p", "-r", "-W", "--basetemp", "--capture", "--color", "--confcutdir", "--count",
    "--cov-config", "--cov-report", "--deselect", "--dist", "--durations", "--group", "--html", "--ignore",
    "--ignore-glob", "--import-mode", "--junit-xml", "--junitxml", "--log-cli-level", "--log-file", "--log-level",
    "--maxfail", "--maxprocesses", "--num-shards", "--numprocesses", "--override-ini", "--reruns", "--rootdir",
    "--run-level", "--shard-id", "--splits", "--tb", "--test-config-file", "--timeout",
})  # fmt: skip
_LOOKS = frozenset({"--tb", "--durations", "--color", "--junitxml", "--junit-xml", "--html", "--verbose", "--quiet"})
_LAST_WINS = frozenset({"-m", "-k", "--run-level"})  # of these pytest takes the last one only
_RUNNERS = frozenset({"python", "python3", "coverage", "uv", "torchrun", "accelerate"})
_WRAPPERS = frozenset({"timeout", "env", "nice", "xvfb-run", "stdbuf", "nohup", "command", "sudo", "docker", "podman"})
_DURATION = re.compile(r"(\d+(?:\.\d+)?)([smhd]?)")
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True)
class PytestCall:
    """One call of pytest.

    ``repeated`` names the options that are there twice and of which only the last counts; ``other`` are the options
    that choose no tests by path, mark or level, such as the file of a benchmark. ``line`` counts from 0.
    """

    tests: tuple[str, ...]
    marks: str | None
    keyword: str | None
    run_level: str | None
    ignored: tuple[str, ...]
    repeated: tuple[str, ...]
    environment: tuple[str, ...]
    other: tuple[str, ...]
    line: int


def pytest_calls(script: str) -> Iterator[PytestCall]:
    """Yield a script's pytest calls, those in ``bash -c`` scripts too; none for a script that no shell could read."""
    try:
        found = tuple(all_commands(script))
    except ShellError:
        return
    environment: dict[str, None] = {}
    for command in found:
        arguments = pytest_arguments(command)
        if arguments is not None:
            yield _call(arguments, command, tuple(environment))
        elif command.words[:1] == ("export",):
            environment.update(dict.fromkeys(command.assignments()))


def pytest_arguments(command: Command) -> tuple[str, ...] | None:
    """Return what a command hands to pytest, or None when it does not call it."""
    words = command.without_prefix()
    if not words:
        return None
    head = words[0].rpartition("/")[2]
    if head in {"pytest", "py.test"}:
        return words[1:]
    if head not in _RUNNERS and head not in _WRAPPERS and not head.startswith("python3."):
        return None
    for number, word in enumerate(words[1:], 1):
        if word.rpartition("/")[2] in {"pytest", "py.test"}:
            return words[number + 1 :]
    return None


def timeout_seconds(command: Command) -> float | None:
    """Return the limit in seconds that a ``timeout`` sets to the command behind it, or None without one.

    Grammar: GNU coreutils' ``timeout [OPTION]... DURATION COMMAND``; a limit of 0 is none.
    """
    words = command.without_prefix()
    if not words or words[0].rpartition("/")[2] != "timeout":
        return None
    at = 1
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in {"-k", "-s", "--kill-after", "--signal"} else 1
    found = _DURATION.fullmatch(words[at]) if at < len(words) else None
    return (float(found[1]) * _SECONDS[found[2]] or None) if found else None


def _call(arguments: tuple[str, ...], command: Command, environment: tuple[str, ...]) -> PytestCall:
    tests: list[str] = []
    ignored: list[str] = []
    other: list[str] = []
    values: dict[str, list[str]] = {}
    at = 0
    while at < len(arguments):
        word = arguments[at]
        option, value, at = _option(word, arguments, at)
        if option is None:
            tests.append(word)
        elif option == "--ignore":
            ignored.append(value or "")
        elif option in _LAST_WINS:
            values.setdefault(option, []).append(value or "")
        elif option.startswith("--") and option not in _LOOKS:
            other.append(option if value is None else f"{option}={value}")
    last = {option: found[-1] for option, found in values.items()}
    return PytestCall(
        tuple(tests),
        last.get("-m") or None,  # an empty one selects everything
        last.get("-k") or None,
        last.get("--run-level"),
        tuple(ignored),
        tuple(option for option, found in values.items() if len(found) > 1),
        tuple(dict.fromkeys((*environment, *command.assignments()))),
        tuple(other),
        command.line,
    )


def _option(word: str, arguments: tuple[str, ...], at: int) -> tuple[str | None, str | None, int]:
    """Return an option with its value, or None for a path, and where the next word is."""
    if not word.startswith("-") or word == "-":
        return None, None, at + 1
    name, equals, value = word.partition("=")
    if word.startswith("--"):
        if equals:
            return name, value, at + 1
    elif len(word) > 2 and word[:2] in {"-m", "-k"}:  # noqa: PLR2004 - -mEXPRESSION
        return word[:2], word[2:].removeprefix("="), at + 1
    if name in _VALUED and at + 1 < len(arguments):
        return name, arguments[at + 1], at + 2
    return name, None, at + 1
