"""Requests to registries, their token servers and their storage: pauses, retries and redirects, but no credentials.

Every request waits at its host's gate. The http door's own retries are off: they know nothing of other threads.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Protocol, runtime_checkable
from urllib.parse import urljoin, urlsplit

from tasks.registry.gate import asked_pause, gate_of, pause
from tasks.registry.refusals import Refused, is_passing
from tasks.support.errors import ConfigurationError, OmniError, ServiceRefusedError, TemporaryError, UsageError
from tasks.support.http_door import open_session
from tasks.support.redaction import redact

if TYPE_CHECKING:
    import requests

CHECK = "check the registry's address"
_SHOWN = 100
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_MOST_REDIRECTS = 5
_CONNECTIONS = 64
_ANY_REFUSAL = frozenset(range(400, 600))
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
_DEFAULT_PORTS = {"http": 80, "https": 443}


def is_loopback(host: str | None) -> bool:
    """Say whether a host (without port and brackets) is this machine, the only one that is asked over plain http."""
    return host in _LOOPBACK


def origin_of(url: str) -> tuple[str, str, int | None]:
    """Return a URL's scheme, host and port, the default one filled in (RFC 6454)."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or _DEFAULT_PORTS.get(parts.scheme)


def led_to(asked: str, target: str, doing: str) -> str:
    """Return where an answer's Location or link leads; ServiceRefusedError when that is no address of http.

    What is shown of it is without its query, which may be signed.
    """
    from tasks.support.http_session import is_address

    try:
        url = urljoin(asked, target)
    except ValueError:
        url = ""
    if not is_address(url):
        shown = redact(target.partition("?")[0])[:_SHOWN]
        raise ServiceRefusedError(f"{doing}: the registry leads to {shown!r}, which is no address", hint=CHECK)
    return url


@runtime_checkable
class Body(Protocol):
    """A request's body that is sent once, as it comes: its length is known, its bytes are not kept.

    ``failure`` is the exception that its iterator raised, if it did.
    """

    failure: Exception | None

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[bytes]: ...


@dataclass(frozen=True)
class Ask:
    """A request. ``doing`` begins the error message; ``seconds`` are the longest silence of the server.

    ``once`` is for what must not be sent again by itself; ``follow`` for what storage may answer for the registry.
    """

    method: str
    url: str
    doing: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes | Body | None = field(default=None, repr=False)
    once: bool = False
    follow: bool = False
    seconds: float = 60.0


@dataclass(frozen=True)
class Patience:
    """How long to go on. ``tries`` are for broken connections and 5xx, ``limited`` for 429; times are in seconds."""

    tries: int = 5
    limited: int = 10
    first_pause: float = 0.5
    longest_pause: float = 20.0
    longest_wait: float = 120.0

    def pause(self, failures: int) -> float:
        """Return the pause after so many failures in a row: doubled each time, with jitter."""
        longest = min(self.longest_pause, self.first_pause * 2.0 ** (failures - 1))
        return random.uniform(longest / 2, longest)  # noqa: S311 - jitter, not a secret


class Wire:
    """Sends requests for all threads over one pool of connections."""

    def __init__(self, patience: Patience | None = None) -> None:
        self.patience = patience or Patience()
        self._session = open_session(retries=0, connections=_CONNECTIONS, allow=_ANY_REFUSAL)

    def send(self, ask: Ask, authorization: str | None) -> requests.Response:
        """Return the answer, streamed, whatever its status; 429 and passing 5xx only when the patience is at its end.

        Raises TemporaryError and ServiceRefusedError when there is no answer.
        """
        failures = limited = 0
        while True:
            try:
                response = self._follow(ask, authorization)
            except _NoAnswerError as lost:
                failures += 1
                if ask.once or failures >= self.patience.tries or not lost.may_pass:
                    raise lost.error(ask.doing, failures) from lost.cause
                pause(self.patience.pause(failures))
                continue
            if not is_passing(response.status_code):
                return response
            limited += response.status_code == HTTPStatus.TOO_MANY_REQUESTS
            failures += response.status_code != HTTPStatus.TOO_MANY_REQUESTS
            last = ask.once or failures >= self.patience.tries or limited >= self.patience.limited
            own = self._hold(response, failures + limited)
            if last:
                return response
            self._give_up_if_long(ask, response)
            response.close()
            if own is not None:
                pause(own)

    def _hold(self, response: requests.Response, failures: int) -> float | None:
        """Shut the host's gate where the host asks for it, and return None; else return our own pause in seconds."""
        limited = response.status_code == HTTPStatus.TOO_MANY_REQUESTS
        asked = asked_pause(response.headers)
        seconds = self.patience.pause(failures) if asked is None else asked
        if not limited and asked is None:
            return seconds
        gate_of(urlsplit(response.url).netloc).close(min(seconds, self.patience.longest_wait), limited=limited)
        return None

    def _give_up_if_long(self, ask: Ask, response: requests.Response) -> None:
        asked = asked_pause(response.headers) or 0.0
        if asked > self.patience.longest_wait:
            error = Refused.read(response).error(ask.doing, login="")
            raise TemporaryError(error.message, hint=f"the registry asks to be left alone for {asked / 60:.0f} minutes")

    def _follow(self, ask: Ask, authorization: str | None) -> requests.Response:
        """Send, and follow redirects where that is allowed; the credential stays with the origin it is for."""
        url = ask.url
        for _ in range(_MOST_REDIRECTS + 1):
            own = origin_of(url) == origin_of(ask.url)
            response = self._send(ask, url, authorization if own else None)
            target = response.headers.get("Location")
            if not ask.follow or response.status_code not in _REDIRECTS or not target:
                return response
            response.close()
            there = led_to(url, target, ask.doing)
            scheme, host, _port = origin_of(there)
            if scheme != "https" and not (scheme == "http" and url.startswith("http://")):
                raise ServiceRefusedError(f"{ask.doing}: redirected to {host}, which is not https")
            url = there
        raise ServiceRefusedError(f"{ask.doing}: too many redirects", hint=CHECK)

    def _send(self, ask: Ask, url: str, authorization: str | None) -> requests.Response:
        from tasks.support.http_session import failure_of, foreseen_errors

        headers = {"Accept-Encoding": "identity", **ask.headers}
        if authorization is not None:
            headers["Authorization"] = authorization
        streamed = ask.body is not None and not isinstance(ask.body, bytes)
        # While a body is sent the connect timeout is the longest time for one piece of it.
        timeout = (ask.seconds if streamed else 10.0, ask.seconds)
        gate_of(urlsplit(url).netloc).wait()
        try:
            return self._session.request(
                ask.method,
                url,
                headers=headers,
                data=ask.body,  # requests takes anything with a length and an iterator
                timeout=timeout,
                stream=True,
                allow_redirects=False,
            )
        except OmniError as error:
            if isinstance(ask.body, Body) and ask.body.failure is not None:
                raise  # it is not the network's
            if isinstance(error, ConfigurationError) or not isinstance(error.__cause__, foreseen_errors()):
                raise  # it is the machine's
            # Named anew without the query: those of uploads and storage are long, and signed.
            named = failure_of(error.__cause__, ask.method, url.partition("?")[0])
            raise _NoAnswerError(named, error.__cause__) from error


class _NoAnswerError(Exception):
    """The network failed a request: our error for it, and the library's."""

    def __init__(self, named: OmniError, cause: Exception) -> None:
        super().__init__(named.message)
        self._named = named
        self.cause = cause

    @property
    def may_pass(self) -> bool:
        """Say whether trying again may help: not after a certificate that cannot be trusted or a wrong address."""
        import requests

        broken = (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError)
        return isinstance(self.cause, broken) and not isinstance(self.cause, requests.exceptions.SSLError)

    def error(self, doing: str, tries: int) -> OmniError:
        """Say what was being done, and how often it was tried."""
        often = f" ({tries} tries)" if tries > 1 else ""
        # An address that only the connection finds wrong came from the registry: ours are checked before.
        make = ServiceRefusedError if isinstance(self._named, UsageError) else type(self._named)
        return make(f"{doing}: {self._named.message}{often}", hint=self._named.hint)
