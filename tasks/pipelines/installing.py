"""What the library holds of this tool: an entry pipeline for each device, and the lock that names the tool's archive.

The archive is made from a commit alone and has the same bytes wherever it is made: names in order, no times, owners or
rights of this machine, and no compression, since the same data comes out differently from different zlibs. It is to be
put where the lock's address says, unchanged; an agent compares it with the lock before anything of it runs.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import tarfile
import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from urllib.parse import urlsplit

from tasks.images.tool_context import PARTS
from tasks.pipelines.bootstrapping import Start
from tasks.pipelines.dollar import double
from tasks.pipelines.expanding import expand
from tasks.pipelines.writing import to_yaml
from tasks.suites.presets import Presets
from tasks.suites.tiers import Bootstrap, Tiers
from tasks.support import paths
from tasks.support.errors import (
    ConfigurationError,
    DataError,
    MissingInputError,
    RemoteChangedError,
    ServiceRefusedError,
    UsageError,
)
from tasks.support.settings import CHECKOUT
from tasks.support.source import commit_of, dirty_names, git, git_top

FOLDER = ".buildkite"
LOCK = f"{FOLDER}/automation.lock"
PROGRAM = CHECKOUT / "scripts" / "fetch_tool.py"
START_VARIABLE = "AUTOMATION_START"
"""Holds the program that fetches the tool, in what the first pipeline uploads; not one of our settings."""

_MARK = "# Written by `omni-ci pipelines.install`: change nothing here, run that again."
_KEYS = ("address", "commit", "sha256")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_ADDRESS = re.compile(r"[A-Za-z0-9:/._~%+?&=,@-]+")
_RIGHTS = {"100644": 0o644, "100755": 0o755}
_MINUTES = 15  # making the tool's environment on a new agent is most of it
_PLACEHOLDER = "{commit}"
_NAMED = 3
_AGAIN = "run pipelines.install again"


@dataclass(frozen=True)
class Archive:
    """The tool at a commit, as one file."""

    commit: str
    data: bytes

    @property
    def sha256(self) -> str:
        """Return the archive's SHA-256."""
        return hashlib.sha256(self.data).hexdigest()

    @property
    def name(self) -> str:
        """Return what the file is called."""
        return f"omni-ci-{self.commit}.tar"


@dataclass(frozen=True)
class Lock:
    """What an agent has to know to get the tool: where its archive is, and what it must be."""

    address: str
    commit: str
    sha256: str


class State(Enum):
    """What there is to do about a file."""

    NEW = "new"
    CHANGED = "changed"
    SAME = "same"


@dataclass(frozen=True)
class Installed:
    """A file of the library's: what it is to hold, and what it held when this was planned (None: it was not there)."""

    path: Path
    name: str
    wanted: bytes
    found: bytes | None

    @property
    def state(self) -> State:
        """Return what there is to do."""
        if self.found is None:
            return State.NEW
        return State.SAME if self.found == self.wanted else State.CHANGED


def archive_of(checkout: Path = CHECKOUT) -> Archive:
    """Return the archive of a checkout's HEAD: what is tracked of the parts that run, in format ustar, not compressed.

    Raises MissingInputError outside of a git checkout, ConfigurationError for one with changes, since what is fetched
    must be what was reviewed, and DataError for a link or a submodule among the files.
    """
    top = git_top(checkout)
    if top is None or top.resolve() != checkout.resolve():
        raise MissingInputError(f"{checkout} is not a git checkout", hint="install from a clone of this tool")
    commit = commit_of(checkout)
    dirty = dirty_names(checkout)
    if dirty:
        names = ", ".join(paths.shown(name) for name in dirty[:_NAMED])
        more = f" and {len(dirty) - _NAMED} more" if len(dirty) > _NAMED else ""
        raise ConfigurationError(
            f"{checkout} has changes that are not committed: {names}{more}",
            hint="commit them, or install from a clean clone",
        )
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, rights, data in _tracked(checkout, commit):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode, entry.mtime = len(data), rights, 0
            archive.addfile(entry, io.BytesIO(data))
    return Archive(commit, out.getvalue())


def _tracked(checkout: Path, commit: str) -> Iterator[tuple[str, int, bytes]]:
    """Yield name, rights and content of the tool's files in the order of their names, as git keeps them."""
    rows = [row for row in git(checkout, "ls-tree", "-r", "-z", commit, "--", *PARTS).stdout.split(b"\0") if row]
    entries = sorted((os.fsdecode(row.partition(b"\t")[2]), row.split()) for row in rows)
    for name, (mode, *_) in entries:
        if mode.decode() not in _RIGHTS:
            raise DataError(f"{name} is neither a file nor a folder: it cannot be in the tool's archive")
    wanted = b"".join(words[2] + b"\n" for _, words in entries)
    answer = memoryview(git(checkout, "cat-file", "--batch", stdin=wanted).stdout)
    for name, (mode, *_) in entries:
        head, _, _ = bytes(answer[:200]).partition(b"\n")
        size = int(head.split()[2])
        start = len(head) + 1
        yield name, _RIGHTS[mode.decode()], bytes(answer[start : start + size])
        answer = answer[start + size + 1 :]


def write_archive(archive: Archive, folder: Path) -> Path:
    """Write the archive into a folder, which is made, and return its path; a file that is there already is replaced."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _replace(folder / archive.name, archive.data)
    except OSError as error:
        raise ServiceRefusedError(f"cannot write to {folder}: {error.strerror}") from error
    return folder / archive.name


def make_lock(archive: Archive, address: str | None, before: Lock | None) -> Lock:
    """Return the lock of an archive.

    ``address`` is where it will be, with ``{commit}`` for the commit; without one, the address of the lock before is
    taken, with the new commit for the old one. Raises UsageError where that does not say, and for an address that is
    neither https nor a file, or that holds a login.
    """
    if address is None:
        if before is None or before.commit not in before.address:
            raise UsageError(
                "where will the tool's archive be?",
                hint=f"pass --address https://.../{archive.name.replace(archive.commit, _PLACEHOLDER)}",
            )
        address = before.address.replace(before.commit, _PLACEHOLDER)
    lock = Lock(address.replace(_PLACEHOLDER, archive.commit), archive.commit, archive.sha256)
    _check_address(lock.address)
    return lock


def _check_address(address: str) -> None:
    try:
        parts = urlsplit(address)
        login = parts.username is not None or parts.password is not None
    except ValueError:
        login, parts = False, urlsplit("")
    if login:
        raise UsageError("the archive's address holds a login", hint="it is readable by everybody in the lock")
    if not _ADDRESS.fullmatch(address) or (parts.scheme, bool(parts.netloc)) not in {("https", True), ("file", False)}:
        raise UsageError(f"not an address of an archive: {paths.shown(address)!r}", hint="it begins with https://")


def read_lock(source: Path) -> Lock | None:
    """Return the lock of the library's checkout, or None; DataError when it is not as ``install`` writes it."""
    data = _content(source, LOCK)
    return None if data is None else parse_lock(data, LOCK)


def parse_lock(data: bytes, name: str) -> Lock:
    """Return the lock that a file holds; DataError with ``name`` when it is not as ``install`` writes it."""
    try:
        table = tomllib.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{name} cannot be read: {error}", hint=_AGAIN) from error
    values = [table.get(key) for key in _KEYS]
    if set(table) != set(_KEYS) or not all(isinstance(value, str) for value in values):
        raise DataError(f"{name} must hold the texts {', '.join(_KEYS)} and nothing else", hint=_AGAIN)
    lock = Lock(*(str(value) for value in values))
    if not _COMMIT.fullmatch(lock.commit) or not _SHA256.fullmatch(lock.sha256):
        raise DataError(f"{name} holds a commit or SHA-256 that is none", hint=_AGAIN)
    try:
        _check_address(lock.address)
    except UsageError as error:
        raise DataError(f"{name}: {error.message}", hint=_AGAIN) from error
    return lock


def plan_install(source: Path, lock: Lock, tiers: Tiers, presets: Presets) -> tuple[Installed, ...]:
    """Return what each file of the library's checkout is to hold; the lock comes last, because it switches over.

    Nothing is written. Raises DataError for a file of such a name that somebody else wrote, and for a link in place of
    one.
    """
    wanted = {f"{FOLDER}/{name}.yml": entry_pipeline(entry, presets) for name, entry in tiers.bootstraps.items()}
    wanted[LOCK] = lock_file(lock)
    found: list[Installed] = []
    for name, text in wanted.items():
        data = _content(source, name)
        if data is not None and not data.startswith(_MARK.encode()):
            raise DataError(f"{source / name} was not written by pipelines.install", hint="move it out of the way")
        found.append(Installed(source / name, name, text.encode(), data))
    return tuple(found)


def check(source: Path, tiers: Tiers, presets: Presets, checkout: Path = CHECKOUT) -> Lock:
    """Return the lock of a library's checkout that holds what this tool installs; nothing is written.

    Raises DataError (65) naming every file that is missing or changed, and for a lock of another commit than this
    tool's: another version writes other files. A tool that was fetched by the lock has no git to ask, and is that
    version.
    """
    lock = read_lock(source)
    if lock is None:
        raise DataError(f"{source} has no {LOCK}", hint=_AGAIN)
    top = git_top(checkout)
    if top is not None and top.resolve() == checkout.resolve():
        commit = commit_of(checkout)
        if commit != lock.commit:
            raise DataError(
                f"{LOCK} names commit {lock.commit}, and this tool is at {commit}",
                hint=f"{_AGAIN}, or check with the version that the lock names",
            )
        lock = Lock(lock.address, lock.commit, archive_of(checkout).sha256)
    drifted = [file for file in plan_install(source, lock, tiers, presets) if file.state is not State.SAME]
    if drifted:
        names = ", ".join(f"{file.name} ({'missing' if file.found is None else 'changed'})" for file in drifted)
        raise DataError(f"not as pipelines.install writes it: {names}", hint=_AGAIN)
    return lock


def install(source: Path, plan: tuple[Installed, ...]) -> tuple[Installed, ...]:
    """Write what differs, each file at once, and return what was written; killed and run again, it goes on.

    Raises RemoteChangedError (76) for a file that changed since the plan was made.
    """
    written = []
    for file in plan:
        if file.state is State.SAME:
            continue
        if _content(source, file.name) != file.found:
            raise RemoteChangedError(f"{file.path} changed meanwhile", hint="run this again")
        try:
            file.path.parent.mkdir(exist_ok=True)
            _replace(file.path, file.wanted)
        except OSError as error:
            raise ServiceRefusedError(f"cannot write {file.path}: {error.strerror}") from error
        written.append(file)
    return tuple(written)


def _content(source: Path, name: str) -> bytes | None:
    path = source / name
    if path.parent.is_symlink() or path.is_symlink():
        raise DataError(f"{path} is reached through a link", hint="put a plain file or folder there")
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error


def _replace(path: Path, data: bytes) -> None:
    """Put a file in its place whole, or leave the old one."""
    opened, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    made = Path(name)
    try:
        with os.fdopen(opened, "wb") as file:
            file.write(data)
        made.chmod(0o644)
        made.replace(path)
    finally:
        made.unlink(missing_ok=True)


def lock_file(lock: Lock) -> str:
    """Return the lock as a file of TOML."""
    rows = (f'{key} = "{getattr(lock, key)}"' for key in _KEYS)
    return "\n".join((_MARK, "# The automation that this repository's builds run.", *rows, ""))


def program() -> str:
    """Return the program that gets the tool onto an agent, as it is put between the single quotes of a shell."""
    text = PROGRAM.read_text(encoding="utf-8").split('"""', 2)[2]
    lines = (line for line in text.splitlines() if not line.startswith("#"))
    return re.sub(r"\n{2,}", "\n", "\n".join(lines)).strip() + "\n"


def start() -> Start:
    """Return how the steps that the first pipeline uploads get the tool: as the entry pipeline did, by the lock."""
    return Start(f'python3 -I -c "${START_VARIABLE}"', {START_VARIABLE: program()})


def entry_pipeline(entry: Bootstrap, presets: Presets) -> str:
    """Return a device's entry pipeline: one step that gets the tool and lets it plan the rest.

    No dollar is in it, so that it means the same whether it is uploaded or pasted into a pipeline's settings.
    """
    preset = entry.one_step.preset if entry.one_step else entry.upload.preset if entry.upload else ""
    sentence = "error: this agent has no python3; Python 3.11 or newer is needed"
    missing = f'command -v python3 > /dev/null || {{ echo "{sentence}" >&2; exit 78; }}'
    command = f"python3 -I -c '\n{program()}' omni-ci pipelines.bootstrap {entry.device}"
    step = {
        "label": f":pipeline: Begin {entry.device}",
        "key": "upload-ci-pipeline",
        "timeout_in_minutes": _MINUTES,
        "commands": [double(missing), double(command)],
    }
    head = (
        _MARK,
        "# Paste it into the Buildkite pipeline's own steps: read from a checkout, it is what a fork made of it.",
    )
    return "\n".join((*head, to_yaml({"steps": [expand(step, presets.get(preset), trusted=False)]})))
