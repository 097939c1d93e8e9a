"""The pipelines of the library's 0.20.0, as its sdist on the public index has them: adopted as they are."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from datetime import date
from pathlib import Path

import pytest

from tasks.pipelines import checking
from tasks.pipelines.amd_form import ordinary
from tasks.pipelines.build_facts import Build
from tasks.pipelines.reading import read_native
from tasks.pipelines.rendering import render
from tasks.pipelines.writing import to_yaml
from tasks.suites import presets
from tasks.support.errors import DataError
from tests.agent_judge import Judge

PROJECT, VERSION = "vllm-omni", "0.20.0"
CACHE = Path(__file__).resolve().parents[2] / ".omni-ci" / "library-wheels"

pytestmark = [pytest.mark.service, pytest.mark.slow, pytest.mark.network, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def pipelines() -> dict[str, bytes]:
    """Return the pipeline files of the sdist by name, downloaded once for this checkout."""
    path = CACHE / f"vllm_omni-{VERSION}.tar.gz"
    if not path.is_file():
        CACHE.mkdir(parents=True, exist_ok=True)
        # By pip, which is told about this machine's index, proxy and certificates.
        argv = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", f"--no-binary={PROJECT}"]
        subprocess.run([*argv, "--dest", str(CACHE), f"{PROJECT}=={VERSION}"], check=True, stdin=subprocess.DEVNULL)
    with tarfile.open(path) as archive:
        members = {member.name.partition("/")[2]: member for member in archive.getmembers() if member.isfile()}
        found = {
            name: archive.extractfile(member)
            for name, member in members.items()
            if name.startswith(".buildkite/") and name.endswith((".yml", ".yaml"))
        }
        return {name: file.read() for name, file in found.items() if file is not None}


def test_every_pipeline_of_the_library_renders_fits_the_schema_and_is_taken_by_the_agent(
    pipelines: dict[str, bytes], judge: Judge
) -> None:
    pipelines = dict(pipelines)
    assert {".buildkite/test-ready.yml", ".buildkite/test-amd-ready.yaml"} <= set(pipelines)
    context = checking.context_of(None, date(2026, 1, 31))
    # This one is uploaded by nothing, and has a step that the template that it was for dropped without a word.
    legacy = pipelines.pop(".buildkite/test-amd.yaml")
    with pytest.raises(DataError, match=r"test-amd\.yaml:\d+: .* no build would run it"):
        ordinary(read_native(legacy, ".buildkite/test-amd.yaml"), "amdproduction")
    for name, data in sorted(pipelines.items()):
        file = ordinary(read_native(data, name), "amdproduction").file
        document = render([step for _, step in file.steps()], file, presets.load(), Build())
        sent = judge.dry_run(to_yaml(document))
        if judge.reads:
            assert len(sent["steps"]) == len(document["steps"]), name
            assert "source_file_dependencies" not in json.dumps(sent)
        found = [one for one in checking.check_file(data, name, context) if one.level is checking.Level.ERROR]
        assert [one for one in found if one.rule in {"yaml", "schema", "unknown-key"}] == [], name
