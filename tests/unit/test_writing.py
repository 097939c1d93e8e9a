"""YAML that every reader takes for the document it was written from."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from tasks.pipelines.writing import to_json, to_yaml
from tasks.pipelines.yaml_values import read_document
from tasks.support.errors import DataError

ODD = "\x00\x07\t\n\r\x1b\x7f\x85\xa0\u2028\u2029\ufeff\ufffe\uffff\U0001f600 :#-?'\"\\|>&*!%@`{}[],~=<$yn01."
WORDS = [
    *("yes", "No", "on", "OFF", "y", "N", "true", "False", "null", "~", "", ".inf", ".NaN", "1", "-1", "0x1f", "0o7"),
    *("010", "1_000", "1e3", "1.5", "1:20", "2026-01-01", "2026-01-01 10:00:00", "=", "<<", "- a", "? a", "a: b"),
    *("a #b", "a:", "a :b", "#a", "|", ">", "!t", "&a", "*a", "@a", "`a", "%a", "---", "...", "--- a", "'a'", '"a"'),
    *("a\n", "a\n\n", "\na", " a\nb", "a\n b", "a\n  \nb", "a \nb", "a\n\tb", "\ta\nb", "a\r\nb", "a\n#b", "a\n---\nb"),
    *(" a", "a ", "a\n...\n", "{a", "[a", "a, b", "a]", "k: |", "\u2028a\nb", "a\nb\x85c", "a\n\ufeffb"),
]
text = st.sampled_from(WORDS) | st.text(
    st.characters(exclude_categories=["Cs"]) | st.sampled_from(sorted(ODD)), max_size=20
)
floats = st.floats(allow_nan=False, allow_infinity=False)
value = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | floats | text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=10,
)
document = st.dictionaries(text, value, max_size=4)


def assert_read_as_written(given: Any) -> None:
    written = to_yaml({"a": given, "b": [given, [given]], "c": {"d": given}})
    expected = {"a": given, "b": [given, [given]], "c": {"d": given}}
    assert yaml.safe_load(written) == expected
    assert yaml.load(written, yaml.CSafeLoader) == expected


@pytest.mark.parametrize("word", WORDS)
def test_words_that_yaml_could_read_otherwise_stay_texts(word: str) -> None:
    assert_read_as_written(word)
    written = to_yaml({word: 1, "x": {word: [word]}})
    assert yaml.safe_load(written) == {word: 1, "x": {word: [word]}}


@given(document)
@example({"a" * 1200: {"b" * 1200: ["c" * 5000]}})
@example({"a": 1e16, "b": 1e-07, "c": -1.5e300, "d": 0.1, "e": -0.0})
@example({"é": "é", "a": "ä\nö\n"})
def test_reading_what_was_written_gives_the_document(made: dict[str, Any]) -> None:
    written = to_yaml(made)
    assert yaml.safe_load(written) == made
    assert yaml.load(written, yaml.CSafeLoader) == made
    assert to_yaml(yaml.safe_load(written)) == written
    written = to_json(made)
    assert json.loads(written) == made
    assert written.endswith("\n")


@given(document)
def test_the_agents_yaml_reads_both_forms_alike(made: dict[str, Any]) -> None:
    yaml_form, json_form = to_yaml({"steps": made}), to_json({"steps": made})
    if "\\x00" in yaml_form:
        return  # our reader refuses NUL, which no shell and no variable could hold
    assert read_document(yaml_form.encode(), "x").value == {"steps": made}
    assert read_document(json_form.encode(), "x").value == {"steps": made}


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ({"a": "x"}, "a: x\n"),
        ({"a": []}, "a: []\n"),
        ({"a": {}}, "a: {}\n"),
        ({}, "{}\n"),
        ({"a": None, "b": True, "c": 0}, "a: null\nb: true\nc: 0\n"),
        ({"docker#v5.2.0": {"image": "a/b:$C"}}, "docker#v5.2.0:\n  image: a/b:$C\n"),
        ({"steps": ["wait", {"a": 1, "b": 2}]}, "steps:\n  - wait\n  - a: 1\n    b: 2\n"),
        ({"a": [["b", "c"], []]}, "a:\n  - - b\n    - c\n  - []\n"),
        ({"c": "a\nb\n"}, "c: |\n  a\n  b\n"),
        ({"c": "a\n\n  b"}, "c: |-\n  a\n\n    b\n"),
        ({"c": ["a\nb"]}, "c:\n  - |-\n    a\n    b\n"),
        ({"c": " a\nb"}, 'c: " a\\nb"\n'),
        ({"c": 'pytest -m "a and b"'}, 'c: pytest -m "a and b"\n'),
        ({"c": "yes"}, 'c: "yes"\n'),
        ({"c": "a\x85\ufeff\x00"}, 'c: "a\\x85\\ufeff\\x00"\n'),
    ],
)
def test_the_bytes_are_these(given: dict[str, Any], written: str) -> None:
    assert to_yaml(given) == written


@pytest.mark.parametrize(
    "given",
    [{"a": "\ud800"}, {"\udfff": 1}, {"a": "x\nb\ud800"}, {"a": float("nan")}, {"a": float("inf")}, {"a": {1}}, {1: 2},
     {"a": b"x"}, {True: 1}, {None: 1}],
)  # fmt: skip
def test_what_no_pipeline_can_hold_is_refused(given: dict[str, Any]) -> None:
    for write in (to_yaml, to_json):
        with pytest.raises(DataError):
            write(given)


def test_a_bomb_of_levels_is_refused() -> None:
    deep: Any = "x"
    for number in range(5000):
        deep = [deep] if number % 2 else {"a": deep}
    for write in (to_yaml, to_json):
        with pytest.raises(DataError, match="nested too deeply"):
            write({"a": deep})
