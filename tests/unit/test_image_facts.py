"""Facts of a source, and the folder that this tool's own image is made from; with real git repositories."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tasks.images import tool_context
from tasks.images.facts import gather, version_of
from tasks.support.errors import ConfigurationError, DataError, MissingInputError, UsageError
from tasks.support.settings import CHECKOUT

URL = "https://example.test/library"


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=me", "-c", "user.email=me@example.test", "-c", "init.defaultBranch=main")
    done = subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def commit(folder: Path, name: str) -> str:
    (folder / name).write_text(name)
    git(folder, "add", ".")
    git(folder, "commit", "-qm", name)
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "library"
    folder.mkdir()
    git(folder, "init", "-q")
    commit(folder, "first")
    return folder


@pytest.mark.parametrize(
    ("tag", "further", "wanted"),
    [
        ("v0.28.0", 0, "0.28.0"),
        ("0.28.0", 0, "0.28.0"),
        ("v0.28.0rc1", 0, "0.28.0rc1"),
        ("v0.28.0", 2, "0.28.1.dev2+g"),
        ("v0.28.0rc1", 1, "0.28.0rc2.dev1+g"),
        ("v0.28.0-beta-1", 0, "0.28.0-beta-1"),
        (None, 1, "0.1.dev0+g"),
        ("some-name", 0, "0.1.dev0+g"),
    ],
)
def test_a_version_is_that_of_setuptools_scm(source: Path, tag: str | None, further: int, wanted: str) -> None:
    if tag:
        git(source, "tag", tag)
    for number in range(further):
        commit(source, f"more{number}")
    head = git(source, "rev-parse", "HEAD")
    found = version_of(source, head)
    assert found.startswith(wanted)
    assert found.partition("+g")[2] == "" or head.startswith(found.partition("+g")[2])


def test_facts_are_those_of_head(source: Path) -> None:
    first = git(source, "rev-parse", "HEAD")
    git(source, "update-ref", "refs/remotes/origin/main", first)
    middle = commit(source, "middle")
    head = commit(source, "last")
    found = gather(source, URL, commit=head).source
    assert (found.commit, found.url, found.folder) == (head, URL, source)
    assert found.created.isoformat().startswith(git(source, "show", "-s", "--format=%cs"))
    assert found.ancestors == (middle, first)
    assert gather(source, URL, version="9.9").source.version == "9.9"


def test_the_first_commit_has_no_ancestors(source: Path) -> None:
    assert gather(source, URL).source.ancestors == ()


def test_an_image_never_bears_a_commit_that_it_is_not(source: Path) -> None:
    first = git(source, "rev-parse", "HEAD")
    commit(source, "second")
    with pytest.raises(UsageError, match=r"is at [0-9a-f]+, not at"):
        gather(source, URL, commit=first)
    (source / "first").write_text("changed")
    with pytest.raises(UsageError, match="has changes"):
        gather(source, URL)
    assert gather(source, URL, allow_dirty=True).source.commit == git(source, "rev-parse", "HEAD")


@pytest.mark.parametrize("allow_dirty", [False, True])
def test_what_is_pushed_is_never_dirty_and_nobody_is_told_to_allow_it(source: Path, allow_dirty: bool) -> None:
    (source / "first").write_text("changed")
    with pytest.raises(UsageError, match="has changes") as caught:
        gather(source, URL, allow_dirty=allow_dirty, push=True)
    assert caught.value.hint == "commit or remove them"


def test_a_folder_without_git_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match="not a git checkout"):
        gather(tmp_path, URL)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Make a small checkout of this tool: its own lock, and a namespace that can be listed."""
    folder = tmp_path / "tool"
    for part in ("tasks", "scripts"):
        shutil.copytree(CHECKOUT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    for part in ("noxfile.py", "pyproject.toml", "LICENSE"):
        shutil.copy(CHECKOUT / part, folder / part)
    return folder


def test_the_digest_is_of_names_bytes_and_modes_only(checkout: Path, tmp_path: Path) -> None:
    usual = tool_context.facts(checkout).digest
    other = tmp_path / "elsewhere"
    shutil.copytree(checkout, other)
    (other / "tasks" / "__pycache__").mkdir()
    (other / "tasks" / "__pycache__" / "x.pyc").write_text("x")
    (other / "README.md").write_text("not carried")
    os.utime(other / "noxfile.py", (0, 0))
    assert tool_context.facts(other).digest == usual
    changes = (
        lambda: (other / "LICENSE").write_text("x"),
        lambda: (other / "tasks" / "new.py").write_text(""),
        lambda: (other / "noxfile.py").chmod(0o755),
    )
    seen = {usual}
    for change in changes:
        change()
        seen.add(tool_context.facts(other).digest)
    assert len(seen) == 4


@pytest.mark.slow
def test_the_folder_works_on_any_python_from_any_folder(checkout: Path, tmp_path: Path) -> None:
    """What is copied into an image lists its tasks there, beside a package `tasks` that is somebody else's."""
    tool = tool_context.facts(checkout)
    made = tool_context.prepare(tool, checkout)
    assert made == tool.folder
    assert tool_context.prepare(tool, checkout) == made
    assert [path.name for path in made.parent.iterdir()] == [made.name]
    assert not [path for path in made.rglob("*") if path.suffix in {".so", ".pyc"} or path.is_symlink()]
    assert {path.stat().st_mode & 0o777 for path in made.rglob("*")} <= {0o755, 0o644}
    image = tmp_path / "opt" / "omni-ci"
    shutil.copytree(made, image)
    (tmp_path / "bin").mkdir()
    script = (
        f"import sys; sys.path.insert(0, {str(image / 'scripts')!r}); import image_tool; from pathlib import Path; "
    )
    script += f"image_tool.set_up(Path({str(image)!r}), Path({str(tmp_path / 'bin')!r}))"
    subprocess.run([sys.executable, "-I", "-c", script], check=True)
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "__init__.py").write_text("raise SystemExit('the wrong tasks')")
    answer = subprocess.run(
        [tmp_path / "bin" / "omni-ci", "--list"],
        cwd=tmp_path,
        env={"PATH": os.defpath, "PYTHONPATH": str(tmp_path), "HOME": "/nonexistent"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (answer.returncode, answer.stderr) == (0, "")
    assert "wheels.build" in answer.stdout


def test_a_dependency_of_another_version_is_not_carried(checkout: Path) -> None:
    lock = checkout / "scripts" / "locks" / "runner.txt"
    text = lock.read_text()
    assert "invoke==" in text
    lock.write_text(text.replace("invoke==", "invoke==1"))
    with pytest.raises(ConfigurationError, match="its image needs invoke 1"):
        tool_context.prepare(tool_context.facts(checkout), checkout)
    assert not list((checkout / ".omni-ci" / "tool").iterdir())


def test_a_checkout_that_changes_meanwhile_is_not_mixed(checkout: Path) -> None:
    tool = tool_context.facts(checkout)
    (checkout / "LICENSE").write_text("changed")
    with pytest.raises(DataError, match="changed while"):
        tool_context.prepare(tool, checkout)


def test_old_folders_go_and_those_in_use_stay(checkout: Path) -> None:
    folders = checkout / ".omni-ci" / "tool"
    for name in ("old", "new"):
        (folders / name).mkdir(parents=True)
    os.utime(folders / "old", (0, 0))
    made = tool_context.prepare(tool_context.facts(checkout), checkout)
    assert {path.name for path in folders.iterdir()} == {"new", made.name}
