"""What tests of change sets share: the builds that they ask for, and how they read an answer."""

from __future__ import annotations

from pathlib import Path

from tasks.pipelines.build_facts import Build
from tasks.pipelines.changes import ChangeSet, State
from tests.git_scenes import Repository


def first_commit(folder: Path) -> Repository:
    """Make a repository with one commit."""
    made = Repository.new(folder)
    made.commit({"pkg/a.py": "a = 1\n", "docs/a.md": "words\n"}, "first")
    return made


def pull_request(commit: str, base: str = "main") -> Build:
    return Build(on_buildkite=True, branch="topic", commit=commit, pull_request=7, base_branch=base)


def main_build(commit: str) -> Build:
    return Build(on_buildkite=True, branch="main", commit=commit)


def changed(found: ChangeSet) -> dict[str, str]:
    assert found.state is (State.KNOWN if found.files else State.EMPTY), found.how
    return {file.path: file.status for file in found.files}


def unknown(found: ChangeSet) -> str:
    assert (found.state, found.files, found.base) == (State.UNKNOWN, (), None)
    assert found.how.startswith("not known: ")
    assert "\n" not in found.how
    return found.how


def everything_but_origin(repository: Repository) -> object:
    """Return all of a repository that a look may not change."""
    refs = [line for line in repository.git("for-each-ref").splitlines() if "refs/remotes/origin/" not in line]
    folder = repository.path / ".git"
    tree = sorted(
        str(file.relative_to(repository.path)) for file in repository.path.rglob("*") if folder not in file.parents
    )
    files = {
        name: (folder / name).read_bytes()
        for name in ("HEAD", "index", "config", "FETCH_HEAD")
        if (folder / name).exists()
    }
    return refs, tree, files
