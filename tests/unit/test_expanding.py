"""Which preset a step means, and what a step looks like with its preset written out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tasks.pipelines.dollar import scan
from tasks.pipelines.expanding import choose, expand, hardware_marks, without_secrets
from tasks.pipelines.model import Step, commands_of
from tasks.suites import presets
from tasks.support.errors import DataError

ALL = presets.load()


def step(**body: Any) -> Step:
    return Step(body, "ready.yml:7", {key: 7 + number for number, key in enumerate(body)})


def chosen(marks: str) -> str:
    found = choose(step(label="x", commands=["cd tests", f"pytest -v {marks} tests/a.py"]), ALL)
    assert found is not None
    return found.name


@pytest.mark.parametrize(
    ("marks", "name"),
    [
        ("-m 'core_model and cuda and L4'", "l4_1"),
        ('-m "core_model and cuda and H100"', "h100_1"),
        ("-m 'H100 and cards_1'", "h100_1"),
        ("-m 'H100 and cards_3'", "h100_3"),
        ("-m 'L4 and cards_2'", "l4_4"),  # the smallest that has enough
        ("-m 'L4 and distributed_cuda'", "l4_4"),  # the only one with several
        ("-m 'H100 and distributed_cuda and cards_2'", "h100_2"),
        ("-m 'H100 and (cards_2 or cards_4)'", "h100_4"),
        ("-m 'core_model and cuda and L4 and not distributed_cuda'", "l4_1"),
        ("-m 'L4 and not H100'", "l4_1"),
        ("-m 'not (H100 or cpu) and L4'", "l4_1"),
        ("-m 'not (not B60)'", "b60_1"),
        ("-m L4", "l4_1"),
        ("-m=L4", "l4_1"),
        ("-m 'rocm and MI325'", "mi300_1"),
        ("-m 'rocm and MI300 and cards_2'", "mi300_2"),
        ("-m 'MI300 or MI325'", "mi300_1"),  # two names of one hardware
        ("-m 'core_model and xpu and B60'", "b60_1"),
        ("-m 'npu and A2 and cards_4'", "a2b3_npu_4"),
        ("-m 'npu and A3'", "a3_npu_2"),
        ("-m 'npu and A3 and cards_4'", "a3_npu_8"),
    ],
)
def test_marks_mean_a_preset(marks: str, name: str) -> None:
    assert chosen(marks) == name


@pytest.mark.parametrize(
    ("marks", "message"),
    [
        ("-m 'core_model and cuda'", "no mark of a hardware"),
        ("-m 'core_model and not L4'", "no mark of a hardware"),
        ("-k L4", "no mark of a hardware"),
        ("-m 'L4 and and'", "no mark of a hardware"),
        ("-m '(((L4'", "no mark of a hardware"),
        ("-m ''", "no mark of a hardware"),
        ("-m 'L4 or H100'", "several kinds of hardware: H100, L4"),
        ("-m 'H100 and distributed_cuda'", "does not say how many"),
        ("-m 'H100 and cards_8'", "wants 8 devices"),
        ("-m 'B60 and distributed_xpu'", "wants 2 devices"),
    ],
)
def test_marks_that_do_not_say_which_are_an_error_with_line(marks: str, message: str) -> None:
    with pytest.raises(DataError) as caught:
        chosen(marks)
    assert message in caught.value.message
    assert caught.value.message.startswith("ready.yml:7: step 'x'")
    assert caught.value.hint


def test_marks_of_several_commands_count_together() -> None:
    two = step(commands=["pytest -m 'L4'", "bash -c 'pytest -m \"L4 and cards_4\"'"])
    assert hardware_marks(two.body) == {"L4", "cards_4"}
    found = choose(two, ALL)
    assert found is not None
    assert found.name == "l4_4"


def test_python_m_pytest_names_no_hardware() -> None:
    assert hardware_marks({"command": "python -m pytest -m 'H100'"}) & ALL.marks() == {"H100"}


def test_a_name_wins_over_marks_and_other_names_are_names() -> None:
    found = choose(step(command="pytest -m L4", mirror_hardwares="h100_2"), ALL)
    assert found is ALL.get("h100_2")
    assert choose(step(command="x", mirror_hardwares="mi325_1"), ALL) is ALL.get("mi300_1")


@pytest.mark.parametrize(
    ("named", "message", "hint"),
    [
        ("h100_5", "unknown preset 'h100_5'", "h100_"),
        ("zzz", "unknown preset 'zzz'", "choose from"),
        (["amdproduction"], "must be the name of a preset", "agent_pool"),
        ({}, "must be the name of a preset", ""),
        (4, "must be the name of a preset", ""),
        ("", "unknown preset ''", "choose from"),
    ],
)
def test_an_unknown_preset_is_named_with_its_line(named: Any, message: str, hint: str) -> None:
    with pytest.raises(DataError) as caught:
        choose(step(label="x", command="y", mirror_hardwares=named), ALL)
    assert caught.value.message.startswith("ready.yml:9: ")
    assert message in caught.value.message
    assert hint in str(caught.value.hint or "")


@pytest.mark.parametrize("own", [{"agents": {"queue": "q"}}, {"plugins": [{"docker#v5.2.0": {}}]}])
def test_own_agents_or_plugins_win_over_marks_and_contradict_a_name(own: dict[str, Any]) -> None:
    assert choose(step(command="pytest -m 'L4 or H100'", **own), ALL) is None
    with pytest.raises(DataError, match="of its own and mirror_hardwares"):
        choose(step(command="x", **own, mirror_hardwares="l4_1"), ALL)
    with pytest.raises(DataError, match="cannot have the preset"):
        expand({"command": "x", **own}, ALL.get("l4_1"))


@pytest.mark.parametrize(
    "body", [{"wait": None}, {"block": "Go?"}, {"input": "x"}, {"trigger": "p"}, {"type": "waiter"}]
)
def test_what_runs_nothing_needs_no_preset(body: dict[str, Any]) -> None:
    assert choose(step(**body), ALL) is None
    with pytest.raises(DataError, match="runs nothing"):
        choose(step(**body, mirror_hardwares="l4_1"), ALL)


def test_agents_above_are_enough_for_a_step_without_marks() -> None:
    assert choose(step(command="make"), ALL, agents_above=True) is None
    with pytest.raises(DataError):
        choose(step(command="make"), ALL)


def test_what_the_step_says_itself_stays_in_its_order() -> None:
    body = {
        "label": "x",
        "retry": {"manual": False},
        "env": {"HF_HOME": "/mine", "B": 1},
        "priority": 3,
        "command": "pytest",
        "mirror_hardwares": "mi300_2",
    }
    made = expand(body, ALL.get("mi300_2"))
    assert list(made) == ["label", "retry", "env", "priority", "command", "agents", "plugins"]
    assert made["retry"] == {"manual": False}
    assert made["priority"] == 3
    assert made["env"]["HF_HOME"] == "/mine"
    assert made["env"]["NATIVE_CI"] == "true"
    assert list(made["env"])[-1] == "B"


def test_the_pipelines_variables_win_over_the_presets() -> None:
    made = expand({"command": "x"}, ALL.get("mi300_1"), env_above={"HF_HUB_ETAG_TIMEOUT"})
    assert "HF_HUB_ETAG_TIMEOUT" not in made["env"]
    assert "HF_HUB_DOWNLOAD_TIMEOUT" in made["env"]


@pytest.mark.parametrize(
    ("preset", "body", "expected"),
    [
        ("l4_1", {"command": "a"}, {"command": "a"}),
        ("h100_1", {"commands": ["a", "b"]}, {"commands": ["a", "b"]}),
        ("mi300_1", {"command": "a"}, {"command": ["cd /app/vllm-omni", "a"]}),
        ("a3_npu_2", {"commands": ["a"]}, {"commands": ["cd /vllm-workspace/vllm-omni", "a"]}),
        ("b60_1", {"command": "a"}, {"command": "a"}),  # it starts its own container
        ("mi300_1", {"commands": ["a"], "working_dir": "/it's $HOME"}, {"commands": ["cd '/it'\"'\"'s $$HOME'", "a"]}),
        ("mi300_1", {"commands": ["a"], "working_dir": "source"}, {"commands": ["a"]}),
        ("l4_1", {"commands": ["a"], "working_dir": "/w"}, {"commands": ["cd /w", "a"]}),
        (
            "mi300_1",
            {"command": "a", "commands": ["b"], "working_dir": "/w"},
            {"command": ["cd /w", "a"], "commands": ["cd /w", "b"]},
        ),
        ("mi300_1", {"plugins": []}, {}),
    ],
)
def test_commands_begin_in_their_folder(preset: str, body: dict[str, Any], expected: dict[str, Any]) -> None:
    made = expand(body, ALL.get(preset))
    assert {key: made[key] for key in ("command", "commands") if key in made} == expected
    assert "working_dir" not in made


@pytest.mark.parametrize("body", [{"command": "x", "env": ["A=1"]}, {"command": "x", "working_dir": {"a": 1}}])
def test_an_env_or_folder_that_is_none_is_an_error(body: dict[str, Any]) -> None:
    with pytest.raises(DataError):
        expand(body, ALL.get("mi300_1"))


def test_the_commands_dollars_stay_as_they_are_written() -> None:
    made = expand({"command": "echo $$HOME ${BUILDKITE_COMMIT}"}, ALL.get("mi300_1"))
    assert made["command"] == ["cd /app/vllm-omni", "echo $$HOME ${BUILDKITE_COMMIT}"]
    assert [use.name for use in scan(json.dumps(made))] == ["BUILDKITE_COMMIT"] * 2


@pytest.mark.parametrize("preset", list(ALL), ids=lambda preset: preset.name)
def test_nothing_untrusted_is_handed_a_secret(preset: presets.Preset) -> None:
    made = json.dumps(expand({"command": "x", "secrets": ["A"]}, preset, trusted=False))
    for word in ("TOKEN", "Secret", "secret", "swr-", "docker-config", "vault", "docker-login"):
        assert word not in made.replace("automountServiceAccountToken", "")
    trusted = expand({"command": "x"}, preset)
    assert json.loads(made)["agents"] == trusted["agents"]
    assert json.loads(made)["retry"] == trusted["retry"]


@pytest.mark.parametrize(
    ("given", "left"),
    [
        ({"env": {"HF_TOKEN": "x", "A": "1"}}, {"env": {"A": "1"}}),
        ({"secrets": {"A": "B"}, "command": "x"}, {"command": "x"}),
        (
            {"plugins": [{"docker#v5": {"environment": ["A", "HF_TOKEN", "MY_SECRET=1", "A_TOKENS=1"]}}]},
            {"plugins": [{"docker#v5": {"environment": ["A", "A_TOKENS=1"]}}]},
        ),
        ({"plugins": [{"docker-login#v3.0.0": {"username": "u"}}, "ecr#v2"]}, {"plugins": []}),
        ({"plugins": {"docker-login#v3.0.0": {}, "docker#v5": {}}}, {"plugins": {"docker#v5": {}}}),
        (
            {"plugins": [{"kubernetes": {"podSpec": {"containers": [{"env": [
                {"name": "T", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}, {"name": "B", "value": "1"},
            ], "envFrom": [{"secretRef": {"name": "s"}}, {"configMapRef": {"name": "c"}}]}]}}}]},
            {"plugins": [{"kubernetes": {"podSpec": {"containers": [{"env": [{"name": "B", "value": "1"}],
             "envFrom": [{"configMapRef": {"name": "c"}}]}]}}}]},
        ),
        (
            {"plugins": [{"kubernetes": {"podSpecPatch": {"volumes": [
                {"name": "s", "secret": {"secretName": "x"}}, {"name": "e", "emptyDir": {}},
                {"name": "p", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
            ], "containers": [{"volumeMounts": [
                {"name": "s", "mountPath": "/s"}, {"name": "e", "mountPath": "/e"}, {"name": "p", "mountPath": "/p"},
            ]}]}}}]},
            {"plugins": [{"kubernetes": {"podSpecPatch": {"volumes": [{"name": "e", "emptyDir": {}}], "containers": [
                {"volumeMounts": [{"name": "e", "mountPath": "/e"}]},
            ]}}}]},
        ),
        ({"plugins": ["d#v5"], "command": "echo HF_TOKEN"}, {"plugins": ["d#v5"], "command": "echo HF_TOKEN"}),
    ],
)  # fmt: skip
def test_a_native_steps_own_secrets_go_too(given: dict[str, Any], left: dict[str, Any]) -> None:
    before = json.dumps(given)
    assert without_secrets(given) == left
    assert json.dumps(given) == before


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ({"command": "a"}, ("a",)),
        ({"commands": ["a", "b"]}, ("a", "b")),
        ({"command": ["a"], "commands": "b"}, ("a", "b")),
        ({"command": None}, ()),
        ({"script": "a"}, ()),  # Buildkite has no such key
        ({"command": {"a": 1}}, ()),
        ({"command": [1, "a"]}, ("a",)),
    ],
)
def test_commands_are_found_however_they_are_written(body: dict[str, Any], found: tuple[str, ...]) -> None:
    assert tuple(text for _, text in commands_of(body)) == found
