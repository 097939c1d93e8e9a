"""A task's first line: what the profile promises, and what the task is about."""

from __future__ import annotations

from collections.abc import Iterable

from tasks.support import console, profiles
from tasks.support.errors import ConfigurationError
from tasks.support.profiles import Deed, Profile


def announce(profile: Profile, deed: Deed, targets: Iterable[str], what: str, *, dry_run: bool) -> None:
    """Check the deed on every target (a URL or a repository's name), and say what the profile promises.

    What it forbids is an error, and in a dry run, which only reads, a warning.
    """
    for target in targets:
        try:
            profiles.permit(profile, deed, target)
        except ConfigurationError as error:
            if not dry_run:
                raise
            console.warn(f"a real run would be refused: {error.message}; {error.hint}")
    promise = f"profile {profile.value}, dry run: nothing will change" if dry_run else profiles.promise(profile)
    console.say(f"{promise} · {what}")
