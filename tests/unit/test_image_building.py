"""The line that a docker client is given, and what a build's last words mean."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tasks.images.build_log import failure, new_log
from tasks.images.building import docker_argv, registries_of
from tasks.images.catalogue import GitContext
from tasks.images.clients import Client
from tasks.support.errors import (
    CredentialsError,
    DataError,
    MissingInputError,
    OmniError,
    ServiceRefusedError,
    TemporaryError,
)
from tests import factory_plan

DEBIANS = Client(Path("/usr/bin/docker"), has_buildx=False)
BUILDX = Client(Path("/usr/local/bin/docker"), True, has_metadata_file=True)
OLD_BUILDX = Client(Path("/usr/local/bin/docker"), has_buildx=True)
PLAN = replace(
    factory_plan.PLAN,
    args={"BASE_IMAGE": "quay.io/a/b:1", "TOOL_IMAGE": "tools.example:5000/c/d:2", "max_jobs": "16"},
    proxies={"HTTPS_PROXY": "http://user:word@proxy:3128"},
)


def given(argv: object, option: str) -> list[str]:
    words = [str(word) for word in argv]  # type: ignore[attr-defined]
    return [words[place + 1] for place, word in enumerate(words) if word == option]


@pytest.mark.parametrize("client", [DEBIANS, BUILDX, OLD_BUILDX])
@pytest.mark.parametrize("push", [False, True])
def test_every_client_is_told_what_the_plan_says(client: Client, push: bool) -> None:
    argv = [str(word) for word in docker_argv(replace(PLAN, push=push), client, Path("/tmp/r"))]
    assert argv[-1] == "/source"
    assert given(argv, "--file") == ["/tool/docker/Dockerfile.some"]
    assert given(argv, "--platform") == ["linux/amd64"]
    assert given(argv, "--target") == ["final"]
    assert given(argv, "--tag") == list(PLAN.tags)
    assert given(argv, "--label") == [f"org.opencontainers.image.revision={'c' * 40}"]
    assert {f"{name}={value}" for name, value in PLAN.args.items()} <= set(given(argv, "--build-arg"))
    assert given(argv, "--secret") == ['id=netrc,"src=/home/net,rc"']
    assert "HTTPS_PROXY" in given(argv, "--build-arg")
    assert "word" not in " ".join(argv)
    assert given(argv, "--network") == []


def test_a_client_is_told_only_what_it_knows() -> None:
    plan = replace(PLAN, push=True)
    debians = docker_argv(plan, DEBIANS, Path("/tmp/r"), host_network=True)
    assert [str(word) for word in debians[:2]] == ["/usr/bin/docker", "build"]
    assert given(debians, "--iidfile") == ["/tmp/r"]
    assert given(debians, "--cache-from") == ["caches.example/a/b:zero"]
    assert "BUILDKIT_INLINE_CACHE=1" in given(debians, "--build-arg")
    assert given(debians, "--output") == given(debians, "--cache-to") == given(debians, "--metadata-file") == []
    assert given(debians, "--network") == ["host"]
    buildx = docker_argv(plan, BUILDX, Path("/tmp/r"))
    assert [str(word) for word in buildx[:3]] == ["/usr/local/bin/docker", "buildx", "build"]
    assert given(buildx, "--metadata-file") == ["/tmp/r"]
    assert given(buildx, "--cache-from") == list(PLAN.cache_from)
    assert given(buildx, "--cache-to") == list(PLAN.cache_to)
    assert given(buildx, "--output") == ["type=image,push=true"]
    # Without a metadata file nobody would know what it pushed: then the engine pushes.
    assert given(docker_argv(plan, OLD_BUILDX, Path("/tmp/r")), "--output") == ["type=docker"]
    assert given(docker_argv(PLAN, BUILDX, Path("/tmp/r")), "--output") == ["type=docker"]


def test_a_git_context_goes_to_the_builder_as_it_is() -> None:
    plan = replace(PLAN, context=GitContext("https://host.example/a.git", "v1"), dockerfile="docker/Dockerfile")
    argv = docker_argv(plan, DEBIANS, Path("/tmp/r"))
    assert argv[-1] == "https://host.example/a.git#v1"
    assert given(argv, "--file") == ["docker/Dockerfile"]


def test_logins_are_looked_up_for_what_the_build_talks_to_only() -> None:
    assert registries_of(PLAN) == {"docker.io", "quay.io", "tools.example:5000", "r.example", "caches.example"}
    pinned = replace(
        PLAN, args={"BASE_IMAGE": f"ubuntu@sha256:{'0' * 64}", "URL": "https://x.example/y"}, cache_from=()
    )
    assert registries_of(pinned) == {"docker.io", "r.example"}


EARLY = "#1 [internal] load build definition\n#3 [1/2] FROM quay.io/a/b:1\n#4 [stage 1/3] FROM x\n"
STEP = "#5 [build 2/3] RUN make\n"


@pytest.mark.parametrize(
    ("said", "before", "after"),
    [
        ("ERROR: failed to do request: dial tcp 10.0.0.1:443: connect: connection refused", TemporaryError, DataError),
        ("failed to copy: httpReadSeeker: failed open: unexpected status code 503", TemporaryError, DataError),
        ("error: toomanyrequests: You have reached your pull rate limit", TemporaryError, DataError),
        ("error: net/http: TLS handshake timeout", TemporaryError, DataError),
        (
            "failed to authorize: failed to fetch oauth token: unexpected status: 401 Unauthorized",
            CredentialsError,
            DataError,
        ),
        ("error: quay.io/a/b:1: not found", MissingInputError, DataError),
        ("error: failed to solve: dockerfile parse error line 3: unknown instruction: RUNN", DataError, DataError),
        ("executor failed running [/bin/sh -c make]: exit code: 2", DataError, DataError),
        ("error: write /x: no space left on device", ServiceRefusedError, ServiceRefusedError),
        ("", DataError, DataError),
    ],
)
def test_only_what_fails_before_the_first_step_can_pass_by_itself(
    said: str, before: type[OmniError], after: type[OmniError]
) -> None:
    log = Path("/logs/log")
    early, late = failure("x", EARLY + said, log), failure("x", EARLY + STEP + said, log)
    assert (type(early), type(late)) == (before, after)
    for error in (early, late):
        assert "\n" not in error.message
        assert "/logs/log" in str(error.hint)
        assert said.removeprefix("error: ")[-20:] in error.message


def test_a_step_that_fails_is_named_with_its_own_last_words() -> None:
    long = "RUN make && " + "x" * 500
    text = (
        f"{EARLY}#7 [build 2/3] {long}\n#7 sha256:00\n#7 0.738 compiling\n"
        "#8 [other 1/2] RUN z\n#8 0.1 error: not this\n"
        f"#7 1.266 error: no such header\n#7 ERROR: executor failed running [/bin/sh -c {long}]: exit code: 2\n"
        f"------\n > [build 2/3] {long}:\n------\nexecutor failed running [/bin/sh -c {long}]: exit code: 2\n"
    )
    message = failure("x", text, Path("/l")).message
    assert message.startswith("the build of x failed: [build 2/3] RUN make && xxx")
    assert message.endswith("…: error: no such header (exit code: 2)")
    buildx = text.replace("executor failed running", "process").replace(
        "]: exit", " did not complete successfully: exit"
    )
    assert failure("x", buildx, Path("/l")).message == message


def test_two_builds_of_an_image_have_a_log_each_and_old_ones_go(tmp_path: Path) -> None:
    old, other = tmp_path / "image-cuda-amd64-x-000000.log", tmp_path / "build-wheel.log"
    for file in (old, other):
        file.touch()
        os.utime(file, (0, 0))
    first, second = new_log(tmp_path, PLAN), new_log(tmp_path, PLAN)
    assert first != second
    assert not old.exists()
    assert other.exists()
    first.touch()
    new_log(tmp_path, PLAN)
    assert first.exists()


def test_a_credential_in_the_builders_words_is_masked() -> None:
    said = "error: fetch https://user:word-of-it@host.example/a.git: connection refused"
    assert "word-of-it" not in failure("x", said, Path("/l")).message
