"""Registries that let nobody in without a password or a token, and the token server for the second kind.

The tokens are real: JSON web tokens that ``docker-registry`` checks itself, signed with a key that openssl makes.
"""

from __future__ import annotations

import base64
import contextlib
import json
import secrets
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

from tests.registry_servers import Registry, registry_in
from tests.services import find_program, service_missing

USER = "releaser"
PASSWORD = "open-sesame"
# bcrypt of the password, the only kind that the registry's htpasswd files may hold.
_HASH = "$2b$04$abcdefghijklmnopqrstuuXcjcm5avyCiJoD2uS24xa2lb6fjMB3G"
IDENTITY = "identity-" + secrets.token_hex(16)
SERVICE = "registry for tests"
ISSUER = "issuer for tests"


def write_login(registry: Registry, **entry: str) -> None:
    """Write docker's configuration with an entry for a registry, by default the user and the right password."""
    entry = entry or {"auth": base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()}
    config = Path(registry.environment["DOCKER_CONFIG"]) / "config.json"
    config.write_text(json.dumps({"auths": {registry.address: entry}}))


def with_login(registry: Registry, folder: Path, **entry: str) -> Registry:
    """Return the same registry, reached with a login of its own in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    own = replace(registry, environment={**registry.environment, "DOCKER_CONFIG": str(folder)})
    write_login(own, **entry)
    return own


@contextlib.contextmanager
def password_registry_in(folder: Path) -> Iterator[Registry]:
    """Run a registry that asks for the user and the password (Basic); nobody is logged in yet."""
    folder.mkdir(parents=True, exist_ok=True)
    passwords = folder / "htpasswd"
    passwords.write_text(f"{USER}:{_HASH}\n")
    with registry_in(folder, {"htpasswd": {"realm": "tests", "path": str(passwords)}}) as registry:
        yield registry


@dataclass
class TokenServer:
    """A token server: whom it lets do what, how long its tokens live in seconds, and what it was asked.

    ``rights`` are the actions for somebody with the password, ``anonymous`` those for anybody.
    """

    realm: str
    key: Path
    certificate: Path
    rights: frozenset[str] = frozenset({"pull", "push", "delete"})
    anonymous: frozenset[str] = frozenset({"pull"})
    lifetime: int = 300
    said_lifetime: int | None = None
    asked: list[tuple[str, dict[str, list[str]], str | None]] = field(default_factory=list)

    def token(self, scopes: list[str], rights: frozenset[str]) -> str:
        """Sign a token for those of the scopes' actions that are granted."""
        now = int(time.time())
        access = []
        for scope in " ".join(scopes).split():
            kind, name, actions = scope.split(":")
            access.append({"type": kind, "name": name, "actions": sorted({*actions.split(",")} & rights)})
        der = base64.b64encode(_openssl("x509", "-in", str(self.certificate), "-outform", "DER")).decode()
        parts = [
            {"typ": "JWT", "alg": "RS256", "x5c": [der]},
            {
                "iss": ISSUER,
                "sub": USER,
                "aud": SERVICE,
                "nbf": now - 60,
                "iat": now,
                "exp": now + self.lifetime,
                "jti": secrets.token_hex(8),
                "access": access,
            },
        ]
        signed = ".".join(_unpadded(json.dumps(part).encode()) for part in parts)
        return f"{signed}.{_unpadded(_openssl('dgst', '-sha256', '-sign', str(self.key), data=signed.encode()))}"

    def answer(self, method: str, form: dict[str, list[str]], authorization: str | None) -> tuple[int, dict[str, Any]]:
        """Return the status and the document for a request."""
        self.asked.append((method, form, authorization))
        expected = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        rights = self.anonymous
        if method == "POST":
            if form.get("refresh_token") != [IDENTITY]:
                return 401, {"error": "invalid_grant"}
            rights = self.rights
        elif authorization == expected:
            rights = self.rights
        elif authorization is not None:
            return 401, {"details": "incorrect username or password"}
        token = self.token(form.get("scope", []), rights)
        life = self.lifetime if self.said_lifetime is None else self.said_lifetime
        return 200, {"access_token" if method == "POST" else "token": token, "expires_in": life}


@contextlib.contextmanager
def token_registry_in(folder: Path) -> Iterator[tuple[Registry, TokenServer]]:
    """Run a registry that asks for tokens (Bearer), and their server."""
    folder.mkdir(parents=True, exist_ok=True)
    if find_program("openssl") is None:
        service_missing("no `openssl` to sign tokens with")
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    _openssl(
        *("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=tests", "-days", "2"),
        *("-keyout", str(key), "-out", str(certificate)),
    )
    with _serving(key, certificate) as server:
        auth = {"realm": server.realm, "service": SERVICE, "issuer": ISSUER, "rootcertbundle": str(certificate)}
        with registry_in(folder, {"token": auth}) as registry:
            yield registry, server


@contextlib.contextmanager
def _serving(key: Path, certificate: Path) -> Iterator[TokenServer]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as listener:
        listener.daemon_threads = True
        server = TokenServer(f"http://127.0.0.1:{listener.server_address[1]}/token", key, certificate)
        cast("Any", listener).tokens = server
        thread = threading.Thread(target=listener.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield server
        finally:
            listener.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _any(self) -> None:
        server: TokenServer = cast("Any", self.server).tokens
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        form = parse_qs(body if self.command == "POST" else urlsplit(self.path).query)
        status, document = server.answer(self.command, form, self.headers.get("Authorization"))
        data = json.dumps(document).encode()
        self.send_response_only(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = _any  # noqa: N815 - the base class's names

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        pass


def _openssl(*arguments: str, data: bytes = b"") -> bytes:
    return subprocess.run(["openssl", *arguments], input=data, capture_output=True, check=True).stdout


def _unpadded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
