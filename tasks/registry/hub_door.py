"""The door to DockerHub's account API: log-in, waiting when asked to, and what each refusal means.

Source: the Docker Hub API's reference ("Authentication", "Rate limiting"). What it leaves open was observed by its
users: a 429 comes with Retry-After in seconds or as a date, with X-Retry-After as a timestamp, as plain text, or with
nothing; a missing right is a 403, and for deletions also a 500 that quotes a 401.
"""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tasks.support import console, http_door
from tasks.support.errors import (
    ConfigurationError,
    CredentialsError,
    MissingInputError,
    OmniError,
    ServiceRefusedError,
    TemporaryError,
)
from tasks.support.redaction import redact

if TYPE_CHECKING:
    import requests

PUBLIC = "https://hub.docker.com"
_TOKEN_ROUTE = "/v2/auth/token"  # noqa: S105 - a path
_LOGIN_ROUTE = "/v2/users/login"
_ORGANIZATION_TOKEN = "dckr_oat_"  # noqa: S105 - the prefix that tells an organization's token from others
_NO_SUCH_ROUTE = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.NOT_IMPLEMENTED})
_REFUSED = frozenset({400, 401, 403, 422})
_SECOND_FACTOR = re.compile(r"secondary authentication|two.?factor|\b[2m]fa\b", re.IGNORECASE)
_HIDDEN_REFUSAL = re.compile(r"status=40[13]|unauthori[sz]ed|authentication required|insufficient scope", re.IGNORECASE)
_HEADER_WORD = re.compile(r"[\x21-\x7e]+")
_TIMESTAMPS = 10**9
"""A number of seconds from here on is a moment since 1970 and no length of time."""
_EXCERPT = 200


@dataclass(frozen=True)
class Account:
    """Who logs in: a user with a password or a personal access token, or an organization with its token."""

    name: str
    secret: str = field(repr=False)

    def __post_init__(self) -> None:
        for variable, value in (("DOCKERHUB_USERNAME", self.name), ("DOCKERHUB_TOKEN", self.secret)):
            if not value.isprintable():
                raise CredentialsError(
                    f"{variable} has a line break or another control character in it",
                    hint=f"export {variable} again, on one line",
                )

    @property
    def is_organization(self) -> bool:
        """Say whether the secret is an organization's token, which the older log-in route never takes."""
        return self.secret.startswith(_ORGANIZATION_TOKEN)


@dataclass(frozen=True)
class HubPatience:
    """How long to go on. Times are in seconds; ``longest`` is the longest pause that a server may ask for."""

    attempts: int = 6
    backoff: float = 1.0
    longest: float = 90.0
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.time


@dataclass(frozen=True)
class Answer:
    """What the API answered: a status, its JSON (None when there is none) and what it says in words."""

    status: int
    document: Any = field(repr=False)
    detail: str

    @property
    def succeeded(self) -> bool:
        """Say whether the status is one of success."""
        return self.status < HTTPStatus.MULTIPLE_CHOICES


def check_address(text: str) -> str:
    """Return the API's address without a slash at its end; ConfigurationError when credentials may not go there."""
    try:
        parts = urlsplit(text)
        sound = parts.scheme in {"https", "http"} and parts.hostname and parts.port != 0
    except ValueError:
        sound = None
    if not sound or parts.query or parts.fragment or parts.username or parts.password:
        raise ConfigurationError(f"not the address of an account API: {redact(text)}", hint=f"it is like {PUBLIC}")
    if parts.scheme == "http" and not _is_loopback(parts.hostname or ""):
        raise ConfigurationError(
            f"{redact(text)} would send a credential unencrypted", hint="use https; http is for this machine only"
        )
    return text.rstrip("/")


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


class HubDoor:
    """Requests to one account API, logged in when first needed, one at a time.

    The token is held in memory and renewed once when a request is answered with 401.
    """

    def __init__(self, address: str, account: Account, patience: HubPatience | None = None) -> None:
        self.address = check_address(address)
        self.account = account
        self.patience = patience or HubPatience()
        self._session: requests.Session | None = None
        self._token: str | None = None

    def ask(self, method: str, route: str, query: str = "") -> Answer:
        """Send a request as the account, and return the answer of success or 404.

        Raises CredentialsError for 401 and 403, TemporaryError when 429, 5xx or broken connections outlast the
        patience, ServiceRefusedError for every other answer.
        """
        for renewed in (False, True):
            if self._token is None:
                self._token = self._log_in()
            answer = self._send(method, route, query, token=self._token)
            if answer.status != HTTPStatus.UNAUTHORIZED or renewed:
                break
            self._token = None
        if answer.succeeded or answer.status == HTTPStatus.NOT_FOUND:
            return answer
        raise self._refusal(answer, f"{method} {route}")

    def _log_in(self) -> str:
        """Return a token for the account, by the newer route or, where that is missing or refuses, the older one."""
        name, secret = self.account.name, self.account.secret
        answer = self._send("POST", _TOKEN_ROUTE, body={"identifier": name, "secret": secret})
        token = _text(answer, "access_token")
        refused = answer.status in _REFUSED and not _needs_second_factor(answer) and not self.account.is_organization
        if answer.status in _NO_SUCH_ROUTE or refused:
            answer = self._send("POST", _LOGIN_ROUTE, body={"username": name, "password": secret})
            token = _text(answer, "token")
        if answer.succeeded and token:
            if not _HEADER_WORD.fullmatch(token):
                raise ServiceRefusedError(
                    "DockerHub answers the log-in with a token that no header can hold", hint="check OMNI_CI_HUB_URL"
                )
            return token
        if _needs_second_factor(answer):
            raise CredentialsError(
                f"DockerHub account {name} has two-factor authentication, and a password alone does not log in",
                hint="put a personal access token of the account into DOCKERHUB_TOKEN",
            )
        if answer.status in _REFUSED:
            raise CredentialsError(
                f"DockerHub does not accept DOCKERHUB_TOKEN for {name}: {answer.status}{_colon(answer.detail)}",
                hint="check both; a user's token goes with the user's name, an organization's with the organization's",
            )
        raise self._refusal(answer, "the log-in")

    def _send(
        self, method: str, route: str, query: str = "", *, body: dict[str, str] | None = None, token: str | None = None
    ) -> Answer:
        """Send a request, again and again while the server is busy or broken, as long as the patience lasts."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        address = f"{self.address}{route}{f'?{query}' if query else ''}"
        what = f"{method} {redact(address)}"
        for attempt in range(1, self.patience.attempts + 1):
            last = attempt == self.patience.attempts
            try:
                response = self._open().request(method, address, json=body, headers=headers, allow_redirects=False)
            except TemporaryError:
                if last:
                    raise
                self._wait(self._backoff(attempt), what)
                continue
            answer = self._read(response, token)
            if not _is_passing(answer) or last:
                break
            self._wait(self._asked_pause(response) or self._backoff(attempt), what)
        if HTTPStatus.MULTIPLE_CHOICES <= answer.status < HTTPStatus.BAD_REQUEST:
            raise ServiceRefusedError(f"{what} is redirected elsewhere", hint="check OMNI_CI_HUB_URL")
        return answer

    def _open(self) -> requests.Session:
        if self._session is None:
            # Its own retries know neither X-Retry-After nor POST; ours do both.
            self._session = http_door.open_session(retries=0, allow=range(400, 600))
        return self._session

    def _read(self, response: requests.Response, token: str | None) -> Answer:
        try:
            document = json.loads(response.content) if response.content else None
        except (ValueError, RecursionError):
            document = None
        detail = response.text if document is None else _words(document)
        for secret in filter(None, (self.account.secret, token)):
            detail = detail.replace(secret, "***")
        return Answer(response.status_code, document, redact(" ".join(detail.split()))[:_EXCERPT])

    def _backoff(self, attempt: int) -> float:
        longest = self.patience.backoff * 2.0 ** (attempt - 1)
        return random.uniform(longest / 2, longest)  # noqa: S311 - jitter, not a secret

    def _asked_pause(self, response: requests.Response) -> float:
        """Return the seconds that the server asks to wait, 0 when it names none that can be read."""
        for header in ("Retry-After", "X-Retry-After"):
            pause = _pause(response.headers.get(header, ""), self.patience.clock())
            if pause > 0:
                return pause
        return 0.0

    def _wait(self, pause: float, what: str) -> None:
        if pause > self.patience.longest:
            raise TemporaryError(
                f"{what}: DockerHub asks to wait {pause:.0f} s", hint=f"run the same command again in {pause:.0f} s"
            )
        if pause > 2:  # noqa: PLR2004 - what people would wonder about
            console.say(f"waiting {pause:.0f} s for DockerHub")
        self.patience.sleep(pause)

    def _refusal(self, answer: Answer, what: str) -> OmniError:
        said = f"DockerHub answers {answer.status} to {what}{_colon(answer.detail)}"
        if answer.status == HTTPStatus.UNAUTHORIZED:
            return CredentialsError(
                said, hint="a new log-in did not help: check DOCKERHUB_USERNAME and DOCKERHUB_TOKEN"
            )
        if answer.status == HTTPStatus.FORBIDDEN or _hides_a_refusal(answer):
            return CredentialsError(
                f"the token of {self.account.name} lacks the right: {said}",
                hint="make a token that may read, write and delete in this repository, and put it into DOCKERHUB_TOKEN",
            )
        if answer.status == HTTPStatus.NOT_FOUND:
            return MissingInputError(said, hint="check OMNI_CI_HUB_URL")
        if answer.status == HTTPStatus.TOO_MANY_REQUESTS or answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return TemporaryError(
                f"{said} ({console.plural(self.patience.attempts, 'attempt')})",
                hint="run the same command again later",
            )
        return ServiceRefusedError(said)


def _is_passing(answer: Answer) -> bool:
    if answer.status == HTTPStatus.TOO_MANY_REQUESTS:
        return True
    broken = answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR and answer.status != HTTPStatus.NOT_IMPLEMENTED
    return broken and not _hides_a_refusal(answer)


def _hides_a_refusal(answer: Answer) -> bool:
    return answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR and bool(_HIDDEN_REFUSAL.search(answer.detail))


def _needs_second_factor(answer: Answer) -> bool:
    if answer.succeeded:
        return False
    return bool(_text(answer, "login_2fa_token") or _SECOND_FACTOR.search(answer.detail))


def _text(answer: Answer, key: str) -> str | None:
    value = answer.document.get(key) if isinstance(answer.document, dict) else None
    return value if isinstance(value, str) and value else None


def _words(document: Any) -> str:
    """Return what an answer says to people; the rest of it may hold tokens."""
    rows = document if isinstance(document, dict) else {}
    found = (rows.get(key) for key in ("detail", "message", "text"))
    return next((text for text in found if isinstance(text, str) and text), "")


def _colon(detail: str) -> str:
    return f": {detail}" if detail else ""


def _pause(value: str, now: float) -> float:
    """Read seconds, a timestamp or a date (RFC 9110 section 10.2.3) as the seconds from now; 0 when it is none."""
    if re.fullmatch(r"[0-9]{1,12}(?:\.[0-9]{1,9})?", value.strip()):
        number = float(value)
        return number - now if number >= _TIMESTAMPS else number
    try:
        moment = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return 0.0
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() - now


def parse_time(value: object) -> datetime | None:
    """Read a time of the API's, with or without a fraction; None for null, for year 1 (Go's zero) and for no time."""
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
        moment = moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None
    return moment if moment.year > 1 else None
