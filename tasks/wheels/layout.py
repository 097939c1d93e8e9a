"""Where everything lies in the wheel store, and the HTTP headers it is stored with.

Wheels lie once, under their commit; views are pages; keys that start with ``_`` are ours. No page lies
under a key that ends in ``/``: S3 servers return nothing for it.
"""

from __future__ import annotations

import re
from contextlib import suppress
from urllib.parse import quote

from packaging.version import InvalidVersion

from tasks.support.errors import DataError, UsageError, did_you_mean
from tasks.support.store import Headers
from tasks.wheels.versions import parse_version, read_version

NIGHTLY = "nightly"
JSON_FOLDER = "json"
METADATA_SUFFIX = ".metadata"
BROWSE = "browse.html"
PROJECT_STATES = "_state/projects/"
VIEW_STATES = "_state/views/"
PRUNINGS = "_state/pruned/"

HTML = Headers("text/html; charset=utf-8", "no-cache")
SIMPLE_JSON = Headers("application/vnd.pypi.simple.v1+json", "no-cache")
PLAIN_JSON = Headers("application/json", "no-cache")
_FOREVER = "public, max-age=31536000, immutable"
DISTRIBUTION = Headers("application/octet-stream", _FOREVER)
METADATA = Headers("text/plain; charset=utf-8", _FOREVER)

_COMMIT = re.compile(r"[0-9a-f]{40}")
_PLAIN = re.compile(r"[A-Za-z0-9_.~/+-]*")


def is_commit(text: str) -> bool:
    """Say whether this is a full commit hash: 40 lower-case hexadecimal digits."""
    return _COMMIT.fullmatch(text) is not None


def check_commit(text: str) -> str:
    """Return the commit, or raise UsageError when it is not a full hash."""
    if not is_commit(text):
        raise UsageError(f"not a full commit hash: {text!r}", hint="give all 40 lower-case hexadecimal digits")
    return text


def release_view(version: str) -> str:
    """Return the view's name of a release, ``v<public version>``; a leading ``v`` is allowed in the argument."""
    return f"v{parse_version(version).public}"


def check_view(name: str) -> str:
    """Return the view's canonical name, or raise UsageError: a full commit, ``nightly`` or ``v<version>``."""
    if name == NIGHTLY or is_commit(name):
        return name
    if re.match(r"v\d", name):
        return release_view(name)
    hint = did_you_mean(name, [NIGHTLY]) or "a view is nightly, v<version> or a full commit hash"
    with suppress(InvalidVersion):
        hint = f"did you mean v{read_version(name).public}?"
    raise UsageError(f"unknown view {name!r}", hint=hint)


def check_moving_view(name: str) -> str:
    """Return the canonical name of a view that has a history: ``nightly`` or a release's."""
    view = check_view(name)
    if is_commit(view):
        raise UsageError(f"a commit's own view has no history: {name}", hint="roll back nightly or v<version>")
    return view


def is_release(view: str) -> bool:
    """Say whether this names a release view."""
    return view.startswith("v")


def same_view(one: str, other: str) -> bool:
    """Say whether two names mean one view: a release's version may be spelled in several ways (PEP 440)."""
    if one == other or not (is_release(one) and is_release(other)):
        return one == other
    try:
        return read_version(one) == read_version(other)
    except InvalidVersion:
        return False


def check_project_name(project: str, variants: tuple[str, ...]) -> str:
    """Return the project's normalised name, or raise DataError when its folder would collide with another one."""
    if project == JSON_FOLDER or any(re.fullmatch(pattern, project) for pattern in variants):
        raise DataError(
            f"a project may not be called {project!r}: the index has a folder of that name",
            hint="rename the project, or change the variant patterns in pyproject.toml",
        )
    return project


def project_state(project: str) -> str:
    """Return the key of a project's state."""
    return f"{PROJECT_STATES}{project}.json"


def view_state(view: str) -> str:
    """Return the key of a view's state."""
    return f"{VIEW_STATES}{view}.json"


def pruning(commit: str) -> str:
    """Return the key of the note that says that a commit is being removed; it is gone when the commit is."""
    return f"{PRUNINGS}{commit}.json"


def distribution(commit: str, filename: str) -> str:
    """Return the key of a wheel or sdist."""
    return f"{commit}/{filename}"


def root(view: str, variant: str | None) -> str:
    """Return the folder of a view, or of one variant of it."""
    return f"{view}/{variant}" if variant else view


def relative_url(key: str, depth: int) -> str:
    """Return the URL of ``key`` as seen from a folder ``depth`` levels below the store's root (RFC 3986).

    Each segment is percent-encoded once, so that ``+`` becomes ``%2B`` and ``%`` becomes ``%25``.
    """
    if _PLAIN.fullmatch(key):
        # Nearly every key: only a plus needs encoding, and quote is slow.
        return "../" * depth + key.replace("+", "%2B")
    return "../" * depth + "/".join(quote(segment, safe="") for segment in key.split("/"))


def headers_for(key: str) -> Headers:
    """Return the headers that an object of this key is stored and served with."""
    name = key.rsplit("/", 1)[-1]
    if name.endswith(".html"):
        return HTML
    if name.endswith((".whl", ".tar.gz")):
        return DISTRIBUTION
    if name.endswith(METADATA_SUFFIX):
        return METADATA
    if name == "index.json":
        return SIMPLE_JSON
    return PLAIN_JSON
