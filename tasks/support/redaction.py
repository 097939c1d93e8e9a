"""What must not be shown although nobody declared it a secret: credentials in URLs, headers, secret-named variables."""

from __future__ import annotations

import re

MASK = "***"

# The first five are the library's own rule for its environment report.
_SECRET_WORDS = ("secret", "token", "api", "access", "password", "passwd", "credential", "private")

_START = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*:/+)?")
_USERINFO = re.compile(r"(?<=://)[^\s/]*@")
_QUERY = re.compile(
    r"([?&;][^=&;\s#]*(?:secret|token|passw|credential|signature|sig|api|access|key|auth)[^=&;\s#]*=)[^&;\s#'\"]+",
    re.IGNORECASE,
)
_HEADER = re.compile(r"(authorization['\"]?\s*[:=]\s*['\"]?)(?:(?:basic|bearer|token)\s+)?[^\s'\",]+", re.IGNORECASE)
_SCHEME = re.compile(r"\b(basic|bearer)\s+[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE)


def is_secret_name(name: str) -> bool:
    """Say whether a variable of this name is taken to hold a secret."""
    lower = name.lower()
    return any(word in lower for word in _SECRET_WORDS)


def redact(text: str) -> str:
    """Mask URL userinfo, URL query values with telling names, and Authorization values in ``text``."""
    text = _USERINFO.sub(f"{MASK}@", text)
    text = _QUERY.sub(rf"\g<1>{MASK}", text)
    text = _HEADER.sub(rf"\g<1>{MASK}", text)
    return _SCHEME.sub(rf"\g<1> {MASK}", text)


def hide_login(address: str) -> str:
    """Mask all before the last ``@`` of one address, well-formed or not, and every query.

    With a question mark there is no telling where a login ends: then nothing but the scheme stays.
    """
    scheme = _START.match(address)
    start = scheme[0] if scheme else ""
    _, at, rest = address.rpartition("@")
    if at:
        return f"{start}{MASK}" if "?" in address else redact(f"{start}{MASK}@{rest}")
    before, query, _ = address.partition("?")
    return redact(f"{before}?{MASK}" if query else address)
