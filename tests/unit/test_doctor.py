"""The doctor's probes and its report, on real folders, sockets and child processes."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingUnixStreamServer
from typing import Any

import pytest

from tasks.support import doctor
from tasks.support.doctor import Finding, State, as_data, examine, require_essentials
from tasks.support.doctor_report import ask_library, report_text, reportable
from tasks.support.errors import ConfigurationError
from tasks.support.settings import CHECKOUT, Settings, load
from tasks.support.store import Headers, open_store

pytestmark = pytest.mark.slow  # together these take longer than the fast set may

PATH = os.environ["PATH"]


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    # A busy machine takes long to load a library; no answer is only awaited where a test says so.
    monkeypatch.setattr(doctor, "PATIENCE", 60.0)


def settings(home: Path, **environment: str) -> Settings:
    given = {"HOME": str(home), "PATH": PATH, "DOCKER_HOST": f"unix://{home}/no.sock", **environment}
    return load(environment=given, store=given.pop("STORE", (home / "store").as_uri()))


def probed(home: Path, **environment: str) -> dict[str, Finding]:
    # What lies beside this checkout is nobody's business here.
    found = examine(settings(home, **environment), home, checkout=home / "elsewhere" / "tool")
    return {finding.name: finding for finding in found}


def states(findings: dict[str, Finding]) -> dict[str, str]:
    return {name: finding.state.value for name, finding in findings.items()}


@pytest.fixture
def silent_port() -> Iterator[int]:
    """Return a port where connections are taken and never answered."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(50)
        yield listening.getsockname()[1]


class EngineHandler(BaseHTTPRequestHandler):
    """The engine's /version, all that the doctor asks."""

    def do_GET(self) -> None:
        body = json.dumps({"Version": "99.1", "ApiVersion": "1.44"}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self) -> str:
        return "socket"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's name
        """Keep the tests' output readable."""


# What is found


def test_a_machine_with_nothing_of_ours_still_has_python_and_git(tmp_path: Path) -> None:
    findings = probed(tmp_path)
    assert states(findings) == {
        "python": "here",
        "git": "here",
        "uv": "here",
        "source": "missing",
        "buildkite-agent": "here" if shutil.which("buildkite-agent") else "missing",
        "packages": "here",
        "engine": "missing",
        "store": "here",
        "registry logins": "missing",
        "PYPI_TOKEN": "missing",
        "DOCKERHUB_USERNAME + DOCKERHUB_TOKEN": "missing",
        "AWS credentials": "missing",
    }
    for finding in findings.values():
        assert finding.needed_by
        assert finding.state is State.HERE or finding.remedy, finding
    require_essentials(list(findings.values()))
    assert not (tmp_path / "store").exists()


def test_looking_at_a_store_says_whether_it_has_an_index(tmp_path: Path) -> None:
    assert "readable, no index yet" in probed(tmp_path)["store"].detail
    open_store((tmp_path / "store").as_uri()).put(
        "_state/projects/p.json", b"{}", Headers("application/json", "no-cache"), expected=None
    )
    assert "has an index" in probed(tmp_path)["store"].detail


def test_a_given_source_is_shown_with_its_commit(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    assert (
        probed(tmp_path, OMNI_CI_SOURCE=str(source))["source"].detail == f"{source} (no git: its tasks need --commit)"
    )
    assert probed(tmp_path, OMNI_CI_SOURCE=str(tmp_path / "nowhere"))["source"].state is State.MISSING
    for words in (
        ["init", "-q"],
        ["-c", "user.name=T", "-c", "user.email=t@x", "commit", "-q", "--allow-empty", "-m", "x"],
    ):
        subprocess.run(["git", *words], cwd=source, check=True)
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=source, check=True, capture_output=True, text=True).stdout
    assert probed(tmp_path, OMNI_CI_SOURCE=str(source))["source"].detail == f"{source} (commit {head[:12]})"


@pytest.mark.parametrize("place", ["missing", "broken"])
def test_without_a_working_git_the_main_job_cannot_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    if place == "broken":
        (folder / "git").write_text("#!/bin/sh\necho 'error: broken' >&2\nexit 3\n")
        (folder / "git").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    findings = list(probed(tmp_path, PATH=str(folder)).values())
    with pytest.raises(ConfigurationError, match="git is unusable") as refused:
        require_essentials(findings)
    assert refused.value.exit_code == 78


def test_an_engine_is_asked_for_its_version(tmp_path: Path) -> None:
    path = tmp_path / "d.sock"
    with ThreadingUnixStreamServer(str(path), EngineHandler) as engine:
        thread = threading.Thread(target=engine.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        found = probed(tmp_path, DOCKER_HOST=f"unix://{path}")["engine"]
        engine.shutdown()
        thread.join()
    assert (found.state, found.detail) == (State.HERE, f"99.1 (API 1.44) at unix://{path}")


@pytest.mark.parametrize(
    "address", ["tcp://127.0.0.1:1", "unix://{home}/dead.sock", "ssh://me:hush@nowhere.invalid", "what"]
)
def test_an_engine_that_cannot_be_asked_is_broken(tmp_path: Path, address: str) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "dead.sock"))
    found = probed(tmp_path, DOCKER_HOST=address.format(home=tmp_path))["engine"]
    assert found.state is State.BROKEN
    assert found.remedy
    assert "hush" not in found.detail
    assert "\n" not in found.detail


def test_silent_services_hold_nothing_up(tmp_path: Path, silent_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Were they waited for, boto3 alone would take minutes: 60 s a try.
    monkeypatch.setattr(doctor, "PATIENCE", 1.0)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{silent_port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    findings = probed(tmp_path, DOCKER_HOST=f"tcp://127.0.0.1:{silent_port}", STORE="s3://bucket/prefix")
    assert findings["engine"].state is State.BROKEN
    assert findings["store"].state is State.BROKEN


@pytest.mark.parametrize(
    ("config", "state", "detail"),
    [
        (None, State.MISSING, "no "),
        ("{}", State.MISSING, "none in "),
        ('{"auths": {}}', State.MISSING, "none in "),
        ('{"auths": {"hidden.example": {"auth": "aHVzaDpodXNo"}, "b": {}}}', State.HERE, "2 ("),
        ('{"credHelpers": {"hidden.example": "ecr-login"}}', State.HERE, "1 ("),
        ('{"auths": {"hidden.example": {}}, "credsStore": "desktop"}', State.HERE, "1 in a credential store ("),
        ('{"credsStore": "desktop"}', State.HERE, "0 in a credential store ("),
        ('{"auths": 3}', State.BROKEN, "cannot read "),
        ("[]", State.BROKEN, "cannot read "),
        ('{"auths": aHVzaDpodXNo', State.BROKEN, "cannot read "),
    ],
)
def test_registry_logins_are_counted_and_not_shown(
    tmp_path: Path, config: str | None, state: State, detail: str
) -> None:
    folder = tmp_path / "docker-config"
    folder.mkdir()
    if config is not None:
        (folder / "config.json").write_text(config)
    found = probed(tmp_path, DOCKER_CONFIG=str(folder))["registry logins"]
    assert found.state is state
    assert found.detail.startswith(detail)
    for hidden in ("hidden.example", "aHVzaDpodXNo"):
        assert hidden not in json.dumps(as_data([found]))


def test_credentials_are_present_or_not_and_never_shown(tmp_path: Path) -> None:
    names = (
        "PYPI_TOKEN",
        "DOCKERHUB_USERNAME",
        "DOCKERHUB_TOKEN",
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
    )
    findings = probed(tmp_path, **dict.fromkeys(names, "hush-hush"))
    for name in ("PYPI_TOKEN", "DOCKERHUB_USERNAME + DOCKERHUB_TOKEN", "AWS credentials"):
        assert findings[name].state is State.HERE
    assert "hush" not in json.dumps(as_data(list(findings.values())))
    half = probed(tmp_path, DOCKERHUB_USERNAME="me")["DOCKERHUB_USERNAME + DOCKERHUB_TOKEN"]
    assert (half.state, half.detail) == (State.MISSING, "not set: DOCKERHUB_TOKEN")


@pytest.mark.parametrize("how", [{"AWS_PROFILE": "x"}, "credentials", "config"])
def test_aws_credentials_outside_the_environment_are_seen(tmp_path: Path, how: dict[str, str] | str) -> None:
    if isinstance(how, str):
        (tmp_path / ".aws").mkdir()
        (tmp_path / ".aws" / how).touch()
    assert probed(tmp_path, **(how if isinstance(how, dict) else {}))["AWS credentials"].state is State.HERE


@pytest.mark.parametrize("name", ["credentials", "config"])
@pytest.mark.parametrize(
    "junk", [b"\0\xff\xfe", b"aws_access_key_id = hush", b"[default]\nhush", b"[default\nhush", b"[a]\n[a]\n"]
)
def test_aws_files_that_cannot_be_read_are_no_credentials(tmp_path: Path, name: str, junk: bytes) -> None:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / name).write_bytes(junk)
    finding = probed(tmp_path)["AWS credentials"]
    assert finding.state is State.BROKEN
    assert f".aws/{name}" in finding.detail
    assert "hush" not in finding.detail


# The report

GOOD_VLLM = "environment_variables = {'VLLM_KNOWN': 1, 'VLLM_API_KEY': 2, 'VLLM_MARKED': 3}"
GOOD_OMNI = """
class Entry:
    def __init__(self, public, redact): self.is_public_omni, self.redact_value = public, redact
ENVIRONMENT_VARIABLE_INVENTORY = {
    'OMNI_PUBLIC': Entry(True, False), 'OMNI_INNER': Entry(False, False),
    'OMNI_MARKED': Entry(True, True), 'VLLM_MARKED': Entry(False, True), 'CUDA_MARKED': Entry(False, True),
}
"""


def library(folder: Path, vllm: str = GOOD_VLLM, omni: str = GOOD_OMNI) -> Path:
    for name, text in (
        ("vllm/__init__.py", ""),
        ("vllm/envs.py", vllm),
        ("vllm_omni/__init__.py", ""),
        ("vllm_omni/config/__init__.py", ""),
        ("vllm_omni/config/environment_variable_inventory.py", omni),
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


ENVIRONMENT = {
    "VLLM_KNOWN": "1",
    "VLLM_API_KEY": "hush",
    "VLLM_MARKED": "hush",
    "OMNI_PUBLIC": "2",
    "OMNI_INNER": "hidden",
    "OMNI_MARKED": "hush",
    "CUDA_MARKED": "hush",
    "CUDA_VISIBLE_DEVICES": "0,1",
    "NVIDIA_TOKEN": "hush",
    "MKL_NUM_THREADS": "4",
    "TORCH_HOME": "/t",
    "UNRELATED": "hidden",
    "BUILDKITE_BRANCH": "main\nline",
    "DOCKER_HOST": "tcp://me:hush@h:1",
    "AWS_ENDPOINT_URL": "https://k:hush@s3.example/?token=hush",
    "PYPI_TOKEN": "hush",
    "AWS_SECRET_ACCESS_KEY": "hush",
}


def chosen(home: Path, source: Path) -> Settings:
    return settings(home, OMNI_CI_PYTHON=sys.executable, OMNI_CI_SOURCE=str(source), **ENVIRONMENT)


@pytest.mark.parametrize(
    "name", ["OMNI_CI_STAGING", "OMNI_CI_PUBLIC", "HTTPS_PROXY", "DOCKER_HOST", "AWS_ENDPOINT_URL"]
)
@pytest.mark.parametrize("form", ["{}@h.example/x", "https://{}@h.example/x", "{}@h.example:1"])
def test_no_login_in_an_address_is_reported(tmp_path: Path, name: str, form: str) -> None:
    text = report_text(settings(tmp_path, **{name: form.format("me:hush")}), [])
    assert f"{name}={form.format('***')}" in text
    assert "hush" not in text


def test_the_report_follows_the_librarys_rules(tmp_path: Path) -> None:
    text = report_text(chosen(tmp_path, library(tmp_path / "lib")), [])
    shown = text.partition("[environment]\n")[2].splitlines()
    ours = [line for line in shown if not line.startswith("OMNI_CI_")]
    assert ours == [
        "AWS_ENDPOINT_URL=https://***@s3.example/?token=***",
        "BUILDKITE_BRANCH=main\\nline",
        "CUDA_VISIBLE_DEVICES=0,1",
        "DOCKER_HOST=tcp://***@h:1",
        "MKL_NUM_THREADS=4",
        "OMNI_PUBLIC=2",
        "TORCH_HOME=/t",
        "VLLM_KNOWN=1",
    ]
    assert "hush" not in text
    assert "hidden" not in text


def test_the_report_names_the_tool_the_machine_and_the_findings(tmp_path: Path) -> None:
    found = Finding("store", State.BROKEN, "https://me:hush@host is broken", ("x",), "y")
    lines = report_text(chosen(tmp_path, library(tmp_path / "lib")), [found]).splitlines()
    assert lines[0].startswith("tool: omni-ci/")
    assert "store: broken: https://***@host is broken" in lines
    assert any(line.startswith("invoke==") for line in lines)


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        ("raise ImportError('no such gpu')", "vllm_omni: ImportError: no such gpu"),
        ("raise SystemExit(3)", "vllm_omni: SystemExit: 3"),
        ("raise KeyboardInterrupt", "vllm_omni: KeyboardInterrupt"),
        ("ENVIRONMENT_VARIABLE_INVENTORY = 3", "vllm_omni: AttributeError"),
        ("this is no python", "vllm_omni: SyntaxError"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "ended with exit code 139"),
        ("import os; os._exit(0)", "ended with exit code 0"),
        ("import time; time.sleep(600)", "ended with exit code 124"),
    ],
)
def test_a_broken_library_does_not_stop_the_report(tmp_path: Path, broken: str, reason: str) -> None:
    timeout = 2.0 if "sleep" in broken else 60.0
    inventory = ask_library(chosen(tmp_path, library(tmp_path / "lib", omni=broken)), timeout=timeout)
    assert any(reason in said for said in inventory.failed)
    kept = reportable(chosen(tmp_path, tmp_path), inventory)
    assert kept["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert not {"VLLM_API_KEY", "PYPI_TOKEN", "NVIDIA_TOKEN"} & set(kept)


def test_noise_of_the_librarys_imports_is_not_taken_for_the_answer(tmp_path: Path) -> None:
    noisy = "import sys; print('INFO {\"known\": []}', end=''); print('warn', file=sys.stderr)\n" + GOOD_OMNI
    inventory = ask_library(chosen(tmp_path, library(tmp_path / "lib", omni=noisy)))
    assert "OMNI_PUBLIC" in inventory.known
    assert inventory.failed == ()


def test_half_a_library_answers_for_its_half(tmp_path: Path) -> None:
    inventory = ask_library(chosen(tmp_path, library(tmp_path / "lib", vllm="raise OSError('x')")))
    assert "OMNI_PUBLIC" in inventory.known
    assert "OMNI_MARKED" in inventory.redacted
    assert inventory.failed == ("vllm: OSError: x",)


def test_no_python_or_a_wrong_one_is_a_reason(tmp_path: Path) -> None:
    assert ask_library(settings(tmp_path, PATH="/nowhere")).failed == ("no test python",)
    assert "no such python: python9" in ask_library(settings(tmp_path, OMNI_CI_PYTHON="python9")).failed[0]
    assert "does not exist" in ask_library(chosen(tmp_path, tmp_path / "nowhere")).failed[0]


def test_the_library_is_never_imported_here(tmp_path: Path) -> None:
    code = (
        "import sys; from tasks.support.settings import load; from tasks.support.doctor_report import report_text\n"
        "report_text(load(python=sys.executable, source=sys.argv[1]), [])\n"
        "print([name for name in sys.modules if name.startswith('vllm')])"
    )
    source = library(tmp_path / "lib")
    environment = {"PATH": PATH, "PYTHONPATH": f"{CHECKOUT}:{source}"}
    done = subprocess.run(
        [sys.executable, "-c", code, str(source)], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_an_agent_on_path_is_asked_for_its_version(tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "buildkite-agent"
    program.write_text("#!/bin/sh\necho buildkite-agent version 3.138.3+12345\n")
    program.chmod(0o755)
    findings = probed(tmp_path, PATH=f"{folder}:{PATH}")
    assert findings["buildkite-agent"].detail == "3.138.3+12345"
