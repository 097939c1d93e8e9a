"""What a build decides before it starts, and what it makes of a failure; the builds themselves are contract tests."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tasks.support.errors import DataError, MissingInputError, OmniError, UsageError
from tasks.support.variables import ALL
from tasks.wheels.building import (
    BuildPlan,
    BuildRequest,
    Survey,
    build_environment,
    build_failure,
    check_dist,
    plan_build,
    project_name,
    survey,
)
from tasks.wheels.built_files import DEVICES
from tasks.wheels.source_copy import CopyKind

COMMIT, OTHER = "1" * 40, "2" * 40
TIME = datetime(2026, 5, 8, 9, 5, 36, tzinfo=UTC)


def request(*, commit: str = COMMIT, device: str = "cuda", allow_dirty: bool = False) -> BuildRequest:
    return BuildRequest(Path("/source"), Path("/dist"), commit, device, allow_dirty)


@pytest.mark.parametrize(
    ("asked", "found", "kind", "epoch"),
    [
        (request(), Survey(COMMIT, commit_time=TIME), CopyKind.COMMIT, int(TIME.timestamp())),
        (request(allow_dirty=True), Survey(COMMIT, commit_time=TIME), CopyKind.COMMIT, int(TIME.timestamp())),
        (request(), Survey(OTHER, commit_time=TIME), CopyKind.COMMIT, int(TIME.timestamp())),
        (
            request(allow_dirty=True),
            Survey(COMMIT, dirty=("a.py",), commit_time=TIME),
            CopyKind.WORKING_TREE,
            int(TIME.timestamp()),
        ),
        (request(), Survey(newest=1_700_000_000), CopyKind.FOLDER, 1_700_000_000),
        (request(), Survey(newest=0), CopyKind.FOLDER, 315_532_800),
        (
            request(),
            Survey(COMMIT, commit_time=datetime(1971, 1, 1, tzinfo=UTC)),
            CopyKind.COMMIT,
            315_532_800,
        ),
    ],
)
def test_what_is_copied_and_which_time_it_gets(asked: BuildRequest, found: Survey, kind: CopyKind, epoch: int) -> None:
    plan = plan_build(asked, found)
    assert (plan.kind, plan.epoch, plan.commit) == (kind, epoch, COMMIT)


def test_refuses_a_dirty_source_and_names_it() -> None:
    with pytest.raises(DataError, match=r"/source has uncommitted .*: a.py, b.py$") as caught:
        plan_build(request(), Survey(COMMIT, dirty=("a.py", "b.py"), commit_time=TIME))
    assert "--allow-dirty" in (caught.value.hint or "")


def test_of_many_uncommitted_files_the_first_are_named() -> None:
    with pytest.raises(DataError, match=r"files: n0, n1, n2, n3, n4 and 3 more$"):
        plan_build(request(), Survey(COMMIT, dirty=tuple(f"n{number}" for number in range(8)), commit_time=TIME))


def test_uncommitted_changes_belong_to_head_only() -> None:
    with pytest.raises(UsageError, match=OTHER):
        plan_build(request(allow_dirty=True), Survey(OTHER, dirty=("a.py",), commit_time=TIME))


@pytest.mark.parametrize(
    ("found", "word"),
    [
        (Survey(COMMIT, dirty=("a.py",), commit_time=TIME), "do not publish"),
        (Survey(COMMIT, commit_time=TIME, cut_off=True), "too shallow"),
    ],
)
def test_warns(found: Survey, word: str) -> None:
    assert word in " ".join(plan_build(request(allow_dirty=True), found).warnings)


@pytest.mark.parametrize("device", ["musa", "CUDA", "", "rcom"])
def test_refuses_an_unknown_device(device: str) -> None:
    with pytest.raises(UsageError, match="device"):
        request(device=device)


@pytest.mark.parametrize("commit", ["", "HEAD", "1" * 39, "1" * 41, "A" * 40, "g" * 40])
def test_refuses_what_is_no_commit(commit: str) -> None:
    with pytest.raises(UsageError):
        request(commit=commit)


@pytest.mark.parametrize("device", DEVICES)
def test_the_plan_says_all_that_is_done(device: str) -> None:
    plan = plan_build(request(device=device), Survey(COMMIT, commit_time=TIME))
    text = " ".join(word for action in plan.actions for word in action)
    for word in ("/source", "/dist", COMMIT, f"VLLM_OMNI_TARGET_DEVICE={device}", "2026-05-08 09:05:36 UTC"):
        assert word in text
    assert plan.as_json()["device"] == device


def plan() -> BuildPlan:
    return plan_build(request(device="rocm"), Survey(COMMIT, commit_time=TIME))


def test_the_build_gets_no_secret_and_nothing_that_decides_its_version() -> None:
    inherited = {
        **{variable.name: "value" for variable in ALL},
        "GIT_DIR": "/elsewhere/.git",
        "PIP_INDEX_URL": "kept",
        "PIP_TARGET": "/elsewhere",
        "PYTHONPATH": "/elsewhere",
        "SETUPTOOLS_SCM_PRETEND_VERSION": "9",
        "SETUPTOOLS_SCM_PRETEND_VERSION_FOR_VLLM_OMNI": "9",
        "SOURCE_DATE_EPOCH": "1",
        "UV_DEFAULT_INDEX": "kept",
        "VIRTUAL_ENV": "/elsewhere",
        "VLLM_OMNI_TARGET_DEVICE": "cuda",
        "VLLM_OMNI_VERSION_OVERRIDE": "9",
    }
    seen = {**inherited, **build_environment(inherited, plan(), Path("/work-folder"))}
    left = {name: value for name, value in seen.items() if value is not None}
    assert "9" not in left.values()
    assert "/elsewhere" not in " ".join(left.values())
    assert not [variable.name for variable in ALL if variable.secret and variable.name in left]
    assert (left["PIP_INDEX_URL"], left["UV_DEFAULT_INDEX"]) == ("kept", "kept")
    assert left["VLLM_OMNI_TARGET_DEVICE"] == "rocm"
    assert left["SOURCE_DATE_EPOCH"] == str(int(TIME.timestamp()))
    assert left["TMPDIR"] == "/work-folder"


_HEAD = "* Creating isolated environment: venv+pip...\n* Installing packages in isolated environment:\n  - setuptools\n"
_REFUSED = "WARNING: Retrying after connection broken by 'NewConnectionError': Connection refused\n"
_NONE = "< ERROR: No matching distribution found for setuptools\n"
_OWN = (
    "\nTraceback (most recent call last):\n"
    '  File "/venv/lib/python3.11/site-packages/build/__main__.py", line 289, in _handle_build_error\n'
    "subprocess.CalledProcessError: Command '['pip']' returned non-zero exit status 1.\n\nERROR Command '['pip']'\n"
)


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        (f"{_HEAD}{_REFUSED}{_NONE}{_OWN}", 75, "could not be fetched: ERROR: No matching distribution found"),
        (f"{_HEAD}{_NONE}{_OWN}", 69, "could not be fetched: ERROR: No matching distribution found"),
        (f"{_HEAD}* Getting build dependencies for sdist...\nValueError: no version\n", 65, "failed: ValueError"),
        (f"{_HEAD}* Building wheel...\n{_REFUSED}SystemExit\n", 65, "the build failed"),
        (f"{_HEAD}* Building sdist...\n{_HEAD}{_REFUSED}{_NONE}", 75, "could not be fetched"),
        ("* Creating isolated environment: venv+pip...\nError: no ensurepip\n", 69, "Error: no ensurepip"),
        ("ERROR Source /x does not appear to be a Python project\n", 65, "does not appear"),
        ("", 65, "the build failed"),
        (f"{_HEAD}* Building wheel...\nKeyError: 'x'\n\nERROR Backend subprocess exited when\n", 65, "KeyError: 'x'"),
        ("* Building wheel...\nfatal: https://me:hunter2@host/x not found\n", 65, "fatal"),
    ],
)  # fmt: skip
def test_a_failed_build_is_one_sentence(text: str, code: int, words: str) -> None:
    error = build_failure(text, Path("/logs/build.log"))
    assert isinstance(error, OmniError)
    assert (error.exit_code, "\n" in error.message) == (code, False)
    assert words in error.message
    assert "/logs/build.log" in (error.hint or "")
    assert "hunter2" not in error.message


def test_a_source_must_be_a_project(tmp_path: Path) -> None:
    for folder, words in ((tmp_path / "nowhere", "not a folder"), (tmp_path, "pyproject.toml")):
        with pytest.raises(MissingInputError, match=words):
            survey(folder, COMMIT)


def test_a_clone_without_the_tag_before_its_commit_is_noticed(tmp_path: Path) -> None:
    def git(*arguments: str, folder: Path = tmp_path) -> str:
        identity = ("-c", "user.name=Tester", "-c", "user.email=tester@example.com")
        said = subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True)
        return said.stdout.strip()

    source = tmp_path / "source"
    git("init", "--quiet", str(source))
    (source / "pyproject.toml").touch()
    git("add", "--all", folder=source)
    git("commit", "--quiet", "--message=first", folder=source)
    head = git("rev-parse", "HEAD", folder=source)
    assert not survey(source, head).cut_off  # a whole history without tags is what it is
    git("tag", "v1.0", folder=source)
    git("commit", "--quiet", "--allow-empty", "--message=second", folder=source)
    head = git("rev-parse", "HEAD", folder=source)
    for depth, cut_off in (("1", True), ("2", False)):
        git("clone", "--quiet", f"--depth={depth}", source.as_uri(), depth)
        assert survey(tmp_path / depth, head).cut_off is cut_off
    with pytest.raises(MissingInputError, match=COMMIT):
        survey(source, COMMIT)
    (source / "untracked").touch()
    assert (survey(source, head).head, survey(source, head).dirty) == (head, ("untracked",))


@pytest.mark.parametrize("name", ["dist", "out/of the [way]", ":(top)odd"])
def test_what_builds_left_in_their_dist_does_not_make_the_next_one_dirty(name: str, tmp_path: Path) -> None:
    def git(*arguments: str) -> str:
        identity = ("-c", "user.name=Tester", "-c", "user.email=tester@example.com")
        return subprocess.run(
            ["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout

    dist = tmp_path / name
    dist.mkdir(parents=True)
    git("init", "--quiet")
    (tmp_path / "pyproject.toml").touch()
    git("add", "--all")
    git("commit", "--quiet", "--message=first")
    head = git("rev-parse", "HEAD").strip()
    (dist / "x-1.0.tar.gz").touch()
    assert survey(tmp_path, head, dist).dirty == ()
    assert survey(tmp_path, head, tmp_path / "elsewhere").dirty != ()
    assert survey(tmp_path, head, tmp_path).dirty != ()
    (tmp_path / "new").touch()
    assert survey(tmp_path, head, dist).dirty == ("new",)
    (tmp_path / "new").unlink()
    # What is tracked there is the source's own, and so is everything beside it.
    git("add", "--all")
    git("commit", "--quiet", "--message=second")
    head = git("rev-parse", "HEAD").strip()
    assert survey(tmp_path, head, dist).dirty == ()
    (dist / "x-1.1.tar.gz").touch()
    assert survey(tmp_path, head, dist).dirty != ()


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('[project]\nname = "Vllm_Omni"\n', "vllm-omni"),
        ("[build-system]\n", None),
        ('[project]\nname = "no name!"\n', None),
        ("[project]\nname = 1\n", None),
        ("project = 1\n", None),
        ("not toml", None),
        (None, None),
    ],
)
def test_a_dist_in_the_way_is_refused_before_the_build_when_the_project_says_its_name(
    tmp_path: Path, text: str | None, name: str | None
) -> None:
    if text is not None:
        (tmp_path / "pyproject.toml").write_text(text)
    assert project_name(tmp_path) == name
    dist = tmp_path / "dist"
    dist.mkdir()
    (dist / "vllm_omni-1.0.dev1+gfedcba9-py3-none-any.whl").touch()
    asked = BuildRequest(tmp_path, dist, COMMIT)
    plan = plan_build(asked, Survey(COMMIT, commit_time=TIME))
    if name is None:
        check_dist(plan, ())
        return
    with pytest.raises(DataError, match=r"vllm_omni-1\.0\.dev1\+gfedcba9"):
        check_dist(plan, ())
