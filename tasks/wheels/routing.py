"""Which object of the store, or which redirect, a URL path means; the rules a web server needs in front of a bucket."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import unquote_to_bytes

from packaging.utils import canonicalize_name

from tasks.support.errors import DataError, UsageError
from tasks.support.store import ObjectStore, Stored
from tasks.wheels import layout
from tasks.wheels.negotiation import Form, choose_form
from tasks.wheels.pages import INDEX_HTML, INDEX_JSON

_HTML_FORMS = (Form.SIMPLE_HTML, Form.HTML)
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class RefusedError(Exception):
    """A request that is answered with an error status and one sentence."""

    def __init__(self, status: HTTPStatus, text: str, *, varies: bool = False) -> None:
        super().__init__(text)
        self.status = status
        self.text = text
        self.varies = varies


@dataclass(frozen=True)
class Target:
    """A URL path, taken apart and decoded once; a folder's path ends in a slash."""

    segments: tuple[str, ...]
    is_folder: bool

    @property
    def key(self) -> str:
        """Return the path as a store key."""
        return "/".join(self.segments)


@dataclass(frozen=True)
class Redirect:
    """Another path of this server to ask for; ``varies`` says that the Accept header decided it."""

    path: str
    status: HTTPStatus
    varies: bool = False


@dataclass(frozen=True)
class Found:
    """An object to answer with. ``form`` is the negotiated form of a page, None where there is only one."""

    stored: Stored
    form: Form | None = None


def parse_target(target: str) -> Target:
    """Take a request's target apart; RefusedError (400) for what could mean another file than it seems to.

    Each segment is percent-decoded exactly once (RFC 3986 section 2.4), after the path was cut at its slashes.
    """
    path = target.partition("?")[0]
    if not path.startswith("/") or _BAD_ESCAPE.search(path):
        raise RefusedError(HTTPStatus.BAD_REQUEST, "this is not a path")
    *folders, last = (_decode(segment) for segment in path[1:].split("/"))
    segments = (*folders, last) if last else tuple(folders)
    for segment in segments:
        if segment in ("", ".", "..") or "/" in segment or "\\" in segment or _CONTROL.search(segment):
            raise RefusedError(HTTPStatus.BAD_REQUEST, "this is not a path of an index")
    return Target(segments, is_folder=not last)


def _decode(segment: str) -> str:
    try:
        # The http library hands bytes over as Latin-1.
        return unquote_to_bytes(segment.encode("latin-1")).decode("utf-8")
    except UnicodeError:
        raise RefusedError(HTTPStatus.BAD_REQUEST, "this path is not UTF-8") from None


def route(store: ObjectStore, target: Target, accept: str | None) -> Found | Redirect:
    """Find what a path means in the store; RefusedError (404, 406) when nothing, or nothing that the client takes.

    Pages lie under ``index.html`` and ``index.json`` in their folders. A client that prefers JSON is sent on to
    the JSON page, because the relative URLs in it start one folder lower. Nothing that starts with ``_`` is shown.
    """
    if not target.segments:
        return Redirect(f"/{layout.BROWSE}", HTTPStatus.FOUND)
    if target.segments[0].startswith("_"):
        raise _not_found(target)
    found = _folder(store, target, accept) if target.is_folder else _file(store, target)
    found = found or _normalised(store, target)
    if found is None:
        raise _not_found(target)
    return found


def _file(store: ObjectStore, target: Target) -> Found | Redirect | None:
    if stored := _head(store, target.key):
        return Found(stored)
    return _moved_permanently(target.key) if _is_page_folder(store, target.key) else None


def _folder(store: ObjectStore, target: Target, accept: str | None) -> Found | Redirect | None:
    if layout.JSON_FOLDER in target.segments[-2:]:
        stored = _head(store, f"{target.key}/{INDEX_JSON}")
        return Found(stored) if stored else None
    if choose_form(accept) is Form.JSON:
        for folder in _json_folders(target.segments):
            if _head(store, f"{folder}/{INDEX_JSON}"):
                return Redirect(_path(folder), HTTPStatus.FOUND, varies=True)
    stored = _head(store, f"{target.key}/{INDEX_HTML}")
    if stored is None:
        return None
    form = choose_form(accept, _HTML_FORMS)
    if form is None:
        types = ", ".join(form.value for form in Form)
        raise RefusedError(HTTPStatus.NOT_ACCEPTABLE, f"this page can be had as {types}", varies=True)
    return Found(stored, form)


def _json_folders(segments: tuple[str, ...]) -> Iterator[str]:
    """Yield where the JSON page can lie: beside a project's folder, or in a view's or variant's own."""
    if len(segments) > 1:
        yield "/".join((*segments[:-1], layout.JSON_FOLDER, segments[-1]))
    yield "/".join((*segments, layout.JSON_FOLDER))


def _normalised(store: ObjectStore, target: Target) -> Redirect | None:
    """Redirect another spelling of a project's name (PEP 503) to the one that has a page."""
    *above, name = target.segments
    normal = canonicalize_name(name)
    folder = "/".join((*above, normal))
    if not above or normal in ("", name) or not _is_page_folder(store, folder):
        return None
    return _moved_permanently(folder)


def _is_page_folder(store: ObjectStore, folder: str) -> bool:
    return any(_head(store, f"{folder}/{name}") for name in (INDEX_HTML, INDEX_JSON))


def _moved_permanently(folder: str) -> Redirect:
    return Redirect(_path(folder), HTTPStatus.MOVED_PERMANENTLY)


def _path(folder: str) -> str:
    return f"/{layout.relative_url(folder, 0)}/"


def _head(store: ObjectStore, key: str) -> Stored | None:
    try:
        return store.head(key)
    except (UsageError, DataError):
        # No object can have such a key: too long, or in a folder of the store's own.
        return None


def _not_found(target: Target) -> RefusedError:
    return RefusedError(HTTPStatus.NOT_FOUND, f"there is no {target.key}{'/' if target.is_folder else ''} here")
