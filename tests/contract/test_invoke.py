"""What every caller of ``invoke`` may rely on: listings, exit codes, one-line errors, dry runs."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

import tasks
from tests.contract.conftest import ROOT, Invoke, bare_site
from tests.wheel_factory import make_wheel

COMMIT = "a" * 40
NAMES = sorted(tasks.ns.task_names)


def _check_options(name: str, text: str) -> None:
    for line in text.partition("Options:\n")[2].splitlines():
        if re.match(r"  (-\w, )?--", line):
            assert re.match(r"  --[\w-]+(\[=\w+\]|=\w+)?\s{2,}\S|  --[\w-]+(=\w+)?$", line), (name, line)


def test_every_listing_works_where_only_invoke_is_installed(tmp_path: Path) -> None:
    site = bare_site(tmp_path / "site", "invoke")
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(site), "HOME": str(tmp_path)}

    def run(*words: str) -> str:
        argv = [sys.executable, "-S", "-m", "invoke", *words]
        done = subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), words
        assert done.stdout.strip(), words
        return done.stdout

    run("--list", "--list-format", "nested")
    run("--list", "wheels")
    run("--print-completion-script", "bash")
    listed = json.loads(run("--list", "--list-format", "json"))
    assert {task["name"] for task in listed["tasks"]} == {name for name in NAMES if "." not in name}
    text = run("--list")
    for name in NAMES:
        assert re.search(rf"^  {re.escape(name)} ", text, re.MULTILINE)
        _check_options(name, run("--help", name))


@pytest.mark.parametrize("folder", ["tasks", "tasks/wheels", "tests"])
def test_listing_works_from_inside_the_checkout(folder: str) -> None:
    argv = [sys.executable, "-m", "invoke", "--list"]
    done = subprocess.run(argv, cwd=ROOT / folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "wheels.upload" in done.stdout


@pytest.mark.parametrize("name", NAMES)
def test_list_lines_are_whole_sentences(name: str) -> None:
    line = (tasks.ns[name].__doc__ or "").splitlines()[0]
    assert line.endswith(".")
    assert len(line) <= 72


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_help_after_a_task_is_help(name: str, invoke: Invoke) -> None:
    after = invoke(name, "--help")
    assert after.code == 0
    assert "Docstring:" in after.out
    assert "error" not in after.err


@pytest.mark.parametrize("word", ["-x", "--dry-rn", "-"])
def test_an_option_is_never_taken_for_a_value(word: str, invoke: Invoke, tmp_path: Path) -> None:
    answer = invoke("wheels.check", word, env={"OMNI_CI_STORE": str(tmp_path / "store")})
    assert answer.code == 64
    assert repr(word) in answer.err
    assert "invoke --help wheels.check" in answer.err


def _errors(tmp_path: Path) -> dict[str, tuple[list[str], dict[str, str], int, str]]:
    store = str(tmp_path / "store")
    corrupt = tmp_path / "vllm_omni-1.0-py3-none-any.whl"
    corrupt.write_bytes(b"not a zip")
    good = str(make_wheel(tmp_path / "wheels", name="vllm-omni", version="1.0"))
    upload = ["wheels.upload", "--store", store, "--commit", COMMIT]
    return {
        "unknown view": (["wheels.index", "nigthly", "--commit", COMMIT, "--store", store], {}, 64, "mean nightly?"),
        "commit too short": (["wheels.upload", "--commit", "abc123", "--store", store], {}, 64, "abc123"),
        "upper-case commit": (["wheels.upload", "--commit", "A" * 40, "--store", store], {}, 64, "A" * 40),
        "empty commit": (["wheels.upload", "--commit=", "--store", store], {}, 64, "commit"),
        "unknown profile": ([*upload, "--wheel", good, "--profile", "prod"], {}, 64, "production"),
        "unknown scheme": (["wheels.check", "nightly", "--store", "ftp://x/y"], {}, 64, "ftp"),
        "corrupt wheel": ([*upload, "--wheel", str(corrupt)], {}, 65, corrupt.name),
        "no such wheel": (
            [*upload, "--wheel", str(tmp_path / "no-1.0-py3-none-any.whl")],
            {},
            66,
            "no-1.0-py3-none-any",
        ),
        "empty dist": ([*upload, "--dist", str(tmp_path / "home")], {}, 65, "home"),
        "view never published": (["wheels.check", "nightly", "--store", store], {}, 66, "nightly"),
        "commit never uploaded": (["wheels.index", "nightly", "--commit", COMMIT, "--store", store], {}, 66, COMMIT),
        "rollback of nothing": (["wheels.rollback", "nightly", "--store", store], {}, 66, "nightly"),
        "unknown variable": (["wheels.check", "nightly"], {"OMNI_CI_PROFIL": "ci"}, 78, "OMNI_CI_PROFILE"),
        "local and a bucket": (
            ["wheels.upload", "--commit", COMMIT, "--wheel", good, "--store", "s3://some-bucket/omni"],
            {},
            78,
            "profile local",
        ),
        "ci and a moving view": (
            ["wheels.index", "nightly", "--commit", COMMIT, "--store", store],
            {"OMNI_CI_PROFILE": "ci"},
            78,
            "profile ci",
        ),
        "ci and a clean-up": (["wheels.prune", "--store", store, "--profile", "ci"], {}, 78, "profile ci"),
        "publish under local": (["wheels.publish", "--version", "1.0", "--store", store], {}, 78, "profile local"),
        "not a number": (["wheels.rollback", "nightly", "--to", "x", "--store", store], {}, 64, "--to"),
        "no such port": (["wheels.serve", "--port", "many", "--store", store], {}, 64, "--port"),
        "unknown channel": (["release.rehearse", "weekly"], {}, 64, "nightly"),
        "unknown device": (["release.rehearse", "nightly", "--device", "tpu"], {}, 64, "tpu"),
        "no such source": (["wheels.build", "--source", str(tmp_path / "nowhere")], {}, 66, "nowhere"),
    }


CASES = [
    "unknown view", "commit too short", "upper-case commit", "empty commit", "unknown profile", "unknown scheme",
    "corrupt wheel", "no such wheel", "empty dist", "view never published", "commit never uploaded",
    "rollback of nothing", "unknown variable", "local and a bucket", "ci and a moving view", "ci and a clean-up",
    "publish under local", "not a number", "no such port", "unknown channel", "unknown device", "no such source",
]  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_foreseen_errors_have_a_code_one_line_and_no_traceback(case: str, invoke: Invoke, tmp_path: Path) -> None:
    words, environment, code, text = _errors(tmp_path)[case]
    answer = invoke(*words, env=environment)
    assert answer.code == code, answer.err
    errors = [line for line in answer.err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, answer.err
    assert text in answer.err
    assert "Traceback" not in answer.err
    assert answer.out == ""
    assert not (tmp_path / "store").exists(), "a refused command wrote something"


def test_every_error_case_is_tried(tmp_path: Path) -> None:
    assert set(CASES) == set(_errors(tmp_path))


@pytest.mark.parametrize("flag", ["--dry", "-R"])
def test_invokes_own_dry_flag_is_a_dry_run(flag: str, invoke: Invoke, tmp_path: Path) -> None:
    wheel = str(make_wheel(tmp_path / "wheels", name="vllm-omni", version="1.0"))
    store = tmp_path / "store"
    words = ["wheels.upload", "--commit", COMMIT, "--wheel", wheel, "--store", str(store)]
    words += ["--commit-time", "2026-08-28T03:00:00Z"]
    answer = invoke(flag, *words)
    assert answer.code == 0, answer.err
    assert "dry run" in answer.err
    assert not store.exists()
    assert invoke(*words, "--dry-run").err == answer.err


def test_dry_is_refused_where_a_task_has_no_dry_run(invoke: Invoke) -> None:
    answer = invoke("--dry", "wheels.check", "nightly")
    assert answer.code == 64
    assert "wheels.check has no --dry-run" in answer.err


def _interrupted(argv: list[str], ready: Callable[[subprocess.Popen[str]], object], **env: str) -> tuple[int, str]:
    """Start a task, wait until it is at work, press Ctrl-C, and return its exit code and what it said then."""
    environment = {**os.environ, **env}
    with subprocess.Popen(
        argv, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=environment, start_new_session=True
    ) as child:
        try:
            ready(child)
            os.killpg(child.pid, signal.SIGINT)
            _, said = child.communicate(timeout=30)
        finally:
            child.kill()
    return child.returncode, said


def test_interrupting_a_task_ends_with_130(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        code, said = _interrupted(
            [sys.executable, "-m", "invoke", "wheels.check", "nightly", "--store", "s3://some-bucket"],
            lambda _child: silent.accept(),
            AWS_ENDPOINT_URL=endpoint,
            AWS_ACCESS_KEY_ID="some-key",
            AWS_SECRET_ACCESS_KEY="some-secret",
        )
    assert (code, said) == (130, "interrupted; nothing is half-done, running it again is safe\n")


def test_a_server_ends_in_peace_with_ctrl_c(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "invoke", "wheels.serve", "--store", str(tmp_path)]
    said: list[str] = []

    def serving(child: subprocess.Popen[str]) -> None:
        assert child.stderr is not None
        said.extend(child.stderr.readline() for _ in range(2))

    code, rest = _interrupted(argv, serving)
    assert code == 0
    assert "http://127.0.0.1:" in said[0]
    assert rest == "stopped\n"


@pytest.mark.parametrize(
    "words",
    [
        ["wheels.upload", "--dist", ""],
        ["wheels.upload", "--wheel", ""],
        ["wheels.build", "--device="],
        ["wheels.yank", "1.0", "--reason", "x", "--project", ""],
        ["wheels.yank", ""],
        ["wheels.check", ""],
        ["wheels.prune", "--keep="],
        ["release.rehearse", "nightly", "--source", ""],
    ],
)
def test_an_empty_word_is_refused(words: list[str], invoke: Invoke) -> None:
    answer = invoke(*words)
    assert answer.code == 64, answer.err
    assert "is empty" in answer.err


def test_a_task_that_is_terminated_cleans_up_and_says_so_in_its_code(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "invoke", "wheels.serve", "--store", str(tmp_path)]
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True, cwd=ROOT) as child:
        try:
            assert child.stderr is not None
            child.stderr.readline()
            child.terminate()
            said = child.communicate(timeout=30)[1]
        finally:
            child.kill()
    assert child.returncode == 128 + signal.SIGTERM
    assert "Traceback" not in said


def test_no_module_shares_a_name_with_another_one() -> None:
    taken = set(sys.stdlib_module_names) | {name for name in packages_distributions() if not name.startswith("_")}
    taken -= {"tasks", "tests"}
    for module in (ROOT / "tasks").rglob("*.py"):
        if module.stem != "__init__":
            assert module.stem not in taken, module
    for package in (ROOT / "tasks").iterdir():
        assert package.name not in taken, package
