"""What disk care chooses, from an engine's account of what it holds."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.images.disk import Holdings, Kind, choose_removals, moment

NOW = datetime(2026, 8, 28, 12, tzinfo=UTC)
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def ago(hours: float) -> int:
    return int((NOW - timedelta(hours=hours)).timestamp())


def stamp(hours: float) -> str:
    return (NOW - timedelta(hours=hours)).strftime("%Y-%m-%dT%H:%M:%S.123456789Z")


def image(key: str, *tags: str, hours: float = 100, **more: Any) -> dict[str, Any]:
    return {"Id": key, "RepoTags": list(tags) or None, "RepoDigests": None, "Created": ago(hours), "Size": 10, **more}


def chosen(holdings: Holdings, older_than: float = 72) -> list[tuple[Kind, str]]:
    return [(item.kind, item.name) for item in choose_removals(holdings, NOW, timedelta(hours=older_than))]


def of(images: Iterable[dict[str, Any]], **tagged: float) -> Holdings:
    found = tuple(images)
    moments = {one["Id"]: NOW - timedelta(hours=tagged.get(one["Id"], 10_000)) for one in found}
    return Holdings(images=found, tagged=moments)


@pytest.mark.parametrize(
    ("tags", "goes"),
    [
        ((f"r/x:{COMMIT}",), True),
        ((f"r/x:{COMMIT}-x86_64", f"r/x:nightly-{COMMIT}"), True),
        ((f"r.example:5000/x:{COMMIT}",), True),
        ((f"r/{COMMIT}:latest",), False),
        ((f"r/x:{COMMIT}", "r/x:latest"), False),
        ((f"r/x:{COMMIT}0",), False),
        ((f"r/x:{COMMIT[:12]}",), False),
        (("r/x:v0.27.0-0123456789ab",), False),
    ],
)
def test_only_images_of_one_commit_go_while_they_have_a_tag(tags: tuple[str, ...], goes: bool) -> None:
    assert chosen(of([image("a", *tags)])) == ([(Kind.TAG, tag) for tag in sorted(tags)] if goes else [])


@pytest.mark.parametrize(
    ("made", "tagged", "goes"), [(73, 73, True), (73, 71, False), (71, 73, False), (10_000, 0, False)]
)
def test_the_later_of_making_and_tagging_counts(made: float, tagged: float, goes: bool) -> None:
    assert bool(chosen(of([image("a", f"x:{COMMIT}", hours=made)], a=tagged))) is goes


def test_untagged_images_go_after_an_hour_unless_they_were_pulled_by_digest() -> None:
    assert chosen(of([image("a", hours=2), image("b", hours=0.5)], b=0.5)) == [(Kind.IMAGE, "a")]
    assert chosen(of([image("a", "<none>:<none>", hours=2, RepoDigests=["<none>@<none>"])])) == [(Kind.IMAGE, "a")]
    assert chosen(of([image("a", hours=2, RepoDigests=["r/x@sha256:0"])])) == []
    assert chosen(of([image("a", hours=80, RepoDigests=["r/x@sha256:0"])])) == [(Kind.IMAGE, "a")]


@pytest.mark.parametrize("state", ["running", "paused", "restarting", "removing", "exited", "dead", "created"])
def test_an_image_that_any_container_has_stays_and_only_ended_containers_go(state: str) -> None:
    container = {"Id": "c", "ImageID": "a", "State": state, "Created": ago(100), "Names": ["/job"]}
    ended = {"c": NOW - timedelta(hours=90)} if state in {"exited", "dead", "created"} else {}
    holdings = Holdings(
        images=(image("a", f"x:{COMMIT}"),),
        containers=(container,),
        tagged={"a": NOW - timedelta(hours=100)},
        stopped=ended,
    )
    assert chosen(holdings) == ([(Kind.CONTAINER, "job")] if ended else [])


def test_a_container_counts_from_its_end_not_from_its_start() -> None:
    container = {"Id": "c", "ImageID": "a", "State": "exited", "Created": ago(500), "Names": ["/job"]}
    for hours, goes in ((73, True), (71, False)):
        holdings = Holdings(containers=(container,), stopped={"c": NOW - timedelta(hours=hours)})
        assert bool(chosen(holdings)) is goes


@pytest.mark.parametrize(
    ("volume", "goes"),
    [
        ({"Name": "ab" * 32}, True),
        ({"Name": "x", "Labels": {"com.docker.volume.anonymous": ""}}, True),
        ({"Name": "models"}, False),
        ({"Name": "ab" * 32, "UsageData": {"RefCount": 1, "Size": 5}}, False),
        ({"Name": "ab" * 32, "UsageData": None}, False),
        ({"Name": "ab" * 32, "UsageData": {"RefCount": -1, "Size": -1}}, False),
        ({"Name": "ab" * 32, "CreatedAt": "2026-08-28T11:30:00Z"}, False),
        ({"Name": "ab" * 32, "CreatedAt": None}, False),
    ],
)
def test_only_unused_volumes_that_nobody_named_go(volume: dict[str, Any], goes: bool) -> None:
    whole = {"UsageData": {"RefCount": 0, "Size": 5}, "CreatedAt": "2026-08-01T00:00:00Z", "Labels": None, **volume}
    assert bool(chosen(Holdings(volumes=(whole,)))) is goes


def test_build_cache_goes_by_its_last_use() -> None:
    record = {"ID": "r", "InUse": False, "Size": 5, "Shared": False, "CreatedAt": stamp(500), "LastUsedAt": stamp(73)}
    assert chosen(Holdings(cache=(record,))) == [(Kind.CACHE, "r")]
    for other in ({"LastUsedAt": stamp(71)}, {"InUse": True}, {"LastUsedAt": None, "CreatedAt": stamp(1)}):
        assert chosen(Holdings(cache=({**record, **other},))) == []


def test_an_engine_that_holds_nothing_gives_nothing_up() -> None:
    assert chosen(Holdings()) == []


@given(st.permutations([image(name, f"x:{digit * 40}") for name, digit in zip("abcd", "1234", strict=True)]))
def test_the_order_of_the_engines_answer_does_not_matter(images: list[dict[str, Any]]) -> None:
    assert chosen(of(images)) == [(Kind.TAG, f"x:{digit * 40}") for digit in "1234"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (1_787_918_400, datetime.fromtimestamp(1_787_918_400, UTC)),
        ("2026-08-28T12:00:00.123456789Z", datetime(2026, 8, 28, 12, 0, 0, 123456, UTC)),
        ("2026-08-28T14:00:00+02:00", NOW),
        ("0001-01-01T00:00:00Z", datetime(1970, 1, 1, tzinfo=UTC)),
        ("", datetime(1970, 1, 1, tzinfo=UTC)),
        (None, datetime(1970, 1, 1, tzinfo=UTC)),
        ("yesterday", datetime(1970, 1, 1, tzinfo=UTC)),
        ("2026-08-28T12:00:00", datetime(1970, 1, 1, tzinfo=UTC)),
    ],
)
def test_moments_are_read_as_engines_write_them(text: object, expected: datetime) -> None:
    assert moment(text) == expected
