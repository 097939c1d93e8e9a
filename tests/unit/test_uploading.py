"""Handing pipelines to the agent: in which order, what is said when it refuses, and what the build's page shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tasks.pipelines.changes import ChangeSet, State
from tasks.pipelines.explaining import Explanation, annotation
from tasks.pipelines.model import Decision, Reason, Step, Why
from tasks.pipelines.uploading import plan, require_independence, upload
from tasks.support.errors import ConfigurationError, DataError, ServiceRefusedError
from tasks.support.settings import Settings, load
from tests.agent_standin import Agent

CHANGES = ChangeSet(State.EMPTY, (), "a" * 40, "b" * 40, "against main")


def explanation(*, runs: bool = True) -> Explanation:
    step = Step({"key": "a", "command": "a"}, "t.yml:1", {})
    return Explanation("cuda_ready", CHANGES, (Decision(step, None, runs, Reason(Why.ALWAYS, "because")),))


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    return Agent(tmp_path / "agent")


@pytest.fixture
def build(agent: Agent) -> Settings:
    return load(environment={"BUILDKITE": "true", "PATH": agent.path, "BUILDKITE_STEP_KEY": "upload-ready-pipeline"})


UPLOAD = ("pipeline", "upload", "--reject-secrets")


def test_a_pipeline_goes_to_the_agents_stdin_and_the_reasons_to_the_builds_page(agent: Agent, build: Settings) -> None:
    text = 'steps:\n- command: "名 $$HOME"\n'
    upload(build, [text.encode()], explanation())
    first, second = agent.calls
    assert (first.argv, first.stdin) == (UPLOAD, text)
    context = "omni-ci-pipelines-upload-ready-pipeline"
    assert second.argv == ("annotate", "--style", "info", "--context", context)
    assert second.stdin == annotation(explanation())


def test_parts_go_in_their_order_so_that_what_is_needed_is_there(agent: Agent, build: Settings) -> None:
    upload(build, [b"one", b"two", b"three"], explanation())
    assert [call.stdin for call in agent.calls if call.argv == UPLOAD] == ["one", "two", "three"]


GROUP = {"group": "G", "key": "g", "steps": [{"key": "inner", "command": "i"}, "wait", {"command": "j"}]}


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ([["wait", {"key": "a", "depends_on": "b"}, {"key": "b"}]], None),
        ([[{"key": "a"}], [{"key": "b", "depends_on": ["a", {"step": "elsewhere"}]}]], None),
        ([[GROUP], [{"key": "b", "depends_on": "inner"}, {"depends_on": "g"}]], None),
        ([[{"key": "a"}, "wait"], [{"key": "b"}]], "a wait or block does not reach across"),
        ([[{"key": "a"}], [{"block": "Go"}, {"key": "b"}]], "a wait or block does not reach across"),
        ([[{"key": "a"}], [{"wait": None, "continue_on_failure": True}]], "a wait or block does not reach across"),
        ([[{"key": "a", "depends_on": "b"}], [{"key": "b"}]], "'b' is needed before its own part"),
        ([[{"group": "G", "steps": [{"depends_on": [{"step": "inner"}]}]}], [GROUP]], "'inner' is needed before"),
    ],
)
def test_parts_that_would_not_hold_together_are_refused(parts: list[list[Any]], said: str | None) -> None:
    documents = [{"steps": steps} for steps in parts]
    if said is None:
        require_independence(documents)
        return
    with pytest.raises(DataError, match=said):
        require_independence(documents)


def test_a_plan_has_what_an_upload_does_in_its_order(agent: Agent, build: Settings) -> None:
    parts = [b"one", b"two"]
    rows = plan(parts, explanation())
    upload(build, parts, explanation())
    assert [row[0] for row in rows] == ["upload", "upload", "annotate"]
    assert [row[1] for row in rows] == ["part 1 of 2", "part 2 of 2", "the build"]
    assert [call.argv[0] for call in agent.calls] == ["pipeline", "pipeline", "annotate"]


def test_nothing_left_is_a_visible_annotation_and_no_upload(agent: Agent, build: Settings) -> None:
    assert plan([], explanation(runs=False))[0][:2] == ("annotate", "the build")
    upload(build, [], explanation(runs=False))
    (call,) = agent.calls
    assert call.argv[:3] == ("annotate", "--style", "warning")
    assert call.stdin.startswith("**cuda\\_ready: nothing is left to run**\n\n")
    assert annotation(explanation(runs=False)) in call.stdin


def test_a_refusal_has_the_agents_line_and_no_annotation_follows(agent: Agent, build: Settings) -> None:
    agent.refuse("pipeline", code=7, said="noise\nfatal: the pipeline is bad\nusage: ...")
    with pytest.raises(ServiceRefusedError, match=r"\(exit code 7\): fatal: the pipeline is bad"):
        upload(build, [b"one"], explanation())
    assert [call.argv for call in agent.calls] == [UPLOAD]


def test_a_refusal_halfway_says_what_is_in_the_build_already(agent: Agent, build: Settings) -> None:
    agent.refuse("pipeline", after=1)
    with pytest.raises(ServiceRefusedError, match="part 2 of 3: ") as caught:
        upload(build, [b"one", b"two", b"three"], explanation())
    assert caught.value.hint == (
        "1 other part of 3 went in before it: retrying this step would add those again, rebuild instead"
    )
    assert [call.stdin for call in agent.calls] == ["one", "two"]


def test_an_annotation_that_fails_is_a_warning(
    agent: Agent, build: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    agent.refuse("annotate", said="fatal: too long")
    upload(build, [b"one"], explanation())
    assert "warning: the build was not annotated: fatal: too long" in capsys.readouterr().err


@pytest.mark.parametrize("parts", [[b"one"], []])
def test_outside_of_a_build_nothing_is_called(agent: Agent, parts: list[bytes]) -> None:
    with pytest.raises(ConfigurationError, match="this is no Buildkite build"):
        upload(load(environment={"PATH": agent.path}), parts, explanation())
    assert agent.calls == []


def test_without_an_agent_it_says_where_one_should_be(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="buildkite-agent is not on PATH"):
        upload(load(environment={"BUILDKITE": "true", "PATH": str(tmp_path)}), [b"one"], explanation())
