"""Calls of twine, one file a call, and what its answers mean. The token travels in the environment only."""

from __future__ import annotations

import base64
import html
import json
import os
import re
import sys
from collections.abc import Sequence
from http import HTTPStatus
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

from tasks.support import process
from tasks.support.command_line import TIMED_OUT, Changes, last_useful_line
from tasks.support.errors import (
    ConfigurationError,
    CredentialsError,
    DataError,
    OmniError,
    ServiceRefusedError,
    TemporaryError,
)
from tasks.support.redaction import MASK, redact

USER = "__token__"
# twine waits for an answer for ever; a file may take this long and, above that, this many bytes a second.
_SECONDS = 600.0
_SLOWEST = 50_000
_EXCERPT = 300

_STATUS = re.compile(r"HTTPError: (\d{3})\b[^\n]*\n([^\n]*)")
_ANSWER = re.compile(r"<(title|pre)\b[^>]*>(.*?)</\1>", re.IGNORECASE | re.DOTALL)
_BROKEN = re.compile(r"^requests\.exceptions\.(ConnectionError|\w*Timeout|ChunkedEncodingError)\b", re.MULTILINE)


class FileRefusedError(ServiceRefusedError):
    """The index refused this file. ``exists`` is whether it says that there is a file of that name."""

    def __init__(self, message: str, *, exists: bool, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.exists = exists


def check_files(paths: Sequence[Path], folder: Path, *, log: Path | None = None) -> None:
    """Have twine judge the files' descriptions strictly; DataError with what it says of the first that fails.

    With ``log``, that of a build, all of its words are appended there; without, this is part of a publish.
    """
    said = _twine(["check", "--strict", *paths], folder, {}, timeout=_SECONDS)
    if not said.code:
        return
    text = redact((said.stdout + said.stderr).decode("utf-8", "replace").replace(f"{folder}/", ""))
    hint = "nothing was uploaded; correct the project's description, and build a new version"
    if log is not None:
        with log.open("a", encoding="utf-8") as file:
            file.write(f"\ntwine check --strict:\n{text}")
        hint = f"correct the project's description and build again; all that twine says is in {log}"
    raise DataError(_complaint(text, [path.name for path in paths]), hint=hint)


def _complaint(text: str, names: Sequence[str]) -> str:
    """Make one sentence of what ``twine check`` printed: the files that failed, and what it says of the first."""
    failed = [found[1] for found in re.finditer(r"^Checking (.+): FAILED\b.*$", text, re.MULTILINE)]
    reason = re.search(r"^(?:ERROR|WARNING)\s+(.*)", text, re.MULTILINE)
    shown = ", ".join(name for name in names if name in failed)
    if not shown or reason is None:
        return f"twine check failed: {last_useful_line(text.encode())[:_EXCERPT]}"
    return f"twine check refuses {shown}: {reason[1].strip()[:_EXCERPT]}"


def upload_file(path: Path, upload_url: str | None, token: str) -> None:
    """Upload one file; the folder that holds it is twine's working directory.

    ``upload_url`` None means twine's default. No ``.pypirc``, ``.netrc`` or keyring is asked. Raises
    CredentialsError (401, 403), FileRefusedError (400, 409), TemporaryError (5xx, 429, broken connections, no
    end in time) and ServiceRefusedError (whatever else), none of which holds the token.
    """
    environment: Changes = {
        "TWINE_USERNAME": USER,
        "TWINE_PASSWORD": token,
        "TWINE_REPOSITORY_URL": upload_url,
        "TWINE_REPOSITORY": None,
    }
    flags = ["--verbose", "--non-interactive", "--disable-progress-bar", "--config-file", os.devnull]
    timeout = _SECONDS + path.stat().st_size / _SLOWEST
    said = _twine(["upload", *flags, path], path.parent, environment, timeout=timeout, secrets=[token])
    if said.code:
        output = (said.stdout + b"\n" + said.stderr).decode("utf-8", "replace")
        raise _failure(path.name, said.code, hide(html.unescape(output), token))


def hide(text: str, token: str) -> str:
    """Mask the token as it is, quoted for a URL or JSON, and as Basic credentials (RFC 7617), even over line breaks."""
    credentials = base64.b64encode(f"{USER}:{token}".encode()).decode()
    forms = {token, credentials, quote(token, safe=""), quote(token), json.dumps(token)[1:-1], repr(token)[1:-1]}
    for form in sorted(forms, key=len, reverse=True):
        text = re.sub(r"\s*".join(map(re.escape, form)), MASK, text)
    return redact(text)


def _twine(
    words: Sequence[str | Path], folder: Path, environment: Changes, *, timeout: float, secrets: Sequence[str] = ()
) -> process.Captured:
    if find_spec("twine") is None:
        raise ConfigurationError("twine is not installed here", hint="install this tool's dependency group 'release'")
    # rich, which twine prints with, would wrap at 80 columns.
    changes = {"PYPI_TOKEN": None, "TWINE_PASSWORD": None, "COLUMNS": "1000", **environment}
    argv = [sys.executable, "-m", "twine", "--no-color", *words]
    return process.capture(argv, cwd=folder, env=changes, timeout=timeout, check=False, secrets=secrets)


def _failure(name: str, code: int, output: str) -> OmniError:
    if code == TIMED_OUT:
        return TemporaryError(f"{name}: the upload did not end in time")
    answers = _STATUS.findall(output)
    if not answers:
        broken = _BROKEN.search(output)
        if broken:
            return TemporaryError(f"{name}: the connection to the index broke ({broken[1]})")
        return ServiceRefusedError(f"twine could not upload {name}: {last_useful_line(output.encode())}")
    status, reason = answers[-1]
    return _refusal(name, int(status), _said(output, reason))


def _refusal(name: str, status: int, said: str) -> OmniError:
    answer = f"{status} {said}".rstrip()
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return CredentialsError(
            f"the index refuses PYPI_TOKEN for {name}: {answer}",
            hint="check that the token is valid and may upload to this project",
        )
    if status in (HTTPStatus.BAD_REQUEST, HTTPStatus.CONFLICT):
        exists = status == HTTPStatus.CONFLICT or "already exist" in said.lower()
        return FileRefusedError(f"the index refuses {name}: {answer}", exists=exists)
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status in (
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.REQUEST_TIMEOUT,
    ):
        return TemporaryError(f"the index failed to take {name}: {answer}")
    return ServiceRefusedError(f"the index refuses {name}: {answer}", hint="check OMNI_CI_PYPI_UPLOAD_URL")


def _said(output: str, reason: str) -> str:
    """Return the most telling sentence of an answer: servers put it in the title, in ``<pre>`` or in the reason."""
    texts = [reason, *(text for _, text in _ANSWER.findall(output))]
    longest = max((" ".join(text.split()) for text in texts), key=len)
    return longest if len(longest) <= _EXCERPT else f"{longest[: _EXCERPT - 1]}…"
