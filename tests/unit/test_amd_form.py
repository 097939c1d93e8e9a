"""AMD's form of pipeline files: what becomes of its keys, and that no step goes without a decision."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.pipelines.amd_form import Ordinary, is_amd_form, ordinary
from tasks.pipelines.model import Decision, Reason, Step, Why
from tasks.pipelines.reading import read_native
from tasks.support.errors import DataError, OmniError

STEP = {"label": "S", "agent_pool": "mi300_1", "mirror_hardwares": ["amdproduction"], "grade": "Blocking"}


def made(text: str, mirror_hw: str = "amdproduction") -> Ordinary:
    return ordinary(read_native(text.encode(), "amd.yml"), mirror_hw)


def step_of(**keys: Any) -> Step:
    body = {key: value for key, value in {**STEP, "commands": ["a"], **keys}.items() if value != "absent"}
    return next(step for _, step in made(yaml.safe_dump([body], sort_keys=False)).file.steps())


def refused(text: str, mirror_hw: str = "amdproduction") -> DataError:
    with pytest.raises(DataError) as caught:
        made(text, mirror_hw)
    return caught.value


def decisions(found: Ordinary) -> tuple[Decision, ...]:
    return tuple(Decision(step, group, True, Reason(Why.ALWAYS, "")) for group, step in found.file.steps())


def test_makes_ordinary_steps_and_keeps_what_buildkite_knows() -> None:
    found = made(
        "env: {A: b}\n"
        "steps:\n"
        "- label: One\n"
        "  agent_pool: mi325_4\n"
        "  depends_on: amd-build\n"
        "  mirror_hardwares: [amdtentative, amdproduction]\n"
        "  grade: Blocking\n"
        "  working_dir: /app/elsewhere\n"
        "  parallelism: 3\n"
        "  timeout_in_minutes: 20\n"
        "  artifact_paths: [server.log]\n"
        "  env: {C: d}\n"
        "  source_file_dependencies: [pkg/]\n"
        "  commands:\n"
        "  - first\n"
        "  - second\n"
    )
    (step,) = (step for _, step in found.file.steps())
    assert step.body == {
        "label": "One",
        "depends_on": "amd-build",
        "working_dir": "/app/elsewhere",
        "parallelism": 3,
        "timeout_in_minutes": 20,
        "artifact_paths": ["server.log"],
        "env": {"C": "d"},
        "source_file_dependencies": ["pkg/"],
        "commands": ["first", "second"],
        "mirror_hardwares": "mi325_4",
    }
    assert step.where == "amd.yml:3"
    assert step.lines["mirror_hardwares"] == 4
    assert set(step.lines) == set(step.body)
    assert found.file.top == {"env": {"A": "b"}}
    assert found.dropped == ()


@pytest.mark.parametrize("pool", ["mi300_1", "mi325_2", "mi300_16", "mi250_1"])
def test_a_pool_names_the_preset(pool: str) -> None:
    assert step_of(agent_pool=pool).body["mirror_hardwares"] == pool


def test_a_step_without_a_pool_gets_the_usual_one_or_keeps_its_agents() -> None:
    assert step_of(agent_pool="absent").body["mirror_hardwares"] == "mi300_1"
    own = step_of(agent_pool="absent", agents={"queue": "amd-cpu"}).body
    assert "mirror_hardwares" not in own
    assert own["agents"] == {"queue": "amd-cpu"}


@pytest.mark.parametrize(
    ("keys", "soft_fail"),
    [
        ({"grade": "Blocking"}, "absent"),
        ({"grade": "NonBlocking"}, True),
        ({"grade": "absent"}, "absent"),
        ({"grade": "absent", "soft_fail": True}, True),
        ({"grade": "Blocking", "soft_fail": False}, False),
        ({"grade": "NonBlocking", "soft_fail": [{"exit_status": 5}]}, [{"exit_status": 5}]),
    ],
)
def test_a_grade_says_whether_a_failure_counts(keys: dict[str, Any], soft_fail: Any) -> None:
    assert step_of(**keys).body.get("soft_fail", "absent") == soft_fail


FORM = "steps:\n- label: S\n  mirror_hardwares: [amdproduction]\n  commands: [a]\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (FORM + "  grade: blocking\n", "amd.yml:5: unknown grade 'blocking' of step 'S'"),
        (FORM + "  grade: [Blocking]\n", "amd.yml:5: unknown grade ['Blocking'] of step 'S'"),
        (FORM + "  grade:\n", "amd.yml:5: unknown grade None of step 'S'"),
        (
            FORM + "  grade: Blocking\n  soft_fail: true\n",
            "amd.yml:5: step 'S' has grade: Blocking and soft_fail: True",
        ),
        (
            FORM + "  grade: NonBlocking\n  soft_fail: false\n",
            "amd.yml:5: step 'S' has grade: NonBlocking and soft_fail",
        ),
        (FORM + "  agent_pool: 4\n", "amd.yml:5: agent_pool of step 'S' must be the name of a pool"),
        (
            FORM + "  agent_pool: mi300_1\n  agents: {queue: q}\n",
            "amd.yml:5: step 'S' has agents of its own and agent_pool",
        ),
        (
            FORM + "  plugins: [a#v1]\n  agent_pool: mi300_1\n",
            "amd.yml:6: step 'S' has plugins of its own and agent_pool",
        ),
    ],
)
def test_refuses_contradictions(text: str, message: str) -> None:
    assert refused(text).message.startswith(message)


@pytest.mark.parametrize(
    "keys",
    [
        "  agent_pool: mi300_1\n",
        "  grade: Blocking\n",
        "  agent_pool: mi300_1\n  mirror_hardwares:\n",
        "  agent_pool: mi300_1\n  mirror_hardwares: []\n",
        "  agent_pool: mi300_1\n  mirror_hardwares: amdproduction\n",
        "  agent_pool: mi300_1\n  mirror_hardwares: [1]\n",
        "",
    ],
)
def test_a_step_that_no_build_would_run_is_an_error_that_names_it(keys: str) -> None:
    text = f"{FORM}- label: Tensor Parallelism\n{keys}  command: b\n"
    for mirror_hw in ("amdproduction", "amdtentative"):
        error = refused(text, mirror_hw)
        assert error.message.startswith("amd.yml:")
        assert "'Tensor Parallelism'" in error.message
        assert "no build would run it" in error.message


def test_steps_of_other_builds_are_dropped_with_a_reason_and_in_order() -> None:
    found = made(
        "steps:\n"
        "- {label: A, mirror_hardwares: [amdtentative], command: a}\n"
        "- group: G\n"
        "  steps:\n"
        "  - {label: B, mirror_hardwares: [amdproduction], command: b}\n"
        "  - {label: C, mirror_hardwares: [amdtentative, other], command: c}\n"
        "- wait\n"
        "- group: H\n"
        "  steps:\n"
        "  - {label: D, mirror_hardwares: [amdtentative], command: d}\n"
    )
    assert [step.name for _, step in found.file.steps()] == ["B", "wait"]
    assert len(found.file.entries) == 2
    assert [(one.step.name, one.group and one.group.label, one.keep) for one in found.dropped] == [
        ("A", None, False),
        ("C", "G", False),
        ("D", "H", False),
    ]
    assert {one.reason.why for one in found.dropped} == {Why.HARDWARE}
    assert "amdtentative, other" in found.dropped[1].reason.text
    assert "amdproduction" in found.dropped[1].reason.text
    assert [one.step.name for one in found.in_order(decisions(found))] == ["A", "B", "C", "wait", "D"]


def test_nothing_is_left_of_a_file_of_another_build() -> None:
    found = made(FORM, "amdtentative")
    assert (found.file.entries, len(found.dropped)) == ((), 1)
    assert found.in_order(()) == found.dropped


@pytest.mark.parametrize(
    "other",
    [
        "- {key: image, mirror_hardwares: [amdtentative], command: b}\n",
        "- {group: G, key: image, steps: [{label: B, mirror_hardwares: [amdtentative], command: b}]}\n",
    ],
)
@pytest.mark.parametrize("needs", ["image", "[image]", "[{step: image, allow_failure: true}]"])
def test_a_step_must_not_need_one_that_this_build_does_not_run(other: str, needs: str) -> None:
    text = f"steps:\n{other}- command: a\n  mirror_hardwares: [amdproduction]\n  depends_on: {needs}\n"
    assert refused(text).message == "amd.yml:5: 'image' is needed here and does not run on amdproduction"


def test_ordinary_files_and_ordinary_steps_stay_as_they_are() -> None:
    plain = read_native(b"steps:\n- {command: a, mirror_hardwares: l4_1}\n- command: b\n- wait\n", "p.yml")
    assert not is_amd_form(plain)
    assert ordinary(plain, "amdproduction").file is plain
    assert ordinary(plain, "amdproduction").in_order(()) == ()
    mixed = made(
        f"{FORM}- {{command: b, mirror_hardwares: l4_1}}\n- {{command: c, agents: {{queue: q}}}}\n- trigger: x\n"
    )
    assert [step.body for _, step in mixed.file.steps()][1:] == [
        {"command": "b", "mirror_hardwares": "l4_1"},
        {"command": "c", "agents": {"queue": "q"}},
        {"trigger": "x"},
    ]


VALUES = st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(("amdproduction", "Blocking", "mi300_1", "k"))
KEYS = st.sampled_from(("mirror_hardwares", "agent_pool", "grade", "soft_fail", "command", "key", "depends_on", "wait"))
STEPS = st.dictionaries(KEYS, VALUES | st.lists(VALUES, max_size=2), min_size=1, max_size=5)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        STEPS | st.fixed_dictionaries({"group": VALUES, "steps": st.lists(STEPS, min_size=1, max_size=2)}),
        min_size=1,
        max_size=3,
    )
)
def test_every_step_is_kept_or_dropped_with_a_reason(document: list[Any]) -> None:
    file = read_native(yaml.safe_dump(document).encode(), "amd.yml")
    written = [step.where for _, step in file.steps()]
    try:
        found = ordinary(file, "amdproduction")
    except OmniError:
        return
    assert [one.step.where for one in found.in_order(decisions(found))] == written
    assert not is_amd_form(found.file)
