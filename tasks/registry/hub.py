"""The tags of a DockerHub repository, through the account API: the registry itself deletes a tag's siblings with it.

Only the namespace routes are used: the older ones refuse every organization token.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlsplit

from tasks.registry.hub_door import PUBLIC, Account, HubDoor, HubPatience, parse_time
from tasks.registry.references import RepositoryName, check_tag, is_digest
from tasks.support.console import plural
from tasks.support.errors import (
    DataError,
    MissingInputError,
    ServiceRefusedError,
    TemporaryError,
    UsageError,
)
from tasks.support.settings import Settings

PAGE_SIZE = 100
_MOST_PAGES = 5000
_LISTINGS = 3
_CONFIRMATIONS = 5


@dataclass(frozen=True)
class HubTag:
    """A tag as DockerHub lists it. ``size`` is in bytes; ``images`` are the digests of its platforms' manifests.

    ``digest`` and ``last_pushed`` are None where DockerHub has none that can be read.
    """

    name: str
    digest: str | None
    last_pushed: datetime | None
    size: int = 0
    images: tuple[str, ...] = ()


@dataclass
class _Listing:
    """One reading of all pages: the tags by name, and every total that a page claimed."""

    tags: dict[str, HubTag] = field(default_factory=dict)
    counts: set[int] = field(default_factory=set)
    changed: bool = False
    """A page that another page led to was gone."""

    @property
    def is_complete(self) -> bool:
        return not self.changed and self.counts == {len(self.tags)}


class HubRepository:
    """A repository's tags: listed to the proven end, looked up, deleted one by one."""

    def __init__(self, door: HubDoor, where: RepositoryName) -> None:
        """Name the repository, of two parts; UsageError for any other. Nothing is sent yet."""
        namespace, _, repository = where.name.partition("/")
        if not repository or "/" in repository:
            raise UsageError(f"not a repository of DockerHub: {where}", hint="it has two parts, as in vllm/vllm-omni")
        self._door = door
        self._route = f"/v2/namespaces/{quote(namespace, safe='')}/repositories/{quote(repository, safe='')}/tags"
        self.name = str(where)

    def list_tags(self) -> tuple[HubTag, ...]:
        """Return every tag, sorted by name.

        Raises what the door raises when any page fails, MissingInputError for an unknown repository, TemporaryError
        when tags come and go while they are listed, ServiceRefusedError when the pages are not as many as claimed.
        """
        for _ in range(_LISTINGS):
            listing = self._read_pages()
            if listing.is_complete:
                return tuple(sorted(listing.tags.values(), key=lambda tag: tag.name))
        if listing.changed or len(listing.counts) > 1:
            raise TemporaryError(
                f"the tags of {self.name} change while they are listed", hint="run the same command again later"
            )
        claimed = next(iter(listing.counts))
        raise ServiceRefusedError(
            f"DockerHub says that {self.name} has {plural(claimed, 'tag')}, and lists {len(listing.tags)}",
            hint="a list that is not complete is not acted on; try again later",
        )

    def find_tag(self, tag: str) -> HubTag | None:
        """Return a tag as it is now, None when it is not there."""
        answer = self._door.ask("GET", f"{self._route}/{quote(check_tag(tag), safe='')}")
        return None if answer.status == HTTPStatus.NOT_FOUND else _read_tag(answer.document, self.name)

    def delete_tag(self, tag: str) -> bool:
        """Delete a tag and see that it is gone; False when it was gone already.

        The manifest, and other tags on it, stay. Raises ServiceRefusedError when the tag is still listed afterwards.
        """
        answer = self._door.ask("DELETE", f"{self._route}/{quote(check_tag(tag), safe='')}")
        patience = self._door.patience
        for attempt in range(_CONFIRMATIONS):
            if self.find_tag(tag) is None:
                return answer.status != HTTPStatus.NOT_FOUND
            patience.sleep(patience.backoff * 2.0**attempt)
        raise ServiceRefusedError(
            f"DockerHub answers {answer.status} to the deletion of {self.name}:{tag}, and still has the tag",
            hint="look at it on DockerHub, and run the same command again later",
        )

    def _read_pages(self) -> _Listing:
        listing = _Listing()
        query: str | None = f"page_size={PAGE_SIZE}"
        asked: set[str] = set()
        while query is not None:
            if query in asked or len(asked) == _MOST_PAGES:
                raise ServiceRefusedError(f"DockerHub's list of the tags of {self.name} has no end (page ?{query})")
            asked.add(query)
            answer = self._door.ask("GET", self._route, query)
            if answer.status == HTTPStatus.NOT_FOUND:
                if len(asked) == 1:
                    raise MissingInputError(
                        f"DockerHub has no repository {self.name} that {self._door.account.name} may see",
                        hint="check the name, and the account of DOCKERHUB_USERNAME",
                    )
                listing.changed = True
                break
            query = self._take_page(answer.document, listing)
        return listing

    def _take_page(self, page: Any, listing: _Listing) -> str | None:
        """Add a page's tags to the listing, and return the next page's query, None for the last page."""
        rows = page.get("results") if isinstance(page, dict) else None
        count = page.get("count") if isinstance(page, dict) else None
        if not isinstance(rows, list) or not isinstance(count, int):
            raise ServiceRefusedError(f"DockerHub answers with no page of the tags of {self.name}")
        for row in rows:
            tag = _read_tag(row, self.name)
            listing.tags[tag.name] = tag
        listing.counts.add(count)
        following = page.get("next")
        if following is None:
            return None
        # Only the query is taken over: the token goes to our own address and route, wherever a page points.
        query = _query_at(following, urlsplit(self._door.address).netloc)
        if not query:
            raise ServiceRefusedError(
                f"DockerHub's list of the tags of {self.name} goes on at another address: {str(following)[:200]}",
                hint="check OMNI_CI_HUB_URL",
            )
        return query


def open_hub(name: RepositoryName, settings: Settings, patience: HubPatience | None = None) -> HubRepository:
    """Return a repository's tags at the account API that the settings name; nothing is sent yet.

    Raises UsageError for a name that is not ``namespace/repository``, CredentialsError when DOCKERHUB_USERNAME or
    DOCKERHUB_TOKEN is not set, ConfigurationError for an address that credentials may not be sent to.
    """
    purpose = "to list and delete tags"
    secrets = (settings.secret(key, purpose=purpose) for key in ("DOCKERHUB_USERNAME", "DOCKERHUB_TOKEN"))
    account = Account(*(secret.strip() for secret in secrets))
    return HubRepository(HubDoor(settings.hub_url or PUBLIC, account, patience), name)


def _query_at(address: object, host: str) -> str:
    """Return the query of an address on the host, or of one without a host; nothing for any other address."""
    try:
        parts = urlsplit(address) if isinstance(address, str) else None
    except ValueError:
        return ""
    return parts.query if parts and parts.netloc in {"", host} else ""


def _read_tag(row: Any, where: str) -> HubTag:
    """Read a tag's JSON object; DataError when it is none or has no name."""
    if not isinstance(row, Mapping) or not isinstance(row.get("name"), str):
        raise DataError(f"DockerHub lists a tag of {where} that has no name: {str(row)[:200]}")
    try:
        name = check_tag(row["name"])
    except UsageError as error:
        raise DataError(f"DockerHub lists a tag of {where} with a name that is none: {error.message}") from error
    images = row.get("images")
    digests = (
        [image.get("digest") for image in images if isinstance(image, Mapping)] if isinstance(images, list) else []
    )
    size = row.get("full_size")
    return HubTag(
        name,
        _digest(row.get("digest")),
        parse_time(row.get("tag_last_pushed")),
        size if isinstance(size, int) else 0,
        tuple(digest for digest in map(_digest, digests) if digest),
    )


def _digest(value: object) -> str | None:
    return value if isinstance(value, str) and is_digest(value) else None
