"""The accelerator build that a version names."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from tasks.support.errors import DataError
from tasks.support.settings import load
from tasks.wheels.variants import parse_variant

PATTERNS = load(environment={}).wheels.variants


@pytest.mark.parametrize(
    ("version", "name", "unknown"),
    [
        ("0.11.1rc8.dev14+gaa384b3c0.cu130", "cu130", ()),
        ("0.10.2rc2+cu129", "cu129", ()),
        ("0.11.1rc8.dev14+gaa384b3c0", None, ()),
        ("0.14.0+cpu", "cpu", ()),
        ("0.22.1+rocm722", "rocm722", ()),
        ("0.11.2.dev3+g1234567.d20260101", None, ()),
        ("0.11.2.dev3+g1234567.d20260101.cu129", "cu129", ()),
        ("2.14.0.dev20260710+rocm7.2", "rocm7.2", ()),
        ("0.14.1.dev23+g1a2b3c4.rocm", "rocm", ()),
        ("1.0+rocm6.2.4", "rocm6.2.4", ()),
        ("1.0+weird.thing", None, ("weird", "thing")),
        ("0.12.0", None, ()),
        ("1.0+CU130", "cu130", ()),
        ("1.0+g1234567_cu130", "cu130", ()),
        ("1.0+weird.cu130", "cu130", ("weird",)),
        ("2.1.0+cu118.g1234567", "cu118", ()),
        ("1.0+cu129.full", None, ("cu129", "full")),
        ("1.0+cu129_full", None, ("cu129", "full")),
        ("1.0+cu", None, ("cu",)),
        ("1.0+xcu130", None, ("xcu130",)),
        ("1.0+cu1300", None, ("cu1300",)),
        ("1.0+rocmx", None, ("rocmx",)),
        ("1.0+d2026", None, ("d2026",)),
        ("1.0+gaudi", None, ("gaudi",)),
        ("1.0+7.2", None, ("7", "2")),
        ("1!2.0.post3+npu", "npu", ()),
    ],
)
def test_reads_the_variant(version: str, name: str | None, unknown: tuple[str, ...]) -> None:
    variant = parse_variant(version, PATTERNS)
    assert (variant.name, variant.unknown) == (name, unknown)
    assert parse_variant(Version(version), PATTERNS) == variant


@pytest.mark.parametrize(
    ("local", "named"),
    [
        ("cu130.rocm7.2", ["cu130", "rocm7.2"]),
        ("rocm.rocm", ["rocm", "rocm"]),
        ("rocm7.2.g1234567.rocm", ["rocm7.2", "rocm"]),
        ("cpu.weird.npu", ["cpu", "npu"]),
        ("cu130.cu129.weird", ["cu130", "cu129"]),
    ],
)
def test_refuses_two_variants(local: str, named: list[str]) -> None:
    with pytest.raises(DataError) as caught:
        parse_variant(f"1.0+{local}", PATTERNS)
    for text in (f"1.0+{local}", *named):
        assert text in caught.value.message


def test_refuses_what_is_no_version() -> None:
    with pytest.raises(DataError, match="'one'"):
        parse_variant("one", PATTERNS)


def test_without_patterns_nothing_is_a_variant() -> None:
    assert parse_variant("1.0+cu130", ()).unknown == ("cu130",)


@given(st.lists(st.from_regex(r"[a-z0-9]{1,8}", fullmatch=True), max_size=5))
def test_every_label_is_told_apart_or_refused(labels: list[str]) -> None:
    version = Version("1.0" + ("+" + ".".join(labels) if labels else ""))
    try:
        variant = parse_variant(version, PATTERNS)
    except DataError:
        return
    assert variant.name is None or any(re.fullmatch(pattern, variant.name) for pattern in PATTERNS)
    found = [*variant.unknown, *(variant.name.split(".") if variant.name else [])]
    scm = [label for label in (version.local or "").split(".") if re.fullmatch(r"|g[0-9a-f]{4,}|d\d{8}", label)]
    assert len(found) + len([label for label in scm if label]) == len((version.local or "").split(".")) - (not labels)
