"""What a registry asks of whoever comes in: challenges, the tokens that answer them, and their cache.

Sources: RFC 9110 section 11.6.1 (WWW-Authenticate), RFC 6750 (Bearer), and the distribution project's token
authentication specification (realm, service, scope).
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

from tasks.registry.credentials import Credential, login_hint
from tasks.registry.refusals import Refused
from tasks.registry.wire import CHECK, Ask, Wire, is_loopback, led_to
from tasks.support.errors import CredentialsError, ServiceRefusedError

if TYPE_CHECKING:
    import requests

CLIENT = "omni-ci"
_SHORTEST_LIFE = 60.0
_MARGIN = 30.0
_LARGEST = 2**20
_TOKEN68 = r"[A-Za-z0-9._~+/-]+=*"
_WORD = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_PARAMETER = re.compile(rf'\s*({_WORD})\s*=\s*(?:"((?:[^"\\]|\\.)*)"|({_WORD}))\s*(?:,|$)')
_SCHEME = re.compile(rf"[\s,]*({_WORD})(?:\s+|\s*$|\s*,)")
_TOKEN_ONLY = re.compile(rf"{_TOKEN68}\s*(?:,|$)")

Scope = tuple[str, ...]
"""What a request needs: ``repository:name:actions``, sorted."""


def scope_of(name: str, *actions: str) -> Scope:
    """Return the scope of actions on one repository."""
    return (f"repository:{name}:{','.join(actions)}",)


def merged(*scopes: str) -> Scope:
    """Join scopes, the actions of the same resource in one; what is not ``type:name:actions`` stays as it is."""
    actions: dict[str, dict[str, None]] = {}
    for scope in scopes:
        resource, _, words = scope.rpartition(":") if scope.count(":") > 1 else (scope, "", "")
        actions.setdefault(resource, {}).update(dict.fromkeys(filter(None, words.split(","))))
    return tuple(sorted(f"{resource}:{','.join(words)}" if words else resource for resource, words in actions.items()))


@dataclass(frozen=True)
class Challenge:
    """One way in: its scheme in lower case, and its parameters."""

    scheme: str
    parameters: Mapping[str, str]


def parse_challenges(header: str) -> list[Challenge]:
    """Read a WWW-Authenticate header, several of which may have been joined; what cannot be read ends the list."""
    found: list[Challenge] = []
    at = 0
    while scheme := _SCHEME.match(header, at):
        at = scheme.end()
        parameters: dict[str, str] = {}
        while parameter := _PARAMETER.match(header, at):
            name, quoted, plain = parameter.groups()
            parameters.setdefault(name.lower(), plain if quoted is None else re.sub(r"\\(.)", r"\1", quoted))
            at = parameter.end()
        if not parameters and (alone := _TOKEN_ONLY.match(header, at)):
            at = alone.end()
        found.append(Challenge(scheme[1].lower(), parameters))
    return found


@dataclass(frozen=True)
class _Token:
    header: str = field(repr=False)
    until: float

    @property
    def fresh(self) -> bool:
        return time.monotonic() < self.until


class Authorizer:
    """One registry's way in, shared by all threads. Nothing is looked for or sent before the registry asks.

    The credential goes to the registry itself (Basic) or to the realm of its own challenge (Bearer), nowhere else.
    """

    def __init__(self, registry: str, origin: str, find: Callable[[], Credential | None], wire: Wire) -> None:
        """Name the registry and its ``scheme://host``; ``find`` looks for the credential, once."""
        self._registry = registry
        self._origin = origin
        self._find = find
        self._wire = wire
        self._lock = threading.RLock()
        self._challenge: Challenge | None = None
        self._credential: Credential | None = None
        self._looked = False
        self._tokens: dict[Scope, _Token] = {}
        self._wanted: dict[Scope, Scope] = {}

    def header(self, scope: Scope) -> str | None:
        """Return the Authorization header for a request, fetching a token when there is no fresh one."""
        if self._challenge is None:
            return None
        with self._lock:
            return self._answer(self._challenge, scope, used=None)

    def answer(self, response: requests.Response, scope: Scope, used: str | None) -> str:
        """Return a new header after a 401 to a request with the header ``used``; closes the response.

        Raises CredentialsError when there is nothing better to send.
        """
        challenges = parse_challenges(response.headers.get("WWW-Authenticate", ""))
        known = {challenge.scheme: challenge for challenge in challenges if challenge.scheme in {"bearer", "basic"}}
        chosen = known.get("bearer") or known.get("basic")
        refused = self.refused(response)
        if chosen is None:
            raise refused.error(f"{self._registry} does not say how to log in", login=login_hint(self._registry))
        with self._lock:
            self._challenge = chosen
            self._want(chosen, scope)
            header = self._answer(chosen, scope, used=used)
        if header == used:
            raise refused.error(f"{self._registry} does not let us in", login=login_hint(self._registry))
        return header

    def refused(self, response: requests.Response) -> Refused:
        """Read an answer that is not what was wanted, without our own secrets, should the server have said them."""
        refused = Refused.read(response)
        return replace(refused, said=self._credential.hide(refused.said)) if self._credential else refused

    @property
    def from_where(self) -> str:
        """Say whose credential was sent, for an error about rights; empty when there is none."""
        return f" (the credential is that of {self._credential.source})" if self._credential else ""

    def _want(self, challenge: Challenge, scope: Scope) -> None:
        """Remember what a token for this kind of request must be good for: what is asked, and what we know of."""
        asked = challenge.parameters.get("scope", "").split()
        if asked and not any(":" in word for word in asked):
            self._wanted[scope] = tuple(asked)  # Amazon's public registry has one scope for everything
        else:
            self._wanted[scope] = merged(*scope, *asked)

    def _answer(self, challenge: Challenge, scope: Scope, used: str | None) -> str:
        credential = self._found()
        if challenge.scheme == "basic":
            if credential is None or not credential.username:
                raise CredentialsError(
                    f"{self._registry} wants a user and a password, and there are none for it",
                    hint=login_hint(self._registry),
                )
            return credential.basic
        if credential is not None and credential.registry_token:
            return f"Bearer {credential.registry_token}"
        token = self._tokens.get(scope)
        if token is None or not token.fresh or token.header == used:
            token = self._tokens[scope] = self._fetch(challenge, self._wanted.get(scope, scope), credential)
        return token.header

    def _found(self) -> Credential | None:
        if not self._looked:
            self._credential = self._find()
            self._looked = True
        return self._credential

    def _fetch(self, challenge: Challenge, scope: Scope, credential: Credential | None) -> _Token:
        realm = challenge.parameters.get("realm", "")
        doing = f"cannot get a token for {self._registry}"
        self._check_realm(realm, doing)
        service = challenge.parameters.get("service")
        who = [("service", service)] if service else []
        if credential is not None and credential.identity_token:
            form = [
                ("grant_type", "refresh_token"),
                ("refresh_token", credential.identity_token),
                ("client_id", CLIENT),
                ("scope", " ".join(scope)),
                *who,
            ]
            kind = {"Content-Type": "application/x-www-form-urlencoded"}
            ask = Ask("POST", realm, doing, headers=kind, body=urlencode(form).encode())
        else:
            query = urlencode([*who, *(("scope", one) for one in scope)])
            ask = Ask("GET", f"{realm}{'&' if '?' in realm else '?'}{query}", doing)
        started = time.monotonic()
        basic = credential.basic if credential is not None and ask.method == "GET" else None
        response = self._wire.send(ask, basic)
        if response.status_code != 200:  # noqa: PLR2004
            raise self.refused(response).error(f"{doing}{self.from_where}", login=login_hint(self._registry))
        return _read_token(response, started, doing)

    def _check_realm(self, realm: str, doing: str) -> None:
        """Refuse what is no address, and to send a credential in the clear but for a registry on this machine."""
        parts = urlsplit(led_to("", realm, doing))
        local = parts.scheme == "http" and is_loopback(parts.hostname) and self._origin.startswith("http://")
        if (parts.scheme != "https" and not local) or "@" in parts.netloc:
            raise ServiceRefusedError(
                f"{self._registry} wants its tokens fetched from an address that is not https", hint=CHECK
            )


def _read_token(response: requests.Response, started: float, doing: str) -> _Token:
    document = _read_object(response)
    token = document.get("token") or document.get("access_token")
    if not isinstance(token, str) or not re.fullmatch(r"[\x21-\x7e]+", token):
        raise ServiceRefusedError(f"{doing}: the answer holds none", hint=CHECK)
    given = document.get("expires_in")
    life = float(given) if isinstance(given, (int, float)) and given > 0 else _SHORTEST_LIFE
    return _Token(f"Bearer {token}", started + life - min(_MARGIN, life / 4))


def _read_object(response: requests.Response) -> dict[str, Any]:
    from tasks.support.http_door import body_of

    data = bytearray()
    for piece in body_of(response):
        data += piece
        if len(data) > _LARGEST:
            break
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        document = None
    return document if isinstance(document, dict) else {}
