"""What is printed, where, and what is masked in it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tasks.support import console
from tasks.support.errors import DataError, ServiceRefusedError
from tasks.support.settings import CHECKOUT
from tasks.support.variables import ALL

SECRETS = [variable.name for variable in ALL if variable.secret]


@pytest.fixture(autouse=True)
def _no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SECRETS:
        monkeypatch.delenv(name, raising=False)


def test_people_read_stderr_and_machines_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    console.say("line")
    console.say()
    console.warn("careful")
    console.show_error(DataError("bad", hint="do this"))
    console.show_error(DataError("worse"))
    console.table(("a",), [("cell",)])
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("line\n\nwarning: careful\nerror: bad\n  do this\nerror: worse\n")
    console.emit_json({"a": [1]})
    console.emit_text("text")
    said = capsys.readouterr()
    assert (json.loads(said.out.removesuffix("text\n")), said.err) == ({"a": [1]}, "")


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_is_masked_in_everything_printed(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(name, "hush-hush")
    text = "a hush-hush b"
    console.say(text)
    console.warn(text)
    console.show_error(ServiceRefusedError(text, hint=text))
    console.emit_json({text: [text, {"k": text}]})
    console.emit_text(text)
    console.table(("column",), [(text,)], title=text)
    said = capsys.readouterr()
    assert "hush" not in said.out + said.err
    assert said.out.count("***") == 4
    assert said.err.count("***") == 6


def test_of_two_secrets_that_overlap_the_longer_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "abc")
    monkeypatch.setenv("PYPI_TOKEN", "abcdef")
    assert console.mask("abcdef abc") == "*** ***"


@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(secret=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=4).filter(str.strip))
def test_json_stays_json_and_hides_secrets_of_any_characters(secret: str, capsys: pytest.CaptureFixture[str]) -> None:
    os.environ["PYPI_TOKEN"] = secret
    try:
        console.emit_json({"count": 1, "text": f"<{secret}>", "nothing": None})
    finally:
        del os.environ["PYPI_TOKEN"]
    told = json.loads(capsys.readouterr().out)
    assert told["count"] == 1
    assert secret.strip() not in told["text"].replace("***", "")


def test_machine_output_survives_any_encoding_and_any_file_name() -> None:
    code = (
        "import os; from tasks.support import console\n"
        "name = os.fsdecode(b'odd-\\xff-\\xc2\\xb7')\n"
        "console.emit_json([name]); console.emit_text(name); console.say(name)"
    )
    for encoding in ("ascii", "latin-1", "utf-8"):
        environment = {**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"}
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=CHECKOUT, env=environment, capture_output=True, check=True
        )
        first, _, rest = done.stdout.partition(b"]\n")
        assert json.loads(first + b"]") == ["odd-\udcff-·"]
        assert rest.startswith(b"odd-\\udcff-")


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1, "1 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (1_500_000, "1.5 MB"),
        (22_100_000_000, "22.1 GB"),
        (10**12, "1.0 TB"),
        (10**16, "10000.0 TB"),
    ],
)
def test_size(count: int, text: str) -> None:
    assert console.size(count) == text


def test_a_table_in_a_pipe_cuts_nothing_off_and_reads_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    long = "x" * 300
    console.table(("name", "[red]state"), [(long, "[bold]not markup[/bold]"), ("\x1b[31m", ":smile:")])
    said = capsys.readouterr().err
    assert long in said
    assert "[bold]not markup[/bold]" in said
    assert ":smile:" in said


STEERING = "a\x1b[2Jb\rc\nd\x9be\x07f\u202eg\x7fh\x85i\u2028j"


def test_no_name_steers_the_terminal_or_fakes_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    console.warn(STEERING)
    console.show_error(DataError(STEERING, hint=STEERING))
    console.table((STEERING,), [(STEERING,), ((STEERING, STEERING),)], title=STEERING)
    lines = capsys.readouterr().err.split("\n")
    assert len(lines) == 1 + 2 + 1 + 1 + 3 + 1
    for line in lines[:-1]:
        assert line.isprintable(), line
        assert re.search(r"a\\x1b\[2Jb.*c.*d\\x9be\\x07f\\u202eg\\x7fh.*i.*j", line)
    console.say(STEERING)
    assert capsys.readouterr().err.split("\n")[0] == r"a\x1b[2Jb\rc"


def test_a_narrow_terminal_is_not_steered_either() -> None:
    said = on_a_terminal(
        f"from tasks.support import console; console.table(('c', 'd'), [({STEERING!r}, 'x' * 500)], title={STEERING!r})"
    )
    assert "x" * 500 in said.replace("\r\n", "")
    assert not set(said.replace("\r\n", "")) & set("\x1b\r\n\x9b\x07\u202e\x7f\x85\u2028")


def test_a_narrow_terminal_shows_every_line_of_a_cell_below_its_own_column() -> None:
    cells = (("linux/amd64", "linux/arm64"), "several words " * 12 + "x" * 100)
    said = on_a_terminal(f"from tasks.support import console; console.table(('platforms', 'why'), [{cells!r}])")
    lines = said.replace("\r\n", "\n").splitlines()
    assert lines[:2] == ["platforms  linux/amd64", "           linux/arm64"]
    assert lines[2].startswith("      why  several words several")
    assert all(line.startswith(" " * 11) for line in lines[3:])
    assert lines[-1].strip() == "x" * 100, "what could be copied stays whole"
    assert max(map(len, lines[:-1])) <= 80


SPEAKING = """
import sys
from pathlib import Path
from tasks.support import console, process
from tasks.support.errors import DataError
from tasks.support.task import report

def run():
    console.say("for people")
    console.warn("for people")
    console.show_error(DataError("for people", hint="for people"))
    console.table(("for people",), [("for people",)], title="for people")
    with console.progress("for people", 10) as done, console.busy("for people"):
        done(10)
    opened = open(sys.argv[1], "w")  # takes the number of what is closed
    for to_stderr in (False, True):
        process.stream(["sh", "-c", "echo child; echo child >&2; true"], cwd=Path("/"), to_stderr=to_stderr)
    process.capture(["true"], cwd=Path("/"), show=True)
    opened.close()
    console.emit_text("for machines") if sys.argv[2] == "text" else console.emit_json("for machines")

try:
    run()
except Exception as error:
    code = report(error)
    sys.exit(code)
"""


def speaking(redirection: str, file: Path, form: str = "text") -> subprocess.CompletedProcess[str]:
    script = f'exec "$@" {redirection}'
    argv = ["sh", "-c", script, "sh", sys.executable, "-c", SPEAKING, str(file), form]
    return subprocess.run(argv, cwd=CHECKOUT, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("redirection", ["2>&-", "2>/dev/full", "<&- 2>&-"])
def test_without_a_stderr_peoples_lines_go_nowhere_and_the_task_goes_on(redirection: str, tmp_path: Path) -> None:
    done = speaking(redirection, tmp_path / "file")
    assert (done.returncode, done.stdout, done.stderr) == (0, "child\nfor machines\n", "")
    assert (tmp_path / "file").read_text() == ""


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize(
    ("redirection", "reason"), [(">&-", "stdout is closed"), (">/dev/full", "no space left on device")]
)
def test_machine_output_that_cannot_be_written_is_an_error(
    redirection: str, reason: str, form: str, tmp_path: Path
) -> None:
    done = speaking(redirection, tmp_path / "file", form)
    assert done.returncode == 69, done.stderr
    assert re.search(rf"^error: cannot write the output.*: {reason}\n  .*\n\Z", done.stderr, re.MULTILINE)
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    assert (tmp_path / "file").read_text() == ""


@pytest.mark.slow
@pytest.mark.parametrize("redirection", [">&- 2>&-", ">/dev/full 2>/dev/full", "<&- >&- 2>&-"])
def test_without_any_stream_the_exit_code_still_tells(redirection: str, tmp_path: Path) -> None:
    assert speaking(redirection, tmp_path / "file").returncode == 69
    assert (tmp_path / "file").read_text() == ""


PROGRESS = """
import sys
from tasks.support.console import progress
with progress("copying", 1000) as done:
    for _ in range(10):
        done(100)
"""


def on_a_terminal(code: str) -> str:
    ours, theirs = os.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=CHECKOUT, stderr=theirs, stdout=subprocess.DEVNULL
    ) as child:
        os.close(theirs)
        said = b""
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # Linux says "input/output error" when the last writer is gone
                break
            if not piece:
                break
            said += piece
        assert child.wait() == 0
    os.close(ours)
    return said.decode()


def test_a_bar_is_shown_on_a_terminal_only() -> None:
    assert "copying" in on_a_terminal(PROGRESS)
    done = subprocess.run([sys.executable, "-c", PROGRESS], cwd=CHECKOUT, capture_output=True, check=True)
    assert (done.stdout, done.stderr) == (b"", b"")


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.04, "0.0 s"), (59, "59.0 s"), (362, "6 min 02 s"), (7260, "2 h 01 min")]
)
def test_a_length_of_time_is_readable(seconds: float, shown: str) -> None:
    assert console.span(seconds) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(-5, "less than a minute"), (60, "1 minute"), (7260, "2 hours"), (47 * 3600, "47 hours"), (260_000, "3 days")],
)
def test_an_age_is_readable(seconds: float, shown: str) -> None:
    assert console.age(timedelta(seconds=seconds)) == shown


def test_a_dry_run_without_anything_to_do_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    console.dry_run([], json=True)
    said = capsys.readouterr()
    assert said.err == "dry run: nothing to do\n"
    assert json.loads(said.out) == {"dry_run": True, "actions": []}
