from __future__ import annotations

from collections.abc import Callable

import pytest

from tasks.support.errors import UsageError
from tasks.wheels import layout, pypi_plan, yanking

ENDLESS = ["9" * 5000, "v" + "9" * 5000, "1." * 3000 + "1", "1+" + "a" * 5000, "1rc" + "9" * 4400]


def yanked_version(version: str) -> object:
    return yanking.request("sample", version, commit=None, files=(), reason=None, undo=False)


@pytest.mark.parametrize("read", [layout.release_view, layout.check_view, pypi_plan.parse_release, yanked_version])
@pytest.mark.parametrize("version", [*ENDLESS, "", "v", "one", "v1..2", "1\x00", "v1\ud800", "v٣"])
def test_what_is_no_version_is_a_usage_error_wherever_a_person_gives_one(
    read: Callable[[str], object], version: str
) -> None:
    with pytest.raises(UsageError):
        read(version)


@pytest.mark.parametrize(
    ("given", "view"),
    [("0.28.0", "v0.28.0"), ("v0.28.0", "v0.28.0"), ("v0.28", "v0.28"), ("1.0+cu130", "v1.0"), ("1.0RC1", "v1.0rc1")],
)
def test_a_releases_view_keeps_the_spelling_of_its_version(given: str, view: str) -> None:
    assert layout.release_view(given) == view


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("v0.8", "v0.8.0.0", True),
        ("v0.8", "v0.8", True),
        ("nightly", "nightly", True),
        ("v0.8", "v0.8rc1", False),
        ("v0.8", "v0.80", False),
        ("v0.8", "vjunk", False),
        ("v0.8", "nightly", False),
    ],
)
def test_two_names_mean_one_view_when_their_versions_are_equal(one: str, other: str, same: bool) -> None:
    assert layout.same_view(one, other) is layout.same_view(other, one) is same


@pytest.mark.parametrize("version", ["0.1.1", "0.28.0rc1", "1!2.0", "0.1.1+rocm", "V0.1.1"])
def test_a_version_that_lacks_its_v_is_answered_with_the_view(version: str) -> None:
    with pytest.raises(UsageError) as caught:
        layout.check_view(version)
    name = (caught.value.hint or "").removeprefix("did you mean ").removesuffix("?")
    assert name == layout.check_view(name)
    assert name == layout.release_view(version.lower())
