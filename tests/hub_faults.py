"""What the stand-in for DockerHub's account API can be told to do wrong, and what it notes of a request."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from email.utils import formatdate


@dataclass(frozen=True)
class Seen:
    """A request as it arrived, and once it was answered the status (0: the connection was closed)."""

    method: str
    path: str
    query: dict[str, str]
    body: bytes = field(repr=False)
    headers: dict[str, str] = field(repr=False)
    status: int = 0


@dataclass(frozen=True)
class Reply:
    """Answer with this and do nothing."""

    status: int
    body: bytes = b"{}"
    headers: tuple[tuple[str, str], ...] = (("Content-Type", "application/json"),)


@dataclass(frozen=True)
class HangUp:
    """Close the connection without an answer; with ``after``, once the request was carried out."""

    after: bool = False


@dataclass(frozen=True)
class Lose:
    """Answer as usual, with this status and an error's body, after the request was carried out."""

    status: int


Fault = Reply | HangUp | Lose
Rule = Callable[[Seen], Fault | None]


def busy(form: str, seconds: float = 1) -> Reply:
    """Make a 429 in one of the forms that users met."""
    plain = (("Content-Type", "text/plain"),)
    moment = time.time() + seconds
    forms = {
        "seconds": (("Retry-After", f"{seconds:.0f}"),),
        "date": (("Retry-After", formatdate(moment, usegmt=True)),),
        "timestamp": (("X-Retry-After", f"{moment:.0f}"),),
        "timestamp in Retry-After": (("Retry-After", f"{moment:.0f}"),),
        "no header": (),
        "nonsense": (("Retry-After", "soon"), ("X-Retry-After", "-")),
        "plain text": plain,
    }
    body = (
        b"Too Many Requests (HAP429).\n"
        if form == "plain text"
        else b'{"detail": "Rate limit exceeded", "error": false}'
    )
    return Reply(429, body, forms[form])


FORMS = ("seconds", "date", "timestamp", "timestamp in Retry-After", "no header", "nonsense", "plain text")


def times(count: int, matches: Callable[[Seen], bool], fault: Fault, *, after: int = 0) -> Rule:
    """Make a rule that breaks ``count`` requests that match, after letting ``after`` of them through."""
    left = [after, count]

    def rule(seen: Seen) -> Fault | None:
        if not matches(seen) or left == [0, 0]:
            return None
        turn = 0 if left[0] else 1
        left[turn] -= 1
        return fault if turn else None

    return rule
