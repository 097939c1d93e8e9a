#!/usr/bin/env python3
"""Measure copies of images between real registries against skopeo; print the figures as Markdown.

    .venv/bin/python scripts/bench_registry.py            # prints a report
    .venv/bin/python scripts/bench_registry.py --write    # also writes docs/benchmarks.md's registry section

The image has two architectures of 1 GB in 8 layers each, of bytes that do not compress. Each copy goes into a
registry of its own that holds nothing, ours and skopeo's in turn. Debian's `docker-registry` and `skopeo` are needed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bench_costs import ROOT, Cost, machine, measure, measure_output, median, row, write

JOBS = Path(__file__).with_name("bench_registry_jobs.py")
TAG = "staged"
LAYERS, LAYER_BYTES = 8, 125_000_000
ROOM = 6 * 2 * LAYERS * LAYER_BYTES


@dataclass
class Figures:
    """What each run of one case used, ours and the peer's, and what ours moved."""

    ours: list[Cost] = field(default_factory=list)
    theirs: list[Cost] = field(default_factory=list)
    moved: dict[str, int] = field(default_factory=dict)

    def line(self, what: str, result: str) -> str:
        """Write the case's row of the table."""
        return row(what, shown(median(self.ours)), shown(median(self.theirs)), result)

    def ratio(self, name: str) -> float:
        """Return the median of the ratios of ours to the peer's, run by run."""
        pairs = zip(self.ours, self.theirs, strict=True)
        ratios: list[float] = [getattr(mine, name) / getattr(other, name) for mine, other in pairs]
        return statistics.median(ratios)


def shown(used: Cost) -> str:
    """Write what a process used."""
    return f"{used.wall:.2f} s, {used.cpu:.2f} s CPU, {used.peak:.0f} MiB, {used.disk:.0f} MB of disk"


def own(*words: str) -> list[str]:
    """Return the command that runs one of our own jobs."""
    return [sys.executable, str(JOBS), *words]


def peer(source: str, target: str) -> list[str]:
    """Return the peer's command for the same copy."""
    insecure = ("--src-tls-verify=false", "--dest-tls-verify=false")
    return ["skopeo", "copy", "--all", *insecure, f"docker://{source}:{TAG}", f"docker://{target}:{TAG}"]


@contextlib.contextmanager
def registry_in(folder: Path) -> Iterator[str]:
    """Run an empty registry until the block ends, and yield its address. A new one is unknown to skopeo's cache."""
    with subprocess.Popen(
        own("serve", str(folder)), cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        if server.stdout is None or server.stdin is None:
            raise SystemExit("no pipes to the registry's process")
        address = server.stdout.readline().strip()
        if not address:
            raise SystemExit("the registry did not start")
        try:
            yield address
        finally:
            server.stdin.close()
            server.wait()


def copy_both(source: str, targets: tuple[str, str], figures: Figures, *, swap: bool) -> None:
    """Make one copy with each of the two, the peer first when ``swap`` is set."""

    def mine() -> None:
        cost, printed = measure_output(own("copy", source, targets[0]))
        figures.ours.append(cost)
        figures.moved = json.loads(printed.splitlines()[-1])

    def other() -> None:
        figures.theirs.append(measure(peer(source, targets[1])))

    for turn in (other, mine) if swap else (mine, other):
        turn()


def check_same(source: str, target: str) -> None:
    """End the benchmark when skopeo does not see the same index in both places."""
    seen = [
        subprocess.run(
            ["skopeo", "inspect", "--tls-verify=false", "--raw", f"docker://{name}:{TAG}"],
            check=True,
            capture_output=True,
        ).stdout
        for name in (source, target)
    ]
    if seen[0] != seen[1]:
        raise SystemExit(f"{target} does not hold what {source} does")


def run_all(work: Path, runs: int) -> list[str]:
    """Measure every case and return the table's rows."""
    between, again, inside = Figures(), Figures(), Figures()
    with registry_in(work / "staging") as staging:
        source = f"{staging}/omni/staged"
        measure(own("fill", source, str(LAYERS), str(LAYER_BYTES)))
        for run in range(runs):
            print(f"run {run + 1} of {runs} ...", file=sys.stderr)
            with registry_in(work / f"ours-{run}") as ours, registry_in(work / f"theirs-{run}") as theirs:
                targets = (f"{ours}/omni/image", f"{theirs}/omni/image")
                copy_both(source, targets, between, swap=bool(run % 2))
                check_same(source, targets[0])
                copy_both(source, targets, again, swap=bool(run % 2))
            copy_both(source, (f"{staging}/ours/{run}", f"{staging}/theirs/{run}"), inside, swap=bool(run % 2))
    result = (
        f"wall ratio {between.ratio('wall'):.2f} (budget 1), CPU ratio {between.ratio('cpu'):.2f} (budget 0.5); "
        "budget of memory 80 MB, of disk 0"
    )
    mounted = f"{inside.moved['copied']} bytes sent, {inside.moved['mounted'] / 1e9:.2f} GB mounted (budget 1 s)"
    return [
        between.line("2 x 1 GB between two registries", result),
        inside.line("the same inside one registry", mounted),
        again.line("published already", f"{again.moved['copied']} bytes sent; HEAD requests only"),
    ]


def report(runs: int) -> str:
    """Run every case and return the Markdown table."""
    skopeo = subprocess.run(["skopeo", "--version"], check=True, capture_output=True, text=True).stdout.strip()
    memory = Path("/dev/shm")  # noqa: S108 - a folder of our own is made in it
    in_memory = memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > ROOM
    place = "in memory" if in_memory else "on disk"
    head = f"{machine()}; the peer is {skopeo}; the registries' data is {place}. Medians of {runs} runs in turn."
    rows = [head, "", row("what", "here", "peer", "result"), "|---|---|---|---|"]
    with tempfile.TemporaryDirectory(dir=memory if in_memory else None) as work:
        rows += run_all(Path(work), runs)
    return "\n".join(rows)


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the figures into docs/benchmarks.md")
    parser.add_argument("--runs", type=int, default=5, help="how often each case is measured (default: 5)")
    arguments = parser.parse_args()
    text = report(arguments.runs)
    print(text)
    if arguments.write:
        write("registry", text)


if __name__ == "__main__":
    main()
