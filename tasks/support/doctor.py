"""What this machine has and lacks, and which tasks each gap concerns; nothing is changed and no secret shown."""

from __future__ import annotations

import json
import platform
import shutil
import sys
import threading
import time
from collections.abc import Callable, Sequence
from configparser import Error as ParserError
from configparser import RawConfigParser
from dataclasses import asdict, dataclass
from enum import Enum
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from tasks.support import console
from tasks.support.errors import ConfigurationError, MissingInputError, OmniError
from tasks.support.paths import current_folder
from tasks.support.process import capture
from tasks.support.redaction import redact
from tasks.support.settings import CHECKOUT, Settings
from tasks.support.source import commit_of, has_git, resolve_source

PATIENCE = 2.0
"""Seconds that the probes which may hang (engine, bucket) have together, after the local ones."""

_LOCAL = 20.0

_ON_S3 = ("wheels.* on s3://",)
_ON_SOURCE = ("wheels.build", "release.rehearse --source", "pipelines.*")
_ON_AGENT = ("pipelines.upload", "pipelines.bootstrap", "annotations")

SETUP = "run scripts/rehearse once: it installs what is locked"


class State(Enum):
    """What a probe found."""

    HERE = "here"
    MISSING = "missing"
    BROKEN = "broken"


@dataclass(frozen=True)
class Finding:
    """One line of the diagnosis: ``needed_by`` are task names, ``remedy`` is empty when nothing is to be done."""

    name: str
    state: State
    detail: str
    needed_by: tuple[str, ...]
    remedy: str = ""


ESSENTIAL = ("python", "git")

# Distribution, the tasks that load it, and for what.
_PACKAGES = (
    ("boto3", ("wheels.* on s3://",)),
    ("build", ("wheels.build", "release.rehearse")),
    ("check-jsonschema", ("pipelines.check",)),
    ("docker", ("images.*",)),
    ("nox", ("the noxfile's sessions",)),
    ("packaging", ("wheels.*", "release.*")),
    ("pypi-simple", ("wheels.check", "wheels.publish", "release.rehearse")),
    ("requests", ("wheels.check --online", "wheels.publish", "release.rehearse")),
    ("rich", ("every task's tables",)),
    ("twine", ("wheels.build", "wheels.publish")),
)


def examine(settings: Settings, cwd: Path | None = None, *, checkout: Path = CHECKOUT) -> list[Finding]:
    """Probe everything once, in at most a few seconds, whatever is missing (``cwd``: by default the current one).

    ``checkout`` is this tool's own, beside which the source may lie.
    """
    slow = _Slow(
        {
            "engine": (lambda: _engine(settings), ("images.*",)),
            "store": (lambda: _store(settings), ("wheels.*", "release.*")),
        }
    )
    return [
        _python(),
        _guarded("git", ("every task that looks at the source",), _git),
        _guarded("uv", ("release.rehearse",), lambda: _uv(settings)),
        _guarded("source", _ON_SOURCE, lambda: _source(settings, cwd, checkout)),
        _guarded("buildkite-agent", _ON_AGENT, lambda: _agent(settings)),
        *_packages(),
        *slow.findings(),
        _guarded("registry logins", ("images.*",), lambda: _logins(settings)),
        *_credentials(settings),
    ]


def require_essentials(findings: Sequence[Finding]) -> None:
    """Raise ConfigurationError when the main job cannot run at all on this machine."""
    for finding in findings:
        if finding.name in ESSENTIAL and finding.state is not State.HERE:
            raise ConfigurationError(f"{finding.name} is unusable: {finding.detail}", hint=finding.remedy)


def show(findings: Sequence[Finding]) -> None:
    """Print the findings as a table; under each gap, which tasks need it and what to do."""
    rows: list[tuple[console.Cell, ...]] = []
    for finding in findings:
        gap = () if finding.state is State.HERE else (f"  for {', '.join(finding.needed_by)}: {finding.remedy}",)
        rows.append((finding.name, finding.state.value, (finding.detail, *gap)))
    console.table(("what", "state", "details"), rows)


def as_data(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """Return the findings for machines."""
    return [{**asdict(finding), "state": finding.state.value} for finding in findings]


class _Slow:
    """Probes that may hang on a network; each has a thread, and those that do not answer in time are left behind."""

    def __init__(self, probes: dict[str, tuple[Callable[[], Finding], tuple[str, ...]]]) -> None:
        self._probes = probes
        self._found: dict[str, Finding] = {}
        # Daemons: a name look-up that hangs must not hold up the exit.
        self._threads = {name: threading.Thread(target=self._run, args=(name,), daemon=True) for name in probes}
        for thread in self._threads.values():
            thread.start()

    def _run(self, name: str) -> None:
        probe, needed_by = self._probes[name]
        self._found[name] = _guarded(name, needed_by, probe)

    def findings(self) -> list[Finding]:
        until = time.monotonic() + PATIENCE
        for thread in self._threads.values():
            thread.join(max(0.0, until - time.monotonic()))
        late = f"no answer within {PATIENCE:g} s"
        return [
            self._found.get(name) or Finding(name, State.BROKEN, late, needed_by, "check its address and the network")
            for name, (_, needed_by) in self._probes.items()
        ]


def _guarded(name: str, needed_by: tuple[str, ...], probe: Callable[[], Finding]) -> Finding:
    """Run a probe; whatever goes wrong in it is a finding."""
    try:
        return probe()
    except MissingInputError as error:
        return Finding(name, State.MISSING, redact(error.message), needed_by, error.hint or "")
    except OmniError as error:
        return Finding(name, State.BROKEN, redact(error.message), needed_by, error.hint or "")
    except Exception as error:  # noqa: BLE001 - a library may raise anything; the other rows are still wanted
        said = " ".join(f"{type(error).__name__}: {error}".split())
        return Finding(name, State.BROKEN, redact(said)[:300], needed_by, "see the message")


def _python() -> Finding:
    detail = f"{platform.python_version()} ({sys.executable})"
    return Finding("python", State.HERE, detail, ("everything",))


def _git() -> Finding:
    needed_by = ("every task that looks at the source",)
    said = capture(["git", "--version"], cwd=Path("/"), env={"LC_ALL": "C"}, timeout=_LOCAL).text.strip()
    return Finding("git", State.HERE, said.removeprefix("git version "), needed_by)


def _uv(settings: Settings) -> Finding:
    beside = Path(sys.executable).parent / "uv"
    argv: tuple[str | Path, ...] = (beside if beside.exists() else "uv", "--version")
    said = capture(argv, cwd=Path("/"), env={"PATH": settings.variable("PATH")}, timeout=_LOCAL).text.strip()
    return Finding("uv", State.HERE, said.removeprefix("uv "), ("release.rehearse",))


def _source(settings: Settings, cwd: Path | None, checkout: Path) -> Finding:
    source = resolve_source(settings, cwd or current_folder(), checkout=checkout)
    at = f"commit {commit_of(source)[:12]}" if has_git(source) else "no git: its tasks need --commit"
    return Finding("source", State.HERE, f"{source} ({at})", _ON_SOURCE)


def _agent(settings: Settings) -> Finding:
    program = shutil.which("buildkite-agent", path=settings.variable("PATH"))
    if program is None:
        remedy = "needed in a build only; in a container, mount it (mount-buildkite-agent: true)"
        return Finding("buildkite-agent", State.MISSING, "not on PATH", _ON_AGENT, remedy)
    said = capture([program, "--version"], cwd=Path("/"), timeout=_LOCAL).text.strip()
    return Finding("buildkite-agent", State.HERE, said.removeprefix("buildkite-agent version "), _ON_AGENT)


def installed(distribution: str) -> str | None:
    """Return an installed distribution's version, without importing it.

    Not by looking for a module: the folder ``docker/`` of this checkout would pass for one.
    """
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def _packages() -> list[Finding]:
    missing = [
        Finding(f"package {name}", State.MISSING, "not installed here", needed_by, SETUP)
        for name, needed_by in _PACKAGES
        if installed(name) is None
    ]
    return missing or [Finding("packages", State.HERE, f"all {len(_PACKAGES)}", ("everything",))]


def _engine(settings: Settings) -> Finding:
    needed_by = ("images.*",)
    address = redact(settings.variable("DOCKER_HOST") or "unix:///var/run/docker.sock")
    if installed("docker") is None:
        return Finding("engine", State.MISSING, "not asked: the package docker is not installed", needed_by, SETUP)
    socket = Path(address.removeprefix("unix://"))
    if address.startswith("unix://") and not socket.exists():
        return Finding("engine", State.MISSING, f"no engine at {address}", needed_by, "start one, or set DOCKER_HOST")
    # By name, because the checkout's own folder docker/ is what a type checker sees.
    client = import_module("docker").from_env(timeout=1, environment=dict(settings.environment))
    try:
        facts = client.version()
    finally:
        client.close()
    return Finding("engine", State.HERE, f"{facts['Version']} (API {facts['ApiVersion']}) at {address}", needed_by)


def _store(settings: Settings) -> Finding:
    from tasks.support.store import open_store

    needed_by = ("wheels.*", "release.*")
    if settings.store.startswith("s3:") and installed("boto3") is None:
        return Finding("store", State.MISSING, f"not asked: {settings.store} needs the package boto3", needed_by, SETUP)
    store = open_store(settings.store)
    index = "has an index" if next(iter(store.list("_state/")), None) else "readable, no index yet"
    return Finding("store", State.HERE, f"{store.url} ({index})", needed_by)


def _logins(settings: Settings) -> Finding:
    needed_by = ("images.*",)
    home = settings.variable("HOME") or str(Path.home())
    file = Path(settings.variable("DOCKER_CONFIG") or Path(home, ".docker")) / "config.json"
    remedy = "docker login, where a task pushes"
    if not file.is_file():
        return Finding("registry logins", State.MISSING, f"no {file}", needed_by, remedy)
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
        count = len(config.get("auths", {})) + len(config.get("credHelpers", {}))
    except (OSError, ValueError, AttributeError, TypeError) as error:
        broken = f"cannot read {file} ({type(error).__name__})"  # not its message: that may quote the file
        return Finding("registry logins", State.BROKEN, broken, needed_by, "repair or remove it")
    if not count and not config.get("credsStore"):
        return Finding("registry logins", State.MISSING, f"none in {file}", needed_by, remedy)
    keeper = " in a credential store" if config.get("credsStore") else ""
    return Finding("registry logins", State.HERE, f"{count}{keeper} ({file})", needed_by)


def _credentials(settings: Settings) -> list[Finding]:
    """Say which credentials are set; their values are not looked at beyond that."""
    wanted = (
        (("PYPI_TOKEN",), ("wheels.publish",)),
        (("DOCKERHUB_USERNAME", "DOCKERHUB_TOKEN"), ("images.*",)),
    )
    rows = [_variables(names, needed_by, settings) for names, needed_by in wanted]
    return [*rows, _guarded("AWS credentials", _ON_S3, lambda: _aws(settings))]


def _variables(names: tuple[str, ...], needed_by: tuple[str, ...], settings: Settings) -> Finding:
    title = " + ".join(names)
    unset = [name for name in names if settings.variable(name) is None]
    if not unset:
        return Finding(title, State.HERE, "set", needed_by)
    return Finding(title, State.MISSING, f"not set: {', '.join(unset)}", needed_by, "export it where the task runs")


def _aws(settings: Settings) -> Finding:
    needed_by = _ON_S3
    if settings.variable("AWS_ACCESS_KEY_ID") and settings.variable("AWS_SECRET_ACCESS_KEY"):
        return Finding("AWS credentials", State.HERE, "set in the environment", needed_by)
    if settings.variable("AWS_PROFILE"):
        return Finding("AWS credentials", State.HERE, "a profile is named by AWS_PROFILE", needed_by)
    home = settings.variable("HOME") or str(Path.home())
    files = (
        settings.variable("AWS_SHARED_CREDENTIALS_FILE") or Path(home, ".aws", "credentials"),
        settings.variable("AWS_CONFIG_FILE") or Path(home, ".aws", "config"),
    )
    there = [Path(file) for file in files if Path(file).is_file()]
    for file in there:
        try:
            RawConfigParser(default_section="").read_string(file.read_text(encoding="utf-8"))
        except (OSError, ValueError, ParserError) as error:
            broken = f"cannot read {file} ({type(error).__name__})"  # not its message: that may quote the file
            return Finding("AWS credentials", State.BROKEN, broken, needed_by, "repair or remove it")
    if there:
        return Finding("AWS credentials", State.HERE, "~/.aws is there", needed_by)
    remedy = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or use a machine with a role"
    return Finding("AWS credentials", State.MISSING, "none in the environment or ~/.aws", needed_by, remedy)
