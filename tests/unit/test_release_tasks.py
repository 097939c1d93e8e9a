"""What the release tasks begin with and what they print."""

from __future__ import annotations

import json
import stat
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from tasks.registry.retention import RetentionRule
from tasks.release import begin, cleanup, repositories, showing
from tasks.release.channels import Channel
from tasks.release.ledger import Event, Ledger
from tasks.release.past_runs import past_runs
from tasks.release.promotion_plan import Request
from tasks.release.status import channel_status, drift_error
from tasks.support import console
from tasks.support.announcing import announce
from tasks.support.errors import ConfigurationError, UsageError
from tasks.support.profiles import Deed
from tasks.support.settings import CHECKOUT, Settings, load
from tasks.support.store import open_store
from tests.factory_release import World, commit, nightly, release


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World.of_folders(tmp_path)


def settings(**environment: str) -> Settings:
    return load(environment={"PATH": "/usr/bin:/bin", **environment})


def read(chosen: Settings, channel: str, **given: Any) -> Request:
    words: dict[str, Any] = {
        "commit": commit(1),
        "version": None,
        "move_latest": False,
        "untested": None,
        "given_time": "2026-01-01T00:00:00Z",
        **given,
    }
    return begin.read_request(chosen, channel, **words)[0]


# The commit


def test_a_commit_that_would_be_a_guess_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for wheels: HEAD of a checkout that only lies beside this tool is not what anybody asked for."""
    library, tool = tmp_path / "vllm-omni", tmp_path / "tool"
    tool.mkdir()
    (library / "vllm_omni").mkdir(parents=True)
    identity = ["-c", "user.name=T", "-c", "user.email=t@x"]
    for words in (["init", "-q"], [*identity, "commit", "-q", "--allow-empty", "-m", "One"]):
        subprocess.run(["git", *words], cwd=library, check=True)
    monkeypatch.chdir(tool)
    with pytest.raises(UsageError, match="would be a guess"):
        read(settings(), "nightly", commit=None, checkout=tool)
    with pytest.raises(UsageError, match="would be a guess"):
        begin.record_subject(settings(), None, checkout=tool)
    assert read(settings(), "nightly").commit == commit(1)
    assert begin.record_subject(settings(BUILDKITE_COMMIT=commit(2)), None).commit == commit(2)


# Repositories


@pytest.mark.parametrize("profile", ["ci", "production"])
def test_the_repositories_are_the_catalogues(profile: str) -> None:
    chosen = repositories.choose(settings(OMNI_CI_PROFILE=profile))
    assert str(chosen.public) == "docker.io/vllm/vllm-omni"
    assert str(chosen.staging) == "public.ecr.aws/q9t5s3a7/vllm-omni-release-repo"


def test_in_profile_local_they_are_folders_of_this_checkout() -> None:
    chosen = repositories.choose(settings())
    assert chosen.public.folder == CHECKOUT / ".omni-ci" / "registry" / "public"
    assert chosen.staging.folder == CHECKOUT / ".omni-ci" / "registry" / "staging"


def test_a_flag_wins_over_a_variable_which_wins_over_the_catalogue() -> None:
    environment = {
        "OMNI_CI_PROFILE": "production",
        "OMNI_CI_PUBLIC": "host.example/b",
        "OMNI_CI_STAGING": "a.example/c",
    }
    chosen = repositories.choose(load(public="flag.example/d", environment=environment))
    assert (str(chosen.public), str(chosen.staging)) == ("flag.example/d", "a.example/c")


def test_a_folder_may_be_given_by_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "a folder"
    assert repositories.choose(load(public=str(folder), environment={})).public.folder == folder
    monkeypatch.chdir(tmp_path)
    for word in ("./a folder", "./x/../a folder", f"../{tmp_path.name}/a folder"):
        assert repositories.choose(load(staging=word, environment={})).staging.folder == folder
    # No registry's name begins with a full stop: what the shell completes to is a folder.
    assert repositories.choose(load(public=".omni-ci/x", environment={})).public.folder == tmp_path / ".omni-ci" / "x"
    with pytest.raises(UsageError, match="same repository"):
        repositories.choose(load(public=str(folder), staging=folder.as_uri(), environment={}))


def test_one_repository_cannot_be_both() -> None:
    with pytest.raises(UsageError, match="same repository"):
        repositories.choose(settings(OMNI_CI_PUBLIC="docker.io/a/b", OMNI_CI_STAGING="a/b"))


@pytest.mark.parametrize("address", ["http://x/y", "x/y:tag", "x y", "~/x", "user:secret@host/x"])
def test_a_hostile_address_is_a_usage_error(address: str) -> None:
    with pytest.raises(UsageError):
        repositories.choose(settings(OMNI_CI_PUBLIC=address))


# Requests


def agent(folder: Path, version: str) -> Settings:
    """Return the settings of a build whose meta-data release-version is this."""
    (folder / "version").write_text(version)
    program = folder / "buildkite-agent"
    program.write_text(
        f'#!/bin/sh\n[ "$*" = "meta-data get release-version" ] && exec cat {folder}/version\nexit 100\n'
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return settings(BUILDKITE="true", PATH=f"{folder}:/usr/bin:/bin")


@pytest.mark.parametrize("told", ["v0.28.0", "0.28.0", "0.28.0\n"])
def test_the_version_of_a_release_comes_from_the_builds_meta_data(tmp_path: Path, told: str) -> None:
    chosen = agent(tmp_path, told)
    assert read(chosen, "release").version == Version("0.28.0")
    assert read(chosen, "release", version="0.29.0").version == Version("0.29.0")
    assert read(chosen, "nightly").version is None


@pytest.mark.parametrize("told", ["1.0; rm -rf /", "1.0\n2.0\n", "1" * 200, "latest", " ", "1.0+cu130"])
def test_a_hostile_version_in_the_meta_data_is_a_usage_error(tmp_path: Path, told: str) -> None:
    with pytest.raises(UsageError, match="release-version"):
        read(agent(tmp_path, told), "release")


def test_a_release_without_any_version_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="needs a version"):
        read(settings(), "release")
    with pytest.raises(UsageError, match="needs a version"):
        read(agent(tmp_path, ""), "release")


@pytest.mark.parametrize("given", [{"version": "1.0"}, {"move_latest": True}, {"untested": "because"}])
def test_what_belongs_to_a_release_is_refused_for_a_nightly(given: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="belong to release"):
        read(settings(), "nightly", **given)


def test_an_override_needs_a_reason() -> None:
    with pytest.raises(UsageError, match="needs a reason"):
        read(settings(), "release", version="1.0", untested="  ")


@pytest.mark.parametrize("sha", ["main", "1a2b3c", "A" * 40, "1" * 41, "../x", "--help"])
def test_a_commit_is_a_full_hash(sha: str) -> None:
    with pytest.raises(UsageError):
        read(settings(), "nightly", commit=sha)


@pytest.mark.parametrize(
    ("profile", "target", "allowed"),
    [
        ("local", "file:///x", True),
        ("local", "docker.io/a/b", False),
        ("ci", "file:///x", False),
        ("ci", "docker.io/a/b", False),
        ("production", "docker.io/a/b", True),
    ],
)
@pytest.mark.parametrize("deed", [Deed.MOVE, Deed.RECORD, Deed.CLEAN])
def test_profiles_decide_what_may_change(
    profile: str, target: str, allowed: bool, deed: Deed, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = settings(OMNI_CI_PROFILE=profile)
    announce(chosen.profile, deed, [target], "what", dry_run=True)
    assert ("a real run would be refused" in capsys.readouterr().err) is not allowed
    if allowed:
        announce(chosen.profile, deed, [target], "what", dry_run=False)
        assert capsys.readouterr().err.startswith(f"profile {profile}: ")
        return
    with pytest.raises(ConfigurationError) as caught:
        announce(chosen.profile, deed, [target], "what", dry_run=False)
    assert caught.value.exit_code == 78


def test_a_clean_ups_words_change_the_catalogues_rule() -> None:
    said = cleanup.read_rule(None, None, None)
    assert (said.pattern, said.keep) == ("nightly-[0-9a-f]{40}", 14)
    changed = cleanup.read_rule("3", "14d", "5")
    assert (changed.keep, changed.younger_than.days, changed.most_deletions) == (3, 14, 5)
    assert changed.protected_patterns == said.protected_patterns
    for words in (("0", None, None), ("x", None, None), (None, "soon", None), (None, None, "-1")):
        with pytest.raises(UsageError):
            cleanup.read_rule(*words)


# What is printed


def test_a_report_has_the_lines_to_pull_and_to_undo(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    for number in (1, 2):
        world.staged(number)
    first = world.nightly(1)
    showing.publish_report(settings(), first, "", json=False)
    assert "undo" not in capsys.readouterr().err
    report = world.nightly(2)
    showing.publish_report(settings(), report, "host: rate limited 2 times, waited 4 s", json=True)
    said = capsys.readouterr()
    lines = said.err.splitlines()
    before = first.plan.index
    assert lines[-1] == f"undo: invoke release.rollback nightly --to {before}"
    assert "rate limited 2 times" in said.err
    rows = {line.split()[0]: line for line in lines if line.startswith("nightly")}
    assert set(rows) == {f"nightly-{commit(2)}", "nightly", "nightly-x86_64", "nightly-aarch64"}
    assert f"was {before[7:19]}" in rows["nightly"]
    assert "verified" in rows["nightly"]
    document = json.loads(said.out)
    assert (document["index"], document["wrote"], len(document["tags"])) == (report.plan.index, True, 4)


def test_a_report_says_why_latest_stays(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    for number, version in ((1, "1.4.0"), (2, "1.3.9")):
        world.staged(number)
        report = world.release(number, version)
    planned = world.plan(release(2, "1.3.9"))
    showing.publish_plan(planned)
    showing.publish_report(settings(), report, "", json=False)
    said = capsys.readouterr().err
    assert said.count("latest stays at 1.4.0 (1.3.9 is older)") == 1
    showing.publish_plan(planned)
    console.dry_run(planned.actions(), json=False)
    assert capsys.readouterr().err.count("latest stays at 1.4.0 (1.3.9 is older)") == 1
    assert "undo" not in said


def test_nothing_is_said_twice(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.staged(1, version="1.0", tested=False)
    report = world.release(1, "1.0", untested="the cards are away")
    showing.publish_plan(report.plan)
    showing.publish_report(settings(), report, "", json=False)
    assert capsys.readouterr().err.count("the cards are away") == 1
    for number in (2, 3):
        world.staged(number)
        world.nightly(number)
    plan = cleanup.plan_cleanup(settings(), world.parties, RetentionRule(keep=1), reclaim=True).plan
    for dry_run in (False, True):
        showing.cleanup_plan(plan, dry_run=dry_run)
        if dry_run:
            console.dry_run(plan.actions(), json=False)
        said = capsys.readouterr().err
        assert [said.count(f"nightly-{commit(number)}") for number in (2, 3)] == [1, 1]
        assert said.count("older than the newest 1") == 1


@pytest.mark.slow
@pytest.mark.parametrize("pattern", [".*", "v.*", r"(v|nightly-).*", r"v[0-9.]+-aarch64"])
def test_a_rule_that_is_too_wide_never_takes_a_releases_tags(world: World, pattern: str) -> None:
    """The catalogue is data that people edit; what was released never comes again."""
    for number in (1, 2, 3):
        world.staged(number)
        world.release(number, f"1.{number}")
    before = world.tags()
    with pytest.raises(ConfigurationError, match=r"the rule would delete v1\.[0-9]"):
        cleanup.plan_cleanup(settings(), world.parties, RetentionRule(pattern, 1, protected_patterns=()), reclaim=True)
    assert world.tags() == before


def test_a_dry_run_ends_as_the_refused_real_run(world: World) -> None:
    for number in (1, 2, 3):
        world.staged(number)
        world.nightly(number)
    allowed = cleanup.plan_cleanup(settings(), world.parties, RetentionRule(keep=1, most_deletions=2), reclaim=True)
    assert allowed.refusal is None
    rule = RetentionRule(keep=1, most_deletions=1)
    refusal = cleanup.plan_cleanup(settings(), world.parties, rule, reclaim=True).refusal
    assert refusal is not None
    told = begin.foretold(refusal)
    assert told.message == f"a real run would be refused: {refusal.message}"
    assert (told.exit_code, told.hint) == (65, refusal.hint)


def test_the_status_says_where_it_looked_and_what_drifted(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    for number in (1, 2):
        world.staged(number, version="1.0")
        world.nightly(number)
    world.release(1, "1.0")
    rows = channel_status(world.public, world.store, Channel.NIGHTLY)
    assert drift_error(rows) is None
    stranger = world.public.manifest(f"nightly-{commit(1)}")
    assert stranger is not None
    world.public.put_manifest(stranger, "nightly")
    rows = [row for channel in Channel for row in channel_status(world.public, world.store, channel)]
    showing.status_report(world.parties, rows, past_runs(world.public, world.store, Channel.RELEASE), json=True)
    said = capsys.readouterr()
    document = json.loads(said.out)
    assert (document["public"], document["ledger"]) == (str(world.public.name), world.store.url)
    tags = {row["tag"]: row for row in document["tags"]}
    moved = tags["nightly"]
    assert (moved["drift"], moved["since"], moved["run"], moved["commit"]) == (True, None, None, commit(1))
    assert not any(row["drift"] for tag, row in tags.items() if tag != "nightly")
    assert [run["version"] for run in document["runs"]] == ["1.0"]
    lines = {line.split()[0]: line for line in said.err.splitlines() if line}
    assert lines["latest"].split()[2:4] == [commit(1)[:12], "1.0"]
    assert " UTC (" in lines["latest"]
    error = drift_error(rows)
    assert error is not None
    assert (error.exit_code, error.message) == (65, "not as the ledger says: nightly")


@pytest.mark.parametrize("deed", ["a lost tag", "a tag that the ledger does not know"])
def test_whatever_the_ledger_does_not_say_is_drift(world: World, tmp_path: Path, deed: str) -> None:
    world.staged(1)
    world.nightly(1)
    if deed == "a lost tag":
        world.public.delete_tag("nightly")  # type: ignore[attr-defined]
    else:
        world.store = open_store(str(tmp_path / "another"))
    rows = {row.tag: row for row in channel_status(world.public, world.store, Channel.NIGHTLY)}
    assert rows["nightly"].drift
    assert rows["nightly-x86_64"].drift is (deed != "a lost tag")


def test_a_run_that_did_not_end_is_told_with_what_it_was(world: World) -> None:
    world.staged(1)
    world.nightly(1, "done")
    entry = replace(world.entries()[0], event=Event.INTENT, run="killed")
    Ledger(world.store, Channel.NIGHTLY).add(entry)
    row = channel_status(world.public, world.store, Channel.NIGHTLY)[0]
    assert row.note == f"run killed, publish of commit {commit(1)}, did not come to its end: run it again"
    assert not row.drift


def test_a_rollback_says_that_a_run_is_undone_only_when_it_is(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    for number in (1, 2, 3):
        world.staged(number)
        world.nightly(number, f"run-{number}")
    showing.rollback_report(world.rollback(to=f"nightly-{commit(1)}"), json=False)
    assert "undone" not in capsys.readouterr().err
    showing.rollback_report(world.rollback(to="nightly", name="nothing"), json=False)
    assert "undone" not in capsys.readouterr().err
    world.rollback(to=f"nightly-{commit(3)}", name="forward")
    showing.rollback_report(world.rollback(name="back"), json=False)
    assert "is undone" in capsys.readouterr().err


def test_a_publish_is_told_on_the_builds_page(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "buildkite-agent"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$*" > {tmp_path}/words\ncat > {tmp_path}/page\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    world.staged(1)
    report = world.nightly(1)
    showing.publish_report(settings(BUILDKITE="true", PATH=f"{program.parent}:/usr/bin:/bin"), report, "", json=False)
    assert (tmp_path / "words").read_text() == "annotate --style success --context publish-nightly\n"
    page = (tmp_path / "page").read_text()
    assert f"**nightly** of `{commit(1)}`" in page
    assert f"| nightly | {report.plan.index} |" in page
    (tmp_path / "page").unlink()
    # Nothing happened, so nothing is told.
    again = world.publish(nightly(1))
    showing.publish_report(settings(BUILDKITE="true", PATH=f"{program.parent}:/usr/bin:/bin"), again, "", json=False)
    assert not (tmp_path / "page").exists()


def test_the_parties_are_those_of_the_settings(tmp_path: Path) -> None:
    chosen = load(store=str(tmp_path / "s"), public=(tmp_path / "p").as_uri(), staging="host.example/x", environment={})
    parties = begin.open_parties(chosen)
    assert (str(parties.public.name), str(parties.staging.name)) == ((tmp_path / "p").as_uri(), "host.example/x")
    assert begin.first_line(parties, Request(Channel.RELEASE, commit(1), Version("1.0"))).startswith(
        "release 1.0 · 00000000 · host.example/x -> file:"
    )
