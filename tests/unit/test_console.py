"""What is printed, where, and what is masked in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

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
