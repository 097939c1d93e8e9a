"""What ``$`` means in a pipeline when the Buildkite agent uploads it, and how a text is written that survives that.

The grammar is that of github.com/buildkite/interpolate v0.1.5, which the agent applies to every key and text of a
pipeline: ``$$`` and ``\\$`` are a dollar, ``\\\\`` stays as it is, ``$(``, ``$1``, ``$?`` and ``$_A`` are left
alone, names begin with a letter, and inside ``${}`` stands a name, alone or with ``:-x``, ``-x``, ``?x`` or
``:offset:length``. Everything else inside ``${}`` makes the agent refuse the whole pipeline.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

from tasks.support.errors import DataError
from tasks.support.variables import ALL


class Kind(Enum):
    """What becomes of a name that is interpolated."""

    UPLOAD = "upload"  # exists when the pipeline is uploaded and is the same for every job of the build
    OUTSIDE = "outside"  # anybody who opens a pull request chooses the value
    SECRET = "secret"  # noqa: S105 - a kind: the value would be readable in the pipeline
    JOB = "job"  # belongs to the job that uploads, not to the one that runs the step
    ELSEWHERE = "elsewhere"  # means the uploading machine's environment, or nothing at all
    REJECTED = "rejected"  # the agent refuses the pipeline


@dataclass(frozen=True)
class Use:
    """One expansion of a text, outermost ones and those inside them. ``start`` and ``end`` count characters.

    ``name`` is None and ``error`` says why where the agent would refuse the text; ``depth`` is 0 for outermost ones.
    """

    start: int
    end: int
    text: str
    name: str | None
    kind: Kind
    depth: int = 0
    error: str = ""


UPLOAD_NAMES = frozenset({
    "BUILDKITE", "CI", "BUILDKITE_BUILD_ID", "BUILDKITE_BUILD_NUMBER", "BUILDKITE_BUILD_URL", "BUILDKITE_COMMIT",
    "BUILDKITE_ORGANIZATION_SLUG", "BUILDKITE_PIPELINE_DEFAULT_BRANCH", "BUILDKITE_PIPELINE_ID",
    "BUILDKITE_PIPELINE_NAME", "BUILDKITE_PIPELINE_PROVIDER", "BUILDKITE_PIPELINE_SLUG", "BUILDKITE_PULL_REQUEST",
    "BUILDKITE_REBUILT_FROM_BUILD_ID", "BUILDKITE_REBUILT_FROM_BUILD_NUMBER", "BUILDKITE_REPO", "BUILDKITE_SOURCE",
    "BUILDKITE_TRIGGERED_FROM_BUILD_ID", "BUILDKITE_TRIGGERED_FROM_BUILD_NUMBER",
    "BUILDKITE_TRIGGERED_FROM_BUILD_PIPELINE_SLUG", "BUILDKITE_MERGE_QUEUE_BASE_COMMIT",
    "NIGHTLY", "WEEKLY", "NON_CRITICAL", "RUN_ALL", "DOCS_ONLY_DISABLE", "FAIL_FAST", "COV_ENABLED",
})  # fmt: skip
"""Names whose value is the build's own: Buildkite's, and the variables with which people and schedules start builds."""

OUTSIDE_NAMES = frozenset({
    "BUILDKITE_BRANCH", "BUILDKITE_MESSAGE", "BUILDKITE_TAG", "BUILDKITE_REFSPEC", "BUILDKITE_BUILD_AUTHOR",
    "BUILDKITE_BUILD_AUTHOR_EMAIL", "BUILDKITE_BUILD_CREATOR", "BUILDKITE_BUILD_CREATOR_EMAIL",
    "BUILDKITE_BUILD_CREATOR_TEAMS", "BUILDKITE_PULL_REQUEST_BASE_BRANCH", "BUILDKITE_PULL_REQUEST_REPO",
    "BUILDKITE_PULL_REQUEST_LABELS", "BUILDKITE_PULL_REQUEST_DRAFT", "BUILDKITE_MERGE_QUEUE_BASE_BRANCH",
    "BUILDKITE_UNBLOCKER", "BUILDKITE_UNBLOCKER_EMAIL", "BUILDKITE_UNBLOCKER_TEAMS",
    "BUILDKITE_GITHUB_DEPLOYMENT_PAYLOAD", "BUILDKITE_GITHUB_COMMENT_BODY",
})  # fmt: skip
"""Names whose value is chosen by whoever pushes, writes or is called something."""

_JOB_PREFIX = "BUILDKITE_"  # every other name of Buildkite's is about the job or the agent
_SECRET_ENDINGS = (
    "_PASSWORD", "_SECRET", "_TOKEN", "_PRIVATE_KEY", "_ACCESS_KEY", "_SECRET_KEY", "_CONNECTION_STRING",
)  # fmt: skip
"""What the agent redacts in logs by default (its ``redacted-vars``)."""

_SECRET_NAMES = frozenset(variable.name for variable in ALL if variable.secret)
_INTEGER = re.compile(r"[+-]?[0-9]+")
_LARGEST = 2**63
_HINTS = {
    Kind.OUTSIDE: "its value comes from outside",
    Kind.SECRET: "its value would be in the pipeline for everybody to read",
    Kind.JOB: "at upload it means the job that uploads",
    Kind.ELSEWHERE: "at upload it is empty or means the machine that uploads",
}


def is_secret(name: str) -> bool:
    """Say whether a variable's name is that of a secret, by the agent's endings and our own table."""
    return name in _SECRET_NAMES or name.upper().endswith(_SECRET_ENDINGS)


def kind_of(name: str, declared: Collection[str] = ()) -> Kind:
    """Return what becomes of a name at upload; ``declared`` are those of the pipeline's own ``env``."""
    if is_secret(name):
        return Kind.SECRET
    if name in OUTSIDE_NAMES:
        return Kind.OUTSIDE
    if name in UPLOAD_NAMES or name in declared:
        return Kind.UPLOAD
    return Kind.JOB if name.startswith(_JOB_PREFIX) else Kind.ELSEWHERE


def scan(text: str, declared: Collection[str] = ()) -> tuple[Use, ...]:
    """Return every expansion that the agent would make or refuse, in the text's order.

    After one that is refused the scan goes on behind it, as if it had been written with ``$$``.
    """
    if "$" not in text:
        return ()
    uses: list[Use] = []
    position = 0
    while position < len(text):
        try:
            position = _Reader(text, declared, uses).expression(position, "", 0)
        except _RefusedError as refused:
            start = refused.outermost
            end = _brace_end(text, start)
            uses[:] = [use for use in uses if use.end <= start]
            uses.append(Use(start, end, text[start:end], None, Kind.REJECTED, 0, refused.message))
            position = end
    return tuple(sorted(uses, key=lambda use: (use.start, -use.end)))


def double(text: str, *, keep: Collection[str] = ()) -> str:
    """Write a text so that the agent's interpolation gives it back; names in ``keep`` stay to be interpolated.

    Raises DataError for a backslash that escapes a dollar: the agent eats such a backslash whatever stands before it.
    """
    out: list[str] = []
    position = 0
    while (dollar := text.find("$", position)) >= 0:
        out.append(text[position:dollar])
        before = out[-1]
        if (len(before) - len(before.rstrip("\\"))) % 2:
            raise DataError(
                f"cannot be uploaded as it is: {_excerpt(text, dollar - 1)}",
                hint="the agent reads backslash and dollar as a dollar; put the dollar in single quotes",
            )
        kept = _kept(text, dollar, keep)
        out.append(kept or "$$")
        position = dollar + len(kept or "$")
    return "".join((*out, text[position:]))


def repaired(text: str, declared: Collection[str] = ()) -> str:
    """Return a text with the dollars of everything doubled that is not to be interpolated at upload."""
    out: list[str] = []
    position = 0
    problems = [use for use in scan(text, declared) if use.kind is not Kind.UPLOAD]
    outermost = [use for use in scan(text, declared) if use.depth == 0]
    for use in outermost:
        if any(use.start <= problem.start < use.end for problem in problems):
            out.extend((text[position : use.start], _escaped(use.text)))
            position = use.end
    return "".join((*out, text[position:]))


def reason(use: Use) -> str:
    """Return why a use is not to be uploaded as it is; empty for one that may be."""
    if use.kind is Kind.REJECTED:
        return f"the agent refuses {use.text}: {use.error}"
    return f"{use.text}: {_HINTS[use.kind]}" if use.kind in _HINTS else ""


class _RefusedError(Exception):
    def __init__(self, start: int, message: str) -> None:
        super().__init__(message)
        self.start, self.message, self.outermost = start, message, start


class _Reader:
    """The agent's recursive descent over one text; what it finds goes into ``uses``."""

    def __init__(self, text: str, declared: Collection[str], uses: list[Use]) -> None:
        self.text, self.declared, self.uses = text, declared, uses

    def expression(self, position: int, stop: str, depth: int) -> int:
        """Read up to the end or to a character of ``stop``, and return where that is."""
        text = self.text
        while position < len(text) and text[position] not in stop:
            pair = text[position : position + 2]
            if pair in {"\\\\", "\\$", "$$", "$("}:
                position += 2
            elif pair[0] == "$" and len(pair) == 2:  # noqa: PLR2004 - a last dollar is text
                position = self.expansion(position, depth)
            else:
                position += 1
        return position

    def expansion(self, start: int, depth: int) -> int:
        """Read what follows a dollar, and return where it ends."""
        try:
            if self.text[start + 1] == "{":
                name, end = self.brace(start, depth)
            elif not _is_letter(self.text[start + 1]):
                return start + 1
            else:
                end = _name_end(self.text, start + 1)
                name = self.text[start + 1 : end]
        except _RefusedError as refused:
            refused.outermost = start
            raise
        kind = kind_of(name, self.declared)
        self.uses.append(Use(start, end, self.text[start:end], name, kind, depth))
        return end

    def brace(self, start: int, depth: int) -> tuple[str, int]:
        """Read ``${...}`` and return its name and where it ends."""
        text, first = self.text, start + 2
        if first >= len(text) or not _is_letter(text[first]):
            raise _RefusedError(start, "a name has to begin with a letter")
        position = _name_end(text, first)
        name = text[first:position]
        if text[position : position + 1] == "}":
            return name, position + 1
        position = self.operation(start, position, depth)
        if text[position : position + 1] != "}":
            raise _RefusedError(start, "the closing brace is missing")
        return name, position + 1

    def operation(self, start: int, position: int, depth: int) -> int:
        """Read what follows the name inside the braces, and return where it ends."""
        text = self.text
        if text.startswith(":-", position):
            return self.expression(position + 2, "}", depth + 1)
        if text[position : position + 1] in {"-", "?"} and position < len(text):
            return self.expression(position + 1, "}", depth + 1)
        if text[position : position + 1] != ":":
            raise _RefusedError(start, "only :-, -, ? and :offset:length may follow the name")
        return self.substring(start, position + 1)

    def substring(self, start: int, position: int) -> int:
        """Read ``offset`` and perhaps ``:length``, and return where they end."""
        ends = [end for mark in ":}" if (end := self.text.find(mark, position)) >= 0]
        end = min(ends, default=len(self.text))
        _whole_number(start, "offset", self.text[position:end])
        if self.text[end : end + 1] != ":":
            return end
        last = self.text.find("}", end)
        last = len(self.text) if last < 0 else last
        _whole_number(start, "length", self.text[end + 1 : last])
        return last


def _whole_number(start: int, what: str, text: str) -> None:
    word = text.strip()
    if not _INTEGER.fullmatch(word) or not -_LARGEST <= int(word[:25]) < _LARGEST:
        raise _RefusedError(start, f"{what} {text!r} is not a whole number")


def _is_letter(character: str) -> bool:
    return unicodedata.category(character)[0] == "L"


def _name_end(text: str, position: int) -> int:
    while position < len(text) and (text[position] == "_" or unicodedata.category(text[position])[0] in "LN"):
        position += 1
    return position


def _brace_end(text: str, start: int) -> int:
    """Return where an expansion ends that the agent refuses: behind its last brace, or at the line's end."""
    depth = 0
    for position in range(start, len(text)):
        if text[position] == "\n":
            return position
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if not depth and text[position] == "}":
            return position + 1
    return len(text)


def _kept(text: str, dollar: int, keep: Collection[str]) -> str:
    """Return ``$NAME`` or ``${NAME}`` where it begins at ``dollar`` and its name is to be kept, else an empty text."""
    brace = text.startswith("${", dollar)
    first = dollar + 1 + brace
    end = _name_end(text, first) if first < len(text) and _is_letter(text[first]) else first
    if text[first:end] not in keep or (brace and text[end : end + 1] != "}"):
        return ""
    return text[dollar : end + brace]


def _escaped(text: str) -> str:
    return re.sub(r"\\[\\$]|\$\$|\$", lambda found: "$$" if found[0] == "$" else found[0], text)


def _excerpt(text: str, position: int) -> str:
    return repr(text[max(0, position - 20) : position + 20])
