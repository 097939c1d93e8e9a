"""Builds the sdist and the wheel of one source for one device, and puts both into a folder or neither."""

from __future__ import annotations

import os
import re
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from tasks.support import paths, process, variables
from tasks.support.command_line import Argv, Changes, last_useful_line
from tasks.support.console import busy, mask, say
from tasks.support.errors import (
    ConfigurationError,
    DataError,
    MissingInputError,
    OmniError,
    RemoteChangedError,
    ServiceRefusedError,
    TemporaryError,
    UsageError,
    unknown_choice,
)
from tasks.support.redaction import redact
from tasks.support.settings import CHECKOUT, inherited_environment
from tasks.support.source import HOOK_VARIABLES, commit_of, commit_time, dirty_names, git, has_git
from tasks.wheels.built_files import DEFAULT_DEVICE, DEVICES, TARGET_DEVICE, check_beside, place, read_built
from tasks.wheels.distribution import Facts
from tasks.wheels.layout import check_commit
from tasks.wheels.source_copy import CopyKind, make_copy, newest_time
from tasks.wheels.twine_calls import check_files

LOGS = CHECKOUT / ".omni-ci" / "logs"

_ZIP_EPOCH = 315_532_800  # 1980-01-01: a zip archive cannot hold an earlier time
_SHOWN_LINES = 20
_SHOWN_NAMES = 5
# They decide the version or point the build elsewhere, so a forgotten one would build something else.
_UNSET = (
    *HOOK_VARIABLES,
    "DIST_EXTRA_CONFIG",
    "PIP_DRY_RUN",
    "PIP_PREFIX",
    "PIP_ROOT",
    "PIP_TARGET",
    "PIP_USER",
    "PYTHONPATH",
    "VIRTUAL_ENV",
    "VLLM_OMNI_VERSION_OVERRIDE",
)
_UNSET_PREFIX = "SETUPTOOLS_SCM_"
_STEP = re.compile(r"^\* (Creating isolated|Installing packages|Getting build dependencies|Building) ", re.MULTILINE)
_BUILDS_TRACEBACK = re.compile(r'^Traceback [^\n]*\n +File "[^"\n]*/build/__main__\.py".*', re.MULTILINE | re.DOTALL)
_BUILDS_ERROR = re.compile(r"ERROR (Backend subprocess exited|Command )|\w+\.CalledProcessError: ")
_NO_NETWORK = re.compile(
    r"connection|timed? ?out|name resolution|unreachable|max retries|proxy|ssl|dns error|error sending request",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class BuildRequest:
    """What a person asks for. ``commit`` is what a source without git is taken to be, else the one to build."""

    source: Path
    dist: Path
    commit: str
    device: str = DEFAULT_DEVICE
    allow_dirty: bool = False

    def __post_init__(self) -> None:
        if self.device not in DEVICES:
            raise unknown_choice("device", self.device, DEVICES)
        check_commit(self.commit)


@dataclass(frozen=True)
class Survey:
    """What the source is. ``head``, ``dirty`` and ``commit_time`` are git's; ``newest`` is a plain folder's.

    ``dirty`` names what differs from HEAD.
    """

    head: str | None = None
    dirty: tuple[str, ...] = ()
    commit_time: datetime | None = None
    newest: int = 0
    cut_off: bool = False
    """Whether the history is too short to hold the tag that a version would be counted from."""


@dataclass(frozen=True)
class BuildPlan:
    """What a build will do. ``epoch`` is SOURCE_DATE_EPOCH, in seconds since 1970."""

    source: Path
    dist: Path
    commit: str
    device: str
    kind: CopyKind
    epoch: int
    epoch_from: str
    warnings: tuple[str, ...] = ()

    @property
    def actions(self) -> tuple[tuple[str, str], ...]:
        """Return what is done and why, in order, for people."""
        day = datetime.fromtimestamp(self.epoch, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        suffix = "no variant" if self.device == DEFAULT_DEVICE else f"the variant of {self.device}"
        return (
            (f"copy {self.source}", f"{self.kind.value}; commit {self.commit}"),
            ("build an sdist and a wheel", f"{TARGET_DEVICE}={self.device}; SOURCE_DATE_EPOCH={self.epoch}"),
            ("check both", f"twine, strictly; the version must have {suffix}"),
            (f"move both into {self.dist}", f"all times in them are {day}, {self.epoch_from}"),
        )

    def as_json(self) -> dict[str, Any]:
        """Return the plan as machine output."""
        return {
            "source": str(self.source),
            "dist": str(self.dist),
            "commit": self.commit,
            "device": self.device,
            "copies": self.kind.name.lower(),
            "source_date_epoch": self.epoch,
            "warnings": list(self.warnings),
        }


@dataclass(frozen=True)
class BuildResult:
    """What a build made, the sdist first; the files lie in the plan's ``dist``."""

    plan: BuildPlan
    facts: tuple[Facts, ...]
    log: Path
    seconds: float

    def as_json(self) -> dict[str, Any]:
        """Return the result as machine output."""
        names = ("filename", "project", "version", "variant", "size", "sha256", "requires_python")
        files = [{"kind": item.kind.value, **{name: getattr(item, name) for name in names}} for item in self.facts]
        return {**self.plan.as_json(), "log": str(self.log), "seconds": round(self.seconds, 1), "files": files}


def survey(source: Path, commit: str, dist: Path | None = None) -> Survey:
    """Look at a source; changes nothing. Raises MissingInputError when git does not hold the commit.

    What earlier builds left in ``dist`` does not make the source dirty, unless something in it is tracked.
    """
    if not paths.is_folder(source):
        raise MissingInputError(f"the source is not a folder: {source}", hint="correct --source")
    if not any(paths.is_there(source / name) for name in ("pyproject.toml", "setup.py")):
        raise MissingInputError(f"nothing to build in {source}: no pyproject.toml", hint="correct --source")
    if not has_git(source):
        return Survey(newest=newest_time(source))
    shallow = git(source, "rev-parse", "--is-shallow-repository").text.strip() == "true"
    cut_off = shallow and git(source, "describe", "--tags", "--abbrev=0", commit, or_no=True).code != 0
    dirty = tuple(dirty_names(source, output=dist))
    return Survey(commit_of(source), dirty, commit_time(source, commit), cut_off=cut_off)


def plan_build(request: BuildRequest, found: Survey) -> BuildPlan:
    """Decide what to build and with which time; pure. Raises DataError for a dirty source that nobody allowed."""
    if found.head is None or found.commit_time is None:
        kind, epoch, epoch_from = CopyKind.FOLDER, found.newest, "that of the newest file"
    else:
        kind = CopyKind.WORKING_TREE if found.dirty else CopyKind.COMMIT
        epoch, epoch_from = int(found.commit_time.timestamp()), "that of the commit"
    if kind is CopyKind.WORKING_TREE:
        _check_dirty(request, found)
    warnings = []
    if kind is CopyKind.WORKING_TREE:
        warnings.append("uncommitted changes are built in: do not publish the result")
    if found.cut_off:
        warnings.append(f"the clone is too shallow to hold a tag before {request.commit}: its version may be wrong")
    return BuildPlan(
        source=request.source,
        dist=request.dist,
        commit=request.commit,
        device=request.device,
        kind=kind,
        epoch=max(epoch, _ZIP_EPOCH),
        epoch_from=epoch_from,
        warnings=tuple(warnings),
    )


def _check_dirty(request: BuildRequest, found: Survey) -> None:
    head = found.head
    if not request.allow_dirty:
        more = f" and {len(found.dirty) - _SHOWN_NAMES} more" if len(found.dirty) > _SHOWN_NAMES else ""
        raise DataError(
            f"{request.source} has uncommitted changes or untracked files: "
            f"{', '.join(found.dirty[:_SHOWN_NAMES])}{more}",
            hint="commit or remove them, or pass --allow-dirty to build them in (not for publishing)",
        )
    if request.commit != head:
        raise UsageError(
            f"--allow-dirty builds what lies at HEAD ({head}), not commit {request.commit}",
            hint="check that commit out, or leave --allow-dirty out of a clean checkout",
        )


def run_build(plan: BuildPlan, patterns: tuple[str, ...], *, logs: Path = LOGS) -> BuildResult:
    """Build, check and move both files into the plan's ``dist``; on any failure nothing is there that was not before.

    ``patterns`` are the declared variants. The build's output goes to a file in ``logs``, which stays. Raises
    DataError when the build or a check fails, TemporaryError or ServiceRefusedError when its tools cannot be fetched.
    """
    _require_tools()
    started = time.monotonic()
    log = _new_log(logs, plan)
    with _usual_umask(), tempfile.TemporaryDirectory(prefix="omni-ci-build-") as folder:
        work = Path(folder).resolve()
        if plan.kind is CopyKind.WORKING_TREE and commit_of(plan.source) != plan.commit:
            raise RemoteChangedError(f"{plan.source} is no longer at {plan.commit}", hint="run this again")
        copy = make_copy(plan.source, plan.kind, plan.commit, work / "source", plan.epoch)
        environment = build_environment(inherited_environment(), plan, work)
        say(f"log: {log}")
        with busy(f"building for {plan.device}"):
            _run_backend(copy, work, environment, log)
        facts = read_built(work / "out", plan.device, plan.epoch, patterns)
        check_files([item.path for item in facts], work / "out", log=log)
        placed = place(facts, plan.dist, patterns)
    return BuildResult(plan, placed, log, time.monotonic() - started)


def check_dist(plan: BuildPlan, patterns: tuple[str, ...]) -> None:
    """Raise DataError when it is known before the build that its files cannot lie beside those in ``dist``."""
    name = project_name(plan.source)
    if name is not None:
        check_beside(plan.dist, name, plan.commit, patterns)


def project_name(source: Path) -> str | None:
    """Return the project's normalised name as its pyproject.toml states it (PEP 621), or None."""
    try:
        document = tomllib.loads((source / "pyproject.toml").read_text(encoding="utf-8"))
        return canonicalize_name(document["project"]["name"], validate=True)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None  # the build says what is wrong with it


def build_environment(inherited: Mapping[str, str], plan: BuildPlan, work: Path) -> Changes:
    """Return the changes to the environment that a build runs with; pure.

    Where packages come from (``PIP_*``, ``UV_*``, proxies) stays. What would decide the version, point git
    or pip elsewhere, or hand a secret to third-party code is unset.
    """
    secrets = (variable.name for variable in variables.ALL if variable.secret)
    unset = [*_UNSET, *secrets, *(name for name in inherited if name.startswith(_UNSET_PREFIX))]
    return {
        **dict.fromkeys(unset),
        TARGET_DEVICE: plan.device,
        "SOURCE_DATE_EPOCH": str(plan.epoch),
        "GIT_CEILING_DIRECTORIES": str(work),  # a repository around the temporary folder is none of ours
        "COLUMNS": "1000",  # `build` wraps what pip says
        "LC_ALL": "C.UTF-8",
        "PYTHONHASHSEED": "0",
        "TMPDIR": str(work),  # so that what the tools leave there goes with it
        "TZ": "UTC",
    }


def _require_tools() -> None:
    for name in ("build", "twine"):
        found = find_spec(name)
        if found is None or found.origin is None:  # without an origin it is just a folder of that name
            raise ConfigurationError(
                f"{name} is not installed beside this tool", hint="install the dependency group `release`"
            )


def _new_log(logs: Path, plan: BuildPlan) -> Path:
    log = logs / f"build-{plan.source.resolve().name}-{plan.device}-{plan.commit[:12]}.log"
    try:
        logs.mkdir(parents=True, exist_ok=True)
        log.unlink(missing_ok=True)  # whoever still writes the old one keeps it
    except OSError as error:
        raise ConfigurationError(f"cannot write the log {log}: {error.strerror}") from error
    return log


@contextmanager
def _usual_umask() -> Iterator[None]:
    previous = os.umask(0o022)
    try:
        yield
    finally:
        os.umask(previous)


def _run_backend(copy: Path, work: Path, environment: Changes, log: Path) -> None:
    # -P: the folder that this starts in, or a `build` folder in it, must not be imported.
    argv: Argv = [sys.executable, "-P", "-m", "build", "--sdist", "--wheel", "--outdir", work / "out", copy]
    with log.open("xb") as file:
        code = process.stream(argv, cwd=work, env=environment, to_file=file, check=False, show=False)
    if code:
        text = mask(log.read_text(encoding="utf-8", errors="replace"))
        for line in _said(text).splitlines()[-_SHOWN_LINES:]:
            say(f"  {redact(line)}")
        raise build_failure(text, log)


def build_failure(text: str, log: Path) -> OmniError:
    """Make the error for a failed build from what it said; pure."""
    steps = list(_STEP.finditer(text))
    last = steps[-1] if steps else None
    reason = redact(last_useful_line(_said(text).encode()))
    if last is None or last[1] not in ("Creating isolated", "Installing packages"):
        return DataError(f"the build failed: {reason}", hint=f"its whole output is in {log}")
    message = f"the build backend could not be fetched: {reason}"
    if _NO_NETWORK.search(text, last.end()):
        return TemporaryError(message, hint=f"is the package index reachable from here? The whole output is in {log}")
    return ServiceRefusedError(message, hint=f"the package index must have it; the whole output is in {log}")


def _said(text: str) -> str:
    """Return what the backend or pip said, without what `build` says about itself having failed."""
    lines = _BUILDS_TRACEBACK.sub("", text).splitlines()
    return "\n".join(line.removeprefix("< ") for line in lines if not _BUILDS_ERROR.match(line))
