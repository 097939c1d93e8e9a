"""A task's first line: what the profile promises, and what the task is about."""

from __future__ import annotations

from collections.abc import Iterable

from tasks.support import console, profiles
from tasks.support.errors import ConfigurationError
from tasks.support.profiles import Deed, Profile


def announce(profile: Profile, deed: Deed, targets: Iterable[str], what: str, *, dry_run: bool) -> None:
    """Say what the profile promises, before anything can go wrong; then check the deed as ``permit`` does.

    A target is a URL or a repository's name.
    """
    promise = f"profile {profile.value}, dry run: nothing will change" if dry_run else profiles.promise(profile)
    console.say(f"{promise} · {what}")
    for target in targets:
        permit(profile, deed, target, dry_run=dry_run)


def permit(profile: Profile, deed: Deed, target: str, *, dry_run: bool) -> None:
    """Refuse what the profile forbids: an error, and in a dry run, which only reads, a warning."""
    try:
        profiles.permit(profile, deed, target)
    except ConfigurationError as error:
        if not dry_run:
            raise
        console.warn(f"a real run would be refused: {error.message}; {error.hint}")
