from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.registry.references import check_tag
from tasks.release.channels import (
    Channel,
    channel_of_tag,
    fixed_group,
    floating_group,
    parse_version,
    version_of_tag,
    version_tag,
)
from tasks.support.errors import UsageError

COMMIT = "1a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d"


@pytest.mark.parametrize(
    ("text", "tag"),
    [
        ("0.28.0", "v0.28.0"),
        ("v0.28.0", "v0.28.0"),
        ("V1.0RC1", "v1.0rc1"),
        ("0.28.0-rc.1", "v0.28.0rc1"),
        ("0.28.0.post1", "v0.28.0.post1"),
    ],
)
def test_a_version_is_written_in_its_normal_form(text: str, tag: str) -> None:
    version = parse_version(text)
    assert version_tag(version) == tag
    assert version_of_tag(tag) == version


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "1.0; rm -rf /",
        "1.0\n",
        "\n1.0",
        "1.0\nlatest",
        "1.0\0",
        "1" * 200,
        "1." * 99 + "0",
        "../1.0",
        "-1.0",
        "--help",
        "latest",
        "vv1.0",
        "1.0+cu130",
        "1.0.dev3",
        "1!1.0",
        "1.0@sha256",
        "١.٢",
        "1.0 ",
        "$(id)",
        "`id`",
        "%2e1",
    ],
)
def test_what_no_release_can_be_called_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_version(text, "release-version")
    assert caught.value.exit_code == 64
    assert caught.value.message.startswith("release-version is not a")
    assert "\n" not in caught.value.message
    assert len(caught.value.message) < 200


@given(st.text(max_size=300))
def test_any_text_is_a_version_that_can_be_a_tag_or_a_usage_error(text: str) -> None:
    try:
        version = parse_version(text)
    except UsageError:
        return
    check_tag(version_tag(version))
    assert version_of_tag(version_tag(version)) == version


def test_the_tags_of_the_channels() -> None:
    assert fixed_group(Channel.NIGHTLY, COMMIT, None).names == (f"nightly-{COMMIT}",)
    assert floating_group(Channel.NIGHTLY).names == ("nightly-x86_64", "nightly-aarch64", "nightly")
    release = fixed_group(Channel.RELEASE, COMMIT, parse_version("1.2.3"))
    assert release.names == ("v1.2.3-x86_64", "v1.2.3-aarch64", "v1.2.3")
    assert floating_group(Channel.RELEASE).names == ("latest-x86_64", "latest-aarch64", "latest")


@pytest.mark.parametrize("tag", ["latest", "v1.0-x86_64", "v1.0-rc1", "vlatest", "1.0", "v", "nightly"])
def test_only_a_version_in_its_normal_form_is_a_version_tag(tag: str) -> None:
    assert version_of_tag(tag) is None


def test_an_unknown_channel_names_the_closest_one() -> None:
    with pytest.raises(UsageError, match="unknown channel 'nigthly'") as caught:
        Channel.parse("nigthly")
    assert caught.value.hint == "did you mean nightly?"


@pytest.mark.parametrize("channel", Channel)
@pytest.mark.parametrize("text", ["0.28.0", "1.0rc1", "0.28.0.post1"])
def test_every_tag_that_a_channel_writes_is_known_as_its_own(channel: Channel, text: str) -> None:
    fixed = fixed_group(channel, "1" * 40, parse_version(text))
    for tag in (*fixed.names, *floating_group(channel).names):
        assert channel_of_tag(tag) is channel


@pytest.mark.parametrize("tag", ["nightly-1", f"nightly-{'1' * 40}-x86_64", "v", "v01", "latest-arm", "backup", "1.0"])
def test_other_tags_are_no_channels(tag: str) -> None:
    assert channel_of_tag(tag) is None


@pytest.mark.parametrize(("text", "part"), [("1.0+cu1", "a local"), ("1.0.dev1", "a development"), ("1!1", "an epoch")])
def test_the_part_that_a_release_cannot_have_is_named(text: str, part: str) -> None:
    with pytest.raises(UsageError, match=f"has {part} part"):
        parse_version(text)
