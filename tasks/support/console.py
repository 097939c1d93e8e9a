"""What people see: lines, tables and progress bars on stderr; machine output on stdout. Secrets are masked in both."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from tasks.support.errors import OmniError
from tasks.support.settings import secret_values
from tasks.support.store import Progress

MASK = "***"


def mask(text: str) -> str:
    """Replace every secret value of the environment in ``text``."""
    for value in sorted(secret_values(), key=len, reverse=True):
        text = text.replace(value, MASK)
    return text


def say(text: str = "") -> None:
    """Print a line for people."""
    print(mask(text), file=sys.stderr, flush=True)


def warn(text: str) -> None:
    """Print a warning."""
    say(f"warning: {text}")


def show_error(error: OmniError) -> None:
    """Print a foreseen error: one line, and the next step indented under it."""
    # What a library says may have line breaks; whoever reads a log by lines finds the whole error in one.
    say(f"error: {' '.join(error.message.split())}")
    if error.hint:
        say(f"  {' '.join(error.hint.split())}")


def emit_json(data: Any) -> None:
    """Print machine output: one indented JSON document on stdout."""
    # Masked before it is escaped, or a secret with a quote in it would not be recognised.
    print(json.dumps(_masked(data), indent=2), flush=True)


def emit_text(text: str) -> None:
    """Print text that is to be pasted or piped on stdout; what its encoding lacks is escaped."""
    encoding = sys.stdout.encoding or "utf-8"
    print(mask(text).encode(encoding, "backslashreplace").decode(encoding), flush=True)


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


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, title: str | None = None) -> None:
    """Print a table; on a terminal that is too narrow for it, each row as a block of lines.

    Nothing is cut off or broken inside a word, so that names and digests can be copied.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    wide = Console(stderr=True, width=10_000, highlight=False)
    grid = Table(
        title=Text(mask(title)) if title else None, title_justify="left", box=None, pad_edge=False, header_style="bold"
    )
    for column in columns:
        grid.add_column(column, no_wrap=True)
    for row in rows:
        grid.add_row(*(Text(mask(cell)) for cell in row))
    with wide.capture() as captured:
        wide.print(grid)
    lines = [line.rstrip() for line in captured.get().splitlines()]
    if sys.stderr.isatty() and wide.measure(grid).maximum > Console(stderr=True).width:
        _blocks(columns, rows, title)
    else:
        say("\n".join(lines))


def _blocks(columns: Sequence[str], rows: Sequence[Sequence[str]], title: str | None) -> None:
    if title:
        say(title)
    label = max(map(len, columns))
    for number, row in enumerate(rows):
        if number:
            say()
        for column, cell in zip(columns, row, strict=True):
            if cell:
                say(f"{column:>{label}}  {cell}")


@contextmanager
def progress(label: str, total: int) -> Iterator[Progress]:
    """Show a bar of bytes with rate and time left while the block runs; nothing when stderr is not a terminal."""
    if not sys.stderr.isatty():
        yield lambda _done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        job = bar.add_task(label, total=total)
        yield lambda done: bar.advance(job, done)


@contextmanager
def busy(label: str) -> Iterator[None]:
    """Show that something is being done, and for how long, while the block runs; one line when not on a terminal."""
    if not sys.stderr.isatty():
        say(label)
        yield
        return
    from rich.console import Console
    from rich.progress import Progress as Bar
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        bar.add_task(mask(label), total=None)
        yield
