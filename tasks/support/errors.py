"""The errors a person can meet, each with its exit code, one line and, where there is one, the next step."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class OmniError(Exception):
    """Base of every foreseen failure: shown as one line, never as a traceback.

    ``exit_code`` follows sysexits.h (64 to 78), which is disjoint from pytest's 0-5, nox's 0-3,
    a timeout's 124 and a signal's 128+n. ``hint`` says what to do next.
    """

    exit_code = 70

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(OmniError):
    """The command line asks for something that does not exist or contradicts itself."""

    exit_code = 64


class DataError(OmniError):
    """A file, page or object is not what it claims to be."""

    exit_code = 65


class MissingInputError(OmniError):
    """Something that was to be read is not there."""

    exit_code = 66


class ServiceRefusedError(OmniError):
    """A service answered no, or cannot be reached at all."""

    exit_code = 69


class TemporaryError(OmniError):
    """A failure that goes away by itself: running the same command again is right."""

    exit_code = 75


class RemoteChangedError(OmniError):
    """The remote state is no longer what the plan was made from."""

    exit_code = 76


class CredentialsError(OmniError):
    """A credential is missing, wrong or lacks a right."""

    exit_code = 77


class ConfigurationError(OmniError):
    """The configuration, the profile or the machine does not allow this."""

    exit_code = 78


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """Return a hint naming the closest known words, or None when nothing is close."""
    close = difflib.get_close_matches(word, sorted(known), n=2, cutoff=0.6)
    return f"did you mean {' or '.join(close)}?" if close else None


def unknown_choice(what: str, word: str, known: Iterable[str]) -> UsageError:
    """Make the usage error for a word that is not one of the known ones."""
    choices = sorted(known)
    hint = did_you_mean(word, choices) or f"choose from {', '.join(choices)}"
    return UsageError(f"unknown {what} {word!r}", hint=hint)
