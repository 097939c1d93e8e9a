"""Buildkite's conditionals (the `if` of a step), evaluated for a build; stricter than Buildkite's own in one point.

The grammar is that of its page "Using conditionals": variables, `build.env("NAME")`, texts, numbers, true, false, null,
`==`, `!=`, `=~`, `!~`, `includes`, `!`, `&&`, `||`, parentheses and `//` comments. Which of `&&` and `||` binds tighter
is not written there, so an expression that mixes them without parentheses is refused here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

Facts = Mapping[str, Any]
Evaluated = Callable[[Facts], Any]

_TOKEN = re.compile(
    r"""\s+|//[^\n]*
    |(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    |(?P<sign>\|\||&&|==|!=|=~|!~|[()!])
    |(?P<regex>/(?:[^/\\]|\\.)+/[a-z]*)
    |(?P<number>[0-9]+)
    |(?P<word>[a-z_]+(?:\.[a-z_]+)*)""",
    re.VERBOSE,
)
VARIABLES = frozenset({
    "build.branch", "build.pull_request.id", "build.pull_request.labels", "build.pull_request.repository.fork",
    "pipeline.default_branch",
})  # fmt: skip
_CONSTANTS = {"true": True, "false": False, "null": None}


def facts(
    *, branch: str | None, default_branch: str, pull_request: int | None, fork: bool,
    labels: frozenset[str], env: Mapping[str, str],
) -> Facts:  # fmt: skip
    """Return what Buildkite knows of a build; without a pull request there are neither labels nor a fork."""
    return {
        "build.branch": branch,
        "pipeline.default_branch": default_branch,
        "build.pull_request.id": pull_request,
        "build.pull_request.labels": labels if pull_request is not None else frozenset(),
        "build.pull_request.repository.fork": fork or (None if pull_request is None else False),
        "env": env,
    }


def evaluate(expression: str, build: Facts) -> bool:
    """Return what an expression is for a build; ValueError when it is none."""
    found = compiled(expression)(build)
    if found is not True and found is not False:
        raise ValueError(f"neither true nor false: {expression}")
    return bool(found)


@cache
def compiled(expression: str) -> Evaluated:
    """Return an expression as a function of a build."""
    parser = _Parser(_tokens(expression))
    found = parser.either()
    if parser.tokens:
        raise ValueError(f"{parser.tokens[0][1]!r} is one too many in {expression}")
    return found


def _tokens(expression: str) -> list[tuple[str, str]]:
    found, position = [], 0
    while position < len(expression):
        match = _TOKEN.match(expression, position)
        if match is None:
            raise ValueError(f"cannot be read from {expression[position:]!r} on")
        if match.lastgroup:
            found.append((match.lastgroup, match[0]))
        position = match.end()
    return found


class _Parser:
    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self.tokens = tokens

    def _take(self, *wanted: str) -> str | None:
        if self.tokens and self.tokens[0][1] in wanted and self.tokens[0][0] != "text":
            return self.tokens.pop(0)[1]
        return None

    def either(self) -> Evaluated:
        terms, signs = [self._comparison()], set()
        while sign := self._take("||", "&&"):
            signs.add(sign)
            terms.append(self._comparison())
        if len(signs) > 1:
            raise ValueError("&& and || without parentheses")
        if "||" in signs:
            return lambda build: any(term(build) for term in terms)
        return (lambda build: all(term(build) for term in terms)) if signs else terms[0]

    def _comparison(self) -> Evaluated:
        left = self._value()
        sign = self._take("==", "!=", "=~", "!~", "includes")
        if sign is None:
            return left
        right = self._value()
        return {
            "==": lambda build: _same(left(build), right(build)),
            "!=": lambda build: not _same(left(build), right(build)),
            "=~": lambda build: bool(re.search(right(build), left(build) or "")),
            "!~": lambda build: not re.search(right(build), left(build) or ""),
            "includes": lambda build: right(build) in left(build),
        }[sign]

    def _value(self) -> Evaluated:
        if self._take("!"):
            inner = self._value()
            return lambda build: not inner(build)
        if self._take("("):
            inner = self.either()
            if not self._take(")"):
                raise ValueError("a parenthesis is not closed")
            return inner
        if not self.tokens:
            raise ValueError("ends too early")
        kind, text = self.tokens.pop(0)
        if kind == "word":
            return self._word(text)
        literal = {"text": text[1:-1], "regex": text[1 : text.rfind("/")], "number": text}.get(kind)
        if literal is None:
            raise ValueError(f"{text!r} is in the wrong place")
        return lambda _build: int(literal) if kind == "number" else literal

    def _word(self, text: str) -> Evaluated:
        if text in _CONSTANTS:
            return lambda _build: _CONSTANTS[text]
        if text == "build.env":
            return self._env()
        if text not in VARIABLES:
            raise ValueError(f"no such variable: {text}")
        return lambda build: build[text]

    def _env(self) -> Evaluated:
        if not self._take("(") or not self.tokens or self.tokens[0][0] != "text":
            raise ValueError('build.env needs a name: build.env("NAME")')
        name = self.tokens.pop(0)[1][1:-1]
        if not self._take(")"):
            raise ValueError("a parenthesis is not closed")
        return lambda build: build["env"].get(name)


def _same(left: Any, right: Any) -> bool:
    return type(left) is type(right) and bool(left == right)
