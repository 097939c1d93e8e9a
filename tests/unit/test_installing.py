"""What is installed into the library: the archive's bytes, the lock, the entry pipelines, and a job that runs one."""

from __future__ import annotations

import ast
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tasks.images.tool_context import PARTS
from tasks.pipelines import installing
from tasks.pipelines.build_facts import repository_name
from tasks.pipelines.dollar import scan
from tasks.pipelines.installing import Archive, Lock, State
from tasks.suites import presets, tiers
from tasks.support.errors import (
    ConfigurationError,
    DataError,
    MissingInputError,
    RemoteChangedError,
    UsageError,
)
from tasks.support.settings import CHECKOUT
from tasks.support.source import git
from tests import git_scenes
from tests.git_scenes import Repository
from tests.vendored_schema import faults

TIERS, PRESETS = tiers.load(), presets.load()
NAMES = [".buildkite/cuda.yml", ".buildkite/rocm.yml", ".buildkite/xpu.yml", ".buildkite/npu.yml", installing.LOCK]
LOCK = Lock("https://example.invalid/omni-ci.tar", "a" * 40, "b" * 64)
# What stands for the tool on the agent: it says where it lies and what it is to run.
ON_AGENT = "import os, sys\nprint(os.path.dirname(os.path.dirname(__file__)), *sys.argv[1:])\n"


@pytest.fixture(autouse=True)
def own_git(monkeypatch: pytest.MonkeyPatch) -> None:
    git_scenes.isolate(monkeypatch)


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the repositories once; each test gets copies."""
    folder = tmp_path_factory.mktemp("scenes")
    with pytest.MonkeyPatch.context() as patch:
        git_scenes.isolate(patch)
        tool = Repository.new(folder / "tool")
        tool.write(
            {
                "scripts/on_agent.py": ON_AGENT,
                "scripts/run": "#!/bin/sh\n",
                "tasks/é.py": "é = 1\n",
                "tasks/empty.py": "",
                "tasks/bytes.bin": bytes(range(256)),
                "tests/left_out.py": "",
                "pyproject.toml": "[project]\n",
            }
        )
        (tool.path / "scripts" / "run").chmod(0o755)
        tool.commit()
        library = Repository.new(folder / "library")
        library.commit({"vllm_omni/__init__.py": "", ".buildkite/test-ready.yml": "steps: []\n"})
    return folder


@pytest.fixture
def tool(scenes: Path, tmp_path: Path) -> Repository:
    return Repository(scenes / "tool").copy(tmp_path / "tool")


@pytest.fixture
def library(scenes: Path, tmp_path: Path) -> Repository:
    return Repository(scenes / "library").copy(tmp_path / "library")


def install(library: Repository, lock: Lock = LOCK) -> list[str]:
    plan = installing.plan_install(library.path, lock, TIERS, PRESETS)
    return [file.name for file in installing.install(library.path, plan)]


# --- The archive ---


def test_an_archive_holds_what_runs_and_nothing_of_this_machine(tool: Repository) -> None:
    with tarfile.open(fileobj=io.BytesIO(installing.archive_of(tool.path).data)) as archive:
        entries = archive.getmembers()
        content = {entry.name: archive.extractfile(entry).read() for entry in entries}  # type: ignore[union-attr]
    assert [entry.name for entry in entries] == [
        "pyproject.toml",
        "scripts/on_agent.py",
        "scripts/run",
        "tasks/bytes.bin",
        "tasks/empty.py",
        "tasks/é.py",
    ]
    assert content["tasks/bytes.bin"] == bytes(range(256))
    assert content["tasks/é.py"].decode() == "é = 1\n"
    assert {(entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname) for entry in entries} == {(0, 0, 0, "", "")}
    assert {entry.name: entry.mode for entry in entries if entry.mode != 0o644} == {"scripts/run": 0o755}


def test_an_archive_is_the_same_wherever_it_is_made(tool: Repository, tmp_path: Path) -> None:
    first = installing.archive_of(tool.path)
    clone = tool.clone(tmp_path / "elsewhere")
    for file in clone.path.rglob("*.py"):
        os.utime(file, (0, 0))
    clone.git("config", "core.autocrlf", "true")
    assert installing.archive_of(clone.path) == first
    assert first.sha256 == hashlib.sha256(first.data).hexdigest()
    assert first.name == f"omni-ci-{tool.head}.tar"
    other = tool.commit({"tasks/empty.py": "x = 1\n"})
    assert installing.archive_of(tool.path).commit == other
    assert installing.archive_of(tool.path).sha256 != first.sha256


def test_a_checkout_with_changes_is_refused(tool: Repository) -> None:
    for change in ({"tasks/empty.py": "x = 1\n"}, {"tasks/new.py": ""}, {"tests/left_out.py": None}):
        tool.write(change)
        with pytest.raises(ConfigurationError, match=next(iter(change))) as raised:
            installing.archive_of(tool.path)
        assert raised.value.hint == "commit them, or install from a clean clone"
        tool.git("reset", "-q", "--hard")
        tool.git("clean", "-qfd")
    tool.write({f"tasks/n{number}.py": "" for number in range(5)})
    with pytest.raises(ConfigurationError, match="and 2 more"):
        installing.archive_of(tool.path)


def test_a_tool_without_git_is_refused(tool: Repository, tmp_path: Path) -> None:
    shutil.copytree(tool.path, tmp_path / "copy", ignore=shutil.ignore_patterns(".git"))
    for folder in (tmp_path / "copy", tool.path / "tasks"):
        with pytest.raises(MissingInputError, match="not a git checkout"):
            installing.archive_of(folder)


def test_what_cannot_be_in_an_archive_is_named(tool: Repository, library: Repository) -> None:
    (tool.path / "tasks" / "link.py").symlink_to("/etc/passwd")
    tool.commit()
    with pytest.raises(DataError, match=r"tasks/link\.py is neither a file"):
        installing.archive_of(tool.path)


def test_this_tools_own_archive_has_what_an_agent_starts() -> None:
    names = set(git(CHECKOUT, "ls-files", "-z", "--", *PARTS).text.split("\0"))
    assert {"scripts/on_agent.py", "scripts/bootstrap.py", "scripts/locks/dev.txt", ".buildkite/tiers.yml"} <= names


def test_an_archive_is_written_whole(tool: Repository, tmp_path: Path) -> None:
    archive = installing.archive_of(tool.path)
    for _ in range(2):
        path = installing.write_archive(archive, tmp_path / "out" / "deep")
        assert path.read_bytes() == archive.data
        assert [entry.name for entry in path.parent.iterdir()] == [archive.name]


# --- The lock ---


def test_a_lock_reads_back() -> None:
    assert installing.parse_lock(installing.lock_file(LOCK).encode(), "lock") == LOCK


def test_the_address_follows_the_commit() -> None:
    old = Lock(f"https://example.invalid/v/omni-ci-{'a' * 40}.tar", "a" * 40, "b" * 64)
    archive = Archive("c" * 40, b"")
    made = installing.make_lock(archive, None, old)
    assert made == Lock(f"https://example.invalid/v/omni-ci-{'c' * 40}.tar", "c" * 40, archive.sha256)
    given = installing.make_lock(archive, "https://example.invalid/{commit}/x.tar", old)
    assert given.address == f"https://example.invalid/{'c' * 40}/x.tar"
    for before in (None, LOCK):
        with pytest.raises(UsageError, match="where will") as raised:
            installing.make_lock(archive, None, before)
        assert "--address" in (raised.value.hint or "")


@pytest.mark.parametrize(
    "address",
    [
        "http://example.invalid/x.tar",
        "ftp://example.invalid/x.tar",
        "https://",
        "https:///x.tar",
        "x.tar",
        "",
        "file://host/x.tar",
        "https://example.invalid/a b.tar",
        'https://example.invalid/".tar',
        "https://example.invalid/'$(id)'.tar",
        "https://example.invalid/\n.tar",
        "https://[example/x.tar",
        "https://example.invalid/é.tar",
    ],
)
def test_addresses_that_are_none(address: str) -> None:
    with pytest.raises(UsageError, match="not an address"):
        installing.make_lock(Archive("c" * 40, b""), address, None)


def test_a_login_in_an_address_is_refused_and_not_shown() -> None:
    with pytest.raises(UsageError, match="holds a login") as raised:
        installing.make_lock(Archive("c" * 40, b""), "https://me:s3cr3t@example.invalid/x.tar", None)
    assert "s3cr3t" not in f"{raised.value} {raised.value.hint}"


GOOD = installing.lock_file(LOCK)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not toml",
        GOOD.replace('commit = "', 'comit = "'),
        GOOD + 'more = "x"\n',
        GOOD.replace("b" * 64, "B" * 64),
        GOOD.replace("b" * 64, "b" * 63),
        GOOD.replace("a" * 40, "main"),
        GOOD.replace('"' + "a" * 40 + '"', "7"),
        GOOD.replace("https://", "http://"),
        GOOD.replace("https://", "https://me:s3cr3t@"),
        "\x00",
        "a = " + "[" * 5000,
    ],
)
def test_locks_that_are_none(text: str) -> None:
    with pytest.raises(DataError, match=r"automation\.lock") as raised:
        installing.parse_lock(text.encode(), installing.LOCK)
    assert raised.value.hint == "run pipelines.install again"
    assert "s3cr3t" not in str(raised.value)


# --- Installing ---


def test_installing_writes_five_files_and_no_other(library: Repository) -> None:
    assert install(library) == NAMES
    assert library.git("status", "--porcelain", "-uall").split() == [
        word for name in sorted(NAMES) for word in ("??", name)
    ]
    library.commit()
    assert install(library) == []
    assert library.git("status", "--porcelain") == ""


def test_only_what_differs_is_written_again(library: Repository) -> None:
    install(library)
    (library.path / NAMES[1]).unlink()
    with (library.path / NAMES[2]).open("a") as file:
        file.write("# mine\n")
    plan = installing.plan_install(library.path, LOCK, TIERS, PRESETS)
    states = [State.SAME, State.NEW, State.CHANGED, State.SAME, State.SAME]
    assert [file.state for file in plan] == states
    before = (library.path / NAMES[0]).stat().st_mtime_ns
    assert install(library) == [NAMES[1], NAMES[2]]
    assert (library.path / NAMES[0]).stat().st_mtime_ns == before
    newer = Lock(LOCK.address, "d" * 40, LOCK.sha256)
    assert install(library, newer) == [installing.LOCK]
    assert installing.read_lock(library.path) == newer


def test_a_plan_is_not_followed_where_the_file_changed_since(library: Repository) -> None:
    plan = installing.plan_install(library.path, LOCK, TIERS, PRESETS)
    library.write({NAMES[3]: "steps: []\n"})
    with pytest.raises(RemoteChangedError, match=r"npu\.yml changed meanwhile"):
        installing.install(library.path, plan)
    assert (library.path / NAMES[3]).read_text() == "steps: []\n"
    assert not (library.path / installing.LOCK).exists()


def test_a_file_that_somebody_else_wrote_stays(library: Repository) -> None:
    library.write({NAMES[0]: "steps:\n- command: mine\n"})
    with pytest.raises(DataError, match=r"cuda\.yml was not written by pipelines\.install"):
        installing.plan_install(library.path, LOCK, TIERS, PRESETS)


@pytest.mark.parametrize("linked", ["file", "folder", "nowhere"])
def test_nothing_is_written_through_a_link(library: Repository, tmp_path: Path, linked: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "cuda.yml").write_text(GOOD)
    if linked == "folder":
        (library.path / ".buildkite").rename(tmp_path / "moved")
        (library.path / ".buildkite").symlink_to(outside)
    else:
        (library.path / NAMES[0]).symlink_to(outside / ("cuda.yml" if linked == "file" else "gone"))
    with pytest.raises(DataError, match="is reached through a link"):
        installing.plan_install(library.path, LOCK, TIERS, PRESETS)
    assert [file.name for file in outside.iterdir()] == ["cuda.yml"]


def test_a_library_without_the_folder_gets_it(tmp_path: Path) -> None:
    library = Repository.new(tmp_path / "bare")
    assert install(library) == NAMES


def locked_to(tool: Repository, library: Repository) -> Lock:
    lock = installing.make_lock(installing.archive_of(tool.path), "https://example.invalid/{commit}.tar", None)
    install(library, lock)
    return lock


def test_drift_is_found_and_nothing_written(tool: Repository, library: Repository) -> None:
    lock = locked_to(tool, library)
    assert installing.check(library.path, TIERS, PRESETS, tool.path) == lock
    (library.path / NAMES[0]).unlink()
    with (library.path / NAMES[2]).open("a") as file:
        file.write("# mine\n")
    with pytest.raises(DataError, match=r"cuda\.yml \(missing\), \.buildkite/xpu\.yml \(changed\)$") as raised:
        installing.check(library.path, TIERS, PRESETS, tool.path)
    assert raised.value.exit_code == 65
    assert not (library.path / NAMES[0]).exists()


def test_a_lock_that_is_another_than_this_tool_is_drift(tool: Repository, library: Repository) -> None:
    lock = locked_to(tool, library)
    other = Lock(lock.address, lock.commit, "0" * 64)
    library.write({installing.LOCK: installing.lock_file(other)})
    with pytest.raises(DataError, match=r"automation\.lock \(changed\)"):
        installing.check(library.path, TIERS, PRESETS, tool.path)
    library.write({installing.LOCK: installing.lock_file(lock)})
    tool.commit({"tasks/empty.py": "x = 2\n"})
    with pytest.raises(DataError, match=f"names commit {lock.commit}, and this tool is at {tool.head}"):
        installing.check(library.path, TIERS, PRESETS, tool.path)
    library.write({installing.LOCK: None})
    with pytest.raises(DataError, match="has no"):
        installing.check(library.path, TIERS, PRESETS, tool.path)


def test_a_tool_that_was_fetched_by_the_lock_checks_by_it(
    tool: Repository, library: Repository, tmp_path: Path
) -> None:
    lock = locked_to(tool, library)
    fetched = tmp_path / "fetched"
    fetched.mkdir()
    assert installing.check(library.path, TIERS, PRESETS, fetched) == lock


# --- The entry pipelines ---


@pytest.mark.parametrize("device", TIERS.bootstraps)
def test_an_entry_pipeline_means_the_same_uploaded_and_pasted(device: str) -> None:
    text = installing.entry_pipeline(TIERS.bootstraps[device], PRESETS)
    assert "$" not in text
    assert scan(text) == ()
    document = yaml.safe_load(text)
    assert faults(document) == []
    (step,) = document["steps"]
    assert step["commands"][-1].endswith(f"' omni-ci pipelines.bootstrap {device}")
    assert step["key"] == "upload-ci-pipeline"
    assert not [word for word in ("vault", "secret", "token", "password") if word in text.lower()]


def test_the_program_can_stand_between_single_quotes() -> None:
    text = installing.program()
    ast.parse(text, feature_version=(3, 6))  # an old python must get as far as saying that it is old
    assert "'" not in text
    assert "$" not in text
    assert "#" not in text


def test_the_first_pipelines_steps_run_the_same_program() -> None:
    start = installing.start()
    assert start.prefix == 'python3 -I -c "$AUTOMATION_START"'
    assert start.env == {"AUTOMATION_START": installing.program()}


# --- A job that runs an entry pipeline ---


class Job:
    """A checkout on an agent, and the shell that runs its entry pipeline's commands."""

    def __init__(self, checkout: Path, cache: Path) -> None:
        self.checkout = checkout
        self.cache = cache

    def run(self, device: str = "cuda", **env: str) -> subprocess.CompletedProcess[str]:
        (step,) = yaml.load(installing.entry_pipeline(TIERS.bootstraps[device], PRESETS), yaml.CSafeLoader)["steps"]
        return self.shell("\n".join(step["commands"]), **env)

    def shell(self, script: str, **env: str) -> subprocess.CompletedProcess[str]:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        around = {
            **os.environ,
            "PATH": path,
            "XDG_CACHE_HOME": str(self.cache),
            "BUILDKITE_PULL_REQUEST": "false",
            **env,
        }
        return subprocess.run(
            ["/bin/sh", "-e", "-c", script], cwd=self.checkout, env=around, capture_output=True, text=True, check=False
        )


@dataclass(frozen=True)
class Built:
    """A library with a lock on its main branch, and the archive that the lock names."""

    library: Repository
    asset: Path
    sha256: str


@pytest.fixture(scope="module")
def built(scenes: Path) -> Built:
    with pytest.MonkeyPatch.context() as patch:
        git_scenes.isolate(patch)
        archive = installing.archive_of(scenes / "tool")
        library = Repository(scenes / "library").clone(scenes / "installed")
        asset = installing.write_archive(archive, scenes / "assets")
        install(library, installing.make_lock(archive, asset.as_uri(), None))
        library.commit()
        library.branch("topic")
        library.clone(scenes / "agent", branch="topic")
        library.git("checkout", "-q", "--orphan", "empty")
        library.git("rm", "-rfq", ".")
        library.commit({"a": ""})
    return Built(library, asset, archive.sha256)


@pytest.fixture
def job(built: Built, scenes: Path, tmp_path: Path) -> Job:
    return Job(shutil.copytree(scenes / "agent", tmp_path / "agent"), tmp_path / "cache")


@pytest.fixture
def asset(built: Built) -> Iterator[Path]:
    """Give a test the archive to spoil."""
    data = built.asset.read_bytes()
    yield built.asset
    built.asset.write_bytes(data)


def expected(built: Built, cache: Path, device: str = "cuda") -> str:
    return f"{cache / 'omni-ci' / built.sha256} omni-ci pipelines.bootstrap {device}\n"


def test_a_job_gets_the_locked_tool_and_keeps_it(job: Job, built: Built, asset: Path) -> None:
    for _ in range(2):  # the second time there is nothing to fetch
        done = job.run()
        assert (done.returncode, done.stdout, done.stderr) == (0, expected(built, job.cache), "")
        asset.unlink(missing_ok=True)
    assert job.run("npu").stdout == expected(built, job.cache, "npu")
    assert [entry.name for entry in (job.cache / "omni-ci").iterdir()] == [built.sha256]
    assert os.access(job.cache / "omni-ci" / built.sha256 / "scripts" / "run", os.X_OK)


def test_steps_of_the_first_pipeline_get_it_too(job: Job, built: Built) -> None:
    start = installing.start()
    done = job.shell(f"{start.prefix} omni-ci pipelines.bootstrap cuda", **start.env)
    assert (done.returncode, done.stdout) == (0, expected(built, job.cache))


def test_another_archive_than_the_locked_one_is_not_unpacked(job: Job, asset: Path) -> None:
    asset.write_bytes(asset.read_bytes().replace(b"import os, sys", b"import os,sys "))
    done = job.run()
    assert done.returncode == 65
    assert done.stderr.startswith(f"error: {asset.as_uri()} is not the archive that ")
    assert not (job.cache / "omni-ci").exists()


@pytest.mark.parametrize(
    ("text", "code"),
    [(None, 66), ("", 65), ('sha256 = "../.."\naddress = "x"\n', 65), ("sha256 = 7\naddress = 7\n", 65), ("\x00", 65)],
)
def test_a_lock_that_is_none_ends_with_a_sentence(job: Job, text: str | None, code: int) -> None:
    lock = job.checkout / installing.LOCK
    lock.unlink()
    if text is not None:
        lock.write_text(text)
    done = job.run()
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith(f"error: {installing.LOCK} ")
    assert done.stderr.count("\n") == 1


def test_an_archive_that_cannot_be_had_is_worth_another_try(job: Job, asset: Path) -> None:
    asset.unlink()
    done = job.run()
    assert (done.returncode, done.stderr.count("\n")) == (75, 1)
    assert "cannot be downloaded" in done.stderr


def fork_of(built: Built, **more: str) -> dict[str, str]:
    repo = built.library.path.as_uri()
    return {
        "BUILDKITE_REPO": repo,
        "BUILDKITE_PULL_REQUEST": "7",
        "BUILDKITE_PULL_REQUEST_REPO": f"{repo}-fork",
        "BUILDKITE_PULL_REQUEST_BASE_BRANCH": "main",
        **more,
    }


EVIL = installing.lock_file(Lock("file:///nowhere/evil.tar", "e" * 40, "e" * 64))


@pytest.mark.parametrize("unknown", [False, True])
def test_a_forks_lock_is_never_read(job: Job, built: Built, unknown: bool) -> None:
    (job.checkout / installing.LOCK).write_text(EVIL)
    env = fork_of(built, **({"BUILDKITE_PULL_REQUEST_REPO": ""} if unknown else {}))
    done = job.run(**env)
    assert (done.returncode, done.stdout) == (0, expected(built, job.cache))
    assert job.run().returncode == 75  # its own is read where it is none of a fork's


def test_a_pull_request_of_our_own_runs_the_lock_that_it_brings(job: Job, built: Built) -> None:
    (job.checkout / installing.LOCK).write_text(EVIL)
    own = fork_of(built, BUILDKITE_PULL_REQUEST_REPO=built.library.path.as_uri())
    assert "evil.tar" in job.run(**own).stderr


@pytest.mark.parametrize(
    ("branch", "code", "words"), [("gone", 75, "cannot be fetched"), ("empty", 66, f"has no {installing.LOCK}")]
)
def test_a_base_branch_that_cannot_be_read(job: Job, built: Built, branch: str, code: int, words: str) -> None:
    done = job.run(**fork_of(built, BUILDKITE_PULL_REQUEST_BASE_BRANCH=branch))
    assert done.returncode == code
    assert words in done.stderr


def test_no_module_of_a_forks_checkout_is_run(job: Job, built: Built) -> None:
    names = set(re.findall(r"\b(?:import|from) ([a-z_]+(?:, [a-z_]+)*)", installing.program()))
    modules = {name for several in names for name in several.split(", ")} | {"hashlib", "shutil", "tarfile"}
    for name in sorted(modules):
        (job.checkout / f"{name}.py").write_text("raise SystemExit('not ours')\n")
    done = job.run(**fork_of(built))
    assert (done.returncode, done.stdout) == (0, expected(built, job.cache)), done.stderr


def test_an_agent_without_python3_says_so(job: Job, tmp_path: Path) -> None:
    (tmp_path / "nothing").mkdir()
    done = job.run(PATH=str(tmp_path / "nothing"))
    assert done.returncode == 78
    assert done.stderr == "error: this agent has no python3; Python 3.11 or newer is needed\n"


def old_python(folder: Path) -> None:
    """Put a `python3` into a folder that takes itself for an old one."""
    real = sys.executable
    folder.mkdir()
    shim = folder / "python3"
    code = 'import sys; sys.version_info = (3, 9, 2); sys.version = "3.9.2 (old)"; exec(sys.argv.pop(1))'
    shim.write_text(f"#!/bin/sh\nshift 2\nexec {real} -I -c '{code}' \"$@\"\n")
    shim.chmod(0o755)


def test_an_agent_whose_python_is_too_old_says_so(job: Job, tmp_path: Path) -> None:
    old_python(tmp_path / "old")
    done = job.run(PATH=str(tmp_path / "old"))
    assert done.returncode == 78
    assert done.stderr == "error: Python 3.11 or newer is needed, and this agent has 3.9.2\n"


def test_a_newer_python_beside_an_old_one_takes_over(job: Job, tmp_path: Path) -> None:
    old_python(tmp_path / "old")
    newer = tmp_path / "old" / "python3.13"
    newer.write_text('#!/bin/sh\nshift $(($# - 3))\necho newer: "$@"\n')
    newer.chmod(0o755)
    done = job.run(PATH=str(tmp_path / "old"))
    assert (done.returncode, done.stdout) == (0, "newer: omni-ci pipelines.bootstrap cuda\n"), done.stderr


names = st.from_regex(r"[A-Za-z0-9_-]{1,8}/[A-Za-z0-9_-]{1,8}", fullmatch=True)
forms = st.sampled_from(
    ["https://github.com/{}.git", "git@github.com:{}.git", "git://github.com/{}.git", "ssh://git@github.com/{}",
     "https://github.com/{}/", "https://evil.invalid/{}.git", "https://github.com.evil.invalid/{}"]
)  # fmt: skip


@given(names, names, forms, forms)
def test_the_program_takes_no_fork_for_ours(one: str, other: str, ours: str, theirs: str) -> None:
    text = installing.program()
    scope: dict[str, object] = {}
    exec("import re\n" + text[text.index("def repository") : text.index("def locked")], scope)
    repository = scope["repository"]
    assert callable(repository)
    first, second = ours.format(one), theirs.format(other)
    if repository(first) == repository(second):
        assert repository_name(first) == repository_name(second)
    assert repository(ours.format(one)) == repository(ours.format(one.upper()))
