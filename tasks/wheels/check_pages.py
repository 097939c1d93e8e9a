"""Checking a view's pages: against the pages that its state makes, and by reading them as a client does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tasks.support.errors import DataError
from tasks.support.store import Blob, Headers, Stored
from tasks.wheels import client_pages, drawing, findings, layout, pages
from tasks.wheels.check_states import States
from tasks.wheels.client_pages import Listed, UnreadablePageError
from tasks.wheels.findings import Finding
from tasks.wheels.index import Index

_NAMES = tuple(f"/{name}" for name in (pages.INDEX_HTML, pages.INDEX_JSON, pages.METADATA_JSON, layout.BROWSE))


@dataclass
class Pages:
    """The pages that a view should have: ``keys``, and as ``rendered`` those whose states are whole."""

    keys: set[str]
    rendered: dict[str, bytes]
    found: list[Finding]


@dataclass
class Walk:
    """What a client meets on a view's pages: ``links`` has each key that one leads to, with the first that does."""

    links: dict[str, str] = field(default_factory=dict)
    listings: dict[str, frozenset[Listed]] = field(default_factory=dict)
    found: list[Finding] = field(default_factory=list)


def wanted_pages(index: Index, states: States) -> Pages:
    """Return the pages that follow from the states."""
    view, revision = states.view, states.revision
    rendered: dict[str, bytes] = {}
    found: list[Finding] = []
    for project in sorted(states.whole):
        key = layout.project_state(project)
        try:
            rendered |= drawing.render_project(index, revision, view, states.projects[project])
        except DataError as failure:
            found.append(findings.error(key, failure.message, failure.hint))
        except ValueError as failure:
            # A document of the right form with file names that are none, as only an editor leaves them.
            what = f"no page can be made from this state: {failure}"
            found.append(findings.error(key, what, findings.RESTORE))
    only = next(iter(revision.counts)) if len(revision.counts) == 1 else None
    if not found and (only is None or only in states.whole):
        rendered |= drawing.render_root(index, revision, view, states.projects[only] if only else None)
    keys = drawing.expected_keys(revision, view, index.rules.alias_of_default)
    return Pages(keys | set(rendered), rendered, found)


def compare_pages(published: Mapping[str, Blob | None], rendered: Mapping[str, bytes]) -> Iterator[Finding]:
    """Compare the published pages with those that the state makes."""
    for key, blob in published.items():
        if blob is None:
            yield findings.error(key, "this page is missing", findings.REDRAW)
            continue
        if key in rendered and blob.data != rendered[key]:
            yield findings.error(key, "this page is older than the state, or changed by hand", findings.REDRAW)
        yield from check_headers(blob.stored)


def left_over_pages(index: Index, view: str, wanted: set[str]) -> Iterator[Finding]:
    """Find the pages in a view's folder that nothing in the state asks for."""
    for stored in index.store.list(f"{view}/"):
        if stored.key.endswith(_NAMES) and stored.key not in wanted:
            yield findings.error(
                stored.key, "this page is left over: nothing in the state asks for it", findings.REDRAW
            )


def check_headers(stored: Stored) -> Iterator[Finding]:
    """Compare the headers that an object is stored with, where the store keeps them, with those it should have."""
    right = layout.headers_for(stored.key)
    if stored.headers is not None and stored.headers != right:
        what = f"it is stored with {_show(stored.headers)}, and should be with {_show(right)}"
        yield findings.warning(stored.key, what, "set the object's headers in the bucket")


def _show(headers: Headers) -> str:
    return f"Content-Type {headers.content_type or 'none'}, Cache-Control {headers.cache_control or 'none'}"


def walk(published: Mapping[str, Blob | None], projects: set[str]) -> Walk:
    """Read every page that tools read as a client does, and collect where its links lead."""
    walked = Walk()
    for page, blob in published.items():
        if blob is None or page.endswith(f"/{layout.BROWSE}"):
            continue
        try:
            targets = _targets(walked, page, blob.data, projects)
        except UnreadablePageError as failure:
            walked.found.append(findings.error(page, f"no client can read this page: {failure}", findings.REDRAW))
            continue
        if None in targets:
            walked.found.append(findings.error(page, "a link leads out of the store", findings.REDRAW))
        for target in filter(None, targets):
            walked.links.setdefault(target, page)
    walked.found += _compare_forms(walked.listings)
    return walked


def _targets(walked: Walk, page: str, data: bytes, projects: set[str]) -> list[str | None]:
    if page.endswith(f"/{pages.METADATA_JSON}"):
        return client_pages.read_metadata_page(page, data)
    if page.split("/")[-2] not in projects:
        return client_pages.read_root_page(page, data)
    files = client_pages.read_project_page(page, data)
    walked.listings[page] = frozenset(files)
    bare = [file.filename for file in files if not file.sha256]
    if 0 < len(bare) < len(files):
        what = f"{len(bare)} of {len(files)} files have no sha256 here, the first {bare[0]}"
        walked.found.append(findings.error(page, what, findings.REDRAW))
    return [file.key for file in files]


def _compare_forms(listings: Mapping[str, frozenset[Listed]]) -> Iterator[Finding]:
    """Compare each project's JSON page with its HTML page."""
    for page, files in listings.items():
        *root, folder, project, name = page.split("/")
        html = "/".join((*root, project, pages.INDEX_HTML))
        if name != pages.INDEX_JSON or folder != layout.JSON_FOLDER or html not in listings:
            continue
        differing = sorted({file.filename for file in files ^ listings[html]})
        if differing:
            what = f"it and {html} describe files differently: {len(differing)}, the first {differing[0]}"
            yield findings.error(page, what, findings.REDRAW)
