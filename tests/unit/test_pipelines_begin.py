"""What a pipelines task decides from a file on disk: the file's own rules count with the catalogue's."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasks.pipelines import begin
from tasks.pipelines.begin import Wanted
from tasks.pipelines.selecting import Choice
from tests.git_scenes import Repository, isolate

STEPS = "steps:\n- {label: a, command: 'true', agents: {queue: q}, source_file_dependencies: [area:mine]}\n"


@pytest.mark.parametrize(
    ("top", "runs"),
    [
        ("areas: {mine: [x/]}\nunmatched: ungated\n", False),
        ("areas: {mine: [x/]}\n", True),
        ("areas: {mine: [x/]}\nunmatched: ungated\nrun_all: [new.txt]\n", True),
        ("areas: {mine: [x/]}\nignore: [new.txt]\n", False),
        ("areas: {mine: [x/]}\ndocs: [new.txt]\n", False),
        ("areas: {mine: [new.txt]}\nunmatched: ungated\n", True),
    ],
)
def test_a_files_own_rules_decide(top: str, runs: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    isolate(monkeypatch)
    for name in ("BUILDKITE", "BUILDKITE_COMMIT", "BUILDKITE_BRANCH", "BUILDKITE_PULL_REQUEST"):
        monkeypatch.delenv(name, raising=False)
    library = Repository.new(tmp_path / "library")
    library.commit({"ci.yml": top + STEPS, "vllm_omni/a.py": ""})
    library.commit({"new.txt": "x"})
    run = begin.open_run(source=str(library.path))
    decided = begin.decide(run, Wanted(file="ci.yml", base="HEAD^"), Choice())
    assert [decision.keep for decision in decided.explanation.steps] == [runs]
    if runs:
        assert list(begin.document(decided)) == ["steps"]
