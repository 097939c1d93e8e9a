"""The real rehearsal, whole: from a hook of somebody's repository, in a checkout where only `.omni-ci` may change."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PARTS = ("pyproject.toml", "tasks", "tests/sample_project", "docker")
PASSED_ON = ("PATH", "LANG", "TMPDIR", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
STEPS = [
    "build the first nightly",
    "upload a commit that stays unpublished",
    "upload it",
    "move nightly",
    "check nightly",
    "pip download (first, default)",
    "uv pip install (first, default)",
    "build the second nightly",
    "upload it",
    "move nightly",
    "move nightly to the first again",
    "prune",
    "pip download (second, default)",
    "uv pip install (second, default)",
    "roll nightly back",
    "pip download (rolled back, default)",
    "uv pip install (rolled back, default)",
    "check nightly",
    "publish images of 18 older nightlies",
    "stage images",
    "publish them as nightly",
    "publish them again",
    "stage the second nightly's images",
    "publish them as nightly",
    "publish the first nightly's images again",
    "clean up 20 nightlies",
    "roll nightly's images back",
    "compare the tags with the ledger",
]


def contents(folder: Path) -> dict[str, tuple[int, str]]:
    """Return every file with its mode and digest, and every folder, except those of ``.omni-ci`` at the top."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if name.parts[0] != ".omni-ci":
            digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
            found[str(name)] = (path.lstat().st_mode, digest)
    return found


def git(folder: Path, *words: str) -> str:
    identity = ("-c", "user.name=T", "-c", "user.email=t@example.invalid", "-c", "commit.gpgsign=false")
    return subprocess.run(["git", *identity, *words], cwd=folder, capture_output=True, check=True, text=True).stdout


@pytest.mark.slow
@pytest.mark.network
def test_a_whole_nightly_runs_in_a_hook_and_changes_only_its_own_folder(tmp_path: Path) -> None:
    checkout, home = tmp_path / "a checkout", tmp_path / "home"
    home.mkdir()
    for part in PARTS:
        copy = shutil.copytree if (REPOSITORY / part).is_dir() else shutil.copy2
        (checkout / part).parent.mkdir(parents=True, exist_ok=True)
        copy(REPOSITORY / part, checkout / part)
    for cache in list(checkout.rglob("__pycache__")):
        shutil.rmtree(cache)
    (checkout / ".gitignore").write_text("/.omni-ci/\n")
    git(checkout, "init", "--quiet")
    git(checkout, "add", "--all")
    git(checkout, "commit", "--quiet", "--message", "theirs")
    before = contents(checkout)

    inner = checkout / ".git"
    hook = {"GIT_DIR": str(inner), "GIT_INDEX_FILE": str(inner / "index"), "GIT_WORK_TREE": str(checkout)}
    # What the machine's pip is configured with is needed for the build's own requirements.
    pip = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "UV_"))}
    config = Path.home() / ".config" / "pip" / "pip.conf"
    if config.exists():
        pip.setdefault("PIP_CONFIG_FILE", str(config))
    kept = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    env = {**kept, **pip, **hook, "HOME": str(home), "PYTHONDONTWRITEBYTECODE": "1"}
    argv = [sys.executable, "-m", "invoke", "-r", str(checkout), "release.rehearse", "nightly", "--json"]
    done = subprocess.run(
        argv, cwd=checkout, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    # How images are staged depends on whether an engine runs on this machine.
    assert [re.sub(r"^(stage images) \(.*", r"\1", step["step"]) for step in report["steps"]] == STEPS
    assert all(step["result"] and step["seconds"] >= 0 for step in report["steps"])
    folder = Path(report["folder"])
    assert folder.parent == checkout / ".omni-ci" / "rehearsals"
    assert report["store"] == (folder / "store").as_uri()
    assert (folder / "store" / "nightly").is_dir()

    assert contents(checkout) == before
    assert git(folder / "source", "log", "--format=%s").splitlines() == ["Second nightly", "First nightly"]
    # The tools' own caches may lie in the home, and what a rustup makes when pip asks `rustc` for its version.
    assert {path.name for path in home.iterdir()} <= {".cache", ".rustup"}
