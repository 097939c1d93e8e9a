"""The images tasks as a person calls them: exit codes, one-line errors, dry runs; no engine is there."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.contract.conftest import Invoke

pytestmark = pytest.mark.slow  # together these take longer than the fast set may

NO_ENGINE = {"DOCKER_HOST": "unix:///nowhere/docker.sock"}


@pytest.fixture
def library(tmp_path: Path) -> Path:
    folder = tmp_path / "vllm-omni"
    (folder / "vllm_omni").mkdir(parents=True)
    (folder / "vllm_omni" / "__init__.py").write_text("")
    who = ("-c", "user.name=me", "-c", "user.email=me@example.test")
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"], ["tag", "v0.28.0"]):
        subprocess.run(["git", *who, *words], cwd=folder, check=True)
    return folder


def head(folder: Path) -> str:
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_the_list_is_the_catalogue(invoke: Invoke) -> None:
    answer = invoke("images.list", "--json")
    assert answer.code == 0
    names = [image["image"] for image in json.loads(answer.out)["images"]]
    assert {"cuda-ci", "cuda-release", "rocm-ci", "rocm-final", "xpu-base", "npu-a2-ci", "npu-a3-ci"} <= set(names)
    assert all(name in answer.err for name in names)


@pytest.mark.parametrize("task", [("images.disk",), ("images.disk", "--prune"), ("images.build", "tool")])
def test_without_an_engine_one_line_says_what_was_tried(invoke: Invoke, task: tuple[str, ...]) -> None:
    answer = invoke(*task, env=NO_ENGINE)
    assert answer.code == 69
    assert "error: no Docker Engine: DOCKER_HOST (unix:///nowhere/docker.sock) does not exist" in answer.err
    assert "Traceback" not in answer.err
    assert answer.out == ""


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("images.build", "cuda-relase"), 64, "did you mean cuda-release"),
        (("images.build", "tool", "--platform", "linux/arm"), 64, "is not built for 'linux/arm'"),
        (("images.build", "tool", "--arg", "NOPE"), 64, "NAME=VALUE"),
        (("images.build", "tool", "--arg", "NOPE=1"), 64, "has no build argument 'NOPE'"),
        (("images.build", "tool", "--push"), 78, "profile local may not"),
        (("images.push", "tool"), 78, "profile local may not"),
        (("images.build", "tool", "--commit", "abc"), 64, "full commit hash"),
        (("images.disk", "--threshold", "7"), 64, "--threshold takes a share"),
        (("images.disk", "--older-than", "3 days"), 64, "--older-than takes an age"),
    ],
)
def test_what_cannot_be_meant_is_said_before_anything_is_done(
    invoke: Invoke, library: Path, words: tuple[str, ...], code: int, said: str
) -> None:
    answer = invoke(*words, env={**NO_ENGINE, "OMNI_CI_SOURCE": str(library)})
    assert (answer.code, answer.out) == (code, ""), answer.err
    assert said in answer.err
    assert "Traceback" not in answer.err


def test_a_dry_run_names_every_tag_with_the_commit_and_needs_no_engine(invoke: Invoke, library: Path) -> None:
    words = ("images.build", "cuda-release", "--push", "--platform", "linux/arm64", "--source", str(library))
    answer = invoke(*words, "--dry-run", "--json", "--profile", "ci", env=NO_ENGINE)
    assert answer.code == 0, answer.err
    assert "profile ci, dry run: nothing will change" in answer.err.splitlines()[0]
    actions = json.loads(answer.out)["actions"]
    assert [row["action"] for row in actions] == ["build tool", "push", "build cuda-release", "push"]
    assert actions[-1]["what"].endswith(f":{head(library)}-aarch64")


def test_a_local_dry_run_warns_of_what_a_real_one_would_be_refused(invoke: Invoke, library: Path) -> None:
    answer = invoke("images.build", "cuda-ci", "--push", "--dry-run", "--source", str(library), env=NO_ENGINE)
    assert answer.code == 0
    assert "a real run would be refused: profile local may not" in answer.err


def test_staging_can_be_another_repository(invoke: Invoke, library: Path) -> None:
    env = {**NO_ENGINE, "OMNI_CI_STAGING": "other.example/some/where"}
    answer = invoke("images.build", "cuda-release", "--dry-run", "--json", "--source", str(library), env=env)
    assert json.loads(answer.out)["actions"][-1]["what"] == f"other.example/some/where:{head(library)}-x86_64"


@pytest.mark.parametrize("push", [(), ("--push",)])
def test_a_source_that_is_not_what_the_tag_would_say_is_not_built(
    invoke: Invoke, library: Path, push: tuple[str, ...]
) -> None:
    words = ("images.build", "cuda-ci", *push, "--dry-run", "--source", str(library))
    assert invoke(*words, "--commit", "a" * 40).code == 64
    (library / "new").write_text("x")
    assert invoke(*words).code == 64
    assert invoke(*words, "--allow-dirty").code == (64 if push else 0)
    baked = ("images.bake", "--image", "cuda-ci", *push, "--source", str(library))
    assert invoke(*baked).code == 64
    assert invoke(*baked, "--allow-dirty").code == (64 if push else 0)


def test_a_push_of_changes_names_no_option_that_the_task_has_not(invoke: Invoke, library: Path) -> None:
    (library / "new").write_text("x")
    answer = invoke("images.push", "cuda-ci", "--dry-run", "--source", str(library))
    assert answer.code == 64
    assert "has changes" in answer.err
    assert "--allow-dirty" not in answer.err


@pytest.mark.parametrize("task", [("images.build", "cuda-ci", "--dry-run"), ("images.bake", "--image", "cuda-ci")])
def test_a_secret_without_its_file_is_told_before_anything_is_built(
    invoke: Invoke, library: Path, task: tuple[str, ...]
) -> None:
    secret = library.parent / "netrc"
    words, env = (*task, "--source", str(library)), {**NO_ENGINE, "NETRC": str(secret)}
    answer = invoke(*words, env=env)
    assert answer.code == 66
    assert str(secret) in answer.err
    secret.write_text("machine host.example login a password b\n")
    assert invoke(*words, env=env).code == 0


def test_bake_prints_what_buildx_runs(invoke: Invoke, library: Path) -> None:
    answer = invoke("images.bake", "--image", "cuda-ci", "--image", "rocm-ci", "--source", str(library))
    assert answer.code == 0, answer.err
    targets = json.loads(answer.out)["target"]
    assert {"tool-amd64", "cuda-ci-amd64", "rocm-ci-amd64"} == set(targets)
    assert Path(targets["tool-amd64"]["context"]).is_dir()


def test_the_dockerfiles_are_clean(invoke: Invoke) -> None:
    answer = invoke("images.lint", "--json")
    assert (answer.code, json.loads(answer.out)) == (0, {"findings": []}), answer.err
