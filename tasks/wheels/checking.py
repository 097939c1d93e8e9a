"""Checking a published view as its clients meet it: its pages, what they link to, and the state they are made from."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from tasks.support import console
from tasks.support.errors import DataError, MissingInputError, UsageError
from tasks.support.settings import Settings
from tasks.support.store import Progress
from tasks.wheels import check_pages, check_versions, findings, layout
from tasks.wheels.check_states import States, read_states
from tasks.wheels.findings import Finding, Severity
from tasks.wheels.index import Index
from tasks.wheels.state import FileRecord

PARALLEL = 16
READERS = 4
TRIES = 3

Found = TypeVar("Found")


@dataclass(frozen=True)
class CheckReport:
    """What a check found, errors first, and how many pages and files it looked at."""

    view: str
    findings: tuple[Finding, ...]
    pages: int = 0
    files: int = 0

    @property
    def errors(self) -> tuple[Finding, ...]:
        """Return the findings that break clients."""
        return tuple(finding for finding in self.findings if finding.severity is Severity.ERROR)


def public_index(settings: Settings) -> str:
    """Return the address of the index that names and versions are compared with: the settings', else the public one."""
    from pypi_simple import PYPI_SIMPLE_ENDPOINT

    return settings.pypi_index_url or PYPI_SIMPLE_ENDPOINT


def check_view(index: Index, view: str, *, online: str | None = None, deep: bool = False) -> CheckReport:
    """Compare a view's pages with its state and with the objects they link to; nothing is written.

    Of a file the size is compared; ``deep`` reads every file whole, with a progress bar, and compares its sha256 too.
    ``online`` is the address of a package index to compare names and versions with. A view that moves meanwhile is
    looked at again, at most ``TRIES`` times. Raises MissingInputError (66) for a view that was never published, and
    what the store or that index raises when it fails.
    """
    view = index.known_view(view)
    asked: tuple[Finding, ...] | None = None
    for left in reversed(range(TRIES)):
        states = read_states(index, view)
        if isinstance(states, Finding):
            return CheckReport(view, (states,))
        if asked is None:  # once: what they look at does not move
            hashed = _check_bytes(index, states.files) if deep else ()
            asked = (*hashed, *(check_versions.compare_public(states, online) if online else ()))
        report = _check(index, states, asked)
        if not report.errors or not left or states.unmoved(index):
            break
    return report


def report_error(report: CheckReport, *, strict: bool) -> DataError | None:
    """Return the error that a check ends in, None when it passes; ``strict`` counts warnings too."""
    errors = len(report.errors)
    warnings = len(report.findings) - errors
    if not errors and not (strict and warnings):
        return None
    first = report.findings[0]
    counts = [
        f"{count} {noun}{'' if count == 1 else 's'}" for count, noun in ((errors, "error"), (warnings, "warning"))
    ]
    said = " and ".join(text for text in counts if not text.startswith("0 "))
    return DataError(f"view {report.view}: {said}; the first: {first.key}: {first.what}", hint=first.hint)


def _check(index: Index, states: States, asked: Iterable[Finding]) -> CheckReport:
    wanted = check_pages.wanted_pages(index, states)
    published = _read_all(index.store.get, wanted.keys)
    walked = check_pages.walk(published, states.names)
    files = states.files
    # A page that is missing is reported as one; what links to it need not be repeated.
    links = {key: page for key, page in walked.links.items() if key not in wanted.keys}
    found = {
        *states.found,
        *wanted.found,
        *check_pages.compare_pages(published, wanted.rendered),
        *check_pages.left_over_pages(index, states.view, wanted.keys),
        *walked.found,
        *_check_objects(index, files, links),
        *_check_sidecars(index, files),
        *check_versions.check_labels(files, index.rules.variants),
        *asked,
    }
    if states.view == layout.NIGHTLY:
        found.update(check_versions.compare_releases(index, states))
    order = sorted(found, key=lambda finding: (finding.severity.value, _depth(finding.key), finding.key, finding.what))
    return CheckReport(states.view, tuple(order), len(wanted.keys), len(files))


def _depth(key: str) -> int:
    """Say how near to its cause a finding is: state, then files, then what is made from both."""
    if key.startswith("_"):
        return 0
    return 1 if key.endswith((".whl", ".tar.gz", layout.METADATA_SUFFIX)) else 2


def _read_all(read: Callable[[str], Found | None], keys: Iterable[str]) -> dict[str, Found | None]:
    """Read many keys at once; one that no store can hold reads as missing."""

    def attempt(key: str) -> Found | None:
        try:
            return read(key)
        except (UsageError, DataError):
            return None

    ordered = sorted(keys)
    with ThreadPoolExecutor(PARALLEL) as pool:
        return dict(zip(ordered, pool.map(attempt, ordered), strict=True))


def _check_objects(index: Index, files: Mapping[str, FileRecord], links: Mapping[str, str]) -> Iterator[Finding]:
    """Look at every object that a page links to or that the state knows."""
    for key, stored in _read_all(index.store.head, {*files, *links}).items():
        if stored is None:
            who = f"{links[key]} links to it" if key in links else "the state knows it"
            yield findings.error(key, f"{who}, but it is not in the store", findings.LOST)
            continue
        if key in files and stored.size != files[key].size:
            yield findings.error(
                key, f"it has {stored.size} bytes in the store, and {files[key].size} in the state", findings.LOST
            )
        yield from check_pages.check_headers(stored)


def _check_bytes(index: Index, files: Mapping[str, FileRecord]) -> list[Finding]:
    """Read every file whole and compare its sha256 with the state's; one that is cut or gone is found without that."""
    records = sorted(files.values(), key=lambda record: record.key)
    with (
        console.progress("hashing", sum(record.size for record in records)) as progress,
        ThreadPoolExecutor(READERS) as pool,
    ):
        digests = list(pool.map(partial(_digest, index, progress), records))
    return [
        findings.error(record.key, f"its sha256 is {digest}, and {record.sha256} in the state", findings.CORRUPT)
        for record, digest in zip(records, digests, strict=True)
        if digest not in (None, record.sha256)
    ]


def _digest(index: Index, progress: Progress, record: FileRecord) -> str | None:
    digest, size = hashlib.sha256(), 0
    try:
        for piece in index.store.stream(record.key):
            digest.update(piece)
            size += len(piece)
            progress(len(piece))
    except (MissingInputError, DataError):
        return None
    return digest.hexdigest() if size == record.size else None


def _check_sidecars(index: Index, files: Mapping[str, FileRecord]) -> Iterator[Finding]:
    """Compare the metadata sidecars (PEP 658) with the digests that pages promise to clients."""
    promised = {f"{key}{layout.METADATA_SUFFIX}": record.metadata_sha256 for key, record in files.items()}
    for key, blob in _read_all(index.store.get, (key for key, digest in promised.items() if digest)).items():
        if blob is None:
            yield findings.error(key, "this metadata sidecar is missing", findings.LOST)
            continue
        digest = hashlib.sha256(blob.data).hexdigest()
        if digest != promised[key]:
            yield findings.error(key, f"its sha256 is {digest}, and {promised[key]} in the state", findings.LOST)
        yield from check_pages.check_headers(blob.stored)
