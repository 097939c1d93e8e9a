"""Test files that no step of any cell can select.

An approximation, and one that errs on the side of silence. A file is taken to be selected when some pytest call names
it, a folder above it or a pattern that fits, does not ignore it, and its ``-m`` could be true for a test whose marks
are some of those that the file or a conftest.py above it mentions: as ``mark.NAME``, or as a text, since helpers make
marks from texts. ``-k`` and cases after ``::`` are taken to select everything. Calls inside shell scripts of the source
that a step runs count too. Not seen are marks that come from other modules, and calls that other programs make: so a
finding is a warning.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase

from tasks.pipelines.checks.findings import Finding, Level, Subject, Tree
from tasks.pipelines.checks.marks import DEVICES
from tasks.pipelines.checks.marks_grammar import read_expression
from tasks.pipelines.checks.pytest_calls import PytestCall, pytest_calls

TESTS = "tests"
_SHOWN = 3  # expressions in a hint
_PATTERNS = ("test_*.py", "*_test.py")
_SCRIPT = re.compile(r"[\w./-]+\.sh\b")


def check(subjects: Sequence[Subject], tree: Tree) -> Iterator[Finding]:
    """Yield the test files below ``tests/`` that no step of these files selects; nothing where no step runs pytest."""
    calls = [call for subject in subjects for call in _calls(subject, tree)]
    if not calls:
        return
    for path in test_files(tree):
        near = [call for call in calls if _covers(call, path)]
        if any(call.marks is None for call in near):
            continue
        found = _read(tree, path)
        if found is None or not _has_tests(found):
            continue
        if not near:
            text = "no step of any cell runs this file"
            yield Finding(Level.WARNING, path, "", "orphan-test", text, "add it to a step, or list it as not covered")
            continue
        marks = _marks(found).union(*(_marks(tree_of) for name in _conftests(path) if (tree_of := _read(tree, name))))
        if not any(_may_select(call, marks) for call in near):
            asked = list(dict.fromkeys(repr(call.marks) for call in near))
            more = f" and {len(asked) - _SHOWN} more" if len(asked) > _SHOWN else ""
            hint = f"steps that name it or its folder ask for {', '.join(asked[:_SHOWN])}{more}"
            yield Finding(Level.WARNING, path, "", "orphan-test", "no step selects the marks of this file", hint)


def test_files(tree: Tree) -> list[str]:
    """Return the test files of the source, in order."""
    found = (path for path in tree.paths if path.startswith(f"{TESTS}/") and path.endswith(".py"))
    return sorted(path for path in found if any(fnmatchcase(path.rpartition("/")[2], one) for one in _PATTERNS))


def _calls(subject: Subject, tree: Tree) -> Iterator[PytestCall]:
    for script in subject.scripts():
        yield from pytest_calls(script.text)
        for name in dict.fromkeys(_SCRIPT.findall(script.text)):
            data = tree.read(name.removeprefix("./"))
            if data is not None:
                yield from pytest_calls(data.decode("utf-8", "replace"))


def _covers(call: PytestCall, path: str) -> bool:
    if any(_is_under(path, word) for word in call.ignored):
        return False
    return not call.tests or any(_is_under(path, word) for word in call.tests)


def _is_under(path: str, word: str) -> bool:
    """Say whether a path is what a word of a command names, or below it; a variable in it may stand for anything."""
    name = word.partition("::")[0]
    while name.startswith("./"):
        name = name[2:]
    if "$" in name or "`" in name:
        return path.startswith(re.split(r"[$`]", name)[0])
    pattern = name.rstrip("/").split("/")
    parts = path.split("/")
    if pattern in (["."], [""]):
        return True
    return len(pattern) <= len(parts) and all(fnmatchcase(part, one) for part, one in zip(parts, pattern, strict=False))


def _may_select(call: PytestCall, marks: Iterable[str]) -> bool:
    if call.marks is None or "$" in call.marks:
        return True
    expression = read_expression(call.marks)
    return expression is None or expression.may_select(frozenset(marks))


def _read(tree: Tree, path: str) -> ast.Module | None:
    data = tree.read(path)
    if data is None:
        return None
    try:
        return ast.parse(data)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _conftests(path: str) -> Iterator[str]:
    folders = path.split("/")[:-1]
    return ("/".join((*folders[:depth], "conftest.py")) for depth in range(len(folders) + 1))


def _has_tests(module: ast.Module) -> bool:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    named = (node.name for node in module.body if isinstance(node, kinds))
    return any(name.startswith(("test", "Test")) for name in named)


def _marks(module: ast.Module) -> set[str]:
    """Return every name that could be a mark of a test in this module."""
    found: set[str] = set()
    for node in ast.walk(module):
        if isinstance(node, ast.Attribute):
            value = node.value
            if getattr(value, "attr", getattr(value, "id", None)) == "mark":
                found.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
            found.add(node.value)
    devices = found.intersection(DEVICES)
    made = {f"{kind}_{device}" for kind in ("distributed", "skipif") for device in devices}
    return found | made | ({"gpu"} if devices else set())
