"""The real upload server, and a proxy before it that breaks chosen requests, as a healthy server never does."""

from __future__ import annotations

import contextlib
import http.client
import importlib.util
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

from tests.services import free_ports, running, service_missing

# Everything that a shell, an INI file, HTML, JSON, a regular expression, a URL or rich could take for its own.
TOKEN = r"""pypi-$HOME'"`\%(x)s&lt;<b>[red]{0}+/=:@#é~""".replace("é", "e")


@dataclass(frozen=True)
class PypiServer:
    """A running pypiserver; ``packages`` is the folder that it serves."""

    port: int
    packages: Path


@contextlib.contextmanager
def pypi_server_in(folder: Path) -> Iterator[PypiServer]:
    """Run pypiserver with its files in ``folder``; skip where it is not installed."""
    if importlib.util.find_spec("pypiserver") is None:
        service_missing("the upload server is missing (pip install pypiserver)")
    packages = folder / "packages"
    packages.mkdir(parents=True)
    token = folder / "token"
    token.write_text(TOKEN, encoding="utf-8")
    script = Path(__file__).with_name("pypi_server.py")
    for _ in range(3):
        port = free_ports(1)[0]
        argv = [sys.executable, str(script), str(port), str(packages), str(token)]
        with running(argv, folder=folder, ready=lambda: _answers(port)) as is_ready:  # noqa: B023 - called in this turn
            if is_ready:
                yield PypiServer(port, packages)
                return
    service_missing(f"the upload server did not start:\n{(folder / 'log').read_text(errors='replace')[-2000:]}")


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


@dataclass(frozen=True)
class Seen:
    """A request as it arrived; ``body`` is the whole of it."""

    method: str
    path: str
    body: bytes = field(repr=False)
    authorization: str = field(repr=False)

    @property
    def is_upload(self) -> bool:
        return self.method == "POST"

    def uploads(self, filename: str) -> bool:
        """Say whether this uploads the file of that name."""
        return self.is_upload and f'filename="{filename}"'.encode() in self.body


@dataclass(frozen=True)
class Reply:
    """Answer without asking the real server. ``reason`` is the status line's phrase."""

    status: int
    body: str = ""
    kind: str = "text/html"
    reason: str | None = None
    location: str | None = None


@dataclass(frozen=True)
class HangUp:
    """Close the connection instead of answering, after forwarding when ``forward`` is set."""

    forward: bool = False


@dataclass(frozen=True)
class Change:
    """Forward, and change the answer's body."""

    change: Callable[[str], str]


@dataclass(frozen=True)
class Close:
    """Forward, stop listening, and only then answer: to its clients, the server is gone after this request."""


Fault = Reply | HangUp | Change | Close
Rule = Callable[[Seen], Fault | None]


@dataclass
class Proxy:
    """The proxy's address, what it saw, and the rule that decides which request breaks and how."""

    url: str
    server: PypiServer
    rule: Rule = lambda _: None
    seen: list[Seen] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        """Return the settings that publish through this proxy."""
        return {"OMNI_CI_PYPI_UPLOAD_URL": self.url, "OMNI_CI_PYPI_INDEX_URL": f"{self.url}simple/"}

    @property
    def uploads(self) -> int:
        return sum(seen.is_upload for seen in self.seen)


@contextlib.contextmanager
def proxy_before(server: PypiServer) -> Iterator[Proxy]:
    """Run a proxy until the block ends."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as listener:
        listener.daemon_threads = True
        listener.block_on_close = False
        proxy = Proxy(f"http://127.0.0.1:{listener.server_address[1]}/", server)
        cast("Any", listener).proxy = proxy
        thread = threading.Thread(target=listener.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield proxy
        finally:
            listener.shutdown()
            thread.join()


def first(count: int, matches: Callable[[Seen], bool], fault: Fault) -> Rule:
    """Make a rule that breaks the first ``count`` requests that match."""
    left = [count]

    def rule(seen: Seen) -> Fault | None:
        if left[0] == 0 or not matches(seen):
            return None
        left[0] -= 1
        return fault

    return rule


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _any(self) -> None:
        proxy: Proxy = cast("Any", self.server).proxy
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        seen = Seen(self.command, self.path, body, self.headers.get("Authorization") or "")
        proxy.seen.append(seen)
        fault = proxy.rule(seen)
        if isinstance(fault, Reply):
            self._answer(fault.status, fault.body.encode(), fault.kind, fault.reason, fault.location)
            return
        if isinstance(fault, HangUp) and not fault.forward:
            self._hang_up()
            return
        status, kind, data = self._forward(proxy.server.port, body)
        if isinstance(fault, HangUp):
            self._hang_up()
            return
        if isinstance(fault, Change):
            data = fault.change(data.decode()).encode()
        if isinstance(fault, Close):
            self.server.shutdown()
            self.server.server_close()
        self._answer(status, data, kind)

    do_GET = do_POST = _any  # noqa: N815 - the base class's names

    def _forward(self, port: int, body: bytes) -> tuple[int, str, bytes]:
        headers = {name: value for name, value in self.headers.items() if name.lower() != "connection"}
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
            connection.request(self.command, self.path, body or None, headers)
            answer = connection.getresponse()
            return answer.status, answer.getheader("Content-Type", "text/html"), answer.read()

    def _answer(
        self, status: int, data: bytes, kind: str, reason: str | None = None, location: str | None = None
    ) -> None:
        self.send_response(status, reason)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Connection", "close")
        if location:
            self.send_header("Location", location)
        self.end_headers()
        self.wfile.write(data)
        self.close_connection = True

    def _hang_up(self) -> None:
        self.close_connection = True
        self.connection.close()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        pass
