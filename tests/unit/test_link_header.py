"""The Link header: what leads to the next page, and that nothing unreadable passes for the last one."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.registry.link_header import next_link


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("", None),
        (" , ", None),
        ('</v2/x/tags/list?last=a&n=1>; rel="next"', "/v2/x/tags/list?last=a&n=1"),
        ("<a>;rel=next", "a"),
        ("<a> ; REL = NEXT ; title=x", "a"),
        ('<a>; title="a, b; <c>; rel=prev \\" d"; rel="prev next"', "a"),
        ('<a>; rel="prev", <b>; rel="next"', "b"),
        ('<a,b;c>; rel="prev" , , <b,c;d>; rel=next,', "b,c;d"),
        ("<a>; rel=next, <b>; rel=next", "a"),
        ("<a>; rel=prev; rel=next", None),  # only the first counts
        ("<a>; rel=prev", None),
        ("<a>; rel=next;", "a"),
        ("<>; rel=next", ""),
    ],
)
def test_the_next_page_is_found(header: str, expected: str | None) -> None:
    assert next_link(header) == expected


@pytest.mark.parametrize(
    "header",
    [
        ';;;,,<>="', "<", ">", "<a", "a", "<a>", "<a>;", "<a>; rel", "<a>; rel=", '<a>; rel=""', '<a>; rel="next',
        "<a>; rel=prev, <", "a; rel=next", "<a> rel=next", "<a>; rel=next <b>", "<a b>; rel=next", "<a>, <b>; rel=next",
        "<a>; rel=next; =", '<a>; rel="next"x',
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_an_error(header: str) -> None:
    with pytest.raises(ValueError, match=r"a link"):
        next_link(header)


@given(st.text('<>;,="\\ abrelnxt', max_size=40))
def test_no_header_is_too_odd(header: str) -> None:
    try:
        found = next_link(header)
    except ValueError:
        return
    assert found is None or f"<{found}>" in header


@pytest.mark.parametrize(
    "header", ["<a>" + ";   " * 9000 + "<", "<a>;" + " " * 40_000 + "x=" + " " * 9000 + "<", "<" * 60_000]
)
def test_no_header_takes_long(header: str) -> None:
    started = time.process_time()
    with pytest.raises(ValueError, match=r"a link"):
        next_link(header)
    assert time.process_time() - started < 30  # going back and forth would take for ever
