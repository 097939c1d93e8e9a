"""What every caller of ``invoke`` may rely on: listings, exit codes, one-line errors, dry runs."""

from __future__ import annotations

import json
import os
import re
import shlex
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


@pytest.mark.slow
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
    # Of a task with two values invoke itself wants both before it calls the task.
    after = invoke(name, *["--help"] * max(len(tasks.ns[name].positional), 1))
    assert after.code == 0
    assert "Docstring:" in after.out
    assert "error" not in after.err


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith(("wheels.", "release."))])
def test_every_wheels_and_release_task_shows_an_example_with_its_own_options(name: str) -> None:
    task = tasks.ns[name]
    line = (task.__doc__ or "").strip().splitlines()[-1]
    words = shlex.split(line.removeprefix("Example: invoke "))
    assert words[0] == name
    assert len(words) > 1 + len(task.positional)
    assert len([word for word in words[1 : 1 + len(task.positional)] if not word.startswith("-")]) == len(
        task.positional
    )
    flags = {flag for argument in task.get_arguments() for flag in (f"--{argument.name.replace('_', '-')}",)}
    assert {word for word in words if word.startswith("--")} <= flags


@pytest.mark.parametrize(
    "words",
    [
        ["wheels.upload", "--commit", "abc"],
        ["wheels.index", "nigthly"],
        ["wheels.yank", "no version"],
        ["wheels.rollback", "nightly", "--to", "x"],
        ["wheels.rollback", "f" * 40],
        ["wheels.prune", "--keep", "x"],
        ["wheels.adopt", "--commit", "abc"],
        ["wheels.publish"],
        ["wheels.publish", "--version", "no version"],
    ],
)
def test_a_writing_task_names_its_profile_before_it_finds_fault(
    words: list[str], invoke: Invoke, tmp_path: Path
) -> None:
    for profile in ("local", "production"):
        answer = invoke(*words, "--store", str(tmp_path / "store"), "--profile", profile)
        assert answer.err.startswith(f"profile {profile}: "), answer.err
        assert answer.code in (64, 78), answer.err


def _release(invoke: Invoke, tmp_path: Path) -> list[str]:
    """Publish two nightlies with the real tasks, and return the words that name their store."""
    store = ["--store", str(tmp_path / "store")]
    for number, commit in (("1", "a" * 40), ("2", "b" * 40)):
        wheel = make_wheel(tmp_path / number, name="vllm-omni", version=f"0.{number}")
        moment = ["--commit-time", f"2026-08-0{number}T00:00:00Z"]
        assert invoke("wheels.upload", "--commit", commit, "--wheel", str(wheel), *moment, *store).code == 0
        assert invoke("wheels.index", "nightly", "--commit", commit, *store).code == 0
    return store


@pytest.mark.slow
def test_what_moves_a_view_says_to_machines_what_it_holds_then(invoke: Invoke, tmp_path: Path) -> None:
    store = _release(invoke, tmp_path)
    where = (tmp_path / "store").as_uri()
    wheels = {commit: f"{commit * 40}/vllm_omni-0.{n}-py3-none-any.whl" for commit, n in (("a", 1), ("b", 2))}
    for words, code, commit, revision in (
        (["wheels.rollback", "nightly"], 0, "a", 3),
        (["wheels.rollback", "nightly"], 66, None, None),
        (["wheels.index", "nightly", "--commit", "b" * 40], 76, "a", 3),
        (["wheels.rollback", "nightly", "--to", "2"], 0, "b", 4),
        (["wheels.index", "nightly", "--commit", "b" * 40], 0, "b", 4),
    ):
        answer = invoke(*words, *store, "--json")
        assert answer.code == code, answer.err
        if commit is None:
            assert "already shows revision 1, the oldest" in answer.err
            assert "a" * 40 in answer.err, "the table of revisions is shown with the error"
            continue
        document = json.loads(answer.out)
        (view,) = document["views"]
        assert document["store"] == where
        held = {name: view[name] for name in ("view", "commit", "revision", "files")}
        assert held == {"view": "nightly", "commit": commit * 40, "revision": revision, "files": [wheels[commit]]}
        if code:
            reason = "was rolled back"
            assert answer.err.count(reason) == 1, "a reason is said once"
            assert "invoke wheels.rollback nightly --to 2" in answer.err
    yanked = json.loads(invoke("wheels.yank", "0.2", "--reason", "x", *store, "--json").out)
    assert (yanked["store"], yanked["version"], yanked["reason"]) == (where, "0.2", "x")
    assert yanked["files"] == [{"key": wheels["b"], "commit": "b" * 40, "version": "0.2", "changed": True}]
    assert {"view": "nightly", "revision": 4} in yanked["views"]


@pytest.mark.slow
def test_a_prune_says_to_machines_what_is_gone_and_a_dry_run_shows_what_would_be_refused(
    invoke: Invoke, tmp_path: Path
) -> None:
    store = _release(invoke, tmp_path)
    wheel = str(make_wheel(tmp_path / "3", name="vllm-omni", version="0.3"))
    assert invoke("wheels.upload", "--commit", "c" * 40, "--wheel", wheel, *store).code == 0
    prune = ["wheels.prune", "--younger-than", "0d", *store]
    answer = invoke(*prune, "--dry-run")
    assert answer.code == 65
    lines = answer.err.splitlines()
    (error,) = [n for n, line in enumerate(lines) if line.startswith("error: a real run would be refused: this would")]
    (row,) = [n for n, line in enumerate(lines) if line.startswith("remove") and "c" * 40 in line]
    assert row < error
    assert "uploaded less than a minute ago" in lines[row]
    assert invoke(*prune).code == 65
    pruned = json.loads(invoke(*prune, "--max-share", "50%", "--json").out)
    assert pruned["store"] == (tmp_path / "store").as_uri()
    assert pruned["commits"] == ["c" * 40]
    assert pruned["files"] == [f"{'c' * 40}/vllm_omni-0.3-py3-none-any.whl"]


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
        "a view without its v": (
            ["wheels.index", "0.1.1", "--commit", COMMIT, "--store", store],
            {},
            64,
            "mean v0.1.1?",
        ),
        "no store to serve": (["wheels.serve", "--store", store], {}, 66, f"there is no folder {store}"),
        "no store to check": (["wheels.check", "nightly", "--store", store], {}, 66, f"there is no folder {store}"),
        "no store to adopt": (["wheels.adopt", "--store", store], {}, 66, f"there is no folder {store}"),
        "an empty store to adopt": (["wheels.adopt", "--store", str(tmp_path / "home")], {}, 66, "there is nothing in"),
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
        "view never published": (["wheels.check", "nightly", "--store", str(tmp_path / "home")], {}, 66, "nightly"),
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
    "a view without its v", "no store to serve", "no store to check", "no store to adopt", "an empty store to adopt",
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
        said.extend(child.stderr.readline() for _ in range(3))

    code, rest = _interrupted(argv, serving)
    assert code == 0
    assert "http://127.0.0.1:" in said[0]
    assert re.fullmatch(r"  http://127\.0\.0\.1:\d+/browse\.html\n", said[2])
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


def test_a_run_loads_the_tasks_that_it_names_and_a_wrong_name_is_still_one(invoke: Invoke) -> None:
    assert invoke("pipelines.nope").err == "No idea what 'pipelines.nope' is!\n"
    assert invoke("nope.check").err == "No idea what 'nope.check' is!\n"
    assert "pipelines.check" in invoke("--complete", "--", "invoke pipelines.").out
