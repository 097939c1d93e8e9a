"""A stand-in for DockerHub's account API before a real registry: the tags are the registry's, behaviours are chosen.

There is no server of it to install. What it answers follows the API's reference and what its users report. Below
``/v2/<repository>/manifests`` it is the registry itself, with DockerHub's rules for deletions.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qs, urlencode, urlsplit

from tasks.registry.documents import INDEXES, MANIFESTS
from tests.hub_faults import HangUp, Lose, Reply, Rule, Seen
from tests.registry_servers import Registry

READ, WRITE, DELETE = "repo:read", "repo:write", "repo:delete"
ALL_SCOPES = frozenset({READ, WRITE, DELETE})
TOKEN_ROUTE, LOGIN_ROUTE = "/v2/auth/token", "/v2/users/login"


@dataclass(frozen=True)
class Credential:
    """A name with a secret: ``kind`` is password, pat or oat."""

    name: str
    secret: str
    kind: str = "pat"
    scopes: frozenset[str] = ALL_SCOPES
    two_factor: bool = False


@dataclass
class Hub:
    """The stand-in's address, who may log in, how it behaves, and what it saw. Everything may be changed any time."""

    address: str
    registry: Registry
    credentials: list[Credential] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    rule: Rule = lambda _: None
    missing_routes: set[str] = field(default_factory=set)
    """Log-in routes that are not there."""
    uses: int | None = None
    """How many requests a token is good for."""
    page_size: int = 10
    page_cap: int = 100
    order: str = "newest"
    """newest, oldest or name."""
    count: Callable[[int], int] = lambda count: count
    """What the listing claims, given the number of tags."""
    beyond: int = 404
    """What a page beyond the end is: 404, or 200 for an empty page."""
    following: Callable[[str], str | None] = lambda url: url
    """What the listing gives as the next page, given the right one."""
    pushed: dict[str, str | None] = field(default_factory=dict)
    """Per tag, the time of its push in place of the one in the registry's storage."""
    unlisted: set[str] = field(default_factory=set)
    """Fields that a tag's JSON lacks."""
    immutable: set[str] = field(default_factory=set)
    hides_refusals: bool = False
    """A missing right is a 500 that quotes a 401."""
    keeps_deleted: int = 0
    """How many times a deleted tag is still shown when it is looked up."""
    queues: set[str] = field(default_factory=set)
    """Manifests whose deletion is answered with 500, and done."""
    refuses: set[str] = field(default_factory=set)
    """Manifests whose deletion is answered with 403."""
    latency: float = 0.0
    tokens: dict[str, tuple[Credential, list[int]]] = field(default_factory=dict)
    ghosts: dict[str, list[Any]] = field(default_factory=dict)

    def of(self, method: str, words: str = "") -> list[Seen]:
        """Return the requests of a method whose path contains ``words``."""
        return [one for one in self.seen if one.method == method and words in one.path]

    @property
    def routes(self) -> set[tuple[str, str]]:
        """Return what was asked: methods with the first two parts of their paths."""
        return {(one.method, "/".join(one.path.split("/")[:3])) for one in self.seen}

    def tags_folder(self, repository: str) -> Path:
        return self._folder(repository) / "tags"

    def tags(self, repository: str) -> list[str]:
        """Return the registry's tags now."""
        status, _, body = self.forward("GET", f"/v2/{repository}/tags/list")
        return sorted(json.loads(body)["tags"] or []) if status == 200 else []

    def forward(self, method: str, path: str) -> tuple[int, dict[str, str], bytes]:
        """Ask the registry."""
        accept = ", ".join(sorted(INDEXES | MANIFESTS))
        with contextlib.closing(http.client.HTTPConnection(self.registry.address, timeout=30)) as connection:
            connection.request(method, path, headers={"Accept": accept})
            answer = connection.getresponse()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()

    def row(self, repository: str, tag: str) -> dict[str, Any] | None:
        """Return a tag's JSON, from what the registry has; None when it has no such tag."""
        status, headers, body = self.forward("GET", f"/v2/{repository}/manifests/{tag}")
        if status != 200:
            return None
        document = json.loads(body)
        digest = headers["docker-content-digest"]
        parts = document.get("manifests") or [{"digest": digest, "size": len(body)}]
        when = self.pushed.get(tag, _written(self.tags_folder(repository) / tag))
        images = [
            {
                "architecture": part.get("platform", {}).get("architecture", ""),
                "os": part.get("platform", {}).get("os", ""),
                "digest": part["digest"],
                "size": part["size"],
                "status": "active",
                "last_pushed": when,
            }
            for part in parts
        ]
        row = {
            "creator": 1,
            "id": sum(tag.encode()),
            "images": images,
            "last_updated": when,
            "last_updater_username": "somebody",
            "name": tag,
            "repository": 1,
            "full_size": sum(part["size"] for part in parts),
            "v2": True,
            "tag_status": "active",
            "tag_last_pulled": None,
            "tag_last_pushed": when,
            "media_type": headers["content-type"],
            "content_type": "image",
            "digest": digest,
        }
        return {name: value for name, value in row.items() if name not in self.unlisted}

    def referenced(self, repository: str) -> set[str]:
        """Return the digests that a tag or an index of the repository refers to, tagged or not."""
        found: set[str] = set()
        for tag in self.tags(repository):
            found.add(self.forward("HEAD", f"/v2/{repository}/manifests/{tag}")[1]["docker-content-digest"])
        for link in self._folder(repository).glob("revisions/sha256/*/link"):
            _, _, body = self.forward("GET", f"/v2/{repository}/manifests/sha256:{link.parent.name}")
            found |= {part["digest"] for part in json.loads(body).get("manifests", ())}
        return found

    def _folder(self, repository: str) -> Path:
        return self.registry.storage / "docker/registry/v2/repositories" / repository / "_manifests"


def _written(folder: Path) -> str:
    moment = datetime.fromtimestamp((folder / "current" / "link").stat().st_mtime, UTC)
    return moment.isoformat().replace("+00:00", "Z")


@contextlib.contextmanager
def hub_before(registry: Registry) -> Iterator[Hub]:
    """Run the stand-in until the block ends."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as listener:
        listener.daemon_threads = True
        listener.block_on_close = False
        hub = Hub(f"http://127.0.0.1:{listener.server_address[1]}", registry)
        cast("Any", listener).hub = hub
        thread = threading.Thread(target=listener.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield hub
        finally:
            listener.shutdown()
            thread.join()


def _json(status: int, document: Any) -> Reply:
    return Reply(status, json.dumps(document).encode())


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # the body is written after the headers, and would wait for their receipt

    @property
    def hub(self) -> Hub:
        hub: Hub = cast("Any", self.server).hub
        return hub

    def _any(self) -> None:
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query, keep_blank_values=True).items()}
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = self.rfile.read(int(headers.get("content-length", 0)))
        seen = Seen(self.command, url.path, query, body, headers)
        time.sleep(self.hub.latency)
        fault = self.hub.rule(seen)
        reply = fault if isinstance(fault, Reply) else None
        if reply is None and fault != HangUp():
            reply = self._answer(seen)
        if isinstance(fault, Lose):
            reply = _json(fault.status, {"message": "something broke"})
        if isinstance(fault, HangUp):
            self.hub.seen.append(seen)
            self.close_connection = True
            return
        assert reply is not None
        self.hub.seen.append(replace(seen, status=reply.status))
        self.send_response(reply.status)
        for name, value in reply.headers:
            self.send_header(name, value)
        if not any(name == "content-length" for name, _ in reply.headers):
            self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        if self.command != "HEAD" and reply.status != 204:
            self.wfile.write(reply.body)

    def handle_one_request(self) -> None:
        with contextlib.suppress(ConnectionError):
            super().handle_one_request()
            return
        self.close_connection = True

    do_GET = do_HEAD = do_POST = do_DELETE = _any  # noqa: N815 - the base class's names

    def _answer(self, seen: Seen) -> Reply:
        if seen.path in {TOKEN_ROUTE, LOGIN_ROUTE}:
            return self._log_in(seen)
        match seen.path.strip("/").split("/"):
            case ["v2", "namespaces", namespace, "repositories", name, "tags", *rest]:
                return self._tags(seen, f"{namespace}/{name}", rest, old=False)
            case ["v2", "repositories", namespace, name, "tags", *rest]:
                return self._tags(seen, f"{namespace}/{name}", rest, old=True)
            case ["v2", *parts, "manifests", reference] if parts:
                return self._manifest(seen, "/".join(parts), reference)
        return _json(404, {"message": "404 page not found"})

    def _log_in(self, seen: Seen) -> Reply:
        old = seen.path == LOGIN_ROUTE
        if seen.path in self.hub.missing_routes:
            return Reply(404, b"404 page not found\n", (("Content-Type", "text/plain"),))
        given = json.loads(seen.body)
        pair = (given["username"], given["password"]) if old else (given["identifier"], given["secret"])
        known = next((one for one in self.hub.credentials if (one.name, one.secret) == pair), None)
        if known is None or (old and known.kind == "oat"):
            return _json(401, {"detail": "Incorrect authentication credentials"})
        if known.two_factor and known.kind == "password":
            said = "Require secondary authentication on MFA enabled account"
            return _json(401, {"detail": said, "login_2fa_token": secrets.token_hex(16)})
        token = f"ey{secrets.token_urlsafe(40)}"
        self.hub.tokens[token] = (known, [-1 if self.hub.uses is None else self.hub.uses])
        return _json(200, {"token" if old else "access_token": token})

    def _refusal(self, seen: Seen, *, old: bool) -> Reply | None:
        """Check who asks; None when they may."""
        scheme, _, token = seen.headers.get("authorization", "").partition(" ")
        needs = DELETE if seen.method == "DELETE" else READ
        if not scheme:
            return None if needs == READ else _json(401, {"detail": "authentication required"})
        credential, left = self.hub.tokens.get(token, (None, [0]))
        if scheme != "Bearer" or credential is None or left[0] == 0:
            return _json(401, {"message": "unauthorized: token is invalid or expired"})
        left[0] -= 1
        if old and credential.kind == "oat":
            return _json(403, {"message": "token issued from organization access token is not allowed"})
        if needs in credential.scopes:
            return None
        if self.hub.hides_refusals:
            inner = 'http: non-successful response (status=401 body="authentication required")'
            return _json(500, {"message": f'Delete "internal": {inner}', "errinfo": {}})
        return _json(403, {"detail": "access denied: insufficient scope"})

    def _tags(self, seen: Seen, repository: str, rest: list[str], *, old: bool) -> Reply:
        refusal = self._refusal(seen, old=old)
        if refusal is not None:
            return refusal
        if not self.hub.tags_folder(repository).is_dir():
            return _json(404, {"message": "object not found", "errinfo": {}})
        if not rest:
            return self._list(seen, repository)
        return self._delete(repository, rest[0]) if seen.method == "DELETE" else self._show(repository, rest[0])

    def _show(self, repository: str, tag: str) -> Reply:
        row = self.hub.row(repository, tag)
        ghost = self.hub.ghosts.get(tag)
        if row is None and ghost and ghost[0] > 0:
            ghost[0] -= 1
            row = ghost[1]
        return _json(404, {"message": "tag not found"}) if row is None else _json(200, row)

    def _delete(self, repository: str, tag: str) -> Reply:
        row = self.hub.row(repository, tag)
        if row is None:
            return _json(404, {"message": "tag not found"})
        if tag in self.hub.immutable:
            return _json(400, {"message": f"tag {tag} is immutable"})
        shutil.rmtree(self.hub.tags_folder(repository) / tag)
        self.hub.ghosts[tag] = [self.hub.keeps_deleted, row]
        return Reply(204, b"")

    def _list(self, seen: Seen, repository: str) -> Reply:
        hub = self.hub
        part = seen.query.get("name", "")
        names = [name for name in hub.tags(repository) if part in name]
        if hub.order != "name":
            folder = hub.tags_folder(repository)
            names.sort(key=lambda tag: hub.pushed.get(tag, _written(folder / tag)) or "", reverse=hub.order == "newest")
        size = min(int(seen.query.get("page_size", hub.page_size)), hub.page_cap)
        page = int(seen.query.get("page", 1))
        chosen = names[(page - 1) * size : page * size]
        if not chosen and page > 1 and hub.beyond == 404:
            return _json(404, {"message": "object not found", "errinfo": {}})

        def address(number: int) -> str:
            return f"{hub.address}{seen.path}?{urlencode({'page': number, 'page_size': size})}"

        return _json(
            200,
            {
                "count": hub.count(len(names)),
                "next": hub.following(address(page + 1)) if page * size < len(names) else None,
                "previous": address(page - 1) if page > 1 else None,
                "results": [row for row in (hub.row(repository, name) for name in chosen) if row],
            },
        )

    def _manifest(self, seen: Seen, repository: str, reference: str) -> Reply:
        if seen.method == "DELETE" and (reference in self.hub.refuses or reference in self.hub.referenced(repository)):
            return _json(403, {"errors": [{"code": "DENIED", "message": "manifest is still referenced"}]})
        status, headers, body = self.hub.forward(seen.method, seen.path)
        if seen.method == "DELETE" and reference in self.hub.queues:
            return _json(500, {"errors": [{"code": "UNKNOWN", "message": "deletion was queued"}]})
        kept = ["content-type", "docker-content-digest", *(["content-length"] if seen.method == "HEAD" else [])]
        return Reply(status, body, tuple((name, headers[name]) for name in kept if name in headers))

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        pass
