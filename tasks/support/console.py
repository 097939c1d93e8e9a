"""What people see: lines, tables and progress bars on stderr; machine output on stdout. Secrets are masked in both."""

from __future__ import annotations

import json
import math
import os
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, TextIO

from tasks.support.errors import OmniError, ServiceRefusedError
from tasks.support.settings import secret_values

if TYPE_CHECKING:
    from rich.progress import ProgressColumn

    from tasks.support.store import Progress

MASK = "***"

# The C0 (but tab) and C1 controls, the separators of lines and the bidirectional controls (Unicode, UAX 9).
_STEERING = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def mask(text: str) -> str:
    """Replace every secret value of the environment in ``text``."""
    for value in sorted(secret_values(), key=len, reverse=True):
        text = text.replace(value, MASK)
    return text


def plain(text: str) -> str:
    """Escape what could steer a terminal or fake a line: control characters and those that turn text around."""
    return _STEERING.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")


def say(text: str = "") -> None:
    """Print for people, perhaps several lines; what could steer a terminal is escaped."""
    _tell("\n".join(map(plain, mask(text).split("\n"))))


def _tell(text: str) -> None:
    """Write a line to stderr; when that is closed or full, nobody reads it, and the task goes on."""
    stream = sys.stderr
    if stream is None or stream.closed:  # print would take stdout for None
        return
    try:
        print(text, file=stream, flush=True)
    except BrokenPipeError:
        raise
    except OSError:
        _silence(stream)


def _silence(stream: TextIO) -> None:
    """Send what a stream still holds nowhere, or Python's exit fails on it with a code of its own."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def flush() -> None:
    """Write out what was printed so far, where it can be written."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with suppress(OSError, ValueError):
                stream.flush()


def on_terminal() -> bool:
    """Say whether people's lines go to a terminal."""
    return sys.stderr is not None and not sys.stderr.closed and sys.stderr.isatty()


def warn(text: str) -> None:
    """Print a warning on one line."""
    say(f"warning: {plain(text)}")


def show_error(error: OmniError) -> None:
    """Print a foreseen error: one line, and the next step indented under it."""
    # What a library says may have line breaks; whoever reads a log by lines finds the whole error in one.
    say(f"error: {' '.join(error.message.split())}")
    if error.hint:
        say(f"  {' '.join(error.hint.split())}")


def emit_json(data: Any) -> None:
    """Print machine output: one indented JSON document on stdout."""
    # Masked before it is escaped, or a secret with a quote in it would not be recognised.
    _emit(json.dumps(_masked(data), indent=2))


def emit_text(text: str) -> None:
    """Print text that is to be pasted or piped on stdout; what its encoding lacks is escaped."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    _emit(mask(text).encode(encoding, "backslashreplace").decode(encoding))


def _emit(text: str) -> None:
    """Write machine output; ServiceRefusedError when stdout takes none, BrokenPipeError when its reader is gone."""
    stream = sys.stdout
    hint = "what the task did stays done; send its output to where it can be written"
    if stream is None or stream.closed:
        raise ServiceRefusedError("cannot write the output: stdout is closed", hint=hint)
    try:
        print(text, file=stream, flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        _silence(stream)
        reason = (error.strerror or str(error)).lower()
        raise ServiceRefusedError(f"cannot write the output to stdout: {reason}", hint=hint) from error


def _masked(data: Any) -> Any:
    if isinstance(data, str):
        return mask(data)
    if isinstance(data, Mapping):
        return {_masked(key): _masked(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_masked(item) for item in data]
    return data


def size(count: int) -> str:
    """Return a number of bytes as people read it, in decimal units."""
    units = ("B", "kB", "MB", "GB", "TB")
    step = min(int(math.log(max(count, 1), 1000) + 1e-9), len(units) - 1)
    return f"{count / 1000**step:.{1 if step else 0}f} {units[step]}"


def plural(number: int, noun: str) -> str:
    """Return a count with its noun, as people read it."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


_MINUTE, _HOUR = 60, 3600


def span(seconds: float) -> str:
    """Return how long something took, as people read it."""
    if seconds < _MINUTE:
        return f"{seconds:.1f} s"
    if seconds < _HOUR:
        return "{} min {:02} s".format(*divmod(int(seconds), _MINUTE))
    return "{} h {:02} min".format(*divmod(int(seconds) // _MINUTE, _MINUTE))


def age(time: timedelta) -> str:
    """Return how old something is, as people say it: in days, hours or minutes."""
    if time.days > 1:
        return f"{time.days} days"
    minutes = max(int(time.total_seconds() // _MINUTE), 0)
    if not minutes:
        return "less than a minute"
    return plural(minutes // _MINUTE, "hour") if minutes >= _MINUTE else plural(minutes, "minute")


Action = tuple[str, str, str]
"""What a plan does, to what, and why."""


def dry_run(actions: Sequence[Action], *, json: bool) -> None:
    """Show a plan's actions in their order, and that nothing was done."""
    if actions:
        table(("action", "what", "why"), actions)
        say(f"dry run: {plural(len(actions), 'action')}, nothing was changed")
    else:
        say("dry run: nothing to do")
    if json:
        names = ("action", "what", "why")
        emit_json({"dry_run": True, "actions": [dict(zip(names, row, strict=True)) for row in actions]})


Cell = str | tuple[str, ...]
"""A table's cell: a text on one line, or several lines."""


def _lines(cell: Cell) -> str:
    return "\n".join(plain(mask(line)) for line in ((cell,) if isinstance(cell, str) else cell))


def table(columns: Sequence[str], rows: Sequence[Sequence[Cell]], *, title: str | None = None) -> None:
    """Print a table; on a terminal that is too narrow for it, each row as a block of lines.

    Nothing is cut off or broken inside a word, so that names and digests can be copied.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    wide = Console(stderr=True, width=10_000, highlight=False)
    grid = Table(
        title=Text(plain(mask(title))) if title else None,
        title_justify="left",
        box=None,
        pad_edge=False,
        header_style="bold",
    )
    columns = [plain(column) for column in columns]
    for column in columns:
        grid.add_column(Text(column), no_wrap=True)
    for row in rows:
        grid.add_row(*(Text(_lines(cell)) for cell in row))
    with wide.capture() as captured:
        wide.print(grid)
    lines = [line.rstrip() for line in captured.get().splitlines()]
    if on_terminal() and wide.measure(grid).maximum > Console(stderr=True).width:
        _blocks(columns, rows, title)
    else:
        _tell("\n".join(lines))


def _blocks(columns: Sequence[str], rows: Sequence[Sequence[Cell]], title: str | None) -> None:
    if title:
        say(plain(title))
    from rich.console import Console

    label = max(map(len, columns))
    room = max(Console(stderr=True).width - label - 2, 1)
    for number, row in enumerate(rows):
        if number:
            say()
        for column, cell in zip(columns, row, strict=True):
            lines = [part for line in _lines(cell).split("\n") for part in _wrapped(line, room)] if cell else []
            for name, line in zip_longest([column][: len(lines)], lines, fillvalue=""):
                say(f"{name:>{label}}  {line}")


def _wrapped(line: str, room: int) -> list[str]:
    """Break a line between words; a word that is too long for the terminal stays whole, so that it can be copied."""
    return textwrap.wrap(line, room, break_long_words=False, break_on_hyphens=False) or [""]


def byte_columns() -> tuple[ProgressColumn, ...]:
    """Return what a bar of bytes shows: its name, the bar, bytes, rate and time left."""
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    name = TextColumn("{task.description}", markup=False)
    return (name, BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())


@contextmanager
def progress(label: str, total: int) -> Iterator[Progress]:
    """Show a bar of bytes with rate and time left while the block runs; nothing when stderr is not a terminal."""
    if not on_terminal():
        yield lambda _done: None
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(*byte_columns(), console=Console(stderr=True), transient=True) as bar:
        job = bar.add_task(plain(mask(label)), total=total)
        yield lambda done: bar.advance(job, done)


@contextmanager
def busy(label: str) -> Iterator[None]:
    """Show that something is being done, and for how long, while the block runs; one line when not on a terminal."""
    if not on_terminal():
        say(label)
        yield
        return
    from rich.console import Console
    from rich.progress import Progress as Bar
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        bar.add_task(plain(mask(label)), total=None)
        yield
