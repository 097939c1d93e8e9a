"""YAML as Buildkite's agent reads it: values with lines, aliases expanded within bounds, merge keys resolved."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tasks.support.errors import DataError

if TYPE_CHECKING:
    import yaml

_LARGEST = 2**22  # bytes of a file
_EXPANDED = 2**24  # characters after aliases are expanded, where each value counts _VALUE more
_VALUE = 64
_DEEPEST = 100  # levels; a pod specification in a group's step has 16
_STR, _MAP, _SEQ = (f"tag:yaml.org,2002:{kind}" for kind in ("str", "map", "seq"))
_WORDS: Mapping[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_ENDLESS = frozenset({".nan", ".NaN", ".NAN"} | {s + w for s in ("", "+", "-") for w in (".inf", ".Inf", ".INF")})
_FIRST = frozenset("+-.0123456789~nNtTfF")
_INTEGER = re.compile(r"([-+]?)(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|0[oO]?([0-7]+)|(0|[1-9][0-9]*))")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_BASES = (16, 2, 8, 10)
_UNREADABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f]|\ufeff|\ufffe|\uffff")
_ODD_LETTERS = {"\0": "a NUL byte", "\ufeff": "a byte order mark in the middle of the file"}
_POINT_FIRST = re.compile(r"\.[0-9]+(?:_[0-9]+)*(?:[eE][-+]?[0-9]+(?:_[0-9]+)*)?")
_ODD = re.compile(r"0[bo][-+][0-9]+")  # Go takes 0b-1 for a number, which no reader expects


@dataclass(frozen=True)
class Document:
    """The first document of a file. ``value`` is plain: dicts with texts as keys, lists, texts, numbers, truth values.

    What two aliases name is one and the same object: whoever changes a value makes a new one.
    """

    name: str
    value: Any
    line: int
    warnings: tuple[str, ...]
    _lines: Mapping[int, Any] = field(repr=False)

    def key_lines(self, mapping: Mapping[str, Any]) -> Mapping[str, int]:
        """Return the line of each key of a mapping of this document."""
        found: Mapping[str, int] = self._lines[id(mapping)]
        return found

    def item_lines(self, items: Sequence[Any]) -> Sequence[int]:
        """Return the line of each element of a list of this document."""
        found: Sequence[int] = self._lines[id(items)]
        return found


def read_document(data: bytes, name: str) -> Document:
    """Read the first document; DataError with ``name`` and line for what the agent does not read, or for a bomb."""
    import yaml

    text = _decoded(data, name)
    builder = _Builder(name)
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text)
    try:
        return builder.read(loader.get_event)
    except yaml.MarkedYAMLError as error:
        raise _unreadable(error, text, name) from error
    except (yaml.YAMLError, ValueError) as error:  # ValueError: an escape past Unicode, in the parser without C
        line = getattr(loader, "line", 0) + 1
        raise DataError(f"{name}:{line}: {' '.join(str(error).split())}") from error
    finally:
        loader.dispose()


def plain_scalar(text: str) -> Any:
    """Return what the agent takes a plain scalar for: text, number, truth value or None.

    A number with a leading zero is octal where it can be and else decimal; underscores in numbers are dropped; a date
    is a text. ValueError for what JSON does not have (NaN, infinity) and for ``0b-1``.
    """
    if text[:1] not in _FIRST and text:
        return text
    if text in _WORDS:
        return _WORDS[text]
    if text in _ENDLESS:
        raise ValueError(text)
    if text[0] == ".":
        return _float(text.replace("_", "")) if _POINT_FIRST.fullmatch(text) else text
    if text[0] not in "+-0123456789":
        return text
    number = text.replace("_", "")
    match = _INTEGER.fullmatch(number)
    if match:
        sign, *digits = match.groups()
        base, found = next((base, part) for base, part in zip(_BASES, digits, strict=True) if part is not None)
        digits_of_value = found.lstrip("0") or "0"
        if len(digits_of_value) <= 64:  # noqa: PLR2004 - the digits of 64 bits in base 2; more are out of range
            value = int(digits_of_value, base) * (-1 if sign == "-" else 1)
            if -(2**63) <= value < (2**63 if sign else 2**64):
                return value
    if _ODD.fullmatch(number):
        raise ValueError(text)
    result = _float(number)
    return text if isinstance(result, str) else result


def _line(event: yaml.Event) -> int:
    mark: Any = event.start_mark
    return int(mark.line) + 1


def _float(text: str) -> float | str:
    if not _FLOAT.fullmatch(text):
        return text
    value = float(text)
    return text if value in {float("inf"), float("-inf")} else value


def _decoded(data: bytes, name: str) -> str:
    if len(data) > _LARGEST:
        raise DataError(f"{name} is larger than {_LARGEST} bytes")
    if data[:2] in {b"\xff\xfe", b"\xfe\xff"}:
        raise DataError(f"{name}:1: the file is UTF-16", hint="save it as UTF-8")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DataError(f"{name}:{line}: the file is not UTF-8: {error.reason}", hint="save it as UTF-8") from error
    odd = _UNREADABLE.search(text)
    if odd:
        line = text.count("\n", 0, odd.start()) + 1
        what = _ODD_LETTERS.get(odd[0]) or f"the control character U+{ord(odd[0]):04X}"
        raise DataError(f"{name}:{line}: there is {what}", hint="save the file as UTF-8 without it")
    return text


def _unreadable(error: yaml.MarkedYAMLError, text: str, name: str) -> DataError:
    mark = error.problem_mark or error.context_mark
    if mark is None:
        return DataError(f"{name}: {error.problem or error.context}")
    line = (text.splitlines() or [""])[mark.line : mark.line + 1]
    start = line[0][: len(line[0]) - len(line[0].lstrip())] if line else ""
    if "\t" in start:
        return DataError(f"{name}:{mark.line + 1}: a tab in the indentation", hint="indent with spaces")
    return DataError(f"{name}:{mark.line + 1}: {error.problem or error.context}")


class _Merge:
    """Stands for the merge key ``<<`` while its mapping is read."""


_MERGE: Any = _Merge()


class _Open:
    """A mapping or list whose end was not read yet."""

    __slots__ = ("anchor", "height", "key", "key_line", "line", "lines", "size", "value")

    def __init__(self, value: Any, line: int, lines: Any, anchor: str | None) -> None:
        self.value = value
        self.line = line
        self.lines = lines
        self.anchor = anchor
        self.size = _VALUE
        self.height = 1
        self.key: Any = None
        self.key_line = 0


class _Builder:
    """Make values of a parser's events, without recursion, and stop where they grow too large."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.stack: list[_Open] = []
        self.lines: dict[int, Any] = {}  # by identity; a value that is gone has its place taken by a later one
        self.anchors: dict[str, tuple[Any, int, int] | None] = {}  # value, size, height; None while it is open
        self.size = 0
        self.root: Any = None
        self.line = 1

    def read(self, next_event: Callable[[], Any]) -> Document:
        """Read the first document's events."""
        import yaml

        scalar, alias, end = yaml.ScalarEvent, yaml.AliasEvent, yaml.CollectionEndEvent
        next_event()  # the stream's start
        if isinstance(next_event(), yaml.StreamEndEvent):
            return Document(self.name, None, 1, (), {})
        take = self._scalar
        while True:
            event = next_event()
            kind = type(event)
            if kind is scalar:
                take(event, event.start_mark.line + 1)
            elif issubclass(kind, end):
                self._close()
            elif kind is alias:
                self._alias(event)
            elif kind is yaml.DocumentEndEvent:
                break
            else:
                self._start(event, kind is yaml.MappingStartEvent)
        after = next_event()
        warnings: tuple[str, ...] = ()
        if not isinstance(after, yaml.StreamEndEvent):
            line = _line(after)
            warnings = (f"{self.name}:{line}: a second document begins here; only the first is read",)
        return Document(self.name, self.root, self.line, warnings, self.lines)

    def _fail(self, line: int, message: str, hint: str | None = None) -> DataError:
        return DataError(f"{self.name}:{line}: {message}", hint=hint)

    def _scalar(self, event: yaml.ScalarEvent, line: int) -> None:
        value: Any = event.value
        tag, style = event.tag, event.style
        if tag is not None and tag not in {"!", _STR}:
            raise self._fail(line, f"the tag {tag[:40]} is not allowed here", "write the value without it")
        size = _VALUE + len(value)
        stack = self.stack
        if not style and tag != _STR:
            if value[:1] not in _FIRST and value and value != "<<":
                pass  # most are texts
            elif value == "<<" and stack and type(stack[-1].value) is dict and stack[-1].key is None:
                value = _MERGE
            else:
                try:
                    value = plain_scalar(value)
                except ValueError:
                    raise self._fail(line, f"{value[:40]!r} can be read in two ways", "put it in quotes") from None
        elif style == '"':
            self._check_escaped(value, line)
        if event.anchor is not None:
            self.anchors[event.anchor] = ("<<" if value is _MERGE else value, size, 0)
        self._add(value, line, size, 0)

    def _check_escaped(self, value: str, line: int) -> None:
        if "\0" in value:
            raise self._fail(line, "there is a NUL character in a text")
        if not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value):
            raise self._fail(line, "there is half of a surrogate pair in a text")

    def _alias(self, event: yaml.AliasEvent) -> None:
        line = _line(event)
        if event.anchor not in self.anchors:
            raise self._fail(line, f"there is no anchor &{str(event.anchor)[:40]} before this")
        target = self.anchors[event.anchor]
        if target is None:
            raise self._fail(line, f"*{str(event.anchor)[:40]} contains itself")
        value, size, height = target
        self._add(value, line, size, height)

    def _start(self, event: yaml.CollectionStartEvent, mapping: bool) -> None:
        line = _line(event)
        tag = event.tag
        if tag is not None and tag not in {"!", _MAP if mapping else _SEQ}:
            raise self._fail(line, f"the tag {tag[:40]} is not allowed here", "write the value without it")
        if len(self.stack) >= _DEEPEST:
            raise self._fail(line, f"nested more than {_DEEPEST} levels deep")
        if self.stack and type(self.stack[-1].value) is dict and self.stack[-1].key is None:
            raise self._fail(line, "a key must be a text, not a list or mapping")
        if event.anchor is not None:
            self.anchors[event.anchor] = None
        self.stack.append(_Open({} if mapping else [], line, {} if mapping else [], event.anchor))

    def _close(self) -> None:
        done = self.stack.pop()
        if type(done.value) is dict and _MERGE in done.value:
            self._merge(done)
        self.lines[id(done.value)] = done.lines
        if done.anchor is not None:
            self.anchors[done.anchor] = (done.value, done.size, done.height)
        self.size -= done.size - _VALUE  # added again with the whole
        self._add(done.value, done.line, done.size, done.height)

    def _add(self, value: Any, line: int, size: int, height: int) -> None:
        self.size += size
        if self.size > _EXPANDED:
            raise self._fail(line, "the file grows too large here", "aliases of aliases multiply; write it shorter")
        if not self.stack:
            self.root, self.line = value, line
            return
        parent = self.stack[-1]
        if len(self.stack) + height > _DEEPEST:
            raise self._fail(line, f"nested more than {_DEEPEST} levels deep")
        parent.size += size
        if height >= parent.height:
            parent.height = height + 1
        if type(parent.value) is list:
            parent.value.append(value)
            parent.lines.append(line)
        elif parent.key is None:
            self._key(parent, value, line)
        else:
            parent.value[parent.key] = value
            parent.lines[parent.key] = parent.key_line
            parent.key = None

    def _key(self, parent: _Open, value: Any, line: int) -> None:
        if type(value) is not str and value is not _MERGE:
            value = self._key_text(value, line)
        if value in parent.value:
            first = parent.lines[value]
            if value is _MERGE:
                raise self._fail(line, f"<< is there twice, first in line {first}", "write <<: [*one, *other]")
            raise self._fail(line, f"{value[:80]!r} is there twice, first in line {first}", "remove one of the two")
        parent.key, parent.key_line = value, line

    def _key_text(self, value: Any, line: int) -> str:
        # As go-pipeline's canonicalMapKey does it: JSON has texts only, and 0xb and 11 are the same key.
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, int):
            return str(value)
        if isinstance(value, float):
            return f"{value:e}"
        raise self._fail(line, "a key must be a text", "put it in quotes")

    def _merge(self, done: _Open) -> None:
        merged = dict(self._merged(done.value[_MERGE], done.lines[_MERGE]))
        own = dict(done.value)
        lines = done.lines
        done.value.clear()
        done.lines = {}
        for key, value in own.items():
            if key is not _MERGE:
                done.value[key], done.lines[key] = value, lines[key]
                continue
            for name, (inner, line) in merged.items():
                if name not in own:
                    done.value[name], done.lines[name] = inner, line

    def _merged(self, value: Any, line: int) -> Iterator[tuple[str, tuple[Any, int]]]:
        if isinstance(value, list):
            found: dict[str, tuple[Any, int]] = {}
            for item in value:
                for key, pair in self._merged(item, line):
                    found.setdefault(key, pair)
            yield from found.items()
        elif isinstance(value, dict):
            lines = self.lines[id(value)]
            for key, inner in value.items():
                yield key, (inner, lines[key])
        else:
            raise self._fail(line, "<< merges mappings only")
