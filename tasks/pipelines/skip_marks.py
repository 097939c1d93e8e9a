"""Whether a change of a test file does nothing but take tests out: both versions' syntax trees, never the diff's text.

What counts is a skip mark that was added: ``pytest.mark.skip`` or ``skipif`` above a test or a test class, or in the
``pytestmark`` of a module or test class; and a new file whose whole module is skipped. Comments and layout beside such
a mark are free, as they are no part of a tree; a file in which nothing else changed has no skip mark that was added, so
its tests run. Whatever is not sure is no skip mark: a mark that was taken away or changed, a mark under another name, a
condition that may fail, a file that does not compile.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator, Sequence

TOO_LARGE = 2 * 2**20  # bytes of a version; parsing takes some hundred times as much memory

_FAILURES = (SyntaxError, RecursionError, MemoryError, ValueError)
# What a condition may call, by the last part of its name: these read, and no more.
_READING = frozenset({
    "bool", "callable", "getattr", "hasattr", "isinstance", "len", "repr", "str", "type",
    "current_device", "device_count", "get_device_capability", "get_device_name", "is_available", "is_bf16_supported",
    "is_cpu", "is_cuda", "is_cuda_alike", "is_npu", "is_rocm", "is_xpu",
    "endswith", "find_spec", "get", "getenv", "lower", "machine", "python_version", "startswith", "upper", "which",
})  # fmt: skip
# What it may be made of besides: no arithmetic, no subscript, no comprehension, since those can fail or go on for long.
_ASKING = (
    ast.Attribute, ast.BoolOp, ast.boolop, ast.Call, ast.cmpop, ast.Compare, ast.Constant, ast.expr_context,
    ast.FormattedValue, ast.IfExp, ast.JoinedStr, ast.keyword, ast.List, ast.Name, ast.Set,
    ast.Tuple, ast.unaryop, ast.UnaryOp,
)  # fmt: skip
_Scope = ast.Module | ast.ClassDef


def is_test_file(path: str) -> bool:
    """Say whether pytest collects tests from a file of this name, as the library sets it: ``python_files``."""
    name = path.rpartition("/")[2]
    return (
        path.startswith("tests/") and name.endswith(".py") and (name.startswith("test_") or name.endswith("_test.py"))
    )


def why_not_only_skips(path: str, old: bytes | None, new: bytes | None) -> str | None:
    """Return why a change of a file does more than add skip marks to tests, or None when it does not.

    ``old`` is None for a file that was added, ``new`` for one that was deleted.
    """
    if not is_test_file(path):
        return f"{path} is no test file"
    if new is None:
        return f"{path} was deleted"
    if max(len(new), len(old or b"")) > TOO_LARGE:
        return f"{path} is too large to compare"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what the parser says of old escapes is the library's affair
            compile(new, "new version", "exec", dont_inherit=True)  # refuses more than the parser does
            after = ast.parse(new)
            before = None if old is None else ast.parse(old)
        only = _is_skipped_whole(after) if before is None else _only_adds(before, after)
    except _FAILURES as error:
        return f"{path} cannot be compared ({type(error).__name__})"
    if only:
        return None
    return f"{path} is new and not skipped whole" if old is None else f"{path} changes more than skip marks"


def _is_skipped_whole(tree: ast.Module) -> bool:
    """Say whether a new module's ``pytestmark`` skips all of it, without a condition."""
    marks = _Marks(tree)
    statements = [node for node in tree.body if _pytestmark(node) is not None]
    named = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == "pytestmark"]
    bound = list(_bound(tree)).count("pytestmark")
    if not len(statements) == len(named) == bound == 1 or not all(map(_only_defines, tree.body)):
        return False
    return any(marks.kind(mark) == "skip" for mark in _listed(_pytestmark(statements[0])))


def _only_defines(node: ast.stmt) -> bool:
    """Say whether a statement of a new module is run to no other end than to have tests, and what they use, by name."""
    if isinstance(node, ast.ClassDef):
        return all(isinstance(inner, ast.Pass) or _only_defines(inner) for inner in node.body)
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)  # a docstring
    kinds = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef)
    return isinstance(node, kinds) or _pytestmark(node) is not None


def _only_adds(before: ast.Module, after: ast.Module) -> bool:
    """Take the added skip marks out of the new tree, and say whether there were any and the old tree is left."""
    marks = _Marks(after)
    added = _without_added(before, after, marks)
    return added > 0 and _same(before, after)


def _without_added(before: _Scope, after: _Scope, marks: _Marks) -> int:
    """Take added skip marks out of a module or class and the test classes in it; return how many there were."""
    added = _take_pytestmark(before, after, marks)
    if isinstance(after, ast.Module):
        _take_imports(before, after)
    if len(before.body) != len(after.body):
        return 0
    for old, new in zip(before.body, after.body, strict=True):
        if _is_test(old) and _is_test(new) and type(old) is type(new):
            added += _take_decorators(old, new, marks)  # type: ignore[arg-type]
        if isinstance(old, ast.ClassDef) and isinstance(new, ast.ClassDef) and _is_test(new):
            added += _without_added(old, new, marks)
    return added


def _is_test(node: ast.stmt) -> bool:
    """Say whether pytest collects this, as the library sets it: ``python_functions`` and ``python_classes``."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return node.name.startswith("test_")
    return isinstance(node, ast.ClassDef) and node.name.startswith("Test")


def _take_decorators(
    old: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef,
    new: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef,
    marks: _Marks,
) -> int:
    kept = _without_skips(old.decorator_list, new.decorator_list, marks)
    named = (_called(mark.func if isinstance(mark, ast.Call) else mark) for mark in old.decorator_list)
    if kept is None or "fixture" in named:  # pytest refuses a mark on a fixture, whatever its name
        return 0
    added = len(new.decorator_list) - len(kept)
    new.decorator_list = kept
    return added


def _without_skips(old: Sequence[ast.expr], new: Sequence[ast.expr], marks: _Marks) -> list[ast.expr] | None:
    """Return the new list without the skip marks that the old one has not; None when more was changed."""
    kept: list[ast.expr] = []
    for mark in new:
        if len(kept) < len(old) and _same(old[len(kept)], mark):
            kept.append(mark)
        elif marks.kind(mark) is None:
            return None
    return kept if len(kept) == len(old) else None


def _take_pytestmark(before: _Scope, after: _Scope, marks: _Marks) -> int:
    """Undo what was added to ``pytestmark``, or the statement that was; return how many skip marks it was."""
    older = [node for node in before.body if _pytestmark(node) is not None]
    newer = [node for node in after.body if _pytestmark(node) is not None]
    if len(newer) != 1 or len(older) > 1:
        return 0
    listed = _listed(_pytestmark(newer[0]))
    old_listed = _listed(_pytestmark(older[0])) if older else []
    if not all(marks.is_mark(mark) for mark in old_listed):  # a name may stand for a list, which no list may hold
        return 0
    kept = _without_skips(old_listed, listed, marks)
    if kept is None or len(kept) == len(listed):
        return 0
    if older:
        after.body[after.body.index(newer[0])] = older[0]
    else:
        after.body.remove(newer[0])
    return len(listed) - len(kept)


def _take_imports(before: _Scope, after: _Scope) -> None:
    """Take out imports of pytest under its own name that a file did not need before it had a mark.

    They change nothing else where the name was not there before.
    """
    had = {*_bound(before)}
    after.body[:] = [
        node
        for node in after.body
        if not (isinstance(node, ast.Import | ast.ImportFrom) and _binds_pytest(node) and not had & {*_bound_by(node)})
    ]


def _binds_pytest(node: ast.Import | ast.ImportFrom) -> bool:
    return len(node.names) == 1 and node.names[0].asname is None and len(list(_pytest_names(node))) == 1


def _pytest_names(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, str]]:
    """Find the names that an import gives to pytest or its marks."""
    for alias in node.names:
        if isinstance(node, ast.Import) and alias.name == "pytest":
            yield alias.asname or "pytest", "pytest"
        elif isinstance(node, ast.ImportFrom) and (node.level, node.module, alias.name) == (0, "pytest", "mark"):
            yield alias.asname or "mark", "pytest.mark"


def _pytestmark(node: ast.stmt) -> ast.expr | None:
    """Return what a plain assignment gives to ``pytestmark``, or None."""
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        target: ast.expr = node.targets[0]
    elif isinstance(node, ast.AnnAssign):
        target = node.target
    else:
        return None
    return node.value if isinstance(target, ast.Name) and target.id == "pytestmark" else None


def _listed(value: ast.expr | None) -> list[ast.expr]:
    """Return the marks of a list, or the single one; pytest takes a tuple for a mark and refuses it."""
    if isinstance(value, ast.List):
        return value.elts
    return [] if value is None else [value]


def _same(old: ast.AST, new: ast.AST) -> bool:
    return ast.dump(old) == ast.dump(new)


class _Marks:
    """What a module's names mean: those that are pytest's for sure, and those that a condition may use."""

    def __init__(self, tree: ast.Module) -> None:
        bound = list(_bound(tree))
        imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
        meant = [pair for node in imports for pair in _pytest_names(node)]
        self._pytest = {
            name: meaning
            for name, meaning in meant
            if "*" not in bound and bound.count(name) == meant.count((name, meaning))
        }
        self._lines: dict[str, int] = {}
        for node in tree.body:
            for name in _bound_here(node):
                self._lines.setdefault(name, node.lineno)

    def is_mark(self, node: ast.expr) -> bool:
        """Say whether this is a mark of pytest's for sure, of whatever name."""
        return (self._dotted(node.func if isinstance(node, ast.Call) else node) or "").startswith("pytest.mark.")

    def kind(self, mark: ast.expr) -> str | None:
        """Return ``skip`` or ``skipif`` for a mark that pytest takes for one, else None.

        pytest's documentation: ``skip`` has a reason or none; ``skipif`` with a condition that is no text needs one.
        """
        call = mark if isinstance(mark, ast.Call) else None
        dotted = self._dotted(call.func if call else mark)
        if dotted == "pytest.mark.skip":
            return "skip" if call is None or self._is_skip(call) else None
        if dotted == "pytest.mark.skipif" and call is not None and self._is_skipif(call):
            return "skipif"
        return None

    def _dotted(self, node: ast.expr) -> str | None:
        if isinstance(node, ast.Name):
            return self._pytest.get(node.id) if self._is_there(node) else None
        if isinstance(node, ast.Attribute):
            before = self._dotted(node.value)
            return f"{before}.{node.attr}" if before else None
        return None

    def _is_there(self, name: ast.Name) -> bool:
        """Say whether a module binds a name above the line that uses it."""
        return self._lines.get(name.id, name.lineno) < name.lineno

    def _is_skip(self, call: ast.Call) -> bool:
        reasons = [*call.args, *(keyword.value for keyword in call.keywords)]
        names = {keyword.arg for keyword in call.keywords}
        return len(reasons) <= 1 and names <= {"reason"} and all(self._is_reason(reason) for reason in reasons)

    def _is_skipif(self, call: ast.Call) -> bool:
        values = {keyword.arg: keyword.value for keyword in call.keywords}
        if len(call.args) == 1:
            values.setdefault("condition", call.args[0])
        if (
            len(call.args) > 1
            or values.keys() != {"condition", "reason"}
            or len(values) != len(call.args) + len(call.keywords)
        ):
            return False
        condition = values["condition"]
        is_text = isinstance(condition, ast.Constant | ast.JoinedStr) and not isinstance(
            getattr(condition, "value", None), bool
        )
        return not is_text and self._is_harmless(condition) and self._is_reason(values["reason"])

    def _is_reason(self, node: ast.expr) -> bool:
        if isinstance(node, ast.JoinedStr):
            return self._is_harmless(node)
        return isinstance(node, ast.Constant) and isinstance(node.value, str)

    def _is_harmless(self, condition: ast.expr) -> bool:
        """Say whether a condition only asks: made of what reads and does not fail, and of names that are there."""
        for node in ast.walk(condition):
            if not isinstance(node, _ASKING):
                return False
            if isinstance(node, ast.Call) and _called(node.func) not in _READING:
                return False
            if isinstance(node, ast.Name) and not (self._is_there(node) or node.id in _READING):
                return False
        return True


def _called(function: ast.expr) -> str:
    """Return the last part of what a call names: ``is_available`` of ``torch.cuda.is_available``."""
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _bound(tree: ast.AST) -> Iterator[str]:
    """Find every name that a tree binds anywhere, once for each time; ``*`` for an import of everything."""
    for node in ast.walk(tree):
        yield from _bound_by(node)


def _bound_by(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield from ((alias.asname or alias.name).partition(".")[0] for alias in node.names)
    elif isinstance(node, ast.Name | ast.Attribute) and not isinstance(node.ctx, ast.Load):
        root: ast.expr = node
        while isinstance(root, ast.Attribute):
            root = root.value
        if isinstance(root, ast.Name):
            yield root.id
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
        yield node.name
    elif isinstance(node, ast.MatchMapping) and node.rest:
        yield node.rest


def _bound_here(node: ast.stmt) -> Iterator[str]:
    """Find the names that a statement of a module binds for what stands below it."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from _bound_by(node)
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        yield from _bound(node)
