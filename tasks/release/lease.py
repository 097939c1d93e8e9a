"""One run at a time moves a channel's tags: registries have no conditional writes, the wheel store does.

A lease is an object that its holder renews before each tag. A run that was killed loses it when its time is up, or at
once to a run that brings the tags to the same place.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from tasks.release.channels import Channel
from tasks.release.ledger import FOLDER, HEADERS, moment, written
from tasks.support.errors import DataError, RemoteChangedError, TemporaryError
from tasks.support.store import ABSENT, ConditionFailedError, ObjectStore, redo_on_conflict

SECONDS = 120.0


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
            until = moment(document["until"])
            return cls(str(document["run"]), str(document["subject"]), until, str(document.get("about", "")))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise DataError(
                f"cannot read the lease {key}: {error!r}", hint="remove that object from the store"
            ) from error


class Lease:
    """The right to move one channel's tags, for one run."""

    def __init__(self, store: ObjectStore, channel: Channel, run: str, subject: str, about: str = "") -> None:
        self._store = store
        self._key = f"{FOLDER}{channel.value}.lease.json"
        self._channel = channel
        self._run = run
        self._subject = subject
        self._about = about

    def hold(self) -> None:
        """Take the lease, or hold it longer.

        Raises TemporaryError when another run holds it that brings the tags elsewhere.
        """
        redo_on_conflict(self._attempt, what=f"the lease of {self._channel.value}")

    def renew(self) -> None:
        """Hold the lease longer, just before a tag is written; RemoteChangedError when another run took it."""
        try:
            self.hold()
        except TemporaryError as error:
            raise RemoteChangedError(error.message, hint=error.hint) from error

    def end(self) -> None:
        """Give the lease back, unless another run holds it by now."""
        blob = self._store.get(self._key)
        if blob is None or Holder.decode(blob.data, self._key).run != self._run:
            return
        free = Holder(self._run, self._subject, datetime.now(UTC), self._about)
        try:
            # Not deleted: a deletion has no condition, and could take the next run's lease away.
            self._store.put(self._key, free.encode(), HEADERS, expected=blob.etag)
        except ConditionFailedError:
            return

    def _attempt(self) -> None:
        blob = self._store.get(self._key)
        now = datetime.now(UTC)
        if blob is not None:
            other = Holder.decode(blob.data, self._key)
            if other.run != self._run and other.subject != self._subject and other.until > now:
                what = f": {other.about}" if other.about else f" to {other.subject}"
                raise TemporaryError(
                    f"run {other.run} is moving {self._channel.value}{what} (until {other.until:%H:%M:%S} UTC)",
                    hint="wait for it, then run this again",
                )
        mine = Holder(self._run, self._subject, now + timedelta(seconds=SECONDS), self._about)
        self._store.put(self._key, mine.encode(), HEADERS, expected=ABSENT if blob is None else blob.etag)
