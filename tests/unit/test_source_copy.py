"""Copies of a source: exactly what was asked for, the same each time, and the source stays as it was."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest

from tasks.support.errors import DataError, MissingInputError
from tasks.wheels.source_copy import CopyKind, make_copy, newest_time

EPOCH = 1_700_000_000
NO_COMMIT = "0" * 40


def git(folder: Path, *arguments: str) -> str:
    isolated = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null", "HOME": str(folder)}
    identity = ("-c", "user.name=Tester", "-c", "user.email=tester@example.com", "-c", "protocol.file.allow=always")
    argv = ["git", *identity, *arguments]
    return subprocess.run(
        argv, cwd=folder, env={**os.environ, **isolated}, check=True, capture_output=True, text=True
    ).stdout.strip()


def commit(folder: Path, message: str = "change") -> str:
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", message)
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    source = tmp_path / "a source"
    (source / "package").mkdir(parents=True)
    git(source, "init", "--quiet", "--initial-branch=main")
    (source / ".gitignore").write_text("ignored\n")
    (source / "package" / "module.py").write_text("one\n")
    (source / "run").write_text("#!/bin/sh\n")
    (source / "run").chmod(0o750)
    (source / "link").symlink_to("package/module.py")
    commit(source)
    git(source, "tag", "v1.0")
    return source


def files(folder: Path) -> dict[str, str]:
    found = (path for path in folder.rglob("*") if ".git" not in path.relative_to(folder).parts)
    return {
        str(path.relative_to(folder)): str(path.readlink()) if path.is_symlink() else path.read_text()
        for path in found
        if path.is_symlink() or path.is_file()
    }


def test_a_commits_copy_is_that_commit_with_its_tags(source: Path, tmp_path: Path) -> None:
    first = git(source, "rev-parse", "HEAD")
    before = files(source)
    (source / "package" / "module.py").write_text("two\n")
    (source / "later").write_text("")
    second = commit(source)
    (source / "package" / "module.py").write_text("three\n")
    (source / "untracked").write_text("")
    (source / "ignored").write_text("")
    for wanted, text in ((first, "one\n"), (second, "two\n")):
        copy = make_copy(source, CopyKind.COMMIT, wanted, tmp_path / wanted, EPOCH)
        assert (copy / "package" / "module.py").read_text() == text
        assert not (copy / "untracked").exists()
        assert not (copy / "ignored").exists()
        assert git(copy, "rev-parse", "HEAD") == wanted
        assert git(copy, "status", "--porcelain") == ""
        assert git(copy, "describe", "--tags").startswith("v1.0")
    assert files(tmp_path / first) == before
    assert (source / "package" / "module.py").read_text() == "three\n"


def test_every_time_and_mode_is_settled(source: Path, tmp_path: Path) -> None:
    head = git(source, "rev-parse", "HEAD")
    (source / "package" / "module.py").chmod(0o600)
    for kind in CopyKind:
        copy = make_copy(source, kind, head, tmp_path / kind.name, EPOCH)
        assert {path.lstat().st_mtime for path in copy.glob("*") if path.name != ".git"} == {EPOCH}
        modes = {name: stat.S_IMODE((copy / name).stat().st_mode) for name in ("run", "package", "package/module.py")}
        assert modes == {"run": 0o755, "package": 0o755, "package/module.py": 0o644}
        assert (copy / "link").is_symlink()
    assert stat.S_IMODE((source / "package" / "module.py").stat().st_mode) == 0o600


def test_a_working_trees_copy_has_its_changes(source: Path, tmp_path: Path) -> None:
    head = git(source, "rev-parse", "HEAD")
    (source / "package" / "module.py").write_text("changed\n")
    (source / "new").mkdir()
    (source / "new" / "file").write_text("new\n")
    (source / "staged").write_text("staged\n")
    git(source, "add", "staged")
    (source / "ignored").write_text("")
    (source / "run").unlink()
    git(source, "rm", "--quiet", "--cached", ".gitignore")
    (source / ".gitignore").rename(source / ".git" / "info" / "exclude")
    (source / "link").unlink()
    (source / "link").mkdir()
    (source / "link" / "inside").write_text("a folder now\n")
    (source / "a repository").mkdir()
    git(source / "a repository", "init", "--quiet")
    (source / "a repository" / "inside").write_text("its file\n")
    copy = make_copy(source, CopyKind.WORKING_TREE, head, tmp_path / "copy", EPOCH)
    assert files(copy) == {
        "package/module.py": "changed\n",
        "new/file": "new\n",
        "staged": "staged\n",
        "link/inside": "a folder now\n",
        "a repository/inside": "its file\n",
    }
    assert git(copy, "rev-parse", "HEAD") == head
    assert git(copy, "status", "--porcelain") != ""


def test_a_folders_copy_leaves_out_what_builds_leave_behind(tmp_path: Path) -> None:
    source = tmp_path / "source"
    for name in (
        "package/module.py",
        "build/lib/stale.py",
        "dist/old.whl",
        "package/__pycache__/x.pyc",
        "package/build/kept",
    ):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(name)
        os.utime(source / name, (EPOCH, EPOCH))
    os.utime(source / "build/lib/stale.py", (EPOCH + 999, EPOCH + 999))
    os.utime(source / "package/build/kept", (EPOCH + 5, EPOCH + 5))
    copy = make_copy(source, CopyKind.FOLDER, NO_COMMIT, tmp_path / "copy", EPOCH)
    assert set(files(copy)) == {"package/module.py", "package/build/kept"}
    assert newest_time(source) == EPOCH + 5
    assert newest_time(tmp_path / "nowhere") == 0


def test_a_source_may_be_a_folder_of_a_larger_checkout(source: Path, tmp_path: Path) -> None:
    copy = make_copy(source / "package", CopyKind.COMMIT, git(source, "rev-parse", "HEAD"), tmp_path / "copy", EPOCH)
    assert files(copy) == {"module.py": "one\n"}


def test_a_commit_that_no_branch_leads_to(source: Path, tmp_path: Path) -> None:
    git(source, "checkout", "--quiet", "--detach")
    (source / "package" / "module.py").write_text("detached\n")
    lost = commit(source)
    git(source, "checkout", "--quiet", "main")
    copy = make_copy(source, CopyKind.COMMIT, lost, tmp_path / "copy", EPOCH)
    assert (copy / "package" / "module.py").read_text() == "detached\n"


def test_shallow_clones_and_worktrees(source: Path, tmp_path: Path) -> None:
    (source / "package" / "module.py").write_text("two\n")
    head = commit(source)
    git(tmp_path, "clone", "--quiet", "--depth=1", source.as_uri(), "shallow")
    git(source, "worktree", "add", "--quiet", "--detach", str(tmp_path / "worktree"))
    for name in ("shallow", "worktree"):
        copy = make_copy(tmp_path / name, CopyKind.COMMIT, head, tmp_path / f"copy of {name}", EPOCH)
        assert git(copy, "rev-parse", "HEAD") == head
        assert git(copy, "rev-list", "--count", "HEAD") == ("1" if name == "shallow" else "2")
        assert git(copy, "status", "--porcelain") == ""


def test_submodules_come_along(source: Path, tmp_path: Path) -> None:
    library = tmp_path / "library"
    library.mkdir()
    git(library, "init", "--quiet", "--initial-branch=main")
    (library / "code").write_text("pinned\n")
    commit(library)
    git(source, "submodule", "--quiet", "add", str(library), "third/party")
    head = commit(source)
    (source / "third" / "party" / "code").write_text("changed\n")
    copy = make_copy(source, CopyKind.COMMIT, head, tmp_path / "copy", EPOCH)
    assert (copy / "third" / "party" / "code").read_text() == "pinned\n"
    changed = make_copy(source, CopyKind.WORKING_TREE, head, tmp_path / "changed", EPOCH)
    assert (changed / "third" / "party" / "code").read_text() == "changed\n"
    git(source, "submodule", "--quiet", "deinit", "--force", "--all")
    with pytest.raises(MissingInputError, match="third/party"):
        make_copy(source, CopyKind.COMMIT, head, tmp_path / "again", EPOCH)


def test_no_hook_of_the_source_or_the_user_runs(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    template = tmp_path / "template"
    for hooks in (source / ".git" / "hooks", template / "hooks"):
        hooks.mkdir(parents=True, exist_ok=True)
        (hooks / "post-checkout").write_text(f"#!/bin/sh\ntouch '{tmp_path}/ran'\n")
        (hooks / "post-checkout").chmod(0o755)
    (tmp_path / "gitconfig").write_text(
        f"[init]\ntemplateDir = {template}\n[core]\nhooksPath = {template}/hooks\nautocrlf = true\n"
    )
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    copy = make_copy(source, CopyKind.COMMIT, git(source, "rev-parse", "HEAD"), tmp_path / "copy", EPOCH)
    assert not (tmp_path / "ran").exists()
    assert (copy / "package" / "module.py").read_bytes() == b"one\n"


def test_what_cannot_be_copied_is_named(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    os.mkfifo(source / "pipe")
    with pytest.raises(DataError, match="pipe"):
        make_copy(source, CopyKind.FOLDER, NO_COMMIT, tmp_path / "copy", EPOCH)
