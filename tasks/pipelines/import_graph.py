"""Which file imports which, read from syntax trees without running anything: what `imports: true` asks.

Counted are imports anywhere in a file, also those for type checking only and inside functions; what a package's
``__init__`` imports; the strings that ``importlib.import_module``, ``pytest.importorskip``, ``mock.patch`` and their
kind are called with; ``pytest_plugins``; and the conftest files above a test. What is computed while the program runs
is not seen, and neither is a file that is no Python: those need a path rule. A file that does not parse counts as one
that imports everything.
"""

from __future__ import annotations

import ast
import json
import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tasks.support.errors import OmniError
from tasks.support.file_ops import new_file, write_all

FORMAT = 1  # of the cache: a change of what is kept is another number
MOST_KEPT = 50_000  # files in the cache; past that only those of the present graph stay

_FAILURES = (SyntaxError, RecursionError, MemoryError, ValueError)
_IMPORTERS = frozenset(
    {"import_module", "__import__", "importorskip", "patch", "setattr", "find_spec", "run_module", "resolve_name"}
)

# Dots before the module, the module, and the names that are taken from it; "*" for all of them.
Imported = tuple[int, str, tuple[str, ...]]
ReadFile = Callable[[str], bytes | None]
_Kept = dict[str, tuple[Imported, ...] | None]


class ImportGraph:
    """The Python files of a source and what each imports; all paths are the source's."""

    def __init__(self, imports: Mapping[str, Sequence[Imported] | None], gone: Iterable[str] = ()) -> None:
        """Take what each file imports, None for a file that does not parse; ``gone`` are files that were deleted."""
        self._opaque = {path for path, found in imports.items() if found is None}
        self._modules = _Modules([*imports, *gone])
        self._edges = {path: tuple(self._targets(path, found or ())) for path, found in imports.items()}
        self._importers: dict[str, list[str]] = {}
        for path in sorted(self._edges):
            for target in self._edges[path]:
                self._importers.setdefault(target, []).append(path)
        self._distances: dict[frozenset[str], dict[str, int]] = {}

    @property
    def paths(self) -> tuple[str, ...]:
        """Return the files that the graph has read, in alphabetical order."""
        return tuple(sorted(self._edges))

    def chain(self, starts: Iterable[str], changed: Iterable[str]) -> tuple[str, ...] | None:
        """Return the shortest way from a start to a changed Python file it imports, both included; None for none.

        Of several, the first in alphabetical order. A start that changed itself is a way of one file. A file that does
        not parse is one import away from every changed one.
        """
        wanted = frozenset(path for path in changed if path.endswith((".py", ".pyi")))
        distances = self._distances.get(wanted)
        if distances is None:
            distances = self._distances[wanted] = self._distances_to(wanted)
        near = [(distances[start], start) for start in starts if start in distances]
        if not near:
            return None
        way = [min(near)[1]]
        while distances[way[-1]]:
            closer = distances[way[-1]] - 1
            ahead = self._edges[way[-1]] if way[-1] not in self._opaque else tuple(sorted(wanted))
            way.append(next(path for path in ahead if distances.get(path) == closer))
        return tuple(way)

    def _distances_to(self, wanted: frozenset[str]) -> dict[str, int]:
        """Find how many imports each file is away from the nearest wanted one, walking from those backwards."""
        distances = dict.fromkeys(sorted(wanted), 0)
        if wanted:
            for path in self._opaque:
                distances.setdefault(path, 1)
        queue = deque(sorted(distances, key=lambda path: (distances[path], path)))
        while queue:
            path = queue.popleft()
            for importer in self._importers.get(path, ()):
                if distances.get(importer, sys.maxsize) > distances[path] + 1:
                    distances[importer] = distances[path] + 1
                    queue.append(importer)
        return distances

    def _targets(self, path: str, found: Sequence[Imported]) -> list[str]:
        targets = {*self._modules.packages(path), *self._modules.conftests(path)}
        for level, module, names in found:
            targets.update(self._modules.resolve(path, level, module, names))
        targets.discard(path)
        return sorted(targets)


def build(
    blobs: Mapping[str, str], read: ReadFile, *, cache: Path | None = None, gone: Iterable[str] = ()
) -> ImportGraph:
    """Read the Python files of a source.

    ``blobs`` has the git blob id of every file, ``read`` returns a file's content and is called for those that the
    folder ``cache`` does not know; ``gone`` are files that the change deleted: who still imports them is found. A file
    that cannot be read counts as one that does not parse. A cache that cannot be read or written is passed over.
    """
    python = {path: blob for path, blob in blobs.items() if path.endswith((".py", ".pyi"))}
    file = cache / f"imports-{FORMAT}-{sys.version_info.major}.{sys.version_info.minor}.json" if cache else None
    known = _load(file) if file else {}
    fresh: _Kept = {}
    found: _Kept = {}
    for path in sorted(python):
        blob = python[path]
        if blob not in known and blob not in fresh:
            content = _content(read, path)
            if content is None:  # not the blob's fault, so nothing is remembered of it
                found[path] = None
                continue
            fresh[blob] = imports_in(content)
        found[path] = fresh[blob] if blob in fresh else known[blob]
    if file and fresh:
        every = {**known, **fresh}
        present = set(python.values())
        _save(file, every if len(every) <= MOST_KEPT else {blob: every[blob] for blob in every if blob in present})
    return ImportGraph(found, (path for path in gone if path.endswith((".py", ".pyi"))))


def _content(read: ReadFile, path: str) -> bytes | None:
    try:
        return read(path)
    except (OmniError, OSError):
        return None


def imports_in(content: bytes) -> tuple[Imported, ...] | None:
    """Return what a file imports, in order and once each; None when it does not parse."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what the parser says of old escapes is the library's affair
            tree = ast.parse(content)
        return tuple(sorted({found for node in ast.walk(tree) for found in _imports(node)}))
    except _FAILURES:
        return None


def _imports(node: ast.AST) -> Iterator[Imported]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield 0, alias.name, ()
    elif isinstance(node, ast.ImportFrom):
        yield node.level, node.module or "", tuple(sorted(alias.name for alias in node.names))
    elif isinstance(node, ast.Call):
        yield from _called(node)
    elif isinstance(node, ast.Assign) and any(
        isinstance(to, ast.Name) and to.id == "pytest_plugins" for to in node.targets
    ):
        for value in ast.walk(node.value):
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield 0, value.value, ()


def _called(call: ast.Call) -> Iterator[Imported]:
    """Find what a call imports by a name that is written out; a relative one is the caller's neighbour."""
    function = call.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    text = (
        call.args[0]
        if call.args
        else next((word.value for word in call.keywords if word.arg in ("name", "target")), None)
    )
    if name in _IMPORTERS and isinstance(text, ast.Constant) and isinstance(text.value, str):
        module = text.value.lstrip(".")
        if all(part.isidentifier() for part in module.split(".")):
            yield len(text.value) - len(module), module, ()


class _Modules:
    """The modules that a source's files are."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._files: dict[str, list[str]] = {}  # by the module's name, with slashes
        self._inside: dict[str, list[str]] = {}  # by the folder
        self._folders: set[str] = set()  # a folder without __init__ is a package too (PEP 420)
        self._all = set(paths)
        for path in sorted(self._all):
            folder, _, name = path.rpartition("/")
            stem = name.rpartition(".")[0]
            place = folder if stem == "__init__" else f"{folder}/{stem}".lstrip("/")
            self._files.setdefault(place, []).append(path)
            self._inside.setdefault(folder, []).append(path)
            while folder and folder not in self._folders:
                self._folders.add(folder)
                folder = folder.rpartition("/")[0]

    def packages(self, path: str) -> Iterator[str]:
        """Find what Python runs before a module: the ``__init__`` files of the packages that it is in."""
        folder = path.rpartition("/")[0]
        while folder and f"{folder}/__init__.py" in self._all:
            yield f"{folder}/__init__.py"
            folder = folder.rpartition("/")[0]

    def conftests(self, path: str) -> Iterator[str]:
        """Find the conftest files that pytest loads before a test file."""
        folder, _, name = path.rpartition("/")
        if not (name.startswith("test_") or name.endswith("_test.py") or name == "conftest.py"):
            return
        parts = folder.split("/") if folder else []
        for length in range(len(parts) + 1):
            above = "/".join([*parts[:length], "conftest.py"])
            if above in self._all:
                yield above

    def resolve(self, path: str, level: int, module: str, names: Sequence[str]) -> Iterator[str]:
        """Find the files that an import statement in a file runs."""
        for base in self._bases(path, level):
            yield from self._from(base, module.split(".") if module else [], names)

    def _bases(self, path: str, level: int) -> list[list[str]]:
        """Return the folders that a module may be looked for in, by its dots or by what is on Python's path.

        Without dots that is the source's top, and the first folder above the file that is no package: what pytest adds
        for a test (its ``prepend`` import mode) and Python for a script.
        """
        folder = path.split("/")[:-1]
        if level:
            return [folder[: len(folder) - level + 1]] if level <= len(folder) + 1 else []
        root = folder
        while root and "/".join([*root, "__init__.py"]) in self._all:
            root = root[:-1]
        return [[], root] if root else [[]]

    def _from(self, base: list[str], module: list[str], names: Sequence[str]) -> Iterator[str]:
        place = list(base)
        if not module:
            yield from self._files.get("/".join(place), ())
        for part in module:
            place.append(part)
            files = self._files.get("/".join(place), ())
            yield from files
            if not files and "/".join(place) not in self._folders:
                return  # the rest names something inside the module
        for name in names:
            if name == "*":
                yield from self._inside.get("/".join(place), ())
            yield from self._files.get("/".join([*place, name]), ())


def _load(file: Path) -> _Kept:
    """Read the cache; an empty one for a file that is not there or is not what was written."""
    with suppress(OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {str(blob): _kept(found) for blob, found in json.loads(file.read_bytes())["blobs"].items()}
    return {}


def _kept(found: Any) -> tuple[Imported, ...] | None:
    if found is None:
        return None
    return tuple((int(dots), str(module), tuple(str(name) for name in names)) for dots, module, names in found)


def _save(file: Path, blobs: _Kept) -> None:
    """Write the cache whole or not at all; of two writers the later one wins, and the other's files are read again."""
    with suppress(OSError, OmniError):
        file.parent.mkdir(parents=True, exist_ok=True)
        with new_file(file.parent, f"keep {file.name}") as new:
            write_all(new.fd, json.dumps({"blobs": blobs}, sort_keys=True, separators=(",", ":")).encode())
            new.path.replace(file)
