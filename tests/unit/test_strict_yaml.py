"""YAML for catalogues: both of PyYAML's parsers give the same values, lines and errors."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tasks.support.errors import DataError
from tasks.support.strict_yaml import Node, read_bytes

PIECES = (
    *(
        "a",
        "b",
        "a: ",
        "b: ",
        "- ",
        "\n",
        "\n  ",
        "\n- ",
        " ",
        "\t",
        ": ",
        ":",
        "{",
        "}",
        "[",
        "]",
        ",",
        "'",
        '"',
        "#",
        "? ",
        "?",
    ),
    *(
        "&a ",
        "*a",
        "<<: ",
        "!",
        "!!str ",
        "|\n",
        ">-\n",
        "---\n",
        "...\n",
        "%",
        "\\",
        "\\U00110000",
        "@",
        "on",
        "08",
        "~",
        "1",
    ),
    *("\r\n", "\r", "\x85", "\u2028", "\ufeff", "\x07", "a?b", "!x", "\u00e9"),
)


def plain(node: Node) -> Any:
    value = node.value
    if isinstance(value, dict):
        value = {key: plain(inner) for key, inner in value.items()}
    elif isinstance(value, tuple):
        value = [plain(inner) for inner in value]
    # The line of a document that holds nothing is the parser's own choice.
    return (repr(value), node.where if value is not None else None)


def outcome(text: str) -> Any:
    try:
        return plain(read_bytes(text.encode(), "c.yml"))
    except DataError as error:
        return (error.message, error.hint)


def outcome_without_c(text: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    with monkeypatch.context() as patch:
        patch.delattr(yaml, "CSafeLoader", raising=False)
        return outcome(text)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_both_parsers_give_the_same(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    assert outcome(text) == outcome_without_c(text, monkeypatch)


@pytest.mark.parametrize(
    "text",
    [
        "a:\tb\n",
        "a: {x?y: 1}\n",
        "a: [b?c]\n",
        "? a\n",
        "a: !\n",
        "!x:!x",
        "a: !x:!y b\n",
        "# why?\na: b\n",
        "a: b\r# c\n",
        'a: "\\U00110000"\n',
        'a: "\\ud800"\n',
        "a: {b: c}\n---\nd: e\n",
        "a: &x 1\n",
        "a: *x\n",
        "[" * 500,
        "- " * 500,
        "a: [1\n",
        "a: 'b\n",
        "",
    ],
)
def test_both_parsers_give_the_same_for_what_they_take_differently(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert outcome(text) == outcome_without_c(text, monkeypatch)


@pytest.mark.parametrize("text", ["- " * 101, "[" * 101 + "]" * 101, "{a: " * 101 + "1" + "}" * 101])
def test_refuses_deep_nesting(text: str) -> None:
    with pytest.raises(DataError, match="nested too deeply"):
        read_bytes(text.encode(), "c.yml")


def test_a_byte_order_mark_is_no_part_of_the_text() -> None:
    assert read_bytes(b"\xef\xbb\xbfa: 1\n", "x").items("x")["a"] == Node(1, "x:1")
