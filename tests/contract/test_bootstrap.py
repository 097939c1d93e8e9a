"""The two commands of a fresh machine, as they are run there: real scripts, real venv, real pip and uv.

Only the locked packages are small: one wheel, made here, that brings programs named `nox` and `invoke`. They write down
how they were called, so that what a script starts can be compared word for word.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.wheel_factory import make_wheel

pytestmark = pytest.mark.slow  # together these take longer than the fast set may

REPOSITORY = Path(__file__).parents[2]
FILES = ("bootstrap.py", "interpreter.py", "rehearse", "test")
PROGRAM = b"""
import json, os, pathlib, sys, time

def refuse():
    sys.exit("error: no such index")

def main():
    print(json.dumps({"argv": sys.argv, "cwd": os.getcwd(), "prefix": sys.prefix}), flush=True)
    gate = os.environ.get("SAMPLE_GATE")
    while gate and not pathlib.Path(gate).exists():
        time.sleep(0.02)
    sys.exit(int(os.environ.get("SAMPLE_EXIT", "0")))
"""
PATIENCE = 240.0


@dataclass
class Checkout:
    """A throw-away checkout on a machine with an empty home, whose index is a folder with one wheel."""

    root: Path
    env: dict[str, str]
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def venv(self) -> Path:
        return self.root / ".venv"

    @property
    def mark(self) -> Path:
        return self.venv / "omni-ci-complete.json"

    @property
    def lock(self) -> Path:
        return self.root / "scripts" / "locks" / "dev.txt"

    def command(self, script: str, *arguments: str) -> list[str]:
        return [sys.executable, str(self.root / "scripts" / script), *arguments]

    def run(
        self, script: str, *arguments: str, cwd: Path | None = None, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(script, *arguments),
            cwd=cwd or self.root,
            env=self.env | (env or {}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    def start(self, script: str, *arguments: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
        """Start a script in a process group of its own, its two outputs in files."""
        number = len(self.started)
        with self.output(number, "out").open("w") as out, self.output(number, "err").open("w") as err:
            process = subprocess.Popen(
                self.command(script, *arguments),
                cwd=self.root,
                env=self.env | (env or {}),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                text=True,
                start_new_session=True,
            )
        self.started.append(process)
        return process

    def output(self, number: int, which: str) -> Path:
        return self.root.parent / f"run-{number}.{which}"

    def change_lock(self) -> None:
        with self.lock.open("a") as lock:
            lock.write("# another lock\n")


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def children_of(process: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def running_below(folder: Path) -> list[str]:
    """Return the command lines of living processes that name a folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended
            found.append(entry.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"))
    return [line for line in found if str(folder) in line]


def write_lock(checkout: Path, **digests: str) -> None:
    lock = checkout / "scripts" / "locks" / "dev.txt"
    lock.parent.mkdir(exist_ok=True)
    pins = [f"{name}==1.0 \\\n    --hash=sha256:{digest}\n" for name, digest in digests.items()]
    lock.write_text("# a lock\n" + "".join(pins))


def digest_of(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def hide(folder: Path, *modules: str) -> str:
    """Return a folder for PYTHONPATH that takes modules away, as a distribution does that packs them separately."""
    folder.mkdir()
    lines = ["import sys", *(f"sys.modules[{module!r}] = None" for module in modules)]
    (folder / "sitecustomize.py").write_text("\n".join(lines))
    return str(folder)


@pytest.fixture
def checkout(tmp_path: Path) -> Iterator[Checkout]:
    root = tmp_path / "a checkout with spaces"
    (root / "scripts").mkdir(parents=True)
    for name in FILES:
        shutil.copy2(REPOSITORY / "scripts" / name, root / "scripts" / name)
    wheels, home = tmp_path / "wheels", tmp_path / "home"
    wheels.mkdir()
    home.mkdir()
    programs = b"[console_scripts]\nnox = sample.program:main\ninvoke = sample.program:main\n"
    wheel = make_wheel(wheels, files={"sample/program.py": PROGRAM, "sample-1.0.dist-info/entry_points.txt": programs})
    write_lock(root, sample=digest_of(wheel))
    env = {
        "HOME": str(home),
        "PATH": "/usr/bin:/bin",
        "TMPDIR": str(tmp_path),
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(wheels),
        "PIP_RETRIES": "1",
        # Without ensurepip a venv takes a tenth of the time; the first test has it back.
        "PYTHONPATH": hide(tmp_path / "hidden", "ensurepip"),
    }
    checkout = Checkout(root, env)
    yield checkout
    for process in checkout.started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture
def hanging_index() -> Iterator[tuple[str, threading.Event]]:
    """An index that takes connections and never answers; the event says that somebody has connected."""
    asked, connections = threading.Event(), []
    server = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                connections.append(server.accept()[0])
                asked.set()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.getsockname()[1]}/simple/", asked
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    for connection in connections:
        connection.close()


def only_index(url: str) -> dict[str, str]:
    return {"PIP_NO_INDEX": "0", "PIP_FIND_LINKS": "", "PIP_INDEX_URL": url}


# --- The straight way ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_first_run_makes_the_environment_and_the_second_says_in_one_line_that_it_is_there(checkout: Checkout) -> None:
    del checkout.env["PYTHONPATH"]
    first = checkout.run("test", "--all", "--", "-k", "two words", "", "--", "-x", env={"SAMPLE_EXIT": "5"})
    assert first.returncode == 5, first.stderr
    called = json.loads(first.stdout)
    assert called["argv"] == [
        str(checkout.venv / "bin" / "nox"),
        *["-f", str(checkout.root / "noxfile.py"), "-s", "tests", "--", "--all", "-k", "two words", "", "--", "-x"],
    ]
    assert called["prefix"] == str(checkout.venv)
    lines = first.stderr.splitlines()
    assert lines[0].startswith("making ")
    assert [line.partition(" (")[0] for line in lines[1:-1]] == [
        f"  made .venv with Python {sys.version.split()[0]}",
        "  installed the locked packages",
    ]
    before = checkout.mark.stat()

    second = checkout.run("test")
    assert second.returncode == 0
    assert second.stderr == f"environment ready: {checkout.venv}\n"
    assert json.loads(second.stdout)["argv"][-1:] == ["--"]
    assert checkout.mark.stat().st_ino == before.st_ino
    assert sorted(path.name for path in checkout.root.iterdir()) == [".venv", ".venv.lock", "scripts"]
    assert {path.name for path in Path(checkout.env["HOME"]).iterdir()} <= {".cache"}


def test_rehearse_runs_the_main_job_where_the_caller_stands(checkout: Checkout, tmp_path: Path) -> None:
    done = checkout.run("rehearse", "--source", "../lib", cwd=tmp_path, env={"SAMPLE_EXIT": "65"})
    assert done.returncode == 65, done.stderr
    called = json.loads(done.stdout)
    assert called["argv"][1:] == ["-r", str(checkout.root), "release.rehearse", "nightly", "--source", "../lib"]
    assert called["cwd"] == str(tmp_path)


@pytest.mark.parametrize("words", [["--al"], ["tests/unit"], ["--all", "-k", "x"], ["-k", "x", "--", "--all"]])
def test_unknown_words_are_refused_before_anything_is_made(checkout: Checkout, words: list[str]) -> None:
    done = checkout.run("test", *words)
    assert done.returncode == 64
    assert "usage: scripts/test" in done.stderr
    assert "Traceback" not in done.stderr
    assert not checkout.venv.exists()


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["--all", "--help"]])
def test_help_explains_each_word_and_makes_nothing(checkout: Checkout, words: list[str]) -> None:
    done = checkout.run("test", *words)
    assert (done.returncode, done.stderr) == (0, "")
    assert "usage: scripts/test [--all] [--" in done.stdout
    for word in ("--all", "--"):
        assert [line for line in done.stdout.splitlines() if line.split()[:1] == [word]], word
    assert not checkout.venv.exists()


# --- Other installers ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_without_ensurepip_the_systems_pip_fills_the_environment(checkout: Checkout) -> None:
    done = checkout.run("test")
    assert done.returncode == 0, done.stderr
    assert "to be filled by the system's pip" in done.stderr
    assert json.loads(done.stdout)["prefix"] == str(checkout.venv)


@pytest.mark.slow
@pytest.mark.parametrize("also_missing", [(), ("venv",)], ids=["pip missing", "pip and venv missing"])
def test_without_any_pip_a_uv_on_path_fills_the_environment(
    checkout: Checkout, tmp_path: Path, also_missing: tuple[str, ...]
) -> None:
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    assert uv is not None, "uv is one of the locked packages"
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "uv").symlink_to(uv)
    done = checkout.run(
        "test",
        env={
            "PATH": str(tmp_path / "bin"),
            "PYTHONPATH": hide(tmp_path / "no-pip", "ensurepip", "pip", *also_missing),
            "UV_OFFLINE": "1",
            "UV_FIND_LINKS": checkout.env["PIP_FIND_LINKS"],
        },
    )
    assert done.returncode == 0, done.stderr
    assert "to be filled by uv" in done.stderr
    assert json.loads(done.stdout)["prefix"] == str(checkout.venv)
    assert list(checkout.venv.glob("lib/python3*/site-packages/sample/__pycache__/program.*.pyc"))


@pytest.mark.slow
def test_where_the_locked_uv_cannot_install_pip_does(checkout: Checkout) -> None:
    wheels = Path(checkout.env["PIP_FIND_LINKS"])
    # Installed like the real one, but it understands no index of this machine.
    fails = b"[console_scripts]\nuv = sample.program:refuse\n"
    uv = make_wheel(wheels, name="uv", files={"uv-1.0.dist-info/entry_points.txt": fails})
    write_lock(checkout.root, sample=digest_of(wheels / "sample-1.0-py3-none-any.whl"), uv=digest_of(uv))
    done = checkout.run("test")
    assert done.returncode == 0, done.stderr
    assert [line.partition(" (")[0] for line in done.stderr.splitlines()[2:-1]] == [
        "  installed the locked uv",
        "  uv could not install from the index that pip is configured with; pip does",
        "  installed the locked packages",
    ]
    assert json.loads(done.stdout)["prefix"] == str(checkout.venv)


def test_without_any_installer_one_sentence_names_what_to_install(checkout: Checkout, tmp_path: Path) -> None:
    bare = {"PATH": str(tmp_path), "PYTHONPATH": hide(tmp_path / "no-pip", "ensurepip", "pip")}
    done = checkout.run("test", env=bare)
    assert done.returncode == 78
    error = done.stderr.splitlines()[-1]
    assert error.startswith("error: ")
    assert "python3-venv" in error
    assert "Traceback" not in done.stderr


# --- What makes an environment unfit, and its repair -----------------------------------------------------------------


@pytest.mark.slow
def test_a_moved_checkout_gets_a_new_environment(checkout: Checkout) -> None:
    assert checkout.run("test").returncode == 0
    checkout.root = checkout.root.rename(checkout.root.with_name("moved"))
    done = checkout.run("test")
    assert done.returncode == 0, done.stderr
    assert "made in another place" in done.stderr
    assert json.loads(done.stdout)["prefix"] == str(checkout.venv)


@pytest.mark.slow
def test_a_changed_lock_is_installed(checkout: Checkout) -> None:
    assert checkout.run("test").returncode == 0
    checkout.change_lock()
    assert "the lock has changed" in checkout.run("test").stderr
    assert "environment ready:" in checkout.run("test").stderr


@pytest.mark.slow
def test_a_foreign_folder_behind_a_link_survives(checkout: Checkout, tmp_path: Path) -> None:
    theirs = tmp_path / "somebody's environment"
    theirs.mkdir()
    (theirs / "precious").write_text("kept")
    checkout.venv.symlink_to(theirs)
    done = checkout.run("test")
    assert done.returncode == 0, done.stderr
    assert not checkout.venv.is_symlink()
    assert (theirs / "precious").read_text() == "kept"


# --- At once, killed, interrupted ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_many_at_once_make_one_environment(checkout: Checkout) -> None:
    processes = [checkout.start("test", "--", str(number)) for number in range(4)]
    assert [process.wait(PATIENCE) for process in processes] == [0, 0, 0, 0]
    said = [checkout.output(number, "err").read_text() for number in range(4)]
    assert sum(text.count("\nmaking ") + text.startswith("making ") for text in said) == 1, said
    for number in range(4):
        assert json.loads(checkout.output(number, "out").read_text())["argv"][-1] == str(number)


@pytest.mark.slow
def test_an_environment_in_use_is_not_replaced(checkout: Checkout, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    user = checkout.start("test", env={"SAMPLE_GATE": str(gate)})
    wait_for(lambda: checkout.output(0, "out").read_text() != "")
    before = checkout.mark.stat().st_ino
    checkout.change_lock()
    checkout.start("test")
    wait_for(lambda: "waiting for it" in checkout.output(1, "err").read_text())
    assert checkout.mark.stat().st_ino == before
    gate.touch()
    assert user.wait(PATIENCE) == 0
    assert checkout.started[1].wait(PATIENCE) == 0
    assert "the lock has changed" in checkout.output(1, "err").read_text()


@pytest.mark.slow
def test_a_run_killed_while_installing_is_completed_by_the_next(
    checkout: Checkout, hanging_index: tuple[str, threading.Event]
) -> None:
    url, asked = hanging_index
    process = checkout.start("test", env=only_index(url))
    assert asked.wait(PATIENCE)
    (installer,) = children_of(process.pid)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not checkout.mark.exists()

    # The installer outlives its parent: the next run must not work beside it in the same folder.
    checkout.start("test")
    wait_for(lambda: "waiting for it" in checkout.output(1, "err").read_text())
    os.killpg(installer, signal.SIGKILL)
    assert checkout.started[1].wait(PATIENCE) == 0
    assert "is not finished" in checkout.output(1, "err").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_run_stops_its_installer_and_is_completed_by_the_next(
    checkout: Checkout, hanging_index: tuple[str, threading.Event], number: signal.Signals, code: int
) -> None:
    url, asked = hanging_index
    process = checkout.start("test", env=only_index(url))
    assert asked.wait(PATIENCE)
    os.kill(process.pid, number)
    assert process.wait(PATIENCE) == code
    assert "Traceback" not in checkout.output(0, "err").read_text()
    done = checkout.run("test")
    assert done.returncode == 0, done.stderr
    assert "waiting for it" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)], ids=["INT", "TERM", "HUP"]
)
def test_a_run_stopped_while_pip_is_put_into_it_is_completed_by_the_next_at_once(
    checkout: Checkout, number: signal.Signals, code: int
) -> None:
    del checkout.env["PYTHONPATH"]
    process = checkout.start("test")
    # The environment's own interpreter runs ensurepip, as a child of `python -m venv`.
    wait_for(lambda: any("ensurepip" in line for line in running_below(checkout.venv)))
    os.kill(process.pid, number)
    assert process.wait(PATIENCE) == code
    assert running_below(checkout.venv) == []
    assert "Traceback" not in checkout.output(0, "err").read_text()
    done = checkout.run("test")
    assert done.returncode == 0, done.stderr


# --- Failures that were foreseen -------------------------------------------------------------------------------------


def one_error(done: subprocess.CompletedProcess[str]) -> str:
    """Return the error line of a failed set-up, which must be the last line and the only one of its kind."""
    lines = done.stderr.splitlines()
    assert [line for line in lines if line.startswith("error: ")] == lines[-1:], done.stderr
    assert "Traceback" not in done.stderr
    return lines[-1]


@pytest.mark.slow
@pytest.mark.parametrize("retries", ["0", "1"])
def test_an_index_that_cannot_be_reached_is_a_temporary_failure(checkout: Checkout, retries: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        closed = server.getsockname()[1]
    done = checkout.run(
        "test", env=only_index(f"http://somebody:hunter2@127.0.0.1:{closed}/simple/") | {"PIP_RETRIES": retries}
    )
    assert done.returncode == 75
    assert "cannot be reached" in one_error(done)
    assert "hunter2" not in done.stderr
    assert "hunter2" not in (checkout.venv / "setup.log").read_text()
    assert checkout.run("test").returncode == 0


def test_a_package_that_the_index_lacks_is_a_refusal(checkout: Checkout, tmp_path: Path) -> None:
    done = checkout.run("test", env={"PIP_FIND_LINKS": str(tmp_path)})
    assert done.returncode == 69
    assert "does not give a locked package" in one_error(done)


def test_a_lock_that_is_no_text_is_bad_data_and_nothing_is_made(checkout: Checkout) -> None:
    checkout.lock.write_bytes(b"sample==1.0 # \xff\n")
    done = checkout.run("test")
    assert done.returncode == 65
    assert "scripts/locks/dev.txt is not UTF-8" in one_error(done)
    assert not checkout.venv.exists()


def test_a_package_with_other_bytes_is_bad_data(checkout: Checkout) -> None:
    write_lock(checkout.root, sample="0" * 64)
    done = checkout.run("test")
    assert done.returncode == 65
    assert "is not the one that the lock names" in one_error(done)
    assert not checkout.mark.exists()


def test_a_checkout_that_cannot_be_written_to_is_a_configuration_error(checkout: Checkout) -> None:
    (checkout.root / ".venv.lock").mkdir()
    done = checkout.run("test")
    assert done.returncode == 78
    assert ".venv.lock" in one_error(done)


def test_a_missing_lock_is_named(checkout: Checkout) -> None:
    checkout.lock.unlink()
    checkout.venv.mkdir()
    done = checkout.run("test")
    assert done.returncode == 66
    assert "scripts/locks/dev.txt" in one_error(done)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["PIP_TARGET", "PIP_PREFIX", "PIP_USER", "PIP_CONSTRAINT", "PIP_REQUIRE_VIRTUALENV"])
def test_settings_for_other_installations_do_not_divert_this_one(checkout: Checkout, tmp_path: Path, name: str) -> None:
    constraint = tmp_path / "elsewhere"
    constraint.write_text("sample==9.9\n")
    value = "1" if name in {"PIP_USER", "PIP_REQUIRE_VIRTUALENV"} else str(constraint)
    done = checkout.run("test", env={name: value})
    assert done.returncode == 0, done.stderr
