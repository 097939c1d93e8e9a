"""YAML for catalogues: every value knows its file and line, and whatever could be read in two ways is refused.

Refused are doubled keys, anchors and aliases, merge keys, tags, and the words that YAML 1.1 takes for truth values
(``on``, ``yes``); a number where a text is wanted has to be quoted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tasks.support.errors import DataError, MissingInputError, did_you_mean

if TYPE_CHECKING:
    import yaml

_LARGEST = 2**20
_DEEPEST = 100
# What libyaml takes otherwise than the parser without C: some white space, "?" in texts, and tags without a name.
_READ_APART = re.compile(r"(?m)[\t\ufeff\x85\u2028\u2029]|\r(?!\n)|^ *(?=[^ #\n]).*(?:\?|!(?![\w*./]))")
_PREFIX = "tag:yaml.org,2002:"
_SCALARS = frozenset({"str", "null", "bool", "int", "float", "timestamp", "merge", "value"})  # written without a tag


@dataclass(frozen=True)
class Node:
    """A value of a YAML file: a scalar, a tuple of nodes or a mapping of names to nodes. ``where`` is ``file:line``."""

    value: Any
    where: str

    def fail(self, message: str, hint: str | None = None) -> DataError:
        """Make the error about this value."""
        return DataError(f"{self.where}: {message}", hint=hint)

    def items(self, what: str) -> Mapping[str, Node]:
        """Return a mapping with names of its own, or raise DataError."""
        if not isinstance(self.value, Mapping):
            raise self.fail(f"{what} must be a mapping")
        return self.value

    def table(self, what: str, known: Collection[str], required: Collection[str] = ()) -> Mapping[str, Node]:
        """Return a mapping whose keys are all ``known`` and hold the ``required`` ones, or raise DataError."""
        found = self.items(what)
        for key, node in found.items():
            if key not in known:
                hint = did_you_mean(key, known) or f"known are {', '.join(sorted(known))}"
                raise node.fail(f"unknown key {key!r} in {what}", hint)
        for key in required:
            if key not in found:
                raise self.fail(f"{what} has no {key!r}", f"add a line {key}: ...")
        return found

    def elements(self, what: str) -> tuple[Node, ...]:
        """Return a list's values, or raise DataError."""
        if not isinstance(self.value, tuple):
            raise self.fail(f"{what} must be a list")
        return self.value

    def text(self, what: str) -> str:
        """Return a text that is not empty and has one line, or raise DataError."""
        if not isinstance(self.value, str):
            raise self.fail(f"{what} must be a text, not {_shown(self.value)}", "put it in quotes")
        if not self.value or not self.value.isprintable():
            raise self.fail(f"{what} must be a text of one line")
        return self.value

    def texts(self, what: str) -> tuple[str, ...]:
        """Return a list of different texts, or raise DataError."""
        found: dict[str, None] = {}
        for node in self.elements(what):
            text = node.text(f"an entry of {what}")
            if text in found:
                raise node.fail(f"{text!r} is in {what} twice")
            found[text] = None
        return tuple(found)

    def flag(self, what: str) -> bool:
        """Return true or false, or raise DataError."""
        if not isinstance(self.value, bool):
            raise self.fail(f"{what} must be true or false")
        return self.value

    def count(self, what: str) -> int:
        """Return a whole number from 0, or raise DataError."""
        if isinstance(self.value, bool) or not isinstance(self.value, int) or self.value < 0:
            raise self.fail(f"{what} must be a whole number")
        return self.value

    def choice(self, what: str, words: Collection[str]) -> str:
        """Return one of the words, or raise DataError naming the closest."""
        text = self.text(what)
        if text not in words:
            raise self.fail(f"unknown {what} {text!r}", did_you_mean(text, words) or f"choose from {', '.join(words)}")
        return text


def read_file(path: Path, *, shown_as: str | None = None) -> Node:
    """Read a file; MissingInputError when it is not there, DataError with file and line when it is not as it should be.

    ``shown_as`` is what messages call the file; its path when left out.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise MissingInputError(f"{path} is not there") from error
    except OSError as error:
        raise MissingInputError(f"cannot read {path}: {error.strerror}") from error
    return read_bytes(data, shown_as or str(path))


def read_bytes(data: bytes, name: str) -> Node:
    """Read a document; DataError with ``name`` and line when it is not as it should be."""
    import yaml

    if len(data) > _LARGEST:
        raise DataError(f"{name} is larger than {_LARGEST} bytes")
    try:
        text = data.decode("utf-8-sig")
        fast = getattr(yaml, "CSafeLoader", None)
        if fast is not None and not _READ_APART.search(text):
            # The parser without C words its errors better, and has the last word on what is one.
            with suppress(yaml.YAMLError, ValueError, DataError):
                return _read(fast(text), name)
        return _read(yaml.SafeLoader(text), name)
    except UnicodeDecodeError as error:
        raise DataError(f"{name} is not UTF-8: {error}") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark else ""
        raise DataError(f"{name}{line}: {error.problem or error.context}") from error
    except (yaml.YAMLError, ValueError) as error:  # ValueError: an escape past Unicode, in the parser without C
        raise DataError(f"{name}: {' '.join(str(error).split())}") from error


def _read(loader: Any, name: str) -> Node:
    try:
        root = _Composer(name, loader.resolve).read(loader.get_event)
    finally:
        loader.dispose()
    if root is None:
        raise DataError(f"{name} is empty")
    return _convert(root, name)


class _Composer:
    """Make nodes of a parser's events as PyYAML does, without anchors and without recursion."""

    def __init__(self, name: str, resolve: Callable[..., str]) -> None:
        import yaml

        self.name = name
        self.resolve = resolve
        self.open: list[tuple[Any, list[yaml.Node]]] = []
        self.root: yaml.Node | None = None
        self.kinds: dict[type, Any] = {
            yaml.ScalarEvent: yaml.ScalarNode,
            yaml.MappingStartEvent: yaml.MappingNode,
            yaml.SequenceStartEvent: yaml.SequenceNode,
        }

    def read(self, next_event: Callable[[], Any]) -> yaml.Node | None:
        """Read the only document; None when there is none."""
        import yaml

        next_event()  # the stream's start
        start = next_event()
        if isinstance(start, yaml.StreamEndEvent):
            return None
        while type(event := next_event()) is not yaml.DocumentEndEvent:
            if type(event) is yaml.SequenceEndEvent:
                node, children = self.open.pop()
                node.value = children
            elif type(event) is yaml.MappingEndEvent:
                node, children = self.open.pop()
                node.value = list(zip(children[::2], children[1::2], strict=True))
            else:
                self._add(event)
        after = next_event()
        if not isinstance(after, yaml.StreamEndEvent):
            message = ("expected a single document in the stream", start.start_mark)
            raise yaml.composer.ComposerError(*message, "but found another document", after.start_mark)
        return self.root

    def _add(self, event: Any) -> None:
        kind = self.kinds.get(type(event))
        if kind is None or event.anchor is not None:
            raise DataError(f"{self.name}:{event.start_mark.line + 1}: anchors and aliases are not allowed here")
        value = getattr(event, "value", None)  # only a scalar has one
        tag = event.tag
        if tag is None or tag == "!":
            tag = self.resolve(kind, value, event.implicit)
        node = kind(tag, value, event.start_mark, event.end_mark)
        if self.open:
            self.open[-1][1].append(node)
        else:
            self.root = node
        if value is None:
            if len(self.open) >= _DEEPEST:
                raise DataError(f"{self.name} is nested too deeply")
            self.open.append((node, []))


def _convert(node: yaml.Node, name: str) -> Node:
    import yaml

    where = f"{name}:{node.start_mark.line + 1}"
    kind = node.tag.removeprefix(_PREFIX)
    if isinstance(node, yaml.MappingNode) and kind == "map":
        return Node(dict(_pairs(node, name)), where)
    if isinstance(node, yaml.SequenceNode) and kind == "seq":
        return Node(tuple(_convert(child, name) for child in node.value), where)
    if isinstance(node, yaml.ScalarNode) and kind in _SCALARS:
        return Node(_scalar(node, kind, where), where)
    raise DataError(f"{where}: tag {node.tag} is not allowed here")


def _pairs(node: yaml.MappingNode, name: str) -> Iterator[tuple[str, Node]]:
    seen: set[str] = set()
    for key, value in node.value:
        where = f"{name}:{key.start_mark.line + 1}"
        if key.tag != f"{_PREFIX}str" or not isinstance(key.value, str):
            raise DataError(f"{where}: a key must be a text", hint="put it in quotes")
        if key.value in seen:
            raise DataError(f"{where}: {key.value!r} is there twice")
        seen.add(key.value)
        converted = _convert(value, name)
        yield key.value, Node(converted.value, where)


def _scalar(node: yaml.ScalarNode, kind: str, where: str) -> str | int | bool | float | None:
    if kind == "str":
        return str(node.value)
    if kind == "null":
        return None
    if kind == "bool":
        if node.value not in {"true", "false"}:
            raise DataError(f"{where}: {node.value!r} can be read in two ways", hint="write true or false, or quote it")
        return bool(node.value == "true")
    if kind == "int" and node.value.isascii() and node.value.isdigit() and (node.value == "0" or node.value[0] != "0"):
        return int(node.value) if len(node.value) <= 18 else node.value  # noqa: PLR2004 - longer is no count
    if kind == "float":
        try:
            return float(node.value)
        except ValueError:
            pass
    raise DataError(f"{where}: {node.value!r} can be read in two ways", hint="put it in quotes")


def _shown(value: Any) -> str:
    names: dict[type, str] = {tuple: "a list", dict: "a mapping", type(None): "empty", bool: "a truth value"}
    return names.get(type(value), f"the number {value}")
