"""What a registry's refusal means: the error that it becomes, with the registry's own words in one line.

Source: OCI distribution specification, "Error Codes".
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from tasks.support.errors import CredentialsError, OmniError, ServiceRefusedError, TemporaryError
from tasks.support.redaction import redact

if TYPE_CHECKING:
    import requests

LATER = "run the same command again later"
_INCOMPLETE = "something that the manifest names is not there; run the same command again to send it"
_EXCERPT = 4096
_SHOWN = 200
_MARKUP = re.compile(r"<[^>]*>")


@dataclass(frozen=True)
class Refused:
    """An answer that is not what was wanted: its status, the registry's error codes, and its words on one line."""

    status: int
    codes: tuple[str, ...]
    said: str

    @classmethod
    def read(cls, response: requests.Response) -> Refused:
        """Read the beginning of an answer's body and close it; the text is redacted and never long."""
        data = _excerpt(response)
        codes, text = _parse(data)
        if text is None:
            text = _MARKUP.sub(" ", data.decode("utf-8", "replace"))
        if not text.strip() and not codes:
            text = str(response.reason or "")
        line = redact(" ".join("".join(c if c.isprintable() else " " for c in text).split()))
        return cls(response.status_code, codes, line if len(line) <= _SHOWN else f"{line[:_SHOWN]}...")

    def error(self, doing: str, *, login: str) -> OmniError:
        """Make the error for it. ``login`` is the hint when it is about rights."""
        message = f"{doing}: {' '.join(filter(None, (str(self.status), ','.join(self.codes), self.said)))}"
        if self.status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
            return CredentialsError(message, hint=login)
        if is_passing(self.status):
            return TemporaryError(message, hint=LATER)
        if "MANIFEST_BLOB_UNKNOWN" in self.codes:
            # Registries also say so of what is there, while somebody else is sending the same
            # (distribution/distribution issue 4489).
            return TemporaryError(message, hint=_INCOMPLETE)
        return ServiceRefusedError(message, hint=_hint(self.status, self.codes))


def is_passing(status: int) -> bool:
    """Say whether the same request may be answered otherwise the next time."""
    if status in {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS}:
        return True
    lasting = {HTTPStatus.NOT_IMPLEMENTED, HTTPStatus.HTTP_VERSION_NOT_SUPPORTED}
    return status >= HTTPStatus.INTERNAL_SERVER_ERROR and status not in lasting


def _excerpt(response: requests.Response) -> bytes:
    from tasks.support.http_session import foreseen_errors

    try:
        return next(response.iter_content(_EXCERPT), b"")
    except foreseen_errors():
        return b""
    finally:
        response.close()


def _parse(data: bytes) -> tuple[tuple[str, ...], str | None]:
    """Read the specification's ``errors``, or what token servers and Amazon's registries say instead."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return (), None
    if not isinstance(document, dict):
        return (), None
    rows = document.get("errors")
    errors: list[Any] = rows if isinstance(rows, list) else []
    found = [row for row in errors if isinstance(row, dict)]
    codes = dict.fromkeys(str(row["code"])[:60] for row in found if re.fullmatch(r"\w+", str(row.get("code", ""))))
    texts = [str(row.get("message", "")) for row in found] or [
        str(document[key]) for key in ("message", "details", "detail", "error_description", "error") if key in document
    ][:1]
    return tuple(codes), "; ".join(dict.fromkeys(filter(None, texts)))


def _hint(status: int, codes: tuple[str, ...]) -> str | None:
    if status == HTTPStatus.METHOD_NOT_ALLOWED or "UNSUPPORTED" in codes:
        return "the registry does not allow this; its configuration decides"
    if "BLOB_UNKNOWN" in codes:
        return _INCOMPLETE
    if status == HTTPStatus.NOT_FOUND:
        return "check the registry and the repository's name"
    if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
        return "check the registry's address"
    if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        return "the registry, or a proxy before it, limits the size of a request"
    return None
