"""A build's output: a file that is shown as it grows, and what a failure in it means."""

from __future__ import annotations

import re
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tasks.support.command_line import last_useful_line
from tasks.support.console import mask, say
from tasks.support.errors import (
    ConfigurationError,
    CredentialsError,
    DataError,
    MissingInputError,
    OmniError,
    ServiceRefusedError,
    TemporaryError,
)
from tasks.support.redaction import redact
from tasks.support.settings import CHECKOUT

if TYPE_CHECKING:
    from tasks.images.planning import BuildPlan

LOGS = CHECKOUT / ".omni-ci" / "logs"

_PREFIX = "image-"
_KEPT = 14 * 24 * 3600.0
_LOOK = 0.2
# `#7 [build 2/5] RUN make`: a step of the recipe. Pulling a base (`FROM`) and BuildKit's own work come before.
_STEP = re.compile(r"^#\d+ \[(?:\S+ +)?\d+/\d+\] (?!FROM )", re.MULTILINE)
_FAILED = re.compile(r"^#(\d+) ERROR: (.*)$", re.MULTILINE)
_CODE = re.compile(r"exit code: (\d+)\s*$")
_NAME_LENGTH = 60
_NO_SPACE = re.compile(r"no space left on device", re.IGNORECASE)
# What can go wrong before the first step, by the line that names the error; the first row that fits.
_EARLY: tuple[tuple[re.Pattern[str], type[OmniError], str, str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), kind, what, hint)
    for pattern, kind, what, hint in (
        (
            r"unauthorized|authorization failed|authentication required|access denied|no basic auth|403 forbidden",
            CredentialsError,
            "a registry refuses",
            "log in, or check the base's name; ",
        ),
        (
            (
                r"timeout|timed out|connection re(?:fused|set)|\bEOF\b|too ?many ?requests|broken pipe|no such host"
                r"|network is unreachable|temporary failure|unexpected status.*\b5\d\d\b|daemon running"
            ),
            TemporaryError,
            "the base or the builder cannot be reached",
            "",
        ),
        (
            r": not found|manifest unknown|no such image|does not exist",
            MissingInputError,
            "something is not there",
            "check the base and the context; ",
        ),
    )
)


def new_log(logs: Path, plan: BuildPlan) -> Path:
    """Return the name of a log that nobody else writes; those of two weeks ago go."""
    tag = plan.tags[0].rpartition(":")[2]
    name = f"{_PREFIX}{plan.image}-{plan.platform.architecture}-{tag[:40]}-{secrets.token_hex(3)}.log"
    try:
        logs.mkdir(parents=True, exist_ok=True)
        for old in logs.glob(f"{_PREFIX}*.log"):
            with suppress(FileNotFoundError):  # another run removes the same ones
                if time.time() - old.stat().st_mtime > _KEPT:
                    old.unlink()
    except OSError as error:
        raise ConfigurationError(f"cannot write a log in {logs}: {error.strerror}") from error
    return logs / name


@contextmanager
def following(log: Path) -> Iterator[None]:
    """Show a file's lines as they are written, secrets masked, until the block has ended and all were shown."""
    ended = threading.Event()
    thread = threading.Thread(target=_follow, args=(log, ended), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _follow(log: Path, ended: threading.Event) -> None:
    with log.open("rb") as file:
        rest = b""
        while True:
            last = ended.is_set()  # asked before reading: what was written until then is read below
            data = rest + file.read()
            *lines, rest = data.split(b"\n")
            for line in lines:
                say(redact(line.decode("utf-8", "replace").rstrip("\r")))
            if last:
                if rest:
                    say(redact(rest.decode("utf-8", "replace")))
                return
            ended.wait(_LOOK)


def failure(image: str, text: str, log: Path) -> OmniError:
    """Make the error for a failed build from what it said; pure.

    Only what fails before the recipe's first step can pass by itself: a step that fails is a fault of the recipe
    or of the source, and building again would hide it.
    """
    said = redact(mask(_reason(text)))
    whole = f"its whole output is in {log}"
    if _NO_SPACE.search(text):
        return ServiceRefusedError(
            f"building {image}: the builder's disk is full: {said}", hint=f"invoke images.disk --prune; {whole}"
        )
    early = () if _STEP.search(text) else _EARLY
    for pattern, kind, what, hint in early:
        if pattern.search(said):
            return kind(f"building {image}: {what}: {said}", hint=f"{hint}{whole}")
    return DataError(f"the build of {image} failed: {said}", hint=whole)


def _reason(text: str) -> str:
    """Return what went wrong in a line: of a step that failed its name, its own last words and its exit code."""
    failed = _FAILED.search(text)
    if failed is None:
        return last_useful_line(text.encode())
    number = failed[1]
    name = re.search(rf"^#{number} (\[[^\]\n]*\] .{{0,{_NAME_LENGTH}}})", text, re.MULTILINE)
    words = re.findall(rf"^#{number} \d+\.\d+ (.*)$", text, re.MULTILINE)
    code = _CODE.search(failed[2])
    if name is None or code is None:
        return last_useful_line(text.encode())
    step = " ".join(name[1].split())
    return f"{step}…: {last_useful_line(chr(10).join(words).encode()) or 'it said nothing'} (exit code: {code[1]})"
