"""Makes the throw-away copy of a source that a build may write into, the same one each time."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path

from tasks.support.errors import DataError, MissingInputError
from tasks.support.source import git

_GIT_LINK = b"160000"
# Results of earlier work in a folder without git: setuptools would pack what it finds in build/.
_LEFTOVERS = ("build", "dist")
_CACHES = ("__pycache__", ".git")


class CopyKind(Enum):
    """What a copy is made of."""

    COMMIT = "the commit's files"
    WORKING_TREE = "the files as they lie there, uncommitted changes included"
    FOLDER = "the folder's files"


def make_copy(source: Path, kind: CopyKind, commit: str, target: Path, epoch: int) -> Path:
    """Copy a source to ``target``, which must not exist, and return the folder in it to build in.

    All times are set to ``epoch`` and all modes to 644 or 755, so that archives made of the copy do not
    depend on when and by whom it was made. Of a git source the copy is a checkout, with its tags; it
    borrows the source's objects and runs no hook.
    """
    try:
        target.mkdir(parents=True)
        if kind is CopyKind.FOLDER:
            shutil.copytree(source, target, symlinks=True, ignore=_left_out(source), dirs_exist_ok=True)
            folder = target
        else:
            top = _path(source, "--show-toplevel")
            _check_out(top, commit, target)
            if kind is CopyKind.WORKING_TREE:
                _overlay(top, target)
            folder = target / source.resolve().relative_to(top.resolve())
        _settle(target, epoch)
    except (OSError, shutil.Error) as error:
        raise DataError(
            f"cannot copy {source}: {_reason(error)}", hint="repair the source, or free some space"
        ) from error
    return folder


def newest_time(folder: Path) -> int:
    """Return the modification time of a folder's newest file, in whole seconds since 1970; 0 when it has no file."""
    left_out = _left_out(folder)
    newest = 0
    for parent, folders, files in os.walk(folder):
        gone = left_out(parent, [*folders, *files])
        folders[:] = [name for name in folders if name not in gone]
        times = (int((Path(parent) / name).lstat().st_mtime) for name in files if name not in gone)
        newest = max(newest, *times, 0)
    return newest


def _left_out(source: Path) -> Callable[[str, list[str]], set[str]]:
    top = os.fspath(source)

    def ignore(folder: str, names: list[str]) -> set[str]:
        return {name for name in names if name in _CACHES or (folder == top and name in _LEFTOVERS)}

    return ignore


def _check_out(top: Path, commit: str, target: Path) -> None:
    """Check a commit out into ``target`` as ``git clone`` would, but from objects that stay where they are.

    A clone does not do: it leaves out a commit that no branch leads to, and copies a shallow source.
    """
    object_format = git(top, "rev-parse", "--show-object-format").text.strip()
    git(target, "init", "--quiet", "--template=", f"--object-format={object_format}")
    for key, value in (("core.hooksPath", os.devnull), ("core.autocrlf", "false"), ("gc.auto", "0")):
        git(target, "config", key, value)
    info = target / ".git" / "objects" / "info"
    info.mkdir(exist_ok=True)
    (info / "alternates").write_bytes(os.fsencode(_path(top, "--git-path", "objects")) + b"\n")
    shallow = _path(top, "--git-path", "shallow")
    if shallow.exists():
        shutil.copyfile(shallow, target / ".git" / "shallow")
    tags = git(top, "for-each-ref", "--format=create %(refname) %(objectname)", "refs/tags").stdout
    if tags:
        git(target, "update-ref", "--stdin", stdin=tags)
    git(target, "checkout", "--quiet", "--detach", commit)
    for name, linked in _submodules(target):
        if not (top / name / ".git").exists():
            raise MissingInputError(
                f"the submodule {name} of {top} is not checked out", hint="run: git submodule update --init --recursive"
            )
        _check_out(top / name, linked, target / name)


def _submodules(checkout: Path) -> Iterator[tuple[str, str]]:
    for line in git(checkout, "ls-files", "--stage", "-z").stdout.split(b"\0"):
        facts, _, name = line.partition(b"\t")
        if facts.startswith(_GIT_LINK):
            yield os.fsdecode(name), facts.split()[1].decode()


def _overlay(top: Path, target: Path) -> None:
    """Make the copy's files those of the working tree: tracked ones, and untracked ones that are not ignored."""
    names = _names(top, "--cached", "--others", "--exclude-standard")
    gone = _names(target, "--cached") - names if (target / ".git").exists() else set()
    for name in (*gone, *sorted(names)):
        ours, theirs = target / name, top / name
        if (theirs / ".git").exists():  # a submodule, or a repository that somebody put there
            ours.mkdir(parents=True, exist_ok=True)
            _overlay(theirs, ours)
            continue
        if ours.is_symlink() or ours.is_file():
            ours.unlink()
        elif ours.is_dir() and not theirs.is_dir():
            shutil.rmtree(ours)
        if name in names and (theirs.is_symlink() or theirs.is_file()):
            ours.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(theirs, ours, follow_symlinks=False)


def _names(checkout: Path, *options: str) -> set[str]:
    listed = git(checkout, "ls-files", "-z", *options).stdout
    return {os.fsdecode(name) for name in listed.split(b"\0") if name}


def _path(source: Path, *question: str) -> Path:
    answer = git(source, "rev-parse", "--path-format=absolute", *question).stdout
    return Path(os.fsdecode(answer.removesuffix(b"\n")))


def _settle(top: Path, epoch: int) -> None:
    for parent, folders, files in os.walk(top, topdown=False):
        if ".git" in Path(parent).relative_to(top).parts:
            continue
        for path in (Path(parent) / name for name in (*files, *folders) if name != ".git"):
            if not path.is_symlink():
                path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
            os.utime(path, (epoch, epoch), follow_symlinks=False)


def _reason(error: OSError) -> str:
    """Return one line, also for the list of failures that copytree collects."""
    if isinstance(error, shutil.Error) and error.args and isinstance(error.args[0], list) and error.args[0]:
        failed, _, why = error.args[0][0]
        return f"{failed}: {why}"
    return str(error)
