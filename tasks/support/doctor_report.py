"""The environment report for bug tickets: facts that help, redacted by the library's own rules and ours."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path

from tasks.support import paths
from tasks.support.command_line import last_useful_line
from tasks.support.doctor import Finding
from tasks.support.errors import OmniError
from tasks.support.http_door import user_agent
from tasks.support.process import capture
from tasks.support.redaction import hide_login, is_secret_name, redact
from tasks.support.settings import CHECKOUT, Settings
from tasks.support.source import commit_of, library_python
from tasks.support.variables import ALL

INVENTORY_TIMEOUT = 60.0

# The prefixes that the library's own collect_env.py reports.
_PREFIXES = ("TORCH", "NCCL", "PYTORCH", "CUDA", "CUBLAS", "CUDNN", "OMP_", "MKL_", "NVIDIA")

# Runs in the library's python. It prints its answer last, after whatever the imports print.
_ASK = r"""
import json
known, redacted, failed = set(), set(), []
try:
    from vllm.envs import environment_variables
    known.update(environment_variables)
except BaseException as error:
    failed.append(f"vllm: {type(error).__name__}: {error}")
try:
    from vllm_omni.config.environment_variable_inventory import ENVIRONMENT_VARIABLE_INVENTORY as inventory
    for name, entry in inventory.items():
        if entry.redact_value:
            redacted.add(name)
        elif entry.is_public_omni:
            known.add(name)
except BaseException as error:
    failed.append(f"vllm_omni: {type(error).__name__}: {error}")
print()
print(json.dumps({"known": sorted(known), "redacted": sorted(redacted), "failed": failed}))
"""


@dataclass(frozen=True)
class Inventory:
    """Which variables the library knows and which it wants redacted; ``failed`` says what could not be asked."""

    known: frozenset[str] = frozenset()
    redacted: frozenset[str] = frozenset()
    failed: tuple[str, ...] = ()


def report_text(settings: Settings, findings: Sequence[Finding]) -> str:
    """Return the report; no value of a secret is in it, nor a variable that nobody declared reportable."""
    inventory = ask_library(settings)
    lines = [
        f"tool: {user_agent()} at commit {_tool_commit()}",
        f"python: {platform.python_version()} ({platform.python_implementation()}, {sys.executable})",
        f"machine: {platform.platform()}",
        f"profile: {settings.profile.value}",
        "",
        "[findings]",
        *(f"{finding.name}: {finding.state.value}: {finding.detail}" for finding in findings),
        "",
        "[packages]",
        *sorted({f"{item.name}=={item.version}" for item in distributions() if item.name}, key=str.lower),
        "",
        "[environment]",
        *(f"{name}={value}" for name, value in reportable(settings, inventory).items()),
    ]
    if inventory.failed:
        lines += ["", "[library]", *(f"not asked: {reason}" for reason in inventory.failed)]
    return "\n".join(redact(line) for line in lines)


def reportable(settings: Settings, inventory: Inventory) -> dict[str, str]:
    """Return the variables to report, sorted, each once, by the rules of the library's collect_env.py.

    Dropped: what the library marks and what a name marks as secret. Kept of the rest: what the library
    or this tool knows, and the accelerators' prefixes.
    """
    ours = {variable.name for variable in ALL if not variable.secret}
    dropped = {variable.name for variable in ALL if variable.secret} | inventory.redacted
    known = ours | inventory.known
    return {
        # An address without its scheme is not known for one by what redacts the lines.
        name: json.dumps(value if "://" in value else hide_login(value), ensure_ascii=False)[1:-1]
        for name, value in sorted(settings.environment.items())
        if name not in dropped and not is_secret_name(name) and (name in known or name.startswith(_PREFIXES))
    }


def ask_library(settings: Settings, timeout: float = INVENTORY_TIMEOUT) -> Inventory:
    """Ask the library's inventory in its own python; whatever is broken there leaves a reason, never an error."""
    try:
        python = library_python(settings)
        if python is None:
            return Inventory(failed=("no test python",))
        cwd = paths.absolute(paths.as_path(settings.source, "the source")) if settings.source else Path("/")
        said = capture([python, "-c", _ASK], cwd=cwd, timeout=timeout, check=False)
    except OmniError as error:
        return Inventory(failed=(error.message,))
    try:
        answer = json.loads(said.text.rstrip("\n").rpartition("\n")[2])
        reasons = tuple(" ".join(str(reason).split())[:300] for reason in answer["failed"])
        return Inventory(frozenset(answer["known"]), frozenset(answer["redacted"]), reasons)
    except (ValueError, KeyError, TypeError):
        detail = last_useful_line(said.stderr) or "it said nothing"
        return Inventory(failed=(f"{python.name} ended with exit code {said.code}: {detail}",))


def _tool_commit() -> str:
    try:
        return commit_of(CHECKOUT)
    except OmniError:
        return "unknown (no git checkout)"
