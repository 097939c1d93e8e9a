"""A docker configuration folder of one run's own, so that jobs on one host share no login and leave none behind."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.registry.credentials import Credential, config_path, find_credential
from tasks.registry.references import DOCKER_HUB
from tasks.support.command_line import Changes
from tasks.support.errors import ConfigurationError
from tasks.support.settings import Settings

Entry = Mapping[str, str]
"""A login as docker writes it: ``auth`` (base64 of ``user:password``) or ``identitytoken``."""

_PRIVATE = 0o700
_HUB_KEY = "https://index.docker.io/v1/"
# What a build takes from a person's configuration beside logins: the proxies that docker hands to build steps.
_TAKEN_OVER = ("proxies",)


@dataclass(frozen=True)
class PrivateConfig:
    """A run's own docker configuration folder."""

    folder: Path
    variables: Changes

    def environment(self) -> Changes:
        """Return what makes a docker client use this folder."""
        return {**self.variables, "DOCKER_CONFIG": str(self.folder)}


@contextmanager
def private_config(settings: Settings, auths: Mapping[str, Entry], base: Path | None = None) -> Iterator[PrivateConfig]:
    """Make a folder that holds these logins only, and remove it when the block ends, however it ends but by kill -9.

    ``auths`` maps docker's key of a registry to its login. What killed runs of this user left is removed
    first: a folder whose lock nobody holds has no run any more. ``base`` is where the folder is made; by
    default this user's runtime folder, which is in memory where there is one, else the temporary folder.
    """
    parent = _parent(settings, base)
    folder, held = _claim(parent)
    try:
        theirs = config_path(settings).parent
        _write(folder / "config.json", _document(theirs, auths))
        yield PrivateConfig(folder, _variables(settings, theirs))
    finally:
        _remove(parent, folder)
        os.close(held)


def find_logins(settings: Settings, registries: Iterable[str]) -> dict[str, Entry]:
    """Return the logins for these registries as docker's ``auths`` has them; those without one are left out."""
    found = {}
    for registry in sorted(set(registries)):
        credential = find_credential(registry, settings)
        if credential is not None:
            found[_HUB_KEY if registry == DOCKER_HUB else registry] = as_entry(credential)
    return found


def as_entry(credential: Credential) -> Entry:
    """Return a credential as docker's config.json has it."""
    if credential.identity_token:
        return {"identitytoken": credential.identity_token}
    if credential.registry_token:
        return {"registrytoken": credential.registry_token}
    return {"auth": credential.basic.removeprefix("Basic ")}


def as_login(credential: Credential | None) -> dict[str, str]:
    """Return a credential as the engine's API takes it with a push; empty for an anonymous one."""
    if credential is None:
        return {}
    if credential.identity_token or credential.registry_token:
        return dict(as_entry(credential))
    return {"username": credential.username, "password": credential.password}


def _parent(settings: Settings, base: Path | None) -> Path:
    runtime = settings.variable("XDG_RUNTIME_DIR")
    if base is None:
        base = Path(runtime) if runtime and os.access(runtime, os.W_OK | os.X_OK) else Path(tempfile.gettempdir())
    return base / f"omni-ci-logins-{os.getuid()}"


def _claim(parent: Path) -> tuple[Path, int]:
    """Make a folder whose lock this process holds until it ends, and remove what no process holds."""
    while True:
        # The run before may remove the parent meanwhile: then it is made anew.
        with suppress(FileNotFoundError), _locked_parent(parent):
            _sweep(parent)
            folder = parent / secrets.token_hex(8)
            folder.mkdir(_PRIVATE)
            return folder, _lock(folder)


@contextmanager
def _locked_parent(parent: Path) -> Iterator[None]:
    with suppress(FileExistsError):
        parent.mkdir(_PRIVATE)
    found = parent.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) != _PRIVATE:
        raise ConfigurationError(
            f"{parent} is not a folder that only this user can open", hint="remove it; it is made again as it must be"
        )
    held = _lock(parent)
    try:
        locked = os.fstat(held)
        if not os.path.samestat(locked, parent.lstat()):
            raise FileNotFoundError(parent)  # removed, and perhaps made anew, while this waited
        yield
    finally:
        os.close(held)


def _lock(folder: Path, *, wait: bool = True) -> int:
    """Lock a folder until the descriptor is closed, which the kernel does at the latest when the process ends."""
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BaseException:
        os.close(held)
        raise
    return held


def _sweep(parent: Path) -> None:
    for folder in parent.iterdir():
        with suppress(BlockingIOError, FileNotFoundError):  # a run's own, or gone already
            os.close(_lock(folder, wait=False))
            shutil.rmtree(folder)


def _remove(parent: Path, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError), _locked_parent(parent):  # another run is in there: it stays for that one
        parent.rmdir()


def _document(theirs: Path, auths: Mapping[str, Entry]) -> dict[str, Any]:
    try:
        found = json.loads((theirs / "config.json").read_bytes())
    except (OSError, ValueError):
        found = {}
    kept = {key: found[key] for key in _TAKEN_OVER if key in found} if isinstance(found, dict) else {}
    plugins = theirs / "cli-plugins"
    # A plugin that a person installed for themselves (buildx) lies in the folder that this one takes the place of.
    extra = {"cliPluginsExtraDirs": [str(plugins)]} if plugins.is_dir() else {}
    return {"auths": {key: dict(entry) for key, entry in auths.items()}, **kept, **extra}


def _variables(settings: Settings, theirs: Path) -> Changes:
    builders = theirs / "buildx"
    if settings.variable("BUILDX_CONFIG") is None and builders.is_dir():
        return {"BUILDX_CONFIG": str(builders)}
    return {}


def _write(file: Path, document: dict[str, Any]) -> None:
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as opened:
        json.dump(document, opened)
