"""One registry as everything that talks to it shares it: its address, the way in, the connections and the patience."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tasks.registry.challenge import Authorizer, Scope
from tasks.registry.credentials import find_credential, login_hint
from tasks.registry.gate import Waited, gate_of
from tasks.registry.references import DOCKER_HUB
from tasks.registry.refusals import LATER, Refused
from tasks.registry.wire import Ask, Patience, Wire, is_loopback, led_to, origin_of
from tasks.support.errors import OmniError, ServiceRefusedError, TemporaryError
from tasks.support.http_door import body_of
from tasks.support.settings import Settings

if TYPE_CHECKING:
    import requests

_HUB_HOST = "registry-1.docker.io"
_DRAINED = 2**16


def origin_of_registry(registry: str) -> str:
    """Return the ``scheme://host`` of a registry: plain http on this machine only."""
    host = urlsplit(f"//{registry}").hostname
    if registry == DOCKER_HUB:
        return f"https://{_HUB_HOST}"
    return f"{'http' if is_loopback(host) else 'https'}://{registry}"


class RegistryClient:
    """Sends what repositories of one registry ask, with the credential that it wants. Shared by all threads."""

    def __init__(self, registry: str, settings: Settings, patience: Patience | None = None) -> None:
        """Name the registry; nothing is sent, and no credential looked for, before the first request needs it."""
        self.registry = registry
        self.origin = origin_of_registry(registry)
        self._wire = Wire(patience)
        self._authorizer = Authorizer(registry, self.origin, lambda: find_credential(registry, settings), self._wire)

    @property
    def patience(self) -> Patience:
        """Return how long requests are tried again."""
        return self._wire.patience

    @property
    def waited(self) -> Waited:
        """Return how often this process was rate limited by the registry so far, and for how long."""
        return gate_of(urlsplit(self.origin).netloc).waited

    @property
    def shut(self) -> float:
        """Return for how many seconds the registry still wants to be left alone."""
        return gate_of(urlsplit(self.origin).netloc).left

    def send(self, ask: Ask, scope: Scope) -> requests.Response:
        """Return the answer, streamed, after at most one new token; its status is for the caller to judge.

        Raises CredentialsError when the registry wants a credential that we do not have, TemporaryError and
        ServiceRefusedError when there is no answer.
        """
        if not self._is_ours(ask.url):
            return self._wire.send(ask, None)
        with _named(ask.doing):
            header = self._authorizer.header(scope)
        response = self._wire.send(ask, header)
        if response.status_code != HTTPStatus.UNAUTHORIZED or not self._is_ours(response.url):
            return response
        with _named(ask.doing):
            header = self._authorizer.answer(response, scope, header)
        if ask.once and ask.body is not None:
            raise TemporaryError(f"{ask.doing}: the registry's token was no longer good", hint=LATER)
        return self._wire.send(ask, header)

    def fetch(self, ask: Ask, scope: Scope, largest: int) -> tuple[requests.Response, bytes]:
        """Return an answer, and its body when it is 200; a body that breaks off is asked for again.

        ServiceRefusedError when it is larger than ``largest`` bytes.
        """
        for left in reversed(range(self.patience.tries)):
            response = self.send(ask, scope)
            if response.status_code != HTTPStatus.OK:
                return response, b""
            try:
                return response, _read(response, ask.doing, largest)
            except TemporaryError as error:
                if not left:
                    raise TemporaryError(f"{ask.doing}: the answer breaks off", hint=LATER) from error
        raise AssertionError("unreachable: the last try returns or raises")

    def refusal(self, doing: str, response: requests.Response) -> OmniError:
        """Make the error for an answer that is not what was wanted, and close it."""
        return self.error_of(doing, self.refused(response))

    def error_of(self, doing: str, refused: Refused) -> OmniError:
        """Make the error for an answer that was read; one about rights says whose credential was sent."""
        of_rights = refused.status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}
        return refused.error(
            f"{doing}{self._authorizer.from_where if of_rights else ''}", login=login_hint(self.registry)
        )

    def refused(self, response: requests.Response) -> Refused:
        """Read an answer that is not what was wanted, and close it."""
        return self._authorizer.refused(response)

    def next_url(self, asked: str, target: str, doing: str) -> str:
        """Return where an answer's Location leads: on this registry, or on another host that will see no credential.

        A registry behind a proxy may think that it is reached over http; it is asked as before.
        """
        url = led_to(asked, target, doing)
        scheme, host, port = origin_of(url)
        own_scheme, own_host, own_port = origin_of(self.origin)
        if scheme == "http" and own_scheme == "https" and host == own_host and port in {80, 443, own_port}:
            parts = urlsplit(url)
            return parts._replace(scheme="https", netloc=urlsplit(self.origin).netloc).geturl()
        if scheme != "https" and not (scheme == "http" and own_scheme == "http" and is_loopback(host)):
            raise ServiceRefusedError(f"{doing}: the registry leads to {host}, which is not https")
        return url

    def _is_ours(self, url: str) -> bool:
        return origin_of(url) == origin_of(self.origin)


def drain(response: requests.Response) -> None:
    """Read what little there is of a body, so that the connection can be used again."""
    from tasks.support.http_session import foreseen_errors

    try:
        response.raw.read(_DRAINED, decode_content=False)
    except foreseen_errors():
        pass
    finally:
        response.close()


def _read(response: requests.Response, doing: str, largest: int) -> bytes:
    data = bytearray()
    for piece in body_of(response):
        data += piece
        if len(data) > largest:
            response.close()
            raise ServiceRefusedError(f"{doing}: the answer is larger than {largest} bytes")
    return bytes(data)


@contextlib.contextmanager
def _named(doing: str) -> Iterator[None]:
    """Say in an error what was being done when the way in was refused."""
    try:
        yield
    except OmniError as error:
        raise type(error)(f"{doing}: {error.message}", hint=error.hint) from error
