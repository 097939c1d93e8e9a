"""A repository on a registry, over the OCI distribution protocol (specification 1.1).

Manifests are bytes: what is read is hashed, what is written is sent as it is, and no answer is taken on trust
where a digest can be compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from tasks.registry.challenge import merged, scope_of
from tasks.registry.client import RegistryClient, drain
from tasks.registry.documents import INDEXES, LARGEST, MANIFESTS, Descriptor, Manifest, digest_of, parse_json
from tasks.registry.downloads import read_blob
from tasks.registry.gate import Waited
from tasks.registry.interface import Progress, Repository
from tasks.registry.link_header import next_link
from tasks.registry.references import RepositoryName, check_digest, check_reference, check_tag, is_digest
from tasks.registry.uploads import Source, Upload, cancel
from tasks.registry.wire import CHECK, Ask
from tasks.support.errors import CredentialsError, DataError, ServiceRefusedError

if TYPE_CHECKING:
    import requests

_KINDS = INDEXES | MANIFESTS
_ACCEPT = {"Accept": ", ".join(sorted(_KINDS))}
_PAGE = 1000
_LARGEST_PAGE = 64 * 2**20
_STORED = frozenset({HTTPStatus.OK, HTTPStatus.CREATED, HTTPStatus.ACCEPTED})
_CANNOT_MOUNT = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED})


class DistributionRepository:
    """A repository on a registry; see ``interface.Repository``. All repositories of a registry share its client."""

    def __init__(self, name: RepositoryName, client: RegistryClient, *, chunk_bytes: int | None = None) -> None:
        """Name the repository. ``chunk_bytes`` cuts uploads into requests of that size; None sends one per blob."""
        self.name = name
        self.client = client
        self._chunk_bytes = chunk_bytes
        self._url = f"{client.origin}/v2/{name.name}"
        self._pull = scope_of(name.name, "pull")
        self._push = scope_of(name.name, "pull", "push")
        self._delete = scope_of(name.name, "pull", "push", "delete")

    @property
    def waited(self) -> Waited:
        """Return how often this process was rate limited by the registry so far, and for how long."""
        return self.client.waited

    def head(self, reference: str) -> Descriptor | None:
        """Return what a tag or digest points at, or None; the body is read only where the headers do not tell."""
        what = self._named(reference)
        ask = Ask("HEAD", self._manifest_url(reference), f"cannot look at {what}", headers=_ACCEPT, follow=True)
        response = self.client.send(ask, self._pull)
        drain(response)
        if response.status_code == HTTPStatus.NOT_FOUND:
            return None
        if response.status_code != HTTPStatus.OK:
            raise self.client.refusal(ask.doing, response)
        digest = response.headers.get("Docker-Content-Digest", "")
        size = response.headers.get("Content-Length", "")
        kind = _media_type(response)
        if not is_digest(digest) or not size.isdigit() or kind not in _KINDS:
            found = self.manifest(reference)
            return None if found is None else found.descriptor()
        _check_same(reference, digest, what)
        return Descriptor(kind, digest, int(size))

    def manifest(self, reference: str) -> Manifest | None:
        """Return a manifest and its exact bytes, or None; DataError when they do not have the digest that is said."""
        what = self._named(reference)
        ask = Ask("GET", self._manifest_url(reference), f"cannot read {what}", headers=_ACCEPT, follow=True)
        response, data = self.client.fetch(ask, self._pull, LARGEST)
        if response.status_code == HTTPStatus.NOT_FOUND:
            drain(response)
            return None
        if response.status_code != HTTPStatus.OK:
            raise self.client.refusal(ask.doing, response)
        digest = digest_of(data)
        said = response.headers.get("Docker-Content-Digest", "")
        _check_same(reference, digest, what)
        if is_digest(said) and said != digest:
            raise DataError(f"digest mismatch: {what} came as {said}, but its bytes have {digest}")
        return Manifest(_kind_of(response, data, what), data)

    def put_manifest(self, manifest: Manifest, tag: str | None = None) -> None:
        """Store a manifest under its digest, or under a tag; DataError when the registry says it stored another."""
        reference = manifest.digest if tag is None else check_tag(tag)
        what = self._named(reference)
        ask = Ask(
            "PUT",
            self._manifest_url(reference),
            f"cannot write {what}",
            headers={"Content-Type": manifest.media_type},
            body=manifest.data,
        )
        response = self.client.send(ask, self._push)
        if response.status_code not in _STORED:
            raise self.client.refusal(ask.doing, response)
        drain(response)
        stored = response.headers.get("Docker-Content-Digest", "")
        if not is_digest(stored):
            found = self.head(reference)
            stored = found.digest if found else "nothing"
        if stored != manifest.digest:
            raise DataError(f"digest mismatch: {what} was written as {manifest.digest}, but the registry has {stored}")

    def has_blob(self, digest: str) -> bool:
        """Say whether the repository holds a blob."""
        ask = Ask("HEAD", self._blob_url(digest), f"cannot look at {self._named(digest)}", follow=True)
        response = self.client.send(ask, self._pull)
        drain(response)
        if response.status_code not in {HTTPStatus.OK, HTTPStatus.NOT_FOUND}:
            raise self.client.refusal(ask.doing, response)
        return response.status_code == HTTPStatus.OK

    def read_blob(self, digest: str, start: int = 0) -> Iterator[bytes]:
        """Yield a blob's bytes from ``start`` on, taken up where a connection was cut; MissingInputError without it."""
        return read_blob(self.client, self._blob_url(digest), self._named(digest), self._pull, start)

    def put_blob(self, blob: Descriptor, chunks: Iterator[bytes], progress: Progress | None = None) -> None:
        """Store a blob from bytes that can be read once; see the interface.

        When it fails, the progress that was told is taken back, and the registry's upload session is cancelled.
        """
        doing = f"cannot send {self._named(blob.digest)}"
        source = Source(blob, chunks, progress, doing)
        upload = Upload(self.client, self._uploads_url, self._blob_url(blob.digest), doing, self._push)
        upload.run(blob, source, self._chunk_bytes)

    def mount(self, blob: Descriptor, source: Repository) -> bool:
        """Make a blob of another repository of this registry part of this one; False when that is not possible."""
        there = source.name
        if there.registry is None or there.registry != self.name.registry or there.name == self.name.name:
            return False
        doing = f"cannot mount {self._named(blob.digest)} from {there}"
        url = f"{self._uploads_url}?mount={check_digest(blob.digest)}&from={there.name}"
        scope = merged(*self._push, *scope_of(there.name, "pull"))
        try:
            response = self.client.send(Ask("POST", url, doing), scope)
        except CredentialsError:
            return False  # the credential may not be good for the source; sending the bytes will tell
        if response.status_code in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, *_CANNOT_MOUNT}:
            drain(response)
            return False
        if response.status_code == HTTPStatus.ACCEPTED:  # a session instead, for the bytes
            session = response.headers.get("Location")
            drain(response)
            if session:
                cancel(self.client, self.client.next_url(url, session, doing), doing, self._delete)
            return False
        if response.status_code != HTTPStatus.CREATED:
            raise self.client.refusal(doing, response)
        drain(response)
        return True

    def tags(self) -> list[str]:
        """Return every tag, sorted; a repository that is not there has none."""
        doing = f"cannot list the tags of {self.name}"
        url = f"{self._url}/tags/list?n={_PAGE}"
        found: set[str] = set()
        seen: set[str] = set()
        while url:
            seen.add(url)
            response, data = self.client.fetch(Ask("GET", url, doing), self._pull, _LARGEST_PAGE)
            if response.status_code != HTTPStatus.OK:
                refused = self.client.refused(response)
                if refused.status == HTTPStatus.NOT_FOUND and "NAME_UNKNOWN" in refused.codes and len(seen) == 1:
                    return []
                raise self.client.error_of(doing, refused)
            page = _tags_of(data, doing)
            url = self._next_page(response, page, found, doing)
            found.update(page)
            if url in seen:
                raise ServiceRefusedError(f"{doing}: the pages lead in a circle")
        return sorted(found)

    def delete_manifest(self, digest: str) -> bool:
        """Delete a manifest and every tag on it; False when it was not there."""
        doing = f"cannot delete {self._named(check_digest(digest))}"
        response = self.client.send(Ask("DELETE", self._manifest_url(digest), doing), self._delete)
        if response.status_code == HTTPStatus.NOT_FOUND:
            drain(response)
            return False
        if response.status_code not in _STORED:
            raise self.client.refusal(doing, response)
        drain(response)
        return True

    def _next_page(self, response: requests.Response, page: list[str], found: set[str], doing: str) -> str:
        """Return the next page's URL, or nothing after the last one.

        A full page without a link may be one whose link was lost: only an empty or known next page proves the end.
        """
        try:
            following = next_link(response.headers.get("Link", ""))
        except ValueError as error:  # taken for none, it would make this page the last one
            raise ServiceRefusedError(f"{doing}: the link to the next page cannot be read", hint=CHECK) from error
        if following is not None:
            url = self.client.next_url(response.url, following, doing)
            if not url.startswith(f"{self._url}/tags/list"):
                raise ServiceRefusedError(f"{doing}: the next page is said to be elsewhere")
            return url
        if len(page) == _PAGE and not found.issuperset(page):
            return f"{self._url}/tags/list?n={_PAGE}&last={page[-1]}"
        return ""

    def _named(self, reference: str) -> str:
        return f"{self.name}{'@' if is_digest(reference) else ':'}{check_reference(reference)}"

    def _manifest_url(self, reference: str) -> str:
        return f"{self._url}/manifests/{reference}"

    def _blob_url(self, digest: str) -> str:
        return f"{self._url}/blobs/{check_digest(digest)}"

    @property
    def _uploads_url(self) -> str:
        return f"{self._url}/blobs/uploads/"


def _check_same(reference: str, digest: str, what: str) -> None:
    if is_digest(reference) and reference != digest:
        raise DataError(f"digest mismatch: {what} is answered with {digest}")


def _media_type(response: requests.Response) -> str:
    return response.headers.get("Content-Type", "").partition(";")[0].strip().lower()


def _kind_of(response: requests.Response, data: bytes, what: str) -> str:
    """Return a manifest's media type: the header's, or where a registry has a general one there, the document's own."""
    kind = _media_type(response)
    if kind not in _KINDS:
        try:
            kind = parse_json(data).get("mediaType", kind)
        except (ValueError, RecursionError, AttributeError):
            kind = kind or "nothing"
    if kind not in _KINDS:
        raise DataError(f"{what} is neither an image nor an index, but {str(kind)[:100]}")
    return kind


def _tags_of(data: bytes, doing: str) -> list[str]:
    try:
        document: Any = parse_json(data)
        tags = document["tags"] or []
    except (ValueError, RecursionError, KeyError, TypeError):
        tags = None
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise ServiceRefusedError(f"{doing}: the answer is not a list of tags")
    return tags
