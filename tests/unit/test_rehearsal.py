"""A rehearsal's own repository and folders: nobody else's are touched, and what cannot be is said in one line."""

from __future__ import annotations

import errno
import hashlib
import os
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks.release import rehearsal
from tasks.release.judges import clean_environment
from tasks.release.run_folder import explain, explained, new_folder
from tasks.support.command_line import Command
from tasks.support.errors import OmniError

pytestmark = pytest.mark.slow  # together these take longer than the fast set may

CHECKOUT = Path(__file__).parents[2]


def git(folder: Path, *words: str) -> str:
    identity = ("-c", "user.name=T", "-c", "user.email=t@example.invalid", "-c", "commit.gpgsign=false")
    return subprocess.run(["git", *identity, *words], cwd=folder, capture_output=True, check=True, text=True).stdout


def contents(folder: Path) -> dict[str, str]:
    """Return every file below a folder with its digest, whatever git may have put there included."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_the_last_lines_are_commands_that_look_at_what_was_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "it's a folder"
    rehearsal.show(rehearsal.Report((), folder), json=False)
    said = dict(line.split(": ", 1) for line in capsys.readouterr().err.splitlines() if ": " in line)
    assert shlex.split(said["serve"])[-3:] == ["wheels.serve", "--store", str(folder / "store")]
    public, store = str(folder / "registry" / "public"), str(folder / "store")
    assert shlex.split(said["tags"])[-5:] == ["release.status", "--public", public, "--store", store]


# --- Git around us ---------------------------------------------------------------------------------------------------


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """Return somebody's repository with a commit, a staged file and hooks that would leave a trace."""
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    git(theirs, "init", "--quiet")
    (theirs / "file").write_text("theirs")
    git(theirs, "add", "file")
    git(theirs, "commit", "--quiet", "--message", "theirs")
    (theirs / "staged").write_text("staged")
    git(theirs, "add", "staged")
    hooks = theirs / "template" / "hooks"
    hooks.mkdir(parents=True)
    for name in ("pre-commit", "post-commit", "prepare-commit-msg", "reference-transaction"):
        hook = hooks / name
        hook.write_text(f"#!/bin/sh\ntouch '{theirs}/hook-ran'\nexit 0\n")
        hook.chmod(0o755)
    return theirs


def surroundings(theirs: Path) -> dict[str, dict[str, str]]:
    """Return what git hooks and people may have in their environment, all of it pointing at one repository."""
    inner = str(theirs / ".git")
    config = theirs / "template" / "config"
    config.write_text(f"[core]\n\thooksPath = {theirs}/template/hooks\n[init]\n\ttemplateDir = {theirs}/template\n")
    place = {"GIT_DIR": inner, "GIT_WORK_TREE": str(theirs), "GIT_INDEX_FILE": f"{inner}/index"}
    return {
        "a commit's hook": {"GIT_INDEX_FILE": f"{inner}/index", "GIT_PREFIX": "", "GIT_EDITOR": ":"},
        "a worktree's hook": place,
        "a bare repository's hook": {"GIT_DIR": inner, "GIT_QUARANTINE_PATH": inner},
        "objects": {"GIT_OBJECT_DIRECTORY": f"{inner}/objects", "GIT_COMMON_DIR": inner, "GIT_NAMESPACE": "n"},
        "configuration": {"GIT_CONFIG_GLOBAL": str(config), "GIT_CONFIG_SYSTEM": str(config)},
        "configuration by variables": {
            "GIT_CONFIG_COUNT": "2",
            "GIT_CONFIG_KEY_0": "core.worktree",
            "GIT_CONFIG_VALUE_0": str(theirs),
            "GIT_CONFIG_KEY_1": "core.hooksPath",
            "GIT_CONFIG_VALUE_1": str(theirs / "template" / "hooks"),
        },
        "configuration by parameters": {"GIT_CONFIG_PARAMETERS": f"'core.hooksPath'='{theirs}/template/hooks'"},
        "a template": {"GIT_TEMPLATE_DIR": str(theirs / "template")},
        "somebody": {
            **{f"GIT_{who}_{what}": "x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
            "GIT_AUTHOR_DATE": "2001-01-01T00:00:00Z",
            "GIT_COMMITTER_DATE": "2001-01-01T00:00:00Z",
        },
        "another format": {"GIT_DEFAULT_HASH": "sha256"},
    }


def test_the_rehearsals_repository_is_its_own_whatever_git_variables_surround_it(
    tmp_path: Path, theirs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = surroundings(theirs)
    before = contents(theirs)
    for number, (name, variables) in enumerate(cases.items()):
        checkout = tmp_path / f"rehearsed-{number}"
        checkout.mkdir()
        with monkeypatch.context() as patch:
            for variable, value in variables.items():
                patch.setenv(variable, value)
            rehearsal._git(checkout, "init", "--quiet", "--template=")
            (checkout / "VERSION").write_text("1")
            first = rehearsal._commit_all(checkout, "First")
            (checkout / "VERSION").write_text("2")
            second = rehearsal._commit_all(checkout, "Second")
        assert contents(theirs) == before, name
        assert git(checkout, "log", "--format=%H").split() == [second, first], name
        assert set(git(checkout, "log", "--format=%an %ae %cn %ce").splitlines()) == {
            "Rehearsal rehearsal@localhost Rehearsal rehearsal@localhost"
        }, name
        assert "2001" not in git(checkout, "log", "--format=%ad %cd"), name
        assert git(checkout, "ls-files").split() == ["VERSION"], name


def test_the_clients_inherit_nothing_that_configures_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hostile = ("GIT_DIR", "GIT_INDEX_FILE", "GIT_CONFIG_COUNT", "PIP_INDEX_URL", "UV_INDEX", "PYTHONHOME", "PYTHONPATH")
    for name in (*hostile, "NETRC", "http_proxy", "all_proxy"):
        monkeypatch.setenv(name, "/elsewhere")
    given = Command(["pip"], tmp_path, clean_environment(tmp_path), ()).environment()
    assert [name for name, value in given.items() if "/elsewhere" in value] == []


def test_these_tests_themselves_leave_a_surrounding_hooks_repository_alone(theirs: Path) -> None:
    place = surroundings(theirs)["a worktree's hook"]
    before = contents(theirs)
    # A test that makes repositories, in a session as a pre-commit hook would start it.
    test = "tests/unit/test_source_copy.py::test_a_commits_copy_is_that_commit_with_its_tags"
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test]
    done = subprocess.run(
        argv, cwd=CHECKOUT, env={**os.environ, **place}, capture_output=True, text=True, check=False, timeout=120
    )
    assert contents(theirs) == before
    assert done.returncode == 0, done.stdout + done.stderr


# --- Folders of runs -------------------------------------------------------------------------------------------------

HAMMER = """
import random, sys, time
from pathlib import Path
from tasks.release import run_folder
from tasks.release.run_folder import new_folder

lock = run_folder._lock

def late(*words, **options):  # a longer time between the making of a folder and its lock: the race is then found
    time.sleep(random.choice((0, 0, 0.01)))
    return lock(*words, **options)

run_folder._lock = late
runs = Path(sys.argv[1])
(runs / f"ready-{sys.argv[3]}").touch()
while len(list(runs.glob("ready-*"))) < 4:
    time.sleep(0.01)
for number in range(int(sys.argv[2])):
    with new_folder(runs, 1) as folder:
        (folder / "deep" / "er").mkdir(parents=True)
        (folder / "deep" / "er" / "file").write_text(str(number))
        assert (folder / "deep" / "er" / "file").read_text() == str(number)
"""


def test_runs_that_start_at_once_do_not_take_each_others_folders(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    argv = [sys.executable, "-c", HAMMER, str(tmp_path / "runs"), "30"]
    options = {"cwd": CHECKOUT, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    started = [subprocess.Popen([*argv, str(number)], **options) for number in range(4)]  # type: ignore[call-overload]
    said = [process.communicate(timeout=60)[0] for process in started]
    assert [(process.returncode, text) for process, text in zip(started, said, strict=True)] == [(0, "")] * 4
    assert len(list((tmp_path / "runs").glob("2*"))) <= 4


def test_the_newest_are_kept_and_what_is_not_a_runs_is_left_alone(tmp_path: Path) -> None:
    foreign = tmp_path / "00000000-000000-elsewhere"
    foreign.mkdir()
    (tmp_path / "20000101-000000-1").write_text("a plain file with a run's name")
    (tmp_path / "20000101-000000-2").symlink_to(foreign)
    (tmp_path / "notes.txt").write_text("mine")
    others = {path.name for path in tmp_path.iterdir()}
    made = []
    for _ in range(5):
        with new_folder(tmp_path, 3) as folder:
            made.append(folder.name)
    assert len(set(made)) == 5
    assert {path.name for path in tmp_path.iterdir()} - others == set(sorted(made)[-3:])


def test_a_run_in_progress_is_kept_however_old_it_is(tmp_path: Path) -> None:
    with new_folder(tmp_path, 1) as running:
        for _ in range(3):
            with new_folder(tmp_path, 1):
                assert running.is_dir()


# --- What the machine refuses ----------------------------------------------------------------------------------------


@pytest.fixture
def plain_user() -> Iterator[Path]:
    """Return a folder that everybody may enter, with this process's rights those of a plain user."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    yield folder
    os.seteuid(user)
    for path in folder.rglob("*"):
        path.chmod(0o755)
    folder.chmod(0o755)
    shutil.rmtree(folder)


def one_line(error: OmniError) -> str:
    assert error.message
    assert "\n" not in error.message + (error.hint or "")
    assert len(error.message) < 400
    return error.message


@pytest.mark.parametrize("where", ["", ".omni-ci/rehearsals", "a/b"])
def test_a_place_that_cannot_be_written_to_is_named(plain_user: Path, where: str) -> None:
    plain_user = plain_user.resolve()
    user = os.geteuid()
    os.seteuid(os.getuid())
    plain_user.chmod(0o555)
    os.seteuid(user)
    with pytest.raises(OmniError) as caught, new_folder(plain_user / where, 3):
        pass
    assert caught.value.exit_code == 77
    assert str(plain_user) in one_line(caught.value)


@pytest.mark.parametrize("name", [".omni-ci", ".omni-ci/rehearsals"])
def test_a_file_in_place_of_a_folder_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("")
    with pytest.raises(OmniError) as caught, new_folder(tmp_path / ".omni-ci" / "rehearsals", 3):
        pass
    assert caught.value.exit_code == 78
    assert str(tmp_path / name) in one_line(caught.value)


@pytest.mark.parametrize(
    ("number", "code"),
    [
        *((number, 69) for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)),
        *((number, 77) for number in (errno.EACCES, errno.EPERM)),
        *((number, 78) for number in (errno.ENOTDIR, errno.EEXIST, errno.EROFS)),
    ],
)
def test_each_refusal_has_its_code_alone_and_in_a_copied_tree(number: int, code: int) -> None:
    single = OSError(number, os.strerror(number), "/some/place")
    tree = shutil.Error([("/a", "/b", str(single)), ("/c", "/d", "another")])
    for error in (single, tree):
        ours = explain(error, "cannot copy")
        assert ours.exit_code == code
        assert os.strerror(number).lower() in one_line(ours).lower()


def test_a_disk_without_room_ends_a_step_with_one_line(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "large").write_bytes(b"x" * 100_000)
    run = rehearsal._Run(None, rehearsal.Request("nightly", None, ("cuda",)), tmp_path)  # type: ignore[arg-type]

    def copy() -> str:
        # Larger files than this are refused as those on a full disk are.
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))
        try:
            shutil.copytree(tmp_path / "tree", tmp_path / "copy")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        return "copied"

    with pytest.raises(OmniError) as caught:
        run.step("build it", copy)
    assert caught.value.message == "build it: the machine refused: file too large"
    assert caught.value.exit_code == 69
    assert str(tmp_path) in one_line(caught.value) + str(caught.value.hint)


def test_a_reader_that_went_away_is_not_taken_for_a_full_disk() -> None:
    with pytest.raises(BrokenPipeError), explained("writing"):
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")


# --- The source that is given ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ("x" * 5000, 64),
        ("x/" * 2500, 64),
        ("x" * 300, 64),
        ("\u00fc" * 200, 64),
        ("~nosuchuser", 66),
        ("~nosuchuser/library", 66),
        ("/no/such/folder", 66),
        ("/dev/null", 66),
        ("/dev/null/below", 66),
    ],
)
def test_a_source_that_is_none_is_refused_in_one_line(given: str, code: int) -> None:
    with pytest.raises(OmniError) as caught:
        rehearsal.Request.parse("nightly", given, None)
    assert caught.value.exit_code == code
    assert "source" in one_line(caught.value)


@pytest.mark.parametrize("below", ["", "library"])
def test_a_source_that_this_user_may_not_read_is_refused(plain_user: Path, below: str) -> None:
    user = os.geteuid()
    os.seteuid(os.getuid())
    (plain_user / "closed" / "library").mkdir(parents=True)
    (plain_user / "closed").chmod(0)
    os.seteuid(user)
    with pytest.raises(OmniError) as caught:
        rehearsal.Request.parse("nightly", str(plain_user / "closed" / below), None)
    assert caught.value.exit_code == 77
    assert "closed" in one_line(caught.value)
