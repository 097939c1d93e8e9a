"""buildctl: found, fetched and checked; and the line that it is given."""

from __future__ import annotations

import csv
import hashlib
import io
import itertools
import stat
import tarfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.images import catalogue
from tasks.images.buildctl import Remote, build_argv, choose_remote, fields, find_program, this_platform
from tasks.images.catalogue import Buildkitd, Engine, GitContext
from tasks.images.pins import DownloadPin
from tasks.registry.documents import Platform
from tasks.support.errors import ConfigurationError, DataError, ServiceRefusedError
from tasks.support.settings import load
from tests import factory_plan

PLAN = replace(factory_plan.PLAN, engine=Engine.BUILDCTL, platform=Platform("linux", "arm64"), target="ci", push=True)


def pairs(argv: Any, option: str) -> list[str]:
    words = [str(word) for word in argv]
    return [value for name, value in itertools.pairwise(words) if name == option]


def test_the_line_has_everything_that_the_plan_says() -> None:
    remote = Remote("tcp://b:1234", Path("/c/ca"), Path("/c/cert"), Path("/c/key"))
    argv = [str(word) for word in build_argv(Path("/bin/buildctl"), remote, PLAN, Path("/tmp/m"))]
    assert argv[:10] == [
        *("/bin/buildctl", "--addr", "tcp://b:1234", "--tlscacert", "/c/ca", "--tlscert", "/c/cert"),
        *("--tlskey", "/c/key", "build"),
    ]
    assert pairs(argv, "--frontend") == ["dockerfile.v0"]
    assert pairs(argv, "--local") == ["context=/source", "dockerfile=/tool/docker"]
    assert pairs(argv, "--opt") == [
        "filename=Dockerfile.some",
        "target=ci",
        "platform=linux/arm64",
        "build-arg:BASE_IMAGE=quay.io/a/b:1",
        "build-arg:WORDS=a, b=c",
        f"label:org.opencontainers.image.revision={'c' * 40}",
    ]
    assert pairs(argv, "--secret") == ['id=netrc,"src=/home/net,rc"']
    assert pairs(argv, "--import-cache") == ["type=registry,ref=caches.example/a/b:zero"]
    assert pairs(argv, "--export-cache") == ["type=inline"]
    assert pairs(argv, "--output") == ['type=image,"name=r.example/a/b:one,r.example/a/b:two",push=true']
    assert pairs(argv, "--metadata-file") == ["/tmp/m"]


def test_a_git_context_is_fetched_by_the_builder_and_a_check_pushes_nothing() -> None:
    context = GitContext("https://host.example/a/b.git", "v1.0")
    plan = replace(PLAN, context=context, dockerfile="docker/Dockerfile", push=False, target=None)
    argv = build_argv(Path("b"), Remote("unix:///s"), plan, Path("m"))
    assert pairs(argv, "--local") == []
    assert pairs(argv, "--opt")[:3] == [
        "context=https://host.example/a/b.git#v1.0",
        "filename=docker/Dockerfile",
        "platform=linux/arm64",
    ]
    assert "--output" not in argv
    assert "--tlscert" not in argv


def test_a_proxy_is_passed_on_unless_it_holds_a_credential() -> None:
    plan = replace(PLAN, proxies={"HTTPS_PROXY": "http://proxy:3128"})
    argv = build_argv(Path("b"), Remote("unix:///s"), plan, Path("m"))
    assert "build-arg:HTTPS_PROXY=http://proxy:3128" in pairs(argv, "--opt")
    secret = replace(PLAN, proxies={"HTTPS_PROXY": "http://user:word@proxy:3128"})
    with pytest.raises(ConfigurationError, match="HTTPS_PROXY holds a credential") as caught:
        build_argv(Path("b"), Remote("unix:///s"), secret, Path("m"))
    assert "word" not in caught.value.message.replace("password", "")


@given(st.dictionaries(st.from_regex(r"[a-z]+", fullmatch=True), st.text(st.characters(exclude_categories=["C"]))))
def test_fields_are_read_back_as_they_were(values: dict[str, str]) -> None:
    line = fields(**values)
    read = next(csv.reader(io.StringIO(line)), [])
    assert [text.partition("=")[::2] for text in read] == list(values.items())


# Which builder


def certificates(folder: Path, *names: str) -> Buildkitd:
    for name in names:
        (folder / name).write_text(name)
    return Buildkitd("tcp://buildkitd:1234", str(folder))


@pytest.mark.parametrize("end", ["", ".pem"])
def test_certificates_are_those_of_the_mounted_secret(tmp_path: Path, end: str) -> None:
    found = choose_remote(
        load(environment={}), certificates(tmp_path, f"ca{end}", f"cert{end}", f"key{end}", "config.json")
    )
    assert found == Remote(
        "tcp://buildkitd:1234", tmp_path / f"ca{end}", tmp_path / f"cert{end}", tmp_path / f"key{end}", tmp_path
    )
    assert found.with_logins(load(environment={})).variable("DOCKER_CONFIG") == str(tmp_path)
    assert found.with_logins(load(environment={"DOCKER_CONFIG": "/own"})).variable("DOCKER_CONFIG") == "/own"


def test_the_variable_wins_and_half_a_secret_is_refused(tmp_path: Path) -> None:
    settings = load(environment={"BUILDKITD_ADDR": "tcp://other:1"})
    assert choose_remote(settings, certificates(tmp_path)) == Remote("tcp://other:1")
    half = certificates(tmp_path, "cert.pem")
    with pytest.raises(ConfigurationError, match="has no ca and no key") as caught:
        choose_remote(settings, half)
    assert caught.value.exit_code == 78
    assert choose_remote(load(environment={"BUILDKITD_ADDR": "unix:///run/b"}), half) == Remote("unix:///run/b")


# The program


def archive(files: Mapping[str, bytes]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as tar:
        for name, data in files.items():
            facts = tarfile.TarInfo(name)
            facts.size = len(data)
            tar.addfile(facts, io.BytesIO(data))
    return made.getvalue()


@contextmanager
def served(files: Mapping[str, bytes]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = files.get(self.path)
            self.send_response(200 if body is not None else 404)
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, *_args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def pin(address: str, sha256: str | None) -> DownloadPin:
    url = f"{address}/${{version}}/buildctl.${{platform}}.tar.gz"
    return DownloadPin("buildctl", "v1", url, {"linux/amd64": sha256, "linux/arm64": None}, "docker/pins.yml:1")


def test_the_one_on_path_is_taken_without_a_pin(tmp_path: Path) -> None:
    program = tmp_path / "buildctl"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    settings = load(environment={"PATH": str(tmp_path)})
    assert find_program(settings, pin("http://127.0.0.1:9", None), tmp_path / "tools") == program


def test_a_release_is_fetched_once_checked_and_made_executable(tmp_path: Path) -> None:
    data = archive({"bin/other": b"no", "bin/buildctl": b"#!/bin/sh\necho fetched\n"})
    settings = load(environment={"PATH": str(tmp_path)})
    with served({"/v1/buildctl.linux-amd64.tar.gz": data}) as address:
        wanted = pin(address, hashlib.sha256(data).hexdigest())
        program = find_program(settings, wanted, tmp_path / "tools", "linux/amd64")
    assert program.read_bytes() == b"#!/bin/sh\necho fetched\n"
    assert stat.S_IMODE(program.stat().st_mode) == 0o755
    assert [path.name for path in program.parent.iterdir()] == ["buildctl"]
    # The server is gone: the second time needs none.
    assert find_program(settings, wanted, tmp_path / "tools", "linux/amd64") == program


@pytest.mark.parametrize(
    ("files", "recorded", "message"),
    [
        ({"bin/buildctl": b"x"}, "0" * 64, "is not what is pinned"),
        ({"bin/else": b"x"}, None, "holds no bin/buildctl"),
        (None, None, "holds no bin/buildctl"),
    ],
)
def test_what_is_not_the_release_is_never_kept(
    tmp_path: Path, files: Mapping[str, bytes] | None, recorded: str | None, message: str
) -> None:
    data = archive(files) if files is not None else b"<html>"
    settings = load(environment={"PATH": str(tmp_path)})
    with served({"/v1/buildctl.linux-amd64.tar.gz": data}) as address:
        wanted = pin(address, recorded or hashlib.sha256(data).hexdigest())
        with pytest.raises(DataError, match=message):
            find_program(settings, wanted, tmp_path / "tools", "linux/amd64")
    assert not list((tmp_path / "tools").rglob("buildctl*/*"))


def test_no_recorded_digest_is_refused_before_any_request(tmp_path: Path) -> None:
    settings = load(environment={"PATH": str(tmp_path)})
    with pytest.raises(ConfigurationError, match="no sha256 of buildctl v1 for linux/arm64") as caught:
        find_program(settings, pin("http://127.0.0.1:9", "0" * 64), tmp_path, "linux/arm64")
    assert caught.value.exit_code == 78
    assert "invoke pins.set buildctl" in str(caught.value.hint)
    with pytest.raises(ConfigurationError, match="for linux/riscv64"):
        find_program(settings, pin("http://127.0.0.1:9", "0" * 64), tmp_path, "linux/riscv64")


def test_a_release_that_cannot_be_fetched_names_both_ways(tmp_path: Path) -> None:
    settings = load(environment={"PATH": str(tmp_path)})
    with (
        served({}) as address,
        pytest.raises(ServiceRefusedError, match="not on PATH, and it cannot be fetched") as caught,
    ):
        find_program(settings, pin(address, "0" * 64), tmp_path, "linux/amd64")
    assert caught.value.exit_code == 69
    assert f"on PATH, or let this machine reach {address}" in str(caught.value.hint)


def test_the_catalogues_own_pin_is_for_machines_as_they_name_themselves() -> None:
    assert this_platform() in catalogue.load().pins.downloads["buildctl"].sha256
