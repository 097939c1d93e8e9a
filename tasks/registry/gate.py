"""When a host may be asked: one gate for all threads, closed for as long as the host wants to be left alone."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

_SPREAD = 0.1
_heeded = threading.local()


class StoppedError(Exception):
    """This thread's work is to end: another worker failed, or a person interrupted."""


def heed(stop: threading.Event) -> None:
    """End this thread's pauses from now on with StoppedError as soon as an event is set."""
    _heeded.stop = stop


def pause(seconds: float) -> None:
    """Do nothing for some seconds; StoppedError when the work of this thread is to end."""
    stop: threading.Event | None = getattr(_heeded, "stop", None)
    if stop is None:
        time.sleep(seconds)
    elif stop.wait(seconds):
        raise StoppedError


@dataclass(frozen=True)
class Waited:
    """How often a host said 429, and for how many seconds it was left alone because of that."""

    times: int = 0
    seconds: float = 0.0

    def __sub__(self, earlier: Waited) -> Waited:
        """Return what came since an earlier look."""
        return Waited(self.times - earlier.times, self.seconds - earlier.seconds)

    def __str__(self) -> str:
        """Return a phrase for a report; empty when there was nothing."""
        if not self.times:
            return ""
        often = "once" if self.times == 1 else f"{self.times} times"
        return f"rate limited {often}, waited {self.seconds:.0f} s"


class Gate:
    """A host's gate. Whoever wants to send something waits at it first; it opens by itself."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._opens = 0.0
        self._waited = Waited()

    def wait(self) -> None:
        """Return when the gate is open; a closing meanwhile counts too. Waiting threads leave a little apart."""
        while left := self.left:
            pause(left + random.uniform(0, _SPREAD * left))  # noqa: S311 - jitter, not a secret

    def close(self, seconds: float, *, limited: bool) -> None:
        """Keep the gate shut for ``seconds`` from now, or longer if it already is; ``limited`` counts it as a 429."""
        with self._lock:
            now = time.monotonic()
            shut_before = max(self._opens, now)
            self._opens = max(shut_before, now + seconds)
            if limited:
                more = self._opens - shut_before
                self._waited = Waited(self._waited.times + 1, self._waited.seconds + more)

    @property
    def left(self) -> float:
        """Return for how many seconds it is still shut."""
        with self._lock:
            return max(self._opens - time.monotonic(), 0.0)

    @property
    def waited(self) -> Waited:
        """Return the sum of all closings for a 429 so far."""
        with self._lock:
            return self._waited


_gates: dict[str, Gate] = {}
_gates_lock = threading.Lock()


def gate_of(host: str) -> Gate:
    """Return the one gate of ``host[:port]`` in this process: its limits count for all that we send from here."""
    with _gates_lock:
        return _gates.setdefault(host.lower(), Gate())


def asked_pause(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Return the seconds that Retry-After asks for (RFC 9110 section 10.2.3: seconds or a date).

    None when there is no such header, or none that can be read.
    """
    text = headers.get("Retry-After", "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max((moment - (now or datetime.now(UTC))).total_seconds(), 0.0)
