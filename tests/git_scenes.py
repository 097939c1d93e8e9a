"""Real git repositories for tests, made in a temporary folder, whatever this machine's git configuration says.

    library = Repository.new(tmp_path / "library")
    first = library.commit({"vllm_omni/a.py": "a = 1\n", "docs/a.md": "words\n"})
    library.branch("topic")
    library.commit({"vllm_omni/a.py": None, "vllm_omni/b.py": "b = 1\n"})  # None deletes
    clone = library.clone(tmp_path / "clone", depth=1)  # its origin is ``library``

Every commit has a time of its own, one second after the last, so that no two commits are the same by accident.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest

MISSING_COMMIT = "0123456789" * 4

_SECONDS = count(1767323045)  # 2026-01-02T03:04:05Z
_CONFIGURATION = {
    "user.name": "T",
    "user.email": "t@example.invalid",
    "protocol.file.allow": "always",
    "commit.gpgSign": "false",
    "core.hooksPath": os.devnull,
    "advice.detachedHead": "false",
    "core.fsync": "none",  # no machine stops here, and a disk is slow
    "maintenance.auto": "false",
}
_OWN_CONFIGURATION = """\
[core]
\trepositoryformatversion = 0
\tfilemode = true
\tbare = false
[uploadpack]
\tallowAnySHA1InWant = true
"""
ISOLATED = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
}


def _committer() -> str:
    return f"committer T <t@example.invalid> {next(_SECONDS)} +0000"


def isolate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide this machine's git configuration from the code under test too."""
    for name, value in ISOLATED.items():
        monkeypatch.setenv(name, value)


@dataclass(frozen=True)
class Repository:
    """A repository with a working tree."""

    path: Path

    @staticmethod
    def new(folder: Path) -> Repository:
        """Make an empty repository on branch main: what ``git init`` writes, since tests make hundreds of them."""
        for name in ("objects", "refs"):
            (folder / ".git" / name).mkdir(parents=True)
        (folder / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
        (folder / ".git" / "config").write_text(_OWN_CONFIGURATION)
        return Repository(folder)

    def copy(self, folder: Path) -> Repository:
        """Copy the repository, its working tree included."""
        return Repository(Path(shutil.copytree(self.path, folder, symlinks=True)))

    def git(self, *words: str | Path, stdin: bytes | None = None) -> str:
        """Run git here and return what it prints, stripped; names that are not UTF-8 are surrogates."""
        stamp = f"{next(_SECONDS)} +0000"
        settings = {"GIT_CONFIG_COUNT": str(len(_CONFIGURATION))}
        for number, (key, value) in enumerate(_CONFIGURATION.items()):
            settings |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
        done = subprocess.run(
            ["git", *words],
            cwd=self.path,
            env={**os.environ, **ISOLATED, **settings, "GIT_AUTHOR_DATE": stamp, "GIT_COMMITTER_DATE": stamp},
            input=stdin,
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, f"git {words[0]}: {done.stderr.decode(errors='replace')}"
        return os.fsdecode(done.stdout).strip()

    @property
    def head(self) -> str:
        """Return the hash of HEAD, without a process of git where the branch's own file has it."""
        folder = self.path / ".git"
        word = (folder / "HEAD").read_text().strip() if folder.is_dir() else "ref: "
        branch = folder / word.removeprefix("ref: ")
        if branch.is_file():
            word = branch.read_text().strip()
        return self.git("rev-parse", "HEAD") if word.startswith("ref: ") else word

    def write(self, files: Mapping[str, str | bytes | None]) -> None:
        """Write files, and delete those whose content is None; nothing is committed."""
        for name, content in files.items():
            file = self.path / name
            if content is None:
                file.unlink()
                continue
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content.encode() if isinstance(content, str) else content)

    def commit(self, files: Mapping[str, str | bytes | None] | None = None, message: str = "change") -> str:
        """Write files, commit everything that changed and return the hash; without files an empty commit is made."""
        self.write(files or {})
        self.git("add", "--all")
        self.git("commit", "-q", "--allow-empty", "--no-verify", "-m", message)
        return self.head

    def move(self, old: str, new: str) -> str:
        """Rename a file, commit that and return the hash."""
        (self.path / new).parent.mkdir(parents=True, exist_ok=True)
        self.git("mv", "--", old, new)
        return self.commit(message=f"move {old}")

    def branch(self, name: str, start: str = "HEAD") -> None:
        """Make a branch and go there; a name that git's own commands would refuse is written as a reference."""
        self.git("update-ref", f"refs/heads/{name}", self.git("rev-parse", "--verify", start))
        self.git("symbolic-ref", "HEAD", f"refs/heads/{name}")
        self.git("reset", "-q", "--hard")

    def checkout(self, revision: str) -> None:
        """Go to a branch or, detached, to a commit."""
        self.git("checkout", "-q", "--force", revision, "--")

    def merge(self, *others: str) -> str:
        """Merge other branches or commits into this one, always with a merge commit, and return its hash."""
        self.git("merge", "-q", "--no-ff", "--no-edit", "-m", "merge", *others)
        return self.head

    def commit_unwritten(self, branch: str, names: Sequence[str]) -> str:
        """Commit many files on a new branch without writing one to the working tree, and return the hash."""
        lines = ["blob", "mark :1", "data 1", "x", f"commit refs/heads/{branch}", _committer(), "data 1", "m"]
        lines += [f"from {self.head}", *(f"M 644 :1 {name}" for name in names), ""]
        self.git("fast-import", "--quiet", stdin="\n".join(lines).encode())
        return self.git("rev-parse", branch)

    def grow(self, count: int) -> str:
        """Add many commits to main, each with a file ``grown/<number>`` of its own, and return the last hash."""
        lines: list[str] = []
        for number in range(count):
            lines += ["commit refs/heads/main", _committer(), "data 1", "m", *([] if number else [f"from {self.head}"])]
            lines += [f"M 644 inline grown/{number}", "data 1", "x", ""]
        self.git("fast-import", "--quiet", stdin="\n".join(lines).encode())
        return self.git("rev-parse", "main")

    def submodule(self, other: Repository, name: str) -> str:
        """Add another repository as a submodule, commit that and return the hash."""
        self.git("submodule", "--quiet", "add", "--", other.path.as_uri(), name)
        return self.commit(message=f"add {name}")

    def clone(self, folder: Path, *, depth: int | None = None, branch: str | None = None) -> Repository:
        """Clone over a file URL, as a network clone would; with ``depth`` a shallow clone of one branch."""
        words = ["clone", "-q", *([f"--depth={depth}"] if depth else []), *([f"--branch={branch}"] if branch else [])]
        self.git(*words, "--", self.path.as_uri(), folder)
        return Repository(folder)

    def agent_checkout(self, folder: Path, commit: str, *, depth: int | None = None) -> Repository:
        """Make the checkout that a Buildkite agent works on: only ``commit`` is fetched, and HEAD is detached there."""
        made = Repository.new(folder)
        made.git("remote", "add", "origin", self.path.as_uri())
        made.git("fetch", "-q", *([f"--depth={depth}"] if depth else []), "origin", commit)
        made.checkout(commit)
        return made
