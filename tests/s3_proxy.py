"""A proxy before the real S3 server that breaks chosen requests, for what a healthy server does not show."""

from __future__ import annotations

import contextlib
import http.client
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

from tests.services import S3Server, aws_isolation


@dataclass(frozen=True)
class Seen:
    """A request as it arrived: ``key`` is the path below the bucket, undecoded; ``query`` has one value per name."""

    method: str
    key: str
    query: dict[str, str]
    headers: dict[str, str]


@dataclass(frozen=True)
class Strip:
    """Forward without these headers, as a server that does not know them would act."""

    headers: tuple[str, ...]


@dataclass(frozen=True)
class Reply:
    """Answer with an S3 error, or with any body, without asking the real server."""

    status: int
    code: str = ""
    body: bytes | None = None


@dataclass(frozen=True)
class CutRequest:
    """Close the connection in the middle of the request's body."""


@dataclass(frozen=True)
class CutAnswer:
    """Forward, and close the connection after half of the answer's body (or, with ``all``, before the answer)."""

    all: bool = False


@dataclass(frozen=True)
class Stall:
    """Read the request and never answer."""


@dataclass(frozen=True)
class Change:
    """Forward, and change the answer's body."""

    change: Callable[[bytes], bytes]


Fault = Strip | Reply | CutRequest | CutAnswer | Stall | Change
Rule = Callable[[Seen], Fault | None]


@dataclass
class Proxy:
    """The proxy's address, what it saw, and the rule that decides which request breaks and how."""

    endpoint: str
    server: S3Server
    rule: Rule = lambda _: None
    seen: list[Seen] = field(default_factory=list)
    stopping: threading.Event = field(default_factory=threading.Event)

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL_S3": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.server.access_key,
            "AWS_SECRET_ACCESS_KEY": self.server.secret_key,
            **aws_isolation(),
        }

    def of(self, method: str, key_end: str = "") -> list[Seen]:
        return [one for one in self.seen if one.method == method and one.key.endswith(key_end)]


@contextlib.contextmanager
def proxy_before(server: S3Server) -> Iterator[Proxy]:
    """Run a proxy until the block ends."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as listener:
        listener.daemon_threads = True
        listener.block_on_close = False
        proxy = Proxy(f"http://127.0.0.1:{listener.server_address[1]}", server)
        cast("Any", listener).proxy = proxy
        thread = threading.Thread(target=listener.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield proxy
        finally:
            proxy.stopping.set()
            listener.shutdown()
            thread.join()


def times(count: int, matches: Callable[[Seen], bool], fault: Fault) -> Rule:
    """Make a rule that breaks the first ``count`` requests that match."""
    left = [count]
    lock = threading.Lock()

    def rule(seen: Seen) -> Fault | None:
        with lock:
            if left[0] == 0 or not matches(seen):
                return None
            left[0] -= 1
            return fault

    return rule


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _any(self) -> None:
        proxy: Proxy = cast("Any", self.server).proxy
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query, keep_blank_values=True).items()}
        headers = {name.lower(): value for name, value in self.headers.items()}
        seen = Seen(self.command, url.path.lstrip("/").partition("/")[2], query, headers)
        proxy.seen.append(seen)
        fault = proxy.rule(seen)
        length = int(headers.get("content-length", 0))
        if isinstance(fault, CutRequest):
            self.rfile.read(length // 2)
            self._hang_up()
            return
        body = self.rfile.read(length)
        if isinstance(fault, Stall):
            proxy.stopping.wait(60)
            self._hang_up()
            return
        if isinstance(fault, Reply):
            self._answer_fault(fault)
            return
        drop = fault.headers if isinstance(fault, Strip) else ()
        self._forward(proxy.server, {k: v for k, v in headers.items() if k not in drop}, body, fault)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _any  # noqa: N815 - the base class's names

    def _answer_fault(self, fault: Reply) -> None:
        data = fault.body
        if data is None:
            data = f"<?xml version='1.0'?><Error><Code>{fault.code}</Code><Message>no</Message></Error>".encode()
        self._answer(fault.status, [("Content-Type", "application/xml")], data)

    def _forward(self, server: S3Server, headers: dict[str, str], body: bytes, fault: Fault | None) -> None:
        signed = _sign(server, self.command, self.path, headers, body)
        connection = http.client.HTTPConnection(urlsplit(server.endpoint).netloc, timeout=30)
        with contextlib.closing(connection):
            connection.request(self.command, self.path, body or None, signed)
            answer = connection.getresponse()
            data = answer.read()
        kept = [(k, v) for k, v in answer.getheaders() if k.lower() not in ("transfer-encoding", "connection")]
        if isinstance(fault, Change):
            data = fault.change(data)
        if isinstance(fault, CutAnswer):
            if not fault.all:
                self._answer(answer.status, kept, data, send=len(data) // 2)
            self._hang_up()
            return
        self._answer(answer.status, kept, data)

    def _answer(self, status: int, headers: list[tuple[str, str]], data: bytes, send: int | None = None) -> None:
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() != "content-length" or self.command == "HEAD":
                self.send_header(name, value)
        if self.command != "HEAD":
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data[:send])

    def _hang_up(self) -> None:
        self.close_connection = True
        self.connection.close()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        pass


def _sign(server: S3Server, method: str, path: str, headers: dict[str, str], body: bytes) -> dict[str, str]:
    """Sign a request anew: the signature covers the headers, so it does not survive a change of them."""
    from botocore.auth import S3SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    dropped = ("authorization", "host", "expect", "connection", "x-amz-date", "x-amz-content-sha256", "content-length")
    kept = {name: value for name, value in headers.items() if name not in dropped and not name.startswith("amz-sdk")}
    request: Any = AWSRequest(method=method, url=server.endpoint + path, headers=kept, data=body)
    S3SigV4Auth(Credentials(server.access_key, server.secret_key), "s3", "us-east-1").add_auth(request)
    return dict(request.headers.items())
