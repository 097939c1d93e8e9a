"""Serving a store's index on this machine: the rules of a package index in front of any object store."""

from __future__ import annotations

import contextlib
import hashlib
import ipaddress
import re
import socket
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import replace
from html import escape
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain
from socketserver import TCPServer
from typing import Any, Self

from packaging.version import Version

from tasks.support import console
from tasks.support.errors import (
    ConfigurationError,
    MissingInputError,
    OmniError,
    RemoteChangedError,
    TemporaryError,
    UsageError,
)
from tasks.support.store import Headers, ObjectStore, Stored
from tasks.wheels import browse, layout, negotiation
from tasks.wheels.index import Index
from tasks.wheels.negotiation import Form
from tasks.wheels.routing import Found, Redirect, RefusedError, parse_target, route

IDLE_SECONDS = 60
STOP_SECONDS = 5.0
_PORTS = range(1 << 16)


class Server:
    """A running server; it stops at the end of a ``with`` block. ``url`` has no slash at its end."""

    def __init__(self, listener: _Listener) -> None:
        self._listener = listener
        self._thread = threading.Thread(target=listener.serve_forever, args=(0.05,), name="wheels-serve", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Return the address of the store's top; a view's index is at ``<url>/<view>/``."""
        return self._listener.url

    def wait(self) -> None:
        """Wait until the server is stopped, or a KeyboardInterrupt arrives."""
        self._thread.join()

    def stop(self) -> None:
        """Close the port and every connection; a second call does nothing."""
        self._listener.shutdown()
        self._thread.join()
        self._listener.server_close()
        self._listener.close_connections()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()


def serve(store: ObjectStore, *, host: str = "127.0.0.1", port: int = 0, log: bool = False) -> Server:
    """Start serving a store on a loopback address, in threads of this process; port 0 means a free one.

    GET and HEAD only, and nothing under a key that starts with ``_``. ``log`` prints a line for each request.
    Raises UsageError for an address that other machines could reach, ConfigurationError when the port is not free.
    """
    if not _is_loopback(host):
        raise UsageError(f"{host!r} is not a loopback address", hint="the index is served to this machine only")
    if port not in _PORTS:
        raise UsageError(f"not a port: {port}", hint="0 means a free one")
    try:
        return Server(_Listener((host, port), store, log=log))
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigurationError(f"cannot serve on {host}:{port}: {reason}", hint="port 0 means a free one") from error


def serve_forever(index: Index, *, port: int = 0, log: bool = False) -> None:
    """Serve an index until Ctrl-C, its ordinary end, and say how to look at it and install from it."""
    view = _view_to_show(index)
    with serve(index.store, port=port, log=log) as server, contextlib.suppress(KeyboardInterrupt):
        console.say(f"serving {index.store.url} on {server.url}/ · Ctrl-C stops it")
        if view is None:
            console.say("  there is no nightly and no release here yet; a commit's own view is at /<commit>/")
        for line in usage_lines(server.url, view, index.rules.project):
            console.say(f"  {line}")
        server.wait()
    console.say("stopped")


def usage_lines(url: str, view: str | None, project: str) -> list[str]:
    """Return what can be pasted: the address of the page for people and, for a view, a line for pip and one for uv."""
    if view is None:
        return [f"{url}/{layout.BROWSE}"]
    place = f"{url}/{layout.relative_url(view, 0)}/"
    return [
        f"{place}{layout.BROWSE}",
        f"pip install --no-deps --pre --index-url {place} {project}",
        f"uv pip install --no-deps --prerelease=allow --index {place} {project}",
    ]


def _view_to_show(index: Index) -> str | None:
    """Return nightly, else the newest release, else None."""
    names = index.view_names()
    releases = [name for name in names if layout.is_release(name)]
    if layout.NIGHTLY in names:
        return layout.NIGHTLY
    return max(releases, key=lambda name: Version(name.removeprefix("v")), default=None)


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.IPv4Address(host).is_loopback
    except ValueError:
        return False


class _Listener(ThreadingHTTPServer):
    """The listening socket; it knows its open connections, so that it can end them."""

    daemon_threads = True
    request_queue_size = 128  # uv opens 50 connections at once
    allow_reuse_port = False

    def __init__(self, address: tuple[str, int], store: ObjectStore, *, log: bool) -> None:
        self.store = store
        self.log = log
        self._open: set[Any] = set()
        self._changed = threading.Condition()
        super().__init__(address, _Handler)

    @property
    def url(self) -> str:
        """Return the address of the store's top, without a slash at its end."""
        return f"http://{self.server_name}:{self.server_port}"

    def server_bind(self) -> None:
        """Bind without asking DNS for this machine's name, which the standard library does here."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]

    def process_request(self, request: Any, client_address: Any) -> None:
        """Note the connection, and answer it in a thread of its own."""
        with self._changed:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """End a connection."""
        super().shutdown_request(request)
        with self._changed:
            self._open.discard(request)
            self._changed.notify_all()

    def close_connections(self) -> None:
        """End every connection and wait for their threads, for at most ``STOP_SECONDS``."""
        with self._changed:
            for request in self._open:
                try:
                    request.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue
            self._changed.wait_for(lambda: not self._open, STOP_SECONDS)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - the standard library's signature
        """Show an error of ours; a client that went away is none."""
        error = sys.exception()
        if error is not None and not isinstance(error, (ConnectionError, TimeoutError)):
            console.say("".join(traceback.format_exception(error)).rstrip())


class _Handler(BaseHTTPRequestHandler):
    """Answers the requests of one connection."""

    server: _Listener
    protocol_version = "HTTP/1.1"
    timeout = IDLE_SECONDS
    disable_nagle_algorithm = True
    _answered = False

    def parse_request(self) -> bool:
        """Read a request's head; one that two readers could divide differently ends the connection (RFC 9112)."""
        if not super().parse_request():
            return False
        lengths = self.headers.get_all("Content-Length", [])
        # A line that is no header, such as a name with a blank before its colon, ends the library's reading.
        if self.headers.defects or self.headers.get_payload():
            self.send_error(HTTPStatus.BAD_REQUEST, "a line of the head is no header")
        elif len(lengths) > 1 or not all(re.fullmatch(r"[0-9]+", length.strip(" \t")) for length in lengths):
            self.send_error(HTTPStatus.BAD_REQUEST, "the length of the body is not told by one number")
        else:
            return True
        return False

    def do_GET(self) -> None:
        """Answer with an object, a part of it, or a redirect."""
        self._answered = False
        if self.headers.get("Content-Length", "0") != "0" or "Transfer-Encoding" in self.headers:
            # A body that is not read would be taken for the next request.
            self.close_connection = True
        try:
            self._respond()
        except RefusedError as refused:
            self._refuse(refused.status, refused.text, varies=refused.varies)
        except OmniError as error:
            self._fail(error)
        except (ConnectionError, TimeoutError):
            raise
        except Exception:
            if not self._answered:
                self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, "this is a bug in the automation")
            raise

    def do_HEAD(self) -> None:
        """Answer as for GET, without the body."""
        self.do_GET()

    def _respond(self) -> None:
        accept = ", ".join(self.headers.get_all("Accept", [])) or None
        found = route(self.server.store, parse_target(self.path), accept)
        if isinstance(found, Redirect):
            varies = {"Vary": "Accept"} if found.varies else {}
            self._send(found.status, {"Location": found.path, "Cache-Control": "no-cache", **varies})
            return
        if found.stored.key.endswith(layout.BROWSE):
            self._send_browse(found)
        elif negotiation.still_fresh(self.headers.get("If-None-Match"), found.stored.etag):
            self._send(HTTPStatus.NOT_MODIFIED, _validators(found))
        elif _is_large(found.stored.key):
            self._send_large(found)
        else:
            self._send_page(found)

    def _send_browse(self, found: Found) -> None:
        """Send a page for people with this server's address where it does not know its own; the stored one stays."""
        blob = self.server.store.get(found.stored.key)
        if blob is None:
            raise RefusedError(HTTPStatus.NOT_FOUND, f"{found.stored.key} has just been deleted")
        data = browse.with_address(blob.data, self.server.url)
        stored = blob.stored
        if data != blob.data:
            # Other bytes, another tag: what a client keeps from another port is not this page.
            digest = hashlib.sha256(data).hexdigest()[:16]
            stored = replace(stored, size=len(data), etag=f'"{stored.etag.strip(chr(34))}-{digest}"')
        shown = Found(stored, found.form)
        if negotiation.still_fresh(self.headers.get("If-None-Match"), stored.etag):
            self._send(HTTPStatus.NOT_MODIFIED, _validators(shown))
        else:
            self._send(HTTPStatus.OK, _describe(shown), data)

    def _send_page(self, found: Found) -> None:
        if self.command == "HEAD":
            self._send(HTTPStatus.OK, _describe(found), length=found.stored.size)
            return
        blob = self.server.store.get(found.stored.key)
        if blob is None:
            raise RefusedError(HTTPStatus.NOT_FOUND, f"{found.stored.key} has just been deleted")
        self._send(HTTPStatus.OK, _describe(Found(blob.stored, found.form)), blob.data)

    def _send_large(self, found: Found) -> None:
        """Send a distribution as a stream, or the one range of it that was asked for."""
        stored = found.stored
        headers = {**_describe(found), "Accept-Ranges": "bytes"}
        asked = None
        if self.command == "GET" and negotiation.range_counts(self.headers.get("If-Range"), stored.etag):
            asked = negotiation.choose_range(self.headers.get("Range"), stored.size)
        start, end = asked or (0, stored.size)
        if asked and start >= end:
            self._refuse(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, "the file ends before", size=stored.size)
            return
        body: Iterator[bytes] = iter(())
        if self.command == "GET" and start < end:
            stream = self.server.store.stream(stored.key, start, end)
            # The first bytes come before the status line, so that a store's failure can still become one.
            body = chain([next(stream, b"")], stream)
        if asked:
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{stored.size}"
        self._send(HTTPStatus.PARTIAL_CONTENT if asked else HTTPStatus.OK, headers, length=end - start)
        if self.command == "GET":
            self._copy(stored.key, body, end - start)

    def _copy(self, key: str, body: Iterator[bytes], left: int) -> None:
        """Send a body; one that breaks off ends the connection, so that the client sees that it is short."""
        try:
            for piece in body:
                self.wfile.write(piece[: max(left, 0)])
                left -= len(piece)
        except OmniError as error:
            console.warn(f"{key} broke off: {error.message}")
        if left:
            self.close_connection = True

    def _send(
        self, status: HTTPStatus, headers: Mapping[str, str], data: bytes = b"", *, length: int | None = None
    ) -> None:
        """Send the head of an answer and, unless it answers HEAD, its body; ``length`` where the body follows."""
        self._answered = True
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if status is not HTTPStatus.NOT_MODIFIED:
            self.send_header("Content-Length", str(len(data) if length is None else length))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if data and self.command != "HEAD":
            self.wfile.write(data)

    def _refuse(self, status: HTTPStatus, text: str, *, varies: bool = False, size: int | None = None) -> None:
        title = f"{status.value} {status.phrase}"
        body = f'<!DOCTYPE html>\n<meta charset="utf-8">\n<title>{title}</title>\n<p>{title}: {escape(text)}</p>\n'
        headers = {"Content-Type": layout.HTML.content_type, "Cache-Control": "no-cache", **_SAFE}
        if varies:
            headers["Vary"] = "Accept"
        if size is not None:
            headers["Content-Range"] = f"bytes */{size}"
        self._send(status, headers, body.encode("utf-8", "replace"))

    def _fail(self, error: OmniError) -> None:
        """Answer for a store that failed, and say so here too: clients show the status alone."""
        if isinstance(error, MissingInputError):
            self._refuse(HTTPStatus.NOT_FOUND, "this has just been deleted")
            return
        passes = isinstance(error, (TemporaryError, RemoteChangedError))
        status = HTTPStatus.SERVICE_UNAVAILABLE if passes else HTTPStatus.BAD_GATEWAY
        console.warn(f"{status.value} for {_printable(self.path)}: {error.message}")
        self._refuse(status, console.mask(error.message))

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:  # noqa: ARG002
        """Answer a request that the standard library could not read."""
        self.close_connection = True
        self.request_version = self.protocol_version  # else the answer has no head, as in HTTP/0.9
        self._refuse(HTTPStatus(code), message or HTTPStatus(code).description)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:  # noqa: ARG002
        """Print a line for a request when asked to."""
        if self.server.log:
            status = code.value if isinstance(code, HTTPStatus) else code
            console.say(f"{status} {_printable(self.requestline)}")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the standard library's name
        """Print what the standard library says of a connection when asked to."""
        if self.server.log:
            console.say(_printable(format % args))

    def version_string(self) -> str:
        """Return what the server calls itself."""
        return "omni-ci"


# A page that a store's owner did not write as one is not to be guessed to be one.
_SAFE = {"X-Content-Type-Options": "nosniff"}


def _is_large(key: str) -> bool:
    return not key.endswith((".html", ".json", layout.METADATA_SUFFIX))


def _validators(found: Found) -> dict[str, str]:
    headers = {"ETag": found.stored.etag, "Cache-Control": _stored_headers(found.stored).cache_control}
    return {**headers, "Vary": "Accept"} if found.form else headers


def _describe(found: Found) -> dict[str, str]:
    content_type = _stored_headers(found.stored).content_type
    if found.form is Form.SIMPLE_HTML:
        content_type = found.form.value
    elif found.form is Form.HTML:
        content_type = layout.HTML.content_type
    return {"Content-Type": content_type, **_validators(found), **_SAFE}


def _stored_headers(stored: Stored) -> Headers:
    """Return the headers that an object was stored with; what is missing follows from its key."""
    usual = layout.headers_for(stored.key)
    own = stored.headers or usual
    return Headers(own.content_type or usual.content_type, own.cache_control or usual.cache_control)


def _printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text)
