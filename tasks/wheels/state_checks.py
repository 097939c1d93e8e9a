"""Checks of what a state says: each raises ValueError or TypeError naming the first wrong fact.

A state is read at every upload, so facts are checked by the column: one expression over ten thousand of them at a time.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import date
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from tasks.wheels.versions import LONGEST

if TYPE_CHECKING:
    from tasks.wheels.state import FileRecord, Revision

LARGEST = 2**63
"""No number in a state reaches this."""

# Nothing possessive (`++`): Python 3.11.2 takes some of those for a mismatch.
_KEY = r"[0-9a-f]{40}/(?:[A-Za-z0-9._+!]+(?:-[A-Za-z0-9._+!]+){4,5}\.whl|[A-Za-z0-9._+!-]+\.tar\.gz)"
_SHA256_DIGITS = 64
_TIME = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T(?:[01][0-9]|2[0-3])(?::[0-5][0-9]){2}\.[0-9]{6}Z"
_LABELS = r"[a-z0-9]+(?:\.[a-z0-9]+)*"
# The normalised form of PEP 440.
_VERSION = (
    r"(?:[0-9]+!)?[0-9]+(?:\.[0-9]+)*(?:(?:a|b|rc)[0-9]+)?(?:\.post[0-9]+)?(?:\.dev[0-9]+)?"
    rf"(?:\+{_LABELS})?"
)
_PROJECT = r"[a-z0-9]+(?:-[a-z0-9]+)*"
_COMMIT = r"[0-9a-f]{40}"
_FACTS = attrgetter(
    "key", "sha256", "metadata_sha256", "version", "size",
    "uploaded", "commit_time", "variant", "requires_python", "yanked",
)  # fmt: skip


def check_records(records: Collection[FileRecord]) -> None:
    """Check every fact of the files of a project."""
    if not records:
        return
    columns = zip(*map(_FACTS, records), strict=True)
    keys, digests, metadata, versions, sizes, uploaded, times, variants, pythons, reasons = columns
    _texts(_KEY, keys, "key of a file")
    _digests(digests, "sha256")
    _digests([digest for digest in metadata if digest is not None], "metadata_sha256")
    check_versions(versions)
    _numbers(sizes, "size")
    _times({*uploaded, *times})
    _texts(_LABELS, {*variants} - {None}, "variant")
    for text in {*pythons, *reasons} - {None}:
        _text(text)


def check_versions(versions: Collection[str]) -> None:
    """Check that these are normalised versions (PEP 440)."""
    _texts(_VERSION, versions, "version")
    if versions and max(map(len, versions)) > LONGEST:
        raise ValueError(f"a version has more than {LONGEST} characters")


def check_revision(revision: Revision, name: str) -> None:
    """Check every fact of a view's revision, which is written under ``name``."""
    _numbers([revision.number, *([] if revision.restores is None else [revision.restores])], "number of a revision")
    if name != str(revision.number):
        raise ValueError(f"revision {revision.number} stands under {name!r}")
    if revision.restores is not None and revision.restores >= revision.number:
        raise ValueError(f"revision {revision.number} restores {revision.restores}, which comes after it")
    _texts(_COMMIT, [revision.commit], "commit")
    _times({revision.commit_time, revision.moved})
    _text(revision.note)
    _texts(_PROJECT, revision.counts, "project")
    for counts in revision.counts.values():
        _texts(_LABELS, counts.keys() - {""}, "variant")
        _numbers([*counts.values()], "count")
    for project, keys in (revision.files or {}).items():
        _texts(_PROJECT, [project], "project")
        _texts(_KEY, keys, "key of a file")
        if len(set(keys)) != len(keys):
            raise ValueError(f"a file of {project} is listed twice")


def check_number(number: object, what: str) -> None:
    """Check that this is a whole number from 0 on."""
    _numbers([number], what)


def check_texts(data: bytes, document: Mapping[str, Any]) -> None:
    """Check that every text can be written again: an escape can make half of a surrogate pair."""
    if b"\\u" not in data:
        return
    rest: list[Any] = [document]
    while rest:
        item = rest.pop()
        if isinstance(item, dict):
            rest += [*item, *item.values()]
        elif isinstance(item, list):
            rest += item
        elif isinstance(item, str):
            item.encode()


def _texts(pattern: str, texts: Iterable[Any], what: str) -> None:
    # What is no text is refused by the match itself.
    matches = re.compile(pattern).fullmatch
    for text in texts:
        if not matches(text):
            raise ValueError(f"not a {what}: {text[:100]!r}")


def _digests(digests: Sequence[Any], what: str) -> None:
    lengths = {*map(len, digests)} - {_SHA256_DIGITS}
    # Joining refuses what is no text.
    if lengths or "".join(digests).encode().translate(None, b"0123456789abcdef"):
        wrong = next(text for text in digests if not re.fullmatch(f"[0-9a-f]{{{_SHA256_DIGITS}}}", text))
        raise ValueError(f"not a {what}: {wrong[:100]!r}")


def _text(text: object) -> None:
    if type(text) is not str:
        raise TypeError(f"not a text: {str(text)[:100]!r}")


def _numbers(numbers: Collection[Any], what: str) -> None:
    wrong = {*map(type, numbers)} - {int}
    if wrong or (numbers and not 0 <= min(numbers) <= max(numbers) < LARGEST):
        raise ValueError(f"{what}: not a whole number from 0 on")


def _times(times: Collection[str]) -> None:
    _texts(_TIME, times, "time")
    for day in {time[:10] for time in times}:
        date.fromisoformat(day)
