"""The folder that this tool's own image is made from: its files and its locked dependencies, nothing compiled.

The dependencies are copied from the environment that runs this, which was installed from the lock with hashes: no
network is needed, and the image has what was tested. Files made for one python or machine are left out (PyYAML works
without its own), so that one folder serves every base.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from tasks.images.planning import ToolFacts
from tasks.support.errors import ConfigurationError, DataError
from tasks.support.settings import CHECKOUT

PARTS = ("LICENSE", "noxfile.py", "pyproject.toml", "tasks", "scripts", "docker", ".buildkite")
LOCK = "scripts/locks/runner.txt"
SITE = "site"
_PINNED = re.compile(r"^([a-z0-9-]+)==(\S+)( ; .*?)? *\\?$", re.MULTILINE)
_NOT_CARRIED = frozenset({"RECORD", "INSTALLER", "REQUESTED", "direct_url.json"})
_COMPILED = frozenset({".so", ".pyd", ".pyc"})
_EXECUTABLE = 0o111
_STALE = 24 * 3600.0


def facts(checkout: Path = CHECKOUT) -> ToolFacts:
    """Return the digest of what the tool's image will hold, and the folder that ``prepare`` makes for it."""
    total = hashlib.sha256()
    for file in files(checkout):
        name = file.relative_to(checkout).as_posix()
        mode = "x" if file.stat().st_mode & _EXECUTABLE else "-"
        total.update(f"{mode} {name} {hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    digest = total.hexdigest()
    return ToolFacts(checkout / ".omni-ci" / "tool" / digest[:16], digest)


def files(checkout: Path) -> Iterator[Path]:
    """Yield the tool's files in a fixed order; caches of python and symbolic links are none of them."""
    for part in PARTS:
        start = checkout / part
        candidates = sorted(start.rglob("*")) if start.is_dir() else [start]
        for path in candidates:
            if path.is_file() and not path.is_symlink() and "__pycache__" not in path.parts:
                yield path


def prepare(tool: ToolFacts, checkout: Path = CHECKOUT) -> Path:
    """Make the folder of these facts, where it is not there already, and return it.

    Raises DataError when the checkout changed since, ConfigurationError when the environment that runs this lacks a
    locked dependency or has another version of it.
    """
    if tool.folder.is_dir():
        return tool.folder
    tool.folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=tool.folder.parent, prefix="making-") as work:
        made = Path(work) / "context"
        for file in files(checkout):
            _copy(file, made / file.relative_to(checkout))
        if facts(made).digest != tool.digest:
            raise DataError(f"{checkout} changed while its image was prepared", hint="run this again")
        for name, version in _locked(checkout / LOCK):
            _copy_distribution(name, version, made / SITE)
        _settle(made)
        try:
            made.rename(tool.folder)
        except OSError:
            if not tool.folder.is_dir():  # else another process was first, with the same content
                raise
    _remove_old(tool.folder.parent, keep=tool.folder)
    return tool.folder


def _locked(lock: Path) -> Iterator[tuple[str, str]]:
    """Yield the names and versions of the lock that are for this system."""
    from packaging.markers import Marker

    for name, version, condition in _PINNED.findall(lock.read_text(encoding="utf-8")):
        if not condition or Marker(condition.removeprefix(" ; ")).evaluate():
            yield name, version


def _copy_distribution(name: str, version: str, target: Path) -> None:
    try:
        found = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        found = None
    if found is None or found.version != version:
        have = f"has {name} {found.version}" if found else f"lacks {name}"
        raise ConfigurationError(
            f"this tool's environment {have}, and its image needs {name} {version}",
            hint="run scripts/bootstrap.py, and this again with .venv/bin/invoke",
        )
    for file in found.files or ():
        place = PurePosixPath(file)
        if ".." in place.parts or place.is_absolute() or place.suffix in _COMPILED or place.name in _NOT_CARRIED:
            continue
        _copy(Path(str(found.locate_file(file))), target / place)


def _copy(file: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, target)
    target.chmod(0o755 if file.stat().st_mode & _EXECUTABLE else 0o644)


def _settle(folder: Path) -> None:
    """Give the folders plain rights too, so that the image does not depend on this user's umask."""
    for path in (folder, *folder.rglob("*")):
        if path.is_dir():
            path.chmod(0o755)


def _remove_old(parent: Path, *, keep: Path) -> None:
    """Remove what was made for earlier states of this checkout, unless another process may still be reading it."""
    for folder in parent.iterdir():
        if folder != keep and time.time() - folder.stat().st_mtime > _STALE:
            shutil.rmtree(folder, ignore_errors=True)
