"""A small index for tests: real wheels, uploaded and moved by the real functions."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tasks.support.settings import WheelSettings
from tasks.support.store import ObjectStore
from tasks.wheels.distribution import read_facts
from tasks.wheels.drawing import Drawn
from tasks.wheels.index import Index
from tasks.wheels.rolling_back import execute_rollback, plan_rollback
from tasks.wheels.state import TimeSource
from tasks.wheels.upload import CommitTime, UploadReport, execute_upload, plan_upload
from tasks.wheels.views import (
    AskAncestry,
    Moved,
    execute_move,
    plan_move,
    unknown_ancestry,
)
from tests.wheel_factory import make_wheel

VARIANTS = (r"cu\d{2,3}", r"rocm\d*(?:\.\d+)*", "xpu", "npu", "musa", "cpu")
RULES = WheelSettings(project="sample", variants=VARIANTS)


def commit(number: int) -> str:
    """Return the 40 hex digits of a test's commit; consecutive ones begin with different digits."""
    return f"{number % 16:x}{number:039x}"


def index_of(store: ObjectStore, rules: WheelSettings = RULES) -> Index:
    return Index(store, rules)


def time_of(number: int) -> CommitTime:
    """Return a commit's time: later for higher numbers."""
    return CommitTime(f"2026-01-{number // 24 + 1:02}T{number % 24:02}:00:00.000000Z", TimeSource.GIT)


@contextmanager
def wheels(*specs: tuple[str, str]) -> Iterator[list[Path]]:
    """Make wheels of (project, version) in a folder that goes away."""
    with tempfile.TemporaryDirectory() as folder:
        yield [make_wheel(Path(folder), name=name, version=version) for name, version in specs]


def upload(index: Index, number: int, *specs: tuple[str, str], time: CommitTime | None = None) -> UploadReport:
    """Upload wheels to a test's commit; by default one of the project ``sample``, whose version is the number."""
    with wheels(*(specs or (("sample", f"0.{number}"),))) as paths:
        facts = [read_facts(path, index.rules.variants) for path in paths]
        plan = plan_upload(index, commit(number), time or time_of(number), facts)
        return execute_upload(index, plan)


def move(index: Index, view: str, number: int, ancestry: AskAncestry = unknown_ancestry) -> Moved:
    return execute_move(index, plan_move(index, view, commit(number), ancestry), ancestry)


def rollback(index: Index, view: str, to: int | None = None) -> Moved:
    return execute_rollback(index, plan_rollback(index, view, to))


def nightly(index: Index, number: int, *specs: tuple[str, str]) -> Drawn:
    """Upload to a commit and move nightly to it."""
    upload(index, number, *specs)
    return move(index, "nightly", number).drawn


def held(index: Index, view: str) -> list[str]:
    """Return the keys of the files that a view holds, sorted."""
    revision = index.view(view).state.current
    if revision is None:
        return []
    return sorted(r.key for project in revision.counts for r in revision.records_of(index.project(project).state))
