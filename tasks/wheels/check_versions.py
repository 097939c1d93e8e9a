"""Checking a view's versions and names: what would surprise the people who install from it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from packaging.version import InvalidVersion, Version

from tasks.support.errors import DataError
from tasks.wheels import findings, layout, pages, public_names
from tasks.wheels.check_states import States
from tasks.wheels.findings import Finding
from tasks.wheels.index import Index
from tasks.wheels.state import FileRecord
from tasks.wheels.variants import parse_variant
from tasks.wheels.versions import read_version


def check_labels(files: Mapping[str, FileRecord], patterns: tuple[str, ...]) -> Iterator[Finding]:
    """Find the local versions with a label that is no declared variant."""
    for key, record in files.items():
        try:
            unknown = parse_variant(record.version, patterns).unknown
        except DataError as failure:
            yield findings.error(key, failure.message, failure.hint)
            continue
        if unknown:
            what = f"{', '.join(unknown)} in version {record.version} is no known variant: the file counts as default"
            yield findings.warning(key, what, "if it is one, add it to variants in [tool.omni-ci.wheels]")


def compare_releases(index: Index, states: States) -> Iterator[Finding]:
    """Compare the nightly of each project with the newest release view that holds the project."""
    left = _newest_of_each(states)
    releases = {view: version for view in index.view_names() if layout.is_release(view) and (version := _parse(view))}
    for view in sorted(releases, key=lambda name: releases[name], reverse=True):
        if not left:
            return
        try:
            revision = index.view(view).state.current
        except DataError:
            # The check of that view reports it.
            continue
        for project in sorted(left.keys() & (revision.counts if revision else {}).keys()):
            yield from _compare(project, left.pop(project), releases[view], "the release")


def compare_public(states: States, address: str) -> Iterator[Finding]:
    """Compare the view's names, and a nightly's versions, with what the public index has; nothing is sent there."""
    known = public_names.newest_versions(address, sorted(states.records))
    for project in sorted(states.records.keys() - known.keys()):
        yield findings.warning(
            f"{states.view}/{project}/{pages.INDEX_HTML}",
            f"the name {project} is free on the public index: what somebody publishes there could be installed instead",
            "install with --index-url alone, or bind the name to this index (in uv: explicit = true)",
        )
    if states.view == layout.NIGHTLY:
        for project, newest in _newest_of_each(states).items():
            public = known.get(project)
            if public is not None:
                yield from _compare(project, newest, public, "the release of the public index")


def _compare(project: str, nightly: Version, release: Version, whose: str) -> Iterator[Finding]:
    if nightly < release:
        yield findings.warning(
            f"{layout.NIGHTLY}/{project}/{pages.INDEX_HTML}",
            f"{nightly.public} sorts below {release}; --pre users get {whose}",
            "tag the next version in the library, so that nightlies count from it",
        )


def _newest_of_each(states: States) -> dict[str, Version]:
    found = {project: _newest(records) for project, records in states.records.items()}
    return {project: newest for project, newest in found.items() if newest is not None}


def _newest(records: Iterable[FileRecord]) -> Version | None:
    versions = (_parse(record.version) for record in records if record.yanked is None)
    return max((version for version in versions if version is not None), default=None)


def _parse(text: str) -> Version | None:
    try:
        return read_version(text)
    except InvalidVersion:
        # A file with such a version is reported by its label, a view of such a name is none.
        return None
