"""Asking real pip and uv, as a user without any configuration of their own would run them."""

from __future__ import annotations

import sys
from pathlib import Path

from tasks.support.command_line import Changes
from tasks.support.errors import ConfigurationError, DataError
from tasks.support.process import capture
from tasks.support.settings import inherited_environment

TIMEOUT = 300.0
_CONFIGURATION = (
    "PIP_",
    "UV_",
    "PYTHON",
    "VIRTUAL_ENV",
    "CONDA",
    "GIT_",
    "NETRC",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
)


def clean_environment(home: Path) -> Changes:
    """Return the changes that hide from a child what configures pip, uv, Python and git here, and the proxies."""
    hidden = dict.fromkeys(name for name in inherited_environment() if name.upper().startswith(_CONFIGURATION))
    return {**hidden, "HOME": str(home), "XDG_CONFIG_HOME": str(home), "PIP_CONFIG_FILE": "/dev/null"}


def pip_download(work: Path, index_url: str, project: str) -> str:
    """Download the newest file of a project with pip and return its file name; DataError when pip finds none."""
    target = work / "pip"
    target.mkdir(parents=True)
    options = ["--quiet", "--disable-pip-version-check", "--no-input", "--no-cache-dir", "--no-deps", "--pre"]
    argv = [sys.executable, "-m", "pip", "download", *options, "--dest", str(target), "--index-url", index_url, project]
    _require("pip", work)
    capture(argv, cwd=work, env=clean_environment(work), timeout=TIMEOUT)
    found = sorted(path.name for path in target.iterdir())
    if len(found) != 1:
        raise DataError(f"pip download {project} from {index_url} brought {len(found)} files")
    return found[0]


def uv_install(work: Path, index_url: str, project: str) -> str:
    """Install the newest file of a project with uv into a new environment and return the version that it has there."""
    work.mkdir(parents=True, exist_ok=True)
    _require("uv", work)
    environment = work / "environment"
    uv = [sys.executable, "-m", "uv", "--quiet", "--no-config", "--cache-dir", str(work / "cache")]
    clean = clean_environment(work)
    capture([*uv, "venv", "--python", sys.executable, str(environment)], cwd=work, env=clean, timeout=TIMEOUT)
    python = environment / "bin" / "python"
    options = ["--python", str(python), "--no-deps", "--prerelease", "allow", "--index-url", index_url]
    capture([*uv, "pip", "install", *options, project], cwd=work, env=clean, timeout=TIMEOUT)
    ask = "import importlib.metadata, sys; print(importlib.metadata.version(sys.argv[1]))"
    return capture([str(python), "-I", "-c", ask, project], cwd=work, env=clean, timeout=TIMEOUT).text.strip()


def _require(module: str, work: Path) -> None:
    argv = [sys.executable, "-c", f"import {module}"]
    if capture(argv, cwd=work, env=clean_environment(work), timeout=TIMEOUT, check=False).code:
        raise ConfigurationError(
            f"{module} is not installed beside this tool ({sys.executable})",
            hint="run scripts/rehearse, which installs it",
        )
