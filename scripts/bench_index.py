#!/usr/bin/env python3
"""Measure the package index against dumb-pypi, and its own memory and growth; print the figures as Markdown.

    .venv/bin/python scripts/bench_index.py            # prints a report
    .venv/bin/python scripts/bench_index.py --write    # also writes docs/benchmarks.md's index section

Each figure is the median of several whole processes, measured by the operating system (``wait4``), the peers
in turn. The peer is installed into a throw-away environment from the index that uv is configured with.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

from bench_costs import ROOT, Cost, machine, measure, median, row, run_report, table

JOBS = Path(__file__).with_name("bench_index_jobs.py")
PEER = "dumb-pypi==1.15.0"
RUNS = 5


def cost(used: Cost) -> str:
    """Write a process's CPU time and peak memory."""
    return f"{used.cpu:.2f} s CPU, {used.peak:.0f} MiB"


def own(*words: str) -> list[str]:
    """Return the command that runs one of our own jobs."""
    return [sys.executable, str(JOBS), *words]


def fill(store: Path, wheels: int, projects: int) -> Path:
    """Fill a store in a process of its own, and return the peer's list of the same files."""
    listed = store.with_suffix(".jsonl")
    measure(own("fill", str(store), str(wheels), str(projects), str(listed)))
    return listed


def wheel_of(folder: Path, name: str, version: str, payload: int = 0) -> Path:
    """Write a small valid wheel, with a stored member of ``payload`` bytes."""
    info = f"{name}-{version}.dist-info"
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
        if payload:
            with archive.open(zipfile.ZipInfo("payload.bin"), "w", force_zip64=True) as member:
                for _ in range(payload // 2**20):
                    member.write(bytes(2**20))
    return path


def print_of(argv: list[str]) -> float:
    """Run a child job and return the number that it prints."""
    return float(subprocess.run(argv, cwd=ROOT, check=True, capture_output=True, text=True).stdout)


def install_peer(folder: Path) -> Path:
    """Install the peer and return its executable."""
    uv = [sys.executable, "-m", "uv", "--quiet"]
    subprocess.run([*uv, "venv", "--python", sys.executable, str(folder)], check=True)
    subprocess.run([*uv, "pip", "install", "--compile-bytecode", "--python", str(folder), PEER], check=True)
    return folder / "bin" / "dumb-pypi"


def full_render(work: Path) -> list[str]:
    """Compare a full render of 10,000 wheels in 50 projects."""
    peer = install_peer(work / "peer")
    lines = fill(work / "ten", 10_000, 50)
    ours, theirs = [], []
    for run in range(RUNS + 1):
        for page in (work / "ten").glob("[!_.]*/**/*.*"):
            page.unlink()
        mine = measure(own("render", str(work / "ten")))
        output = str(work / f"peer-{run}")
        other = measure(
            [str(peer), "--package-list-json", str(lines), "--packages-url", "../../p/", "--output-dir", output]
        )
        if run:  # the first pair warms the file cache
            ours.append(mine)
            theirs.append(other)
    mine, other = median(ours), median(theirs)
    ratio = statistics.median(a.cpu / b.cpu for a, b in zip(ours, theirs, strict=True))
    again = median([measure(own("render", str(work / "ten"))) for _ in range(RUNS)])
    return [
        row(
            "full render, 10,000 wheels in 50 projects", cost(mine), cost(other), f"CPU ratio {ratio:.2f} (budget 0.5)"
        ),
        row("the same again, nothing changed", cost(again), "", "no write at all"),
    ]


def one_wheel(work: Path) -> list[str]:
    """Measure adding a wheel to a project with 10,000, alone in the store and beside 90,000 others."""
    fill(work / "alone", 10_000, 1)
    fill(work / "beside", 100_000, 10)
    wheels = [wheel_of(work, "project_000", f"9.0.{number}") for number in range(RUNS)]
    alone = statistics.median(print_of(own("add", str(work / "alone"), str(wheel))) for wheel in wheels)
    beside = statistics.median(print_of(own("add", str(work / "beside"), str(wheel))) for wheel in wheels)
    return [
        row("one wheel more, 10,000 in its project", f"{alone:.2f} s CPU after imports", "", "budget 0.5 s"),
        row("the same beside 90,000 of other projects", f"{beside:.2f} s CPU", "", f"{beside / alone:.2f} x"),
    ]


def growth(work: Path) -> list[str]:
    """Measure a full render of ten times as many wheels."""
    fill(work / "few", 10_000, 50)
    fill(work / "many", 100_000, 50)
    few, many = measure(own("render", str(work / "few"))), measure(own("render", str(work / "many")))
    result = f"{many.cpu / few.cpu:.1f} x the CPU of 10,000 (budget 250 MB)"
    return [row("full render, 100,000 wheels in 50 projects", cost(many), "", result)]


def facts(work: Path) -> list[str]:
    """Measure the memory that reading a 1 GB wheel's facts takes."""
    big = wheel_of(work, "big", "1.0", payload=10**9)
    peak, grown = measure(own("facts", str(big))).peak, print_of(own("facts", str(big)))
    memory = f"{peak:.0f} MiB in all, {grown:.0f} MiB more than the imports"
    return [row("facts of a 1 GB wheel", memory, "", "budget 60 MB")]


def listing(_work: Path) -> list[str]:
    """Compare ``invoke --list`` with ``invoke --version``."""
    base = [sys.executable, "-m", "invoke", "-r", str(ROOT)]
    pairs = [(measure([*base, "--list"]), measure([*base, "--version"])) for _ in range(4 * RUNS)]
    ratio = statistics.median(a.cpu / b.cpu for a, b in pairs)
    mine, other = median([a for a, _ in pairs]), median([b for _, b in pairs])
    result = f"ratio {ratio:.2f} (budget 1.3)"
    return [row("`invoke --list`", cost(mine), f"`invoke --version`: {cost(other)}", result)]


PARTS: tuple[Callable[[Path], list[str]], ...] = (full_render, one_wheel, growth, facts, listing)


def report() -> str:
    """Run every part and return the Markdown table."""
    return table(f"{machine()}; the peer is {PEER}. Medians of {RUNS} runs in turn.", PARTS)


if __name__ == "__main__":
    run_report(__doc__, "index", report)
