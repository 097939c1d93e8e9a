"""pytest's ``-m`` expressions: read, and asked what a test must and may be marked with.

Grammar: pytest's documentation, "Marking test functions": names with ``not``, ``and``, ``or`` and brackets.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Collection, Mapping
from dataclasses import dataclass

_MOST_NAMES = 12  # of which every combination is tried


@dataclass(frozen=True)
class Expression:
    """A ``-m`` expression that pytest can read."""

    tree: ast.expr
    names: tuple[str, ...]

    def may_select(self, marks: Collection[str]) -> bool:
        """Say whether a test could be selected that has some of these marks and no other."""
        free = [name for name in self.names if name in marks]
        if len(free) > _MOST_NAMES:
            return True
        for values in itertools.product((False, True), repeat=len(free)):
            if _value(self.tree, dict(zip(free, values, strict=True))):
                return True
        return False

    def requires(self, name: str) -> bool:
        """Say whether every test that is selected has this mark."""
        return name in self.names and not self.may_select([other for other in self.names if other != name])


def read_expression(text: str) -> Expression | None:
    """Read an expression; None when pytest could not."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    names: dict[str, None] = {}
    return Expression(tree, tuple(names)) if _collect(tree, names) else None


def _collect(tree: ast.expr, names: dict[str, None]) -> bool:
    if isinstance(tree, ast.BoolOp):
        return all(_collect(value, names) for value in tree.values)
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.Not):
        return _collect(tree.operand, names)
    if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and not tree.args:  # mark(key=value)
        tree = tree.func
    if isinstance(tree, ast.Name):
        names[tree.id] = None
        return True
    return False


def _value(tree: ast.expr, given: Mapping[str, bool]) -> bool:
    if isinstance(tree, ast.BoolOp):
        parts = (_value(value, given) for value in tree.values)
        return all(parts) if isinstance(tree.op, ast.And) else any(parts)
    if isinstance(tree, ast.UnaryOp):
        return not _value(tree.operand, given)
    name = tree.func if isinstance(tree, ast.Call) else tree
    return isinstance(name, ast.Name) and given.get(name.id, False)
