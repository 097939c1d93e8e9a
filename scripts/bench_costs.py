"""What the benchmarks share: processes measured by the operating system (``wait4``), and tables in Markdown."""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Cost:
    """What one process used: CPU and wall seconds, the peak of its resident memory in MiB, and MB written to disk."""

    cpu: float
    wall: float
    peak: float
    disk: float = 0.0


def measure(argv: Sequence[str]) -> Cost:
    """Run a command and return what it used; its failure ends the benchmark."""
    return measure_output(argv)[0]


def measure_output(argv: Sequence[str]) -> tuple[Cost, str]:
    """Run a command and return what it used and what it printed; its failure ends the benchmark.

    A child's peak memory counts from its parent's size at the fork, so a benchmark's own process must stay small.
    """
    start = time.monotonic()
    with tempfile.TemporaryFile() as log:
        child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=ROOT)
        _, status, usage = os.wait4(child.pid, 0)
        wall = time.monotonic() - start
        child.returncode = os.waitstatus_to_exitcode(status)
        log.seek(0)
        printed = log.read().decode(errors="replace")
    if child.returncode:
        raise SystemExit(f"{argv} ended with {child.returncode}:\n{printed}")
    cpu = usage.ru_utime + usage.ru_stime
    return Cost(cpu, wall, usage.ru_maxrss / 1024, usage.ru_oublock * 512 / 1e6), printed


def median(costs: Sequence[Cost]) -> Cost:
    """Return the median of each figure."""
    names = ("cpu", "wall", "peak", "disk")
    return Cost(*(statistics.median(getattr(cost, name) for cost in costs) for name in names))


def row(*cells: str) -> str:
    """Write one row of a Markdown table."""
    return f"| {' | '.join(cells)} |"


def machine() -> str:
    """Say what the figures were measured on."""
    return f"Python {platform.python_version()}, {os.cpu_count()} cores, {platform.machine()}"


def write(section: str, text: str) -> None:
    """Put a report between the marks of its section in docs/benchmarks.md."""
    begin, end = f"<!-- {section}: begin -->", f"<!-- {section}: end -->"
    page = ROOT / "docs" / "benchmarks.md"
    head, found, rest = page.read_text().partition(begin)
    if not found:
        raise SystemExit(f"{page} has no mark {begin}")
    page.write_text(f"{head}{begin}\n{text}\n{end}{rest.partition(end)[2]}")


def table(head: str, parts: Sequence[Callable[[Path], list[str]]]) -> str:
    """Run every part in a folder of its own and return the Markdown table of their rows."""
    rows = [head, "", row("what", "here", "peer", "result"), "|---|---|---|---|"]
    for part in parts:
        print(f"{part.__name__} ...", file=sys.stderr)
        with tempfile.TemporaryDirectory() as work:
            rows += part(Path(work))
    return "\n".join(rows)


def run_report(description: str | None, section: str, report: Callable[[], str]) -> None:
    """Parse a benchmark's command line, print its report and, with ``--write``, keep it in docs/benchmarks.md."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the figures into docs/benchmarks.md")
    arguments = parser.parse_args()
    text = report()
    print(text)
    if arguments.write:
        write(section, text)
