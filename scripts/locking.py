"""The lock files: made by uv from pyproject.toml's dependency groups, and checked without a network."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

from bootstrap import CONFIGURATION, DATA, REFUSED, USAGE, Stop, say

USAGE_LINE = "usage: scripts/lock [--check | --upgrade]"
# dev comes first and binds the others: a package has one version in every lock.
GROUPS = ("dev", "runner")
OLDEST_PYTHON = "3.11"


def lock(root: Path, words: list[str]) -> None:
    """Write the locks, or with --check raise Stop (65) for the first one that does not fit pyproject.toml.

    Without --upgrade the versions that are already locked stay where the groups allow them.
    """
    if words not in ([], ["--check"], ["--upgrade"]):
        raise Stop(USAGE, f"unknown arguments {' '.join(words)!r}: {USAGE_LINE}")
    if words == ["--check"]:
        check(root)
    else:
        write(root, upgrade=bool(words))


def check(root: Path) -> None:
    """Raise Stop unless each lock was made from its group as it is now, pins hashes only, and names no index."""
    for group in GROUPS:
        file = root / "scripts" / "locks" / f"{group}.txt"
        text = file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""
        if f"\n# groups: {fingerprint(root, group)}\n" not in text:
            raise Stop(
                DATA, f"{file.relative_to(root)} is older than pyproject.toml's group {group!r}: run scripts/lock."
            )
        fault = content_fault(text)
        if fault:
            raise Stop(DATA, f"{file.relative_to(root)} {fault}: run scripts/lock.")


def content_fault(text: str) -> str | None:
    """Say what is wrong with a lock's text: a requirement without a hash, an option, or an address."""
    logical = re.sub(r"\\\n\s*", " ", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE))
    for line in filter(str.strip, logical.splitlines()):
        name, *hashes = line.split(" --hash=")
        if not re.match(r"[a-z0-9-]+==[^ ]+( ; [^-].*)?$", name.strip()):
            return f"has a line that pins no version: {line[:60]!r}"
        if not hashes or not all(re.fullmatch(r"sha256:[0-9a-f]{64}", part.strip()) for part in hashes):
            return f"has no sha256 for {name.strip()!r}"
    return None if logical.strip() else "is empty"


def fingerprint(root: Path, group: str) -> str:
    """Return the sha256 of everything in pyproject.toml that decides what a lock holds."""
    table = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    parts = {"python": table["project"]["requires-python"], "groups": _expand(table["dependency-groups"], group)}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _expand(groups: dict[str, list[Any]], name: str) -> list[str]:
    """Return a group's requirements with its included groups (PEP 735) in place, sorted."""
    found: set[str] = set()
    for entry in groups[name]:
        found.update([entry] if isinstance(entry, str) else _expand(groups, entry["include-group"]))
    return sorted(found)


def write(root: Path, *, upgrade: bool) -> None:
    """Resolve each group for every platform and Python from 3.11, and replace its lock.

    uv asks the index that it is configured with; the lock does not name it.
    """
    uv = shutil.which("uv", path=str(root / ".venv" / "bin")) or shutil.which("uv")
    if not uv:
        raise Stop(CONFIGURATION, "scripts/lock needs uv: run scripts/test once, or install uv.")
    folder = root / "scripts" / "locks"
    for group in GROUPS:
        file, part = folder / f"{group}.txt", folder / f".{group}.part"
        if file.exists() and not upgrade:
            shutil.copyfile(file, part)
        command = [uv, "pip", "compile", "--quiet", "--universal", "--python-version", OLDEST_PYTHON]
        command += ["--generate-hashes", "--no-header", "--no-annotate", "--no-emit-index-url", "--no-emit-find-links"]
        command += ["--group", group, "--output-file", str(part)]
        if group != GROUPS[0]:
            command += ["--constraint", str(folder / f"{GROUPS[0]}.txt")]
        try:
            done = subprocess.run(command, cwd=root, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False)
            if done.returncode != 0:
                raise Stop(REFUSED, f"uv could not lock the group {group!r}; its words are above. Nothing was changed.")
            pins = part.read_text(encoding="utf-8")
            part.write_text(_header(root, group) + pins, encoding="utf-8")
            part.replace(file)
        finally:
            part.unlink(missing_ok=True)
        say(f"{file.relative_to(root)}: {len(re.findall(r'^[^ ]+==', pins, re.MULTILINE))} packages")


def _header(root: Path, group: str) -> str:
    return (
        f"# The group {group!r} of pyproject.toml, pinned by scripts/lock: do not edit.\n"
        f"# groups: {fingerprint(root, group)}\n"
    )
