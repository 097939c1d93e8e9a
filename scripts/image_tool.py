"""Make this tool usable inside an image that it was copied into; run by our Dockerfiles with the image's own python.

Nothing is downloaded: the dependencies lie beside the tool, in `site`. They get a small environment of their own, so
that the library's packages and the tool's cannot meet.
"""

from __future__ import annotations

import sys
import sysconfig
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OLDEST = (3, 11)
LAUNCHER = """#!/bin/sh
# -I: neither PYTHONPATH nor a folder named tasks in the current one may come before the tool's own.
exec {python} -I -m invoke -r {root} "$@"
"""


def set_up(root: Path, folder: Path) -> Path:
    """Make the environment in ``root/venv`` and the command ``omni-ci`` in ``folder``; return the command's path."""
    home = root / "venv"
    venv.EnvBuilder(with_pip=False, clear=True, symlinks=True).create(home)
    packages = sysconfig.get_path("purelib", "venv", vars={"base": str(home), "platbase": str(home)})
    Path(packages, "omni-ci.pth").write_text(f"{root / 'site'}\n", encoding="utf-8")
    command = folder / "omni-ci"
    command.write_text(LAUNCHER.format(python=home / "bin" / "python", root=root), encoding="utf-8")
    command.chmod(0o755)
    return command


def main() -> None:
    """Set the tool up, or exit with 78 and a sentence when this python is too old."""
    if sys.version_info[:2] < OLDEST:
        have = sys.version.split()[0]
        print(f"error: the tool needs Python 3.11 or newer, and this image's python3 is {have}", file=sys.stderr)
        sys.exit(78)
    print(f"omni-ci: {set_up(ROOT, Path('/usr/local/bin'))}")


if __name__ == "__main__":
    main()
