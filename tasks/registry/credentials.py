"""Who we are to a registry: DockerHub's variables, else docker's own configuration and credential helpers.

What is found stays in memory: nothing is written, and no representation shows a secret. Source: docker's
documentation of ``docker login`` (config.json: auths, credHelpers, credsStore) and of credential helpers.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tasks.registry.references import DOCKER_HUB
from tasks.support.errors import ConfigurationError, CredentialsError, OmniError
from tasks.support.process import capture
from tasks.support.redaction import MASK, redact
from tasks.support.settings import Settings

_HUB_KEYS = (
    "https://index.docker.io/v1/",
    DOCKER_HUB,
    "index.docker.io",
    "registry-1.docker.io",
    "https://registry-1.docker.io",
)
_HELPER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_HELPER_SECONDS = 60.0
_NOT_FOUND = b"credentials not found"
_TOKEN_USER = "<token>"  # noqa: S105 - the word with which a helper says that its secret is an identity token


@dataclass(frozen=True, repr=False)
class Credential:
    """A user and password, an identity token (exchanged for others), or a token that is sent as it is."""

    source: str
    username: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    identity_token: str = field(default="", repr=False)
    registry_token: str = field(default="", repr=False)

    def __repr__(self) -> str:
        """Say where it came from, and nothing of it."""
        return f"Credential(from {self.source})"

    @property
    def basic(self) -> str:
        """Return the Authorization header of the Basic scheme (RFC 7617, UTF-8)."""
        return "Basic " + base64.b64encode(f"{self.username}:{self.password}".encode()).decode()

    def hide(self, text: str) -> str:
        """Mask the secrets in a text, should a server have said them."""
        for secret in (self.password, self.identity_token, self.registry_token):
            text = text.replace(secret, MASK) if secret else text
        return text


def find_credential(registry: str, settings: Settings) -> Credential | None:
    """Return the credential for a registry's host, or None when there is none: then it is asked anonymously.

    Raises ConfigurationError when docker's configuration or a helper cannot be used, CredentialsError when what
    is there for this registry is unusable. May run a credential helper.
    """
    if registry == DOCKER_HUB:
        own = _from_variables(settings)
        if own is not None:
            return own
    path = config_path(settings)
    config = _read_config(path)
    keys = _HUB_KEYS if registry == DOCKER_HUB else _keys_of(registry)
    helper = _first(_table(config, "credHelpers", path), keys) or config.get("credsStore")
    if helper:
        asked = keys[0] if registry == DOCKER_HUB else registry
        found = _from_helper(helper, asked, path)
        if found is not None:
            return found
    return _from_entry(_first(_table(config, "auths", path), keys), registry, path)


def config_path(settings: Settings) -> Path:
    """Return where docker keeps its configuration, whether or not it is there."""
    folder = settings.variable("DOCKER_CONFIG")
    if folder:
        return Path(folder) / "config.json"
    return Path(settings.variable("HOME") or Path.home()) / ".docker" / "config.json"


def login_hint(registry: str) -> str:
    """Say how to let this tool in."""
    if registry == DOCKER_HUB:
        return "set DOCKERHUB_USERNAME and DOCKERHUB_TOKEN, or run docker login, for an account that has the right"
    if registry.endswith(".amazonaws.com") or registry == "public.ecr.aws":
        return f"log docker in to {registry}, or set up the helper docker-credential-ecr-login, with the right granted"
    return f"run docker login {registry} with an account that has the right"


def _from_variables(settings: Settings) -> Credential | None:
    token = settings.variable("DOCKERHUB_TOKEN")
    if token is None:
        return None
    username = settings.secret("DOCKERHUB_USERNAME", purpose="with DOCKERHUB_TOKEN, to log in to docker.io")
    return Credential("DOCKERHUB_USERNAME and DOCKERHUB_TOKEN", username.strip(), token.strip())


def _read_config(path: Path) -> Mapping[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError) as error:
        raise _unusable(path, "cannot be read") from error
    try:
        config = json.loads(text)
    except (ValueError, RecursionError):
        raise _unusable(path, "is not JSON") from None  # the parser's error holds the text
    if not isinstance(config, dict):
        raise _unusable(path, "is not a JSON object")
    return config


def _unusable(path: Path, how: str) -> OmniError:
    return ConfigurationError(
        f"docker's configuration {how}: {path}", hint="mend or remove it, or point DOCKER_CONFIG at another folder"
    )


def _table(config: Mapping[str, Any], name: str, path: Path) -> Mapping[str, Any]:
    table = config.get(name) or {}
    if not isinstance(table, dict):
        raise _unusable(path, f"has a {name} that is not an object")
    return table


def _keys_of(registry: str) -> tuple[str, ...]:
    """Return the ways in which docker and others write a host into the configuration."""
    return (
        registry,
        *(f"{scheme}://{registry}{end}" for scheme in ("https", "http") for end in ("", "/", "/v1/", "/v2/")),
    )


def _first(table: Mapping[str, Any], keys: tuple[str, ...]) -> Any:
    return next((table[key] for key in keys if table.get(key)), None)


def _from_entry(entry: Any, registry: str, path: Path) -> Credential | None:
    if not entry:
        return None
    parts = _entry_parts(entry)
    if parts is None:
        raise CredentialsError(
            f"the entry for {registry} in {path} is unusable", hint=f"run docker logout {registry} and log in again"
        )
    return Credential(str(path), *parts) if any(parts) else None


def _entry_parts(entry: Any) -> tuple[str, str, str, str] | None:
    """Return user, password, identity token and registry token, or None when the entry is malformed."""
    names = ("auth", "username", "password", "identitytoken", "registrytoken")
    texts = [entry.get(name) or "" for name in names] if isinstance(entry, dict) else [None]
    known = [text for text in texts if isinstance(text, str)]
    if len(known) != len(names):
        return None
    auth, username, password, identity, registry_token = known
    if not re.fullmatch(r"[\x21-\x7e]*", registry_token):  # it is sent as it is, in a header
        return None
    if auth:
        try:
            decoded = base64.b64decode(auth, validate=True).decode().rstrip("\0")
        except ValueError:
            return None
        username, colon, password = decoded.partition(":")
        if not colon:
            return None
    return username, password, identity, registry_token


def _from_helper(helper: Any, registry: str, path: Path) -> Credential | None:
    if not isinstance(helper, str) or not _HELPER.fullmatch(helper):
        raise _unusable(path, "names a credential helper that is none")
    program = f"docker-credential-{helper}"
    answer = capture(
        [program, "get"], cwd=Path("/"), stdin=registry.encode(), timeout=_HELPER_SECONDS, check=False, limit=2**20
    )
    if answer.code:
        if _NOT_FOUND in (answer.stdout + answer.stderr).lower():
            return None
        # Helpers say on stdout what went wrong; what could be a secret there is a JSON object.
        said = (answer.stderr or answer.stdout).decode("utf-8", "replace").strip().partition("\n")[0]
        shown = "" if "{" in said else f": {redact(said[:200])}"
        raise CredentialsError(
            f"{program} gives no credential for {registry} (exit {answer.code}){shown}",
            hint=f"try it: echo {registry} | {program} get >/dev/null",
        )
    return _read_answer(answer.stdout, program, registry)


def _read_answer(answer: bytes, program: str, registry: str) -> Credential | None:
    try:
        document = json.loads(answer)
        username, secret = document["Username"], document["Secret"]
    except (ValueError, RecursionError, KeyError, TypeError):
        username = secret = None
    if not isinstance(username, str) or not isinstance(secret, str):
        raise CredentialsError(f"{program} answers for {registry} with something else than a credential") from None
    if username == _TOKEN_USER:
        return Credential(program, identity_token=secret)
    return Credential(program, username, secret) if secret else None
