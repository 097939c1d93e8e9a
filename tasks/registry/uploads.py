"""A blob's way into a registry: POST for a session, PATCH with the bytes as they come, PUT with the digest.

Source: OCI distribution specification, "Pushing blobs". A single PUT is not used, because registries are known to
refuse large ones.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterator
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from tasks.registry.challenge import Scope
from tasks.registry.client import RegistryClient, drain
from tasks.registry.documents import Descriptor
from tasks.registry.gate import StoppedError
from tasks.registry.interface import Progress
from tasks.registry.refusals import LATER
from tasks.registry.wire import Ask
from tasks.support.errors import DataError, OmniError, ServiceRefusedError, TemporaryError

if TYPE_CHECKING:
    import requests

_TAKEN = frozenset({HTTPStatus.CREATED, HTTPStatus.ACCEPTED, HTTPStatus.NO_CONTENT})
_FORGOTTEN = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE})
_COMMIT_SECONDS = 600.0
"""The longest silence while a registry makes a blob of an upload: some copy all of it."""
_SEND_SECONDS = 120.0
"""The longest silence while one piece is sent, and after the last one: some registries write to slow storage then."""
_CANCEL_SECONDS = 10.0
_OCTETS = {"Content-Type": "application/octet-stream"}
_STATES = "the registry's answer to the upload"


class Source:
    """The bytes to send: hashed and counted as they go by, never more than one piece of them held."""

    def __init__(self, blob: Descriptor, chunks: Iterator[bytes], progress: Progress | None, doing: str) -> None:
        self.sent = 0
        self._blob = blob
        self._chunks = chunks
        self._progress = progress
        self._doing = doing
        self._hash = hashlib.sha256()
        self._rest = memoryview(b"")

    def take(self, count: int) -> Iterator[bytes]:
        """Yield exactly ``count`` bytes; DataError when there are fewer."""
        while count:
            piece = self._next()
            if not piece:
                raise DataError(f"{self._doing}: only {self.sent} of its {self._blob.size} bytes came")
            piece, self._rest = piece[:count], piece[count:]
            self._hash.update(piece)
            yield piece  # type: ignore[misc] # a socket takes views as well
            count -= len(piece)
            self._count(len(piece))

    def check(self) -> None:
        """Raise DataError when the bytes were others than their descriptor says."""
        if self._next():
            raise DataError(f"{self._doing}: more than its {self._blob.size} bytes came")
        digest = f"sha256:{self._hash.hexdigest()}"
        if digest != self._blob.digest:
            raise DataError(f"{self._doing}: digest mismatch, the bytes have {digest}; nothing was stored")

    def take_back(self) -> None:
        """Tell the progress that all of it is to be sent again."""
        self._count(-self.sent)

    def _count(self, size: int) -> None:
        self.sent += size
        if self._progress is not None and size:
            self._progress(size)

    def _next(self) -> memoryview:
        if self._rest:
            return self._rest
        try:
            return memoryview(next((chunk for chunk in self._chunks if chunk), b""))
        except OSError as error:  # which requests would take for its connection's
            raise ServiceRefusedError(f"{self._doing}: its bytes cannot be read: {error}") from error


class _Part:
    """The next bytes of a source as a request's body."""

    def __init__(self, source: Source, size: int) -> None:
        self._source = source
        self._size = size
        self.failure: Exception | None = None

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._source.take(self._size)
        except Exception as error:
            self.failure = error
            raise


class Upload:
    """One upload session. ``uploads`` is the URL that makes sessions, ``blob_url`` where the blob will be."""

    def __init__(self, client: RegistryClient, uploads: str, blob_url: str, doing: str, scope: Scope) -> None:
        self._client = client
        self._uploads = uploads
        self._blob_url = blob_url
        self._doing = doing
        self._scope = scope
        self._url = ""
        self._shortest = 0

    def run(self, blob: Descriptor, source: Source, chunk_bytes: int | None) -> None:
        """Send and commit the blob; on any failure nothing is stored, and the session is cancelled if it can be."""
        self._begin()
        try:
            self._send(source, blob.size, max(chunk_bytes or blob.size, self._shortest))
            source.check()
            self._commit(blob.digest)
        except BaseException:
            source.take_back()
            cancel(self._client, self._url, self._doing, self._scope)
            raise

    def _begin(self) -> None:
        response = self._client.send(Ask("POST", self._uploads, self._doing), self._scope)
        if response.status_code != HTTPStatus.ACCEPTED:
            raise self._client.refusal(self._doing, response)
        shortest = response.headers.get("OCI-Chunk-Min-Length", "")
        self._shortest = int(shortest) if re.fullmatch(r"[0-9]{1,12}", shortest) else 0
        self._moved(response)
        if not self._url:
            raise ServiceRefusedError(f"{self._doing}: {_STATES} does not say where to send it")

    def _send(self, source: Source, size: int, chunk_bytes: int) -> None:
        """Send the bytes in as many requests as it takes; each says where it begins only when there are several."""
        while source.sent < size:
            length = min(chunk_bytes, size - source.sent)
            whole = length == size
            where = {} if whole else {"Content-Range": f"{source.sent}-{source.sent + length - 1}"}
            part = _Part(source, length)
            headers = {**_OCTETS, **where}
            ask = Ask("PATCH", self._url, self._doing, headers=headers, body=part, once=True, seconds=_SEND_SECONDS)
            try:
                response = self._client.send(ask, self._scope)
            except ServiceRefusedError as error:
                if part.failure is not None:
                    raise
                # The same registry answered just before.
                raise TemporaryError(error.message, hint=LATER) from error
            if response.status_code in _FORGOTTEN:
                raise TemporaryError(self._client.refusal(self._doing, response).message, hint=LATER)
            if response.status_code not in _TAKEN:
                raise self._client.refusal(self._doing, response)
            self._moved(response)
            taken = re.search(r"-(\d+)$", response.headers.get("Range", ""))
            if taken and int(taken[1]) + 1 != source.sent:
                raise TemporaryError(f"{self._doing}: the registry took {taken[1]} of {source.sent} bytes", hint=LATER)

    def _commit(self, digest: str) -> None:
        """Make the upload a blob. A lost answer is not taken for a failure when the blob is there afterwards."""
        mark = "&" if "?" in self._url else "?"
        url = f"{self._url}{mark}{urlencode({'digest': digest})}"
        ask = Ask("PUT", url, self._doing, seconds=_COMMIT_SECONDS)
        try:
            self._check_committed(self._client.send(ask, self._scope), digest)
        except (TemporaryError, ServiceRefusedError):
            if not self._is_there():
                raise

    def _check_committed(self, response: requests.Response, digest: str) -> None:
        if response.status_code not in _TAKEN:
            error = self._client.refusal(self._doing, response)
            if response.status_code in _FORGOTTEN or "DIGEST_INVALID" in error.message:  # lost, or garbled on the way
                raise TemporaryError(error.message, hint=LATER)
            raise error
        drain(response)
        answered = response.headers.get("Docker-Content-Digest", digest)
        if answered != digest:
            raise DataError(f"{self._doing}: digest mismatch, the registry stored {answered}")

    def _is_there(self) -> bool:
        with contextlib.suppress(OmniError):
            response = self._client.send(Ask("HEAD", self._blob_url, self._doing, follow=True), self._scope)
            response.close()
            return response.status_code == HTTPStatus.OK
        return False

    def _moved(self, response: requests.Response) -> None:
        """Follow the session, which may be elsewhere after each request, and free the connection."""
        target = response.headers.get("Location")
        drain(response)
        if target:
            self._url = self._client.next_url(response.url, target, self._doing)


def cancel(client: RegistryClient, url: str, doing: str, scope: Scope) -> None:
    """End an upload session that will not be committed; a failure is left to the registry's own clean-up.

    After a request that was cut the distribution project's registry (2.8) knows the session's URL no longer. One that
    wants to be left alone for long is not waited for.
    """
    if client.shut > _CANCEL_SECONDS:
        return
    with contextlib.suppress(OmniError, StoppedError):
        drain(client.send(Ask("DELETE", url, doing, once=True, seconds=_CANCEL_SECONDS), scope))
