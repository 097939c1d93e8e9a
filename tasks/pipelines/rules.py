"""Matching path rules with changed files: quick enough for a thousand steps and a hundred thousand files."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

from tasks.suites.path_rules import Areas, Rule, composed, literal, parse_rule, parse_rules

__all__ = [
    "Areas",
    "Files",
    "Match",
    "Rule",
    "first_match",
    "literal",
    "matching",
    "parse_rule",
    "parse_rules",
    "uncovered",
]

_FEW = 64  # files that are tried one by one rather than narrowed further

Span = tuple[int, int]


@dataclass(frozen=True)
class Match:
    """A changed file and the rule that covers it."""

    file: str
    rule: Rule

    @property
    def text(self) -> str:
        """Return why the file matches, as part of a sentence about it."""
        rule = self.rule
        if rule.area is not None:
            return f"{self.file} is in area {rule.area}"
        if rule.is_glob:
            return f"{self.file} matches {rule.text}"
        if composed(self.file) == rule.path:
            return f"{self.file} changed"
        return f"{self.file} under {rule.path}/"


class Files:
    """Changed files, sorted once; what rules cover is kept as runs of neighbours in that order and remembered."""

    def __init__(self, paths: Iterable[str]) -> None:
        by_key = {composed(path): path for path in paths}
        self._keys = sorted(by_key)
        self.paths: tuple[str, ...] = tuple(by_key[key] for key in self._keys)
        self._spans: dict[Rule, tuple[Span, ...]] = {}
        self._text = ""  # all files, each closed by a NUL, which no path can hold; made when it is first needed
        self._starts: list[int] = []
        self._names: dict[str, list[int]] = {}
        self._counts: dict[tuple[str, int, int], int] = {}

    def __len__(self) -> int:
        """Return how many different files there are."""
        return len(self._keys)

    def spans(self, rule: Rule) -> tuple[Span, ...]:
        """Return the runs of files that a rule covers, its ``!`` left aside, in order and apart."""
        found = self._spans.get(rule)
        if found is None:
            found = self._spans[rule] = tuple(self._find(rule))
        return found

    def _find(self, rule: Rule) -> Iterator[Span]:
        if rule.area is not None:
            yield from _joined(span for _, span in _covered(rule.inside, self))
        elif rule.is_glob:
            yield from _runs(self._globbed(rule))
        else:
            yield from self._below(rule.path)

    def _below(self, path: str) -> Iterator[Span]:
        """Find the file or submodule of that name and everything below the folder of that name."""
        exact = bisect_left(self._keys, path)
        if exact < len(self._keys) and self._keys[exact] == path:
            yield exact, exact + 1
        low, high = self._starting_with(f"{path}/")
        if low < high:
            yield low, high

    def _starting_with(self, prefix: str) -> Span:
        if not prefix:
            return 0, len(self._keys)
        after = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        low = bisect_left(self._keys, prefix)
        return low, bisect_left(self._keys, after, lo=low)

    def _globbed(self, rule: Rule) -> list[int]:
        path = f"{rule.path}/**" if rule.folder and not rule.path.endswith("**") else rule.path
        low, high = self._starting_with(path[: path.index("*")])
        chunks = [chunk for chunk in re.split(r"/?\*+/?", path) if chunk and not path.startswith(f"{chunk}/")]
        name = path.rpartition("/")[2]
        candidates = list(self._holding(chunks, low, high)) if "*" in name else self._named(name)
        if not candidates:
            return []
        fits = glob_pattern(path).fullmatch
        return [index for index in candidates if fits(self._keys[index])]

    def _named(self, name: str) -> Sequence[int]:
        if not self._names:
            for index, key in enumerate(self._keys):
                self._names.setdefault(key.rpartition("/")[2], []).append(index)
        return self._names.get(name, ())

    def _holding(self, chunks: Sequence[str], low: int, high: int) -> Iterable[int]:
        """Narrow a run to the files that hold the rarest of the texts; searching one long text is what costs least."""
        if high - low <= _FEW or not chunks:
            return range(low, high)
        if not self._text:
            self._text = "".join(f"{key}\0" for key in self._keys)
            self._starts = list(accumulate((len(key) + 1 for key in self._keys), initial=0))
        begin, end = self._starts[low], self._starts[high]
        counts = self._counts
        for chunk in chunks:  # what is known to be frequent is not counted again for the next of many rules
            if (chunk, begin, end) not in counts:
                counts[chunk, begin, end] = self._text.count(chunk, begin, end)
            if counts[chunk, begin, end] <= _FEW:
                return self._hits(chunk, begin, end)
        rarest = min(chunks, key=lambda chunk: counts[chunk, begin, end])
        return self._hits(rarest, begin, end)

    def _hits(self, chunk: str, begin: int, end: int) -> Iterator[int]:
        at = self._text.find(chunk, begin, end)
        while at >= 0:
            index = bisect_right(self._starts, at) - 1
            yield index
            at = self._text.find(chunk, self._starts[index + 1], end)


def first_match(rules: Sequence[Rule], files: Files) -> Match | None:
    """Return the first match, or None: the rules in their order, for each the files in alphabetical order.

    A file counts when a rule covers it and no rule with ``!`` does, whatever the order of the two.
    """
    for rule, (low, _) in _covered(rules, files):
        return Match(files.paths[low], rule)
    return None


def matching(rules: Sequence[Rule], files: Files) -> tuple[str, ...]:
    """Return every file that the rules cover, in alphabetical order."""
    spans = _joined(span for _, span in _covered(rules, files))
    return tuple(path for low, high in spans for path in files.paths[low:high])


def uncovered(lists: Iterable[Sequence[Rule]], files: Files) -> tuple[str, ...]:
    """Return the files that none of the lists covers, in alphabetical order."""
    covered = bytearray(len(files))
    for low, high in {span for rules in lists for _, span in _covered(rules, files)}:
        covered[low:high] = b"\1" * (high - low)
    return tuple(path for path, done in zip(files.paths, covered, strict=True) if not done)


@lru_cache(maxsize=4096)
def glob_pattern(path: str) -> re.Pattern[str]:
    """Translate a glob so that matching takes time in proportion to the text, whatever the rule.

    All but the last stretch between two wildcards of a kind is matched at its first place and never again (atomic
    groups): a later place could not make the rest match that the first does not.
    """
    *blocks, last = [block.strip("/") for block in f"/{path}/".split("/**/")]
    body = "".join(
        f"{_segments(block)}/" if number == 0 else f"(?>(?:[^/]+/)*?{_segments(block)}/)"
        for number, block in enumerate(blocks)
        if block
    )
    if not blocks:
        return re.compile(_segments(last))
    return re.compile(body + (f"(?:[^/]+/)*{_segments(last)}" if last else ".+"), re.DOTALL)


def _segments(block: str) -> str:
    return "/".join(_segment(segment) for segment in block.split("/"))


def _segment(segment: str) -> str:
    """Translate one name; a slash or the end of the text follows it."""
    first, *rest = segment.split("*")
    if not rest:
        return re.escape(first)
    *middle, last = rest
    inner = "".join(f"(?>[^/]*?{re.escape(part)})" for part in middle if part)
    return f"{re.escape(first)}{inner}[^/]*{re.escape(last)}"


def _covered(rules: Sequence[Rule], files: Files) -> Iterator[tuple[Rule, Span]]:
    """Find the runs that each rule covers and no rule with ``!`` does."""
    holes = _joined(span for rule in rules if rule.negated for span in files.spans(rule))
    ends = [end for _, end in holes]
    for rule in rules:
        if rule.negated:
            continue
        for low, high in files.spans(rule):
            start, hole = low, bisect_right(ends, low)
            while start < high and hole < len(holes) and holes[hole][0] < high:
                if start < holes[hole][0]:
                    yield rule, (start, holes[hole][0])
                start = max(start, holes[hole][1])
                hole += 1
            if start < high:
                yield rule, (start, high)


def _joined(spans: Iterable[Span]) -> list[Span]:
    """Sort runs, and join those that touch."""
    joined: list[Span] = []
    for low, high in sorted(spans):
        if joined and low <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(high, joined[-1][1])
        else:
            joined.append((low, high))
    return joined


def _runs(indexes: Iterable[int]) -> list[Span]:
    return _joined((index, index + 1) for index in indexes)
