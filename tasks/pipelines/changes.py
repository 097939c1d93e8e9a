"""The files that a commit changes, as git and the build tell it; what git cannot answer is unknown, and never empty.

Every name is below the source. A rename is a deletion and an addition, a submodule is a file.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from tasks.pipelines.build_facts import Build
from tasks.support.command_line import last_useful_line
from tasks.support.errors import DataError, MissingInputError, OmniError, UsageError
from tasks.support.redaction import redact
from tasks.support.source import dirty_names, git, has_git

DEEPEN = 1000  # commits that a shallow checkout is deepened by, once
_EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"  # git knows it in every repository
_PLAIN_BRANCH = re.compile(r"[A-Za-z0-9]+(?:[-_/][A-Za-z0-9]+)*")
_HASH = re.compile(r"[0-9a-f]{40}")
_PARENT = re.compile(rb"^parent ([0-9a-f]{40})$", re.MULTILINE)
_FETCH = ("fetch", "--quiet", "--no-tags", "--no-recurse-submodules", "--no-auto-gc", "--no-prune")
_DIFF = ("diff-tree", "-r", "-z", "--name-status", "--no-renames", "--relative", "--ignore-submodules=none")


class State(Enum):
    """How much is known of a change."""

    KNOWN = "known"
    EMPTY = "empty"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class ChangedFile:
    """A changed file; ``status`` is git's letter: A added, D deleted, M modified, T of another type now."""

    path: str
    status: str


@dataclass(frozen=True)
class ChangeSet:
    """What a commit changes. ``how`` says against what, or why that is not known; ``notice`` what was left out.

    ``base`` is the commit that ``commit`` was compared with: None when nothing is known, and for a first commit. Names
    that are not UTF-8 hold surrogates, as Python's own file names do.
    """

    state: State
    files: tuple[ChangedFile, ...]
    base: str | None
    commit: str | None
    how: str
    notice: str | None = None

    @property
    def paths(self) -> tuple[str, ...]:
        """Return the names of the changed files, in git's order."""
        return tuple(file.path for file in self.files)


class _UnknownError(Exception):
    """Git cannot answer; the text says why."""


def change_set(
    source: Path,
    build: Build,
    *,
    base: str | None = None,
    commit: str | None = None,
    record: Sequence[str] | None = None,
    notice: bool = True,
) -> ChangeSet:
    """Return what a commit changes: ``commit``, else the build's, else HEAD of the source; uncommitted changes are not.

    It is compared with its merge base with ``base``, the merge queue's base commit or the base branch; on main with
    its newest ancestor in ``record`` (uploaded commits), else its first parent. Off main the base is the default
    branch; a commit that is already there, as any other one of its history, is compared with its first parent.

    In a Buildkite build the base branch is fetched first, elsewhere only when it is missing; a shallow checkout is
    deepened. Each is fetched once, and nothing moves but ``refs/remotes/origin/<base>``. ``notice`` asks git what is
    not committed, where a person may want to know. Raises UsageError and
    MissingInputError for a ``base`` or ``commit`` that names nothing; all else that git cannot answer is UNKNOWN.
    """
    for flag, value in (("--base", base), ("--commit", commit)):
        if value is not None and not _may_be_revision(value):
            raise UsageError(f"{flag} names no commit: {value!r}", hint="pass a branch, a tag or a commit's hash")
    subject: str | None = None
    try:
        if not has_git(source):
            raise _no_git(source, asked=base or commit)
        look = _History(source, on_buildkite=build.on_buildkite)
        wanted, branch = commit or build.commit or "HEAD", build.base_branch or build.default_branch
        look.look_up(wanted, f"{wanted}^", _tracking(branch), f"refs/heads/{branch}")
        subject = _subject(look, build, commit)
        past = commit is not None and subject != build.commit
        older, how = _base(look, build, subject, given=base, past=past, record=record)
        files = _differences(source, older or _EMPTY_TREE, subject)
    except _UnknownError as error:
        return ChangeSet(State.UNKNOWN, (), None, subject, f"not known: {error}")
    except (MissingInputError, UsageError):
        raise
    except OmniError as error:
        return ChangeSet(State.UNKNOWN, (), None, subject, f"not known: {error.message}")
    found = ChangeSet(State.KNOWN if files else State.EMPTY, files, older, subject, how)
    return replace(found, notice=_notice(source)) if notice and not commit and not build.on_buildkite else found


def base_tip(source: Path, build: Build) -> str:
    """Return the commit that the build's base branch is at: a fork's build reads what it must not decide from there.

    It is fetched as ``change_set`` does; where that fails the last fetched one is returned, which is trusted too.
    Raises MissingInputError when there is none.
    """
    try:
        if not has_git(source):
            raise _no_git(source, asked=None)
        look = _History(source, on_buildkite=build.on_buildkite)
        return _branch(look, build.base_branch or build.default_branch, look.resolve(build.commit or "HEAD"))[2]
    except _UnknownError as error:
        raise MissingInputError(
            f"the base branch cannot be read: {error}", hint="fetch it into that checkout"
        ) from error


def file_at(source: Path, revision: str, path: str) -> bytes | None:
    """Return a file of a revision, or None when it has no such file; of a symbolic link, the name that it points to.

    Raises MissingInputError when the revision is not at hand, DataError for a file of more than 16 MiB or whose
    content the checkout does not hold.
    """
    name = f"{_checked(revision)}:./{path}"
    found = git(source, "cat-file", "blob", name, or_no=True)
    if not found.code:
        return found.stdout
    _require(source, revision)
    kind = git(source, "ls-tree", "-z", revision, "--", f":(literal){path}" if path else ".", or_no=True)
    if kind.stdout.startswith((b"100", b"120")):
        raise DataError(f"git cannot read {path!r} of {revision} in {source}: {last_useful_line(found.stderr)}")
    return None


def files_at(source: Path, revision: str) -> list[str]:
    """Return the names of all files of a revision, submodules among them; MissingInputError when it is not at hand."""
    found = git(source, "ls-tree", "-r", "-z", "--name-only", _checked(revision), or_no=True)
    if found.code:
        _require(source, revision)
        raise DataError(f"git cannot list {revision} in {source}: {last_useful_line(found.stderr)}")
    return [name for name in found.text.split("\0") if name]


def _no_git(source: Path, *, asked: str | None) -> Exception:
    text = f"{source} is not a git checkout"
    return MissingInputError(text, hint="leave --base and --commit out") if asked else _UnknownError(text)


def _may_be_revision(value: str) -> bool:
    return bool(value) and not value.startswith("-") and value.isprintable()


def _checked(revision: str) -> str:
    if not _may_be_revision(revision) or ":" in revision:
        raise UsageError(f"not a revision: {revision!r}")
    return revision


def _require(source: Path, revision: str) -> None:
    if _resolve(source, revision) is None:
        raise MissingInputError(f"{source} does not hold {revision}", hint="fetch it into that checkout")


def _resolve(source: Path, revision: str) -> str | None:
    if not _may_be_revision(revision):
        return None
    found = git(source, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}", or_no=True)
    return None if found.code else found.text.strip()


class _History:
    """A look at a checkout's history, which fetches what is missing."""

    def __init__(self, source: Path, *, on_buildkite: bool) -> None:
        self.source = source
        self.on_buildkite = on_buildkite
        self.trouble: str | None = None
        self._fetched: set[str | None] = set()
        self._known: dict[str, str | None] = {}  # until the next fetch

    def look_up(self, *revisions: str) -> None:
        """Ask git for several revisions at once, since most of what asking costs is starting it."""
        asked = [revision for revision in dict.fromkeys(revisions) if _may_be_revision(revision)]
        words = "".join(f"{revision}^{{commit}}\n" for revision in asked).encode("utf-8", "surrogateescape")
        answer = git(self.source, "cat-file", "--batch-check=%(objectname)", stdin=words, or_no=True)
        lines = answer.text.split("\n")[:-1]
        if answer.code or len(lines) != len(asked):
            return
        for revision, line in zip(asked, lines, strict=True):
            found = line if _HASH.fullmatch(line) else None
            self._known[revision] = found
            if found is not None:
                self._known[found] = found

    def resolve(self, revision: str) -> str | None:
        if revision not in self._known:
            self._known[revision] = _resolve(self.source, revision)
        return self._known[revision]

    def is_shallow(self) -> bool:
        return git(self.source, "rev-parse", "--is-shallow-repository").stdout.strip() != b"false"

    def merge_base(self, one: str, other: str) -> str | None:
        if one == other and _HASH.fullmatch(one):
            return one
        found = git(self.source, "merge-base", one, other, or_no=True)
        return None if found.code else found.text.split()[0]

    def first_parent(self, commit: str) -> str | None:
        """Return what the commit itself says, which is true also where a shallow checkout ends."""
        header = git(self.source, "cat-file", "commit", commit).stdout.partition(b"\n\n")[0]
        parent = _PARENT.search(header)
        return parent[1].decode() if parent else None

    def fetch(self, *, branch: str | None = None, commit: str | None = None, deepen: bool = False) -> bool:
        """Fetch a branch of origin, a commit or both; whatever comes of it, the answer is in the repository.

        Returns False when that was fetched already, or when a fetch has failed.
        """
        if self.trouble or (branch or commit) in self._fetched:
            return False
        self._fetched.add(branch or commit)
        self._known.clear()
        wanted = [f"+refs/heads/{branch}:{_tracking(branch)}"] if branch else []
        # Only what is surely on the other side: a server refuses the whole for one commit that it does not have.
        wanted += [commit] if commit and (self.on_buildkite or not branch) else []
        options = ("--refmap=", "--no-write-fetch-head", *([f"--deepen={DEEPEN}"] if deepen else []))
        if git(self.source, "remote", "get-url", "origin", or_no=True).code:
            self.trouble = "the checkout has no remote called origin"
            return True
        try:
            answer = git(self.source, *_FETCH, *options, "--", "origin", *wanted, or_no=True)
        except OmniError as error:
            self.trouble = error.message
        else:
            self.trouble = f"git fetch: {redact(last_useful_line(answer.stderr))}" if answer.code else None
        return True

    def why(self) -> str:
        """Return the trouble of the fetch as the end of a sentence."""
        return f" ({self.trouble})" if self.trouble else ""


def _tracking(branch: str) -> str:
    return f"refs/remotes/origin/{branch}"


def _subject(look: _History, build: Build, commit: str | None) -> str:
    """Return the full hash of the commit that is looked at."""
    wanted = commit or build.commit or "HEAD"
    found = look.resolve(wanted)
    if found is None and _HASH.fullmatch(wanted):
        look.fetch(commit=wanted, deepen=look.is_shallow())
        found = look.resolve(wanted)
    if found is None and commit is not None:
        raise MissingInputError(
            f"--commit names no commit of {look.source}: {commit}{look.why()}", hint="fetch it into that checkout"
        )
    if found is None and wanted == "HEAD":
        raise _UnknownError(f"{look.source} has no commit yet")
    if found is None:
        raise _UnknownError(f"the checkout does not hold commit {wanted}{look.why()}")
    return found


def _base(
    look: _History, build: Build, subject: str, *, given: str | None, past: bool, record: Sequence[str] | None
) -> tuple[str | None, str]:
    """Return the commit to compare with, None for the first commit of all, and how it was chosen."""
    if given is not None:
        return _against_given(look, subject, given)
    if not past and build.pull_request is None and build.merge_queue_base is not None:
        return _against_queue(look, subject, build.merge_queue_base)
    if not past and build.base_branch is not None:
        return _against_branch(look, subject, build.base_branch, proposed=True)
    if not past and build.is_main:
        return _against_uploaded(look, subject, record or ())
    return _against_branch(look, subject, build.default_branch, proposed=False)


def _against_given(look: _History, subject: str, given: str) -> tuple[str, str]:
    tip = look.resolve(given)
    branch = given.removeprefix("refs/remotes/").removeprefix("refs/heads/").removeprefix("origin/")
    if tip is None and _HASH.fullmatch(given):
        look.fetch(commit=given, deepen=look.is_shallow())
        tip = look.resolve(given)
    elif tip is None and _is_branch_name(look.source, branch):
        look.fetch(branch=branch, commit=subject, deepen=look.is_shallow())
        tip = look.resolve(_tracking(branch))
    if tip is None:
        raise MissingInputError(
            f"--base names no commit of {look.source}: {given}{look.why()}",
            hint="pass a branch, a tag or a commit's hash that the checkout or its origin has",
        )
    return _merge_base(look, subject, tip, given[:7] if _HASH.fullmatch(given) else given)


def _against_queue(look: _History, subject: str, base: str) -> tuple[str, str]:
    if not _HASH.fullmatch(base):
        raise _UnknownError(f"the merge queue's base is not a full commit hash: {base!r}")
    if look.resolve(base) is None:
        look.fetch(commit=base, deepen=look.is_shallow())
    if look.resolve(base) is None:
        raise _UnknownError(f"the checkout does not hold the merge queue's base {base}{look.why()}")
    return _merge_base(look, subject, base, "the merge queue's base")


def _against_branch(look: _History, subject: str, branch: str, *, proposed: bool) -> tuple[str | None, str]:
    """Compare with a branch; ``proposed`` commits are to be merged into it, others may be on it already."""
    name, revision, _ = _branch(look, branch, subject)
    found, how = _merge_base(look, subject, revision, name, branch=branch)
    if found != subject:
        return found, f"{how}{' as last fetched' if look.trouble else ''}"
    if proposed:
        raise _UnknownError(f"the commit is already part of {name}, so what it was to change cannot be told")
    return _against_parent(look, subject, f"it is on {name}")


def _branch(look: _History, branch: str, subject: str | None) -> tuple[str, str, str]:
    """Return what people call a branch of origin, its reference and its commit.

    In a build it is fetched, since a reused checkout has an old one. A laptop's own branch of that name will do.
    """
    if not _is_branch_name(look.source, branch):
        raise _UnknownError(f"git allows no branch of the name {branch!r}")
    name, revision = f"origin/{branch}", _tracking(branch)
    tip = look.resolve(revision)
    if tip is None and not look.on_buildkite:
        tip = look.resolve(f"refs/heads/{branch}")
        name, revision = (branch, f"refs/heads/{branch}") if tip else (name, revision)
    if tip is None or look.on_buildkite:
        apart = tip is None or subject is None or look.merge_base(tip, subject) in (None, subject)
        cut = apart and look.is_shallow()
        look.fetch(branch=branch, commit=subject if cut else None, deepen=cut)
        tip = look.resolve(revision)
    if tip is None:
        raise _UnknownError(f"the checkout does not hold branch {branch} of origin{look.why()}")
    return name, revision, tip


def _against_uploaded(look: _History, subject: str, record: Sequence[str]) -> tuple[str | None, str]:
    from tasks.pipelines.branch_records import uploaded_ancestor

    found = uploaded_ancestor(look.source, subject, record)
    if found is None and set(record) - {subject} and look.is_shallow():
        look.fetch(commit=subject, deepen=True)
        found = uploaded_ancestor(look.source, subject, record)
        if found is None and look.is_shallow():
            raise _UnknownError(
                f"the checkout's history ends before any commit whose pipeline was uploaded{look.why()}"
            )
    if found is not None:
        return found, f"against {found[:7]}, the newest ancestor whose pipeline was uploaded"
    why = "no ancestor's upload is on record" if record else "no upload is on record"
    return _against_parent(look, subject, why)


def _against_parent(look: _History, subject: str, why: str) -> tuple[str | None, str]:
    parent = look.first_parent(subject)
    if parent is None:
        return None, "against nothing: it is the first commit"
    if look.resolve(parent) is None and (not look.fetch(commit=subject, deepen=True) or look.resolve(parent) is None):
        raise _UnknownError(f"the checkout's history ends at {subject[:7]}{look.why()}")
    return parent, f"against its first parent {parent[:7]} ({why})"


def _merge_base(
    look: _History, subject: str, revision: str, name: str, *, branch: str | None = None
) -> tuple[str, str]:
    """Return the merge base with a revision that people call ``name``; a cut history is deepened on ``branch`` too."""
    found = look.merge_base(revision, subject)
    if found is None and look.is_shallow() and look.fetch(branch=branch, commit=subject, deepen=True):
        found = look.merge_base(revision, subject)
    if found is None:
        ends = ", and the checkout's history is cut" if look.is_shallow() else ""
        raise _UnknownError(f"no merge base with {name}{ends}{look.why()}")
    return found, f"against {name} (merge base {found[:7]})"


def _is_branch_name(source: Path, name: str) -> bool:
    """Say whether git allows it (git-check-ref-format(1)): no such name holds a colon, a star or a line break."""
    if _PLAIN_BRANCH.fullmatch(name):  # no need to ask
        return True
    return (
        bool(name) and "\0" not in name and not git(source, "check-ref-format", f"refs/heads/{name}", or_no=True).code
    )


def _differences(source: Path, older: str, newer: str) -> tuple[ChangedFile, ...]:
    words = git(source, *_DIFF, older, newer, "--").text.split("\0")
    return tuple(ChangedFile(path, status) for status, path in zip(words[::2], words[1::2], strict=False))


def _notice(source: Path) -> str | None:
    """Return what a person who edits should know: nothing uncommitted counts."""
    names: list[str] = []
    with suppress(OmniError):  # it is only a notice
        names = dirty_names(source)
    return f"uncommitted changes are not counted ({names[0]!r}{' and others' if names[1:] else ''})" if names else None
