"""The session behind ``http_door.open_session``; imported only there and late, because it loads requests."""

from __future__ import annotations

import random
import ssl
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import requests
from requests import exceptions as asked
from requests.adapters import HTTPAdapter
from requests.auth import AuthBase, HTTPBasicAuth
from requests.utils import get_auth_from_url, select_proxy
from urllib3 import exceptions as carried
from urllib3.util.retry import Retry

from tasks.support.errors import (
    ConfigurationError,
    CredentialsError,
    OmniError,
    ServiceRefusedError,
    TemporaryError,
    UsageError,
)
from tasks.support.http_door import RETRIED_STATUSES, Manners, refusal, user_agent
from tasks.support.redaction import hide_login, redact

_EXCERPT = 200
_LONGEST_LABEL = 63
_MACHINE = "correct HTTPS_PROXY, NO_PROXY or REQUESTS_CA_BUNDLE"
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
        (asked.InvalidHeader,),  # what it says quotes the header
        CredentialsError,
        "a credential has characters that no header can hold",
        "check it for line breaks and letters beyond ASCII",
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
        what = _what(request.method, request.url)
        _refuse_headers(request.headers, what)
        try:
            response = super().send(request, **kwargs)
        except (OSError, carried.HTTPError) as error:
            fault = _bundle_fault(error, kwargs.get("verify")) or _proxy_fault(error, request.url, kwargs)
            if fault is not None:
                raise ConfigurationError(f"{what}: {fault}", hint=_MACHINE) from error
            if not isinstance(error, foreseen_errors()):
                raise
            raise failure_of(error, request.method, request.url) from error
        if response.status_code < HTTPStatus.BAD_REQUEST or response.status_code in self._manners.allow:
            return response
        with response:
            raise refusal(response.status_code, what, _said(response))

    def get_redirect_target(self, resp: requests.Response) -> str | None:
        """Return where a redirect leads; ServiceRefusedError when that is no address."""
        target = super().get_redirect_target(resp)
        if target is not None and not is_address(_joined(resp.url, target)):
            shown = redact(target.partition("?")[0])[:_EXCERPT]
            raise ServiceRefusedError(f"{_what(resp.request.method, resp.url)}: redirected to {shown!r}, no address")
        return target

    def resolve_redirects(
        self, resp: requests.Response, req: requests.PreparedRequest, *args: Any, **kwargs: Any
    ) -> Iterator[requests.Response]:
        """Follow redirects; for a caller who does so himself, the library's own preparation for it is left out."""
        return iter(()) if kwargs.get("yield_requests") else super().resolve_redirects(resp, req, *args, **kwargs)

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


def is_address(url: str) -> bool:
    """Say whether a URL is one of http or https that can be asked."""
    prepared = requests.PreparedRequest()
    try:
        given = urlsplit(url)
        prepared.prepare_url(url, None)
        host = urlsplit(prepared.url or "").hostname or ""
        wrong = given.scheme not in {"http", "https"} or given.port == 0
    except ValueError:  # requests' own for it are ValueErrors too
        return False
    return not wrong and all(0 < len(label) <= _LONGEST_LABEL for label in host.removesuffix(".").split("."))


def _joined(base: str, target: str) -> str:
    try:
        return urljoin(base, target)
    except ValueError:
        return ""


def _refuse_headers(headers: Mapping[str, str | bytes], what: str) -> None:
    for name, value in headers.items():
        try:
            _ = value if isinstance(value, bytes) else value.encode("latin-1")
        except UnicodeEncodeError:
            text, hint = f"{what}: {name} has characters that no header can hold", "check the credential"
            raise CredentialsError(text, hint=hint) from None  # the cause holds the value


def _bundle_fault(error: Exception, bundle: object) -> str | None:
    """Say that the file or folder of certificates that the environment names cannot be used, when that is so."""
    if not isinstance(bundle, str) or (isinstance(error, foreseen_errors()) and not isinstance(error, asked.SSLError)):
        return None
    try:
        folder = Path(bundle).is_dir()
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(*((None, bundle) if folder else (bundle,)))
    except (OSError, ValueError) as unusable:
        return f"the certificates in {bundle} cannot be used: {unusable}"
    return None


def _proxy_fault(error: Exception, url: str | None, sent: Mapping[str, Any]) -> str | None:
    """Say that the proxy's address is none, when it is not the request's own that is wrong."""
    proxy = select_proxy(url or "", sent.get("proxies"))
    wrong = (asked.InvalidURL, asked.InvalidSchema, carried.LocationParseError, carried.ProxySchemeUnknown)
    if not proxy or not is_address(url or "") or not (isinstance(error, wrong) or isinstance(_cause(error), wrong)):
        return None
    shown = proxy if "://" in proxy else f"http://{proxy}"
    return f"the proxy {hide_login(shown)!r} cannot be used"


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
