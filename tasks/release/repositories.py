"""The two repositories of a publish: where CI pushes images, and where users pull them."""

from __future__ import annotations

from dataclasses import dataclass

from tasks.registry.references import RepositoryName
from tasks.support.errors import UsageError
from tasks.support.paths import absolute, without_steps_up
from tasks.support.profiles import Profile
from tasks.support.settings import CHECKOUT, Settings

FOLDER = CHECKOUT / ".omni-ci" / "registry"


@dataclass(frozen=True)
class Repositories:
    """The addresses of the staging and the public repository."""

    staging: RepositoryName
    public: RepositoryName


def choose(settings: Settings) -> Repositories:
    """Return the repositories: a flag or a variable, else the catalogue's, else in profile local a folder of each.

    Raises UsageError when an address is none, and when both are the same repository.
    """
    staging = _parse(settings.staging or _default(settings, "staging"))
    public = _parse(settings.public or _default(settings, "public"))
    if staging == public:
        raise UsageError(f"staging and public are the same repository: {public}", hint="correct --staging or --public")
    return Repositories(staging, public)


def _parse(address: str) -> RepositoryName:
    """Read an address; a folder may be written as its path, which starts with ``/`` or ``.`` as no registry does."""
    if address.startswith(("/", ".")) and "\0" not in address:
        return RepositoryName.parse(without_steps_up(absolute(address)).as_uri())
    return RepositoryName.parse(address)


def _default(settings: Settings, name: str) -> str:
    if settings.profile is Profile.LOCAL:
        return (FOLDER / name).as_uri()
    from tasks.images import catalogue

    return catalogue.load().repository(name).address
