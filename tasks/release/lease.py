"""One run at a time moves a channel's tags: registries have no conditional writes, the wheel store does.

A lease is an object that its holder renews, by a thread of its own and just before each write. A run that was killed
loses it when its time is up, or at once to a run that brings the tags to the same place.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from tasks.release.channels import Channel
from tasks.release.ledger import FOLDER, HEADERS, moment, written
from tasks.support.errors import DataError, OmniError, RemoteChangedError, TemporaryError
from tasks.support.store import ABSENT, ConditionFailedError, Expected, ObjectStore, redo_on_conflict

SECONDS = 120.0
EVERY = 30.0
"""Seconds between two renewals by the thread."""


@dataclass(frozen=True)
class Holder:
    """Who holds a channel, where it brings the tags (``subject``), and until when, in UTC.

    ``about`` is the deed, its version and its commit, for people; leases of older versions of this tool have none.
    """

    run: str
    subject: str
    until: datetime
    about: str = ""

    def encode(self) -> bytes:
        """Return the document's bytes."""
        document = {"run": self.run, "subject": self.subject, "until": written(self.until), "about": self.about}
        return (json.dumps(document, sort_keys=True) + "\n").encode()

    @classmethod
    def decode(cls, data: bytes, key: str) -> Holder:
        """Read a document, or raise DataError naming its key."""
        try:
            document = json.loads(data)
            until = moment(document["until"]).astimezone(UTC)
            return cls(str(document["run"]), str(document["subject"]), until, str(document.get("about", "")))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError) as error:
            raise DataError(
                f"cannot read the lease {key}: {error!r}", hint="remove that object from the store"
            ) from error

    def holds(self, now: datetime) -> bool:
        """Say whether its time is not up; a date that no lease can have is a wrong clock's, and holds nothing."""
        return now < self.until <= now + timedelta(seconds=2 * SECONDS)


class Lease:
    """The right to move one channel's tags, for one run. Methods may be called from several threads."""

    def __init__(
        self,
        store: ObjectStore,
        channel: Channel,
        run: str,
        subject: str,
        about: str = "",
        *,
        every: float = EVERY,
        then: str = "run this again",
    ) -> None:
        """Name a lease. ``then`` is what a person does when another run has ended that held it."""
        self._store = store
        self._key = f"{FOLDER}{channel.value}.lease.json"
        self._channel = channel
        self._run = run
        self._subject = subject
        self._about = about
        self._every = every
        self._then = then
        self._turn = threading.Lock()
        self._lost: OmniError | None = None

    @contextmanager
    def held(self) -> Iterator[Lease]:
        """Take the lease, keep it in a thread while the block runs, and give it back however the block ends.

        Raises what ``hold`` raises.
        """
        self.hold()
        ended = threading.Event()
        beat = threading.Thread(target=self._beat, args=(ended,), name=f"lease of {self._channel.value}", daemon=True)
        try:
            beat.start()
            yield self
        finally:
            ended.set()
            if beat.is_alive():
                beat.join()
            with suppress(OmniError):
                self.end()

    def hold(self) -> None:
        """Take the lease, or hold it longer.

        Raises TemporaryError when another run holds it that brings the tags elsewhere.
        """
        with self._turn:
            redo_on_conflict(self._take, what=f"the lease of {self._channel.value}")

    def renew(self) -> None:
        """Hold the lease longer, just before a write.

        Raises RemoteChangedError when another run has or had it since, also one that has ended; and what a renewal
        by the thread failed with.
        """
        with self._turn:
            if self._lost is not None:
                raise self._lost
            redo_on_conflict(self._extend, what=f"the lease of {self._channel.value}")

    def end(self) -> None:
        """Give the lease back, unless another run holds it by now."""
        with self._turn:
            blob = self._store.get(self._key)
            if blob is None or Holder.decode(blob.data, self._key).run != self._run:
                return
            free = Holder(self._run, self._subject, datetime.now(UTC), self._about)
            try:
                # Not deleted: a deletion has no condition, and could take the next run's lease away.
                self._store.put(self._key, free.encode(), HEADERS, expected=blob.etag)
            except ConditionFailedError:
                return

    def _beat(self, ended: threading.Event) -> None:
        """Renew until the end; the first failure is the run's, before its next write."""
        while not ended.wait(self._every):
            try:
                self.renew()
            except OmniError as error:
                self._lost = error
                return
            except Exception as error:  # noqa: BLE001 - a thread that dies unseen would keep nothing
                self._lost = TemporaryError(f"the lease of {self._channel.value} could not be renewed: {error!r}")
                return

    def _take(self) -> None:
        blob = self._store.get(self._key)
        if blob is not None:
            other, now = Holder.decode(blob.data, self._key), datetime.now(UTC)
            if other.run != self._run and other.subject != self._subject and other.holds(now):
                raise TemporaryError(self._taken(other), hint=f"wait for it, then {self._then}")
        self._write(ABSENT if blob is None else blob.etag)

    def _extend(self) -> None:
        blob = self._store.get(self._key)
        if blob is None:
            raise RemoteChangedError(
                f"the lease of {self._channel.value} is gone: somebody removed {self._key}", hint="run this again"
            )
        other = Holder.decode(blob.data, self._key)
        if other.run != self._run:
            raise RemoteChangedError(self._taken(other), hint=f"wait for it, then {self._then}")
        self._write(blob.etag)

    def _write(self, expected: Expected) -> None:
        until = datetime.now(UTC) + timedelta(seconds=SECONDS)
        mine = Holder(self._run, self._subject, until, self._about)
        self._store.put(self._key, mine.encode(), HEADERS, expected=expected)

    def _taken(self, other: Holder) -> str:
        what = f": {other.about}" if other.about else f" to {other.subject}"
        verb = "holds" if other.holds(datetime.now(UTC)) else "held"
        return f"run {other.run} {verb} {self._channel.value}{what} (until {other.until:%Y-%m-%d %H:%M:%S} UTC)"
