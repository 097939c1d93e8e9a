"""Channels: the tags that a publish moves, and the version of a release.

A release's version is a public version of PEP 440 that can stand in a tag: no epoch and no local part.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

from packaging.version import InvalidVersion, Version

from tasks.registry.documents import Platform
from tasks.registry.references import check_tag
from tasks.support.errors import UsageError, unknown_choice

ARCHITECTURES: Mapping[str, Platform] = MappingProxyType(
    {"x86_64": Platform("linux", "amd64"), "aarch64": Platform("linux", "arm64")}
)
"""The architectures of a channel as ``uname -m`` names them, in the order in which an index lists them."""

_NIGHTLY = re.compile(r"nightly-[0-9a-f]{40}")
_LONGEST = 64
_MOST_PARTS = 4


class Channel(Enum):
    """What a publish moves; the value is the word that people write."""

    NIGHTLY = "nightly"
    RELEASE = "release"

    @classmethod
    def parse(cls, word: str) -> Channel:
        """Return the channel of that name, or raise UsageError naming the closest one."""
        try:
            return cls(word)
        except ValueError:
            raise unknown_choice("channel", word, [channel.value for channel in cls]) from None

    @property
    def floating(self) -> str:
        """Return the tag that always shows the channel's newest image."""
        return "nightly" if self is Channel.NIGHTLY else "latest"


def parse_version(text: str, what: str = "--version") -> Version:
    """Return a release's version; a leading ``v`` is allowed.

    Raises UsageError for anything that is no version, or that a release cannot have: a development or local version,
    an epoch, more than 64 characters.
    """
    shown = repr(text) if len(text) <= _LONGEST else f"{text[:20]!r}... ({len(text)} characters)"
    hint = "for example 0.28.0, v0.28.0 or 0.28.0rc1"
    if text != text.strip() or not text.isascii() or len(text) > _LONGEST:
        raise UsageError(f"{what} is not a version: {shown}", hint=hint)
    try:
        version = Version(text)
    except InvalidVersion:
        raise UsageError(f"{what} is not a version: {shown}", hint=hint) from None
    for part, name in (
        (version.local, "a local"),
        (version.is_devrelease, "a development"),
        (version.epoch, "an epoch"),
    ):
        if part:
            raise UsageError(f"{what} is not a release's version: {shown} has {name} part", hint=hint)
    check_tag(version_tag(version))
    return version


def version_tag(version: Version) -> str:
    """Return the tag of a version in its normal form, ``v0.28.0``."""
    return f"v{version}"


def other_spellings(version: Version) -> list[Version]:
    """Return the same version with fewer or more zeros at the end of its release part, as tags may have it."""
    parts = list(version.release)
    while len(parts) > 1 and parts[-1] == 0:
        parts.pop()
    rest = str(version).removeprefix(".".join(map(str, version.release)))
    longer = [parts + [0] * zeros for zeros in range(max(_MOST_PARTS - len(parts), 0) + 1)]
    found = [Version(".".join(map(str, numbers)) + rest) for numbers in longer]
    return [other for other in found if str(other) != str(version)]


def version_of_tag(tag: str) -> Version | None:
    """Return the version that a tag ``v<version>`` names, or None for any other tag, also ``v1.0-x86_64``."""
    if not tag.startswith("v"):
        return None
    try:
        version = Version(tag.removeprefix("v"))
    except InvalidVersion:
        return None
    return version if version_tag(version) == tag else None


@dataclass(frozen=True)
class TagGroup:
    """Tags that move together: the index's own, and one for each architecture's image."""

    tag: str
    aliases: Mapping[str, str]

    @property
    def names(self) -> tuple[str, ...]:
        """Return every tag in the order in which they are written: the one that most people use comes last."""
        return (*self.aliases.values(), self.tag)


def with_architectures(tag: str) -> TagGroup:
    """Return the group of a tag and its aliases ``-x86_64`` and ``-aarch64``."""
    return TagGroup(tag, MappingProxyType({name: f"{tag}-{name}" for name in ARCHITECTURES}))


def fixed_group(channel: Channel, commit: str, version: Version | None) -> TagGroup:
    """Return the tags that never change once they are written: ``nightly-<commit>``, or ``v<version>`` with aliases."""
    if channel is Channel.NIGHTLY:
        return TagGroup(f"nightly-{commit}", MappingProxyType({}))
    if version is None:
        raise UsageError("a release needs a version", hint="pass --version, or set Buildkite's release-version")
    return with_architectures(version_tag(version))


def floating_group(channel: Channel) -> TagGroup:
    """Return the tags that move with every publish: ``nightly`` or ``latest``, with aliases."""
    return with_architectures(channel.floating)


def channel_of_tag(tag: str) -> Channel | None:
    """Return the channel whose publishes write a tag, or None for a tag of neither."""
    main = next((tag.removesuffix(f"-{name}") for name in ARCHITECTURES if tag.endswith(f"-{name}")), tag)
    for channel in Channel:
        if main == channel.floating:
            return channel
    if _NIGHTLY.fullmatch(tag):
        return Channel.NIGHTLY
    return Channel.RELEASE if version_of_tag(main) is not None else None


def source_tag(commit: str, architecture: str) -> str:
    """Return the staging tag of a commit's image for one architecture."""
    return f"{commit}-{architecture}"


def platforms_of(tag: str) -> tuple[str, ...]:
    """Return the platforms of what a channel's tag shows: one for an architecture's alias, else all."""
    own = [str(platform) for name, platform in ARCHITECTURES.items() if tag.endswith(f"-{name}")]
    return tuple(own or map(str, ARCHITECTURES.values()))
