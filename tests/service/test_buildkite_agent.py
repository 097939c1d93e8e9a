"""What we upload, judged by the real agent's ``pipeline upload --dry-run``, which needs no network and no build.

Where the agent is neither on PATH nor among Go's programs, its own pipeline library judges instead (tests/agent_parser,
for which Go is needed), and without Go a stand-in that takes everything; the last test says which it was.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tasks.pipelines.amd_form import ordinary
from tasks.pipelines.build_facts import DEFAULT_MIRROR, Build
from tasks.pipelines.reading import read_native
from tasks.pipelines.rendering import render
from tasks.pipelines.writing import to_json, to_yaml
from tasks.suites import presets
from tests.agent_judge import COMMIT, Judge

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.service


def native_files() -> list[Path]:
    """Return the native files that are written as the earlier design has them."""
    return sorted((ROOT / "tests" / "native").glob("*.yml"))


def documents(path: Path) -> dict[str, Any]:
    """Return a native file as it is uploaded with all its steps."""
    file = ordinary(read_native(path.read_bytes(), path.name), DEFAULT_MIRROR).file
    return render([step for _, step in file.steps()], file, presets.load(), Build())


@pytest.mark.parametrize("form", [to_yaml, to_json])
@pytest.mark.parametrize("path", native_files(), ids=lambda path: path.stem)
def test_the_agent_takes_what_we_upload_and_reads_the_same_steps(judge: Judge, path: Path, form: Any) -> None:
    document = documents(path)
    sent = judge.dry_run(form(document))
    if not judge.reads:
        return
    assert [shape(step) for step in sent["steps"]] == [shape(step) for step in document["steps"]]
    # Whatever is interpolated exists at upload, so nothing of the text is lost; and no doubled dollar is left.
    assert "$$" not in json.dumps(sent)
    assert COMMIT in json.dumps(sent) or "BUILDKITE_COMMIT" not in json.dumps(document)


def shape(step: Any) -> Any:
    """Return what tells a step or group from another."""
    if isinstance(step, str):
        return step
    inner = [shape(child) for child in step.get("steps", ())]
    return step.get("key"), step.get("label"), step.get("group"), inner


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("echo $$HOME $${PATH%%:*} $$(date) \\\\$$", "echo $HOME ${PATH%%:*} $(date) \\\\$"),
        ("echo ${BUILDKITE_COMMIT} $BUILDKITE_COMMIT", f"echo {COMMIT} {COMMIT}"),
        ("名 🎉 'x' \"y\" # no comment: {a: [b]} \t", "名 🎉 'x' \"y\" # no comment: {a: [b]} \t"),
        ("first\nsecond  \n\n  third\n", "first\nsecond  \n\n  third\n"),
        ("yes", "yes"),
        ("0x1f", "0x1f"),
        ("- not a list", "- not a list"),
    ],
)
def test_what_we_write_is_read_as_it_was_meant(judge: Judge, command: str, expected: str) -> None:
    for form in (to_yaml, to_json):
        sent = judge.dry_run(form({"steps": [{"label": "x", "command": command}]}))
        if judge.reads:
            assert sent["steps"][0]["command"] == expected


def test_the_agent_refuses_what_our_render_refuses(judge: Judge) -> None:
    if not judge.reads:
        pytest.skip(judge.what)
    answer = judge.run(to_yaml({"steps": [{"command": 'eval "${!V}"'}]}))
    assert answer.returncode != 0
    assert answer.stderr


def test_which_judge_it_was(judge: Judge) -> None:
    if judge.what != "the real agent":
        pytest.skip(f"no buildkite-agent here: pipelines were judged by {judge.what}")
    done = subprocess.run([judge.program, "--version"], capture_output=True, text=True, check=False)
    assert "buildkite-agent version" in done.stdout
