"""The library's own wheels, as they are on the public index: every one goes in, and pip and uv get them out again."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from packaging.version import Version

from tasks.release import judges
from tasks.support.settings import load
from tasks.support.store import ObjectStore
from tasks.wheels import checking, layout
from tasks.wheels.distribution import Facts, read_facts
from tasks.wheels.index import Index, timestamp
from tasks.wheels.serving import serve
from tasks.wheels.state import TimeSource
from tasks.wheels.upload import CommitTime, execute_upload, plan_upload
from tasks.wheels.views import Outcome, execute_move, plan_move
from tasks.wheels.wanted import AUTO, views_wanted

PROJECT = "vllm-omni"
CACHE = Path(__file__).resolve().parents[2] / ".omni-ci" / "library-wheels"
RULES = load(environment={}).wheels

pytestmark = [pytest.mark.service, pytest.mark.slow, pytest.mark.network, pytest.mark.timeout(900)]


@dataclass(frozen=True)
class Published:
    """One version's wheel, with a commit made up for it; later versions have later commits."""

    commit: str
    time: CommitTime
    facts: Facts


def _pip(*words: str) -> str:
    argv = [sys.executable, "-m", "pip", "--disable-pip-version-check", *words]
    return subprocess.run(argv, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout


def _wheel(version: str) -> Path:
    found = sorted(CACHE.glob(f"vllm_omni-{version}-*.whl"))
    if not found:
        _pip(
            "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest", str(CACHE), f"{PROJECT}=={version}"
        )
        found = sorted(CACHE.glob(f"vllm_omni-{version}-*.whl"))
    return found[0]


@pytest.fixture(scope="module")
def library() -> list[Published]:
    CACHE.mkdir(parents=True, exist_ok=True)
    versions = sorted(json.loads(_pip("index", "versions", "--pre", "--json", PROJECT))["versions"], key=Version)
    assert len(versions) >= 25
    with ThreadPoolExecutor(4) as pool:
        paths = list(pool.map(_wheel, versions))
    start = datetime(2026, 1, 1, tzinfo=UTC)
    return [
        Published(
            hashlib.sha1(version.encode(), usedforsecurity=False).hexdigest(),
            CommitTime(timestamp(start + timedelta(days=number)), TimeSource.GIVEN),
            read_facts(path, RULES.variants),
        )
        for number, (version, path) in enumerate(zip(versions, paths, strict=True))
    ]


@pytest.fixture
def published(store_any: ObjectStore, library: list[Published]) -> Index:
    index = Index(store_any, RULES)
    for build in library:
        execute_upload(index, plan_upload(index, build.commit, build.time, [build.facts]))
        for view in views_wanted(index, AUTO, build.commit, nightly=build is library[-1]):
            execute_move(index, plan_move(index, view, build.commit))
    return index


def test_every_published_wheel_installs_and_goes_in_once(
    published: Index, library: list[Published], tmp_path: Path
) -> None:
    current = published.view(layout.NIGHTLY).state.current
    assert current is not None
    assert current.commit == library[-1].commit
    for build in library:
        for view in (build.commit, layout.release_view(build.facts.version)):
            assert checking.check_view(published, view).findings == (), view
    assert checking.check_view(published, layout.NIGHTLY).errors == ()

    with serve(published.store) as server:
        for build in (library[0], library[len(library) // 2], library[-1]):
            version = build.facts.version
            url = f"{server.url.rstrip('/')}/{layout.release_view(version)}/"
            folder = tmp_path / version
            name = judges.pip_download(folder, url, f"{PROJECT}=={version}")
            assert name == build.facts.filename
            assert hashlib.sha256((folder / "pip" / name).read_bytes()).hexdigest() == build.facts.sha256
            assert judges.uv_install(folder, url, PROJECT) == version
    _do_it_all_again(published, library)


def _do_it_all_again(published: Index, library: list[Published]) -> None:
    before = {stored.key: stored.etag for stored in published.store.list()}
    for build in library:
        report = execute_upload(published, plan_upload(published, build.commit, build.time, [build.facts]))
        assert report.plan.missing == ()
        assert report.drawn.written == ()
        for view in views_wanted(published, AUTO, build.commit, nightly=True):
            moved = execute_move(published, plan_move(published, view, build.commit))
            assert moved.outcome in (Outcome.SAME, Outcome.KEPT)
            assert moved.drawn.written == ()
    assert {stored.key: stored.etag for stored in published.store.list()} == before
