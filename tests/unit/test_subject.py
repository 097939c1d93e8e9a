"""Which commit a task that writes is about: never a guess, and always said."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tasks.support.errors import UsageError
from tasks.support.settings import Settings, load
from tasks.support.source import Source, Where
from tasks.wheels.begin import Subject, choose_subject, commit_to_build, locate_source

BUILDKITE = "b" * 40
GIVEN = "a" * 40


def settings(**environment: str) -> Settings:
    return load(environment={"PATH": os.environ["PATH"], **environment})


def repository(folder: Path) -> tuple[Path, str]:
    """Make a checkout with a dist folder, and a HEAD that no other checkout has."""
    (folder / "vllm_omni").mkdir(parents=True)
    (folder / "dist").mkdir()
    identity = ["-c", "user.name=T", "-c", "user.email=t@x"]
    for words in (["init", "-q"], [*identity, "commit", "-q", "--allow-empty", "-m", str(folder)]):
        subprocess.run(["git", *words], cwd=folder, check=True)
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=folder, check=True, capture_output=True, text=True)
    return folder, head.stdout.strip()


@pytest.fixture
def tool(tmp_path: Path) -> Path:
    """Return the tool's checkout, which is a repository too and no library."""
    folder, _ = repository(tmp_path / "tool")
    (folder / "vllm_omni").rmdir()
    return folder


def chosen(found: Source | None, tool: Path, *files: Path, flag: str | None = None, **environment: str) -> Subject:
    return choose_subject(settings(**environment), flag, found, files=files, checkout=tool)


@pytest.mark.parametrize("where", list(Where))
def test_a_named_commit_is_taken_wherever_the_source_was_found(
    where: Where, tool: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, _ = repository(tmp_path / "vllm-omni")
    found = Source(source, where)
    assert chosen(found, tool, flag=GIVEN, BUILDKITE_COMMIT=BUILDKITE) == Subject(GIVEN, source)
    assert capsys.readouterr().err == ""
    assert chosen(found, tool, source / "dist", BUILDKITE_COMMIT=BUILDKITE) == Subject(BUILDKITE, source)
    assert capsys.readouterr().err == f"commit {BUILDKITE} (BUILDKITE_COMMIT)\n"


@pytest.mark.parametrize("where", [Where.GIVEN, Where.AROUND])
def test_the_head_of_a_chosen_source_is_taken_and_said(
    where: Where, tool: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, head = repository(tmp_path / "mine")
    assert chosen(Source(source, where), tool) == Subject(head, source)
    assert capsys.readouterr().err == f"commit {head} (HEAD of {source})\n"


@pytest.mark.parametrize("given", ["nothing", "files outside of every checkout", "files in the tool's own checkout"])
def test_the_head_of_the_folder_beside_the_tool_is_no_default(given: str, tool: Path, tmp_path: Path) -> None:
    sibling, _ = repository(tmp_path / "vllm-omni")
    files = {"nothing": [], "files outside of every checkout": [tmp_path], "files in the tool's own checkout": [tool]}
    with pytest.raises(UsageError) as caught:
        chosen(Source(sibling, Where.SIBLING), tool, *files[given])
    assert str(sibling) in caught.value.message
    assert "--commit" in (caught.value.hint or "")
    assert "--source" in (caught.value.hint or "")


@pytest.mark.parametrize("found", ["nowhere", "around", "beside"])
@pytest.mark.parametrize("name", ["dist", "dist/some.whl", "dist/deeper/not-there.whl"])
def test_files_in_a_checkout_mean_its_head(
    found: str, name: str, tool: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other, _ = repository(tmp_path / "vllm-omni")
    mine, head = repository(tmp_path / "mine")
    (mine / "dist" / "deeper").mkdir()
    source = {"nowhere": None, "around": Source(other, Where.AROUND), "beside": Source(other, Where.SIBLING)}[found]
    assert chosen(source, tool, mine / name) == Subject(head, mine)
    assert capsys.readouterr().err == f"commit {head} (HEAD of {mine})\n"


def test_two_checkouts_that_may_be_meant_are_refused_and_both_named(tool: Path, tmp_path: Path) -> None:
    one, first = repository(tmp_path / "one")
    two, second = repository(tmp_path / "two")
    for found, files in ((None, (one / "dist", two / "dist")), (Source(one, Where.GIVEN), (two / "dist",))):
        with pytest.raises(UsageError) as caught:
            chosen(found, tool, *files)
        for text in (first[:12], str(one), second[:12], str(two)):
            assert text in caught.value.message
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", str(one), str(clone)], check=True)
    assert chosen(Source(one, Where.GIVEN), tool, clone).commit == first


def test_without_a_source_or_files_a_commit_is_asked_for(tool: Path, tmp_path: Path) -> None:
    for files in ((), (tmp_path,)):
        with pytest.raises(UsageError, match="no commit is given"):
            chosen(None, tool, *files)


def test_a_source_is_located_with_how_it_was_found(tool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, _ = repository(tmp_path / "mine")
    monkeypatch.chdir(tmp_path)
    assert locate_source(settings(), checkout=tool) is None
    sibling, _ = repository(tmp_path / "vllm-omni")
    assert locate_source(settings(), checkout=tool) == Source(sibling, Where.SIBLING)
    assert locate_source(settings(OMNI_CI_SOURCE=str(mine)), checkout=tool) == Source(mine, Where.GIVEN)
    monkeypatch.chdir(mine / "dist")
    assert locate_source(settings(), checkout=tool) == Source(mine, Where.AROUND)


def test_a_build_says_which_commit_it_takes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine, head = repository(tmp_path / "mine")
    assert commit_to_build(settings(), None, mine) == head
    assert commit_to_build(settings(BUILDKITE_COMMIT=BUILDKITE), None, mine) == BUILDKITE
    assert commit_to_build(settings(), GIVEN, mine) == GIVEN
    said = [f"commit {head} (HEAD of {mine})", f"commit {BUILDKITE} (BUILDKITE_COMMIT)"]
    assert capsys.readouterr().err.splitlines() == said
