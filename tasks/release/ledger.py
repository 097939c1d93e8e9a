"""The ledger: what moved public tags, when and from where; one create-only object per event in the wheel store.

Each run writes an intent before its first tag and a result after its last. A run that was killed leaves an intent
alone, so the intent names everything that the run may have done. Entries hold no credential.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import Enum
from itertools import islice
from types import MappingProxyType

from packaging.version import Version

from tasks.registry.references import check_tag, is_digest
from tasks.release.channels import Channel
from tasks.support.errors import DataError, OmniError, UsageError
from tasks.support.store import ABSENT, ConditionFailedError, Headers, ObjectStore

FOLDER = "_ledger/"
FORMAT = 1
HEADERS = Headers("application/json", "no-cache")
_STAMP = "%Y%m%dT%H%M%S.%fZ"
_NAME = re.compile(r"[0-9]{8}T[0-9]{6}\.[0-9]{6}Z-[A-Za-z0-9_.-]{1,40}")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_LAST_YEAR = 9000
_UNREADABLE = (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError, OmniError)


class Event(Enum):
    """What an entry tells of a run."""

    INTENT = "intent"
    RESULT = "result"


class RunKind(Enum):
    """What the run does."""

    PUBLISH = "publish"
    ROLLBACK = "rollback"


@dataclass(frozen=True)
class TagChange:
    """One tag: the digest before (None when it was not there) and after; in a result, whether it got there."""

    tag: str
    old: str | None
    new: str
    done: bool = False

    @property
    def moves(self) -> bool:
        """Say whether the digests differ."""
        return self.old != self.new


@dataclass(frozen=True)
class Entry:
    """One event of one run. Times are RFC 3339 in UTC; ``copied`` and ``mounted`` are bytes.

    ``tags`` has every tag of the groups that the run moves, also those that were in place. ``failure`` is None for a
    run that came to its end. ``restores`` is the run whose tags a rollback brought back, where the ledger knows it.
    """

    event: Event
    deed: RunKind
    channel: Channel
    run: str
    time: str
    repository: str
    commit: str | None
    tags: tuple[TagChange, ...]
    version: str | None = None
    commit_time: str | None = None
    sources: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    copied: int = 0
    mounted: int = 0
    untested: str | None = None
    moved_latest: bool = False
    build: str | None = None
    build_url: str | None = None
    undone: str | None = None
    failure: str | None = None

    @property
    def finished(self) -> bool:
        """Say whether the run is known to have come to its end."""
        return self.event is Event.RESULT and self.failure is None

    @property
    def about(self) -> str:
        """Return what the run does, for people: its deed with the version and the commit that it is about."""
        link = "to" if self.deed is RunKind.ROLLBACK else "of"
        commit = f"commit {self.commit}" if self.commit is not None else None
        what = f"{self.version} ({commit})" if self.version and commit else self.version or commit
        return f"{self.deed.value} {link} {what}" if what else self.deed.value

    def change(self, tag: str) -> TagChange | None:
        """Return what the run did, or meant to do, with a tag."""
        return next((change for change in self.tags if change.tag == tag), None)

    def encode(self) -> bytes:
        """Return the document's bytes: deterministic; a letter that UTF-8 has no bytes for becomes ``?``."""
        document = {**asdict(replace(self, sources={})), "sources": dict(self.sources), "format": FORMAT}
        document |= {"event": self.event.value, "deed": self.deed.value, "channel": self.channel.value}
        return (json.dumps(document, ensure_ascii=False, indent=1, sort_keys=True) + "\n").encode(errors="replace")

    @classmethod
    def decode(cls, data: bytes, key: str) -> Entry:
        """Read a document, or raise DataError naming its key; what is missing, unknown or no such value is refused."""
        try:
            document = json.loads(data)
            if type(document["format"]) is not int or document.pop("format") != FORMAT:
                raise ValueError("written by another version of this tool")
            rows = document.pop("tags")
            entry = cls(
                event=Event(document.pop("event")),
                deed=RunKind(document.pop("deed")),
                channel=Channel(document.pop("channel")),
                sources=MappingProxyType(dict(document.pop("sources"))),
                tags=tuple(TagChange(**row) for row in rows),
                **document,
            )
            _check(entry)
        except _UNREADABLE as error:
            reason = " ".join(str(error).split())[:200]
            raise DataError(
                f"cannot read the ledger's {key}: {type(error).__name__}: {reason}",
                hint="restore that object from the bucket's version history, or remove it",
            ) from error
        return entry


def _check(entry: Entry) -> None:
    texts = (entry.run, entry.time, entry.repository)
    maybe = (
        entry.version,
        entry.commit_time,
        entry.untested,
        entry.build,
        entry.build_url,
        entry.undone,
        entry.failure,
    )
    _require(all(type(text) is str and text for text in texts), "an empty or missing text")
    _require(all(text is None or type(text) is str for text in (*maybe, entry.failure)), "something that is no text")
    "".join((*texts, *filter(None, maybe))).encode()  # half a letter is none
    if entry.version is not None:
        Version(entry.version)
    _require(entry.commit is None or _COMMIT.fullmatch(entry.commit) is not None, "no full commit hash")
    _require(all(type(number) is int and number >= 0 for number in (entry.copied, entry.mounted)), "no count of bytes")
    _require(type(entry.moved_latest) is bool, "moved_latest is no truth value")
    written(moment(entry.time))
    for digest in entry.sources.values():
        _require(is_digest(digest), "a source that is no digest")
    for change in entry.tags:
        check_tag(change.tag)
        known = is_digest(change.new) and (change.old is None or is_digest(change.old)) and type(change.done) is bool
        _require(known, f"tag {change.tag} without its digests")


def _require(truth: bool, what: str) -> None:
    if not truth:
        raise ValueError(what)


def moment(text: str) -> datetime:
    """Return the moment that an entry writes; ValueError when it is none, or has no zone."""
    found = datetime.fromisoformat(text)
    _require(found.tzinfo is not None, "a time without its zone")
    return found


def written(time: datetime) -> str:
    """Write a moment as entries do."""
    return f"{time.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='microseconds')}Z"


@dataclass(frozen=True)
class Ledger:
    """One channel's events in a store."""

    store: ObjectStore
    channel: Channel

    @property
    def folder(self) -> str:
        """Return where the channel's entries lie."""
        return f"{FOLDER}{self.channel.value}/"

    def add(self, entry: Entry) -> str:
        """Write an entry under a new key and return the key; ServiceRefusedError when the store takes none.

        An entry never comes before one that is there already, even when this machine's clock is late.
        """
        build = re.sub(r"[^A-Za-z0-9_.-]", "-", entry.build or "local")[:32]
        time = moment(entry.time)
        newest = max(self._keys(), default=None)
        if newest is not None:
            time = max(time, _time_of(newest) + timedelta(microseconds=1))
        while True:
            key = f"{self.folder}{time.astimezone(UTC).strftime(_STAMP)}-{build}.json"
            try:
                self.store.put(key, replace(entry, time=written(time)).encode(), HEADERS, expected=ABSENT)
            except ConditionFailedError:
                time += timedelta(microseconds=1)
            else:
                return key

    def entries(self) -> Iterator[Entry]:
        """Yield the entries, newest first; each is read when it is asked for."""
        for key in sorted(self._keys(), reverse=True):
            blob = self.store.get(key)
            if blob is not None:
                yield Entry.decode(blob.data, key)

    def _keys(self) -> list[str]:
        keys = []
        for stored in self.store.list(self.folder):
            name = stored.key.removeprefix(self.folder).removesuffix(".json")
            if not _NAME.fullmatch(name) or not stored.key.endswith(".json"):
                raise DataError(f"not an entry of the ledger: {stored.key}", hint="remove that object from the store")
            _time_of(stored.key)
            keys.append(stored.key)
        return keys


def _time_of(key: str) -> datetime:
    """Return the moment that a key says; DataError for one that is none, or after which no other can come."""
    stamp = key.rpartition("/")[2].partition("-")[0]
    try:
        found = datetime.strptime(stamp, _STAMP).replace(tzinfo=UTC)
        _require(found.year < _LAST_YEAR, "no year of ours")
    except ValueError as error:
        raise DataError(
            f"not an entry of the ledger: {key} has no possible time", hint="remove that object from the store"
        ) from error
    return found


class History:
    """The entries about one repository, newest first, read from the store no further back than somebody asks.

    Of each run it has the last entry: its result, or the intent that it left alone.
    """

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._known: list[Entry] = []
        self._rest = iter(entries)

    @classmethod
    def read(cls, ledger: Ledger, repository: str) -> History:
        """Return a channel's history of one repository; the store is asked once at least."""
        history = cls(_told_once(entry for entry in ledger.entries() if entry.repository == repository))
        next(iter(history), None)
        return history

    def __iter__(self) -> Iterator[Entry]:
        """Yield the entries, newest first."""
        place = 0
        while True:
            if place == len(self._known):
                following = next(self._rest, None)
                if following is None:
                    return
                self._known.append(following)
            yield self._known[place]
            place += 1

    def changes(self, tag: str) -> Iterator[tuple[Entry, TagChange]]:
        """Yield what became of one tag, newest first, also where a run found it in place.

        Of a change that is not ``done`` nobody knows whether it happened: its run failed or was killed around it.
        """
        for entry in self:
            change = entry.change(tag)
            if change is not None:
                yield entry, change

    def run(self, word: str) -> Entry:
        """Return the newest run of an id or of a build's number; UsageError with the newest ones when there is none."""
        for entry in self:
            if word in (entry.run, entry.build):
                return entry
        known = ", ".join(entry.run for entry in islice(self, 5)) or "none"
        raise UsageError(f"the ledger has no run {word!r}", hint=f"the newest are: {known}")

    def cause(self, tag: str, digest: str) -> Entry | None:
        """Return the newest run that moved a tag to a digest, or None when the ledger does not know of one."""
        return next((entry for entry, change in self.changes(tag) if change.new == digest and change.moves), None)

    def expected(self, tag: str) -> frozenset[str | None]:
        """Return the digests that a tag may show by what the ledger says: several when a run was stopped half-way.

        For a tag that no run has written, that is nothing at all. A run that failed because it found the tag
        elsewhere than it thought says nothing of where the tag is.
        """
        base: frozenset[str | None] = frozenset({None})
        unsure: list[tuple[Entry, TagChange]] = []
        for entry, change in self.changes(tag):
            if change.done:
                base = frozenset({change.new})
                break
            unsure.append((entry, change))
        else:
            base = frozenset({unsure[-1][1].old}) if unsure else base
        for entry, change in reversed(unsure):
            if change.old in base:
                base |= {change.new}  # it was stopped before this tag, or while it wrote it
            elif entry.event is Event.INTENT:
                base |= {change.old, change.new}  # others had moved the tag when it was killed
        return base

    def newest(self, tag: str) -> Entry | None:
        """Return the newest run that moved a tag, or may have; None when the ledger does not know the tag."""
        for entry, change in self.changes(tag):
            if change.done or entry.event is Event.INTENT or self._found(entry, tag):
                return entry
        return None

    def _found(self, failed: Entry, tag: str) -> bool:
        """Say whether a failed run found a tag where the runs before it had left it."""
        change = failed.change(tag)
        before = iter(self)
        for entry in before:
            if entry is failed:
                break
        return change is not None and change.old in History(before).expected(tag)

    def before(self, tag: str, digest: str) -> str | None:
        """Return what a tag showed before a publish brought it to a digest, or None when nobody wrote that down.

        Rollbacks do not count: going back once more must not return to what was taken back.
        """
        published = ((entry, change) for entry, change in self.changes(tag) if entry.deed is RunKind.PUBLISH)
        return next((change.old for _, change in published if change.new == digest and change.moves), None)

    def digests(self, tag: str, count: int) -> list[str]:
        """Return the last ``count`` digests that a tag showed, newest first, and those that it may have shown since."""
        found: dict[str, None] = {}
        sure: set[str] = set()
        for _, change in self.changes(tag):
            for digest in (change.new, change.old):
                if digest is None or len(sure) >= count:
                    continue
                found.setdefault(digest)
                if change.done or digest == change.old:
                    sure.add(digest)
            if len(sure) >= count:
                break
        return list(found)

    def passed_over(self, tag: str, digest: str) -> Entry | None:
        """Return the rollback after which a tag must not come to a digest again by itself, or None.

        A job that is retried after somebody took its image back must not bring it again.
        """
        moves = (pair for pair in self.changes(tag) if _counts(*pair))
        rollback, last = next(moves, (None, None))
        if rollback is None or last is None or not _is_rollback(rollback):
            return None
        passed = {last.old, self._half(rollback, tag)}
        for entry, change in moves:
            if change.new == last.new and not _is_rollback(entry):
                break
            passed |= {change.old, change.new, self._half(entry, tag)}
        return rollback if digest in passed - {last.new} else None

    def _half(self, rollback: Entry, tag: str) -> str | None:
        """Return where the run that a rollback took back meant to bring a tag, whether it came so far or not."""
        if rollback.undone is None:
            return None
        undone = next((entry for entry in self if entry.run == rollback.undone), None)
        change = undone.change(tag) if undone is not None else None
        return change.new if change is not None else None


def _counts(entry: Entry, change: TagChange) -> bool:
    """Say whether a change moved its tag, or took back what had not come as far as that tag."""
    if _is_rollback(entry):
        return change.moves or entry.undone is not None
    return change.moves and change.done


def _is_rollback(entry: Entry) -> bool:
    return entry.deed is RunKind.ROLLBACK


def _told_once(entries: Iterable[Entry]) -> Iterator[Entry]:
    told: set[str] = set()
    for entry in entries:
        if entry.run in told:
            continue
        told.add(entry.run)
        yield entry
