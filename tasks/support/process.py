"""The process door: the only place that starts other programs, always from an argument list, never through a shell.

A child gets a session of its own, so that nothing it started outlives it and nothing can prompt on the
terminal. Its group is ended (TERM, a grace time, KILL) when the time is up, when we are signalled, and
when the first process is gone but others of its group linger; a daemon that is meant to stay calls setsid.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO

from tasks.support.command_line import SIGNALLED, TIMED_OUT, Argv, Changes, Command, cannot_start, failure
from tasks.support.console import flush, say
from tasks.support.errors import DataError

CAPTURE_LIMIT = 16 * 2**20
GRACE = 10.0
_LINGER = 0.5
_CHUNK = 2**16
_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass(frozen=True)
class Captured:
    """What a program said. ``code`` is 128+n after signal n and 124 after a timeout."""

    code: int
    stdout: bytes
    stderr: bytes

    @property
    def text(self) -> str:
        """Return stdout as text; bytes that are not UTF-8 survive as surrogates, as in file names."""
        return self.stdout.decode("utf-8", "surrogateescape")


def stream(
    argv: Argv,
    *,
    cwd: Path,
    env: Changes | None = None,
    stdin: bytes | None = None,
    timeout: float | None = None,
    grace: float = GRACE,
    check: bool = True,
    show: bool = True,
    to_stderr: bool = False,
    to_file: IO[bytes] | None = None,
    secrets: Iterable[str] = (),
) -> int:
    """Run a program that writes to our own stdout and stderr, and return its exit code; nothing is kept.

    ``to_stderr`` sends its stdout to our stderr, for tasks whose stdout is machine output; ``to_file``
    sends both to an open file instead. The rest is as in ``capture``.
    """
    command = Command(argv, cwd, env or {}, tuple(secrets))
    if show:
        say(f"+ {command}")
    file = to_file.fileno() if to_file else None
    run = _Run(command, stdin=stdin, stdout=2 if to_stderr else file, stderr=file)
    code = run.finish(timeout, grace)
    if check and code:
        raise failure(command, code, timed_out_after=run.timed_out_after)
    return code


def capture(
    argv: Argv,
    *,
    cwd: Path,
    env: Changes | None = None,
    stdin: bytes | None = None,
    timeout: float | None = None,
    grace: float = GRACE,
    check: bool = True,
    show: bool = False,
    limit: int = CAPTURE_LIMIT,
    secrets: Iterable[str] = (),
) -> Captured:
    """Run a program and return what it said, at most ``limit`` bytes of each stream.

    A longer stdout raises DataError, since half an answer must not be parsed; of a longer stderr the
    beginning and the end are kept. Times are in seconds. ``stdin`` is empty unless bytes are given.
    ``secrets`` are masked in what is shown, beside the known ones.

    Raises CommandFailedError when ``check`` is set and the exit code is not 0, CommandTimedOutError
    (exit 124) when the time was up, ConfigurationError when the program is not installed. TERM, INT and
    HUP are passed on to the child's group while it runs (in the main thread only); then they take their
    usual effect here.
    """
    command = Command(argv, cwd, env or {}, tuple(secrets))
    if show:
        say(f"+ {command}")
    out, err = _Kept(limit, strict=True), _Kept(limit, strict=False)
    run = _Run(command, stdin=stdin, stdout=out, stderr=err)
    code = run.finish(timeout, grace)
    if out.overflowed:
        raise DataError(f"{command.name} wrote more than {limit} bytes to stdout")
    if check and code:
        said = err.value() or out.value()
        raise failure(command, code, timed_out_after=run.timed_out_after, said=said)
    return Captured(code, out.value(), err.value())


class _Kept:
    """A bounded store of one stream: the beginning and, in a ring, the end."""

    def __init__(self, limit: int, *, strict: bool) -> None:
        self._head_size = limit if strict else limit // 2
        self._tail_size = limit - self._head_size
        self._strict = strict
        self._head = bytearray()
        self._tail = bytearray()
        self._dropped = 0

    @property
    def overflowed(self) -> bool:
        return self._strict and self._dropped > 0

    def add(self, data: bytes) -> None:
        room = self._head_size - len(self._head)
        self._head += data[:room]
        self._tail += data[room:] if room > 0 else data
        excess = len(self._tail) - self._tail_size
        if excess > 0:
            del self._tail[:excess]
            self._dropped += excess

    def value(self) -> bytes:
        if not self._dropped:
            return bytes(self._head + self._tail)
        return bytes(self._head) + f"\n[... {self._dropped} bytes left out ...]\n".encode() + bytes(self._tail)


@dataclass
class _Clock:
    """What has happened to a child's group so far, in monotonic seconds."""

    stop_at: float
    grace: float
    kill_at: float | None = None
    exited_at: float | None = None
    killed_at: float | None = None
    timed_out: bool = False


class _Run:
    """One child process and its group, from the start to the last of them."""

    def __init__(
        self,
        command: Command,
        *,
        stdin: bytes | None,
        stdout: _Kept | int | None,
        stderr: _Kept | int | None,
    ) -> None:
        self._command = command
        self._input = memoryview(stdin or b"")
        self._targets = (stdout, stderr)
        self._received: list[int] = []
        self.timed_out_after: float | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._sinks: dict[IO[bytes], _Kept] = {}

    def finish(self, timeout: float | None, grace: float) -> int:
        """Start the child, wait for its group's end, and return the exit code."""
        with self._forwarding():
            child = self._start()
            for number in tuple(self._received):  # they came before there was a child to pass them on to
                _send(child.pid, number)
            clock = _Clock(stop_at=float("inf") if timeout is None else time.monotonic() + timeout, grace=grace)
            try:
                self._wait(child, clock)
            finally:
                self._abandon(child)
        if clock.timed_out:
            self.timed_out_after = timeout
            return TIMED_OUT
        return child.returncode if child.returncode >= 0 else SIGNALLED - child.returncode

    def _start(self) -> subprocess.Popen[bytes]:
        environment = self._command.environment()
        program = self._command.executable(environment)
        out, err = self._targets
        # What we printed so far comes first where our output and the child's meet.
        flush()
        try:
            self._child = child = subprocess.Popen(
                [program, *self._command.words[1:]],
                cwd=self._command.cwd,
                env=environment,
                stdin=subprocess.PIPE if self._input else subprocess.DEVNULL,
                stdout=_target(out, 1),
                stderr=_target(err, 2),
                bufsize=0,
                start_new_session=True,
            )
        except OSError as error:
            raise cannot_start(self._command.name, error) from error
        for pipe, kept in ((child.stdout, out), (child.stderr, err)):
            if pipe is not None and isinstance(kept, _Kept):
                self._sinks[pipe] = kept
        return child

    def _wait(self, child: subprocess.Popen[bytes], clock: _Clock) -> None:
        with selectors.DefaultSelector() as selector:
            for pipe in self._sinks:
                os.set_blocking(pipe.fileno(), False)
                selector.register(pipe, selectors.EVENT_READ)
            if child.stdin is not None:
                os.set_blocking(child.stdin.fileno(), False)
                selector.register(child.stdin, selectors.EVENT_WRITE)
            pause = 0.001
            while not self._done(child, clock, open_pipes=bool(selector.get_map())):
                ready = selector.select(pause) if selector.get_map() else _sleep_or_exit(child, pause)
                for key, _ in ready:
                    self._transfer(selector, key.fileobj, child)
                pause = 0.001 if ready else min(pause * 2, 0.05)

    def _transfer(self, selector: selectors.BaseSelector, pipe: object, child: subprocess.Popen[bytes]) -> None:
        if pipe is child.stdin and child.stdin is not None:
            try:
                self._input = self._input[os.write(child.stdin.fileno(), self._input[:_CHUNK]) :]
            except BrokenPipeError:
                self._input = memoryview(b"")  # the child wants no more; its exit code says whether that is an error
            if not self._input:
                selector.unregister(child.stdin)
                child.stdin.close()
            return
        for ours, kept in self._sinks.items():
            if ours is pipe:
                data = os.read(ours.fileno(), _CHUNK)
                kept.add(data)
                if not data:
                    selector.unregister(ours)

    def _done(self, child: subprocess.Popen[bytes], clock: _Clock, *, open_pipes: bool) -> bool:
        """Send what is due to the group and say whether nothing of it is left to wait for."""
        now = time.monotonic()
        if clock.exited_at is None and child.poll() is not None:
            clock.exited_at = now
        alive = clock.exited_at is None or _group_alive(child.pid)
        if not alive and not open_pipes:
            return True
        if clock.exited_at is not None and not alive and now > clock.exited_at + _LINGER:
            return True  # a process that left the group holds the pipe: it is not ours to wait for
        if clock.killed_at is not None:
            return clock.exited_at is not None and now > clock.killed_at + _LINGER
        if clock.kill_at is None:
            self._end_when_due(child, clock, now)
        elif now >= clock.kill_at or self._too_much():
            _send(child.pid, signal.SIGKILL)
            clock.killed_at = now
        return False

    def _end_when_due(self, child: subprocess.Popen[bytes], clock: _Clock, now: float) -> None:
        if self._received:
            clock.kill_at = now + clock.grace
            return
        clock.timed_out = clock.exited_at is None and now >= clock.stop_at
        lingers = clock.exited_at is not None and now > clock.exited_at + _LINGER
        if clock.timed_out or lingers or self._too_much():
            _send(child.pid, signal.SIGTERM)
            clock.kill_at = now + clock.grace

    def _too_much(self) -> bool:
        return any(kept.overflowed for kept in self._sinks.values())

    def _abandon(self, child: subprocess.Popen[bytes]) -> None:
        """Leave nothing behind, whatever ended the wait."""
        if child.poll() is None or _group_alive(child.pid):
            _send(child.pid, signal.SIGKILL)
        child.wait()
        for pipe in (child.stdin, child.stdout, child.stderr):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()

    @contextmanager
    def _forwarding(self) -> Iterator[None]:
        """Pass signals on to the group while the block runs; afterwards let the first one take its usual effect."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        previous = {}
        try:
            for number in _FORWARDED:
                usual = signal.getsignal(number)
                if usual is not None and usual is not signal.SIG_IGN:
                    previous[number] = usual
                    signal.signal(number, self._forward)
            yield
        finally:
            for number, usual in previous.items():
                signal.signal(number, usual)
        if self._received:
            number = signal.Signals(self._received[0])
            if previous[number] is signal.SIG_DFL:
                raise SystemExit(SIGNALLED + number)  # rather than dying on the spot: clean-up blocks must run
            signal.raise_signal(number)

    def _forward(self, number: int, _frame: FrameType | None) -> None:
        self._received.append(number)
        if self._child is not None:
            _send(self._child.pid, number)


def _target(target: _Kept | int | None, own: int) -> int | None:
    """Return what Popen takes for a stream: a pipe, an open file, or ours, which is nowhere when it is closed."""
    if isinstance(target, _Kept):
        return subprocess.PIPE
    ours = {1: sys.stdout, 2: sys.stderr}
    number = own if target is None else target
    # A number that was closed when we started is now that of any file that was opened since.
    return subprocess.DEVNULL if number in ours and ours[number] is None else target


def _send(group: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _sleep_or_exit(child: subprocess.Popen[bytes], seconds: float) -> list[tuple[selectors.SelectorKey, int]]:
    with suppress(subprocess.TimeoutExpired):
        child.wait(seconds)
        time.sleep(seconds if _group_alive(child.pid) else 0)
    return []


def _group_alive(group: int) -> bool:
    """Say whether a process of the group still runs.

    Dead ones do not count: in a container without an init nobody ever reaps them.
    """
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    states = [_state_in_group(entry, group) for entry in Path("/proc").glob("[0-9]*/stat")]
    return not states or any(state not in (None, "Z", "X") for state in states)


def _state_in_group(stat: Path, group: int) -> str | None:
    try:
        # proc(5): "pid (name) state parent group ..."; the name may hold anything, brackets included.
        state, _parent, owner = stat.read_text("utf-8", "replace").rpartition(")")[2].split()[:3]
    except (OSError, ValueError):
        return None
    return state if int(owner) == group else None
