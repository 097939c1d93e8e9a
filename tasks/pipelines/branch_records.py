"""Which commits of a branch had their pipeline uploaded: one small object per branch in the store.

The next build compares with the newest of them, so that a push of several commits, or a build that never came to its
upload, loses no change. Each cell (or native file) has its own list: what one pipeline ran, another may not have run.
A record is a help: without it a build compares with its first parent, and no trouble here fails an upload.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from pathlib import Path
from urllib.parse import quote

from tasks.pipelines.build_facts import Build
from tasks.support.console import warn
from tasks.support.errors import DataError, OmniError
from tasks.support.profiles import Deed, permit
from tasks.support.settings import Settings
from tasks.support.source import Ancestry, ancestry, git
from tasks.support.store import ABSENT, Headers, ObjectStore, open_store, redo_on_conflict

FOLDER = "_branches/"
FORMAT = 1
KEPT = 50
HEADERS = Headers("application/json", "no-cache")
_COMMIT = re.compile(r"[0-9a-f]{40}")


def uploaded_commits(settings: Settings, build: Build, cell: str) -> tuple[str, ...]:
    """Return the commits of this branch whose pipeline of a cell was uploaded, the last recorded first.

    Empty for all but builds of main, and when no store is set. A store that does not answer is a warning.
    """
    if not _has_record(settings, build):
        return ()
    try:
        return _read(open_store(settings.store), _key(build))[0].get(cell, ())
    except OmniError as error:
        warn(f"what was uploaded before is not known: {error.message}")
        return ()


def record_upload(settings: Settings, source: Path, build: Build, cell: str, commit: str) -> bool:
    """Record that the whole pipeline of a cell was uploaded for a commit of main, and say whether that was new.

    Only forward: an ancestor of the last recorded commit is left out. The object is written on the condition that it
    is as it was read; a lost race is redone. Trouble is a warning: what is recorded has been done. Builds of pull
    requests and forks record nothing.
    """
    if not _has_record(settings, build):
        if build.is_main and build.on_buildkite:
            warn("the upload was not recorded: OMNI_CI_STORE is not set; the next build compares with its first parent")
        return False
    key = _key(build)

    def attempt() -> bool:
        cells, etag = _read(store, key)
        kept = cells.get(cell, ())
        if kept and ancestry(source, commit, kept[0]) is Ancestry.ANCESTOR:
            return False
        cells[cell] = (commit, *(old for old in kept if old != commit))[:KEPT]
        store.put(key, _document(build, cells), HEADERS, expected=etag or ABSENT)
        return True

    try:
        store = open_store(settings.store)
        permit(settings.profile, Deed.STAGE, store.url)
        return redo_on_conflict(attempt, what=f"recording the upload under {key}")
    except OmniError as error:
        warn(f"the upload was not recorded, so the next build may run more or less than it must: {error.message}")
        return False


def uploaded_ancestor(source: Path, commit: str, uploaded: Collection[str]) -> str | None:
    """Return the newest uploaded commit that ``commit`` descends from: no other such one comes after it.

    None when the history at hand has none; a shallow checkout's history may end too early.
    """
    wanted = frozenset(uploaded) - {commit}
    if not wanted:
        return None
    history = git(source, "rev-list", "--topo-order", commit, "--").text.split()
    return next((line for line in history if line in wanted), None)


def _has_record(settings: Settings, build: Build) -> bool:
    # The store of a checkout is an agent's own: what one agent uploaded is not what the branch had uploaded.
    return build.is_main and build.on_buildkite and settings.store_given


def _key(build: Build) -> str:
    return f"{FOLDER}{quote(build.branch or '', safe='', errors='surrogateescape')}.json"


def _read(store: ObjectStore, key: str) -> tuple[dict[str, tuple[str, ...]], str | None]:
    """Return a record's lists and its entity tag. What nobody can read counts as empty, and is written anew.

    Raises DataError for a record of a later format, which is not ours to write.
    """
    found = store.get(key)
    if found is None:
        return {}, None
    try:
        document = json.loads(found.data)
        later = isinstance(document, dict) and document.get("format") not in (None, FORMAT)
        lists = document["uploads"].items() if not later else ()
        cells = {str(cell): tuple(filter(_COMMIT.fullmatch, commits)) for cell, commits in lists}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        warn(f"{store.url}/{key} is no record of uploads: it counts as empty")
        return {}, found.etag
    if later:
        raise DataError(f"{store.url}/{key} is of format {document['format']!r}; this tool knows {FORMAT}")
    return cells, found.etag


def _document(build: Build, cells: dict[str, tuple[str, ...]]) -> bytes:
    document = {"format": FORMAT, "branch": build.branch, "uploads": cells}
    return (json.dumps(document, indent=1, sort_keys=True) + "\n").encode()
