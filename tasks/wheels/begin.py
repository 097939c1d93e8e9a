"""What every wheels task starts with: the store it works on, the files and the commit it means."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tasks.support import console, paths, profiles, source
from tasks.support.errors import ConfigurationError, DataError, MissingInputError
from tasks.support.settings import Settings
from tasks.support.store import open_store
from tasks.wheels.index import Index, timestamp
from tasks.wheels.state import TimeSource
from tasks.wheels.upload import CommitTime
from tasks.wheels.views import AskAncestry, unknown_ancestry


def open_index(settings: Settings, deed: profiles.Deed | None = None, *, dry_run: bool = False) -> Index:
    """Open the index in the settings' store; a deed is checked against the profile, then named in the first line."""
    store = open_store(settings.store)
    if deed is not None:
        announce(settings.profile, deed, store.url, dry_run=dry_run)
    return Index(store, settings.wheels)


def announce(profile: profiles.Profile, deed: profiles.Deed, target: str, *, dry_run: bool) -> None:
    """Say what the profile promises; what it forbids is an error, and in a dry run, which only reads, a warning."""
    try:
        profiles.permit(profile, deed, target)
    except ConfigurationError as error:
        if not dry_run:
            raise
        console.warn(f"a real run would be refused: {error.message}; {error.hint}")
    promise = f"profile {profile.value}, dry run: nothing will change" if dry_run else profiles.promise(profile)
    console.say(f"{promise} · {target}")


def find_source(settings: Settings) -> Path | None:
    """Return the source when there is one; only a given one must exist."""
    try:
        return source.resolve_source(settings, paths.current_folder())
    except MissingInputError:
        if settings.source is not None:
            raise
        return None


def commit_time(checkout: Path | None, commit: str, given: str | None) -> CommitTime | None:
    """Return a commit's time from git, else the given one, else None (the upload's own time will do)."""
    from tasks.support.arguments import parse_moment

    moment = parse_moment(given, "--commit-time") if given is not None else None
    if checkout is not None and source.has_git(checkout):
        try:
            return CommitTime(timestamp(source.commit_time(checkout, commit)), TimeSource.GIT)
        except MissingInputError:
            pass
    return CommitTime(timestamp(moment), TimeSource.GIVEN) if moment is not None else None


def ask_ancestry(checkout: Path | None) -> AskAncestry:
    """Return what answers questions of ancestry: the source's git, where there is one."""
    return partial(source.ancestry, checkout) if checkout is not None else unknown_ancestry


def choose_files(dist: str | None, files: Sequence[str] | None, checkout: Path | None, *, sdist: bool) -> list[Path]:
    """Return the files to upload: the named ones, else all wheels (and sdists) of the ``dist`` folder.

    Raises DataError when the folder holds none.
    """
    named = [paths.as_path(name, "--wheel") for name in files or ()]
    for path in named:
        if not paths.is_there(path):
            raise MissingInputError(f"there is no file {paths.shown(path)}", hint="correct --wheel")
    folder = paths.as_path(dist, "--dist") if dist is not None else (checkout or paths.current_folder()) / "dist"
    if named and dist is None and not sdist:
        return named
    if not paths.is_folder(folder):
        hint = "run invoke wheels.build, or say where the wheels are: --dist DIR, --wheel FILE"
        raise MissingInputError(f"there is no folder {paths.shown(folder)}", hint=hint)
    found = [] if named else paths.matching(folder, "*.whl")
    if not named and not found:
        raise DataError(f"{folder} holds no wheel", hint="run invoke wheels.build")
    sdists = paths.matching(folder, "*.tar.gz") if sdist else []
    if sdist and not sdists:
        raise DataError(f"{folder} holds no sdist", hint="run invoke wheels.build")
    return [*named, *found, *sdists]
