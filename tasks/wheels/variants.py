"""Tells which accelerator build a version names: the declared part of its local version (PEP 440)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from packaging.version import InvalidVersion, Version

from tasks.support.errors import DataError

# What setuptools_scm itself writes: g and the abbreviated commit, d and the date of a dirty tree.
_SCM_LABEL = re.compile(r"g[0-9a-f]{4,64}|d\d{8}")


@dataclass(frozen=True)
class Variant:
    """The accelerator build that a version names, or None for the default one.

    ``unknown`` are the labels that are neither a variant nor setuptools_scm's: to be reported, never a folder.
    """

    name: str | None
    unknown: tuple[str, ...] = ()


def parse_variant(version: Version | str, patterns: tuple[str, ...]) -> Variant:
    """Return the variant at the end of the version's local part, where setuptools_scm's labels do not count.

    ``patterns`` are regular expressions, each matched against whole ``.``-separated labels, as many as
    possible (``rocm7.2`` is one variant). Raises DataError for two variants in one version.
    """
    try:
        parsed = Version(version) if isinstance(version, str) else version
    except InvalidVersion:
        raise DataError(f"not a version: {version!r}") from None
    tokens = _tokens(parsed.local.split("."), patterns) if parsed.local else []
    named = [text for text, is_variant in tokens if is_variant]
    if len(named) > 1:
        raise DataError(
            f"version {parsed} names {len(named)} variants: {' and '.join(named)}",
            hint="a build has exactly one; was a suffix appended to a version that already had one?",
        )
    if tokens and tokens[-1][1]:
        return Variant(tokens[-1][0], tuple(text for text, _ in tokens[:-1]))
    return Variant(None, tuple(text for text, _ in tokens))


def without_variant(version: Version, patterns: tuple[str, ...]) -> str:
    """Return the version that the builds of one commit for all devices share."""
    variant = parse_variant(version, patterns).name
    local = f".{version.local or ''}.".replace(f".{variant}.", ".", 1).strip(".") if variant else version.local
    return f"{version.public}+{local}" if local else version.public


def _tokens(labels: list[str], patterns: tuple[str, ...]) -> list[tuple[str, bool]]:
    """Cut labels into variants (True) and unknown ones (False), longest variant first, without setuptools_scm's."""
    tokens = []
    start = 0
    while start < len(labels):
        end = _variant_end(labels, start, patterns)
        if end:
            tokens.append((".".join(labels[start:end]), True))
        elif not _SCM_LABEL.fullmatch(labels[start]):
            tokens.append((labels[start], False))
        start = end or start + 1
    return tokens


def _variant_end(labels: list[str], start: int, patterns: tuple[str, ...]) -> int | None:
    """Return where the longest variant that begins at ``start`` ends, or None when there is none."""
    for end in range(len(labels), start, -1):
        if any(re.fullmatch(pattern, ".".join(labels[start:end])) for pattern in patterns):
            return end
    return None
