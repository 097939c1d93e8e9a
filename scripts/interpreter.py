"""Find a Python that is new enough.

This file and the scripts that import it must be understood by an interpreter as old as Python 3.6.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator

OLDEST = (3, 11)


def newer_pythons(path: str) -> "Iterator[str]":
    """Yield every `python3.N` on a PATH with N from 11, newest first, that really starts (a shim may not)."""
    found = []
    for place, folder in enumerate(path.split(os.pathsep)):
        try:
            names = os.listdir(folder or ".")  # noqa: PTH208 - an unreadable entry of PATH must raise here
        except OSError:
            continue
        for name in names:
            match = re.match(r"python3\.(\d+)$", name)
            if match and (3, int(match.group(1))) >= OLDEST:
                found.append((-int(match.group(1)), place, os.path.join(folder or ".", name)))  # noqa: PTH118
    for _, _, python in sorted(found):
        probe = [python, "-c", f"import sys; sys.exit(sys.version_info[:2] < {OLDEST})"]
        try:
            if (
                subprocess.call(probe, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                == 0
            ):
                yield python
        except OSError:
            continue


def need_python() -> None:
    """Return if this interpreter is new enough, else become the newest one on PATH; exit with 78 if there is none."""
    if sys.version_info[:2] >= OLDEST:
        return
    for python in newer_pythons(os.environ.get("PATH", os.defpath)):
        os.execv(python, [python, *sys.argv])  # noqa: S606 - the same command, in another interpreter
    have = sys.version.split()[0]
    print(f"error: Python 3.11 or newer is needed: this is {have}, and PATH has no newer one.", file=sys.stderr)
    sys.exit(78)
