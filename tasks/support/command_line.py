"""A command as data: its checks, the line a person can paste, and what is said when it fails."""

from __future__ import annotations

import errno
import os
import re
import shlex
import shutil
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tasks.support import paths
from tasks.support.console import mask
from tasks.support.errors import (
    ConfigurationError,
    MissingInputError,
    OmniError,
    ServiceRefusedError,
    TemporaryError,
    UsageError,
)
from tasks.support.redaction import MASK, is_secret_name, redact
from tasks.support.settings import inherited_environment

TIMED_OUT = 124
"""The exit code of a command that was ended because its time was up, as timeout(1) has it."""

SIGNALLED = 128
"""Added to a signal's number, it is the exit code of what the signal ended, as shells have it."""

Argv = Sequence[str | Path]
Changes = Mapping[str, str | None]
"""Changes to the inherited environment; None removes a variable."""


class CommandFailedError(ServiceRefusedError):
    """A program ended with an exit code other than 0; ``code`` is that code, 128+n for signal n."""

    def __init__(self, message: str, *, code: int, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.code = code


class CommandTimedOutError(CommandFailedError):
    """A program was ended because its time was up."""

    exit_code = TIMED_OUT


@dataclass(frozen=True)
class Command:
    """A checked command; as text it is the line a person can paste into a shell, secrets masked."""

    argv: Argv
    cwd: Path
    env: Changes
    secrets: tuple[str, ...]

    def __post_init__(self) -> None:
        if isinstance(self.argv, str) or not self.argv:
            raise TypeError("a command is a list of arguments")
        texts = [*self.words, *self.env, *(value for value in self.env.values() if value is not None)]
        if any("\0" in text for text in texts):
            raise UsageError(f"an argument of {self.name} holds a NUL byte")

    @property
    def words(self) -> list[str]:
        """Return the arguments as text, the program first."""
        return [os.fspath(word) for word in self.argv]

    @property
    def name(self) -> str:
        """Return the program's name without its folder."""
        return Path(self.words[0]).name

    def environment(self) -> dict[str, str]:
        """Return the whole environment of the child."""
        changed = {**inherited_environment(), **self.env}
        return {name: value for name, value in changed.items() if value is not None}

    def hide(self, text: str) -> str:
        """Mask the secrets that this command was given, the known ones and those in URLs."""
        named = (value for name, value in self.env.items() if value and is_secret_name(name))
        for secret in sorted({*self.secrets, *named} - {""}, key=len, reverse=True):
            text = text.replace(secret, MASK)
        return redact(mask(text))

    def __str__(self) -> str:
        """Return ``cd DIR && env -u GONE NAME=value program argument ...``, leaving out what is as it was."""
        inherited = inherited_environment()
        changes = {name: value for name, value in self.env.items() if inherited.get(name) != value}
        gone = [word for name, value in sorted(changes.items()) if value is None for word in ("-u", name)]
        given = [
            f"{name}={MASK if is_secret_name(name) else shlex.quote(self.hide(value))}"
            for name, value in sorted(changes.items())
            if value is not None
        ]
        prefix = ["env", *map(shlex.quote, gone)] if gone else []
        line = " ".join([*prefix, *given, *(shlex.quote(self.hide(word)) for word in self.words)])
        with suppress(MissingInputError):  # the current folder is gone
            if paths.absolute(self.cwd) == paths.current_folder():
                return line
        return f"cd {shlex.quote(os.fspath(self.cwd))} && {line}"

    def executable(self, environment: Mapping[str, str]) -> str:
        """Return the path of the program as the child's PATH has it."""
        if not paths.is_folder(self.cwd):
            raise MissingInputError(f"the folder to run {self.name} in does not exist: {self.cwd}")
        word = self.words[0]
        found = str(self.cwd.absolute() / word) if "/" in word else shutil.which(word, path=environment.get("PATH"))
        if found is None or not Path(found).exists():
            where = "does not exist" if "/" in word else "is not installed (not on PATH)"
            raise ConfigurationError(f"{word} {where}", hint=f"install {self.name} and run this again")
        return str(Path(found).absolute())


def cannot_start(name: str, error: OSError) -> OmniError:
    """Make the error for a program that the system did not start."""
    reason = error.strerror or str(error)
    if error.errno in (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE):
        return TemporaryError(f"{name} cannot be started: {reason}", hint="the machine is short of it; try again later")
    if error.errno == errno.E2BIG:
        return UsageError(f"{name} cannot be started: its arguments and environment are too long")
    return ConfigurationError(f"{name} cannot be started: {reason}", hint=f"reinstall {name}, or check its permissions")


def failure(
    command: Command, code: int, *, timed_out_after: float | None = None, said: bytes = b""
) -> CommandFailedError:
    """Make the error for a command that failed, from what it ``said`` (stderr, or stdout when that is empty)."""
    hint = f"the command was: {command}"
    line = command.hide(last_useful_line(said))
    detail = f": {line}" if line else ""
    if timed_out_after is not None:
        return CommandTimedOutError(
            f"{command.name} was ended after {timed_out_after:g} s{detail}", code=code, hint=hint
        )
    ended_by = {SIGNALLED + number: number.name for number in signal.Signals}.get(code)
    how = f"was ended by {ended_by}" if ended_by else f"failed with exit code {code}"
    return CommandFailedError(f"{command.name} {how}{detail}", code=code, hint=hint)


_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_TELLING = re.compile(r"^\W*(?:fatal|error)\b|^[\w.]*(?:Error|Exception): ", re.IGNORECASE)


def last_useful_line(output: bytes, width: int = 300) -> str:
    """Return the last line that names an error, else the last one that is not blank, cut to ``width`` characters."""
    text = _ESCAPES.sub("", output.decode("utf-8", "replace"))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if _TELLING.search(line)]
    line = (telling or lines or [""])[-1]
    return line if len(line) <= width else f"{line[: width - 1]}…"
