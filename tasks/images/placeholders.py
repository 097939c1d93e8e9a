"""`${...}` in the catalogue: which names there are, and filling them in."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from tasks.support.errors import UsageError, did_you_mean

PIN = "pin:"
IMAGE = "image:"
RECIPE = frozenset({"arch"})
"""What a base, an argument or a git reference may name, beside pins, images and variables: nothing of the commit."""
TAG = frozenset({"commit", "arch", "recipe"})
INDEX = frozenset({"commit"})
CACHE = frozenset({"repository", "commit", "ancestor", "arch", "recipe"})

_FOUND = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_.:-]*)\}")


def names(text: str) -> tuple[str, ...]:
    """Return the names of the placeholders in a text."""
    return tuple(_FOUND.findall(text))


def check(text: str, known: Collection[str], *, pins: Collection[str], images: Collection[str]) -> None:
    """Raise UsageError when a text has a placeholder that cannot be filled in, or a dollar sign that is none."""
    if "$" in _FOUND.sub("", text):
        raise UsageError(f"a '$' that begins no placeholder: {text!r}", hint="write placeholders as ${name}")
    everything = {*known, *(f"{PIN}{pin}" for pin in pins), *(f"{IMAGE}{image}" for image in images)}
    for name in names(text):
        if name not in everything:
            hint = did_you_mean(name, everything) or f"known here are {', '.join(sorted(known))}, pin:... and image:..."
            raise UsageError(f"there is no ${{{name}}} here", hint=hint)


def fill(text: str, values: Mapping[str, str]) -> str:
    """Return the text with its placeholders filled in; KeyError for one that has no value, which ``check`` excludes."""
    return _FOUND.sub(lambda found: values[found[1]], text)
