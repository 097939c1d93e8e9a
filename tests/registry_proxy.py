"""A proxy before a real registry: it logs every request, and breaks those that a test chooses.

Bodies go through it in pieces, so that large blobs cost no memory; nothing is known here of what they mean.
"""

from __future__ import annotations

import contextlib
import http.client
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

from tests.registry_servers import Registry

_PIECE = 2**16
NO_ADDRESSES = (
    "http://[::1", "http://127.0.0.1:99999/x", "http://127.0.0.1:abc/x", "http://127.0.0.1:0/x",
    "http://[zz]/x", "http://a b/x", "ftp://127.0.0.1/x", "file:///etc/passwd", "http://127.0.0.1:-1/x", "https://\xe9..x/",
    f"https://{'a' * 64}.example/x",
)  # fmt: skip
"""What a registry may say that its answer leads to, and no request can be sent to."""


@dataclass
class Seen:
    """A request as it arrived, at a moment of the monotonic clock; ``received`` and ``status`` are filled in later."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    at: float
    received: int = 0
    status: int = 0
    ended: float = 0.0

    @property
    def is_blob(self) -> bool:
        """Say whether a blob is asked for."""
        return "/blobs/sha256:" in self.path

    @property
    def is_manifest(self) -> bool:
        """Say whether a manifest is read, written or deleted."""
        return "/manifests/" in self.path

    @property
    def is_upload(self) -> bool:
        """Say whether it belongs to an upload."""
        return "/blobs/uploads/" in self.path


@dataclass(frozen=True)
class Reply:
    """Answer without asking the registry, after reading the request's body."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True)
class CutRequest:
    """Close the connection after so many bytes of the request's body, which the registry gets."""

    after: int = 0


@dataclass(frozen=True)
class CutAnswer:
    """Forward, and close the connection after so many bytes of the answer's body; None: before the answer."""

    after: int | None = None


@dataclass(frozen=True)
class Flip:
    """Forward, with one bit of the answer's body (or with ``request``, of the request's) turned at an offset."""

    at: int = 0
    request: bool = False


@dataclass(frozen=True)
class Drop:
    """Forward without these headers of the request and of the answer, in lower case."""

    request: tuple[str, ...] = ()
    answer: tuple[str, ...] = ()


@dataclass(frozen=True)
class Change:
    """Forward, and change the answer, which is read whole: headers (without Content-Length) and body."""

    change: Callable[[dict[str, str], bytes], tuple[dict[str, str], bytes]]


Fault = Reply | CutRequest | CutAnswer | Flip | Drop | Change
Rule = Callable[[Seen], Fault | None]


def never(_seen: Seen) -> Fault | None:
    """Break nothing."""
    return None


def times(count: int, matches: Callable[[Seen], bool], fault: Fault) -> Rule:
    """Make a rule that breaks the first ``count`` requests that match."""
    return from_to(1, count, matches, fault)


def from_to(first: int, last: int, matches: Callable[[Seen], bool], fault: Fault) -> Rule:
    """Make a rule that breaks the requests from the first to the last one of those that match, counted from 1."""
    count = 0
    lock = threading.Lock()

    def rule(seen: Seen) -> Fault | None:
        nonlocal count
        if not matches(seen):
            return None
        with lock:
            count += 1
            return fault if first <= count <= last else None

    return rule


def limited(seconds: str | None) -> Reply:
    """Make the refusal of a registry that is asked too often; ``seconds`` is its Retry-After."""
    body = b'{"errors":[{"code":"TOOMANYREQUESTS","message":"Rate exceeded"}]}'
    return Reply(429, {"Retry-After": seconds} if seconds is not None else {}, body)


@dataclass
class Proxy:
    """The proxy before ``inner``: what it saw, in order, and the rule that decides which request breaks and how."""

    inner: Registry
    registry: Registry
    rule: Rule = never
    seen: list[Seen] = field(default_factory=list)

    @property
    def address(self) -> str:
        """Return ``127.0.0.1:port`` of the proxy."""
        return self.registry.address

    def of(self, method: str, part: str = "") -> list[Seen]:
        """Return the requests with a method whose path has this part."""
        return [one for one in self.seen if one.method == method and part in one.path]

    @property
    def sent(self) -> int:
        """Return how many bytes of blobs came in."""
        return sum(one.received for one in self.seen if one.is_upload)


@contextlib.contextmanager
def proxy_before(registry: Registry) -> Iterator[Proxy]:
    """Run a proxy before a registry until the block ends."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as listener:
        listener.daemon_threads = True
        listener.block_on_close = False
        proxy = Proxy(registry, replace(registry, address=f"127.0.0.1:{listener.server_address[1]}"))
        cast("Any", listener).proxy = proxy
        thread = threading.Thread(target=listener.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield proxy
        finally:
            listener.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # headers and body in few packets

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except OSError:
            self.close_connection = True

    def _any(self) -> None:
        proxy: Proxy = cast("Any", self.server).proxy
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query, keep_blank_values=True).items()}
        headers = {name.lower(): value for name, value in self.headers.items()}
        seen = Seen(self.command, url.path, query, headers, time.monotonic())
        proxy.seen.append(seen)
        fault = proxy.rule(seen)
        try:
            if isinstance(fault, Reply):
                for _ in self._body(seen):
                    pass
                self._answer(seen, fault.status, dict(fault.headers), fault.body)
            else:
                self._forward(proxy.inner, seen, fault)
        finally:
            seen.ended = time.monotonic()

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = do_PATCH = _any  # noqa: N815 - the base class's names

    def _body(self, seen: Seen) -> Iterator[bytes]:
        left = int(seen.headers.get("content-length", 0))
        while left:
            piece = self.rfile.read1(min(_PIECE, left))
            if not piece:
                raise ConnectionError
            left -= len(piece)
            seen.received += len(piece)
            yield piece

    def _forward(self, registry: Registry, seen: Seen, fault: Fault | None) -> None:
        connection = http.client.HTTPConnection(registry.address, timeout=60)
        with contextlib.closing(connection):
            dropped = {"connection", "expect", *(fault.request if isinstance(fault, Drop) else ())}
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in seen.headers.items():
                if name not in dropped:
                    connection.putheader(name, value)
            connection.endheaders()
            for piece in self._changed(self._body(seen), fault if isinstance(fault, Flip) and fault.request else None):
                if isinstance(fault, CutRequest) and seen.received > fault.after:
                    connection.send(piece[: max(fault.after - seen.received + len(piece), 0)])
                    self._hang_up()
                    return
                connection.send(piece)
            if isinstance(fault, CutRequest):  # there was no body to cut
                self._hang_up()
                return
            self._pass_on(connection.getresponse(), seen, fault)

    def _pass_on(self, answer: http.client.HTTPResponse, seen: Seen, fault: Fault | None) -> None:
        dropped = {"transfer-encoding", "connection", *(fault.answer if isinstance(fault, Drop) else ())}
        headers = {name: value for name, value in answer.getheaders() if name.lower() not in dropped}
        if isinstance(fault, CutAnswer) and fault.after is None:
            answer.read()
            self._hang_up()
            return
        if isinstance(fault, Change):
            headers.pop("Content-Length", None)
            changed, body = fault.change(headers, answer.read())
            self._answer(seen, answer.status, changed, body)
            return
        if self.command != "HEAD" and "Content-Length" not in headers and answer.status != 204:
            self._answer(seen, answer.status, headers, answer.read())
            return
        seen.status = answer.status
        self._head(answer.status, headers)
        sent = 0
        for piece in self._changed(iter(lambda: answer.read1(_PIECE), b""), fault):
            if isinstance(fault, CutAnswer) and fault.after is not None and sent + len(piece) > fault.after:
                self.wfile.write(piece[: fault.after - sent])
                self._hang_up()
                return
            self.wfile.write(piece)
            sent += len(piece)
        short = self.command != "HEAD" and sent < int(headers.get("Content-Length", 0))  # some registries do that
        if short or isinstance(fault, CutAnswer):
            self._hang_up()

    def _changed(self, pieces: Iterator[bytes], fault: Fault | None) -> Iterator[bytes]:
        at = 0
        for piece in pieces:
            if isinstance(fault, Flip) and at <= fault.at < at + len(piece):
                turned = bytearray(piece)
                turned[fault.at - at] ^= 1
                yield bytes(turned)
            else:
                yield piece
            at += len(piece)

    def _answer(self, seen: Seen, status: int, headers: Mapping[str, str], body: bytes) -> None:
        seen.status = status
        self._head(status, {**headers, "Content-Length": str(len(body))})
        if self.command != "HEAD":
            self.wfile.write(body)

    def _head(self, status: int, headers: Mapping[str, str]) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _hang_up(self) -> None:
        with contextlib.suppress(OSError):
            self.wfile.flush()
        self.close_connection = True
        self.connection.close()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        pass
