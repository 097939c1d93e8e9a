"""What a request's headers ask for: the form of a page, a range of bytes, a page that is still fresh (RFC 9110)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum


class Form(Enum):
    """The forms of an index page (PEP 691); the value is the content type."""

    JSON = "application/vnd.pypi.simple.v1+json"
    SIMPLE_HTML = "application/vnd.pypi.simple.v1+html"
    HTML = "text/html"


# PEP 691 lets a client write "latest" for the newest version, which for us is v1.
_FORMS = {form.value: form for form in Form} | {form.value.replace(".v1+", ".latest+"): form for form in Form}
_EXACT = 2
# What wins when a client wants several forms equally: the richest one that it named, the plainest one that it did not.
_NAMED = (Form.HTML, Form.SIMPLE_HTML, Form.JSON)
_UNNAMED = (Form.SIMPLE_HTML, Form.JSON, Form.HTML)

_QUALITY = re.compile(r"[01](?:\.\d{0,3})?")
_RANGE = re.compile(r"bytes=(\d*)-(\d*)", re.IGNORECASE)
_ETAG = re.compile(r'(?:W/)?("[^"]*")')
# Longer numbers lie beyond every object; Python refuses to read those of thousands of digits.
_DIGITS = 18


@dataclass(frozen=True)
class _Wish:
    """One media range of an Accept header: ``quality`` from 0 to 1; ``precision`` is 2, or 1 and 0 for wildcards."""

    media: str
    quality: float
    precision: int

    def fits(self, form: Form) -> bool:
        """Say whether this range means the form."""
        if self.precision == _EXACT:
            return _FORMS.get(self.media) is form
        return self.precision == 0 or form.value.startswith(self.media.removesuffix("*"))


def choose_form(accept: str | None, offered: tuple[Form, ...] = tuple(Form)) -> Form | None:
    """Return the offered form that an Accept header prefers, None when it takes none (RFC 9110 section 12.5.1).

    No header, or an empty one, takes text/html, as PEP 691 recommends for clients from before it.
    """
    if accept is None or not accept.strip():
        return Form.HTML
    wishes = [wish for part in accept.split(",") if (wish := _parse_wish(part))]
    ranked = [(*rank, form) for form in offered if (rank := _rank(form, wishes))]
    return max(ranked, key=lambda row: row[:3])[3] if ranked else None


def _parse_wish(text: str) -> _Wish | None:
    media, *parameters = (part.strip().lower() for part in text.split(";"))
    kind, slash, subtype = media.partition("/")
    if not (kind and slash and subtype) or (kind == "*" and subtype != "*"):
        return None
    quality = next((value.strip() for name, _, value in (p.partition("=") for p in parameters) if name == "q"), "1")
    if not _QUALITY.fullmatch(quality):
        return None
    return _Wish(media, min(float(quality), 1.0), _EXACT - (kind == "*") - (subtype == "*"))


def _rank(form: Form, wishes: list[_Wish]) -> tuple[float, int, int] | None:
    """Return how much a form is wanted, None when not at all; the most precise range that fits it counts."""
    fitting = [wish for wish in wishes if wish.fits(form)]
    if not fitting:
        return None
    best = max(fitting, key=lambda wish: (wish.precision, wish.quality))
    order = _NAMED if best.precision == _EXACT else _UNNAMED
    return (best.quality, best.precision, order.index(form)) if best.quality else None


def choose_range(header: str | None, size: int) -> tuple[int, int] | None:
    """Return the bytes (start, and end exclusive) that a Range header asks for, None for the whole.

    An empty range means that the object has none of them (416). What is no single range of bytes is ignored, as
    RFC 9110 section 14.2 allows.
    """
    found = _RANGE.fullmatch(header.strip()) if header else None
    if found is None:
        return None
    first, last = (int(text) if len(text) <= _DIGITS else 10**_DIGITS for text in _numbers(found))
    if found[1] and found[2]:
        return (min(first, size), min(last + 1, size)) if first <= last else None
    if found[1]:
        return min(first, size), size
    return (max(size - last, 0), size) if found[2] else None


def _numbers(found: re.Match[str]) -> tuple[str, str]:
    return found[1] or "0", found[2] or "0"


def still_fresh(if_none_match: str | None, etag: str) -> bool:
    """Say whether an If-None-Match header names the entity tag; weak and strong tags compare alike."""
    if if_none_match is None:
        return False
    strong = etag.removeprefix("W/")
    return if_none_match.strip() == "*" or strong in _ETAG.findall(if_none_match)


def range_counts(if_range: str | None, etag: str) -> bool:
    """Say whether a Range header is to be honoured: an If-Range header names exactly this strong entity tag."""
    return if_range is None or (if_range.strip() == etag and not etag.startswith("W/"))
