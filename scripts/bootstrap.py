"""Make this checkout's `.venv` from the lock: once, and again only when it is no longer right.

Standard library only. Nothing outside the checkout (and the installer's own cache) is written; nothing needs root.
Run by itself it only makes the environment.
"""

from __future__ import annotations

import ast
import contextlib
import errno
import fcntl
import hashlib
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
GRACE = 5.0
"""Seconds for a stopped installer to end by itself, and for a folder to be left by what still writes to it."""

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
USAGE, DATA, REFUSED, BUG, TEMPORARY, CONFIGURATION = 64, 65, 69, 70, 75, 78

# A machine's settings for other installations, which would send the locked packages elsewhere or contradict the lock.
FOREIGN = re.compile(
    r"PYTHON(HOME|PATH)|PIP_(USER|TARGET|PREFIX|ROOT|CONSTRAINT|BUILD_CONSTRAINT|REQUIRE_VIRTUALENV|DRY_RUN)"
    r"|UV_(CONSTRAINT|BUILD_CONSTRAINT|OVERRIDE|SYSTEM_PYTHON|PROJECT_ENVIRONMENT)"
)

# pip ends with 1 whatever happened, so the reason is read from what it wrote. The first match wins.
REASONS = (
    (
        r"DO NOT MATCH THE HASHES|[Hh]ash mismatch|Hashes are required",
        DATA,
        "a package from the index is not the one that the lock names",
    ),
    (r"No space left on device", CONFIGURATION, "the disk is full"),
    (
        (
            r"NewConnectionError|Timeout(Error)?\b|ProxyError|SSLError|[Nn]ame ?[Rr]esolution|timed out|dns error"
            r"|Connection (refused|reset|broken)|[Ff]ailed to fetch|error sending request|\b50[234]\b.*Error"
        ),
        TEMPORARY,
        "the package index that this machine is configured with cannot be reached",
    ),
    (
        r"No matching distribution|not found in the package registry|\b40[134]\b.*Error",
        REFUSED,
        "the package index that this machine is configured with does not give a locked package",
    ),
)


class Stop(Exception):  # noqa: N818 - an end that was foreseen is not always an error
    """A foreseen end of the set-up: an exit code and one sentence."""

    def __init__(self, code: int, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


def say(line: str) -> None:
    """Write one line to stderr: stdout belongs to the command that follows."""
    print(line, file=sys.stderr, flush=True)


# --- The environment's state -----------------------------------------------------------------------------------------


class Environment:
    """The `.venv` of one checkout, the lock it is made from, and the mark that says it was finished."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root / ".venv"
        self.python = self.folder / "bin" / "python"
        self.lock = root / "scripts" / "locks" / "dev.txt"
        self.log = self.folder / "setup.log"
        self._mark = self.folder / "omni-ci-complete.json"

    def wanted(self) -> dict[str, str]:
        """Return what a finished environment's mark must say (a venv holds absolute paths, so its own is part)."""
        try:
            lock = self.lock.read_bytes()
            lock.decode()
        except OSError as error:
            raise Stop(66, f"the lock {self.lock} cannot be read: {error.strerror}.") from None
        except UnicodeDecodeError as error:
            raise Stop(DATA, f"the lock {self.lock} is not UTF-8 text from byte {error.start} on.") from None
        return {"lock": hashlib.sha256(lock).hexdigest(), "path": str(self.folder)}

    def fault(self) -> str | None:
        """Say why the environment has to be made, or None if it is complete and right."""
        if not os.path.lexists(self.folder):
            return "there is none yet"
        try:
            mark = json.loads(self._mark.read_bytes())
            python = mark["python"]
        except (OSError, ValueError, TypeError, KeyError):
            return "the one here is not finished"
        wanted = self.wanted()
        if mark.get("path") != wanted["path"]:
            return "the one here was made in another place"
        if mark.get("lock") != wanted["lock"]:
            return "the lock has changed"
        return None if self.version() == python else f"its Python {python} is gone"

    def version(self) -> str | None:
        """Return the `3.N` of the environment's interpreter, or None if it does not start."""
        probe = "import sys; print('%d.%d' % sys.version_info[:2])"
        try:
            done = subprocess.run(
                [str(self.python), "-I", "-S", "-c", probe], stdin=subprocess.DEVNULL, capture_output=True, check=False
            )
        except OSError:
            return None
        return done.stdout.decode("ascii", "replace").strip() if done.returncode == 0 else None

    def finish(self, wanted: dict[str, str]) -> None:
        """Write the mark, last and atomically."""
        text = json.dumps({**wanted, "python": self.version()}, indent=1) + "\n"
        part = self._mark.with_suffix(".part")
        part.write_text(text, encoding="utf-8")
        part.replace(self._mark)

    def remove(self) -> None:
        """Delete the environment, the mark first, so that a killed deletion is never taken for a finished one."""
        if self.folder.is_symlink() or self.folder.is_file():
            self.folder.unlink()
        elif self.folder.exists():
            with contextlib.suppress(OSError):
                self._mark.unlink()
            end = time.monotonic() + GRACE
            while self.folder.exists():
                try:
                    shutil.rmtree(self.folder)
                except OSError as error:
                    # A child of a killed set-up may still write here: then there is more to delete than was seen.
                    if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT) or time.monotonic() > end:
                        raise
                    time.sleep(0.05)


# --- Making it -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Installer:
    """A pip or a uv, and the interpreter of the environment that it installs into."""

    command: list[str]
    python: str
    uv: bool = False

    def config(self) -> str:
        """Return what `pip config list` says."""
        argv = [*self.command, "config", "list"]
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        return done.stdout.decode("utf-8", "replace")

    def install(self) -> list[str]:
        """Return the command that installs what requirements files name, all of it by hash, and nothing else."""
        if self.uv:
            options = ["--python", self.python, "--compile-bytecode", "--no-progress"]
            return [*self.command, "pip", "install", *options, "--require-hashes", "--no-deps"]
        options = ["--disable-pip-version-check", "--no-input", "--progress-bar", "off"]
        if pip_settings(self.config()).get("retries") == "0":
            # Of an index that cannot be reached pip speaks only when it tries again.
            options += ["--retries", "1"]
        return [*self.command, "install", *options, "--require-hashes", "--no-deps"]


class Builder:
    """One making of an environment: the steps, their one line each, and the log of what they wrote."""

    def __init__(self, environment: Environment, lock_fd: int) -> None:
        self.environment = environment
        self._lock_fd = lock_fd
        self._live = sys.stderr.isatty()

    def build(self) -> None:
        """Make the environment anew, in place, because a venv must never be moved."""
        wanted = self.environment.wanted()
        if os.path.lexists(self.environment.folder):
            self.environment.remove()
            say("  removed the old .venv")
        self.environment.folder.mkdir()
        installer = self._make_venv()
        if installer.uv or not self._installed_by_uv(installer):
            self._install(installer.install(), self.environment.lock, "installed the locked packages")
        self.environment.finish(wanted)

    def _make_venv(self) -> Installer:
        """Make the bare environment, and return what can install into it."""
        folder, python = str(self.environment.folder), str(self.environment.python)
        version = sys.version.split()[0]
        has_venv = importlib.util.find_spec("venv") is not None
        if has_venv and importlib.util.find_spec("ensurepip") is not None:
            if self._run_step(f"made .venv with Python {version}", [sys.executable, "-m", "venv", folder]):
                return Installer([python, "-m", "pip"], python)
            say("  venv could not put pip into it; looking for another installer")
        for installer in _other_installers(python):
            if has_venv:
                bare = [sys.executable, "-m", "venv", "--without-pip", folder]
            elif installer.uv:
                bare = [*installer.command, "venv", "--quiet", "--allow-existing", "--python", sys.executable, folder]
            else:
                continue
            by = "uv" if installer.uv else "the system's pip"
            if self._run_step(f"made .venv with Python {version}, to be filled by {by}", bare):
                return installer
        raise Stop(
            CONFIGURATION,
            f"{sys.executable} cannot make a virtual environment, and neither pip 22.3 or newer nor uv was found: "
            "install your system's package for it (Debian and Ubuntu: python3-venv), or uv.",
        )

    def _installed_by_uv(self, pip: Installer) -> bool:
        """Let pip install the locked uv alone, and that the rest from pip's own index, in a third of the time.

        Return False where uv is not locked, or cannot do it: an index that needs what only pip knows, for example.
        """
        text = self.environment.lock.read_text(encoding="utf-8")
        pin = re.search(r"^uv==.*\n(?:[ \t]+.*\n?)*", text, re.MULTILINE)
        if pin is None:
            return False
        only_uv = self.environment.folder / "uv.txt"
        only_uv.write_text(pin.group(), encoding="utf-8")
        self._install(pip.install(), only_uv, "installed the locked uv")
        options, settings = uv_settings(pip.config())
        uv = Installer([str(self.environment.python.with_name("uv"))], pip.python, uv=True)
        argv = [*uv.install(), *options, "-r", str(self.environment.lock)]
        if self._run_step("installed the locked packages", argv, settings):
            return True
        say("  uv could not install from the index that pip is configured with; pip does")
        return False

    def _install(self, argv: list[str], requirements: Path, what: str) -> None:
        """Run an installer; on failure say in one sentence why, and where the whole text is."""
        if self._run_step(what, [*argv, "-r", str(requirements)]):
            return
        text = self.environment.log.read_text(encoding="utf-8", errors="replace")
        for pattern, code, sentence in REASONS:
            if re.search(pattern, text):
                raise Stop(code, f"{sentence}. The installer's own words: {self.environment.log}")
        last = [line.strip() for line in text.splitlines() if line.strip()][-1:] or ["it said nothing"]
        raise Stop(REFUSED, f"the packages could not be installed: {last[0]}. The whole text: {self.environment.log}")

    def _run_step(self, what: str, argv: Sequence[str], settings: dict[str, str] | None = None) -> bool:
        """Run a child, and say what it did and in how many seconds if it succeeded; on a terminal show its words."""
        start = time.monotonic()

        def show(line: str) -> None:
            if self._live:
                print(f"\r\033[K  {line.strip()[:60]}", end="", file=sys.stderr, flush=True)

        show(f"{Path(argv[0]).name} {' '.join(argv[1:3])} ...")
        try:
            succeeded = self._run(argv, show, settings or {}) == 0
        finally:
            if self._live:
                print("\r\033[K", end="", file=sys.stderr, flush=True)
        if succeeded:
            say(f"  {what} ({time.monotonic() - start:.1f} s)")
        return succeeded

    def _run(self, argv: Sequence[str], show: Callable[[str], None], settings: dict[str, str]) -> int:
        """Run one child, its output to the log, and return its exit code.

        The child inherits the lock: if this process is killed, the next run waits for the child rather than
        working beside it in the same folder.
        """
        environ = {name: value for name, value in os.environ.items() if not FOREIGN.fullmatch(name)}
        environ = {**settings, **environ, "PIP_USER": "0"}
        with (
            self.environment.log.open("a", encoding="utf-8") as log,
            subprocess.Popen(
                argv,
                cwd=self.environment.root,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=[self._lock_fd],
                start_new_session=True,
                encoding="utf-8",
                errors="replace",
            ) as child,
        ):
            assert child.stdout is not None  # noqa: S101 - for the type checker: asked for above
            try:
                for line in child.stdout:
                    log.write(line)
                    show(line)
                return child.wait()
            except BaseException:
                end_group(child)
                raise


def end_group(child: subprocess.Popen[str]) -> None:
    """End a child that leads a session, and all that it started, so that nothing of it writes any more.

    A `python -m venv` that is ended alone leaves its ensurepip behind, which goes on to fill the environment.
    """
    # A second Ctrl-C must not keep the rest from being ended.
    previous = {number: signal.signal(number, signal.SIG_IGN) for number in STOPPING}
    try:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(GRACE)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        end = time.monotonic() + 1.0  # the dead count until they are reaped, which in a container may be never
        with contextlib.suppress(ProcessLookupError):
            while time.monotonic() < end:
                os.killpg(child.pid, 0)
                time.sleep(0.01)
    finally:
        for number, usual in previous.items():
            signal.signal(number, usual)


def _other_installers(python: str) -> Iterator[Installer]:
    """Yield what can fill an environment that has no pip of its own: the system's pip, then a uv on PATH."""
    names = [shutil.which(name) for name in ("pip3", "pip")]
    for pip in [[sys.executable, "-m", "pip"], *([name] for name in names if name)]:
        with contextlib.suppress(OSError):
            done = subprocess.run([*pip, "--version"], stdin=subprocess.DEVNULL, capture_output=True, check=False)
            version = re.match(rb"pip (\d+)\.(\d+)", done.stdout)
            # `--python` came with pip 22.3.
            if version and (int(version.group(1)), int(version.group(2))) >= (22, 3):
                yield Installer([*pip, "--python", python], python)
    uv = shutil.which("uv")
    if uv:
        yield Installer([uv], python, uv=True)


def pip_settings(pip_config: str) -> dict[str, str]:
    """Return what the lines of `pip config list` say for an installation, the strongest of each name."""
    found: dict[str, str] = {}
    for section in ("global", "install", ":env:"):  # from the weakest
        for name, value in re.findall(rf"^{section}\.([a-z-]+)=(.*)$", pip_config, re.MULTILINE):
            with contextlib.suppress(ValueError, SyntaxError):
                found[name] = str(ast.literal_eval(value))
    return found


def uv_settings(pip_config: str) -> tuple[list[str], dict[str, str]]:
    """Translate the lines of `pip config list` into uv's options and environment variables.

    An index's address may hold a password: it goes through the environment, never through arguments.
    """
    found = pip_settings(pip_config)
    settings = {}
    for name, variable, separator in (
        ("index-url", "UV_DEFAULT_INDEX", " "),
        ("extra-index-url", "UV_INDEX", " "),
        ("find-links", "UV_FIND_LINKS", ","),
        ("trusted-host", "UV_INSECURE_HOST", " "),
        ("cert", "SSL_CERT_FILE", " "),
        ("client-cert", "SSL_CLIENT_CERT", " "),
        ("proxy", "ALL_PROXY", " "),
    ):
        if found.get(name, "").split():
            settings[variable] = separator.join(found[name].split())
    # pip looks at all its indexes, uv at the first that knows a name; the hashes make either safe.
    settings["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    no_index = found.get("no-index", "").lower() in {"1", "true", "yes", "on", "y", "t"}
    return ["--no-index"] if no_index else [], settings


# --- One at a time ---------------------------------------------------------------------------------------------------


def hold(fd: int, kind: int, waiting: str) -> None:
    """Take a lock on `fd`, saying so once if that means waiting."""
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        say(waiting)
        fcntl.flock(fd, kind)


def ensure(root: Path = ROOT) -> int:
    """Return with a complete `.venv` in `root`, and the descriptor that keeps others from replacing it.

    Users of the environment hold the lock shared (the descriptor survives exec), its maker holds it alone, so that
    nobody's environment is replaced while it is in use.
    """
    environment = Environment(root)
    fd = os.open(root / ".venv.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    built = False
    while True:
        hold(fd, fcntl.LOCK_SH, "another run is making .venv; waiting for it")
        fault = environment.fault()
        if fault is None:
            if not built:
                say(f"environment ready: {environment.folder}")
            os.set_inheritable(fd, True)
            return fd
        if built:
            raise Stop(BUG, f"{environment.folder} was made, but {fault}: run this again.")
        # Asking for the lock alone gives the shared one up first, so two runs cannot wait for each other.
        fcntl.flock(fd, fcntl.LOCK_UN)
        hold(fd, fcntl.LOCK_EX, "another run is using .venv, which has to be made anew; waiting for it")
        fault = environment.fault()
        if fault is not None:
            say(f"making {environment.folder} from {environment.lock.relative_to(root)}: {fault}")
            start = time.monotonic()
            Builder(environment, fd).build()
            built = True
            say(f"environment ready in {time.monotonic() - start:.0f} s")


def run(root: Path, tool: str, *arguments: str) -> NoReturn:
    """Set up, then become `.venv/bin/<tool>` with these arguments, without the caller's PYTHONPATH and PYTHONHOME."""
    ensure(root)
    environment = Environment(root)
    for name in ("PYTHONHOME", "PYTHONPATH"):
        os.environ.pop(name, None)
    sys.stdout.flush()
    # Through the interpreter: a script's first line has a length limit, and cannot hold a path with spaces.
    python = str(environment.python)
    os.execv(python, [python, str(environment.folder / "bin" / tool), *arguments])  # noqa: S606 - no shell is meant


def main(action: Callable[[Path, list[str]], object]) -> None:
    """Run a script's action with its arguments; turn every foreseen end into one line and an exit code."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # nohup's wish is respected
            signal.signal(number, lambda number, _frame: sys.exit(128 + number))
    try:
        action(ROOT, sys.argv[1:])
    except Stop as stop:
        say(f"error: {stop}")
        sys.exit(stop.code)
    except KeyboardInterrupt:
        say("\nstopped; the same command goes on from here")
        sys.exit(130)
    except OSError as error:
        say(f"error: {error}. The set-up needs a checkout it can write to, and room on its disk.")
        sys.exit(CONFIGURATION)


if __name__ == "__main__":
    main(lambda root, _arguments: ensure(root))
