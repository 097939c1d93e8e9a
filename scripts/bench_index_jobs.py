"""The jobs that ``bench_index.py`` measures: each in a process of its own that imports what it needs and no more."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # a script is not installed; this finds the tasks package

COMMIT = "c" * 40


def fill(store: str, wheels: str, projects: str, listed: str) -> None:
    """Write the state of ``wheels`` files in ``projects`` projects, and the peer's list of the same files."""
    rows = fill_state(Path(store), int(wheels), int(projects))
    Path(listed).write_text("".join(json.dumps(row) + "\n" for row in rows))


def fill_state(store: Path, wheels: int, projects: int) -> list[dict[str, object]]:
    """Write the state of a commit and return the peer's rows for the same files."""
    from tasks.support.settings import load
    from tasks.support.store import open_store
    from tasks.wheels import layout
    from tasks.wheels.index import Index
    from tasks.wheels.state import FileRecord
    from tasks.wheels.upload import record_files, show_commit

    index = Index(open_store(str(store)), load().wheels)
    listed: list[dict[str, object]] = []
    names = [f"project-{number:03}" for number in range(projects)]
    for name in names:
        records = []
        for number in range(wheels // projects):
            version = f"0.{number // 50}.{number % 50}.dev{number}"
            filename = f"{name.replace('-', '_')}-{version}+g{number:07x}-cp311-abi3-manylinux_2_31_x86_64.whl"
            digest = f"{number:064x}"
            records.append(
                FileRecord(
                    key=layout.distribution(COMMIT, filename),
                    version=f"{version}+g{number:07x}",
                    size=400_000_000 + number,
                    sha256=digest,
                    uploaded="2026-08-28T03:00:00.000000Z",
                    commit_time="2026-08-28T02:00:00.000000Z",
                    commit_time_from="git",
                    requires_python=">=3.10,<3.14",
                    metadata_sha256=digest,
                )
            )
            listed.append(
                {
                    "filename": filename,
                    "hash": f"sha256={digest}",
                    "requires_python": ">=3.10,<3.14",
                    "core_metadata": f"sha256={digest}",
                    "upload_timestamp": 1_787_000_000 + number,
                }
            )
        record_files(index, name, records)
    show_commit(index, COMMIT, names)
    return listed


def render(store: str) -> None:
    """Draw every page of the store."""
    from tasks.support.settings import load
    from tasks.support.store import open_store
    from tasks.wheels.drawing import draw_view
    from tasks.wheels.index import Index

    draw_view(Index(open_store(store), load().wheels), COMMIT, sweep=True)


def add(store: str, wheel: str) -> None:
    """Upload one wheel and print the CPU seconds since the imports."""
    from tasks.support.settings import load
    from tasks.support.store import open_store
    from tasks.wheels.distribution import read_facts
    from tasks.wheels.index import Index
    from tasks.wheels.upload import execute_upload, plan_upload

    rules, opened = load().wheels, open_store(store)  # opening imports the store's own module, and reads nothing
    start = time.process_time()
    index = Index(opened, rules)
    execute_upload(index, plan_upload(index, COMMIT, None, [read_facts(Path(wheel), rules.variants)]))
    print(time.process_time() - start)


def facts(wheel: str) -> None:
    """Read a wheel's facts and print the growth of the peak resident memory in MiB since the imports."""
    import resource

    from tasks.wheels.distribution import read_facts

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    read_facts(Path(wheel), ())
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)


JOBS: dict[str, Callable[..., None]] = {"fill": fill, "render": render, "add": add, "facts": facts}

if __name__ == "__main__":
    JOBS[sys.argv[1]](*sys.argv[2:])
