"""Rehearsing a whole nightly on this machine, with real builds, a real index and the real clients.

Everything happens below ``.omni-ci/rehearsals`` in this checkout; the newest runs are kept for looking at.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from tasks.release import judges, rehearsal_images
from tasks.release.rehearsal_image import Nightly, made_up_commit
from tasks.release.run_folder import explained, new_folder
from tasks.support import console, profiles, source
from tasks.support.errors import CredentialsError, DataError, MissingInputError, OmniError, UsageError, unknown_choice
from tasks.support.process import capture
from tasks.support.settings import CHECKOUT, Settings, inherited_environment
from tasks.support.store import open_store
from tasks.wheels import building, built_files, checking, layout, pruning, rolling_back, views
from tasks.wheels.begin import ask_ancestry
from tasks.wheels.distribution import Facts
from tasks.wheels.index import Index, timestamp
from tasks.wheels.serving import serve
from tasks.wheels.state import TimeSource
from tasks.wheels.upload import CommitTime, execute_upload, plan_upload

FOLDER = CHECKOUT / ".omni-ci" / "rehearsals"
SAMPLE = CHECKOUT / "tests" / "sample_project"
KEPT = 3
_CHANNELS = ("nightly",)
_LONGEST = 4095  # of a path, in bytes: PATH_MAX of Linux without its NUL
# Of the machine's configuration nothing is read, so a hook or a signature can only come from git's own defaults.
_GIT = (
    "git",
    "-c",
    "user.name=Rehearsal",
    "-c",
    "user.email=rehearsal@localhost",
    "-c",
    f"core.hooksPath={os.devnull}",
)


@dataclass(frozen=True)
class Request:
    """What is rehearsed: the channel, the source (None is the sample project) and the devices to build for."""

    channel: str
    source: Path | None
    devices: tuple[str, ...]

    @classmethod
    def parse(cls, channel: str, given: str | None, devices: Sequence[str] | None) -> Request:
        """Check the words of a command line, or raise UsageError, MissingInputError or CredentialsError."""
        if channel not in _CHANNELS:
            raise unknown_choice("channel", channel, _CHANNELS)
        for device in devices or ():
            if device not in built_files.DEVICES:
                raise unknown_choice("device", device, built_files.DEVICES)
        folder = _source_folder(given) if given is not None else None
        return cls(channel, folder, tuple(dict.fromkeys(devices or ("cuda",))))


def _source_folder(given: str) -> Path:
    if len(os.fsencode(given)) > _LONGEST:
        raise UsageError(f"--source is no path: {given[:40]}... has {len(given)} characters", hint="correct --source")
    try:
        folder = Path(given).expanduser().absolute()
        found = folder.is_dir()
        effective = os.access in os.supports_effective_ids
        readable = found and os.access(folder, os.R_OK | os.X_OK, effective_ids=effective)
    except RuntimeError as error:  # ~name of a user whom nobody knows
        raise MissingInputError(f"--source {given}: {error}", hint="correct --source") from error
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise UsageError(f"--source is no path: a name in {given[:40]}... is too long") from error
        raise CredentialsError(f"cannot look at the source {given}: {error.strerror}") from error
    if not found:
        raise MissingInputError(f"the source is not a folder: {folder}", hint="correct --source")
    if not readable:
        raise CredentialsError(f"the source cannot be read: {folder}", hint="this user lacks a right on the folder")
    return folder


@dataclass(frozen=True)
class Step:
    """One finished step: what was done, what came of it, and the seconds that it took."""

    name: str
    result: str
    seconds: float


@dataclass(frozen=True)
class Report:
    """A whole rehearsal: its steps and the folder with everything that it made."""

    steps: tuple[Step, ...]
    folder: Path

    @property
    def store(self) -> Path:
        """Return the folder of the rehearsal's wheel store."""
        return self.folder / "store"

    @property
    def public(self) -> Path:
        """Return the folder of the rehearsal's public repository."""
        return self.folder / "registry" / "public"


@dataclass(frozen=True)
class Build:
    """One commit of the rehearsal: its hash and time, the checkout that knows it, and the wheels built from it."""

    commit: str
    time: CommitTime
    checkout: Path | None
    facts: tuple[Facts, ...]


@dataclass
class _Run:
    """A rehearsal in progress."""

    settings: Settings
    request: Request
    folder: Path
    steps: list[Step] = field(default_factory=list)

    def step(self, name: str, action: Callable[[], str]) -> None:
        """Run one step, timed, and say what came of it; a failure names the step and the folder."""
        start = time.monotonic()
        console.say(f"  {name} ...")
        try:
            with explained("the machine refused"):
                result = action()
        except OmniError as error:
            error.message = f"{name}: {error.message}"
            error.hint = f"{error.hint or 'look at what is there'}; everything so far is in {self.folder}"
            raise
        self.steps.append(Step(name, result, time.monotonic() - start))


def run(settings: Settings, request: Request) -> Report:
    """Rehearse a nightly from the build to the rollback and return what happened.

    Raises whatever error the first failing step meets, naming the step.
    """
    console.say(f"{profiles.promise(settings.profile)} · rehearsing {request.channel} in {FOLDER}")
    with new_folder(FOLDER, KEPT) as folder:
        rehearsed = _Run(settings, request, folder)
        _nightly(rehearsed)
        # Environments and caches of the clients are large, and a failed run has shown what they said.
        with explained("cannot remove what the clients left"):
            shutil.rmtree(folder / "clients")
    return Report(tuple(rehearsed.steps), folder)


def show(report: Report, *, json: bool) -> None:
    """Show the steps and where to look."""
    rows = [(step.name, step.result, f"{step.seconds:.1f} s") for step in report.steps]
    console.table(("step", "result", "time"), rows)
    console.say(f"look: {report.store / layout.BROWSE}")
    own = shlex.join((sys.argv[0], "-r", str(CHECKOUT)))
    console.say(f"serve: {own} {shlex.join(('wheels.serve', '--store', str(report.store)))}")
    places = ("--public", str(report.public), "--store", str(report.store))
    console.say(f"tags: {own} {shlex.join(('release.status', *places))}")
    if json:
        steps = [{"step": step.name, "result": step.result, "seconds": round(step.seconds, 3)} for step in report.steps]
        console.emit_json({"folder": str(report.folder), "store": report.store.as_uri(), "steps": steps})


def _nightly(run: _Run) -> None:
    builds: list[Build] = []

    def build(number: int) -> str:
        builds.append(_first_build(run) if number == 1 else _second_build(run, builds[0]))
        return ", ".join(fact.filename for fact in builds[-1].facts)

    run.step("build the first nightly", lambda: build(1))
    first = builds[0]
    project = _project_of(first.facts)
    rules = replace(run.settings.wheels, project=project, required_nightly=(f"{project.replace('-', '_')}-*.whl",))
    index = Index(open_store(str(run.folder / "store")), rules)
    run.step("upload a commit that stays unpublished", lambda: _upload(index, _stale(first)))
    run.step("upload it", lambda: _upload(index, first))
    run.step("move nightly", lambda: _move(index, first))
    run.step("check nightly", lambda: _check(index))
    with serve(index.store) as server:
        _ask_clients(run, server.url, "first", first)
        again = (
            "build the second nightly"
            if run.request.source is None
            else "let the same wheels stand for a second nightly"
        )
        run.step(again, lambda: build(2))
        second = builds[1]
        run.step("upload it", lambda: _upload(index, second))
        run.step("move nightly", lambda: _move(index, second))
        run.step("move nightly to the first again", lambda: _stays(index, first))
        run.step("prune", lambda: _prune(index))
        _ask_clients(run, server.url, "second", second)
        run.step("roll nightly back", lambda: _roll_back(index, first))
        _ask_clients(run, server.url, "rolled back", first)
    run.step("check nightly", lambda: _check(index))
    nightlies = (Nightly(first.commit, first.time.moment), Nightly(second.commit, second.time.moment))
    rehearsal_images.rehearse(run.settings, run.folder, index.store, nightlies, run.step)


def _ask_clients(run: _Run, url: str, name: str, expected: Build) -> None:
    wheels = [fact for fact in expected.facts if fact.metadata_sha256]
    lone = len({fact.variant for fact in wheels}) == 1
    for fact in wheels:
        folder = run.folder / "clients" / f"{name.replace(' ', '-')}-{fact.variant or 'default'}"
        view = layout.NIGHTLY if lone else layout.root(layout.NIGHTLY, fact.variant)
        index_url = f"{url.rstrip('/')}/{view}/"
        shown = f"({name}, {fact.variant or 'default'})"
        run.step(f"pip download {shown}", partial(_pip, folder, index_url, fact))
        run.step(f"uv pip install {shown}", partial(_uv, folder, index_url, fact))


def _pip(folder: Path, url: str, fact: Facts) -> str:
    name = judges.pip_download(folder, url, fact.project)
    digest = hashlib.sha256((folder / "pip" / name).read_bytes()).hexdigest()
    if (name, digest) != (fact.filename, fact.sha256):
        raise DataError(f"pip brought {name} (sha256 {digest}), not {fact.filename}")
    return f"{name}, sha256 as built"


def _uv(folder: Path, url: str, fact: Facts) -> str:
    version = judges.uv_install(folder, url, fact.project)
    if version != fact.version:
        raise DataError(f"uv installed {fact.project} {version}, not {fact.version}")
    return f"{fact.project} {version} is installed"


def _first_build(run: _Run) -> Build:
    if run.request.source is None:
        checkout = run.folder / "source"
        shutil.copytree(SAMPLE, checkout, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "build", "dist"))
        _git(checkout, "init", "--quiet", "--template=")
        return _build(run, "first", checkout, _commit_all(checkout, "First nightly"))
    given = run.request.source
    commit = source.commit_of(given) if source.has_git(given) else made_up_commit("first")
    return _build(run, "first", given, commit)


def _second_build(run: _Run, first: Build) -> Build:
    if run.request.source is None:
        checkout = run.folder / "source"
        version = checkout / "VERSION"
        version.write_text(_next_version(version.read_text(encoding="utf-8").strip()) + "\n", encoding="utf-8")
        return _build(run, "second", checkout, _commit_all(checkout, "Second nightly"))
    # The given source has one commit to build; its wheels stand for a later one's.
    moment = datetime.fromisoformat(first.time.moment) + timedelta(seconds=1)
    time_of_second = CommitTime(timestamp(moment), TimeSource.GIVEN)
    return Build(made_up_commit(first.commit), time_of_second, None, first.facts)


def _build(run: _Run, name: str, checkout: Path, commit: str) -> Build:
    has_git = source.has_git(checkout)
    facts: list[Facts] = []
    for device in run.request.devices:
        dist = run.folder / "dist" / name
        request = building.BuildRequest(source=checkout, dist=dist, commit=commit, device=device, allow_dirty=True)
        plan = building.plan_build(request, building.survey(checkout, commit))
        result = building.run_build(plan, run.settings.wheels.variants, logs=run.folder / "logs")
        facts += [fact for fact in result.facts if fact.metadata_sha256]
    if has_git:
        known = CommitTime(timestamp(source.commit_time(checkout, commit)), TimeSource.GIT)
    else:
        known = CommitTime(timestamp(datetime.now(UTC)), TimeSource.GIVEN)
    return Build(commit, known, checkout if has_git else None, tuple(facts))


def _stale(first: Build) -> Build:
    earlier = datetime.fromisoformat(first.time.moment) - timedelta(days=1)
    return Build(made_up_commit("stale"), CommitTime(timestamp(earlier), TimeSource.GIVEN), None, first.facts)


def _upload(index: Index, build: Build) -> str:
    report = execute_upload(index, plan_upload(index, build.commit, build.time, build.facts))
    files, pages = len(report.plan.missing), len(report.drawn.written)
    return f"{console.plural(files, 'file')}, {console.plural(pages, 'page')} in {build.commit[:12]}/"


def _move(index: Index, build: Build) -> str:
    ancestry = ask_ancestry(build.checkout)
    moved = views.execute_move(index, views.plan_move(index, layout.NIGHTLY, build.commit, ancestry), ancestry)
    if moved.outcome is not views.Outcome.MOVE:
        raise DataError(f"nightly did not move: {moved.reason}")
    return f"at {build.commit[:12]}: {moved.reason}"


def _stays(index: Index, first: Build) -> str:
    ancestry = ask_ancestry(first.checkout)
    moved = views.execute_move(index, views.plan_move(index, layout.NIGHTLY, first.commit, ancestry), ancestry)
    if moved.outcome is not views.Outcome.KEPT:
        raise DataError(f"nightly went back to {first.commit}: {moved.reason}")
    return f"refused: {moved.reason}"


def _check(index: Index) -> str:
    report = checking.check_view(index, layout.NIGHTLY)
    error = checking.report_error(report, strict=True)
    if error is not None:
        for found in report.findings:
            console.say(f"    {found.severity.value}: {found.key}: {found.what}")
        raise error
    return "nothing found"


def _prune(index: Index) -> str:
    plan = pruning.plan_prune(index, keep=index.rules.keep_nightlies, younger_than=timedelta(), max_share=1.0)
    report = pruning.execute_prune(index, plan)
    if report.commits != (made_up_commit("stale"),):
        raise DataError(f"the prune took {', '.join(report.commits) or 'nothing'}, not only the unpublished commit")
    return f"{console.plural(len(report.deleted), 'object')} of {report.commits[0][:12]} deleted"


def _roll_back(index: Index, first: Build) -> str:
    moved = rolling_back.execute_rollback(index, rolling_back.plan_rollback(index, layout.NIGHTLY, None))
    current = index.view(layout.NIGHTLY).state.current
    if current is None or current.commit != first.commit:
        raise DataError(f"nightly is not back at {first.commit}")
    return f"at {first.commit[:12]}: {moved.reason}"


def _project_of(facts: Sequence[Facts]) -> str:
    projects = {fact.project for fact in facts}
    if len(projects) != 1:
        raise DataError(f"the source built {len(projects)} projects: {', '.join(sorted(projects))}")
    return projects.pop()


def _next_version(version: str) -> str:
    from packaging.version import Version

    parsed = Version(version)
    return f"{parsed.base_version}.dev{(parsed.dev or 0) + 1}"


def _commit_all(checkout: Path, message: str) -> str:
    _git(checkout, "add", "--all")
    _git(checkout, "commit", "--quiet", "--no-verify", "--message", message)
    return source.commit_of(checkout)


def _git(checkout: Path, *words: str) -> None:
    """Run git on the rehearsal's own repository alone, whatever surrounds us: a hook, or a person's configuration.

    A hook's GIT_DIR and GIT_INDEX_FILE would send the commit to the hook's repository.
    """
    surrounding = dict.fromkeys(name for name in inherited_environment() if name.startswith("GIT_"))
    nothing = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    capture([*_GIT, *words], cwd=checkout, env={**surrounding, **nothing}, timeout=60)
