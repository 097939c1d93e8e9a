"""``invoke doctor`` as a person runs it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tasks.support.variables import ALL
from tests.contract.conftest import ROOT, Invoke, bare_site

pytestmark = pytest.mark.slow  # together these take longer than the fast set may

RUNNER = ("invoke", "nox", "pyyaml", "packaging", "rich", "markdown-it-py", "mdurl", "pygments")
ENGINE_LESS = {"DOCKER_HOST": "unix:///nowhere/docker.sock"}


def test_the_table_is_for_people(invoke: Invoke, tmp_path: Path) -> None:
    said = invoke("doctor", "--store", str(tmp_path / "store"), env=ENGINE_LESS, cwd=tmp_path)
    assert (said.code, said.out) == (0, "")
    rows = {line.split("  ")[0].strip() for line in said.err.splitlines()}
    assert {"python", "git", "source", "engine", "store", "registry logins", "PYPI_TOKEN"} <= rows
    assert "for images.*: start one, or set DOCKER_HOST" in said.err
    assert not (tmp_path / "store").exists()


def test_json_is_for_machines(invoke: Invoke, tmp_path: Path) -> None:
    said = invoke("doctor", "--json", "--source", str(tmp_path), env=ENGINE_LESS, cwd=tmp_path)
    assert (said.code, said.err) == (0, "")
    findings = {finding["name"]: finding for finding in json.loads(said.out)["findings"]}
    assert findings["source"]["state"] == "here"
    assert findings["engine"]["state"] == "missing"
    assert findings["engine"]["needed_by"]
    assert findings["engine"]["remedy"]


@pytest.mark.parametrize("form", [(), ("--json",), ("--report",)])
def test_no_value_of_a_secret_is_shown(invoke: Invoke, tmp_path: Path, form: tuple[str, ...]) -> None:
    secrets = {variable.name: f"hush-{variable.name}" for variable in ALL if variable.secret}
    addresses = {"DOCKER_HOST": "tcp://me:hush-url@127.0.0.1:1", "CUDA_PASSWORD": "hush-prefix"}
    said = invoke(
        "doctor",
        *form,
        "--store",
        "s3://bucket",
        env={**secrets, **addresses, "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:1"},
        cwd=tmp_path,
    )
    assert said.code == 0
    assert "hush" not in said.out + said.err
    assert "PYPI_TOKEN" in said.out + said.err


def test_the_report_can_be_pasted(invoke: Invoke, tmp_path: Path) -> None:
    said = invoke("doctor", "--report", env={**ENGINE_LESS, "CUDA_VISIBLE_DEVICES": "7"}, cwd=tmp_path)
    assert (said.code, said.err) == (0, "")
    for part in ("tool: omni-ci/", "[findings]", "[packages]", "[environment]", "CUDA_VISIBLE_DEVICES=7"):
        assert part in said.out


def test_a_bucket_that_never_answers_does_not_hold_up_the_end(invoke: Invoke, tmp_path: Path) -> None:
    # Waiting for boto3 would take longer than a test may.
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(50)
        environment = {
            "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{silent.getsockname()[1]}",
            "AWS_ACCESS_KEY_ID": "hush-id",
            "AWS_SECRET_ACCESS_KEY": "hush-key",
        }
        said = invoke("doctor", "--json", "--store", "s3://bucket", env={**ENGINE_LESS, **environment}, cwd=tmp_path)
    findings = {finding["name"]: finding for finding in json.loads(said.out)["findings"]}
    assert (said.code, findings["store"]["state"]) == (0, "broken")
    assert "no answer within" in findings["store"]["detail"]


def test_without_git_it_says_so_and_exits_78(invoke: Invoke, tmp_path: Path) -> None:
    said = invoke("doctor", env={**ENGINE_LESS, "PATH": "/nowhere"}, cwd=tmp_path)
    assert said.code == 78
    assert "error: git is unusable: git is not installed (not on PATH)\n  install git" in said.err
    assert "Traceback" not in said.err


def test_a_wrong_setting_is_one_line(invoke: Invoke, tmp_path: Path) -> None:
    said = invoke("doctor", env={"OMNI_CI_STOER": "x"}, cwd=tmp_path)
    assert said.code == 78
    assert said.err.startswith("error: unknown environment variable OMNI_CI_STOER\n  did you mean OMNI_CI_STORE")


def test_the_runner_group_alone_is_enough(tmp_path: Path) -> None:
    site = bare_site(tmp_path / "site", *RUNNER)
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(site), "HOME": str(tmp_path), **ENGINE_LESS}
    argv = [sys.executable, "-S", "-m", "invoke", "doctor", "--json", "--store", "s3://bucket/prefix"]
    done = subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    findings = {finding["name"]: finding for finding in json.loads(done.stdout)["findings"]}
    for name in ("package boto3", "package docker", "package requests", "engine", "store"):
        assert findings[name]["state"] == "missing"
        assert findings[name]["remedy"]
