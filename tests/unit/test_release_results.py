"""Results of cells: what is recorded, from which build, and what a release makes of it. The agent is a real program."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from tasks.release import results
from tasks.release.ledger import HEADERS
from tasks.release.results import Record
from tasks.support import buildkite
from tasks.support.errors import ConfigurationError, DataError, MissingInputError, UsageError
from tasks.support.settings import Settings, load
from tasks.support.store import ObjectStore, open_store

COMMIT = "1a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d"
AGENT = """#!/bin/sh
printf '%s\\n' "$*" >> "$AGENT_LOG"
case "$*" in
"step get outcome --step good") echo passed ;;
"step get outcome --step soft") echo soft_failed ;;
"step get outcome --step hard") echo hard_failed ;;
"step get outcome --step running") echo ;;
"meta-data get release-version") printf 'v1.2.3' ;;
"meta-data get lines") printf '1.0\\n2.0\\n' ;;
"meta-data get "*) echo "no such key" >&2; exit 100 ;;
"annotate "*) cat >> "$AGENT_LOG" ;;
*) echo "error: no such step" >&2; exit 1 ;;
esac
"""


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(str(tmp_path / "store"))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "agent.log"


@pytest.fixture
def build(tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Return the settings of a Buildkite build of COMMIT."""
    agent = tmp_path / "bin" / "buildkite-agent"
    agent.parent.mkdir()
    agent.write_text(AGENT)
    agent.chmod(agent.stat().st_mode | stat.S_IXUSR)
    variables = {
        "BUILDKITE": "true",
        "BUILDKITE_COMMIT": COMMIT,
        "BUILDKITE_PULL_REQUEST": "false",
        "BUILDKITE_BUILD_NUMBER": "77",
        "BUILDKITE_BUILD_URL": "https://buildkite.example/77",
        "PATH": f"{agent.parent}:/usr/bin:/bin",
        "AGENT_LOG": str(log),
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return load()


def other(settings: Settings, **changed: str) -> Settings:
    """Return settings with another environment; underscores of the names are kept."""
    return load(environment={**settings.environment, **changed})


def record(settings: Settings, store: ObjectStore, *steps: str) -> Record:
    made = results.make_record(settings, COMMIT, "cuda_merge", results.ask_outcomes(settings, COMMIT, steps))
    results.write(store, made)
    return made


def test_a_cell_is_green_when_every_step_passed(build: Settings, store: ObjectStore) -> None:
    made = record(build, store, "good")
    assert made.green
    found = results.find(store, COMMIT)
    assert found == made
    assert (made.build, made.build_url) == ("77", "https://buildkite.example/77")
    assert [stored.key for stored in store.list()] == [f"_results/{COMMIT}/cuda_merge.json"]
    results.require(store, COMMIT)


@pytest.mark.parametrize(("step", "outcome"), [("soft", "soft_failed"), ("hard", "hard_failed")])
def test_a_step_that_failed_in_any_way_is_not_green(
    build: Settings, store: ObjectStore, step: str, outcome: str
) -> None:
    assert not record(build, store, "good", step).green
    with pytest.raises(MissingInputError, match=f"{step}: {outcome}") as caught:
        results.require(store, COMMIT)
    assert caught.value.exit_code == 66
    # A retried step that passes is the last word.
    assert record(build, store, "good").green
    results.require(store, COMMIT)


@pytest.mark.parametrize("step", ["running", "unknown"])
def test_a_step_without_an_outcome_records_nothing(build: Settings, store: ObjectStore, step: str) -> None:
    with pytest.raises(MissingInputError, match=step):
        record(build, store, "good", step)
    assert list(store.list()) == []


def test_the_same_outcomes_are_written_once(build: Settings, store: ObjectStore) -> None:
    record(build, store, "good")
    etag = next(iter(store.list())).etag
    record(build, store, "good")
    assert next(iter(store.list())).etag == etag


@pytest.mark.parametrize(
    "changed",
    [
        {"BUILDKITE_PULL_REQUEST": "12"},
        {"BUILDKITE_COMMIT": "0" * 40},
        {"BUILDKITE": "false"},
        {"BUILDKITE": ""},
        {"PATH": "/nowhere"},
    ],
    ids="-".join,
)
def test_what_is_no_trusted_build_of_the_commit_records_nothing(
    build: Settings, store: ObjectStore, changed: dict[str, str]
) -> None:
    with pytest.raises(ConfigurationError):
        record(other(build, **changed), store, "good")
    assert list(store.list()) == []


@pytest.mark.parametrize("steps", [(), ("--help",), ("",), ("a b",), ("a\nb",), ("$(id)",), ("x" * 200,)])
def test_steps_are_named_and_named_properly(build: Settings, steps: tuple[str, ...], log: Path) -> None:
    with pytest.raises(UsageError):
        results.ask_outcomes(build, COMMIT, steps)
    assert not log.exists()


def test_an_unknown_cell_names_the_closest_one() -> None:
    assert results.check_cell("cuda_merge") == "cuda_merge"
    with pytest.raises(UsageError) as caught:
        results.check_cell("cuda_merg")
    assert "cuda_merge" in (caught.value.hint or "")


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"[]",
        b"{}",
        json.dumps({"format": 1, "commit": COMMIT, "cell": "cuda_merge", "time": "x"}).encode(),
        json.dumps({"format": 1, "commit": "0" * 40, "cell": "cuda_merge", "time": "x", "steps": {}}).encode(),
        json.dumps({"format": 1, "commit": COMMIT, "cell": "cuda_merge", "time": "x", "steps": {"a": 1}}).encode(),
        json.dumps({"format": 2, "commit": COMMIT, "cell": "cuda_merge", "time": "x", "steps": {}}).encode(),
    ],
)
def test_a_damaged_record_proves_nothing(store: ObjectStore, document: bytes) -> None:
    key = results.key_of(COMMIT, results.REQUIRED)
    store.put(key, document, HEADERS, expected=None)
    with pytest.raises(DataError, match=key):
        results.require(store, COMMIT)


def test_a_record_without_a_step_is_not_green(store: ObjectStore) -> None:
    results.write(store, Record(COMMIT, results.REQUIRED, "2026-01-01T00:00:00Z"))
    with pytest.raises(MissingInputError, match="it had no step"):
        results.require(store, COMMIT)


# The agent


def test_meta_data_is_read_whole_or_not_there(build: Settings) -> None:
    assert buildkite.meta_data(build, "release-version") == "v1.2.3"
    assert buildkite.meta_data(build, "lines") == "1.0\n2.0"
    assert buildkite.meta_data(build, "nothing") is None
    assert buildkite.meta_data(other(build, BUILDKITE="false"), "release-version") is None


def test_an_annotation_has_no_secret(build: Settings, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKERHUB_TOKEN", "very-secret")
    buildkite.annotate(build, "published with very-secret", context="publish")
    assert log.read_text() == "annotate --style success --context publish\npublished with ***"


def test_a_build_that_cannot_be_annotated_goes_on(build: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    buildkite.annotate(other(build, PATH="/nowhere"), "text", context="publish")
    assert "warning: the build was not annotated" in capsys.readouterr().err
