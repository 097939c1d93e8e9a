"""The Link header, read strictly: what cannot be read must not pass for the last page. Source: RFC 8288, section 3."""

from __future__ import annotations

import re

_WORD = r"[!#$%&'*+.^_`|~0-9A-Za-z-]++"
# Possessive throughout, so that no header makes the match go back and forth.
_PARAMETER = rf"\s*+;\s*+(?:({_WORD})\s*+(?:=\s*+(?:\"((?:[^\"\\]|\\.)*+)\"|([^\s\",;]++)))?+)?+"
_LINK = re.compile(rf"\s*+<([^<>\s]*+)>((?:{_PARAMETER})*+)\s*+(?:,|$)")

_BETWEEN = " \t,"


def next_link(header: str) -> str | None:
    """Return where the link with the relation ``next`` leads, or None; ValueError when the header cannot be read.

    A link whose relation is not said is not readable: it may be the one to the next page.
    """
    found: str | None = None
    rest = header.strip(_BETWEEN)
    while rest:
        link = _LINK.match(rest)
        if link is None:
            raise ValueError(f"not a link: {rest[:100]!r}")
        parameters = (one.groups("") for one in re.finditer(_PARAMETER, link[2]))
        relations = next((quoted or plain for name, quoted, plain in parameters if name.lower() == "rel"), "").split()
        if not relations:
            raise ValueError(f"a link without a relation: {link[0][:100]!r}")
        if found is None and "next" in map(str.lower, relations):
            found = link[1]
        rest = rest[link.end() :].lstrip(_BETWEEN)
    return found
