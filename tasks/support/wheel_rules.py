"""What the values of ``[tool.omni-ci.wheels]`` may be, beyond their types."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tasks.support.errors import ConfigurationError

if TYPE_CHECKING:
    from tasks.support.settings import WheelSettings

# Folders and pages that every view has or may have beside its projects and variants.
_TAKEN = ("json", "nightly")
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_ALIAS = re.compile(r"[a-z0-9][a-z0-9.]*")
_COMMIT = re.compile(r"[0-9a-f]{40}")


def check(settings: WheelSettings, where: str) -> None:
    """Raise ConfigurationError naming the first key whose value cannot be meant."""
    for key, reason in _wrong(settings):
        raise ConfigurationError(f"{key} in {where} {reason}", hint=f"correct {key}")


def _wrong(settings: WheelSettings) -> Iterator[tuple[str, str]]:
    yield from _wrong_project(settings.project)
    for pattern in settings.variants:
        yield from _wrong_variant(pattern, settings.project)
    if settings.alias_of_default is not None:
        yield from _wrong_alias(settings.alias_of_default, settings.project)
    if settings.public_url is not None:
        yield from _wrong_url(settings.public_url)
    for pattern in settings.required_nightly:
        if not pattern.strip() or "/" in pattern:
            yield "required-nightly", f"holds patterns of file names, not empty and without a slash, not {pattern!r}"
    if settings.keep_nightlies < 1:
        yield "keep-nightlies", f"must be at least 1, not {settings.keep_nightlies}"
    if not 0 <= settings.max_prune_share <= 1:  # not a number is refused by this, too
        yield "max-prune-share", f"must be a number from 0 to 1, not {settings.max_prune_share}"


def _wrong_project(name: str) -> Iterator[tuple[str, str]]:
    """Tell a name that is not valid and normalised (the name format and normalisation of PEP 503 and PEP 508)."""
    if not _NAME.fullmatch(name):
        yield "project", f"is not a project's name: {name!r}"
        return
    normal = re.sub(r"[-_.]+", "-", name).lower()
    if name != normal:
        yield "project", f"must be the normalised name, {normal!r}, not {name!r}"
    if name in _TAKEN:
        yield "project", f"may not be {name!r}: the index has a folder of that name"


def _wrong_variant(pattern: str, project: str) -> Iterator[tuple[str, str]]:
    try:
        compiled = re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        yield "variants", f"holds a pattern that is not a regular expression: {pattern!r}: {error}"
        return
    for name, what in (("", "an empty text"), *((name, repr(name)) for name in (*_TAKEN, project))):
        if compiled.fullmatch(name):
            yield "variants", f"holds a pattern that matches {what}: {pattern!r}"


def _wrong_alias(name: str, project: str) -> Iterator[tuple[str, str]]:
    if not _ALIAS.fullmatch(name) or name in (*_TAKEN, project) or _COMMIT.fullmatch(name):
        expected = "a variant's name of small letters, digits and dots, not a name the index uses otherwise"
        yield "alias-of-default", f"must be {expected}: {name!r}"


def _wrong_url(url: str) -> Iterator[tuple[str, str]]:
    """Tell a URL that is no plain HTTP address (RFC 3986); it is not repeated, since it may hold a credential."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        usable = False
    else:
        usable = usable and "@" not in parts.netloc
    odd = any(letter in url for letter in "?#\\\"<>'`{}|^") or any(not "!" <= letter <= "~" for letter in url)
    if not usable or odd:
        yield "public-url", "must be an http or https URL without user, query and fragment, percent-encoded"
