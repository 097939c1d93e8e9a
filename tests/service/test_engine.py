"""Reaching the real engine, in every way in which docker itself would; and what is said when there is none."""

from __future__ import annotations

import hashlib
import json
import socket
import subprocess
from pathlib import Path

import pytest

from tasks.images.clients import find_client, on_path, probe
from tasks.images.engine import choose_endpoint, open_engine
from tasks.support.errors import ConfigurationError, MissingInputError, ServiceRefusedError, TemporaryError
from tasks.support.settings import load
from tests.engine_server import CLIENT, DockerEngine, own_engine
from tests.registry_servers import Registry

pytestmark = pytest.mark.service


def write_context(folder: Path, name: str, host: str, *, current: bool) -> None:
    key = hashlib.sha256(name.encode()).hexdigest()
    meta = folder / "contexts" / "meta" / key
    meta.mkdir(parents=True)
    (meta / "meta.json").write_text(json.dumps({"Name": name, "Endpoints": {"docker": {"Host": host}}}))
    if current:
        (folder / "config.json").write_text(json.dumps({"currentContext": name}))


def test_the_engine_says_what_it_is(engine: DockerEngine) -> None:
    with open_engine(engine.settings) as found:
        version = found.version()
        assert found.data_root() == engine.root
        assert not found.has_bridge()
    assert version.engine == engine.client.version()["Version"]
    assert version.platform.startswith("linux/")


@pytest.mark.parametrize("way", ["DOCKER_HOST", "DOCKER_CONTEXT", "current context"])
def test_each_way_to_name_an_engine_reaches_it_as_docker_does(engine: DockerEngine, tmp_path: Path, way: str) -> None:
    write_context(tmp_path, "chosen", engine.address, current=way == "current context")
    environment = {"DOCKER_CONFIG": str(tmp_path), "HOME": str(tmp_path)}
    environment |= {"DOCKER_HOST": engine.address} if way == "DOCKER_HOST" else {}
    environment |= {"DOCKER_CONTEXT": "chosen"} if way == "DOCKER_CONTEXT" else {}
    with open_engine(load(environment=environment)) as found:
        assert found.data_root() == engine.root
    asked = subprocess.run(
        [CLIENT, "info", "--format", "{{.DockerRootDir}}"], env=environment, capture_output=True, text=True, check=True
    )
    assert asked.stdout.strip() == str(engine.root)


def test_what_is_named_first_wins_and_is_not_replaced_by_another(engine: DockerEngine, tmp_path: Path) -> None:
    write_context(tmp_path, "good", engine.address, current=True)
    environment = {"DOCKER_CONFIG": str(tmp_path), "HOME": str(tmp_path)}
    bad = {**environment, "DOCKER_HOST": f"unix://{tmp_path}/none"}
    with pytest.raises(ServiceRefusedError, match=r"DOCKER_HOST .* does not exist"), open_engine(load(environment=bad)):
        pass
    unknown = {**environment, "DOCKER_CONTEXT": "other"}
    with (
        pytest.raises(ServiceRefusedError, match="DOCKER_HOST is not set, docker context 'other' is not in"),
        open_engine(load(environment=unknown)),
    ):
        pass
    assert (
        choose_endpoint(load(environment={**environment, "DOCKER_CONTEXT": "default"})).origin == "the default socket"
    )


@pytest.mark.parametrize("kind", ["nothing there", "a file", "nobody listens", "not docker", "ssh"])
def test_no_engine_is_one_sentence(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as listener:
        if kind == "a file":
            path.touch()
        if kind == "nobody listens":
            listener.bind(str(path))
        host = {"not docker": "tcp://127.0.0.1:9", "ssh": "ssh://user:word@host"}.get(kind, f"unix://{path}")
        with (
            pytest.raises(ServiceRefusedError, match=r"^no Docker Engine: DOCKER_HOST \(") as caught,
            open_engine(load(environment={"DOCKER_HOST": host})),
        ):
            pass
    assert "\n" not in caught.value.message
    assert "word" not in caught.value.message
    assert caught.value.exit_code == 69
    assert caught.value.hint


def test_an_engine_that_ends_meanwhile_is_a_temporary_failure(tmp_path: Path) -> None:
    with own_engine() as own:
        settings = own.settings
        with open_engine(settings) as found:
            found.version()
            own.stop()
            with pytest.raises(TemporaryError, match="the engine at unix://"):
                found.version()


def test_a_push_of_what_is_not_there_names_it(engine: DockerEngine, registry: Registry) -> None:
    with open_engine(engine.settings) as found:
        assert found.image("no/such:1") is None
        with pytest.raises((MissingInputError, ServiceRefusedError), match=f"pushing {registry.address}/no/such:1"):
            found.push(f"{registry.address}/no/such", "1")


def test_a_pushs_progress_counts_what_goes_out(engine: DockerEngine, registry: Registry) -> None:
    name = f"{registry.address}/{registry.new_name()}"
    engine.load_files(f"{name}:1", {"big": bytes(range(256)) * 40_000})
    sent: list[int] = []
    with open_engine(engine.settings) as found:
        digest = found.push(name, "1", None, sent.append)
        again: list[int] = []
        assert found.push(name, "1", None, again.append) == digest
    assert sum(sent) >= 10_000_000
    assert sum(again) == 0


def test_the_client_is_one_that_can_build(engine: DockerEngine) -> None:
    client = find_client(engine.settings)
    assert client.path in on_path(engine.settings)
    assert probe(CLIENT) == find_client(engine.settings, [CLIENT])


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ("exit 0", "its build knows no --secret"),
        ("echo broken >&2; exit 3", "broken"),
        ("exit 4", "its build --help ended with exit code 4"),
        ('[ "$1" = buildx ] && exit 1; echo "  --progress x"', "its build knows no --secret"),
        ("kill -9 $$", "its build --help ended with exit code 137"),
    ],
)
def test_a_client_without_buildkit_is_passed_over_with_the_reason(tmp_path: Path, script: str, found: str) -> None:
    path = tmp_path / "docker"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    with pytest.raises(ConfigurationError, match=found) as caught:
        find_client(load(environment={}), [path])
    assert str(path) in caught.value.message
    assert find_client(load(environment={}), [path, CLIENT]).path == CLIENT


def test_buildx_is_taken_with_what_it_knows(tmp_path: Path) -> None:
    path = tmp_path / "docker"
    options = "--secret x\\n --progress y\\n --metadata-file string\\n -t, --tag"
    path.write_text(f'#!/bin/sh\n[ "$1" = buildx ] || exit 1\nprintf %b "{options}"\n')
    path.chmod(0o755)
    client = find_client(load(environment={}), [path])
    assert (client.has_buildx, client.has_metadata_file) == (True, True)
    assert client.build == (path, "buildx", "build")
