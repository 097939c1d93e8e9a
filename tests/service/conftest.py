"""Fixtures of the tests that need a real server; each server is started once per test process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks.support.store import ObjectStore, open_store
from tests.agent_judge import Judge, find_judge
from tests.engine_server import DockerEngine, own_engine
from tests.registry_servers import Registry, registry_in
from tests.services import S3Server, s3_server_in, use_aws


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """Return the real S3 server of this test process."""
    with s3_server_in(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def s3_url(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the URL of a store in an empty bucket, with the environment set so that ``open_store`` reaches it."""
    use_aws(monkeypatch, s3_server.environment)
    return f"s3://{s3_server.new_bucket()}/some/prefix"


@pytest.fixture(params=["file", pytest.param("s3", marks=pytest.mark.service)])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of an empty store of each kind; child processes reach it with this process's environment."""
    if request.param == "file":
        return (tmp_path / "store").as_uri()
    url: str = request.getfixturevalue("s3_url")
    return url


@pytest.fixture
def store_any(store_url: str) -> ObjectStore:
    """Return an empty store of each kind; ``open_store(store_any.url)`` gives a second, independent writer."""
    return open_store(store_url)


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """Return the real registry of this test process."""
    with registry_in(tmp_path_factory.mktemp("registry")) as server:
        yield server


@pytest.fixture(scope="session")
def other_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """Return a second real registry, for what goes from one to another."""
    with registry_in(tmp_path_factory.mktemp("other-registry")) as server:
        yield server


@pytest.fixture(scope="session")
def engine() -> Iterator[DockerEngine]:
    """Return the real Docker Engine of this test process, with an image ``shell:latest`` that steps can run in."""
    with own_engine() as server:
        server.load_shell("shell:latest")
        yield server


@pytest.fixture(scope="session")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Judge:
    """Return what judges pipelines as Buildkite's agent does."""
    return find_judge(tmp_path_factory.mktemp("judge"))
