"""The import graph of a commit: how the tests of a step reach a changed file, asked by steps with ``imports: true``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tasks.pipelines import import_graph
from tasks.pipelines.changes import ChangeSet
from tasks.pipelines.mentions import rules_of_tests
from tasks.pipelines.rules import Files, matching
from tasks.pipelines.selecting import Chain
from tasks.support.errors import DataError
from tasks.support.settings import CHECKOUT
from tasks.support.source import git

CACHE = CHECKOUT / ".omni-ci" / "imports"
_AT_ONCE = 200  # files that git is asked for in one go


def chain_finder(source: Path, changes: ChangeSet, cache: Path = CACHE) -> Chain:
    """Return what finds the way from tests, as commands name them, to files; the commit is read when first asked.

    What was read before is remembered in the folder ``cache``, by the ids that git gives to contents.
    """
    found: list[tuple[import_graph.ImportGraph, Files]] = []

    def chain(tests: Sequence[str], wanted: Sequence[str]) -> tuple[str, ...] | None:
        if changes.commit is None:
            return None
        if not found:
            graph = _graph(source, changes, cache)
            found.append((graph, Files(graph.paths)))
        graph, files = found[0]
        return graph.chain(matching(tuple(rules_of_tests(tests)), files), wanted)

    return chain


def _graph(source: Path, changes: ChangeSet, cache: Path) -> import_graph.ImportGraph:
    listed = git(source, "ls-tree", "-r", "-z", str(changes.commit)).text.split("\0")
    blobs = {}
    for row in listed:
        kind, _, name = row.partition("\t")
        if " blob " in kind:
            blobs[name] = kind.split()[2]
    gone = [file.path for file in changes.files if file.status == "D"]
    return import_graph.build(blobs, _Reader(source, blobs).read, cache=cache, gone=gone)


class _Reader:
    """Reads a commit's Python files, many at a time: one process of git for each file would take minutes."""

    def __init__(self, source: Path, blobs: dict[str, str]) -> None:
        self._source, self._blobs = source, blobs
        self._order = sorted(path for path in blobs if path.endswith((".py", ".pyi")))
        self._places = {path: place for place, path in enumerate(self._order)}
        self._read: dict[str, bytes] = {}

    def read(self, path: str) -> bytes | None:
        """Return a file's content."""
        if path not in self._read:
            self._read = dict(self._ahead(self._order[self._places[path] :][:_AT_ONCE]))
        return self._read.get(path)

    def _ahead(self, paths: Sequence[str]) -> list[tuple[str, bytes]]:
        asked = "".join(f"{self._blobs[path]}\n" for path in paths).encode()
        answer = git(self._source, "cat-file", "--batch", stdin=asked).stdout
        found, start = [], 0
        for path in paths:
            head, _, _ = answer[start : start + 200].partition(b"\n")
            words = head.split()
            if len(words) != 3 or words[1] != b"blob":  # noqa: PLR2004 - id, kind and size
                raise DataError(f"git cannot read {path} in {self._source}: {head.decode(errors='replace')}")
            begin = start + len(head) + 1
            start = begin + int(words[2]) + 1
            found.append((path, answer[begin : start - 1]))
        return found
