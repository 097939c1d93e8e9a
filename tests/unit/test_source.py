"""Source resolution and git facts, on real repositories."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tasks.support.errors import ConfigurationError, DataError, MissingInputError, OmniError, UsageError
from tasks.support.settings import CHECKOUT, Settings, load
from tasks.support.source import (
    Ancestry,
    ancestry,
    commit_of,
    commit_time,
    has_git,
    is_dirty,
    library_python,
    named_commit,
    resolve_source,
)

UNKNOWN_COMMIT = "0123456789" * 4


@pytest.fixture(autouse=True)
def _plain_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "gitconfig"
    config.write_text(
        '[user]\nname = T\nemail = t@example.invalid\n[init]\ndefaultBranch = main\n[protocol "file"]\nallow = always\n'
    )
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    for name in list(os.environ):
        if name.startswith("GIT_") and not name.startswith("GIT_CONFIG"):
            monkeypatch.delenv(name)


def git(folder: Path, *words: str | Path, **environment: str) -> str:
    done = subprocess.run(
        ["git", *words], cwd=folder, env={**os.environ, **environment}, capture_output=True, check=True, text=True
    )
    return done.stdout.strip()


def repository(folder: Path) -> Path:
    folder.mkdir(parents=True)
    git(folder, "init", "-q")
    return folder


def commit(folder: Path, name: str, date: str = "2026-01-02T03:04:05+0200") -> str:
    (folder / name).write_text(name)
    git(folder, "add", "--", name)
    git(folder, "commit", "-qm", name, GIT_COMMITTER_DATE=date)
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = repository(tmp_path / "source")
    commit(folder, "first")
    return folder


def settings(**environment: str) -> Settings:
    return load(environment=environment)


# Commits and their times


@pytest.mark.parametrize("name", ["plain", "with space", "line\nbreak", "quote'\"", "-dash", "ünï", "trailing "])
def test_commit_and_time_whatever_the_folder_is_called(tmp_path: Path, name: str) -> None:
    folder = repository(tmp_path / "names" / name)
    head = commit(folder, "file")
    (folder / "vllm_omni").mkdir()
    assert commit_of(folder) == head
    assert commit_time(folder, head) == datetime(2026, 1, 2, 1, 4, 5, tzinfo=UTC)
    assert resolve_source(settings(), folder / "vllm_omni") == folder


@pytest.mark.parametrize("date", ["1970-01-01T00:00:01Z", "2040-12-31T23:59:59-1200", "2026-06-01T00:00:00+1400"])
def test_commit_times_are_utc(tmp_path: Path, date: str) -> None:
    folder = repository(tmp_path / "r")
    head = commit(folder, "file", date)
    assert commit_time(folder, head) == datetime.fromisoformat(date)
    assert commit_time(folder, head).tzinfo is UTC


def test_a_message_that_looks_like_a_header_is_not_read_as_one(source: Path) -> None:
    git(
        source,
        "commit",
        "-qm",
        "x\n\ncommitter X <x> 1 +0000",
        "--allow-empty",
        GIT_COMMITTER_DATE="2026-01-02T00:00:00Z",
    )
    assert commit_time(source, commit_of(source)) == datetime(2026, 1, 2, tzinfo=UTC)


def test_an_absurd_commit_time_is_bad_data(source: Path) -> None:
    raw = git(source, "cat-file", "commit", "HEAD").replace("1767315845", "9" * 18)
    made = subprocess.run(
        ["git", "hash-object", "-w", "-t", "commit", "--literally", "--stdin"],
        cwd=source,
        input=raw.encode() + b"\n",
        capture_output=True,
        check=True,
    )
    with pytest.raises(DataError, match="no usable commit time"):
        commit_time(source, made.stdout.decode().strip())


def test_detached_heads_worktrees_and_submodules_have_their_own_commits(source: Path, tmp_path: Path) -> None:
    first, second = commit_of(source), commit(source, "second")
    git(source, "worktree", "add", "-q", "--detach", tmp_path / "tree", first)
    assert (commit_of(tmp_path / "tree"), commit_of(source)) == (first, second)
    outer = repository(tmp_path / "outer")
    git(outer, "submodule", "--quiet", "add", source, "inner")
    git(outer, "commit", "-qm", "sub")
    assert commit_of(outer / "inner") == second
    assert commit_of(outer) != second
    assert ancestry(tmp_path / "tree", first, second) is Ancestry.ANCESTOR


def test_without_a_commit_or_without_git_there_is_none(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    with pytest.raises(MissingInputError, match="has no commit yet"):
        commit_of(repository(tmp_path / "unborn"))
    with pytest.raises(MissingInputError, match="not a git checkout"):
        commit_of(tmp_path / "plain")
    with pytest.raises(MissingInputError, match="does not exist"):
        commit_of(tmp_path / "nowhere")


def test_an_unpacked_archive_in_somebody_elses_checkout_has_no_git(source: Path) -> None:
    (source / ".gitignore").write_text("dist/\n")
    for folder in ("dist/sdist", "untracked"):
        (source / folder).mkdir(parents=True)
        (source / folder / "setup.py").touch()
        assert not has_git(source / folder)
        with pytest.raises(MissingInputError):
            commit_of(source / folder)
    (source / "part").mkdir()
    commit(source, "part/file")
    assert commit_of(source / "part") == commit_of(source)


def test_a_missing_commit_has_no_time(source: Path) -> None:
    with pytest.raises(MissingInputError, match=f"does not hold commit {UNKNOWN_COMMIT}"):
        commit_time(source, UNKNOWN_COMMIT)
    with pytest.raises(UsageError):
        commit_time(source, "--help")


def test_a_broken_checkout_is_bad_data(source: Path) -> None:
    (source / ".git" / "config").write_text("[broken")
    with pytest.raises(DataError, match="git cannot read"):
        commit_of(source)


# Nothing around us misleads git


def test_a_surrounding_hook_misleads_nothing(source: Path, tmp_path: Path) -> None:
    head = commit_of(source)
    commit(repository(tmp_path / "other"), "elsewhere")
    tree = tmp_path / "tree"  # in a linked worktree git gives its hooks GIT_DIR, with -a a GIT_INDEX_FILE of its own
    git(tmp_path / "other", "worktree", "add", "-q", tree)
    asking = tmp_path / "asking.py"
    asking.write_text(
        "import sys; from pathlib import Path; from tasks.support.source import *\n"
        "s = Path(sys.argv[1]); print(commit_of(s), is_dirty(s), commit_time(s, commit_of(s)).year)"
    )
    hook = tmp_path / "other" / ".git" / "hooks" / "pre-commit"
    hook.write_text(f"#!/bin/sh\nenv > {tmp_path}/env\nexec '{sys.executable}' {asking} '{source}' > {tmp_path}/said\n")
    hook.chmod(0o755)
    (tree / "elsewhere").write_text("changed")
    git(tree, "commit", "-qam", "hooked", PYTHONPATH=str(CHECKOUT))
    assert "\nGIT_DIR=" in (tmp_path / "env").read_text()
    assert (tmp_path / "said").read_text() == f"{head} False 2026\n"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("GIT_DIR", "{}/.git"),
        ("GIT_WORK_TREE", "{}"),
        ("GIT_INDEX_FILE", "{}/.git/index"),
        ("GIT_OBJECT_DIRECTORY", "{}/.git/objects"),
        ("GIT_COMMON_DIR", "{}/.git"),
    ],
)
def test_no_variable_points_git_elsewhere(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    head = commit_of(source)
    other = repository(tmp_path / "other")
    commit(other, "elsewhere")
    monkeypatch.setenv(name, value.format(other))
    assert (commit_of(source), is_dirty(source), has_git(source)) == (head, False, True)
    assert commit_time(source, head).year == 2026


def test_configuration_of_user_and_repository_misleads_nothing(source: Path, tmp_path: Path) -> None:
    head = commit_of(source)
    ran = tmp_path / "ran"
    program = tmp_path / "program"
    program.write_text(f'#!/bin/sh\necho "$0 $@" >> {ran}\n')
    program.chmod(0o755)
    for key in ("core.fsmonitor", "core.pager", "diff.external"):
        git(source, "config", key, str(program))
    for key, value in (("status.showUntrackedFiles", "no"), ("color.ui", "always"), ("log.showSignature", "true")):
        git(source, "config", key, value)
    assert not is_dirty(source)
    (source / "untracked").touch()
    assert is_dirty(source)
    assert (commit_of(source), commit_time(source, head).year) == (head, 2026)
    assert not ran.exists()


def test_looking_writes_nothing(source: Path) -> None:
    index = source / ".git" / "index"
    os.utime(source / "first", (1, 1))  # git would like to refresh its index now
    before = index.read_bytes()
    assert not is_dirty(source)
    assert index.read_bytes() == before


def _leads_nowhere(source: Path) -> None:
    shutil.rmtree(source / ".git")
    (source / ".git").write_text("gitdir: /nowhere/.git/worktrees/x\n")


def _is_a_dead_link(source: Path) -> None:
    shutil.rmtree(source / ".git")
    (source / ".git").symlink_to("/nowhere/.git")


def _is_a_junk_file(source: Path) -> None:
    shutil.rmtree(source / ".git")
    (source / ".git").write_bytes(b"\0\xff")


def _has_a_junk_head(source: Path) -> None:
    (source / ".git" / "HEAD").write_bytes(b"\0junk")


def _has_no_head(source: Path) -> None:
    (source / ".git" / "HEAD").unlink()


def _has_no_objects(source: Path) -> None:
    shutil.rmtree(source / ".git" / "objects")


@pytest.mark.parametrize(
    "damage", [_leads_nowhere, _is_a_dead_link, _is_a_junk_file, _has_a_junk_head, _has_no_head, _has_no_objects]
)
def test_a_repository_that_git_cannot_find_does_not_pass_for_none(source: Path, damage: Callable[[Path], None]) -> None:
    head = commit_of(source)
    damage(source)
    (source / "below").mkdir()
    for ask in (has_git, commit_of, is_dirty, lambda path: commit_time(path, head)):
        for folder in (source, source / "below"):
            with pytest.raises((ConfigurationError, DataError), match=re.escape(str(source))):
                ask(folder)


def test_an_empty_folder_of_that_name_is_no_repository(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    assert not has_git(tmp_path)


def test_another_owner_is_told_in_one_sentence(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    for ask in (commit_of, is_dirty, has_git):
        with pytest.raises(ConfigurationError, match="belongs to another user") as refused:
            ask(source)
        assert refused.value.hint == f"run: git config --global --add safe.directory {source}"


def test_without_git_the_program_is_named(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ConfigurationError, match="git is not installed"):
        commit_of(source)


# Dirty or not


@pytest.mark.parametrize(
    ("change", "dirty"),
    [
        ("", False),
        ("touch first", False),
        ("touch ignored.txt", False),
        ("mkdir empty", False),
        ("touch untracked", True),
        ("mkdir d && touch d/untracked", True),
        ("echo x > first", True),
        ("rm first", True),
        ("chmod +x first", True),
        ("git mv first second", True),
        ("echo x > first && git add first", True),
        ("touch 'odd\nname'", True),
        ("echo x > sub/first", True),
        ("touch sub/untracked", True),
        ("git -C sub commit -q --allow-empty -m more", True),
    ],
)
def test_dirty(tmp_path: Path, change: str, dirty: bool) -> None:
    inner = repository(tmp_path / "inner")
    commit(inner, "first")
    folder = repository(tmp_path / "source")
    commit(folder, "first")
    (folder / ".gitignore").write_text("*.txt\n")
    git(folder, "submodule", "--quiet", "add", inner, "sub")
    git(folder, "config", "-f", ".gitmodules", "submodule.sub.ignore", "all")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "all")
    subprocess.run(["sh", "-c", change], cwd=folder, check=True)
    assert is_dirty(folder) is dirty


# Ancestry


@pytest.fixture
def history(source: Path) -> dict[str, str]:
    """Make a - b - c on main and a - d beside it."""
    a = commit_of(source)
    b, c = commit(source, "b"), commit(source, "c")
    git(source, "checkout", "-q", "-b", "side", a)
    d = commit(source, "d")
    git(source, "checkout", "-q", "main")
    return {"a": a, "b": b, "c": c, "d": d, "unknown": UNKNOWN_COMMIT}


RELATIONS = [
    ("a", "c", Ancestry.ANCESTOR),
    ("c", "a", Ancestry.DESCENDANT),
    ("b", "b", Ancestry.ANCESTOR),
    ("b", "d", Ancestry.DIVERGED),
    ("a", "unknown", Ancestry.UNKNOWN),
    ("unknown", "a", Ancestry.UNKNOWN),
]


@pytest.mark.parametrize(("older", "newer", "relation"), RELATIONS)
def test_ancestry(source: Path, history: dict[str, str], older: str, newer: str, relation: Ancestry) -> None:
    assert ancestry(source, history[older], history[newer]) is relation


def test_replacements_do_not_rewrite_ancestry(source: Path, history: dict[str, str]) -> None:
    git(source, "replace", "--graft", history["d"], history["c"])
    assert ancestry(source, history["c"], history["d"]) is Ancestry.DIVERGED


def test_a_shallow_clone_proves_only_what_it_holds(source: Path, history: dict[str, str], tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", "--depth=2", "--no-single-branch", source.as_uri(), clone)
    assert ancestry(clone, history["b"], history["c"]) is Ancestry.ANCESTOR
    assert ancestry(clone, history["c"], history["b"]) is Ancestry.DESCENDANT
    git(tmp_path, "clone", "-q", "--depth=1", "--no-single-branch", source.as_uri(), tmp_path / "one")
    assert ancestry(tmp_path / "one", history["d"], history["c"]) is Ancestry.UNKNOWN
    assert ancestry(tmp_path / "one", history["b"], history["c"]) is Ancestry.UNKNOWN


def test_ancestry_without_git_is_unknown(tmp_path: Path) -> None:
    assert ancestry(tmp_path, UNKNOWN_COMMIT, UNKNOWN_COMMIT) is Ancestry.UNKNOWN


def test_a_blob_is_no_commit(source: Path, history: dict[str, str]) -> None:
    assert ancestry(source, git(source, "rev-parse", "HEAD:first"), history["a"]) is Ancestry.UNKNOWN


# Which commit


def test_the_flag_wins_over_the_build(source: Path) -> None:
    flag, build = "a" * 40, "b" * 40
    for where in (source, None):
        assert named_commit(settings(BUILDKITE_COMMIT=build), flag, where) == (flag, "--commit")
        assert named_commit(settings(BUILDKITE_COMMIT=build), None, where) == (build, "BUILDKITE_COMMIT")
        for environment in ({}, {"BUILDKITE_COMMIT": ""}, {"BUILDKITE_COMMIT": "HEAD"}):
            assert named_commit(settings(**environment), None, where) is None


@pytest.mark.parametrize("from_flag", [True, False])
@pytest.mark.parametrize(
    "value",
    [
        "abc",
        "-x",
        "--help",
        "main",
        " ",
        "a" * 39,
        "a" * 41,
        "a" * 64,
        "A" * 40,
        "g" * 40,
        "a" * 40 + "\n",
        "é" * 40,
        "٣" * 40,
    ],
)
def test_what_is_not_a_full_hash_is_refused_and_named(source: Path, value: str, from_flag: bool) -> None:
    chosen = settings() if from_flag else settings(BUILDKITE_COMMIT=value)
    for where in (source, None):
        with pytest.raises(UsageError) as refused:
            named_commit(chosen, value if from_flag else None, where)
        assert repr(value) in refused.value.message
        assert ("--commit" if from_flag else "BUILDKITE_COMMIT") in refused.value.message


def test_an_empty_flag_is_refused(source: Path) -> None:
    with pytest.raises(UsageError):
        named_commit(settings(), "", source)


def test_the_hint_has_the_full_hash_that_the_source_knows(source: Path) -> None:
    head = commit_of(source)
    git(source, "tag", "-a", "-m", "x", "v1")
    for value in (head[:8], head.upper(), "main", "HEAD", "v1"):
        with pytest.raises(UsageError) as refused:
            named_commit(settings(), value, source)
        assert refused.value.hint == f"pass the full one: {head}"


# Where the source is


def test_a_given_source_wins_and_need_not_be_the_library(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    assert resolve_source(load(source="mine", environment={}), tmp_path) == tmp_path / "mine"
    assert resolve_source(settings(OMNI_CI_SOURCE=str(tmp_path)), Path("/")) == tmp_path
    with pytest.raises(MissingInputError, match="nowhere"):
        resolve_source(load(source="nowhere", environment={}), tmp_path)


def test_around_the_folder_then_beside_the_tool_then_an_error(tmp_path: Path, source: Path) -> None:
    checkout, sibling = tmp_path / "work" / "tool", tmp_path / "work" / "vllm-omni"
    checkout.mkdir(parents=True)
    with pytest.raises(MissingInputError) as missing:
        resolve_source(settings(), source, checkout=checkout)
    for tried in ("--source", "OMNI_CI_SOURCE", str(source), str(sibling)):
        assert tried in missing.value.message
    assert missing.value.exit_code == 66
    (sibling / "vllm_omni").mkdir(parents=True)
    assert resolve_source(settings(), source, checkout=checkout) == sibling
    (source / "vllm_omni" / "deep").mkdir(parents=True)
    assert resolve_source(settings(), source / "vllm_omni" / "deep", checkout=checkout) == source


def test_a_sibling_without_the_package_is_not_the_source(tmp_path: Path) -> None:
    (tmp_path / "vllm-omni").mkdir()
    with pytest.raises(MissingInputError):
        resolve_source(settings(), tmp_path, checkout=tmp_path / "tool")


def test_the_sibling_is_found_without_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    (tmp_path / "vllm-omni" / "vllm_omni").mkdir(parents=True)
    assert resolve_source(settings(), tmp_path, checkout=tmp_path / "tool") == tmp_path / "vllm-omni"


# The library's python


def test_the_librarys_python_is_the_given_one_or_the_first_outside_our_venv(tmp_path: Path) -> None:
    outside = tmp_path / "bin" / "python3"
    outside.parent.mkdir()
    outside.symlink_to(shutil.which("sh") or "/bin/sh")
    ours = str(Path(sys.prefix) / "bin")
    assert library_python(settings(PATH=f"{ours}:/nowhere::{outside.parent}")) == outside
    assert library_python(settings(PATH="/nowhere")) is None
    chosen = load(python=sys.executable, environment={"PATH": str(outside.parent)})
    assert library_python(chosen) == Path(sys.executable)
    assert library_python(load(python="python3", environment={"PATH": str(outside.parent)})) == outside
    with pytest.raises(OmniError, match="no such python: python9"):
        library_python(settings(OMNI_CI_PYTHON="python9", PATH="/nowhere"))


@pytest.mark.skipif(sys.prefix == sys.base_prefix, reason="these tests run outside a venv")
def test_a_venv_of_ours_alone_has_no_library_python() -> None:
    assert library_python(settings(PATH=str(Path(sys.prefix) / "bin"))) is None
