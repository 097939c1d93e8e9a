"""What a step's commands name: the tests that it runs, and the files that every such step depends on besides."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tasks.pipelines.model import commands_of
from tasks.suites.path_rules import Rule, literal

_TESTS = "tests"
# The options of pytest whose value is left out, or an expression, or where something is written to.
_NOT_RUN = re.compile(
    r"--(?:ignore|ignore-glob|deselect|junitxml|junit-xml|basetemp|rootdir|cov)(?:=|\s+)\S+"
    r"|(?<!\S)-[km][\s=]*(?:'[^']*'|\"[^\"]*\"|\S+)"
)
_WORD = re.compile(r"[^\s'\"();|&<>=,`]+")


def named_tests(body: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the files, folders and patterns below the tests' folder that a step's commands name, each once, in order.

    ``file.py::case`` is its file; a path that starts outside of the checkout counts from the tests' folder on; what
    ``--ignore`` and ``--deselect`` name is not run and does not count. Comments of the shell are no commands.
    """
    text = "\n".join(line for line in _script(body).splitlines() if not line.lstrip().startswith("#"))
    if _TESTS not in text:
        return ()
    found = (_below(word) for word in _WORD.findall(_NOT_RUN.sub(" ", text)))
    return tuple(dict.fromkeys(path for path in found if path))


def covered_tests(body: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what a step's commands test: what they name or, of a pytest without names, the whole tests' folder."""
    return named_tests(body) or ((f"{_TESTS}/",) if "pytest" in _script(body) else ())


def _script(body: Mapping[str, Any]) -> str:
    return "\n".join(text for _, text in commands_of(body))


def rules_of_tests(tests: Iterable[str]) -> Iterator[Rule]:
    """Return the rules that cover what commands name, as ``named_tests`` returns it."""
    for path in tests:
        if "*" in path and not set("?[]{}") & set(path):
            yield Rule(text=path, path=path.rstrip("/"), folder=path.endswith("/"))
        else:
            yield literal(path.rstrip("/"))


def _below(word: str) -> str | None:
    path = word.partition("::")[0].removesuffix("/...").rstrip(".:")
    folder = path.endswith("/")
    parts = path.strip("/").split("/")
    if _TESTS not in parts or "$" in path or ".." in parts:
        return None
    below = "/".join(parts[parts.index(_TESTS) :])
    name = parts[-1]
    return f"{below}/" if folder or ("." not in name and "*" not in name) else below


def conftests_above(paths: Iterable[str]) -> tuple[str, ...]:
    """Return the conftest.py files that pytest would read above these paths, each once, the outermost first."""
    return tuple(dict.fromkeys(name for path in paths for name in _above(path)))


def _above(path: str) -> Iterator[str]:
    yield "conftest.py"
    folder = ""
    for part in path.split("/")[:-1]:
        if any(letter in part for letter in "*?["):
            break
        folder += f"{part}/"
        yield f"{folder}conftest.py"
