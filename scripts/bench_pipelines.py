#!/usr/bin/env python3
"""Measure what rendering a pipeline costs; print the figures as Markdown.

    .venv/bin/python scripts/bench_pipelines.py            # prints a report
    .venv/bin/python scripts/bench_pipelines.py --write    # also writes docs/benchmarks.md's section of pipelines

A render is a whole process, measured by the operating system (``wait4``) with the processes of git that it starts, and
what ``invoke --version`` needs is taken off; the two run in turn. Selection alone is measured inside a process.
"""

from __future__ import annotations

import compileall
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

from bench_costs import ROOT, Cost, machine, measure, median, row, run_report, table

JOBS = Path(__file__).with_name("bench_pipelines_jobs.py")
NATIVE = ROOT / "tests" / "native" / "cuda_merge.yml"
CHANGED = "vllm_omni/diffusion/models/wan2_2/pipeline.py"
RUNS = 11
BUDGET = 0.16


def cost(used: Cost) -> str:
    """Write a process's CPU time, wall time and peak memory."""
    return f"{used.cpu:.3f} s CPU, {used.wall:.3f} s, {used.peak:.0f} MiB"


def git(folder: Path, *words: str) -> None:
    """Run git in a folder, whatever this machine's configuration says."""
    settings = {"user.name": "B", "user.email": "b@example.invalid", "init.defaultBranch": "main"}
    options = [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(["git", *options, *words], cwd=folder, env=environment, check=True, capture_output=True)


def library(folder: Path) -> Path:
    """Make a checkout with the native file of 27 steps, whose last commit changes one file."""
    (folder / "vllm_omni").mkdir(parents=True)
    for number in range(1500):
        file = folder / "vllm_omni" / f"part_{number // 50}" / f"module_{number}.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"number = {number}\n")
    (folder / ".buildkite").mkdir()
    shutil.copy(NATIVE, folder / ".buildkite" / "test.yml")
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    (folder / CHANGED).parent.mkdir(parents=True)
    (folder / CHANGED).write_text("changed = True\n")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "second")
    return folder


def render(work: Path) -> list[str]:
    """Compare rendering 27 steps with ``invoke --version``."""
    source = library(work / "vllm-omni")
    base = [sys.executable, "-m", "invoke", "-r", str(ROOT)]
    words = ["pipelines.render", "--source", str(source), "--file", ".buildkite/test.yml"]
    pairs = [(measure([*base, *words]), measure([*base, "--version"])) for _ in range(RUNS + 1)][1:]
    mine, other = median([a for a, _ in pairs]), median([b for _, b in pairs])
    more = statistics.median(a.cpu - b.cpu for a, b in pairs)
    return [
        row(
            "`pipelines.render` of 27 steps, one changed file",
            cost(mine),
            f"`invoke --version`: {cost(other)}",
            f"{more:.3f} s CPU more (budget {BUDGET})",
        )
    ]


def select(_work: Path) -> list[str]:
    """Measure the selection of 1,000 steps for 10,000 changed files."""
    argv = [sys.executable, str(JOBS), "1000", "10000"]
    seconds = statistics.median(
        float(subprocess.run(argv, cwd=ROOT, check=True, capture_output=True, text=True).stdout) for _ in range(5)
    )
    return [row("selecting of 1,000 steps for 10,000 changed files", f"{seconds:.2f} s CPU", "", "budget 1 s")]


def report() -> str:
    """Run every part and return the Markdown table."""
    # invoke writes no byte code, and a tool that is installed for agents has it.
    compileall.compile_dir(ROOT / "tasks", quiet=1)
    return table(f"{machine()}. Medians of {RUNS} runs in turn.", (render, select))


if __name__ == "__main__":
    run_report(__doc__, "pipelines", report)
