"""Progress of several transfers at once, on a terminal and elsewhere."""

from __future__ import annotations

import io
import re
import sys
import threading

import pytest

from tasks.support.transfers import SILENT, transfers

_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def use_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Let stderr be a terminal; called by the test itself, because pytest puts its own stream there before."""
    stream = Terminal()
    for name, value in {"TERM": "xterm", "COLUMNS": "200", "LINES": "50"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stderr", stream)
    return stream


def test_a_terminal_shows_a_bar_for_each_and_one_in_total(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = use_terminal(monkeypatch)
    with transfers("copying", 3_000_000) as board:
        with board.transfer("layer one", 1_000_000) as one, board.transfer("layer two", 1_000_000) as two:
            one(500_000)
            two(1_000_000)
            one(-500_000)
            one(1_000_000)
        board.spare(1_000_000)
    shown = _CONTROL.sub("", terminal.getvalue()).replace("\r", "\n").splitlines()
    for label in ("copying", "layer one", "layer two"):
        assert any(label in line for line in shown)
    totals = [line for line in shown if "copying" in line]
    assert "2.0/2.0 MB" in totals[-1], "what was spared is no longer in the total"


def test_a_name_cannot_steer_the_terminal_or_show_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = use_terminal(monkeypatch)
    monkeypatch.setenv("HF_TOKEN", "hush-hush")
    with transfers("to hush-hush", 1) as board, board.transfer("\x1b]0;title\x07[red]hush-hush", 1) as advance:
        advance(1)
    assert "hush" not in terminal.getvalue()
    assert "\x1b]0" not in terminal.getvalue()
    assert "[red]" in terminal.getvalue(), "markup is text"


def test_elsewhere_there_is_a_line_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    with transfers("copying", 4_000_000, every=0) as board, board.transfer("layer", 2_000_000) as advance:
        advance(1_000_000)
        board.spare(2_000_000)
        advance(1_000_000)
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(",")[0] for line in lines] == ["copying: 1.0 MB of 4.0 MB", "copying: 2.0 MB of 2.0 MB"]
    assert re.fullmatch(r".*, \d+\.\d \wB/s, 0 s left", lines[1])


def test_a_short_transfer_is_told_in_no_line(capsys: pytest.CaptureFixture[str]) -> None:
    with transfers("copying", 10) as board, board.transfer("layer", 10) as advance:
        advance(10)
    assert capsys.readouterr() == ("", "")


def test_what_is_taken_back_is_not_counted(capsys: pytest.CaptureFixture[str]) -> None:
    with transfers("copying", 100, every=0) as board, board.transfer("layer", 100) as advance:
        for step in (60, -60, 60, 40):
            advance(step)
    shown = [line.partition(",")[0].partition(": ")[2] for line in capsys.readouterr().err.splitlines()]
    assert shown == ["60 B of 100 B", "60 B of 100 B", "100 B of 100 B"]


def test_threads_lose_no_byte(capsys: pytest.CaptureFixture[str]) -> None:
    with transfers("copying", 8000, every=0) as board:

        def work() -> None:
            with board.transfer("layer", 1000) as advance:
                for _ in range(1000):
                    advance(1)

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert "copying: 8.0 kB of 8.0 kB" in capsys.readouterr().err.splitlines()[-1]


def test_silent_transfers_say_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with SILENT.transfer("layer", 10) as advance:
        advance(10)
    SILENT.spare(10)
    assert capsys.readouterr() == ("", "")
