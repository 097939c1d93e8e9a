"""The session behind ``http_door.open_session``; imported only there and late, because it loads requests."""

from __future__ import annotations

import random
from http import HTTPStatus
from typing import Any

import requests
from requests import exceptions as asked
from requests.adapters import HTTPAdapter
from requests.auth import AuthBase, HTTPBasicAuth
from requests.utils import get_auth_from_url
from urllib3 import exceptions as carried
from urllib3.util.retry import Retry

from tasks.support.errors import OmniError, ServiceRefusedError, TemporaryError, UsageError
from tasks.support.http_door import RETRIED_STATUSES, Manners, refusal, user_agent
from tasks.support.redaction import redact

_EXCERPT = 200
_LATER = "run the same command again later"

# The first row that fits an exception names it: subclasses come before their bases.
_FAILURES: tuple[tuple[tuple[type[Exception], ...], type[OmniError], str, str], ...] = (
    (
        (asked.InvalidURL, asked.MissingSchema, asked.InvalidSchema, carried.LocationParseError),
        UsageError,
        "not an http address",
        "it starts with https:// or http://",
    ),
    (
        (carried.NameResolutionError,),
        ServiceRefusedError,
        "no such host",
        "check the address, the network and the proxy",
    ),
    (
        (carried.ProxyError, asked.ProxyError),
        ServiceRefusedError,
        "the proxy refuses: {}",
        "check HTTPS_PROXY and NO_PROXY",
    ),
    ((carried.NewConnectionError,), ServiceRefusedError, "cannot connect: {}", "check that the service runs"),
    (
        (carried.SSLError, asked.SSLError),
        ServiceRefusedError,
        "the connection cannot be trusted: {}",
        "check the address, and REQUESTS_CA_BUNDLE",
    ),
    ((asked.TooManyRedirects,), ServiceRefusedError, "too many redirects", "check the address"),
    ((carried.TimeoutError, asked.Timeout), TemporaryError, "no answer in time", _LATER),
)


class PoliteRetry(Retry):
    """urllib3's retries with jitter from the first pause on; an unreadable Retry-After is ignored."""

    RETRY_AFTER_STATUS_CODES = RETRIED_STATUSES

    def get_backoff_time(self) -> float:
        """Return between half and all of ``backoff_factor`` doubled for each try before."""
        tries = sum(1 for past in self.history if past.redirect_location is None)
        longest = min(float(self.backoff_max), self.backoff_factor * 2 ** max(tries - 1, 0))
        return random.uniform(longest / 2, longest)  # noqa: S311 - jitter, not a secret

    def parse_retry_after(self, retry_after: str) -> float:
        """Return the seconds that a server asks for (RFC 9110 section 10.2.3), 0 for anything unreadable."""
        try:
            return max(super().parse_retry_after(retry_after), 0.0)
        except (carried.InvalidHeader, ValueError, OverflowError):
            return 0.0


class UrlAuth(AuthBase):
    """Use the credentials inside a URL and nothing else; being there keeps requests from reading ``.netrc``."""

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """Add the credentials of the request's URL, if it has any."""
        user, password = get_auth_from_url(request.url or "")
        return HTTPBasicAuth(user, password)(request) if user or password else request


class DoorSession(requests.Session):
    """A requests session with our manners, whose failures are our errors."""

    def __init__(self, manners: Manners) -> None:
        super().__init__()
        self._manners = manners
        self.auth = UrlAuth()
        self.headers["User-Agent"] = user_agent()
        retry = PoliteRetry(
            total=manners.retries,
            other=0,  # among others a certificate that does not fit: it will not fit the next time either
            status_forcelist=RETRIED_STATUSES,
            backoff_factor=manners.backoff,
            backoff_max=manners.longest_pause,
            retry_after_max=int(manners.longest_pause),
            raise_on_status=False,
        )
        adapter = HTTPAdapter(max_retries=retry, pool_maxsize=manners.connections)
        self.mount("https://", adapter)
        self.mount("http://", adapter)

    def request(self, method: str | bytes, url: str | bytes, *args: Any, **kwargs: Any) -> requests.Response:
        """Send a request; a URL that is none becomes a UsageError."""
        try:
            return super().request(method, url, *args, **kwargs)
        except (asked.RequestException, carried.HTTPError) as error:
            raise failure_of(error, method, url) from error

    def send(self, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:
        """Send a prepared request, always with timeouts, and judge the answer."""
        if kwargs.get("timeout") is None:
            kwargs["timeout"] = (self._manners.connect, self._manners.read)
        if self._manners.retries and not _rewindable(request.body):
            raise TypeError("a request's body must be bytes or a seekable file: a retry sends it again")
        try:
            response = super().send(request, **kwargs)
        except foreseen_errors() as error:
            raise failure_of(error, request.method, request.url) from error
        if response.status_code < HTTPStatus.BAD_REQUEST or response.status_code in self._manners.allow:
            return response
        with response:
            raise refusal(response.status_code, _what(request.method, request.url), _said(response))

    def rebuild_auth(self, prepared_request: requests.PreparedRequest, response: requests.Response) -> None:
        """Drop the credentials when a redirect leaves the host; never look for others in ``.netrc``."""
        if self.should_strip_auth(response.request.url or "", prepared_request.url or ""):  # type: ignore[no-untyped-call]
            prepared_request.headers.pop("Authorization", None)


def foreseen_errors() -> tuple[type[Exception], ...]:
    """Return what requests and urllib3 raise when the network or the server fails."""
    return (asked.RequestException, carried.HTTPError)


def failure_of(error: Exception, method: object, url: object) -> OmniError:
    """Turn an exception of requests or urllib3 into ours."""
    cause = _cause(error)
    for kinds, make, text, hint in _FAILURES:
        if isinstance(cause, kinds) or isinstance(error, kinds):
            detail = redact(str(cause)).rpartition(": ")[2]
            return make(f"{_what(method, url)}: {text.format(detail)}", hint=hint)
    return TemporaryError(f"{_what(method, url)}: the connection broke: {redact(str(cause))}", hint=_LATER)


def _rewindable(body: object) -> bool:
    return body is None or isinstance(body, (bytes, str)) or (hasattr(body, "seek") and hasattr(body, "tell"))


def _what(method: object, url: object) -> str:
    verb = method.decode() if isinstance(method, bytes) else str(method)
    address = url.decode("utf-8", "replace") if isinstance(url, bytes) else str(url)
    return f"{verb.upper()} {redact(address)}"


def _cause(error: Exception) -> BaseException:
    """Return the innermost reason: requests wraps urllib3's MaxRetryError, which wraps what happened."""
    cause: BaseException = error
    while not isinstance(cause, carried.NewConnectionError):
        candidates = (getattr(cause, "reason", None), *cause.args)
        inner = next((part for part in candidates if isinstance(part, Exception)), None)
        if inner is None:
            break
        cause = inner
    return cause


def _said(response: requests.Response) -> str:
    """Return the reason phrase and the beginning of a body that is meant for reading."""
    kind = response.headers.get("Content-Type", "")
    text = ""
    if kind.startswith(("text/plain", "application/json", "application/problem+json")):
        try:
            text = next(response.iter_content(_EXCERPT), b"").decode("utf-8", "replace")
        except foreseen_errors():
            text = ""
    return " ".join(f"{response.reason or ''} {text}".split())
