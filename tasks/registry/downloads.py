"""A blob's bytes from a registry, taken up inside the blob where the connection was cut.

Sources: OCI distribution specification, "Pulling blobs"; RFC 9110 section 14 (Range, Content-Range).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from http import HTTPStatus
from typing import TYPE_CHECKING

from tasks.registry.challenge import Scope
from tasks.registry.client import RegistryClient
from tasks.registry.gate import pause
from tasks.registry.refusals import LATER
from tasks.registry.wire import Ask
from tasks.support.errors import MissingInputError, ServiceRefusedError, TemporaryError

if TYPE_CHECKING:
    import requests

PIECE = 2**19
"""Bytes of one read: with fewer the calls cost processor time, with more nothing is gained."""
_PROGRESS = 2**20
_RANGE = re.compile(r"bytes (?:(\d+)-\d+|\*)/(\d+|\*)")


class _CutError(TemporaryError):
    """The connection broke in the middle of a body."""


def read_blob(client: RegistryClient, url: str, what: str, scope: Scope, start: int) -> Iterator[bytes]:
    """Yield a blob's bytes from ``start`` on; ``what`` names it.

    Goes on as long as each try brings a MiB; TemporaryError after as many tries in a row without, as patience says.
    """
    doing = f"cannot read {what}"
    position = mark = start
    failures = 0
    while True:
        try:
            for piece in _read_once(client, Ask("GET", url, doing, follow=True), scope, position):
                position += len(piece)
                yield piece
        except _CutError as error:
            failures = 1 if position - mark >= _PROGRESS else failures + 1
            mark = position if failures == 1 else mark
            if failures >= client.patience.tries:
                message = f"{doing}: the connection was cut at byte {position} ({failures} tries without getting on)"
                raise TemporaryError(message, hint=LATER) from error
            pause(client.patience.pause(failures))
        else:
            return


def _read_once(client: RegistryClient, ask: Ask, scope: Scope, position: int) -> Iterator[bytes]:
    headers = {"Range": f"bytes={position}-"} if position else {}
    response = client.send(Ask(ask.method, ask.url, ask.doing, headers=headers, follow=True), scope)
    status = response.status_code
    if status == HTTPStatus.NOT_FOUND:
        response.close()
        raise MissingInputError(f"{ask.doing}: it is not there (404)")
    if status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and position == _total(response):
        response.close()
        return
    if status == HTTPStatus.OK:
        yield from _skip(_pieces(response, ask.doing), position)
    elif status == HTTPStatus.PARTIAL_CONTENT and position and position == _first(response):
        yield from _pieces(response, ask.doing)
    elif status == HTTPStatus.PARTIAL_CONTENT:
        response.close()
        raise ServiceRefusedError(f"{ask.doing}: the answer is not the range that was asked for")
    else:
        raise client.refusal(ask.doing, response)


def _pieces(response: requests.Response, doing: str) -> Iterator[bytes]:
    """Yield the body as it is on the wire; urllib3 raises when it is shorter than its Content-Length."""
    from tasks.support.http_session import foreseen_errors

    with response:
        while True:
            try:
                piece = response.raw.read(PIECE, decode_content=False)
            except foreseen_errors() as error:
                raise _CutError(doing) from error
            if not piece:
                return
            yield piece


def _skip(pieces: Iterator[bytes], count: int) -> Iterator[bytes]:
    """Leave out the beginning, for a server that does not know ranges."""
    for piece in pieces:
        if count < len(piece):
            yield piece[count:]
        count = max(count - len(piece), 0)


def _first(response: requests.Response) -> int | None:
    found = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
    return int(found[1]) if found and found[1] else None


def _total(response: requests.Response) -> int | None:
    found = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
    return int(found[2]) if found and found[2] != "*" else None
