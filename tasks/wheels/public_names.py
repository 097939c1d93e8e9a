"""Asking the public package index what it has under the names of ours. It is only ever read."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import TYPE_CHECKING

from packaging.version import InvalidVersion, Version

from tasks.support.errors import ServiceRefusedError
from tasks.support.redaction import redact
from tasks.wheels.versions import read_version

if TYPE_CHECKING:
    from pypi_simple import ProjectPage


def newest_versions(address: str, projects: Iterable[str]) -> dict[str, Version | None]:
    """Return the newest version that the index at ``address`` has of each project, yanked ones left out.

    A project that the index does not know (404) is left out; None means that it has no version to install.
    Raises what the http door raises, and ServiceRefusedError for an answer that is no project's page.
    """
    from pypi_simple import NoSuchProjectError, PyPISimple, UnsupportedContentTypeError, UnsupportedRepoVersionError

    from tasks.support.http_door import open_session

    found: dict[str, Version | None] = {}
    with PyPISimple(address, session=open_session(allow={HTTPStatus.NOT_FOUND})) as client:
        for project in projects:
            try:
                found[project] = _newest(client.get_project_page(project))
            except NoSuchProjectError:
                continue
            except (ValueError, UnsupportedContentTypeError, UnsupportedRepoVersionError) as error:
                raise ServiceRefusedError(
                    f"{redact(client.get_project_url(project))} is no project's page ({type(error).__name__})",
                    hint="check OMNI_CI_PYPI_INDEX_URL: it is the address of a simple index",
                ) from error
    return found


def _newest(page: ProjectPage) -> Version | None:
    versions = []
    for package in page.packages:
        try:
            if package.version and not package.is_yanked:
                versions.append(read_version(package.version))
        except InvalidVersion:
            continue
    return max(versions, default=None)
