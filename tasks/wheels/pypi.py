"""Publishing a version from the store to the public package index: planned, checked, uploaded, read back."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from packaging.utils import canonicalize_name

from tasks.support import announcing, console, profiles, settings
from tasks.support.errors import (
    CredentialsError,
    DataError,
    OmniError,
    RemoteChangedError,
    ServiceRefusedError,
    TemporaryError,
    UsageError,
)
from tasks.support.settings import Settings
from tasks.support.store import ObjectStore, Progress
from tasks.wheels import begin, layout, twine_calls
from tasks.wheels.distribution import parse_filename
from tasks.wheels.index import Index
from tasks.wheels.published import Service, find_service, read_published
from tasks.wheels.pypi_plan import PlannedFile, PublishPlan, choose_records, parse_release, plan_publish
from tasks.wheels.state import FileRecord
from tasks.wheels.upload import Standing

TOKEN = "PYPI_TOKEN"  # noqa: S105 - the variable's name
PATIENCE = 120.0
"""How long a new file may take to show up in the index, in seconds."""


@dataclass(frozen=True)
class PublishReport:
    """What a publish did. ``unseen`` are the files that the index does not list yet, with the reason where known."""

    plan: PublishPlan
    uploaded: tuple[str, ...]
    unseen: tuple[str, ...]
    warning: str | None


def read_token(chosen: Settings, target: str) -> str:
    """Return the token from the environment; CredentialsError when it is not there or cannot be one."""
    token = chosen.secret(TOKEN, purpose=f"to publish to {target}")
    if not token.isascii() or not token.isprintable() or " " in token:
        raise CredentialsError(
            f"{TOKEN} holds white space or other characters that no token has",
            hint="was it copied with its line break? set it again",
        )
    return token


def execute_publish(
    index: Index,
    plan: PublishPlan,
    chosen: Settings,
    *,
    progress: Progress | None = None,
    patience: float = PATIENCE,
) -> PublishReport:
    """Upload what is new, file by file, from the store's own bytes, and read the result back.

    Safe to repeat after a failure or a kill at any point. Files lie in a fresh temporary folder meanwhile.
    ``patience`` is how long, in seconds, the index may take to list them; after that they are reported as unseen.
    Raises, beside what the twine calls raise, RemoteChangedError when the store's state or the index is not what
    the plan was made from, and DataError when an object is not what the state says.
    """
    service = find_service(chosen)
    profiles.permit(chosen.profile, profiles.Deed.PUBLISH, service.name)
    if not plan.new:
        return PublishReport(plan, (), (), None)
    token = read_token(chosen, service.name)
    _recheck_state(index, plan)
    with TemporaryDirectory(prefix="omni-ci-publish-") as name:
        folder = Path(name)
        paths = [_fetch(index.store, file.record, folder, progress) for file in plan.new]
        twine_calls.check_files(paths, folder)
        uploaded = _Uploads(service, plan, token, patience).run(paths)
    unseen, warning = _read_back(service, plan, patience)
    return PublishReport(plan, uploaded, unseen, warning)


def _recheck_state(index: Index, plan: PublishPlan) -> None:
    known = index.project(plan.project).state.files
    for file in plan.files:
        if known.get(file.record.key) != file.record:
            raise RemoteChangedError(
                f"{file.record.key} changed since the plan", hint="look at it, then run this again"
            )


def _fetch(store: ObjectStore, record: FileRecord, folder: Path, progress: Progress | None) -> Path:
    path = folder / parse_filename(record.filename).text
    digest = hashlib.sha256()
    with path.open("xb") as file:
        for chunk in store.stream(record.key):
            digest.update(chunk)
            file.write(chunk)
            if progress:
                progress(len(chunk))
    if digest.hexdigest() != record.sha256:
        raise DataError(
            f"{record.key} is not what the state says: its sha256 is {digest.hexdigest()}, not {record.sha256}",
            hint="nothing was uploaded; somebody wrote over that object: restore it, and run wheels.check",
        )
    return path


class _Uploads:
    """The uploads of one publish, and how far they have come."""

    def __init__(self, service: Service, plan: PublishPlan, token: str, patience: float) -> None:
        self._service = service
        self._plan = plan
        self._token = token
        self._patience = patience
        self._done: list[str] = []

    def run(self, paths: Sequence[Path]) -> tuple[str, ...]:
        """Upload the files in this order; an error that stops it says which are there and which are not."""
        uploaded = []
        try:
            for path, file in zip(paths, self._plan.new, strict=True):
                if not self._is_there(file.record):
                    console.say(f"uploading {path.name} ({console.size(file.record.size)})")
                    self._upload(path, file.record)
                    uploaded.append(path.name)
                self._done.append(path.name)
        except OmniError as error:
            error.hint = f"{self._standing()}{f' · {error.hint}' if error.hint else ''}"
            raise
        except BaseException:
            console.say(self._standing())
            raise
        return tuple(uploaded)

    def _standing(self) -> str:
        left = [file.record.filename for file in self._plan.new if file.record.filename not in self._done]
        return f"uploaded: {', '.join(self._done) or 'nothing'}; not yet: {', '.join(left)}; run it again"

    def _upload(self, path: Path, record: FileRecord) -> None:
        try:
            twine_calls.upload_file(path, self._service.upload_url, self._token)
        except CredentialsError:
            raise
        except OmniError as error:
            # The file may be there all the same: its answer was lost, or somebody else's upload came first.
            exists = isinstance(error, twine_calls.FileRefusedError) and error.exists
            if not self._shows_up(record, self._patience if exists else 0):
                if exists:
                    error.hint = "it is not listed there: the name of a deleted file cannot be used again"
                raise

    def _shows_up(self, record: FileRecord, patience: float) -> bool:
        try:
            return any(self._is_there(record) for _ in _tries(patience))
        except (ServiceRefusedError, TemporaryError):
            return False

    def _is_there(self, record: FileRecord) -> bool:
        """Say whether the index has the file by now; RemoteChangedError when it has it with other bytes."""
        try:
            published = read_published(self._service, self._plan.project, self._plan.version)
        except ServiceRefusedError as error:
            # It answered when the plan was made.
            raise TemporaryError(error.message, hint=error.hint) from error
        there = published.files.get(record.filename)
        if there is not None and there != record.sha256:
            raise RemoteChangedError(
                f"{published.index} has {record.filename} with other bytes since the plan: sha256 {there}",
                hint="somebody else published this version; look at it before anything else",
            )
        return there is not None


def _read_back(service: Service, plan: PublishPlan, patience: float) -> tuple[tuple[str, ...], str | None]:
    """Wait until the index lists every file, and return those that it does not list in time, with a sentence."""
    names = {file.record.filename: file.record.sha256 for file in plan.files}
    unseen, warning = tuple(names), None
    for _ in _tries(patience):
        try:
            published = read_published(service, plan.project, plan.version)
        except OmniError as error:
            warning = f"uploaded, but not read back: {error.message}"
            continue
        other = [name for name, sha256 in names.items() if published.files.get(name, sha256) != sha256]
        if other:
            raise RemoteChangedError(f"{plan.index} has {other[0]} with other bytes than were uploaded")
        unseen = tuple(name for name in names if name not in published.files)
        if not unseen:
            return (), None
        warning = f"uploaded, but {plan.index} does not list {', '.join(unseen)} yet: look again later"
    return unseen, warning


def _tries(patience: float) -> Iterable[int]:
    """Yield at once, and then after growing pauses, until ``patience`` seconds are over."""
    deadline = time.monotonic() + patience
    pause, count = 1.0, 0
    while True:
        yield count
        left = deadline - time.monotonic()
        if left <= 0:
            return
        time.sleep(min(pause, left))
        pause, count = min(pause * 2, 15.0), count + 1


def run_command(
    *,
    version: str | None,
    commit: str | None,
    sdist: bool,
    store: str | None,
    profile: str | None,
    dry_run: bool,
    json: bool,
) -> None:
    """Plan, show and execute ``invoke wheels.publish``."""
    chosen = settings.load(profile=profile, store=store)
    service = find_service(chosen)
    announcing.announce(chosen.profile, profiles.Deed.PUBLISH, [service.name], service.name, dry_run=dry_run)
    if version is None:
        raise UsageError("--version is missing", hint="name the version to publish, for example --version 0.28.0")
    wanted = parse_release(version)
    index = begin.open_index(chosen)
    if commit is not None:
        layout.check_commit(commit)
    # What can be refused here is refused before anybody else is asked.
    choose_records(index, version, commit, sdist=sdist)
    if not dry_run:
        read_token(chosen, service.name)
    published = read_published(service, canonicalize_name(chosen.wheels.project), wanted)
    plan = plan_publish(index, version, commit, published, sdist=sdist)
    _show_plan(plan)
    if dry_run:
        console.dry_run(plan.actions(), json=json)
        return
    with console.progress("fetching", sum(file.record.size for file in plan.new)) as progress:
        report = execute_publish(index, plan, chosen, progress=progress)
    _show_report(report, json=json)


def _show_plan(plan: PublishPlan) -> None:
    rows = [
        (file.record.filename, console.size(file.record.size), f"sha256:{file.record.sha256[:12]}", _standing(file))
        for file in plan.files
    ]
    console.table(("file", "size", "digest", "state"), rows)
    console.say(f"{plan.project} {plan.version} of commit {plan.commit} ({plan.why})")


def _standing(file: PlannedFile) -> str:
    return "already there, same sha256" if file.standing is Standing.PUBLISHED else file.standing.value


def _show_report(report: PublishReport, *, json: bool) -> None:
    if report.warning:
        console.warn(report.warning)
    elif report.uploaded:
        console.say(f"{console.plural(len(report.uploaded), 'file')} uploaded and read back · {report.plan.index}")
    else:
        console.say(f"nothing to do: every file is there · {report.plan.index}")
    if json:
        console.emit_json(
            {
                "project": report.plan.project,
                "version": str(report.plan.version),
                "commit": report.plan.commit,
                "index": report.plan.index,
                "uploaded": list(report.uploaded),
                "unseen": list(report.unseen),
                "files": [
                    {"key": file.record.key, "sha256": file.record.sha256, "size": file.record.size}
                    for file in report.plan.files
                ],
            }
        )
