"""The library's checkout that a task works on, and what git knows about it; nothing here changes the checkout."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path

from tasks.support import paths
from tasks.support.command_line import TIMED_OUT, last_useful_line
from tasks.support.errors import ConfigurationError, DataError, MissingInputError, TemporaryError, UsageError
from tasks.support.process import Captured, capture
from tasks.support.settings import CHECKOUT, Settings

PACKAGE = "vllm_omni"
SIBLING = "vllm-omni"
_GIVEN_SOURCE = "--source or OMNI_CI_SOURCE"
_GIVEN_PYTHON = "--python or OMNI_CI_PYTHON"

_COMMIT = re.compile(r"[0-9a-f]{40}")
_TIMEOUT = 120.0

# In a hook git sets these, and they would point every command at the hook's repository
# (the list of `git rev-parse --local-env-vars`, without the three that only carry configuration).
HOOK_VARIABLES = (
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_DIR",
    "GIT_GRAFT_FILE",
    "GIT_IMPLICIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_INTERNAL_SUPER_PREFIX",
    "GIT_NAMESPACE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_PREFIX",
    "GIT_QUARANTINE_PATH",
    "GIT_REPLACE_REF_BASE",
    "GIT_SHALLOW_FILE",
    "GIT_WORK_TREE",
)
_ENVIRONMENT: dict[str, str | None] = {
    **dict.fromkeys(HOOK_VARIABLES),
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "LANGUAGE": None,
    "LC_ALL": "C",
}
# A repository's own configuration may name a program as its file monitor; looking must not run it.
_GIT = ("git", "--no-pager", "--no-optional-locks", "--no-replace-objects", "-c", "core.fsmonitor=false")


class Ancestry(Enum):
    """How an older commit relates to a newer one."""

    ANCESTOR = "the older commit is an ancestor of the newer one, or the same"
    DESCENDANT = "the older commit is a descendant of the newer one"
    DIVERGED = "neither is an ancestor of the other"
    UNKNOWN = "the checkout does not hold enough history to say"


class Where(Enum):
    """How a source was found."""

    GIVEN = "given"
    AROUND = "around the current folder"
    SIBLING = "beside this tool"


@dataclass(frozen=True)
class Source:
    """The library's checkout, and how it was found."""

    path: Path
    where: Where


def resolve_source(settings: Settings, cwd: Path, *, checkout: Path = CHECKOUT) -> Path:
    """Return the path of what ``locate_source`` finds."""
    return locate_source(settings, cwd, checkout=checkout).path


def locate_source(settings: Settings, cwd: Path, *, checkout: Path = CHECKOUT) -> Source:
    """Return the library's checkout: the given one, the one around ``cwd``, or the sibling of this tool's ``checkout``.

    Raises MissingInputError naming what was tried.
    """
    if settings.source is not None:
        given = paths.absolute(cwd / paths.as_path(settings.source, _GIVEN_SOURCE))
        if not paths.is_folder(given):
            raise MissingInputError(
                f"the source is not a folder: {paths.shown(given)}", hint=f"correct {_GIVEN_SOURCE}"
            )
        return Source(given, Where.GIVEN)
    sibling = checkout.parent / SIBLING
    top = git_top(cwd)
    if top is not None and paths.is_folder(top / PACKAGE):
        return Source(top, Where.AROUND)
    if paths.is_folder(sibling / PACKAGE):
        return Source(sibling, Where.SIBLING)
    around = f"{top} (no {PACKAGE}/ in it)" if top else f"{cwd} (not in a git checkout)"
    raise MissingInputError(
        f"no source found; tried --source, OMNI_CI_SOURCE, {around} and {sibling}",
        hint="pass --source DIR, or run this inside a checkout of the library",
    )


def has_git(source: Path) -> bool:
    """Say whether git facts of this folder are the source's own.

    A folder that lies untracked in somebody else's checkout (an unpacked sdist) has none. Raises ConfigurationError
    where there was to be a repository and git finds none.
    """
    prefix = git(source, "rev-parse", "--show-prefix", or_no=True)
    if b"not a git repository" in prefix.stderr:
        _refuse_broken_git(source)
        return False
    if prefix.code:
        raise DataError(f"git cannot read {source}: {last_useful_line(prefix.stderr)}", hint="repair the checkout")
    return prefix.stdout == b"\n" or bool(git(source, "ls-files", "-z", "--", ".").stdout)


def _refuse_broken_git(source: Path) -> None:
    """Raise ConfigurationError for a ``.git`` that leads nowhere, or that holds no repository any more."""
    for folder in (source, *source.absolute().parents):
        entry = folder / ".git"
        with suppress(OSError):
            if entry.is_symlink() or entry.is_file() or any((entry / name).exists() for name in ("HEAD", "objects")):
                raise ConfigurationError(
                    f"{entry} is there, but git finds no repository through it",
                    hint="a worktree needs its repository at hand too (in a container: mount both); "
                    "repair it, or pass another --source",
                )


def commit_of(source: Path) -> str:
    """Return the full hash of the source's HEAD; MissingInputError without git or before the first commit."""
    _require_git(source)
    head = _resolve(source, "HEAD")
    if head is None:
        raise MissingInputError(f"{source} has no commit yet", hint="commit something, or pass --commit")
    return check_commit(head, f"HEAD of {source}")


def commit_time(source: Path, commit: str) -> datetime:
    """Return a commit's committer time, in UTC; MissingInputError when the source does not hold the commit."""
    _require_git(source)
    check_commit(commit, "the commit")
    found = git(source, "cat-file", "commit", commit, or_no=True)
    if found.code:
        raise MissingInputError(f"{source} does not hold commit {commit}", hint="fetch it into that checkout")
    header = found.stdout.partition(b"\n\n")[0]
    stamp = re.search(rb"^committer .*> (-?\d+) [-+]\d+$", header, re.MULTILINE)
    if stamp:
        with suppress(OverflowError, OSError, ValueError):
            return datetime.fromtimestamp(int(stamp[1]), UTC)
    raise DataError(f"commit {commit} has no usable commit time", hint="pass --commit-time")


def is_dirty(source: Path) -> bool:
    """Say whether the source differs from its HEAD: changes, untracked files that are not ignored, submodules too."""
    return bool(dirty_names(source))


def dirty_names(source: Path, *, output: Path | None = None) -> list[str]:
    """Return what makes the source differ from its HEAD, as ``is_dirty`` counts it: names below its git top.

    ``output`` is a folder that a task writes to: while it holds nothing tracked, what lies in it does not count.
    """
    _require_git(source)
    options = ("--porcelain=v1", "-z", "--no-renames", "--untracked-files=normal", "--ignore-submodules=none")
    found = git(source, "status", *options, "--", ".", *_left_out(source, output)).stdout
    return [os.fsdecode(entry[3:]) for entry in found.split(b"\0") if entry]


def _left_out(source: Path, output: Path | None) -> list[str]:
    """Return the pathspec that leaves a task's output folder out; nothing when it lies elsewhere or is tracked."""
    if output is None or source.resolve() not in output.resolve().parents:
        return []
    name = output.resolve().relative_to(source.resolve()).as_posix()
    tracked = git(source, "ls-files", "-z", "--", f":(literal){name}").stdout
    return [] if tracked else [f":(exclude,literal){name}"]


def ancestry(source: Path, older: str, newer: str) -> Ancestry:
    """Return how two commits relate, as far as the source's history shows.

    A shallow clone can prove that one commit is an ancestor of another, never that it is not.
    """
    for commit in (older, newer):
        check_commit(commit, "the commit")
    if not has_git(source) or None in (_resolve(source, older), _resolve(source, newer)):
        return Ancestry.UNKNOWN
    if _is_ancestor(source, older, newer):
        return Ancestry.ANCESTOR
    if _is_ancestor(source, newer, older):
        return Ancestry.DESCENDANT
    shallow = git(source, "rev-parse", "--is-shallow-repository").stdout.strip() != b"false"
    return Ancestry.UNKNOWN if shallow else Ancestry.DIVERGED


def named_commit(settings: Settings, flag: str | None, source: Path | None) -> tuple[str, str] | None:
    """Return the commit that ``--commit`` or BUILDKITE_COMMIT names, and which of the two; None when neither does.

    Raises UsageError as ``check_commit`` does.
    """
    if flag is not None:
        return check_commit(flag, "--commit", source), "--commit"
    build = settings.variable("BUILDKITE_COMMIT")
    if build is not None and build != "HEAD":  # a build started by hand says HEAD until its checkout
        return check_commit(build, "BUILDKITE_COMMIT", source), "BUILDKITE_COMMIT"
    return None


def check_commit(value: str, what: str, source: Path | None = None) -> str:
    """Return a full commit hash, or raise UsageError; the hint has what the source makes of the value."""
    if _COMMIT.fullmatch(value):
        return value
    full = _resolve(source, value) if source is not None and _may_be_revision(value) and has_git(source) else None
    hint = f"pass the full one: {full}" if full else "pass the full hash, as `git rev-parse HEAD` prints it"
    raise UsageError(f"{what} is not a full commit hash (40 lower-case hexadecimal digits): {value!r}", hint=hint)


def _may_be_revision(value: str) -> bool:
    return bool(value) and not value.startswith("-") and value.isprintable()


def _require_git(source: Path) -> None:
    if not has_git(source):
        raise MissingInputError(f"{source} is not a git checkout", hint="pass --commit, or use a checkout")


def git_top(folder: Path) -> Path | None:
    """Return the top of the git checkout around a folder, or None when there is none that git can read."""
    try:
        top = git(folder, "rev-parse", "--show-toplevel", or_no=True)
    except ConfigurationError:  # no git, or a checkout that git refuses: the next candidate may do
        return None
    path = top.stdout.decode("utf-8", "surrogateescape").removesuffix("\n")
    return Path(path) if not top.code and path else None


def _resolve(source: Path, revision: str) -> str | None:
    found = git(source, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}", or_no=True)
    return None if found.code else found.text.strip()


def _is_ancestor(source: Path, older: str, newer: str) -> bool:
    return git(source, "merge-base", "--is-ancestor", older, newer, or_no=True).code == 0


def git(source: Path, *arguments: str, stdin: bytes | None = None, or_no: bool = False) -> Captured:
    """Run git in a checkout; with ``or_no`` a failure is an answer too ("no", "not there"), and the caller reads it."""
    answer = capture((*_GIT, *arguments), cwd=source, env=_ENVIRONMENT, stdin=stdin, timeout=_TIMEOUT, check=False)
    if b"dubious ownership" in answer.stderr:
        raise ConfigurationError(
            f"git refuses {source}: it belongs to another user",
            hint=f"run: git config --global --add safe.directory {shlex.quote(str(source.resolve()))}",
        )
    if answer.code == TIMED_OUT:
        raise TemporaryError(f"git {arguments[0]} in {source} took more than {_TIMEOUT:.0f} s")
    if answer.code and not or_no:
        raise DataError(f"git {arguments[0]} failed in {source}: {last_useful_line(answer.stderr)}")
    return answer


def library_python(settings: Settings) -> Path | None:
    """Return the python that runs the library: ``--python``, OMNI_CI_PYTHON, or the first outside the tool's own venv.

    None when there is none; a chosen one that does not exist raises MissingInputError.
    """
    path = settings.variable("PATH") or os.defpath
    if settings.python is not None:
        found = shutil.which(str(paths.as_path(settings.python, _GIVEN_PYTHON)), path=path)
        if found is None:
            raise MissingInputError(f"no such python: {paths.shown(settings.python)}", hint=f"correct {_GIVEN_PYTHON}")
        return paths.absolute(found)
    ours = Path(sys.prefix) if sys.prefix != sys.base_prefix else None
    for folder in path.split(os.pathsep):
        found = shutil.which("python3", path=folder) if folder else None
        if found and (ours is None or paths.absolute(folder).resolve() != (ours / "bin").resolve()):
            return paths.absolute(found)
    return None
