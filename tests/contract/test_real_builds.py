"""Real builds: isolated, checked, all or nothing.

Most of them use a build backend that lies in the source itself, so that no package index is needed; the
sample project and the library are built with setuptools, which is fetched.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks.support.errors import DataError, OmniError, ServiceRefusedError, TemporaryError
from tasks.support.settings import CHECKOUT, load
from tasks.wheels.building import BuildRequest, BuildResult, plan_build, run_build, survey
from tasks.wheels.distribution import Kind

pytestmark = pytest.mark.slow

PATTERNS = load(environment={}).wheels.variants
COMMIT = "1" * 40
SAMPLE = CHECKOUT / "tests" / "sample_project"

BACKEND = f'''\
"""A build backend without requirements. OPTIONS in the source's folder is Python that may replace what follows."""

import json, os, sys
from pathlib import Path

sys.path.insert(0, {str(CHECKOUT)!r})
from tests.wheel_factory import make_sdist, make_wheel

device = os.environ["VLLM_OMNI_TARGET_DEVICE"]
version = Path("VERSION").read_text().strip()
suffix = "" if device == "cuda" else ("." if "+" in version else "+") + device
name, extra = "tiny", "Description-Content-Type: text/plain\\n\\nA text."
files = {{"tiny/environment.json": json.dumps(dict(os.environ)).encode()}}
if Path("module.py").exists():
    files["tiny/module.py"] = Path("module.py").read_bytes()


def build_wheel(folder, config_settings=None, metadata_directory=None):
    return make_wheel(Path(folder), name=name, version=version + suffix, extra=extra, files=files).name


def build_sdist(folder, config_settings=None):
    return make_sdist(Path(folder), name=name, version=version + suffix, extra=extra).name


exec(Path("OPTIONS").read_text())
'''


@pytest.fixture
def source(tmp_path: Path) -> Path:
    source = tmp_path / "source"
    source.mkdir()
    (source / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )
    (source / "backend.py").write_text(BACKEND)
    (source / "VERSION").write_text("1.0\n")
    (source / "OPTIONS").write_text("")
    return source


@pytest.fixture(autouse=True)
def _nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let every test end without temporary folders, whatever it was about."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr("tempfile.tempdir", None)
    yield
    assert list(temporary.iterdir()) == []
    assert not list(tmp_path.glob("dist/.*"))


def build(source: Path, device: str = "cuda", *, commit: str = COMMIT, allow_dirty: bool = False) -> BuildResult:
    request = BuildRequest(source, source.parent / "dist", commit, device, allow_dirty)
    return run_build(plan_build(request, survey(source, commit)), PATTERNS, logs=source.parent / "logs")


def in_dist(source: Path) -> dict[str, str]:
    """Return the digests of all files in dist."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (source.parent / "dist").glob("*")}


def git(folder: Path, *arguments: str) -> str:
    argv = ["git", "-c", "user.name=Tester", "-c", "user.email=tester@example.com", *arguments]
    return subprocess.run(argv, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def commit_all(folder: Path) -> str:
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "change")
    return git(folder, "rev-parse", "HEAD")


def member(result: BuildResult, name: str) -> bytes:
    with zipfile.ZipFile(result.facts[1].path) as wheel:
        return wheel.read(name)


def test_one_sdist_and_one_wheel_for_each_device_lie_in_dist(source: Path) -> None:
    before = {path.name: path.read_bytes() for path in source.iterdir()}
    for device, version, variant in (("cuda", "1.0", None), ("rocm", "1.0+rocm", "rocm")):
        result = build(source, device)
        assert [(item.kind, item.version, item.variant) for item in result.facts] == [
            (Kind.SDIST, version, variant),
            (Kind.WHEEL, version, variant),
        ]
        assert all(hashlib.sha256(item.path.read_bytes()).hexdigest() == item.sha256 for item in result.facts)
        assert [file["filename"] for file in result.as_json()["files"]] == [item.filename for item in result.facts]
        assert b"Building wheel" in result.log.read_bytes()
    assert set(in_dist(source)) == {
        "tiny-1.0.tar.gz", "tiny-1.0-py3-none-any.whl", "tiny-1.0+rocm.tar.gz", "tiny-1.0+rocm-py3-none-any.whl",
    }  # fmt: skip
    assert {path.name: path.read_bytes() for path in source.iterdir()} == before


def test_the_build_sees_the_commit_and_no_secret(source: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (source / "module.py").write_text("wanted")
    wanted = commit_all(source)
    (source / "module.py").write_text("later")
    commit_all(source)
    kept = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "HTTPS_PROXY": "http://127.0.0.1:9"}
    gone = {
        "PYPI_TOKEN": "hunter2", "AWS_SECRET_ACCESS_KEY": "hunter2", "GIT_DIR": "/elsewhere",
        "SETUPTOOLS_SCM_PRETEND_VERSION": "9", "VLLM_OMNI_VERSION_OVERRIDE": "9", "PIP_TARGET": "/elsewhere",
    }  # fmt: skip
    for name, value in {**kept, **gone, "PYTHONPATH": "/elsewhere", "SOURCE_DATE_EPOCH": "1"}.items():
        monkeypatch.setenv(name, value)
    result = build(source, "npu", commit=wanted)
    assert member(result, "tiny/module.py") == b"wanted"
    seen = json.loads(member(result, "tiny/environment.json"))
    assert {name: seen.get(name) for name in kept} == kept
    assert not gone.keys() & seen.keys()
    assert not seen.get("PYTHONPATH")
    assert seen["VLLM_OMNI_TARGET_DEVICE"] == "npu"
    assert seen["SOURCE_DATE_EPOCH"] == str(result.plan.epoch)
    assert seen["TMPDIR"].startswith(str(tmp_path / "tmp"))


def test_uncommitted_changes_are_built_only_when_told(source: Path) -> None:
    (source / "module.py").write_text("committed")
    head = commit_all(source)
    (source / "module.py").write_text("changed")
    (source / "OPTIONS").write_text("files['tiny/head'] = Path('.git/HEAD').read_bytes()")
    with pytest.raises(DataError, match="uncommitted"):
        build(source, commit=head)
    assert in_dist(source) == {}
    result = build(source, commit=head, allow_dirty=True)
    assert member(result, "tiny/module.py") == b"changed"
    assert member(result, "tiny/head").decode().strip() == head
    assert "do not publish" in " ".join(result.plan.warnings)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("def build_wheel(*_):\n    raise ValueError('no wheel: hunter2')", "the build failed: ValueError: no wheel"),
        ("syntax error", "the build failed: SyntaxError"),
        (
            "extra = ''",
            r"^twine check refuses tiny-1\.0\.tar\.gz, tiny-1\.0-py3-none-any\.whl: `long_description[^\n]* missing",
        ),
        ("suffix = '+rocm'", r"1\.0\+rocm, and it must have no variant"),
    ],
)
def test_a_bad_build_leaves_its_log_and_nothing_else(
    source: Path, options: str, words: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYPI_TOKEN", "hunter2")
    (source / "OPTIONS").write_text(options)
    with pytest.raises(DataError, match=words) as caught:
        build(source)
    assert in_dist(source) == {}
    assert "\n" not in caught.value.message
    assert len(list((source.parent / "logs").iterdir())) == 1
    assert "hunter2" not in "".join((*capfd.readouterr(), caught.value.message))


@pytest.mark.parametrize(
    ("variables", "error", "words"),
    [
        ({"PIP_INDEX_URL": "http://me:hunter2@127.0.0.1:9/simple"}, TemporaryError, "reachable"),
        ({"PIP_NO_INDEX": "1"}, ServiceRefusedError, "must have it"),
    ],
)
def test_a_build_backend_that_cannot_be_fetched(
    source: Path, variables: dict[str, str], error: type[OmniError], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in list(os.environ):
        if name.startswith("PIP_"):
            monkeypatch.delenv(name)
    for name, value in {"PIP_RETRIES": "1", "PIP_CONFIG_FILE": "/dev/null", **variables}.items():
        monkeypatch.setenv(name, value)
    project = (source / "pyproject.toml").read_text()
    (source / "pyproject.toml").write_text(project.replace("requires = []", 'requires = ["omni-ci-no-such-backend"]'))
    with pytest.raises(error, match=r"the build backend could not be fetched: .*omni-ci-no-such-backend") as caught:
        build(source)
    hint = caught.value.hint or ""
    assert words in hint
    log = Path(hint.rpartition(" ")[2])
    assert "omni-ci-no-such-backend" in log.read_text()
    assert "hunter2" not in log.read_text()
    assert in_dist(source) == {}


RUN = """
import sys
from pathlib import Path
from tasks.wheels.building import BuildRequest, plan_build, run_build, survey
source = Path(sys.argv[1])
request = BuildRequest(source, source.parent / "dist", "1" * 40)
run_build(plan_build(request, survey(source, request.commit)), (), logs=source.parent / "logs")
"""


def runs(process: int) -> bool:
    """Say whether a process runs; one that is dead but that nobody waited for does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_build_leaves_nothing(source: Path, number: signal.Signals, tmp_path: Path) -> None:
    started = tmp_path / "started"
    (source / "OPTIONS").write_text(
        f"def build_sdist(*_):\n"
        f"    import time\n"
        f"    Path({str(started)!r}).write_text(str(os.getpid()))\n"
        f"    time.sleep(60)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", RUN, str(source)], cwd=CHECKOUT, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 60
    while not (started.exists() and started.read_text()):
        assert child.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert list((tmp_path / "tmp").iterdir())
    child.send_signal(number)
    child.communicate(timeout=60)
    assert child.returncode != 0
    assert in_dist(source) == {}
    assert not runs(int(started.read_text()))


@pytest.mark.network
def test_two_builds_of_one_commit_have_the_same_bytes(tmp_path: Path) -> None:
    """Build the sample twice, from checkouts made at other times, with other modes and under another umask."""
    digests = []
    for number, umask in enumerate((0o022, 0o077)):
        source = tmp_path / f"{number}" / "source"
        previous = os.umask(umask)
        try:
            source.mkdir(parents=True)
            for path in SAMPLE.rglob("*"):
                if path.is_file() and "__pycache__" not in path.parts:
                    copy = source / path.relative_to(SAMPLE)
                    copy.parent.mkdir(parents=True, exist_ok=True)
                    copy.write_bytes(path.read_bytes())
                    os.utime(copy, (1_700_000_000 + number,) * 2)
            date = {"GIT_AUTHOR_DATE": "2026-05-08T09:05:36Z", "GIT_COMMITTER_DATE": "2026-05-08T09:05:36Z"}
            with pytest.MonkeyPatch.context() as patch:
                for name, value in date.items():
                    patch.setenv(name, value)
                commit = commit_all(source)
            result = build(source, "rocm", commit=commit)
        finally:
            os.umask(previous)
        digests.append([(item.filename, item.sha256) for item in result.facts])
    assert digests[0] == digests[1]
    assert [name for name, _ in digests[0]] == [
        "omni_ci_rehearsal_sample-1.0.0.dev1+rocm.tar.gz",
        "omni_ci_rehearsal_sample-1.0.0.dev1+rocm-py3-none-any.whl",
    ]


@pytest.mark.network
@pytest.mark.timeout(1200)
def test_the_librarys_own_sdist_builds_for_two_devices(tmp_path: Path) -> None:
    argv = ["-m", "pip", "download", "--quiet", "--no-deps", "--no-binary=vllm-omni", "--dest", str(tmp_path)]
    subprocess.run([sys.executable, *argv, "vllm-omni==0.20.0"], check=True)
    # By tar, not tarfile: its filters are newer than the oldest Python that this runs on.
    subprocess.run(["tar", "-xzf", "vllm_omni-0.20.0.tar.gz"], cwd=tmp_path, check=True)
    source = tmp_path / "vllm_omni-0.20.0"
    before = {path: path.stat().st_mtime_ns for path in source.rglob("*")}
    for device, version in (("cuda", "0.20.0"), ("rocm", "0.20.0+rocm")):
        result = build(source, device)
        assert [item.filename for item in result.facts] == [
            f"vllm_omni-{version}.tar.gz",
            f"vllm_omni-{version}-py3-none-any.whl",
        ]
        assert [item.requires_python for item in result.facts] == ["<3.14,>=3.10"] * 2
    assert {path: path.stat().st_mtime_ns for path in source.rglob("*")} == before
