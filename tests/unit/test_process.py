"""The process door, with real processes and real signals."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tasks.support.command_line import Command, CommandFailedError, CommandTimedOutError, last_useful_line
from tasks.support.errors import ConfigurationError, DataError, MissingInputError, UsageError
from tasks.support.process import capture, stream
from tasks.support.settings import CHECKOUT

pytestmark = pytest.mark.slow  # together these take longer than the fast set may

HERE = Path("/")
PATIENCE = 60.0

SHOW = "import json, os, sys; print(json.dumps([sys.argv[1:], os.getcwd(), os.environ.get('A'), 'GONE' in os.environ]))"


def python(code: str, *words: str) -> list[str]:
    return [sys.executable, "-c", code, *words]


def wait_until(happened: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < until, "it never happened"
        time.sleep(0.01)


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except FileNotFoundError:
        return False


def pid_in(file: Path) -> int:
    wait_until(lambda: file.exists() and file.read_text().endswith("\n"))
    return int(file.read_text())


# What a child is given


def test_our_stdin_is_not_the_childs() -> None:
    driver = (
        "from pathlib import Path; from tasks.support.process import capture; print(capture(['cat'], cwd=Path('/')))"
    )
    done = subprocess.run(
        python(driver),
        input=b"ours",
        capture_output=True,
        cwd=CHECKOUT,
        check=True,
        env={**os.environ, "PYTHONPATH": "."},
    )
    assert b"stdout=b''" in done.stdout


@pytest.mark.parametrize("size", [1, 4096, 3_000_000])
def test_given_bytes_arrive_whole_while_output_flows_back(size: int) -> None:
    data = os.urandom(size)
    assert capture(["cat"], cwd=HERE, stdin=data).stdout == data


def test_a_child_that_does_not_read_its_stdin_is_no_error() -> None:
    assert capture(["true"], cwd=HERE, stdin=b"x" * 3_000_000).code == 0


def test_environment_is_inherited_with_the_changes_and_the_folder_is_explicit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GONE", "1")
    monkeypatch.setenv("A", "before")
    assert json.loads(capture(python(SHOW), cwd=tmp_path).text) == [[], str(tmp_path), "before", True]
    changed = capture(python(SHOW), cwd=tmp_path, env={"A": "after", "GONE": None}).text
    assert json.loads(changed) == [[], str(tmp_path), "after", False]
    assert os.environ["A"] == "before"


# An address would be redacted on purpose, and so would no longer be the same.
WORDS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12).filter(
    lambda text: "://" not in text
)


@hypothesis_settings(max_examples=25, deadline=None)
@given(st.lists(WORDS, max_size=4), WORDS)
def test_the_shown_line_does_the_same_when_pasted_into_a_shell(words: list[str], value: str) -> None:
    os.environ["GONE"] = "1"
    try:
        command = Command(python(SHOW, *words), HERE, {"A": value, "GONE": None}, ())
        pasted = subprocess.run(["/bin/bash", "-c", str(command)], capture_output=True, check=True)
    finally:
        del os.environ["GONE"]
    assert json.loads(pasted.stdout) == [words, "/", value, False]


def test_the_shown_line_holds_only_what_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAME", "x")
    monkeypatch.delenv("NEVER", raising=False)
    assert str(Command(["true"], Path.cwd(), {"SAME": "x", "NEVER": None}, ())) == "true"


# Secrets


def test_secrets_appear_in_no_line_and_no_error(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYPI_TOKEN", "hush-known")
    words = ["hush-known", "hush-given", "https://me:hush-url@host/x?token=hush-query"]
    argv = python("import sys; sys.exit('error: ' + ' '.join(sys.argv[1:]))", *words)
    changes = {"TWINE_PASSWORD": "hush-variable", "OTHER": "a hush-variable inside"}
    with pytest.raises(CommandFailedError) as failed:
        capture(argv, cwd=HERE, env=changes, show=True, secrets=["hush-given"])
    shown = capfd.readouterr()
    said = f"{shown.out}{shown.err}{failed.value.message}{failed.value.hint}"
    assert "hush" not in said.replace("a hush", "")
    assert "error: *** ***" in failed.value.message
    assert "TWINE_PASSWORD=***" in shown.err


# How it ends


def test_exit_code_output_and_the_useful_line_of_a_failure() -> None:
    argv = python("import sys; print('out'); print('error: the cause\\nadvice', file=sys.stderr); sys.exit(7)")
    quiet = capture(argv, cwd=HERE, check=False)
    assert (quiet.code, quiet.stdout, quiet.stderr) == (7, b"out\n", b"error: the cause\nadvice\n")
    with pytest.raises(CommandFailedError, match="failed with exit code 7: error: the cause") as failed:
        capture(argv, cwd=HERE)
    assert failed.value.code == 7
    assert failed.value.message.count("\n") == 0


def test_a_child_ended_by_a_signal_has_128_and_its_number() -> None:
    argv = ["sh", "-c", "kill -KILL $$"]
    assert capture(argv, cwd=HERE, check=False).code == 128 + signal.SIGKILL
    with pytest.raises(CommandFailedError, match="sh was ended by SIGKILL"):
        stream(argv, cwd=HERE)


def test_a_childs_own_124_is_not_taken_for_our_timeout() -> None:
    with pytest.raises(CommandFailedError, match="failed with exit code 124") as failed:
        capture(["sh", "-c", "exit 124"], cwd=HERE, timeout=PATIENCE)
    assert not isinstance(failed.value, CommandTimedOutError)


@pytest.mark.parametrize(
    ("said", "line"),
    [
        (b"", ""),
        (b"\n \n", ""),
        (b"one\ntwo\n\n", "two"),
        (b"fatal: no\nhint: do\n", "fatal: no"),
        (b"ERROR: first\nerror: second\nbye", "error: second"),
        (b"Traceback ...\n  File x\nmod.SomeError: told\n", "mod.SomeError: told"),
        (b"\x1b[31merror: red\x1b[0m\r\n", "error: red"),
        (b"10%\r50%\rerror: late", "error: late"),
        (b"\xff\xfe bad", "\ufffd\ufffd bad"),
        (b"x" * 1000, "x" * 299 + "…"),
    ],
)
def test_last_useful_line(said: bytes, line: str) -> None:
    assert last_useful_line(said) == line


def test_stream_hands_our_outputs_through(capfd: pytest.CaptureFixture[str]) -> None:
    argv = ["sh", "-c", "echo out; echo err >&2; exit 3"]
    assert stream(argv, cwd=HERE, check=False) == 3
    shown = capfd.readouterr()
    assert shown.out == "out\n"
    assert shown.err == f"+ cd / && {shlex.join(argv)}\nerr\n"
    stream(argv, cwd=HERE, check=False, show=False, to_stderr=True)
    shown = capfd.readouterr()
    assert (shown.out, shown.err) == ("", "out\nerr\n")


def in_another_python(code: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    return subprocess.run(
        python(code), capture_output=True, env=environment, check=True, text=True, timeout=PATIENCE
    ).stdout


def test_what_we_printed_before_comes_before_what_the_child_prints() -> None:
    code = """
from pathlib import Path
from tasks.support.process import stream
print("before")
stream(["echo", "child"], cwd=Path("/"))
print("after")
"""
    assert in_another_python(code) == "before\nchild\nafter\n"


def test_stderr_keeps_the_order_of_child_and_grandchild() -> None:
    script = "for i in 1 2 3; do echo child $i >&2; sh -c 'echo grand $0 >&2' $i; done"
    lines = capture(["sh", "-c", script], cwd=HERE).stderr.split(b"\n")
    assert lines == [b"child 1", b"grand 1", b"child 2", b"grand 2", b"child 3", b"grand 3", b""]


# What cannot start


def test_a_missing_program_says_what_to_install() -> None:
    with pytest.raises(ConfigurationError, match="no-such-tool is not installed") as missing:
        capture(["no-such-tool"], cwd=HERE)
    assert missing.value.hint == "install no-such-tool and run this again"


def test_the_childs_path_decides(tmp_path: Path) -> None:
    tool = tmp_path / "mytool"
    tool.write_text("#!/bin/sh\necho mine\n")
    tool.chmod(0o755)
    assert capture(["mytool"], cwd=HERE, env={"PATH": f"{tmp_path}:/bin"}).text == "mine\n"
    assert capture(["./mytool"], cwd=tmp_path).text == "mine\n"
    with pytest.raises(ConfigurationError, match="mytool is not installed"):
        capture(["mytool"], cwd=HERE, env={"PATH": "/nowhere"})


@pytest.mark.parametrize(("text", "mode"), [("no program", 0o755), ("#!/no/such/interpreter\n", 0o755)])
def test_files_that_cannot_run_are_foreseen(tmp_path: Path, text: str, mode: int) -> None:
    file = tmp_path / "odd"
    file.write_text(text)
    file.chmod(mode)
    with pytest.raises(ConfigurationError, match="odd cannot be started"):
        capture([file], cwd=HERE)


def test_wrong_requests_are_refused(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match="does not exist"):
        capture(["true"], cwd=tmp_path / "nowhere")
    with pytest.raises(UsageError, match="NUL"):
        capture(["echo", "a\0b"], cwd=HERE)
    with pytest.raises(UsageError, match="too long"):
        capture(["true", "x" * 3_000_000], cwd=HERE)
    for argv in ("ls -l", ()):
        with pytest.raises(TypeError):
            capture(argv, cwd=HERE)


# Bounds


def test_endless_stdout_ends_and_is_refused() -> None:
    with pytest.raises(DataError, match="yes wrote more than 100000 bytes"):
        capture(["yes"], cwd=HERE, limit=100_000)


def test_stdout_of_exactly_the_limit_is_whole() -> None:
    assert capture(python("print('x' * 999)"), cwd=HERE, limit=1000).stdout == b"x" * 999 + b"\n"


def test_long_stderr_keeps_its_beginning_and_its_end() -> None:
    code = "import sys; sys.stderr.write('first\\n' + 'x' * 1_000_000 + '\\nerror: last\\n'); sys.exit(1)"
    said = capture(python(code), cwd=HERE, limit=1000, check=False).stderr
    assert said.startswith(b"first\nxxx")
    assert said.endswith(b"x\nerror: last\n")
    assert b"\n[... 999019 bytes left out ...]\n" in said
    with pytest.raises(CommandFailedError, match="error: last"):
        capture(python(code), cwd=HERE, limit=1000)


# The group

STUBBORN = "trap '' TERM INT HUP; echo $$ > %s; while :; do sleep 1; done"


@pytest.mark.parametrize("door", [stream, capture])
def test_a_timeout_kills_a_grandchild_that_ignores_term(door: Callable[..., object], tmp_path: Path) -> None:
    grandchild = tmp_path / "grandchild"
    script = f"sh -c {shlex.quote(STUBBORN % grandchild)} & while [ ! -s {grandchild} ]; do sleep 0.01; done; sleep 600"
    with pytest.raises(CommandTimedOutError, match="sh was ended after 3 s") as ended:
        door(["sh", "-c", script], cwd=HERE, timeout=3, grace=0.2)
    assert (ended.value.code, ended.value.exit_code) == (124, 124)
    assert not runs(pid_in(grandchild))


def test_a_timeout_gives_time_to_clean_up_and_keeps_what_was_said() -> None:
    script = "trap 'echo cleaned; exit 0' TERM; echo started; while :; do sleep 0.05; done"
    said = capture(["sh", "-c", script], cwd=HERE, timeout=3, check=False)
    assert (said.code, said.stdout) == (124, b"started\ncleaned\n")


@pytest.mark.parametrize("timeout", [None, 3.0])
def test_nobody_waits_for_a_process_that_left_the_group_with_the_pipe(tmp_path: Path, timeout: float | None) -> None:
    escaped = tmp_path / "escaped"
    ending = "exit 0" if timeout is None else "sleep 600"
    script = (
        f"setsid sh -c 'echo $$ > {escaped}; exec sleep 600' & while [ ! -s {escaped} ]; do sleep 0.01; done; {ending}"
    )
    try:
        assert capture(["sh", "-c", script], cwd=HERE, timeout=timeout, check=False).code == (
            0 if timeout is None else 124
        )
        assert runs(pid_in(escaped))  # so the pipe was still open when we returned
    finally:
        os.kill(pid_in(escaped), signal.SIGKILL)


@pytest.mark.parametrize("door", [stream, capture])
def test_what_lingers_in_the_group_after_the_end_is_ended(door: Callable[..., object], tmp_path: Path) -> None:
    lingering = tmp_path / "lingering"
    script = f"sh -c {shlex.quote(STUBBORN % lingering)} & while [ ! -s {lingering} ]; do sleep 0.01; done"
    door(["sh", "-c", script], cwd=HERE, grace=0.2)
    assert not runs(pid_in(lingering))


def test_a_writer_that_outlives_the_first_process_for_a_moment_is_heard() -> None:
    assert capture(["sh", "-c", "(sleep 0.05; echo late) & echo early"], cwd=HERE).stdout == b"early\nlate\n"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has sub-reapers")
def test_a_dead_process_that_nobody_reaps_is_not_waited_for() -> None:
    # As in a container whose first process is no init: the orphan stays a zombie of its group for ever.
    code = """
import ctypes
from pathlib import Path
from tasks.support.process import capture
PR_SET_CHILD_SUBREAPER = 36
assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
print(capture(["sh", "-c", "sleep 0.1 & echo said"], cwd=Path("/"), grace=600).text)
"""
    assert in_another_python(code) == "said\n\n"


def test_no_process_and_no_descriptor_is_left(tmp_path: Path) -> None:
    def state() -> tuple[int, str]:
        return len(list(Path("/proc/self/fd").iterdir())), Path(f"/proc/self/task/{os.getpid()}/children").read_text()

    before = state()
    for _ in range(10):
        capture(["true"], cwd=HERE, stdin=b"x")
        stream(["true"], cwd=HERE, show=False)
        capture(["sleep", "9"], cwd=HERE, timeout=0.01, check=False)
        for argv in (["no-such-tool"], ["false"], ["yes"]):
            with pytest.raises((ConfigurationError, CommandFailedError, DataError)):
                capture(argv, cwd=HERE, limit=10)
    assert state() == before


def test_threads_run_commands_side_by_side() -> None:
    with ThreadPoolExecutor(8) as pool:
        said = list(pool.map(lambda number: capture(["echo", str(number)], cwd=HERE).text, range(40)))
    assert said == [f"{number}\n" for number in range(40)]


# Signals

DRIVER = """
import signal, sys
from pathlib import Path
from tasks.support.process import stream
if sys.argv[2] == "ignored":
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
try:
    code = stream(["sh", "-c", sys.argv[1]], cwd=Path("/"), grace=0.3, check=False)
    print("returned", code)
except KeyboardInterrupt:
    print("interrupted")
    raise SystemExit(130)
finally:
    print("cleaned up")
"""


def driven(script: str, how: str = "usual") -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    return subprocess.Popen(python(DRIVER, script, how), stdout=subprocess.PIPE, text=True, env=environment)


@pytest.mark.parametrize(
    ("number", "code", "said"),
    [
        (signal.SIGTERM, 143, "cleaned up\n"),
        (signal.SIGHUP, 129, "cleaned up\n"),
        (signal.SIGINT, 130, "interrupted\ncleaned up\n"),
    ],
)
def test_a_signal_reaches_the_group_and_then_takes_its_usual_effect(
    number: signal.Signals, code: int, said: str, tmp_path: Path
) -> None:
    ready, heard = tmp_path / "ready", tmp_path / "heard"
    name = number.name.removeprefix("SIG")
    script = f"trap 'echo {name} > {heard}; exit 0' {name}; echo $$ > {ready}; while :; do sleep 0.05; done"
    driver = driven(script)
    child = pid_in(ready)
    driver.send_signal(number)
    assert driver.communicate(timeout=PATIENCE)[0] == said
    assert driver.returncode == code
    assert heard.read_text() == f"{name}\n"
    assert not runs(child)


def test_a_group_that_ignores_the_forwarded_signal_is_killed(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    driver = driven(STUBBORN % ready)
    child = pid_in(ready)
    driver.send_signal(signal.SIGTERM)
    driver.communicate(timeout=PATIENCE)
    assert driver.returncode == 143
    assert not runs(child)


def test_an_ignored_signal_stays_ignored_here_and_in_the_child(tmp_path: Path) -> None:
    ready, go = tmp_path / "ready", tmp_path / "go"
    driver = driven(f"echo $$ > {ready}; while [ ! -e {go} ]; do sleep 0.05; done", "ignored")
    child = pid_in(ready)
    driver.send_signal(signal.SIGHUP)
    os.kill(child, signal.SIGHUP)
    go.touch()
    assert driver.communicate(timeout=PATIENCE)[0] == "returned 0\ncleaned up\n"


def test_our_own_handler_is_called_once_afterwards_and_stays(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    calls: list[int] = []
    usual = signal.signal(signal.SIGTERM, lambda number, _frame: calls.append(number))
    handler = signal.getsignal(signal.SIGTERM)

    def send_when_ready() -> None:
        pid_in(ready)
        os.kill(os.getpid(), signal.SIGTERM)

    sender = threading.Thread(target=send_when_ready)
    sender.start()
    try:
        code = stream(["sh", "-c", f"echo $$ > {ready}; exec sleep 600"], cwd=HERE, check=False)
        assert signal.getsignal(signal.SIGTERM) is handler
    finally:
        signal.signal(signal.SIGTERM, usual)
        sender.join()
    assert (code, calls) == (128 + signal.SIGTERM, [signal.SIGTERM])


def test_handlers_are_back_after_every_end(tmp_path: Path) -> None:
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    capture(["true"], cwd=HERE)
    for argv in (["false"], ["no-such-tool"]):
        with pytest.raises((CommandFailedError, ConfigurationError)):
            capture(argv, cwd=HERE)
    assert [signal.getsignal(number) for number in numbers] == before
