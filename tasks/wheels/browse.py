"""The pages that people read: pure functions from state to bytes, without scripts or anything from elsewhere.

Each page depends on the state that its function takes and on nothing else, so that it is redrawn exactly when
that state changes. The style lies beside this module, in ``browse.css``, and is put into every page.
"""

from __future__ import annotations

import heapq
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from html import escape
from operator import attrgetter
from pathlib import Path

from packaging.version import Version

from tasks.support.console import size
from tasks.wheels import layout, pages
from tasks.wheels.state import FileRecord, Revision, TimeSource

NEWEST_COMMITS = 100
# More files of one build than anybody reads: the simple index has them all.
NEWEST_FILES = 200
# RFC 2606 reserves the name: nobody can own the host from which a hasty reader would otherwise install.
PLACEHOLDER = "https://YOUR-INDEX.example"
_UNKNOWN_ADDRESS = f" This page does not know its own address: put it in place of <code>{PLACEHOLDER}</code>."
_SHORT = 12
_HOME = "Wheels"
_SOURCES = [source.value for source in TimeSource]

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<main>
{trail}<h1>{title}</h1>
{body}</main>
</body>
</html>
"""


@dataclass(frozen=True)
class _Site:
    """What the parts of one page share: the view, how deep the page lies, and where people reach the store."""

    view: str
    revision: Revision
    depth: int
    alias_of_default: str | None
    public_url: str | None

    @property
    def up(self) -> str:
        """Return the relative URL of the store's root."""
        return "../" * self.depth

    def index_url(self, variant: str | None) -> str:
        """Return the absolute URL that pip and uv are given."""
        base = (self.public_url or PLACEHOLDER).rstrip("/")
        return f"{base}/{layout.relative_url(layout.root(self.view, variant), 0)}/"


def view_page(
    view: str,
    revision: Revision,
    records: Iterable[FileRecord] | None,
    *,
    alias_of_default: str | None,
    public_url: str | None = None,
) -> dict[str, bytes]:
    """Return a view's page by its key: the files when the view has one project, else its projects.

    ``records`` are the files of the view's only project in this revision, and None when it has several.
    ``public_url`` is the address at which people reach the store's root; None when it is not known.
    """
    site = _Site(view, revision, 1, alias_of_default, public_url)
    trail = ((f"{site.up}{layout.BROWSE}", _HOME), (None, view))
    if records is not None and len(revision.counts) == 1:
        project = next(iter(revision.counts))
        title = (project, view)
        body = _files(site, project, list(records))
    else:
        title = (_HOME, view)
        files = sum(sum(variants.values()) for variants in revision.counts.values())
        body = _facts(site, _count(files, "file")) + _projects(revision.counts)
    body += _for_tools("index.html", f"{layout.JSON_FOLDER}/index.json")
    return {f"{view}/{layout.BROWSE}": _page(title, trail, body)}


def project_page(
    view: str,
    revision: Revision,
    project: str,
    records: Iterable[FileRecord],
    *,
    alias_of_default: str | None,
    public_url: str | None = None,
) -> dict[str, bytes]:
    """Return a project's page in a view by its key; ``records`` are its files in this revision."""
    site = _Site(view, revision, 2, alias_of_default, public_url)
    trail = ((f"{site.up}{layout.BROWSE}", _HOME), (f"../{layout.BROWSE}", view), (None, project))
    body = _files(site, project, list(records))
    body += _for_tools("index.html", f"../{layout.JSON_FOLDER}/{layout.relative_url(project, 0)}/index.json")
    return {f"{view}/{project}/{layout.BROWSE}": _page((project, view), trail, body)}


def store_page(
    project: str,
    records: Iterable[FileRecord],
    nightly: Revision | None,
    releases: Iterable[str],
    *,
    has_page: Callable[[str], bool] = lambda _view: True,
) -> dict[str, bytes]:
    """Return the store's page by its key: nightly, the releases, and the newest commits with files of the project.

    ``records`` are all files of the project, ``releases`` the names of the release views. A view for which
    ``has_page`` says no is left out; it is asked for the views that would be shown.
    """
    shown = nightly if nightly and has_page(layout.NIGHTLY) else None
    body = _views(shown, filter(has_page, releases)) + _commits(records, has_page)
    return {layout.BROWSE: _page((f"{project} wheels",), (), body)}


def with_address(page: bytes, url: str) -> bytes:
    """Return a page that does not know its own address with the one at which it is served; others as they are."""
    return page.replace(_UNKNOWN_ADDRESS.encode(), b"").replace(PLACEHOLDER.encode(), url.encode())


@cache
def _style() -> str:
    return Path(__file__).with_name("browse.css").read_text(encoding="utf-8")


def _page(title: Sequence[str], trail: Sequence[tuple[str | None, str]], body: str) -> bytes:
    steps = [f'<a href="{url}">{_name(text)}</a>' if url else _name(text) for url, text in trail]
    return _PAGE.format(
        title=" · ".join(_name(part) for part in title),
        style=_style(),
        trail=f"<nav>{' / '.join(steps)}</nav>\n" if steps else "",
        body=body,
    ).encode()


def _name(text: str) -> str:
    """Return a name as HTML text, a commit in its short form."""
    return escape(text[:_SHORT] if layout.is_commit(text) else text)


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _size(count: int) -> str:
    return f'<span class="line">{size(count)}</span>'


@lru_cache(maxsize=1000)
def _commit_link(commit: str, up: str) -> str:
    url = layout.relative_url(f"{commit}/{layout.BROWSE}", 0)
    return f'<a href="{up}{url}" title="{escape(commit)}"><code>{escape(commit[:_SHORT])}</code></a>'


@lru_cache(maxsize=1000)
def _moment(time: str, source: str) -> str:
    """Return a moment to the minute; a commit's time that is only its upload's is marked."""
    shown = f'<time datetime="{escape(time)}">{escape(time[:10])}&nbsp;{escape(time[11:16])}</time>'
    mark = ' <small title="The commit’s own time is not known">first upload</small>'
    return shown + (mark if source == TimeSource.UPLOAD.value else "")


def _for_tools(html: str, json: str) -> str:
    return f'<footer>For tools: <a href="{html}">simple index</a>, <a href="{json}">JSON</a></footer>\n'


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; on a narrow screen the style shows each row as a card that repeats the columns' names."""
    head = "".join(f"<th>{column}</th>" for column in columns)
    cells = "".join(f'<td data-label="{column}"><div>{{}}</div></td>' for column in columns)
    filled = f"<tr>{cells}</tr>\n".format
    body = "".join([filled(*row) for row in rows])
    return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>\n</table>\n"


def _facts(site: _Site, amount: str) -> str:
    """Return the lines under the heading: what the view holds, and from when that is."""
    revision = site.revision
    commit = _commit_link(revision.commit, site.up)
    if site.view == revision.commit:
        commit = f'<code class="all">{escape(revision.commit)}</code>'
    when = _moment(revision.commit_time, revision.commit_time_from).replace("</time>", "&nbsp;UTC</time>")
    note = f"<p>Last change: {escape(revision.note)}</p>\n" if revision.note else ""
    return f"<p>Commit {commit} · {when} · {amount}</p>\n{note}"


def _files(site: _Site, project: str, records: Sequence[FileRecord]) -> str:
    """Return a project's part of a page: for each build how it is installed and its files, newest first."""
    total = sum(record.size for record in records)
    text = _facts(site, f"{_count(len(records), 'file')}, {size(total)}")
    names: dict[tuple[str, ...], list[str | None]] = {}
    groups = pages.group_by_variant(records, site.alias_of_default)
    for variant, group in groups.items():
        if group:
            names.setdefault(tuple(record.key for record in group), []).append(variant)
    explained: set[str] = set()
    # The root list repeats the files of a single variant, and an alias repeats the default files: one build each.
    for same in names.values():
        group = groups[same[0]]
        shown = _newest(group, NEWEST_FILES)
        usable = [record for record in shown if record.yanked is None]
        usable = usable or _newest([record for record in group if record.yanked is None], 1)
        commands, why = _install(site, project, same[0], usable)
        text += f"<section>\n<h2>{_build_name(same, group[0].variant)}</h2>\n{commands}"
        text += "" if why in explained else why
        text += _file_table(site.up, shown)
        older = len(group) - len(shown)
        text += f"<p>{_count(older, 'older file')} in the simple index.</p>\n" if older > 0 else ""
        text += "</section>\n"
        explained.add(why)
    return text if names else text + "<p>There are no files.</p>\n"


def _newest(records: Sequence[FileRecord], count: int) -> list[FileRecord]:
    """Return the newest files first, by their commits' times, then by version, wheels before the sdist."""
    # Reading a version is slow, so only those of the files that are shown are read.
    # They mostly come last: from the end, few of the others are ever among those kept so far.
    recent = heapq.nlargest(count, reversed(records), key=attrgetter("commit_time", "uploaded", "key"))
    # Stable sorts, the last one counts most: as parts of one key, versions would be compared twice as often.
    recent.sort(key=lambda record: record.key.endswith(".whl"), reverse=True)
    recent.sort(key=lambda record: Version(record.version), reverse=True)
    recent.sort(key=attrgetter("commit_time"), reverse=True)
    return recent


def _build_name(names: Sequence[str | None], variant: str | None) -> str:
    aliases = [escape(name) for name in names if name and name != variant]
    also = f" <small>also as {', '.join(aliases)}</small>" if aliases else ""
    return (escape(variant) if variant else "Default build") + also


def _install(site: _Site, project: str, variant: str | None, newest_first: Sequence[FileRecord]) -> tuple[str, str]:
    """Return the commands that install the newest of the files that are not yanked, and why they are as they are.

    pip treats all its indexes alike and takes the highest version from any of them, so that a file of the same name
    on another index could win. A version with a local part is safe, since public indexes refuse those (PEP 440);
    any other is taken from this index alone, in a step of its own.
    """
    if not newest_first:
        return "<p>Every file of this build is yanked: none should be installed.</p>\n", ""
    url = shlex.quote(site.index_url(variant))
    wanted = shlex.quote(f"{project}=={newest_first[0].version}")
    if Version(newest_first[0].version).local:
        pip = f"pip install --extra-index-url {url} {wanted}"
        why = "Dependencies come from your usual index, which cannot answer for the pinned version itself: "
        why += "public indexes refuse versions with a <code>+</code>."
    else:
        pip = f"pip install --no-deps --index-url {url} {wanted} && pip install {wanted}"
        why = "With pip, the first command takes the file from this index alone and the second adds the dependencies "
        why += "from your usual one; uv asks this index first and takes nothing of the same name from another."
    if site.public_url is None:
        why += _UNKNOWN_ADDRESS
    uv = f"uv pip install --index {url} {wanted}"
    lines = "".join(
        f'<dt>{name}</dt><dd><code class="all">{escape(line)}</code></dd>\n'
        for name, line in (("pip", pip), ("uv", uv))
    )
    return f"<dl>\n{lines}</dl>\n", f'<p class="why">{why}</p>\n'


def _file_table(up: str, newest_first: Iterable[FileRecord]) -> str:
    columns = ("Version", "Commit", "Date (UTC)", "Size", "SHA-256")
    return _table(columns, (_file_row(record, up) for record in newest_first))


def _file_row(record: FileRecord, up: str) -> tuple[str, ...]:
    file = f'<a href="{up}{layout.relative_url(record.key, 0)}">{escape(record.version)}</a>'
    if record.yanked is not None:
        file += ' <strong class="yanked">yanked</strong>'
    file += f"<br><small>{escape(_kind(record.filename))}</small>"
    if record.yanked:
        file += f"<br><small>{escape(record.yanked)}</small>"
    digest = escape(record.sha256)
    return (
        file,
        _commit_link(record.commit, up),
        _moment(record.commit_time, record.commit_time_from),
        _size(record.size),
        # The whole digest is there to be copied; the style shows its beginning.
        f'<code class="all digest" title="{digest}">{digest}</code>',
    )


def _kind(filename: str) -> str:
    """Return what tells the files of one version apart: a wheel's build tag and compatibility tags (PEP 427)."""
    if not filename.endswith(".whl"):
        return "source distribution"
    return filename.removesuffix(".whl").split("-", 2)[2]


def _projects(counts: Mapping[str, Mapping[str, int]]) -> str:
    if not counts:
        return "<p>There are no files.</p>\n"
    rows = (
        (
            f'<a href="{layout.relative_url(project, 0)}/{layout.BROWSE}">{escape(project)}</a>',
            _tags(sorted(variants)),
            f"{sum(variants.values()):,}",
        )
        for project, variants in sorted(counts.items())
    )
    return _table(("Project", "Builds", "Files"), rows)


def _tags(variants: Iterable[str]) -> str:
    return " ".join(f'<span class="tag">{escape(variant or "default")}</span>' for variant in variants)


def _views(nightly: Revision | None, releases: Iterable[str]) -> str:
    text = "<section>\n<h2>Indexes</h2>\n"
    if nightly:
        when = _moment(nightly.commit_time, nightly.commit_time_from)
        commit = _commit_link(nightly.commit, "")
        text += f'<p>{_view_link(layout.NIGHTLY)} <span class="about">commit {commit} · {when} UTC</span></p>\n'
    newest_first = sorted(releases, key=lambda view: Version(view.removeprefix("v")), reverse=True)
    if newest_first:
        links = " ".join(map(_view_link, newest_first))
        text += f'<p><span class="about">Releases</span> {links}</p>\n'
    if not nightly and not newest_first:
        text += "<p>Nothing was released yet.</p>\n"
    return text + "</section>\n"


def _view_link(view: str) -> str:
    return f'<a class="view" href="{layout.relative_url(view, 0)}/{layout.BROWSE}">{escape(view)}</a>'


def _commits(records: Iterable[FileRecord], has_page: Callable[[str], bool]) -> str:
    by_commit: dict[str, list[FileRecord]] = {}
    for record in records:
        by_commit.setdefault(record.commit, []).append(record)
    commits = [(_best_time(group), commit, group) for commit, group in by_commit.items()]
    newest = heapq.nlargest(NEWEST_COMMITS, commits, key=lambda row: (row[0].commit_time, row[1]))
    newest = [row for row in newest if has_page(row[1])]
    text = f"<section>\n<h2>{'Newest commits' if len(newest) < len(by_commit) else 'Commits'}</h2>\n"
    if not newest:
        return f"{text}<p>There are no files.</p>\n</section>\n"
    columns = ("Commit", "Date (UTC)", "Version", "Builds", "Size")
    return f"{text}{_table(columns, (_commit_row(*row) for row in newest))}</section>\n"


def _best_time(records: Iterable[FileRecord]) -> FileRecord:
    """Return the record that knows the commit's time best: from git, else as given, else the first upload."""
    return min(records, key=lambda record: (_SOURCES.index(record.commit_time_from), record.commit_time))


def _commit_row(best: FileRecord, commit: str, records: Sequence[FileRecord]) -> tuple[str, ...]:
    versions = sorted({_without_variant(record) for record in records}, key=Version, reverse=True)
    return (
        _commit_link(commit, ""),
        _moment(best.commit_time, best.commit_time_from),
        "<br>".join(map(escape, versions)),
        _tags(sorted({record.variant or "" for record in records})),
        _size(sum(record.size for record in records)),
    )


def _without_variant(record: FileRecord) -> str:
    return record.version.removesuffix(record.variant or "").rstrip("+.")
