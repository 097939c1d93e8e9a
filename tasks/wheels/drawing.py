"""Drawing pages from state into the store, so that an older page can never replace a newer one.

A drawer reads the states, then the pages it will replace, then checks that the states are still the ones it
read. Every write is conditional on the page it read; whoever loses a race reads again. So the last write of a
page is always made from a state at least as new as every earlier one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from tasks.support import console
from tasks.support.store import ABSENT, Blob, ConditionFailedError, Expected, redo_on_conflict
from tasks.wheels import browse, layout, pages
from tasks.wheels.index import Index
from tasks.wheels.state import ProjectState, Revision

PARALLEL = 8
PAGE_NAMES = ("/index.html", "/index.json", "/metadata.json", f"/{layout.BROWSE}")


@dataclass(frozen=True)
class Drawn:
    """The keys that a drawing wrote and those that it deleted; both empty when everything was up to date."""

    written: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()

    def __add__(self, other: Drawn) -> Drawn:
        """Join two drawings."""
        return Drawn(self.written + other.written, self.deleted + other.deleted)


def render_project(index: Index, revision: Revision, view: str, state: ProjectState) -> dict[str, bytes]:
    """Return every page of one project in one view, by key."""
    records = revision.records_of(state)
    rendered: dict[str, bytes] = {}
    for variant, group in pages.group_by_variant(records, index.rules.alias_of_default).items():
        rendered |= pages.project_pages(view, variant, state.project, group)
    rules = index.rules
    return rendered | browse.project_page(
        view,
        revision,
        state.project,
        records,
        alias_of_default=rules.alias_of_default,
        public_url=rules.public_url,
    )


def render_root(index: Index, revision: Revision, view: str, single: ProjectState | None) -> dict[str, bytes]:
    """Return a view's own pages, by key. ``single`` is the state of its only project, when it has just one."""
    rendered: dict[str, bytes] = {}
    for variant, projects in _projects_by_variant(revision.counts, index.rules.alias_of_default).items():
        rendered |= pages.root_pages(view, variant, projects)
    records = revision.records_of(single) if single else None
    rules = index.rules
    return rendered | browse.view_page(
        view, revision, records, alias_of_default=rules.alias_of_default, public_url=rules.public_url
    )


def expected_keys(revision: Revision, view: str, alias: str | None) -> set[str]:
    """Return the key of every page that a view has, from its state alone."""
    keys = {f"{view}/{layout.BROWSE}"}
    for variant, projects in _projects_by_variant(revision.counts, alias).items():
        folder = layout.root(view, variant)
        keys |= {f"{folder}/index.html", f"{folder}/{layout.JSON_FOLDER}/index.json"}
        # The default folder has a page for every project, an empty one where no default can be chosen.
        for project in revision.counts if variant is None else projects:
            keys |= {f"{folder}/{project}/index.html", f"{folder}/{layout.JSON_FOLDER}/{project}/index.json"}
            keys.add(f"{folder}/{project}/metadata.json")
    return keys | {f"{view}/{project}/{layout.BROWSE}" for project in revision.counts}


def _projects_by_variant(counts: Mapping[str, Mapping[str, int]], alias: str | None) -> dict[str | None, list[str]]:
    by_variant: dict[str | None, list[str]] = {None: []}
    for project in sorted(counts):
        variants = counts[project]
        if "" in variants or len(variants) == 1:
            by_variant[None].append(project)
        named = {variant for variant in variants if variant}
        if alias and "" in variants:
            named.add(alias)
        for variant in sorted(named):
            by_variant.setdefault(variant, []).append(project)
    return by_variant


def is_drawn(index: Index, view: str) -> bool:
    """Say whether all pages of a view, and the store's own, are what the state says, and none is left over."""
    revision = index.view(view).state.current
    return revision is None or pending(index, view, revision) + pending_store(index) == Drawn()


def pending(index: Index, view: str, revision: Revision) -> Drawn:
    """Return what drawing a view as of this revision would write and delete; reads only."""
    states = [index.project(project).state for project in revision.counts]
    rendered = render_root(index, revision, view, states[0] if len(states) == 1 else None)
    for state in states:
        rendered |= render_project(index, revision, view, state)
    there = {stored.key for stored in index.store.list(f"{view}/") if stored.key.endswith(PAGE_NAMES)}
    return Drawn(_different(index, rendered), tuple(in_deletion_order(there - rendered.keys())))


def pending_store(index: Index, *, anew: bool = False) -> Drawn:
    """Return what ``draw_store`` would write; reads only."""
    rendered = render_store(index, None if anew else index.store.get(layout.BROWSE))
    return Drawn(_different(index, {layout.BROWSE: rendered}))


def _different(index: Index, rendered: Mapping[str, bytes]) -> tuple[str, ...]:
    with ThreadPoolExecutor(PARALLEL) as pool:
        found = pool.map(index.store.get, rendered)
    return tuple(
        key for (key, data), blob in zip(rendered.items(), found, strict=True) if blob is None or blob.data != data
    )


def page_rows(view: str, pages: Drawn) -> list[tuple[str, str, str]]:
    """Return (action, key, reason) for what a drawing of the view would do, for people."""
    rows = (
        [("draw pages", f"{view}/", f"{console.plural(len(pages.written), 'page')} to write")] if pages.written else []
    )
    return rows + [("delete page", key, "left over: nothing asks for it") for key in pages.deleted]


STORE_ROW = ("draw page", layout.BROWSE, "when it differs")


def draw_project(index: Index, view: str, project: str) -> Drawn:
    """Bring one project's pages in one view up to date, and return what was written."""

    mine: list[str] = []

    def attempt() -> Drawn:
        project_read, view_read = index.project(project), index.view(view)
        states = {layout.project_state(project): project_read.etag, layout.view_state(view): view_read.etag}
        revision = view_read.state.current
        if revision is None or project not in revision.counts:
            return _take_back(index, mine, states)
        return _replace(index, render_project(index, revision, view, project_read.state), states, mine)

    return redo_on_conflict(attempt, what=f"pages of {project} in {view}")


def draw_root(index: Index, view: str) -> Drawn:
    """Bring a view's own pages up to date, and return what was written."""

    mine: list[str] = []

    def attempt() -> Drawn:
        view_read = index.view(view)
        states: dict[str, Expected] = {layout.view_state(view): view_read.etag}
        revision = view_read.state.current
        if revision is None:
            return _take_back(index, mine, states)
        single = None
        if len(revision.counts) == 1:
            read = index.project(next(iter(revision.counts)))
            single = read.state
            states[layout.project_state(read.state.project)] = read.etag
        return _replace(index, render_root(index, revision, view, single), states, mine)

    return redo_on_conflict(attempt, what=f"pages of {view}")


def draw_store(index: Index, *, anew: bool = False) -> Drawn:
    """Bring the store's own human page up to date, and return what was written.

    ``anew`` looks for every page that it links to; else those that it links to already are taken to be there.
    """

    def attempt() -> Drawn:
        old = index.store.get(layout.BROWSE)
        trusted = None if anew else old
        rendered = render_store(index, trusted)
        etag = _etag_of_other(old, rendered)
        if etag is None:
            return Drawn()
        index.write_page(layout.BROWSE, rendered, etag)
        # Whoever changed a state meanwhile may have found the old page right, and so left nothing to lose a race to.
        if render_store(index, trusted) != rendered:
            raise ConditionFailedError("the store changed while its page was drawn")
        return Drawn((layout.BROWSE,))

    return redo_on_conflict(attempt, what="the store's page")


def render_store(index: Index, trusted: Blob | None) -> bytes:
    """Return the store's own human page: the moving views, the releases and the newest commits that are to stay.

    A view whose pages are still to be drawn is left out: whoever draws them draws this page after them. What the
    ``trusted`` page links to is not looked for.
    """
    named = [view for view in index.view_names() if not layout.is_commit(view)]
    nightly = index.view(layout.NIGHTLY).state.current if layout.NIGHTLY in named else None
    releases = [view for view in named if layout.is_release(view)]
    state = index.project(index.rules.project).state
    leaving = set(index.pruned_commits())
    records = [record for record in state.files.values() if record.commit not in leaving]
    linked = trusted.data if trusted else b""

    def has_page(view: str) -> bool:
        key = f"{view}/{layout.BROWSE}"
        return f'href="{layout.relative_url(key, 0)}"'.encode() in linked or index.store.head(key) is not None

    return browse.store_page(index.rules.project, records, nightly, releases, has_page=has_page)[layout.BROWSE]


def draw_view(index: Index, view: str, projects: Iterable[str] | None = None, *, sweep: bool = False) -> Drawn:
    """Bring a view up to date: its projects' pages (all of them by default), then its own, then delete left-over pages.

    ``sweep`` lists the view's folder, so it is for whole moves and redraws, not for adding a wheel.
    """
    revision = index.view(view).state.current
    if revision is None:
        return _sweep(index, view) if sweep else Drawn()
    chosen = sorted(revision.counts) if projects is None else sorted(projects)
    drawn = _each(partial(draw_project, index, view), chosen)
    drawn += draw_root(index, view)
    return drawn + _sweep(index, view) if sweep else drawn


def _each(draw: Callable[[str], Drawn], names: list[str]) -> Drawn:
    if len(names) < 2:  # noqa: PLR2004 - a pool for one name is waste
        return sum(map(draw, names), Drawn())
    with ThreadPoolExecutor(PARALLEL) as pool:
        return sum(pool.map(draw, names), Drawn())


def _replace(index: Index, rendered: Mapping[str, bytes], states: Mapping[str, Expected], mine: list[str]) -> Drawn:
    """Write the pages that differ, and add their keys to ``mine``."""
    found = ((key, _etag_of_other(index.store.get(key), data)) for key, data in rendered.items())
    old = {key: etag for key, etag in found if etag is not None}
    if not old:
        return Drawn(written=tuple(mine))
    _check_current(index, states)
    for key, etag in old.items():
        index.write_page(key, rendered[key], etag)
        if key not in mine:
            mine.append(key)
    # Whoever moved the state meanwhile may have found the old pages right, and so left nothing to lose a race to.
    _check_current(index, states)
    return Drawn(written=tuple(mine))


def _etag_of_other(found: Blob | None, data: bytes) -> Expected:
    """Return the condition to replace a page with; None when it has these bytes already."""
    if found is None:
        return ABSENT
    return None if found.data == data else found.etag


def _check_current(index: Index, states: Mapping[str, Expected]) -> None:
    for key, etag in states.items():
        if not index.still_current(key, etag):
            raise ConditionFailedError(f"{key} changed while its pages were drawn")


def _take_back(index: Index, mine: list[str], states: Mapping[str, Expected]) -> Drawn:
    """Delete the pages that were drawn while the state stopped asking for them."""
    for key in mine:
        index.store.delete(key)
    if mine:
        _check_current(index, states)
    return Drawn(deleted=tuple(mine))


def in_deletion_order(keys: Iterable[str]) -> list[str]:
    """Sort one view's pages so that each comes before those that it links to: human pages, then from the root down."""
    return sorted(keys, key=lambda key: (not key.endswith(f"/{layout.BROWSE}"), key.count("/"), key))


def _sweep(index: Index, view: str) -> Drawn:
    read = index.view(view)
    if read.etag is ABSENT:
        # Pages without a state are somebody else's; a state without a revision is a move that was taken back.
        return Drawn()
    current = read.state.current
    expected = expected_keys(current, view, index.rules.alias_of_default) if current else set()
    left_over = in_deletion_order(
        stored.key
        for stored in index.store.list(f"{view}/")
        if stored.key.endswith(PAGE_NAMES) and stored.key not in expected
    )
    if not left_over:
        return Drawn()
    if not index.still_current(layout.view_state(view), read.etag):
        return draw_view(index, view, sweep=True)
    for key in left_over:
        index.store.delete(key)
    # A mover that overtook the deletion may have drawn one of those pages anew.
    redrawn = Drawn() if index.still_current(layout.view_state(view), read.etag) else draw_view(index, view, sweep=True)
    return Drawn(deleted=tuple(left_over)) + redrawn
