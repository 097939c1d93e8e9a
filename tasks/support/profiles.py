"""What each profile may change. ``local`` is the default: nothing public can change by accident."""

from __future__ import annotations

from enum import Enum

from tasks.support.errors import ConfigurationError, unknown_choice


class Profile(Enum):
    """The three profiles, from the safest to the one that only publishing steps set."""

    LOCAL = "local"
    CI = "ci"
    PRODUCTION = "production"

    @classmethod
    def parse(cls, word: str) -> Profile:
        """Return the profile of that name, or raise UsageError naming the closest one."""
        try:
            return cls(word)
        except ValueError:
            raise unknown_choice("profile", word, [profile.value for profile in cls]) from None


class Deed(Enum):
    """The kinds of change a task can make, told apart by who may make them."""

    STAGE = "add what belongs to one commit"
    MOVE = "move a view or a channel"
    RECORD = "record what was tested"
    CLEAN = "clean up"
    PUBLISH = "publish to PyPI"


_PROMISE = {
    Profile.LOCAL: "nothing public will change",
    Profile.CI: "only what belongs to one commit can change",
    Profile.PRODUCTION: "public things can change",
}


def promise(profile: Profile) -> str:
    """Return the sentence that a task shows in its first line."""
    return f"profile {profile.value}: {_PROMISE[profile]}"


def permit(profile: Profile, deed: Deed, target: str) -> None:
    """Raise ConfigurationError when the profile does not allow the deed on ``target`` (a URL)."""
    if profile is Profile.PRODUCTION:
        return
    if profile is Profile.CI and deed is not Deed.STAGE:
        raise ConfigurationError(
            f"profile ci may not {deed.value} ({target})",
            hint="only a publishing step sets --profile production (or OMNI_CI_PROFILE=production)",
        )
    if profile is Profile.LOCAL and (deed is Deed.PUBLISH or not target.startswith("file:")):
        wanted = "--profile ci or --profile production" if deed is Deed.STAGE else "--profile production"
        raise ConfigurationError(
            f"profile local may not {deed.value} outside this machine ({target})",
            hint=f"choose {wanted} (or set OMNI_CI_PROFILE)",
        )
