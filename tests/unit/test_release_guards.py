"""What the release tasks refuse before they change anything: no ledger, no folder, another spelling."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tasks.registry.references import RepositoryName
from tasks.registry.retention import RetentionRule
from tasks.release import begin
from tasks.release.channels import Channel, floating_group
from tasks.release.cleanup import plan_cleanup
from tasks.support.errors import ConfigurationError, MissingInputError
from tasks.support.settings import Settings, load
from tasks.support.store import open_store
from tests.factory_release import World, commit

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


# A folder that is not there


def test_a_local_repository_that_is_not_there_is_said(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    begin.require_folder(FAR)
    with pytest.raises(MissingInputError, match=f"there is no folder {gone}"):
        begin.require_folder(RepositoryName.parse(gone.as_uri()))
    gone.mkdir()
    begin.require_folder(RepositoryName.parse(gone.as_uri()))
