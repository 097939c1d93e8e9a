"""The pipelines tasks as a person and a build call them, on real repositories: outputs, exit codes, one-line errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.agent_standin import Agent
from tests.contract.conftest import Invoke
from tests.git_scenes import Repository

pytestmark = pytest.mark.slow  # together these take longer than the fast set may

READY = """
steps:
  - group: ":card_index_dividers: E2E Test"
    key: e2e
    depends_on: upload-ready-pipeline
    steps:
      - label: Wan22
        key: wan22
        mirror_hardwares: h100_1
        timeout_in_minutes: 40
        source_file_dependencies: [area:wan22]
        commands: ["pytest -s -v tests/e2e/online_serving/test_wan22.py -m 'core_model and H100'"]
      - label: TTS
        key: tts
        mirror_hardwares: l4_1
        timeout_in_minutes: 20
        source_file_dependencies: [vllm_omni/tts/]
        imports: true
        commands: ["pytest -s -v tests/e2e/online_serving/test_tts.py -m 'core_model and L4'"]
  - label: Simple
    key: simple
    mirror_hardwares: l4_1
    timeout_in_minutes: 20
    commands: ["pytest -s -v tests/unit -m 'core_model and cpu'", "echo $$HOME"]
"""
FILE = ".buildkite/test-ready.yml"
BUILD = {
    "BUILDKITE": "true",
    "BUILDKITE_BRANCH": "topic",
    "BUILDKITE_PIPELINE_SLUG": "omni",
    "BUILDKITE_PULL_REQUEST": "7",
    "BUILDKITE_PULL_REQUEST_BASE_BRANCH": "main",
    "BUILDKITE_REPO": "https://git.example/them/library.git",
    "BUILDKITE_PULL_REQUEST_REPO": "https://git.example/them/library.git",
    "BUILDKITE_PULL_REQUEST_LABELS": "ready",
    "BUILDKITE_STEP_KEY": "upload-ready-pipeline",
}


@pytest.fixture
def library(tmp_path: Path) -> Repository:
    """Return a checkout whose branch ``topic`` changes what the text-to-speech test imports."""
    origin = Repository.new(tmp_path / "origin")
    origin.git("config", "receive.denyCurrentBranch", "ignore")
    origin.commit(
        {
            FILE: READY,
            "vllm_omni/__init__.py": "",
            "vllm_omni/tts/__init__.py": "",
            "vllm_omni/tts/talker.py": "from vllm_omni.common import snake\n",
            "vllm_omni/common/__init__.py": "",
            "vllm_omni/common/snake.py": "a = 1\n",
            "vllm_omni/diffusion/models/wan2_2/pipeline.py": "a = 1\n",
            "tests/e2e/online_serving/test_tts.py": "from vllm_omni.tts import talker\n",
            "tests/e2e/online_serving/test_wan22.py": "",
            "docs/a.md": "words\n",
        }
    )
    clone = origin.clone(tmp_path / "vllm-omni")
    clone.branch("topic")
    clone.commit({"vllm_omni/common/snake.py": "a = 2\n", "docs/a.md": "more words\n"})
    return clone


def environment(library: Repository, agent: Agent | None = None, **more: str) -> dict[str, str]:
    """Return what a build of the checkout's HEAD has in its environment."""
    found = {**BUILD, "BUILDKITE_COMMIT": library.head, "OMNI_CI_SOURCE": str(library.path), **more}
    if agent is not None:
        found["PATH"] = f"{agent.path}:/usr/bin:/bin"
    return found


def decided(out: str) -> dict[str, tuple[bool, str, str]]:
    steps: list[dict[str, Any]] = json.loads(out)["steps"]
    return {step["name"]: (step["run"], step["why"], step["reason"]) for step in steps}


def test_explain_answers_why_for_any_commit_of_a_history(invoke: Invoke, library: Repository) -> None:
    where = ("--source", str(library.path))
    now = invoke("pipelines.explain", "--cell", "cuda_ready", "--json", *where)
    assert now.code == 0, now.err
    assert decided(now.out) == {
        "wan22": (False, "unchanged", "nothing under area wan22 changed"),
        "tts": (
            True,
            "imports",
            "tests/e2e/online_serving/test_tts.py -> vllm_omni/tts/talker.py -> vllm_omni/common/snake.py",
        ),
        "simple": (True, "always", "no path rules: always"),
    }
    assert "cuda_ready · 2 changed files against origin/main (merge base " in now.err.splitlines()[0]
    last_line = now.err.splitlines()[-1]
    assert last_line.startswith(
        "2 of 3 steps · nothing quarantined · gates were not judged: this is no build · image: "
    )

    library.commit({"vllm_omni/diffusion/models/wan2_2/pipeline.py": "a = 2\n"})
    second = library.head
    library.commit({"docs/a.md": "even more\n"})
    past = invoke("pipelines.explain", "--file", FILE, "--json", "--commit", second, "--base", f"{second}^", *where)
    assert decided(past.out)["wan22"] == (
        True,
        "area",
        "vllm_omni/diffusion/models/wan2_2/pipeline.py is in area wan22",
    )
    last = invoke("pipelines.explain", "--file", FILE, "--json", "--base", second, *where)
    assert {row[:2] for row in decided(last.out).values()} == {(False, "skipped")}


def test_render_prints_the_pipeline_and_shows_what_differs(invoke: Invoke, library: Repository, tmp_path: Path) -> None:
    words = ("pipelines.render", "--file", FILE, "--source", str(library.path))
    answer = invoke(*words)
    assert answer.code == 0, answer.err
    document = yaml.safe_load(answer.out)
    assert [step.get("key") for step in document["steps"]] == ["e2e", "simple"]
    assert [step["key"] for step in document["steps"][0]["steps"]] == ["tts"]
    assert not any(word in answer.out for word in ("source_file_dependencies", "mirror_hardwares", "imports:"))
    assert "echo $$HOME" in answer.out
    assert invoke(*words).out == answer.out
    assert json.loads(invoke(*words, "--json").out) == document

    before = tmp_path / "before.yml"
    before.write_text(answer.out)
    differing = invoke(*words, "--all", "--against", str(before), "--json")
    assert json.loads(differing.out)["changes"] == [
        {"how": "added", "name": ":card_index_dividers: E2E Test › wan22", "details": []}
    ] or json.loads(differing.out)["changes"] == [{"how": "added", "name": "e2e › wan22", "details": []}]
    same = invoke("pipelines.diff", str(before), str(before))
    assert (same.code, same.out, same.err) == (0, "", "the same pipeline\n")


def test_upload_hands_over_what_render_prints_and_annotates_what_explain_says(
    invoke: Invoke, library: Repository, tmp_path: Path
) -> None:
    agent = Agent(tmp_path / "agent")
    env = environment(library, agent)
    rendered = invoke("pipelines.render", "--cell", "cuda_ready", env=env)
    text = invoke("pipelines.explain", "--cell", "cuda_ready", "--annotation", env=env)
    answer = invoke("pipelines.upload", "--cell", "cuda_ready", env=env)
    assert answer.code == 0, answer.err
    assert answer.err.splitlines()[0] == "profile local: nothing public will change · cuda_ready"
    upload, annotate = agent.calls
    assert upload.argv == ("pipeline", "upload", "--reject-secrets")
    assert upload.stdin == rendered.out
    assert annotate.argv[0] == "annotate"
    assert annotate.stdin.strip() == text.out.strip()


def test_a_dry_run_of_an_upload_calls_no_agent(invoke: Invoke, library: Repository, tmp_path: Path) -> None:
    agent = Agent(tmp_path / "agent")
    answer = invoke("pipelines.upload", "--cell", "cuda_ready", "--dry-run", "--json", env=environment(library, agent))
    assert answer.code == 0, answer.err
    assert [row["action"] for row in json.loads(answer.out)["actions"]] == ["upload", "annotate"]
    assert agent.calls == []


@pytest.mark.parametrize(
    ("build", "why"),
    [
        (("ready", "docs/a.md"), "skipped"),
        (("other", "vllm_omni/tts/talker.py"), "gate"),
        (("ready,ready-run-all-tests", "docs/a.md"), None),
    ],
)
def test_nothing_left_is_an_annotation_and_success(
    invoke: Invoke, library: Repository, tmp_path: Path, build: tuple[str, str], why: str | None
) -> None:
    labels, changed = build
    library.branch("words", "origin/main")
    library.commit({changed: "words = 1\n"})
    agent = Agent(tmp_path / "agent")
    env = environment(library, agent, BUILDKITE_PULL_REQUEST_LABELS=labels)
    answer = invoke("pipelines.upload", "--cell", "cuda_ready", "--json", env=env)
    assert answer.code == 0, answer.err
    assert {row[1] for row in decided(answer.out).values() if not row[0]} == ({why} if why else set())
    assert [call.argv[0] for call in agent.calls] == (["annotate"] if why else ["pipeline", "annotate"])


def test_a_fork_is_told_by_the_base_branchs_file(invoke: Invoke, library: Repository) -> None:
    library.commit({FILE: "steps:\n  - {key: theirs, command: evil, agents: {queue: q}}\n"})
    env = environment(library, BUILDKITE_PULL_REQUEST_REPO="https://git.example/somebody/library.git")
    answer = invoke("pipelines.explain", "--cell", "cuda_ready", "--json", env=env)
    assert answer.code == 0, answer.err
    assert set(decided(answer.out)) == {"wan22", "tts", "simple"}
    own = invoke("pipelines.explain", "--cell", "cuda_ready", "--json", env=environment(library))
    assert set(decided(own.out)) == {"theirs"}


def test_main_records_what_it_uploaded_and_the_next_build_compares_with_that(
    invoke: Invoke, library: Repository, tmp_path: Path
) -> None:
    agent, store = Agent(tmp_path / "agent"), (tmp_path / "store").as_uri()
    library.checkout("main")
    main = {"BUILDKITE_BRANCH": "main", "BUILDKITE_PULL_REQUEST": "false", "WEEKLY": "1"}
    first = environment(library, agent, OMNI_CI_STORE=store, **main)
    assert invoke("pipelines.upload", "--cell", "cuda_ready", env=first).code == 0
    base = library.head
    library.commit({"vllm_omni/tts/talker.py": "a = 3\n"})
    library.commit({"docs/a.md": "last\n"})
    library.git("push", "-q", "origin", "main")
    second = environment(library, agent, OMNI_CI_STORE=store, **main)
    answer = invoke("pipelines.explain", "--cell", "cuda_ready", "--json", env=second)
    assert f"against {base[:7]}, the newest ancestor whose pipeline was uploaded" in answer.err
    assert decided(answer.out)["tts"][:2] == (True, "path")


def test_a_build_with_other_groups_open_is_no_base_to_compare_with(
    invoke: Invoke, library: Repository, tmp_path: Path
) -> None:
    """What a shut gate held back has not seen the change: only builds with the same groups open tell."""
    agent, store = Agent(tmp_path / "agent"), (tmp_path / "store").as_uri()
    library.checkout("main")
    main = {"BUILDKITE_BRANCH": "main", "BUILDKITE_PULL_REQUEST": "false"}
    weekly = ".buildkite/cuda/test-weekly.yml"
    group = (
        "- {group: %s, steps: [{label: %s, command: x, agents: {queue: q}, source_file_dependencies: [vllm_omni/]}]}\n"
    )
    library.commit({weekly: "steps:\n" + group % ("E2E Test", "e2e") + group % ("Perf Test", "perf")})
    library.git("push", "-q", "origin", "main")
    critical = environment(library, agent, OMNI_CI_STORE=store, NON_CRITICAL="1", **main)
    assert invoke("pipelines.upload", "--cell", "cuda_weekly", env=critical).code == 0
    narrow = environment(library, agent, OMNI_CI_STORE=store, WEEKLY="1", **main)
    assert invoke("pipelines.upload", "--cell", "cuda_weekly", "--base", "HEAD", env=narrow).code == 0
    base = library.head
    library.commit({"docs/a.md": "last\n"})
    library.git("push", "-q", "origin", "main")
    for schedule, told in (("WEEKLY", False), ("NON_CRITICAL", True)):
        env = environment(library, agent, OMNI_CI_STORE=store, **main, **{schedule: "1"})
        answer = invoke("pipelines.explain", "--cell", "cuda_weekly", env=env)
        assert answer.code == 0, answer.err
        assert (f"against {base[:7]}, the newest ancestor whose pipeline was uploaded" in answer.err) is told, (
            answer.err
        )


def test_bootstrap_adds_the_image_and_the_open_tiers(invoke: Invoke, library: Repository, tmp_path: Path) -> None:
    agent = Agent(tmp_path / "agent")
    answer = invoke("pipelines.bootstrap", "cuda", env=environment(library, agent))
    assert answer.code == 0, answer.err
    upload, annotate = agent.calls
    keys = [step["key"] for step in yaml.safe_load(upload.stdin)["steps"]]
    assert keys == ["image-build", "upload-ready-pipeline"]
    assert annotate.argv[0] == "annotate"
    shown = invoke("pipelines.bootstrap", "cuda", "--dry-run", env=environment(library, agent))
    assert yaml.safe_load(shown.out) == yaml.safe_load(upload.stdin)
    closed = invoke(
        "pipelines.bootstrap", "cuda", env=environment(library, agent, BUILDKITE_PULL_REQUEST_LABELS="nothing")
    )
    assert closed.code == 0
    assert [call.argv[0] for call in agent.calls[2:]] == ["annotate"]


def test_check_fails_with_65_on_an_error_and_with_warnings_when_strict(invoke: Invoke, library: Repository) -> None:
    words = ("pipelines.check", "--file", FILE, "--source", str(library.path), "--today", "2026-01-31", "--json")
    fine = invoke(*words)
    assert fine.code == 0, fine.err
    text = READY.replace("timeout_in_minutes: 40", "timeout_in_minuts: 40")
    library.write({FILE: text})
    wrong = invoke(*words)
    assert wrong.code == 65
    assert any(FILE in row["where"] and row["level"] == "error" for row in json.loads(wrong.out)["findings"])
    library.write({FILE: READY.replace("        timeout_in_minutes: 40\n", "")})
    assert invoke(*words).code == 0
    assert invoke(*words, "--strict").code == 65


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("pipelines.render",), 64, "neither --cell nor --file is given"),
        (("pipelines.render", "--cell", "a", "--file", "b"), 64, "--cell and --file exclude each other"),
        (("pipelines.render", "--cell", "cuda_redy"), 64, "did you mean cuda_ready"),
        (("pipelines.render", "--file", FILE, "--e2e", "--only-group", "X"), 64, "--e2e and --only-group exclude"),
        (("pipelines.render", "--file", FILE, "--e2e", "--step", "X"), 64, "--e2e and --step exclude"),
        (
            ("pipelines.render", "--file", FILE, "--only-group", "X"),
            64,
            "the groups are: :card_index_dividers: E2E Test",
        ),
        (("pipelines.render", "--file", FILE, "--step", "simpel"), 64, "did you mean simple"),
        (("pipelines.render", "--file", FILE, "--inline"), 64, "has its commands written out already"),
        (("pipelines.render", "--file", "gone.yml"), 66, "there is no file gone.yml"),
        (("pipelines.render", "--cell", "npu_ready"), 66, "npu_ready has no pipeline in"),
        (("pipelines.render", "--file", FILE, "--against", "gone.yml"), 66, "there is no file gone.yml"),
        (("pipelines.explain", "--file", FILE, "--annotation", "--json"), 64, "--annotation and --json exclude"),
        (("pipelines.explain", "--file", FILE, "--base", "no-such"), 66, "--base names no commit"),
        (("pipelines.upload", "--file", FILE), 78, "this is no Buildkite build"),
        (("pipelines.bootstrap", "cuda"), 78, "this is no Buildkite build"),
        (("pipelines.bootstrap", "coda"), 64, "did you mean cuda"),
        (("pipelines.bootstrap", "rocm", "--tier", "nightly"), 64, "unknown tier of rocm 'nightly'"),
        (("pipelines.bootstrap", "rocm", "--tier", "ready", "--tier", "ready"), 64, "named twice"),
        (("pipelines.check", "--today", "tomorrow"), 64, "--today takes a day"),
        (("pipelines.install", "--check", "--dry-run"), 64, "--check and --dry-run exclude"),
        (("pipelines.install", "--check"), 65, "has no .buildkite/automation.lock"),
        (("pipelines.diff", "gone.yml", "gone.yml"), 66, "there is no file gone.yml"),
    ],
)
def test_what_cannot_be_meant_is_one_line(
    invoke: Invoke, library: Repository, words: tuple[str, ...], code: int, said: str
) -> None:
    answer = invoke(*words, env={"OMNI_CI_SOURCE": str(library.path)})
    assert (answer.code, answer.out) == (code, ""), answer.err
    assert said in answer.err
    assert "Traceback" not in answer.err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("steps: ~\n", f"{FILE}:1: "),
        ("steps: []\n", f"{FILE}:1: "),
        ("steps:\n  - 3\n", f"{FILE}:2: "),
        ("steps:\n\t- a\n", f"{FILE}:2"),
        ("steps:\n  - {key: a, command: x, key: b}\n", f"{FILE}:2"),
        ("a: &a [x, x]\nb: &b [*a, *a]\n", FILE),
        ("steps:\n  - {key: a, command: 'echo ${!V}', agents: {queue: q}}\n", f"{FILE}:2"),
        ("steps:\n  - {key: a, command: a, agents: {queue: q}, source_file_dependencies: ~}\n", f"{FILE}:2: "),
    ],
)
def test_a_broken_file_is_one_line_with_its_place_and_never_an_empty_pipeline(
    invoke: Invoke, library: Repository, text: str, said: str
) -> None:
    library.write({FILE: text})
    answer = invoke("pipelines.render", "--file", FILE, env={"OMNI_CI_SOURCE": str(library.path)})
    assert (answer.code, answer.out) == (65, ""), answer.err
    assert f"error: {said}" in answer.err
    assert "Traceback" not in answer.err


def test_hostile_names_of_branches_and_labels_stay_names(invoke: Invoke, library: Repository, tmp_path: Path) -> None:
    agent = Agent(tmp_path / "agent")
    evil = "$(touch pwned); `id` ${HOME} | <b> 'x' \"y\" : - !"
    env = environment(library, agent, BUILDKITE_BRANCH=evil, BUILDKITE_PULL_REQUEST_LABELS=f"ready,{evil}")
    answer = invoke("pipelines.upload", "--cell", "cuda_ready", env=env, cwd=tmp_path)
    assert answer.code == 0, answer.err
    assert "pwned" not in agent.calls[0].stdin
    assert not (tmp_path / "pwned").exists()
