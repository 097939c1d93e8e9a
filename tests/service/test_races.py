"""Many writers at once, as separate processes, on a folder and on the real S3 server: nothing is lost."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from tasks.support.store import open_store
from tasks.wheels import checking, layout
from tasks.wheels.distribution import read_facts
from tasks.wheels.state import TimeSource
from tasks.wheels.upload import CommitTime, execute_upload, plan_upload
from tasks.wheels.views import execute_move, plan_move
from tests.factory_index import RULES, commit, index_of, move, time_of, upload
from tests.faults import broken
from tests.wheel_factory import make_wheel

WRITERS = 16
FEWER = 6
FORK = get_context("fork")

pytestmark = [pytest.mark.service, pytest.mark.slow]


def _start_together(jobs: Sequence[tuple[object, ...]], target: Callable[..., None]) -> None:
    barrier = FORK.Barrier(len(jobs))
    children: list[BaseProcess] = [FORK.Process(target=target, args=(barrier, *job)) for job in jobs]
    for child in children:
        child.start()
    for child in children:
        child.join(240)
    assert [child.exitcode for child in children] == [0] * len(jobs)


def _upload_one(barrier: Barrier, url: str, wheel: Path, sha: str) -> None:
    barrier.wait()
    index = index_of(open_store(url))
    facts = [read_facts(wheel, RULES.variants)]
    execute_upload(index, plan_upload(index, sha, CommitTime(time_of(1).moment, TimeSource.GIT), facts))


def _move_one(barrier: Barrier, url: str, number: int) -> None:
    barrier.wait()
    index = index_of(open_store(url))
    execute_move(index, plan_move(index, layout.NIGHTLY, commit(number)))


def test_uploads_to_one_commit_lose_nothing(store_url: str, tmp_path: Path, repetitions: int) -> None:
    for repetition in range(repetitions):
        url = f"{store_url}/run-{repetition}"
        versions = [f"1.0.dev{number}+cu129" for number in range(WRITERS)]
        wheels = [make_wheel(tmp_path / str(repetition), name="sample", version=version) for version in versions]
        _start_together([(url, wheel, commit(1)) for wheel in wheels], _upload_one)

        index = index_of(open_store(url))
        files = index.project("sample").state.files
        assert sorted(record.filename for record in files.values()) == sorted(wheel.name for wheel in wheels)
        report = checking.check_view(index, commit(1))
        assert report.findings == ()
        assert broken(index.store) == []


def test_uploads_to_different_commits_lose_nothing(store_url: str, tmp_path: Path) -> None:
    wheels = [make_wheel(tmp_path, name="sample", version=f"1.0.dev{number}") for number in range(FEWER)]
    jobs = [(store_url, wheel, commit(number)) for number, wheel in enumerate(wheels)]
    _start_together(jobs, _upload_one)

    index = index_of(open_store(store_url))
    assert {record.commit for record in index.project("sample").state.files.values()} == {job[2] for job in jobs}
    for _url, _wheel, sha in jobs:
        assert checking.check_view(index, sha).findings == ()
    assert broken(index.store) == []


def test_the_same_wheel_from_everybody_is_one_wheel(store_url: str, tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, name="sample", version="1.0")
    _start_together([(store_url, wheel, commit(1))] * FEWER, _upload_one)
    index = index_of(open_store(store_url))
    assert len(index.project("sample").state.files) == 1
    assert checking.check_view(index, commit(1)).findings == ()


def test_nightly_ends_at_the_newest_whatever_the_order(store_url: str, repetitions: int) -> None:
    for repetition in range(repetitions):
        url = f"{store_url}/run-{repetition}"
        index = index_of(open_store(url))
        numbers = list(range(1, FEWER + 1))
        for number in numbers:
            upload(index, number, ("sample", f"1.0.dev{number}"))
        move(index, layout.NIGHTLY, 2)
        random.Random(repetition).shuffle(numbers)
        _start_together([(url, number) for number in numbers], _move_one)

        current = index.view(layout.NIGHTLY).state.current
        assert current is not None
        assert current.commit == commit(max(numbers))
        assert checking.check_view(index, layout.NIGHTLY).findings == ()
        moved = [revision.commit for revision in index.view(layout.NIGHTLY).state.revisions]
        assert moved == sorted(moved, key=lambda sha: time_of(int(sha[1:], 16)).moment), "nightly moved backwards"
