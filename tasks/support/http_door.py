"""The http door: how every request of ours behaves, and which error each failure becomes."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from typing import TYPE_CHECKING

from tasks.support.errors import (
    CredentialsError,
    MissingInputError,
    OmniError,
    ServiceRefusedError,
    TemporaryError,
)
from tasks.support.packages import missing_package
from tasks.support.redaction import redact
from tasks.support.settings import CHECKOUT

if TYPE_CHECKING:
    import requests

RETRIED_STATUSES = frozenset({429, 502, 503, 504})
CHUNK = 2**20


@dataclass(frozen=True)
class Manners:
    """How a session treats servers. Times are in seconds; ``read`` is the longest silence, not a whole answer's time.

    ``allow`` are the statuses of 400 and above that the caller reads itself.
    """

    connect: float = 10.0
    read: float = 60.0
    retries: int = 4
    backoff: float = 0.5
    longest_pause: float = 60.0
    connections: int = 10
    allow: frozenset[int] = frozenset()


def open_session(
    *,
    connect: float = Manners.connect,
    read: float = Manners.read,
    retries: int = Manners.retries,
    backoff: float = Manners.backoff,
    longest_pause: float = Manners.longest_pause,
    connections: int = Manners.connections,
    allow: Collection[int] = (),
) -> requests.Session:
    """Return a session with timeouts, bounded retries and our own errors in place of the library's.

    Idempotent methods (RFC 9110 section 9.2.2) are retried after 429, 502, 503, 504 and broken
    connections, at most ``retries`` times, with exponential pauses and jitter, or as Retry-After says up
    to ``longest_pause``. Proxies come from the environment; ``.netrc`` is never read. An answer of 400
    and above that is not in ``allow`` raises; read a streamed body through ``body_of``. A request's body
    is bytes or a seekable file; a session with ``retries=0`` also takes one that can be read once.

    Raises ServiceRefusedError (69: no such host, refused, a 4xx), TemporaryError (75: timeouts, 429,
    5xx), CredentialsError (77: 401, 403), MissingInputError (66: 404).
    """
    try:
        from tasks.support.http_session import DoorSession
    except ModuleNotFoundError as error:
        raise (missing_package(error) or error) from error
    return DoorSession(Manners(connect, read, retries, backoff, longest_pause, connections, frozenset(allow)))


def body_of(response: requests.Response, chunk: int = CHUNK) -> Iterator[bytes]:
    """Yield a streamed body; TemporaryError when it breaks off, so that a part never passes for the whole."""
    from tasks.support.http_session import failure_of, foreseen_errors

    with response:
        try:
            yield from response.iter_content(chunk)
        except foreseen_errors() as error:
            raise failure_of(error, response.request.method, response.url) from error


def refusal(status: int, what: str, detail: str = "") -> OmniError:
    """Make the error for an answer of 400 and above to ``what`` (method and redacted URL)."""
    message = f"{what}: {status}{f' {redact(detail)}' if detail else ''}"
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return CredentialsError(message, hint="check that the credential is set, valid and has the right")
    if status == HTTPStatus.NOT_FOUND:
        return MissingInputError(message)
    if status == HTTPStatus.TOO_MANY_REQUESTS or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return TemporaryError(message, hint="run the same command again later")
    return ServiceRefusedError(message)


@cache
def user_agent() -> str:
    """Return what we call ourselves to servers: the tool's name and version."""
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return f"{project['name']}/{project['version']}"
