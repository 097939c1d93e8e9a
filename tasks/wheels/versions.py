"""Reading a version that somebody else wrote: a person in a command, a build tool in a file (PEP 440)."""

from __future__ import annotations

from packaging.version import InvalidVersion, Version

from tasks.support.errors import UsageError

# A version stands in a file name, and no file system here has longer ones. Python refuses to read much longer numbers.
LONGEST = 255


def read_version(text: str) -> Version:
    """Return the version, or raise InvalidVersion, also when it is longer than any file's name."""
    if len(text) > LONGEST:
        raise InvalidVersion(f"a version has at most {LONGEST} characters, not {len(text)}")
    return Version(text)


def parse_version(text: str, example: str = "0.28.0 or v0.28.0") -> Version:
    """Return the version that a person gave, or raise UsageError; a leading ``v`` is allowed."""
    try:
        return read_version(text)
    except InvalidVersion:
        shown = repr(text) if len(text) <= LONGEST else f"{text[:20]!r}... ({len(text)} characters)"
        raise UsageError(f"not a version: {shown}", hint=f"for example {example}") from None
