"""Read the commands of a shell script far enough to know which words each program gets.

Not Python's shlex: that takes a ``#`` inside a word for a comment, which eats the end of the line, splits ``$(...)``
and knows no line ends. Grammar: POSIX.1-2017, XCU 2.2 (quoting), 2.3 (tokens). Here-documents are not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_OPERATORS = frozenset(";&|()\n")
_REDIRECTS = frozenset("<>")
_SHELLS = frozenset({"bash", "sh", "dash", "zsh", "ksh"})
_RESERVED = frozenset(
    {"if", "then", "else", "elif", "fi", "do", "done", "while", "until", "!", "{", "}", "time", "exec"}
)
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=", re.ASCII)
_DEEPEST = 6  # scripts inside scripts


class ShellError(ValueError):
    """A quote or a bracket that is never closed."""


@dataclass(frozen=True)
class Command:
    """A simple command: its words after quotes are taken off, and the line of the script that it begins at, from 0."""

    words: tuple[str, ...]
    line: int

    def without_prefix(self) -> tuple[str, ...]:
        """Return the words from the program's name on: no reserved words, no assignments."""
        words = self.words
        while words and (words[0] in _RESERVED or _ASSIGNMENT.match(words[0])):
            words = words[1:]
        return words

    def assignments(self) -> tuple[str, ...]:
        """Return what the command sets for itself or exports: ``NAME=value`` words."""
        words = self.words[1:] if self.words[:1] == ("export",) else self.words
        found = []
        for word in words:
            if not _ASSIGNMENT.match(word):
                break
            found.append(word)
        return tuple(found)


def undoubled(text: str) -> str:
    """Return a text as it is after the upload: ``$$`` and ``\\$`` are one ``$``."""
    return text.replace("$$", "$").replace("\\$", "$") if "$" in text else text


def commands(text: str) -> tuple[Command, ...]:
    """Return the simple commands of a script, in its order; ShellError when a quote is never closed."""
    found: list[Command] = []
    words: list[str] = []
    start = 0
    for kind, word, line in _tokens(text):
        if kind == "word":
            start = start if words else line
            words.append(word)
        elif words:
            found.append(Command(tuple(words), start))
            words = []
    if words:
        found.append(Command(tuple(words), start))
    return tuple(found)


def all_commands(text: str, depth: int = 0) -> Iterator[Command]:
    """Yield the simple commands of a script and of every script that one of them hands to a shell's ``-c``."""
    for command in commands(text):
        yield command
        found = shell_script(command.words)
        if found is not None and depth < _DEEPEST:
            try:
                inner = tuple(all_commands(command.words[found], depth + 1))
            except ShellError:
                continue  # the quoting family says so
            yield from (Command(one.words, command.line + one.line) for one in inner)


def shell_script(words: tuple[str, ...]) -> int | None:
    """Return the position of the word that a ``bash -c`` among the words takes as its script, or None."""
    for number, word in enumerate(words):
        if word.rpartition("/")[2] not in _SHELLS:
            continue
        options = number + 1
        while options < len(words) and words[options].startswith(("-", "+")) and len(words[options]) > 1:
            flags = words[options]
            options += 1
            if not flags.startswith("--") and "c" in flags:
                while options < len(words) and words[options] in {"-e", "-u", "-x", "-l", "--"}:
                    options += 1
                return options if options < len(words) else None
            if flags.lstrip("-+").endswith("o") and not flags.startswith("--"):
                options += 1  # -o pipefail, -eo pipefail
    return None


def _tokens(text: str) -> Iterator[tuple[str, str, int]]:
    at = line = 0
    while at < len(text):
        char = text[at]
        if char in " \t\r" or text.startswith("\\\n", at):
            line += char == "\\"
            at += 1 + (char == "\\")
        elif char == "#":
            end = text.find("\n", at)
            at = len(text) if end < 0 else end
        elif char in _OPERATORS:
            yield "operator", char, line
            line += char == "\n"
            at += 1
        elif char in _REDIRECTS:
            at = _redirect(text, at)
        else:
            begin, line_of_word = at, line
            word, at = _word(text, at)
            line += text.count("\n", begin, at)
            if not (word.isdecimal() and text[at : at + 1] in {"<", ">"}):  # 2>&1
                yield "word", word, line_of_word


def _redirect(text: str, at: int) -> int:
    """Return where a redirection ends, the word that it names included: that is no argument."""
    while at < len(text) and text[at] in "<>&|":
        at += 1
    while at < len(text) and text[at] in " \t":
        at += 1
    return _word(text, at)[1]


def _word(text: str, at: int) -> tuple[str, int]:
    parts: list[str] = []
    while at < len(text) and text[at] not in " \t\r" and text[at] not in _OPERATORS and text[at] not in _REDIRECTS:
        char = text[at]
        if char == "\\":
            parts.append(text[at + 1 : at + 2].replace("\n", ""))
            at += 2
        elif char == "'":
            end = text.find("'", at + 1)
            if end < 0:
                raise ShellError("a single quote is never closed")
            parts.append(text[at + 1 : end])
            at = end + 1
        elif char == '"':
            part, at = _double_quoted(text, at + 1)
            parts.append(part)
        elif text.startswith(("$(", "${"), at):
            end = _bracket(text, at + 1)
            parts.append(text[at:end])
            at = end
        elif char == "`":
            end = text.find("`", at + 1)
            if end < 0:
                raise ShellError("a backquote is never closed")
            parts.append(text[at : end + 1])
            at = end + 1
        else:
            parts.append(char)
            at += 1
    return "".join(parts), at


def _double_quoted(text: str, at: int) -> tuple[str, int]:
    parts: list[str] = []
    while at < len(text):
        char = text[at]
        if char == '"':
            return "".join(parts), at + 1
        if char == "\\" and text[at + 1 : at + 2] in {'"', "\\", "$", "`", "\n"}:
            parts.append(text[at + 1].replace("\n", ""))
            at += 2
        elif text.startswith(("$(", "${"), at):
            end = _bracket(text, at + 1)
            parts.append(text[at:end])
            at = end
        else:
            parts.append(char)
            at += 1
    raise ShellError("a double quote is never closed")


def _bracket(text: str, at: int) -> int:
    """Return where the bracket that opens at ``at`` is closed, quotes and other brackets inside it respected."""
    closing = {"(": ")", "{": "}"}
    stack = [closing[text[at]]]
    at += 1
    while at < len(text):
        char = text[at]
        if char == "\\":
            at += 1
        elif char == "'" and stack[-1] == ")":
            at = text.find("'", at + 1)
            if at < 0:
                raise ShellError("a single quote is never closed")
        elif char == '"':
            at = _double_quoted(text, at + 1)[1] - 1
        elif char in closing:
            stack.append(closing[char])
        elif char == stack[-1]:
            stack.pop()
            if not stack:
                return at + 1
        at += 1
    raise ShellError("a bracket is never closed")
