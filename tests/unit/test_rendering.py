"""What Buildkite gets: nothing of ours, presets written out, and the same bytes each time."""

from __future__ import annotations

import contextlib
import itertools
import json
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tasks.pipelines import rendering
from tasks.pipelines.amd_form import ordinary
from tasks.pipelines.build_facts import Build
from tasks.pipelines.model import NativeFile, Step
from tasks.pipelines.reading import read_native
from tasks.pipelines.rendering import render, to_json, to_yaml
from tasks.suites import presets
from tasks.support.errors import DataError
from tests.vendored_schema import faults, schema

ALL = presets.load()
BUILD = Build()
NATIVE = sorted((Path(__file__).parents[1] / "native").glob("*.yml"))


def native(text: str) -> NativeFile:
    return read_native(textwrap.dedent(text).encode(), "ready.yml")


def rendered(text: str, *, keep: Any = None, build: Build = BUILD) -> dict[str, Any]:
    file = native(text)
    steps = [step for _, step in file.steps()]
    return render([step for step in steps if keep is None or step.name in keep], file, ALL, build)


@pytest.mark.slow
@pytest.mark.parametrize("file", NATIVE, ids=lambda file: file.stem)
@pytest.mark.parametrize("fork", [False, True])
def test_every_native_file_becomes_a_pipeline_of_buildkites(file: Path, fork: bool) -> None:
    made = ordinary(read_native(file.read_bytes(), file.name), "amdproduction").file
    steps = [step for _, step in made.steps()]
    document = render(steps, made, ALL, Build(fork=fork, fail_fast=True, coverage=True))
    assert faults(document) == []
    text = to_yaml(document)
    assert yaml.safe_load(text) == document == json.loads(to_json(document))
    assert text == to_yaml(render(steps, made, ALL, Build(fork=fork, fail_fast=True, coverage=True)))
    for key in rendering.PRIVATE_KEYS - {"imports"}:
        assert f"{key}:" not in text
    if fork:
        assert "hf-token" not in text
        assert "HF_TOKEN" not in text


ONE = """\
    x-common: &common
      timeout_in_minutes: 20
    run_all: [pyproject.toml]
    ignore: [docs/]
    unmatched: run_all
    env: {A: 1}
    steps:
      - label: a
        key: a
        command: pytest
        mirror_hardwares: l4_1
        source_file_dependencies: [vllm_omni/]
        imports: true
        <<: *common
      - wait
      - group: g
        key: g
        source_file_dependencies: [x/]
        steps:
          - {label: b, command: b, agents: {queue: q}}
          - {label: c, command: c, agents: {queue: q}, grade: Blocking}
      - {block: Go?, key: go}
      - {trigger: other, build: {branch: main}}
"""


def test_what_is_ours_goes_and_the_order_is_the_files() -> None:
    document = rendered(ONE)
    assert list(document) == ["env", "steps"]
    first, wait, group, block, trigger = document["steps"]
    assert list(first) == ["label", "key", "command", "timeout_in_minutes", "agents", "plugins", "retry"]
    assert wait == "wait"
    assert group == {
        "group": "g",
        "key": "g",
        "steps": [
            {"label": "b", "command": "b", "agents": {"queue": "q"}},
            {"label": "c", "command": "c", "agents": {"queue": "q"}},
        ],
    }
    assert block == {"block": "Go?", "key": "go"}
    assert trigger == {"trigger": "other", "build": {"branch": "main"}}
    assert faults(document) == []


def test_a_group_without_steps_is_left_out_and_kept_steps_are_told_apart_by_identity() -> None:
    file = native("steps: [{command: a, agents: {queue: q}}, {command: a, agents: {queue: r}}]")
    second = [step for _, step in file.steps()][1]
    assert render([second], file, ALL, BUILD)["steps"] == [{"command": "a", "agents": {"queue": "r"}}]
    assert rendered(ONE, keep={"a"})["steps"][0]["key"] == "a"
    assert len(rendered(ONE, keep={"a"})["steps"]) == 1
    assert [step["label"] for step in rendered(ONE, keep={"c"})["steps"][0]["steps"]] == ["c"]
    assert rendered(ONE, keep=set()) == {"env": {"A": 1}, "steps": []}


def test_a_build_that_fails_fast_cancels_commands_that_do_not_say_otherwise() -> None:
    text = """\
        steps:
          - {command: a, agents: {queue: q}}
          - {command: b, agents: {queue: q}, cancel_on_build_failing: false}
          - wait
          - {trigger: p}
          - {block: x}
    """
    first, second, *others = rendered(text, build=Build(fail_fast=True))["steps"]
    assert first["cancel_on_build_failing"] is True
    assert second["cancel_on_build_failing"] is False
    assert others == ["wait", {"trigger": "p"}, {"block": "x"}]
    assert "cancel_on_build_failing" not in rendered(text)["steps"][0]


def test_a_build_that_measures_coverage_says_so_to_every_step() -> None:
    text = "{env: {A: b}, steps: [{command: a, agents: {queue: q}}]}"
    assert rendered(text, build=Build(coverage=True))["env"] == {"A": "b", "COV_ENABLED": "1"}
    assert rendered(text)["env"] == {"A": "b"}
    without = "steps: [{command: a, agents: {queue: q}}]"
    assert rendered(without, build=Build(coverage=True))["env"] == {"COV_ENABLED": "1"}


def test_the_files_variables_win_over_a_presets() -> None:
    document = rendered("{env: {HF_HOME: /here}, steps: [{command: a, mirror_hardwares: mi300_1}]}")
    assert "HF_HOME" not in document["steps"][0]["env"]


def test_a_forks_steps_are_handed_no_secret_wherever_it_is_written() -> None:
    text = """\
        env: {HF_TOKEN: abc, A: b}
        secrets: [S]
        steps:
          - {command: a, mirror_hardwares: h100_1}
          - {command: b, agents: {queue: q}, env: {MY_PASSWORD: x}, secrets: [T]}
    """
    document = rendered(text, build=Build(fork=True))
    assert document["env"] == {"A": "b"}
    assert "secrets" not in document
    assert document["steps"][1] == {"command": "b", "agents": {"queue": "q"}, "env": {}}
    assert "secretKeyRef" not in json.dumps(document)
    assert "secretKeyRef" in json.dumps(rendered(text))


@pytest.mark.parametrize(
    ("text", "line", "message", "hint"),
    [
        ("timout_in_minutes: 3", 5, "does not know: 'timout_in_minutes'", "timeout_in_minutes"),
        ("zzz: 3", 5, "does not know: 'zzz'", ""),
        ("source_file_dependencie: [a]", 5, "does not know", "source_file_dependencies"),
        ("env: {A: '${!V}'}", 5, "the agent refuses ${!V}", "$${!V}"),
        ("env: {A: '${HF_TOKEN}'}", 5, "for everybody to read", "$${HF_TOKEN}"),
        ("env: {A: '${B:-$HF_TOKEN}'}", 5, "for everybody to read", "$${B:-$$HF_TOKEN}"),
        ("if: build.message =~ /${x/", 5, "the agent refuses", "$${x"),
        ("env: [A]", 4, "env must be a mapping", ""),
        ("mirror_hardwares: l4_2", 5, "unknown preset 'l4_2'", "l4_"),
    ],
)
def test_what_buildkite_would_not_take_is_refused_with_its_line(text: str, line: int, message: str, hint: str) -> None:
    preset = "" if "mirror_hardwares" in text else "mirror_hardwares: mi300_1"
    source = f"# one\n# two\nsteps:\n  - command: x\n    {text}\n    {preset}\n"
    with pytest.raises(DataError) as caught:
        rendered(source)
    assert caught.value.message.startswith(f"ready.yml:{line}: step 'x'")
    assert message in caught.value.message
    assert hint in str(caught.value.hint or "")


@pytest.mark.parametrize(
    "text",
    [
        "{env: [A], steps: [{command: x, agents: {queue: q}}]}",
        "{evn: {A: 1}, steps: [{command: x, agents: {queue: q}}]}",
        "{env: {A: '${'}, steps: [{command: x, agents: {queue: q}}]}",
        "{agents: {queue: q}, steps: [{grade: Blocking}]}",
        "{steps: [{group: g, stesp: [], steps: [{command: x, agents: {queue: q}}]}]}",
        "{steps: [nonsense]}",
    ],
)
def test_hostile_files_are_an_error_of_one_line(text: str) -> None:
    for build in (BUILD, Build(coverage=True, fork=True, fail_fast=True)):
        with pytest.raises(DataError, match=r"^ready\.yml"):
            rendered(text, build=build)


@pytest.mark.slow
@pytest.mark.parametrize("key", [*sorted(rendering.COMMAND_KEYS | rendering.PRIVATE_KEYS), "script"])
def test_odd_values_never_end_in_a_traceback(key: str) -> None:
    values: tuple[Any, ...] = ([1], {"a": 1}, None, 4, True, "wait", "")
    for more, value in itertools.product(({"command": "x"}, {}), values):
        step = Step({**more, "mirror_hardwares": "mi300_1", key: value}, "f.yml:2", {})
        file = NativeFile("f.yml", {}, {}, (step,))
        with contextlib.suppress(DataError):
            assert yaml.safe_load(to_yaml(render([step], file, ALL, Build(fork=True, fail_fast=True))))["steps"]


def test_buildkites_nested_form_is_written_out() -> None:
    text = "steps: [{command: {command: a, label: l, mirror_hardwares: l4_1}}, {wait: {continue_on_failure: true}}]"
    first, second = rendered(text)["steps"]
    assert first["command"] == "a"
    assert first["agents"] == {"queue": "gpu_1_queue"}
    assert second == {"wait": None, "continue_on_failure": True}


def test_the_known_keys_are_those_of_the_schema() -> None:
    definitions = schema()["definitions"]
    assert set(schema()["properties"]) == rendering.TOP_KEYS
    assert set(definitions["groupStep"]["properties"]) == rendering.GROUP_KEYS
    assert set(definitions["commandStep"]["properties"]) == rendering.COMMAND_KEYS
    assert set(definitions["waitStep"]["properties"]) == rendering.WAIT_KEYS - {"waiter"}
    assert set(definitions["triggerStep"]["properties"]) == rendering.TRIGGER_KEYS
    asking = {*definitions["blockStep"]["properties"], *definitions["inputStep"]["properties"]}
    assert asking == rendering.ASKING_KEYS - {"manual"}
    known = rendering.TOP_KEYS | rendering.GROUP_KEYS | rendering.COMMAND_KEYS
    assert not rendering.PRIVATE_KEYS & known


def test_rendering_changes_nothing_that_was_read() -> None:
    file = native(ONE)
    before = replace(file)
    copy = json.dumps([step.body for _, step in file.steps()])
    render([step for _, step in file.steps()], file, ALL, Build(fork=True, coverage=True, fail_fast=True))
    assert json.dumps([step.body for _, step in file.steps()]) == copy
    assert file == before
