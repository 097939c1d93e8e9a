"""The release tasks as a person runs them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.contract.conftest import Answer, Invoke
from tests.factory_release import World, commit

pytestmark = pytest.mark.slow  # together these take longer than the fast set may

COMMIT = "1" * 40
MOVING = {
    "publish": ("release.publish", "nightly", "--commit", COMMIT, "--commit-time", "2026-01-01T00:00:00Z"),
    "rollback": ("release.rollback", "nightly"),
    "cleanup": ("release.cleanup",),
    "record": ("release.record", "cuda_merge", "--commit", COMMIT),
}


@pytest.mark.parametrize("deed", MOVING)
def test_a_registrys_ledger_is_never_a_folder_that_nobody_named(deed: str, invoke: Invoke) -> None:
    refused = invoke(*MOVING[deed], "--profile", "production", env={"OMNI_CI_PUBLIC": "127.0.0.1:1/omni"})
    assert refused.code == 78, refused.err
    assert "no store is named" in refused.err
    first = refused.err.splitlines()[0]
    assert first.startswith("profile production: ")
    assert "/.omni-ci/store" in first


@pytest.fixture
def world(tmp_path: Path) -> World:
    (tmp_path / "world").mkdir()
    return World.of_folders(tmp_path / "world")


def run(invoke: Invoke, world: World, *words: str) -> Answer:
    """Run a release task on a world, whose repositories are given by their paths."""
    environment = {"OMNI_CI_STORE": world.store.url, "OMNI_CI_STAGING": str(world.staging.name)}
    return invoke(*words, env=environment | {"OMNI_CI_PUBLIC": str(world.public.name.folder)})


TASKS = [*MOVING.values(), ("release.status",)]


@pytest.mark.parametrize("words", TASKS, ids=lambda words: words[0])
def test_the_first_line_names_the_ledger(words: tuple[str, ...], world: World, invoke: Invoke) -> None:
    first = run(invoke, world, *words).err.splitlines()[0]
    assert world.store.url in first
    assert words[0] == "release.record" or str(world.public.name) in first


def test_a_folder_that_is_not_there_is_said(world: World, invoke: Invoke) -> None:
    for words in (("release.rollback", "nightly"), ("release.cleanup",), ("release.cleanup", "--dry-run")):
        refused = run(invoke, world, *words)
        assert refused.code == 66
        assert f"error: there is no folder {world.public.name.folder}" in refused.err
    shown = run(invoke, world, "release.status", "--json", "--check", "--history")
    assert shown.code == 0, shown.err
    assert f"no such folder yet: {world.public.name.folder}" in shown.err
    assert json.loads(shown.out)["runs"] == []


def test_a_release_that_was_not_tested_is_shown_and_refused(world: World, invoke: Invoke) -> None:
    world.staged(1, tested=False, version="0.28.0")
    words = ("release.publish", "release", "--commit", commit(1), "--version", "0.28.0")
    dry = run(invoke, world, *words, "--dry-run", "--json")
    assert dry.code == 66
    assert "a real run would be refused: no result of cuda_merge" in dry.err
    assert "write tag" in [row["action"] for row in json.loads(dry.out)["actions"]]
    assert run(invoke, world, *words).code == 66
    assert world.tags() == {}
    assert run(invoke, world, *words, "--untested", "the cards are away").code == 0
    for more in ((), ("--dry-run",)):
        again = run(invoke, world, *words, *more)
        assert again.code == 0, again.err
        assert "nothing to do" in again.err
    assert "not tested: the cards are away" in run(invoke, world, "release.status", "--history").err


def test_a_clean_up_above_its_cap_is_shown_and_refused(world: World, invoke: Invoke) -> None:
    for number in (1, 2, 3):
        world.staged(number)
        world.nightly(number)
    words = ("release.cleanup", "--keep", "1", "--max", "1")
    before = world.tags()
    dry = run(invoke, world, *words, "--dry-run")
    assert dry.code == 65
    assert "error: a real run would be refused: this would delete 2 tags" in dry.err
    assert dry.err.count(f"nightly-{commit(1)}") == 1
    assert run(invoke, world, *words).code == 65
    assert world.tags() == before


def test_a_check_of_the_status_finds_drift(world: World, invoke: Invoke) -> None:
    for number in (1, 2):
        world.staged(number)
        world.nightly(number)
    assert run(invoke, world, "release.status", "--check").code == 0
    stranger = world.public.manifest(f"nightly-{commit(1)}")
    assert stranger is not None
    world.public.put_manifest(stranger, "nightly")
    found = run(invoke, world, "release.status", "--check", "--json")
    assert found.code == 65
    assert "error: not as the ledger says: nightly" in found.err
    assert [row["tag"] for row in json.loads(found.out)["tags"] if row["drift"]] == ["nightly"]
    assert run(invoke, world, "release.status").code == 0


def test_a_record_outside_a_build_says_what_to_do(world: World, invoke: Invoke) -> None:
    refused = run(invoke, world, *MOVING["record"], "--step", "x")
    assert refused.code == 78
    assert "--untested REASON" in refused.err
