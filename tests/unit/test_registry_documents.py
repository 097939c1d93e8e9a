"""Descriptors as registries send them: every field that is not what it must be is refused, and named."""

from __future__ import annotations

from typing import Any

import pytest

from tasks.registry.assembling import read_facts
from tasks.registry.documents import OCI_MANIFEST, Descriptor, Platform, parse_json
from tasks.support.errors import DataError

DIGEST = f"sha256:{'0' * 64}"
OTHERS: tuple[Any, ...] = (None, True, False, 0, 5, 1.5, [], ["x"], {}, {"x": "y"})
SOUND = {"mediaType": OCI_MANIFEST, "digest": DIGEST, "size": 3}


@pytest.mark.parametrize("value", OTHERS, ids=repr)
@pytest.mark.parametrize("field", ["os", "architecture", "variant"])
def test_a_field_of_a_platform_is_a_text(field: str, value: Any) -> None:
    platform = {"os": "linux", "architecture": "arm", "variant": "v7", field: value}
    if field == "variant" and value is None:
        assert Descriptor.read({**SOUND, "platform": platform}, "it").platform == Platform("linux", "arm")
        return
    with pytest.raises(DataError, match="in it"):
        Descriptor.read({**SOUND, "platform": platform}, "it")


@pytest.mark.parametrize(
    "value", [5, True, False, [], "linux/arm64", {"os": "linux"}, ["os", "architecture"]], ids=repr
)
def test_a_platform_is_an_object(value: Any) -> None:
    with pytest.raises(DataError):
        Descriptor.read({**SOUND, "platform": value}, "it")


@pytest.mark.parametrize("value", [None, {}], ids=repr)
def test_no_platform_is_none(value: Any) -> None:
    assert Descriptor.read({**SOUND, "platform": value, "annotations": value}, "it").platform is None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("mediaType", value) for value in OTHERS),
        *(("digest", value) for value in OTHERS),
        *(("size", value) for value in (*OTHERS, -1, "3") if value not in (0, 5) or isinstance(value, bool)),
        *(("annotations", value) for value in (True, False, 0, 5, [], ["x"], "", {"x": 1})),
    ],
)
def test_a_field_of_another_kind_is_refused(field: str, value: Any) -> None:
    with pytest.raises(DataError, match="malformed descriptor in it"):
        Descriptor.read({**SOUND, field: value}, "it")


@pytest.mark.parametrize("document", [None, *OTHERS, {}, {"mediaType": "x"}, {**SOUND, "annotations": [1]}])
def test_a_malformed_descriptor_is_shown_and_not_the_exception_that_it_caused(document: Any) -> None:
    with pytest.raises(DataError) as caught:
        Descriptor.read(document, "it")
    shown = "nothing" if document is None else repr(document)[:200]
    assert caught.value.message == f"malformed descriptor in it: {shown}"


@pytest.mark.parametrize("value", ["0", "false", "[]", "{}", "7"])
def test_a_variant_of_a_configuration_is_a_text_or_null(value: str) -> None:
    config = '{"os": "linux", "architecture": "arm", "variant": %s}'
    with pytest.raises(DataError, match="malformed image configuration of it"):
        read_facts((config % value).encode(), "it")
    assert read_facts((config % "null").encode(), "it").platform == Platform("linux", "arm")


@pytest.mark.parametrize(
    "data", [b"NaN", b"[Infinity]", b'{"a": -Infinity}', b"\xef\xbb\xbf{}", b"{\0}\0", b'"\xe9"', b""]
)
def test_what_registries_do_not_take_for_json_is_none(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_json(data)
