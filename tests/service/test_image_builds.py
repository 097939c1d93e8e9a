"""Builds with the real engine, pushes to the real registry, and skopeo as the judge of both."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tasks.images import building, catalogue, docker_config
from tasks.images.catalogue import Engine
from tasks.images.indexing import push_index
from tasks.images.planning import BuildPlan, SecretFile
from tasks.registry.documents import Platform
from tasks.support.errors import (
    CredentialsError,
    DataError,
    MissingInputError,
    RemoteChangedError,
    ServiceRefusedError,
    TemporaryError,
)
from tasks.support.settings import CHECKOUT, Settings, load
from tests.engine_server import DockerEngine
from tests.registry_auth import PASSWORD, USER, password_registry_in, write_login
from tests.registry_servers import Registry

pytestmark = pytest.mark.service

COMMIT = "c" * 40
AMD64 = Platform("linux", "amd64")


@dataclass(frozen=True)
class Workshop:
    """An engine, a registry and a folder, and what tests make with them."""

    engine: DockerEngine
    registry: Registry
    folder: Path

    @property
    def settings(self) -> Settings:
        return load(environment=dict(self.engine.environment))

    def plan(self, recipe: str, name: str = "", tag: str = COMMIT, **changes: Any) -> BuildPlan:
        name = name or self.registry.new_name()
        context = self.folder / f"context-{len(list(self.folder.iterdir()))}"
        context.mkdir()
        (context / "Dockerfile").write_text(recipe)
        (context / "file").write_text(f"{name} {tag}\n")
        repository = f"{self.registry.address}/{name}"
        plan = BuildPlan(
            image="sample",
            device="cpu",
            platform=AMD64,
            engine=Engine.DOCKER,
            context=context,
            dockerfile=context / "Dockerfile",
            target=None,
            args={},
            tags=(f"{repository}:{tag}",),
            labels={"org.opencontainers.image.revision": tag, "omni-ci.recipe": "0" * 12},
            recipe="0" * 12,
            reusable=False,
            local=False,
            repository=repository,
        )
        return replace(plan, **changes)

    def build(self, plan: BuildPlan, settings: Settings | None = None) -> building.Built:
        return building.build(
            plan, settings or self.settings, catalogue.load(), logs=self.folder / "logs", pauses=(0.0, 0.0)
        )

    def judged(self, reference: str, *options: str) -> Any:
        done = subprocess.run(
            ["skopeo", "inspect", "--tls-verify=false", *options, f"docker://{reference}"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture
def workshop(
    engine: DockerEngine, registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Workshop]:
    temporary, folder = tmp_path / "temporary", tmp_path / "work"
    temporary.mkdir()
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    yield Workshop(engine, registry, folder)
    assert list(temporary.iterdir()) == [], "a folder with logins or results stayed"


COPY = "FROM scratch\nCOPY file /file\n"


def test_what_is_built_is_what_was_planned_and_stays_here(
    workshop: Workshop, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = "FROM scratch AS first\nCOPY file /file\nARG WORD\nLABEL word=$WORD\nFROM scratch\nLABEL never=1\n"
    plan = workshop.plan(recipe, args={"WORD": "a, b = c"}, target="first")
    built = workshop.build(plan)
    facts = workshop.engine.client.inspect_image(plan.tags[0])
    assert (built.image_id, built.digest) == (facts["Id"], None)
    assert facts["Config"]["Labels"] == {**plan.labels, "word": "a, b = c"}
    assert facts["Architecture"] == "amd64"
    assert workshop.registry.repository(plan.repository.partition("/")[2]).tags() == []
    said = capsys.readouterr()
    assert "COPY file /file" in said.err  # the builder's own lines, as they came
    assert said.out == ""
    assert built.log is not None
    assert "COPY file /file" in built.log.read_text()


def test_a_push_has_the_digest_that_the_registry_answers_with(workshop: Workshop) -> None:
    plan = workshop.plan(COPY, push=True)
    plan = replace(plan, tags=(*plan.tags, plan.tags[0] + "-again"))
    built = workshop.build(plan)
    for tag in plan.tags:
        assert workshop.judged(tag)["Digest"] == built.digest
    config = workshop.judged(plan.tags[0], "--config")
    assert config["config"]["Labels"] == dict(plan.labels)
    assert config["architecture"] == "amd64"
    assert built.as_json()["digest"] == built.digest


def test_builds_at_the_same_time_push_their_own(workshop: Workshop) -> None:
    name = workshop.registry.new_name()
    plans = [workshop.plan(COPY, name, tag=digit * 40, push=True) for digit in "1234"]
    with ThreadPoolExecutor(4) as pool:
        built = list(pool.map(workshop.build, plans))
    assert len({result.digest for result in built}) == len(plans)
    for plan, result in zip(plans, built, strict=True):
        assert workshop.judged(plan.tags[0])["Digest"] == result.digest
        labels = workshop.judged(plan.tags[0], "--config")["config"]["Labels"]
        assert labels["org.opencontainers.image.revision"] == plan.tags[0].rpartition(":")[2]


def test_a_secret_is_in_no_layer_history_argument_or_line(
    workshop: Workshop, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = workshop.folder / "net,rc"  # a comma is BuildKit's separator
    secret.write_text("word-of-the-secret")
    step = (
        "RUN --mount=type=secret,id=netrc cat /run/secrets/netrc > /dev/null && cat /run/secrets/netrc | env > /env\n"
    )
    plan = workshop.plan(f"FROM shell:latest\n{step}", secrets=(SecretFile("netrc", secret),))
    workshop.build(plan)
    saved = subprocess.run(
        ["/usr/bin/docker", "save", plan.tags[0]],
        capture_output=True,
        check=True,
        env=dict(workshop.engine.environment),
    ).stdout
    said = capsys.readouterr()
    assert b"word-of-the-secret" not in saved
    assert "word-of-the-secret" not in said.err + said.out


def test_a_proxys_value_is_in_no_argument_and_not_in_the_image(
    workshop: Workshop, capsys: pytest.CaptureFixture[str]
) -> None:
    proxy = "http://somebody:pass-of-the-proxy@127.0.0.1:9"
    plan = workshop.plan(
        f"FROM shell:latest\nRUN test ${{#HTTP_PROXY}} = {len(proxy)}\n",
        proxies={"HTTP_PROXY": proxy},
    )
    built = workshop.build(plan)
    assert "pass-of-the-proxy" not in capsys.readouterr().err
    facts = workshop.engine.client.inspect_image(built.image_id)
    history = workshop.engine.client.history(built.image_id)
    assert proxy not in json.dumps([facts["Config"], history])


def test_a_step_that_fails_is_not_tried_again(workshop: Workshop, capsys: pytest.CaptureFixture[str]) -> None:
    plan = workshop.plan("FROM shell:latest\nRUN echo 'connection reset by peer' >&2 && exit 7\n")
    with pytest.raises(DataError, match=r"the build of sample failed: .*exit code: 7") as caught:
        workshop.build(plan)
    assert "log" in str(caught.value.hint)
    said = capsys.readouterr().err
    assert "trying again" not in said
    assert said.count("+ ") == 1


def test_a_base_that_cannot_be_reached_is_tried_again(workshop: Workshop, capsys: pytest.CaptureFixture[str]) -> None:
    plan = workshop.plan("FROM 127.0.0.1:9/nobody/listens:1\n")
    with pytest.raises(TemporaryError, match="connection refused"):
        workshop.build(plan)
    assert capsys.readouterr().err.count("trying again") == 2


def test_a_base_that_is_not_there_is_said_at_once(workshop: Workshop, capsys: pytest.CaptureFixture[str]) -> None:
    plan = workshop.plan(f"FROM {workshop.registry.address}/no/such:1\n")
    with pytest.raises(MissingInputError, match="not found"):
        workshop.build(plan)
    assert "trying again" not in capsys.readouterr().err


def test_an_image_with_its_recipe_in_the_tag_is_built_once(workshop: Workshop) -> None:
    plan = workshop.plan(COPY, tag="v1-" + "0" * 12, reusable=True)
    first, second = workshop.build(plan), workshop.build(plan)
    assert (first.reused, second.reused) == (False, True)
    assert first.image_id == second.image_id
    pushed = workshop.plan(COPY, tag="v1-" + "0" * 12, reusable=True, push=True)
    first, second = workshop.build(pushed), workshop.build(pushed)
    assert (first.reused, second.reused) == (False, True)
    assert first.digest == second.digest


def test_what_was_built_before_can_be_pushed_but_nothing_else(workshop: Workshop) -> None:
    plan = workshop.plan(COPY)
    wanted = replace(plan, push=True)
    with pytest.raises(MissingInputError, match="the engine holds no "):
        building.push_built(wanted, workshop.settings)
    workshop.build(plan)
    built = building.push_built(wanted, workshop.settings)
    assert workshop.judged(plan.tags[0])["Digest"] == built.digest
    other = replace(wanted, labels={**plan.labels, "omni-ci.recipe": "1" * 12})
    with pytest.raises(MissingInputError, match="of another build"):
        building.push_built(other, workshop.settings)


def test_the_index_is_made_by_whoever_pushes_the_last_platform(workshop: Workshop) -> None:
    name = workshop.registry.new_name()
    index = (f"{workshop.registry.address}/{name}:{COMMIT}",)
    plans = [
        workshop.plan(
            COPY, name, f"{COMMIT}-{architecture}", push=True, index=index, platform=Platform("linux", architecture)
        )
        for architecture in ("amd64", "arm64")
    ]
    first = workshop.build(plans[1])
    waiting = push_index(plans, workshop.settings)
    assert (waiting.digest, waiting.waits_for) == (None, ("linux/amd64",))
    assert workshop.registry.repository(name).head(COMMIT) is None
    second = workshop.build(plans[0])
    made = push_index(plans, workshop.settings)
    assert made.digest == push_index(list(plans), workshop.settings).digest
    listed = workshop.judged(index[0], "--raw")["manifests"]
    assert [(one["platform"]["architecture"], one["digest"]) for one in listed] == [
        ("amd64", second.digest),
        ("arm64", first.digest),
    ]
    swapped = [replace(plans[0], tags=plans[1].tags), replace(plans[1], tags=plans[0].tags)]
    with pytest.raises(DataError, match="is an image of linux/arm64, not of linux/amd64"):
        push_index(swapped, workshop.settings)


def test_a_tag_that_another_job_moved_is_found(workshop: Workshop) -> None:
    plan = workshop.plan(COPY, push=True)
    built = workshop.build(plan)
    assert built.digest is not None
    with pytest.raises(RemoteChangedError, match=built.digest):
        building.verify(plan, "sha256:" + "0" * 64, workshop.settings)
    missing = replace(plan, tags=(plan.tags[0] + "x",))
    with pytest.raises(ServiceRefusedError, match="is not there"):
        building.verify(missing, built.digest, workshop.settings)


def test_logins_serve_a_run_and_no_other(
    engine: DockerEngine, workshop: Workshop, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with password_registry_in(tmp_path / "private") as private:
        inside = replace(workshop, registry=private)
        anonymous = load(environment={**engine.environment, **private.environment})
        plan = inside.plan(COPY, push=True)
        with pytest.raises(CredentialsError):
            inside.build(plan, anonymous)
        write_login(private)
        allowed = load(environment={**engine.environment, **private.environment, "DOCKER_HOST": engine.address})
        built = inside.build(plan, allowed)
        done = subprocess.run(
            ["skopeo", "inspect", "--tls-verify=false", "--creds", f"{USER}:{PASSWORD}", f"docker://{plan.tags[0]}"],
            capture_output=True,
            check=True,
        )
        assert json.loads(done.stdout)["Digest"] == built.digest
        # A base behind the password: the client asks with the run's own login.
        engine.docker("rmi", plan.tags[0])
        based = inside.plan(f"FROM {plan.tags[0]}\nLABEL on=top\n", args={"BASE_IMAGE": plan.tags[0]})
        inside.build(based, allowed)
    assert PASSWORD not in capsys.readouterr().err


def _wait_for(happened: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < until, "it never happened"
        time.sleep(0.05)


# A run of its own in a fresh process, with the handler that every task has.
DRIVER = """
import signal, sys
from pathlib import Path
from tasks.support.task import _terminate
from tests.engine_server import DockerEngine
from tests.registry_servers import Registry
from tests.service.test_image_builds import Workshop
signal.signal(signal.SIGTERM, _terminate)
engine, folder = sys.argv[1:]
workshop = Workshop(DockerEngine(Path(engine)), Registry("127.0.0.1:9", Path(), Path()), Path(folder))
workshop.build(workshop.plan("FROM shell:latest\\nRUN echo it has started && sleep 60\\n"))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL])
def test_a_run_that_is_ended_leaves_no_login_to_the_next(
    workshop: Workshop, tmp_path: Path, number: signal.Signals
) -> None:
    folder, logins = tmp_path / "own", tmp_path / "runtime"
    folder.mkdir()
    logins.mkdir()
    with (tmp_path / "said").open("wb") as said:
        run = subprocess.Popen(
            [sys.executable, "-c", DRIVER, workshop.engine.folder, folder],
            env={**os.environ, "PYTHONPATH": str(CHECKOUT), "TMPDIR": str(logins)},
            stderr=said,
        )
    _wait_for(lambda: b"it has started" in (tmp_path / "said").read_bytes().partition(b"RUN echo")[2])
    assert list(logins.glob("omni-ci-logins-*/*/config.json"))
    run.send_signal(number)
    run.wait(timeout=60)
    kept = number is signal.SIGKILL  # it cannot be answered: see the next run
    assert bool(list(logins.glob("omni-ci-logins-*/*/config.json"))) <= kept
    with docker_config.private_config(load(environment={}), {}, logins) as private:
        assert [path.parent for path in logins.glob("omni-ci-logins-*/*/config.json")] == [private.folder]
    assert not list(logins.glob("omni-ci-logins-*"))


def test_the_log_is_followed_to_its_last_line(workshop: Workshop, capsys: pytest.CaptureFixture[str]) -> None:
    from tasks.images.build_log import following

    log = workshop.folder / "log"
    log.touch()

    def write() -> None:
        with log.open("ab") as file:
            for number in range(200):
                file.write(f"line {number}\n".encode())
                file.flush()
            file.write(b"no line break at the end")

    with following(log):
        writer = threading.Thread(target=write)
        writer.start()
        writer.join()
    lines = capsys.readouterr().err.splitlines()
    assert lines == [*(f"line {number}" for number in range(200)), "no line break at the end"]
