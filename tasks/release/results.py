"""What was tested: one record per commit and cell, written by a trusted step after all steps of the cell.

Test steps run code that nobody has reviewed, so they write nothing here; the outcomes are asked from Buildkite.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from tasks.release.recorded import recorded
from tasks.support import buildkite
from tasks.support.errors import ConfigurationError, DataError, MissingInputError, UsageError, unknown_choice
from tasks.support.settings import Settings, on_buildkite
from tasks.support.store import ABSENT, Headers, ObjectStore, redo_on_conflict

FOLDER = "_results/"
FORMAT = 1
REQUIRED = "cuda_merge"
"""The cell whose tests must have passed before a commit may become a release."""

CELLS = tuple(
    f"{device}_{tier}"
    for device in ("cuda", "rocm", "xpu", "npu", "cpu")
    for tier in ("ready", "merge", "nightly", "weekly")
)
GREEN = "passed"
_HEADERS = Headers("application/json", "no-cache")
_STEP = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,99}")


@dataclass(frozen=True)
class Record:
    """The outcome of one cell's steps for one commit. ``time`` is RFC 3339 in UTC."""

    commit: str
    cell: str
    time: str
    steps: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    build: str | None = None
    build_url: str | None = None

    @property
    def green(self) -> bool:
        """Say whether every step passed; a step that may fail and did (soft_failed) is not green."""
        return bool(self.steps) and all(outcome == GREEN for outcome in self.steps.values())

    @property
    def bad(self) -> list[str]:
        """Return the steps that did not pass, each with its outcome."""
        return [f"{step}: {outcome}" for step, outcome in self.steps.items() if outcome != GREEN]

    def encode(self) -> bytes:
        """Return the document's bytes: deterministic."""
        document = {
            "format": FORMAT,
            "commit": self.commit,
            "cell": self.cell,
            "time": self.time,
            "steps": dict(self.steps),
            "build": self.build,
            "build_url": self.build_url,
        }
        return (json.dumps(document, indent=1, sort_keys=True) + "\n").encode()

    @classmethod
    def decode(cls, data: bytes, key: str) -> Record:
        """Read a document, or raise DataError naming its key."""
        try:
            record = _read(json.loads(data), key)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            reason = " ".join(str(error).split())[:200]
            hint = "run release.record again in the commit's build"
            raise DataError(f"cannot read the result {key}: {type(error).__name__}: {reason}", hint=hint) from error
        return record


def _read(document: Any, key: str) -> Record:
    if document.pop("format") != FORMAT:
        raise ValueError("written by another version of this tool")
    record = Record(**{**document, "steps": MappingProxyType(dict(document["steps"]))})
    texts = (record.commit, record.cell, record.time, *record.steps, *record.steps.values())
    if not all(type(text) is str for text in texts) or key_of(record.commit, record.cell) != key:
        raise ValueError("it is not what its key says")
    return record


def key_of(commit: str, cell: str) -> str:
    """Return where a record lies."""
    return f"{FOLDER}{commit}/{cell}.json"


def check_cell(word: str) -> str:
    """Return the cell, or raise UsageError naming the closest one."""
    if word not in CELLS:
        raise unknown_choice("cell", word, CELLS)
    return word


def ask_outcomes(settings: Settings, commit: str, steps: Sequence[str]) -> dict[str, str]:
    """Return the outcome of each step of the present build.

    Raises ConfigurationError when this is not a build of that commit on a trusted branch, UsageError without a step,
    MissingInputError when a step has not ended or is not there.
    """
    _require_trusted_build(settings, commit)
    if not steps:
        raise UsageError("no step is named", hint="pass --step KEY for every step of the cell")
    for step in steps:
        if not _STEP.fullmatch(step):
            raise UsageError(f"not a step's key: {step!r}")
    return {step: buildkite.step_outcome(settings, step) for step in dict.fromkeys(steps)}


def _require_trusted_build(settings: Settings, commit: str) -> None:
    if not on_buildkite(settings.environment):
        raise ConfigurationError(
            "outcomes are those of a Buildkite build, and this is none",
            hint="run it as a step of the commit's build, after the cell's; to release without it: "
            "release.publish --untested REASON",
        )
    pull_request = settings.variable("BUILDKITE_PULL_REQUEST") or "false"
    if pull_request != "false":
        raise ConfigurationError(
            f"the build is one of pull request {pull_request}: its outcomes say nothing of what is released",
            hint="record the result on a build of the branch",
        )
    built = settings.variable("BUILDKITE_COMMIT")
    if built != commit:
        raise ConfigurationError(f"the build is one of commit {built}, not of {commit}")


def make_record(settings: Settings, commit: str, cell: str, outcomes: Mapping[str, str]) -> Record:
    """Return the record of a cell's outcomes in the present build."""
    return Record(
        commit=commit,
        cell=cell,
        time=f"{datetime.now(UTC).replace(tzinfo=None).isoformat(timespec='seconds')}Z",
        steps=MappingProxyType(dict(outcomes)),
        build=recorded(settings.variable("BUILDKITE_BUILD_NUMBER")),
        build_url=recorded(settings.variable("BUILDKITE_BUILD_URL")),
    )


def write(store: ObjectStore, record: Record) -> bool:
    """Write a record in place of an older one; False when the same outcomes of the same build are there already."""
    key = key_of(record.commit, record.cell)

    def attempt() -> bool:
        blob = store.get(key)
        if blob is not None:
            there = Record.decode(blob.data, key)
            if (there.steps, there.build) == (record.steps, record.build):
                return False
        store.put(key, record.encode(), _HEADERS, expected=ABSENT if blob is None else blob.etag)
        return True

    return redo_on_conflict(attempt, what=f"the result {key}")


def find(store: ObjectStore, commit: str, cell: str = REQUIRED) -> Record | None:
    """Return what was recorded of a cell for a commit, or None."""
    key = key_of(commit, cell)
    blob = store.get(key)
    return Record.decode(blob.data, key) if blob is not None else None


def lacking(store: ObjectStore, commit: str) -> str | None:
    """Say in one sentence why a commit does not count as tested; None when it does."""
    record = find(store, commit)
    if record is None:
        return f"no result of {REQUIRED} is recorded for commit {commit} in {store.url}"
    if record.green:
        return None
    return f"{REQUIRED} of commit {commit} was not green: {', '.join(record.bad) or 'it had no step'}"


def require(store: ObjectStore, commit: str) -> None:
    """Raise MissingInputError when a commit does not count as tested."""
    reason = lacking(store, commit)
    if reason is not None:
        raise MissingInputError(
            reason, hint=f"let {REQUIRED} pass and release.record {REQUIRED} run, or pass --untested REASON"
        )
