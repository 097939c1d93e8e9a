"""What the package index already has of one version: file names and digests, through its simple API (PEP 503, 691)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from packaging.utils import canonicalize_name
from packaging.version import Version

from tasks.support import http_door
from tasks.support.errors import ConfigurationError, DataError, ServiceRefusedError
from tasks.support.redaction import redact
from tasks.support.settings import Settings
from tasks.wheels.distribution import FileName, parse_filename

if TYPE_CHECKING:
    import requests
    from pypi_simple import DistributionPackage, ProjectPage


@dataclass(frozen=True)
class Service:
    """The package index that versions are published to. ``upload_url`` None means twine's own default.

    Both addresses may hold credentials: show ``name`` instead.
    """

    upload_url: str | None = field(repr=False)
    index_url: str = field(repr=False)

    @property
    def name(self) -> str:
        """Return the upload address as it may be shown; for twine's default that of the public index."""
        return redact(self.upload_url or self.index_url)


@dataclass(frozen=True)
class Published:
    """What the index has of one version of a project: the sha256 of each file, by file name.

    ``index`` is the address of the project's page, as it may be shown.
    """

    index: str
    project: str
    version: Version
    files: Mapping[str, str]


def find_service(settings: Settings) -> Service:
    """Return the service that the settings name, by default the public one.

    Raises ConfigurationError when only one of its two addresses is set: a comparison with another index than
    the one that is uploaded to says nothing, and a forgotten upload address would publish to everybody.
    """
    from pypi_simple import PYPI_SIMPLE_ENDPOINT

    upload, index = settings.pypi_upload_url, settings.pypi_index_url
    if (upload is None) != (index is None):
        given, missing = ("UPLOAD", "INDEX") if index is None else ("INDEX", "UPLOAD")
        raise ConfigurationError(
            f"OMNI_CI_PYPI_{given}_URL is set and OMNI_CI_PYPI_{missing}_URL is not",
            hint="set both, so that what is compared is what is uploaded to, or neither for the public index",
        )
    return Service(upload, index or PYPI_SIMPLE_ENDPOINT)


def read_published(service: Service, project: str, version: Version) -> Published:
    """Ask the index for the files of one version; a project that it does not know (404) has none.

    A file that the index lists without a sha256 is downloaded and hashed. Raises what the http door raises, and
    ServiceRefusedError for an answer that is not the page of this project.
    """
    address = f"{service.index_url.rstrip('/')}/{project}/"
    with http_door.open_session(allow={HTTPStatus.NOT_FOUND}) as session:
        page = _project_page(session, address, project)
        named = list(_named(page)) if page else []
        files = {name.text: _digest(session, package) for name, package in named if name.version == version}
    return Published(redact(address), project, version, files)


def _project_page(session: requests.Session, address: str, project: str) -> ProjectPage | None:
    from pypi_simple import ACCEPT_ANY, ProjectPage, UnsupportedRepoVersionError

    response = session.get(address, headers={"Accept": ACCEPT_ANY})
    if urlsplit(response.url).hostname != urlsplit(address).hostname:
        raise ServiceRefusedError(
            f"{redact(address)} leads to another server, {urlsplit(response.url).hostname}",
            hint="compare with the index that is uploaded to: turn off its fallback, or correct OMNI_CI_PYPI_INDEX_URL",
        )
    if response.status_code == HTTPStatus.NOT_FOUND:
        return None
    try:
        page = ProjectPage.from_response(response, project)
    except (ValueError, UnsupportedRepoVersionError) as error:
        raise _not_a_page(address, type(error).__name__) from error
    # A log-in page is HTML with links too; taken for a project's page it would say that nothing is there.
    if page.packages and not any(canonicalize_name(package.project or "") == project for package in page.packages):
        raise _not_a_page(address, "none of its links is a file of the project")
    return page


def _named(page: ProjectPage) -> Iterator[tuple[FileName, DistributionPackage]]:
    """Yield the page's wheels and sdists; other files (eggs, installers) cannot have the name of one of ours."""
    for package in page.packages:
        try:
            yield parse_filename(package.filename), package
        except DataError:
            continue


def _digest(session: requests.Session, package: DistributionPackage) -> str:
    listed = package.digests.get("sha256")
    if listed:
        return listed.lower()
    digest = hashlib.sha256()
    for chunk in http_door.body_of(session.get(package.url, stream=True)):
        digest.update(chunk)
    return digest.hexdigest()


def _not_a_page(where: str, why: str) -> ServiceRefusedError:
    return ServiceRefusedError(
        f"not a project's page of a package index: {redact(where)} ({why})",
        hint="nothing was uploaded; check OMNI_CI_PYPI_INDEX_URL and what stands between",
    )
