"""What a check finds: each finding names its key, says what is wrong and, where there is one, the next step."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

REDRAW = "invoke wheels.redraw"
RESTORE = "restore that object from the bucket's version history, else delete it and run invoke wheels.adopt"
LOST = "upload the same file again (invoke wheels.upload), or restore it from the bucket's version history"
CORRUPT = (
    "delete that object and upload the file again (invoke wheels.upload), "
    "or restore it from the bucket's version history"
)
ROLLBACK = "roll the view back to a revision whose files are all there: invoke wheels.rollback VIEW --to NUMBER"
UPLOAD = "run invoke wheels.upload for this commit again"


class Severity(Enum):
    """How bad a finding is: an error breaks clients, a warning surprises people."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong with the object or page under ``key``."""

    severity: Severity
    key: str
    what: str
    hint: str | None = None


def error(key: str, what: str, hint: str | None) -> Finding:
    """Make a finding that breaks clients."""
    return Finding(Severity.ERROR, key, what, hint)


def warning(key: str, what: str, hint: str | None) -> Finding:
    """Make a finding that surprises people."""
    return Finding(Severity.WARNING, key, what, hint)
