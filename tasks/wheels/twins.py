"""Files that an installer cannot tell apart, or a disk cannot keep apart, whatever their names look like."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tasks.support.errors import DataError
from tasks.wheels import layout
from tasks.wheels.distribution import FileName, Kind, parse_filename
from tasks.wheels.state import FileRecord

_OTHERS = bytes(set(range(256)) - set(b"123456789"))
_OTHER_THAN_LINES = bytes(set(_OTHERS) - set(b"\n"))


def twins_of(record: FileRecord, held: Iterable[FileRecord]) -> Iterator[FileRecord]:
    """Yield the held files of other commits that an installer could take in this one's place.

    They have its project, version and kind, and a tag in common: spelling (PEP 440, 503) does not tell two files
    apart, and a build tag (PEP 427) only makes an installer take the one with the higher tag.
    """
    name = parse_filename(record.filename)
    for other in held:
        if other.commit != record.commit and _same_place(name, parse_filename(other.filename)):
            yield other


def _same_place(one: FileName, other: FileName) -> bool:
    if (one.project, one.version, one.kind) != (other.project, other.version, other.kind):
        return False
    return one.kind is Kind.SDIST or not set(one.tags).isdisjoint(other.tags)


def refuse_twins(commit: str, new: Iterable[str], there: Iterable[str]) -> None:
    """Raise DataError when one commit would get two files that differ in spelling or upper case only.

    Two builds of one version are two files when their build tags say so. ``there`` are the names it has already:
    what these have among themselves is no matter of the new ones.
    """
    new = [*new]
    # Reading ten thousand names takes a second, so only those are read that could clash.
    known: dict[object, str] = {mark: name for name in _alike(new, [*there]) for mark in _marks(name)}
    for name in new:
        for mark in _marks(name):
            other = known.setdefault(mark, name)
            if other != name:
                raise DataError(
                    f"{layout.distribution(commit, other)} and {name} are one distribution in two spellings",
                    hint="keep one of the two; a build tag tells two builds of one version apart",
                )


def _alike(new: list[str], there: list[str]) -> Iterator[str]:
    """Yield those of the names there that have the same digits as a new one."""
    digits = {*map(_digits, new)}
    # All at once: a name begins with the digits of its head, those of its tags follow.
    numbers = "\n".join(there).encode().translate(None, _OTHER_THAN_LINES).split(b"\n") if there else []
    starts = tuple(digits)
    for name, number in zip(there, numbers, strict=True):
        if number.startswith(starts) and _digits(name) in digits:
            yield name


def _digits(filename: str) -> bytes:
    """Return the digits 1 to 9 of a name without its tags: the same in every spelling of one version (PEP 440)."""
    head = filename.rsplit("-", 3)[0] if filename.endswith(".whl") else filename
    return head.encode().translate(None, _OTHERS)


def _marks(filename: str) -> Iterator[object]:
    """Yield what no other file of the commit may have: the name on a disk that ignores case, and the file's place."""
    name = parse_filename(filename)
    yield filename.casefold()
    yield (name.project, name.version, name.kind, name.tags, name.build)
