"""YAML and JSON that every reader takes for the same document: the same bytes for the same input.

A text stands without quotes only where YAML 1.1 and 1.2, PyYAML and Go's yaml.v3 all read it as that text; several
lines are a literal block; everything else has double quotes, in which YAML reads JSON's escapes and a few more.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from tasks.support.errors import DataError

_PLAIN = re.compile(r"[A-Za-z_/](?:[A-Za-z0-9_./+@=$()%*<>&|\[\]{}\"',;!?^~\\-]|(?<! )#|:(?! |$)| (?![ #]|$))*")
_WORDS = frozenset({"true", "false", "yes", "no", "on", "off", "null", "y", "n"})  # what YAML 1.1 takes for values
# Small sets, also where they exclude: a set of nearly all characters takes milliseconds to compile at each start.
_LITERAL = re.compile(
    r"[^\x00-\x20\x7F-\xA0\u2028\u2029\uD800-\uDFFF\uFEFF\uFFFE\uFFFF\U00010000-\U0010FFFF]"
    r"[^\n]*(?:\n+[ \t]*[^ \t\n][^\n]*)*\n?"
)
_NOT_IN_BLOCKS = re.compile(r"[\x00-\x08\x0B-\x1F\x7F-\x9F\u2028\u2029\uD800-\uDFFF\uFEFF\uFFFE\uFFFF]")
_ESCAPED = re.compile(r"[\"\\\x00-\x1F\x7F-\x9F\u2028\u2029\uD800-\uDFFF\uFEFF\uFFFE\uFFFF]")
_ODD_IN_JSON = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_NAMED = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
_LONGEST_KEY = 900  # YAML's readers look for a key's colon within 1,024 characters
_DEEPEST = 200


def to_yaml(document: Mapping[str, Any]) -> str:
    """Write a document as YAML; DataError for what is no JSON value and for halves of characters (surrogates)."""
    if not document:
        return "{}\n"
    out: list[str] = []
    _mapping(document, 0, out)
    return "".join(out)


def to_json(document: Mapping[str, Any]) -> str:
    """Write a document as JSON in lines; DataError for the same as `to_yaml`.

    The agent reads JSON as YAML, which refuses JSON's escape of a character in two halves: characters stay themselves.
    """
    to_yaml(document)
    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
    return _ODD_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n"


def _mapping(value: Mapping[str, Any], indent: int, out: list[str]) -> None:
    """Write a mapping whose first key stands where the writer is."""
    space = ""
    for key, child in value.items():
        if not isinstance(key, str):
            raise DataError(f"a key must be a text, not {key!r}", hint="put it in quotes")
        word = _text(key)
        out.append(f"{space}{word}:")
        space = " " * indent
        if len(word) > _LONGEST_KEY:
            out[-1] = f"{out[-1].removesuffix(word + ':')}? {word}\n{space}:"
        if isinstance(child, Mapping) and child:
            out.append(f"\n{space}  ")
            _mapping(child, _deeper(indent), out)
        elif isinstance(child, list | tuple) and child:
            out.append(f"\n{space}  ")
            _list(child, _deeper(indent), out)
        else:
            out.append(f" {_scalar(child, indent + 2)}\n")


def _list(value: Sequence[Any], indent: int, out: list[str]) -> None:
    space = ""
    for child in value:
        out.append(f"{space}- ")
        space = " " * indent
        if isinstance(child, Mapping) and child:
            _mapping(child, _deeper(indent), out)
        elif isinstance(child, list | tuple) and child:
            _list(child, _deeper(indent), out)
        else:
            out.append(f"{_scalar(child, indent + 2)}\n")


def _deeper(indent: int) -> int:
    if indent > 2 * _DEEPEST:
        raise DataError("the pipeline is nested too deeply")
    return indent + 2


def _scalar(value: Any, indent: int) -> str:
    if isinstance(value, str):
        return _block(value, indent) if "\n" in value else _text(value)
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float) and math.isfinite(value):
        mantissa, e, exponent = repr(value).partition("e")
        sign = "" if exponent.startswith("-") else "+"
        return f"{mantissa}{'' if '.' in mantissa else '.0'}e{sign}{exponent.lstrip('+')}" if e else mantissa
    if isinstance(value, Mapping):
        return "{}"
    if isinstance(value, list | tuple):
        return "[]"
    raise DataError(f"not a value that a pipeline can have: {value!r}")


def _block(text: str, indent: int) -> str:
    """Write several lines as a literal block where nothing in them could be read otherwise."""
    if _NOT_IN_BLOCKS.search(text) or not _LITERAL.fullmatch(text):
        return _text(text)
    space = " " * indent
    lines = "\n".join(f"{space}{line}" if line else "" for line in text.removesuffix("\n").split("\n"))
    return f"{'|' if text.endswith(chr(10)) else '|-'}\n{lines}"


@lru_cache(maxsize=2048)
def _text(text: str) -> str:
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    if _SURROGATE.search(text):
        raise DataError(f"half of a character in {text!r}")
    return f'"{_ESCAPED.sub(_escape, text)}"'


def _escape(found: re.Match[str]) -> str:
    character = found[0]
    if character in _NAMED:
        return _NAMED[character]
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"  # noqa: PLR2004 - two digits or four
