"""Progress of several transfers at once: bars for each and for all on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Protocol

from tasks.support import console
from tasks.support.store import Progress

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

LINE_SECONDS = 30.0


class Transfers(Protocol):
    """Where transfers report to; every method may be called from several threads at once."""

    def transfer(self, name: str, size: int) -> AbstractContextManager[Progress]:
        """Show one transfer of ``size`` bytes while the block runs; the callback counts bytes, back too."""

    def spare(self, size: int) -> None:
        """Take bytes out of the total that need not be moved after all."""


class _Silent:
    """Transfers that nobody looks at."""

    @contextmanager
    def transfer(self, name: str, size: int) -> Iterator[Progress]:  # noqa: ARG002 - as in the protocol
        yield lambda _count: None

    def spare(self, size: int) -> None:
        pass


SILENT: Transfers = _Silent()


class _Bars:
    """Transfers as bars: the total first, then one for each that runs."""

    def __init__(self, bars: Bars, whole: TaskID, total: int) -> None:
        self._bars = bars
        self._whole = whole
        self._total = total
        self._lock = threading.Lock()

    @contextmanager
    def transfer(self, name: str, size: int) -> Iterator[Progress]:
        job = self._bars.add_task(console.plain(console.mask(name)), total=size)

        def advance(count: int) -> None:
            self._bars.advance(job, count)
            self._bars.advance(self._whole, count)

        try:
            yield advance
        finally:
            self._bars.remove_task(job)

    def spare(self, size: int) -> None:
        with self._lock:
            self._total -= size
            self._bars.update(self._whole, total=self._total)


class _Lines:
    """Transfers as a line every so many seconds: bytes, rate and time left of all together."""

    def __init__(self, label: str, total: int, every: float) -> None:
        self._label = label
        self._total = total
        self._every = every
        self._done = 0
        self._start = self._said = time.monotonic()
        self._lock = threading.Lock()

    @contextmanager
    def transfer(self, name: str, size: int) -> Iterator[Progress]:  # noqa: ARG002 - as in the protocol
        yield self._advance

    def spare(self, size: int) -> None:
        with self._lock:
            self._total -= size

    def _advance(self, count: int) -> None:
        with self._lock:
            self._done += count
            now = time.monotonic()
            if now - self._said < self._every or not self._done:
                return
            self._said = now
            rate = self._done / max(now - self._start, 1e-3)
            left = max(self._total - self._done, 0) / rate
            console.say(
                f"{self._label}: {console.size(self._done)} of {console.size(self._total)}, "
                f"{console.size(int(rate))}/s, {left:.0f} s left"
            )


@contextmanager
def transfers(label: str, total: int, *, every: float = LINE_SECONDS) -> Iterator[Transfers]:
    """Show transfers of ``total`` bytes together while the block runs."""
    if not console.on_terminal():
        yield _Lines(label, total, every)
        return
    from rich.console import Console
    from rich.progress import Progress as Bars

    # Each refresh costs as much CPU as hashing some megabytes does.
    with Bars(*console.byte_columns(), console=Console(stderr=True), transient=True, refresh_per_second=4) as bars:
        whole = bars.add_task(console.plain(console.mask(label)), total=total)
        yield _Bars(bars, whole, total)
