"""Reading index pages as a client does, with a parser that is not ours: what a page lists, and where its links lead."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote, urljoin, urlsplit

if TYPE_CHECKING:
    from pypi_simple import DistributionPackage

# A place for the store's top: not the top of the host, so that a link that climbs too high is seen.
_TOP = "http://store.invalid/top/"


class UnreadablePageError(Exception):
    """A page that a client cannot make sense of."""


@dataclass(frozen=True)
class Listed:
    """One file as a page lists it. ``key`` is where its link leads in the store, None when it leads out of it.

    ``yanked`` is None, or the reason, which is empty when the page gives none.
    """

    filename: str
    key: str | None
    sha256: str | None
    metadata_sha256: str | None
    requires_python: str | None
    yanked: str | None


def read_project_page(key: str, data: bytes) -> list[Listed]:
    """Return the files of a project's page, HTML or JSON by its key; UnreadablePageError when it is neither."""
    from pypi_simple import ProjectPage, UnsupportedRepoVersionError

    try:
        if key.endswith(".json"):
            page = ProjectPage.from_json_data(json.loads(data), _TOP + key)
        else:
            project = key.split("/")[-2]
            page = ProjectPage.from_html(project, data, _TOP + key, from_encoding="utf-8")
    except (ValueError, AssertionError, RecursionError, UnsupportedRepoVersionError) as error:
        raise UnreadablePageError(_reason(error)) from error
    return [_listed(package) for package in page.packages]


def read_root_page(key: str, data: bytes) -> list[str | None]:
    """Return the keys of the project pages that a root page leads to, None for a link that leads out of the store.

    A JSON page lists names; their pages lie beside it.
    """
    from pypi_simple import IndexPage, RepositoryPage, UnsupportedRepoVersionError

    try:
        if key.endswith(".json"):
            names = IndexPage.from_json_data(json.loads(data)).projects
            return [_key_of(urljoin(_TOP + key, f"{name}/index.json")) for name in names]
        links = RepositoryPage.from_html(data, _TOP + key, from_encoding="utf-8").links
        return [_key_of(urljoin(link.url, "index.html")) for link in links]
    except (ValueError, AssertionError, RecursionError, UnsupportedRepoVersionError) as error:
        raise UnreadablePageError(_reason(error)) from error


def read_metadata_page(key: str, data: bytes) -> list[str | None]:
    """Return the keys that a ``metadata.json`` leads to, None for a path that leads out of the store."""
    try:
        paths = [wheel["path"] for wheel in json.loads(data)]
        return [_key_of(urljoin(_TOP + key, path)) for path in paths]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise UnreadablePageError(_reason(error)) from error


def _listed(package: DistributionPackage) -> Listed:
    return Listed(
        filename=package.filename,
        key=_key_of(package.url),
        sha256=package.digests.get("sha256"),
        metadata_sha256=(package.metadata_digests or {}).get("sha256"),
        requires_python=package.requires_python,
        yanked=(package.yanked_reason or "") if package.is_yanked else None,
    )


def _key_of(url: str) -> str | None:
    address = urlsplit(url)._replace(query="", fragment="").geturl()
    return unquote(address.removeprefix(_TOP)) if address.startswith(_TOP) else None


def _reason(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]
