"""What the release tasks refuse before they change anything: no ledger, no folder, another spelling."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from tasks.registry.references import RepositoryName
from tasks.registry.retention import RetentionRule
from tasks.release import begin
from tasks.release.channels import Channel, floating_group
from tasks.release.cleanup import plan_cleanup
from tasks.release.promotion_plan import Request
from tasks.release.status import AS_RECORDED, channel_status
from tasks.support.errors import ConfigurationError, DataError, MissingInputError
from tasks.support.settings import Settings, load
from tasks.support.source import Ancestry
from tasks.support.store import open_store
from tests import factory_image as images
from tests.factory_release import World, commit, nightly, passed, release

FAR = RepositoryName.parse("host.example/omni")


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World.of_folders(tmp_path)


def settings(**given: Any) -> Settings:
    return load(environment={}, **given)


# The ledger of a registry does not lie in the checkout


@pytest.mark.parametrize(
    ("given", "environment"),
    [
        ({"store": "/somewhere"}, {}),
        ({"store": load(environment={}).store}, {}),
        ({}, {"OMNI_CI_STORE": "/somewhere"}),
        ({}, {"OMNI_CI_STORE": "s3://bucket/prefix"}),
    ],
)
def test_a_named_store_may_hold_any_ledger(given: dict[str, Any], environment: dict[str, str]) -> None:
    begin.require_ledger(load(environment=environment, **given), FAR)


def test_a_folder_of_this_checkout_may_hold_the_ledger_of_folders_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begin.require_ledger(settings(), RepositoryName.parse(tmp_path.as_uri()))
    with pytest.raises(ConfigurationError, match="no store is named") as caught:
        begin.require_ledger(settings(), FAR)
    assert caught.value.exit_code == 78
    assert capsys.readouterr().err == ""
    begin.require_ledger(settings(), FAR, dry_run=True)
    assert "warning: a real run would be refused: no store is named" in capsys.readouterr().err


# A clean-up with a ledger that knows nothing


@pytest.mark.parametrize("reclaim", [False, True])
@pytest.mark.parametrize("channel", list(Channel))
def test_a_clean_up_without_the_ledger_is_refused_and_can_be_meant(
    world: World, tmp_path: Path, channel: Channel, reclaim: bool
) -> None:
    world.staged(1)
    world.nightly(1) if channel is Channel.NIGHTLY else world.release(1, "1.0")
    plan_cleanup(settings(), world.parties, RetentionRule(), reclaim=reclaim)
    world.store = open_store(str(tmp_path / "another"))
    with pytest.raises(MissingInputError, match="knows none of") as caught:
        plan_cleanup(settings(), world.parties, RetentionRule(), reclaim=reclaim)
    assert all(tag in caught.value.message for tag in floating_group(channel).names)
    assert "--without-ledger" in (caught.value.hint or "")
    meant = plan_cleanup(settings(), world.parties, RetentionRule(), reclaim=reclaim, without_ledger=True)
    assert meant.plan.choices


def test_a_clean_up_needs_no_ledger_where_no_tag_moves(world: World, tmp_path: Path) -> None:
    world.staged(1)
    world.nightly(1)
    for tag in floating_group(Channel.NIGHTLY).names:
        world.public.delete_tag(tag)  # type: ignore[attr-defined]
    world.store = open_store(str(tmp_path / "another"))
    plan = plan_cleanup(settings(), world.parties, RetentionRule(), reclaim=True).plan
    assert [choice.tag for choice in plan.choices] == [f"nightly-{commit(1)}"]


# What is in place and the ledger does not know


@pytest.mark.parametrize("request_", [nightly(1), release(1, "1.0")], ids=["nightly", "release"])
def test_a_publish_that_finds_all_in_place_is_written_to_a_ledger_that_does_not_know_it(
    world: World, tmp_path: Path, request_: Request
) -> None:
    world.staged(1, version="1.0")
    world.publish(request_)
    before = world.tags()
    world.store = open_store(str(tmp_path / "another"))
    passed(world.store, 1)
    assert [action for action, *_ in world.plan(request_).actions()] == ["record"]
    report = world.publish(request_)
    assert (report.wrote, world.tags()) == (False, before)
    (entry,) = world.entries(request_.channel)
    assert entry.finished
    assert {change.tag: change.new for change in entry.tags} == before
    assert {row.note for row in channel_status(world.public, world.store, request_.channel)} == {AS_RECORDED}
    assert world.plan(request_).actions() == []
    world.publish(request_)
    assert len(world.entries(request_.channel)) == 1


def test_a_release_that_is_published_needs_no_proof_to_be_found_in_place(world: World) -> None:
    world.staged(1, tested=False, version="1.0")
    world.release(1, "1.0", untested="the cards are away")
    again = world.release(1, "1.0")
    assert not again.wrote
    assert again.plan.refusal is None


@pytest.mark.parametrize("known", [True, False])
def test_a_floating_tag_that_somebody_else_moved_is_warned_about(world: World, tmp_path: Path, known: bool) -> None:
    for number in (1, 2):
        world.staged(number)
        world.nightly(number)
    stranger = world.public.manifest(f"nightly-{commit(1)}")
    assert stranger is not None
    world.public.put_manifest(stranger, "nightly")
    if not known:
        world.store = open_store(str(tmp_path / "another"))
    world.staged(3)
    planned = world.plan(nightly(3), lambda _older, _newer: Ancestry.ANCESTOR)
    (warning,) = [line for line in planned.warnings if line.startswith("nightly shows")]
    assert stranger.digest in warning
    assert ("somebody else moved it" in warning) is known


# Versions and labels


@pytest.mark.parametrize(
    ("asked", "label"),
    [("0.28", "0.28.0"), ("0.28.0", "0.28"), ("1", "1.0.0"), ("0.28rc1", "0.28.0rc1"), ("0.28", "0.28.0+cu130")],
)
def test_an_image_of_the_same_version_in_another_spelling_is_refused(world: World, asked: str, label: str) -> None:
    world.staged(1, version=label)
    with pytest.raises(DataError) as caught:
        world.release(1, asked)
    assert f"did you mean --version {Version(label).public}?" in (caught.value.hint or "")
    assert world.tags() == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "second"), [("0.28.0", "0.28"), ("0.28", "0.28.0"), ("1", "1.0.0.0"), ("2.0.0rc1", "2.0rc1")]
)
def test_a_version_that_is_there_in_another_spelling_is_refused(world: World, first: str, second: str) -> None:
    for number in (1, 2):
        world.staged(number)
    world.release(1, first)
    before = world.tags()
    with pytest.raises(DataError) as caught:
        world.release(2, second)
    assert f"did you mean --version {first}?" in (caught.value.hint or "")
    assert world.tags() == before


@pytest.mark.slow
def test_other_versions_are_no_other_spellings(world: World) -> None:
    for number, version in enumerate(("1.0.0", "1.0.1", "1.1", "10.0.0", "1.0.0rc1", "1.0.0.post1"), 1):
        world.staged(number, version=version)
        assert world.release(number, version).wrote


def test_a_release_needs_the_label_of_its_commit_and_is_warned_about_its_versions(world: World) -> None:
    world.staged(1)
    warnings = world.plan(release(1, "1.0")).warnings
    assert [line.partition(" has no label ")[0] for line in warnings] == [
        f"{commit(1)}-x86_64",
        f"{commit(1)}-aarch64",
    ]
    assert all("image.version" in line for line in warnings)
    for architecture, short in (("amd64", "x86_64"), ("arm64", "aarch64")):
        images.store(images.image(architecture, commit=None), world.staging, f"{commit(2)}-{short}")
    passed(world.store, 2)
    assert world.plan(nightly(2)).writes
    with pytest.raises(DataError, match=r"no label org\.opencontainers\.image\.revision"):
        world.plan(release(2, "1.0"))


# A folder that is not there


def test_a_local_repository_that_is_not_there_is_said(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    begin.require_folder(FAR)
    with pytest.raises(MissingInputError, match=f"there is no folder {gone}"):
        begin.require_folder(RepositoryName.parse(gone.as_uri()))
    gone.mkdir()
    begin.require_folder(RepositoryName.parse(gone.as_uri()))
