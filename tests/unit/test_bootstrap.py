"""The parts of the set-up that need no real environment: which interpreter, which fault, what a lock may hold."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import locking
import pytest
from bootstrap import Builder, Environment, Stop, pip_settings, uv_settings
from interpreter import newer_pythons

pytestmark = pytest.mark.slow  # together these take longer than the fast set may

REPOSITORY = Path(__file__).parents[2]
SCRIPTS = REPOSITORY / "scripts"


# --- The interpreter -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["interpreter.py", "rehearse", "test", "lock"])
def test_what_an_old_interpreter_reads_has_no_new_syntax(name: str) -> None:
    ast.parse((SCRIPTS / name).read_text(encoding="utf-8"), feature_version=(3, 6))


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_the_newest_interpreter_that_starts_is_found(tmp_path: Path) -> None:
    good = f'#!/bin/sh\nexec "{sys.executable}" "$@"\n'
    program(tmp_path / "a" / "python3.11", good)
    program(tmp_path / "a" / "python3.9", good)
    program(tmp_path / "a" / "python3.12-config", good)
    program(tmp_path / "b" / "python3.13", "#!/bin/sh\nexit 127\n")  # a shim for a version that is not installed
    program(tmp_path / "b" / "python3.12", good)
    program(tmp_path / "b" / "python3.14", good).chmod(0o644)
    program(tmp_path / "c" / "python3.12", good)
    path = os.pathsep.join(str(tmp_path / name) for name in ("missing", "a", "b", "c"))
    found = [Path(python).relative_to(tmp_path).as_posix() for python in newer_pythons(path)]
    assert found == ["b/python3.12", "c/python3.12", "a/python3.11"]


def old_pythons() -> list[str]:
    """Return the interpreters of this machine that are too old, one of each version."""
    # Before PATH, where pyenv may have a shim for a version that it does not start.
    places = [*map(str, Path.home().glob(".pyenv/versions/3.*/bin")), *os.environ["PATH"].split(os.pathsep)]
    found = [shutil.which(f"python3.{minor}", path=os.pathsep.join(places)) for minor in range(6, 11)]
    return [
        python
        for python in found
        if python and subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0
    ]


@pytest.mark.parametrize("script", ["test", "rehearse", "lock"])
def test_a_real_old_interpreter_steps_aside_or_says_what_is_needed(tmp_path: Path, script: str) -> None:
    olds = old_pythons()
    if not olds:
        pytest.skip("no Python older than 3.11 here")
    for name in (script, "interpreter.py"):
        shutil.copy2(SCRIPTS / name, tmp_path / name)
    # What a new interpreter is to find in place of the set-up.
    (tmp_path / "bootstrap.py").write_text("import sys; print(*sys.version_info[:2], *sys.argv[1:]); sys.exit(7)")
    (tmp_path / "with").mkdir()
    (tmp_path / "with" / f"python3.{sys.version_info.minor}").symlink_to(sys.executable)

    def run(old: str, path: Path) -> subprocess.CompletedProcess[str]:
        argv = [old, str(tmp_path / script), "two words"]
        return subprocess.run(argv, env={"PATH": str(path)}, capture_output=True, text=True, check=False)

    for old in olds:
        alone = run(old, tmp_path / "nothing")
        assert (alone.returncode, alone.stdout) == (78, "")
        assert alone.stderr.startswith("error: Python 3.11 or newer is needed")
        assert len(alone.stderr.splitlines()) == 1
        helped = run(old, tmp_path / "with")
        assert (helped.returncode, helped.stderr) == (7, "")
        assert helped.stdout.split() == [*map(str, sys.version_info[:2]), "two", "words"]


# --- What is wrong with an environment -------------------------------------------------------------------------------


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    """Return a finished environment as the set-up leaves it, its interpreter a link to this one."""
    environment = Environment(tmp_path / "checkout")
    environment.lock.parent.mkdir(parents=True)
    environment.lock.write_text("a lock\n")
    environment.python.parent.mkdir(parents=True)
    environment.python.symlink_to(sys.executable)
    environment.finish(environment.wanted())
    return environment


def test_a_finished_environment_has_no_fault(environment: Environment) -> None:
    assert environment.fault() is None


def mark_of(environment: Environment) -> Path:
    return environment.folder / "omni-ci-complete.json"


def edit_mark(environment: Environment, **changes: object) -> None:
    mark = json.loads(mark_of(environment).read_text())
    mark_of(environment).write_text(json.dumps(mark | changes))


def cut_mark(environment: Environment) -> None:
    mark_of(environment).write_bytes(mark_of(environment).read_bytes()[:20])


def make_mark_a_folder(environment: Environment) -> None:
    mark_of(environment).unlink()
    mark_of(environment).mkdir()


def make_it_a_file(environment: Environment) -> None:
    shutil.rmtree(environment.folder)
    environment.folder.write_text("")


def make_it_a_dangling_link(environment: Environment) -> None:
    shutil.rmtree(environment.folder)
    environment.folder.symlink_to("gone")


def replace_python(environment: Environment, text: str | None) -> None:
    environment.python.unlink()
    if text is not None:
        program(environment.python, text)


FAULTS: dict[str, tuple[Callable[[Environment], object], str]] = {
    "no environment": (lambda env: shutil.rmtree(env.folder), "there is none yet"),
    "no mark": (lambda env: mark_of(env).unlink(), "not finished"),
    "half a mark": (cut_mark, "not finished"),
    "an empty mark": (lambda env: mark_of(env).write_bytes(b""), "not finished"),
    "a mark of other bytes": (lambda env: mark_of(env).write_bytes(b"\xff\x00\xfe"), "not finished"),
    "a mark of another shape": (lambda env: mark_of(env).write_text("[1]"), "not finished"),
    "a mark that lacks a key": (lambda env: mark_of(env).write_text("{}"), "not finished"),
    "a folder as mark": (make_mark_a_folder, "not finished"),
    "a file as environment": (make_it_a_file, "not finished"),
    "a link to nothing": (make_it_a_dangling_link, "not finished"),
    "another lock": (lambda env: env.lock.write_text("another lock\n"), "the lock has changed"),
    "a mark with another lock": (lambda env: edit_mark(env, lock="0" * 64), "the lock has changed"),
    "another place": (lambda env: edit_mark(env, path="/elsewhere/.venv"), "another place"),
    "a mark with another Python": (lambda env: edit_mark(env, python="3.1"), "its Python 3.1 is gone"),
    "no Python": (lambda env: replace_python(env, None), "is gone"),
    "a Python that does not start": (lambda env: replace_python(env, "#!/bin/sh\nexit 1\n"), "is gone"),
    "a Python of another version": (lambda env: replace_python(env, "#!/bin/sh\necho 3.99\n"), "is gone"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_seen_and_removed(environment: Environment, name: str) -> None:
    damage, reason = FAULTS[name]
    damage(environment)
    assert reason in (environment.fault() or "no fault")
    environment.remove()
    assert not os.path.lexists(environment.folder)


def test_removing_takes_the_mark_first(environment: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        environment.remove()
    assert environment.folder.exists()
    assert "not finished" in (environment.fault() or "")


def test_what_is_still_written_to_is_removed_when_its_writer_ends(environment: Environment) -> None:
    end = time.monotonic() + 0.5

    def write() -> None:
        number = 0
        while time.monotonic() < end:
            number += 1
            deep = environment.folder / "lib" / str(number)
            deep.mkdir(parents=True, exist_ok=True)
            (deep / "file").touch()

    def persist() -> None:
        while time.monotonic() < end:
            try:
                write()
            except FileNotFoundError:  # removed between two lines
                continue

    writers = [threading.Thread(target=persist) for _ in range(3)]
    for writer in writers:
        writer.start()
    try:
        while time.monotonic() < end:
            environment.remove()
    finally:
        for writer in writers:
            writer.join()
    environment.remove()
    assert not environment.folder.exists()


@pytest.mark.parametrize("content", [b"\xff", b"a==1.0 # \xe9t\xe9\n", "a==1.0\n".encode("utf-16")])
def test_a_lock_that_is_no_text_is_named(environment: Environment, content: bytes) -> None:
    environment.lock.write_bytes(content)
    with pytest.raises(Stop, match=r"dev\.txt is not UTF-8") as stop:
        environment.fault()
    assert stop.value.code == 65


# --- Children --------------------------------------------------------------------------------------------------------

TREE = """
import os, signal, subprocess, sys, time
if {deaf}:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
# Like the ensurepip of a `python -m venv`: its output is not ours, and it keeps on writing.
writes = "import os, sys, time\\nwhile True: open(sys.argv[1], 'w').close(); time.sleep(0.01)"
inner = subprocess.Popen([sys.executable, "-c", writes, {file!r}], stdout=subprocess.DEVNULL)
while not os.path.exists({file!r}):
    time.sleep(0.01)
print(inner.pid, flush=True)
inner.wait()
"""


@pytest.mark.parametrize("deaf", [False, True], ids=["ends on TERM", "ignores TERM"])
@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_a_stopped_step_leaves_no_child_of_its_child_behind(
    environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: type[BaseException], deaf: bool
) -> None:
    file = tmp_path / "written"
    monkeypatch.setattr("bootstrap.GRACE", 0.3)

    def show(_line: str) -> None:
        raise stop

    argv = [sys.executable, "-c", TREE.format(deaf=deaf, file=str(file))]
    with (tmp_path / "lock").open("w") as lock, pytest.raises(stop):
        Builder(environment, lock.fileno())._run(argv, show, {})
    file.unlink()
    time.sleep(0.1)
    assert not file.exists()


# --- pip's settings, for uv ------------------------------------------------------------------------------------------


def real_pip_config(text: str, **env: str) -> str:
    """Return what the real pip lists for a configuration file and variables."""
    argv = [sys.executable, "-m", "pip", "config", "list"]
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:
        file.write(text)
        file.flush()
        environ = {"PATH": os.environ["PATH"], "HOME": os.devnull, "PIP_CONFIG_FILE": file.name, **env}
        return subprocess.run(argv, env=environ, capture_output=True, text=True, check=True).stdout


def test_pips_settings_reach_uv_and_the_nearest_wins() -> None:
    listed = real_pip_config(
        "[global]\nindex-url = https://u:p%40ss@index.example/simple\ncert = /global.pem\n"
        "trusted-host = a.example\n  b.example\n"
        "proxy = http://proxy.example:3128\nno-index = false\n"
        "[install]\ncert = /install.pem\nfind-links =\n  /one\n  /two\n[download]\ncert = /download.pem\n",
        PIP_EXTRA_INDEX_URL="https://one.example/simple https://two.example/simple",
        PIP_TRUSTED_HOST="c.example",
    )
    assert uv_settings(listed) == (
        [],
        {
            "UV_DEFAULT_INDEX": "https://u:p%40ss@index.example/simple",
            "UV_INDEX": "https://one.example/simple https://two.example/simple",
            "UV_INDEX_STRATEGY": "unsafe-best-match",
            "UV_FIND_LINKS": "/one,/two",
            "UV_INSECURE_HOST": "c.example",
            "SSL_CERT_FILE": "/install.pem",
            "ALL_PROXY": "http://proxy.example:3128",
        },
    )


@pytest.mark.parametrize(
    ("value", "options"), [("1", ["--no-index"]), ("true", ["--no-index"]), ("0", []), ("off", [])]
)
def test_no_index_means_the_same_to_uv(value: str, options: list[str]) -> None:
    assert uv_settings(real_pip_config("", PIP_NO_INDEX=value))[0] == options


@pytest.mark.parametrize(("text", "env"), [("[global]\nretries = 0\n", {}), ("", {"PIP_RETRIES": "0"})])
def test_a_pip_that_never_tries_again_is_known(text: str, env: dict[str, str]) -> None:
    assert pip_settings(real_pip_config(text, **env))["retries"] == "0"
    assert "retries" not in pip_settings(real_pip_config(""))


def test_a_pip_without_settings_gives_uv_none() -> None:
    assert uv_settings("") == ([], {"UV_INDEX_STRATEGY": "unsafe-best-match"})


# --- The locks -------------------------------------------------------------------------------------------------------

GROUPS = '[project]\nrequires-python = ">=3.11"\n[dependency-groups]\nrunner = ["a>=1"]\n'
DEV = 'dev = [{ include-group = "runner" }, "b>=2"]\n'
PIN = (
    "a==1.0 ; python_full_version < '3.12' \\\n    --hash=sha256:"
    + "a" * 64
    + " \\\n    --hash=sha256:"
    + "b" * 64
    + "\n"
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a project whose two locks are in order."""
    (tmp_path / "scripts" / "locks").mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text(GROUPS + DEV)
    for group in locking.GROUPS:
        text = f"# made by a test\n# groups: {locking.fingerprint(tmp_path, group)}\n{PIN}"
        (tmp_path / "scripts" / "locks" / f"{group}.txt").write_text(text)
    return tmp_path


def test_the_locks_of_this_repository_are_in_order() -> None:
    locking.check(REPOSITORY)


def test_locks_in_order_pass_whatever_order_their_group_is_written_in(project: Path) -> None:
    locking.check(project)
    (project / "pyproject.toml").write_text(GROUPS + 'dev = ["b>=2", { include-group = "runner" }]\n')
    locking.check(project)


@pytest.mark.parametrize(
    ("table", "stale"),
    [
        (GROUPS + 'dev = [{ include-group = "runner" }, "b>=3"]\n', "dev.txt"),
        (GROUPS + 'dev = [{ include-group = "runner" }, "b>=2", "c"]\n', "dev.txt"),
        (GROUPS.replace("a>=1", "a>=2") + 'dev = ["a>=1", "b>=2"]\n', "runner.txt"),
        ((GROUPS + DEV).replace(">=3.11", ">=3.12"), "dev.txt"),
    ],
)
def test_a_lock_that_is_older_than_its_group_is_named(project: Path, table: str, stale: str) -> None:
    (project / "pyproject.toml").write_text(table)
    with pytest.raises(Stop, match=rf"{stale} is older") as stop:
        locking.check(project)
    assert stop.value.code == 65


def test_a_missing_lock_is_named(project: Path) -> None:
    (project / "scripts" / "locks" / "runner.txt").unlink()
    with pytest.raises(Stop, match=r"runner\.txt"):
        locking.check(project)


@pytest.mark.parametrize(
    "line",
    [
        "--index-url https://index.example/simple",
        "-i https://index.example/simple",
        "--extra-index-url=https://index.example/simple",
        "--find-links /home/somebody/wheels",
        "--trusted-host index.example",
        "-r other.txt",
        "b @ https://index.example/b-1.0.tar.gz --hash=sha256:" + "a" * 64,
        "b==1.0",
        "b>=1.0 --hash=sha256:" + "a" * 64,
        "b==1.0 --hash=md5:" + "a" * 32,
        "b==1.0 --hash=sha256:" + "a" * 63,
        "b==1.0 --index-url https://index.example/simple --hash=sha256:" + "a" * 64,
        "b==1.0 --hash=sha256:" + "a" * 64 + " --index-url https://index.example/simple",
    ],
)
def test_a_lock_names_no_index_and_pins_every_line_by_hash(line: str) -> None:
    assert locking.content_fault(PIN) is None
    assert locking.content_fault(PIN + line + "\n") is not None
    assert locking.content_fault(line + "\n" + PIN) is not None


def test_an_empty_lock_is_a_fault() -> None:
    assert locking.content_fault("# nothing\n\n") == "is empty"


@pytest.mark.parametrize("words", [["--chek"], ["--check", "--upgrade"], ["dev"]])
def test_unknown_words_of_the_lock_script_are_refused(project: Path, words: list[str]) -> None:
    with pytest.raises(Stop, match="usage: scripts/lock") as stop:
        locking.lock(project, words)
    assert stop.value.code == 64
