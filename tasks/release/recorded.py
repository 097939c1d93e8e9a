"""Texts that come from outside, as the ledger and the results keep them: without secrets, and plain."""

from __future__ import annotations

from tasks.support import console
from tasks.support.redaction import redact


def recorded(text: str | None) -> str | None:
    """Return a text with its credentials masked, and escaped what UTF-8 or a terminal could not take; "" is None."""
    if not text:
        return None
    return console.plain(redact(console.mask(text)).encode("utf-8", "backslashreplace").decode())
