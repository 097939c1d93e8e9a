"""Get the tool that .buildkite/automation.lock names, check it, and become the command in the arguments.

`pipelines.install` writes the text below this one into the library's entry pipelines, for `python3 -I -c` inside single
quotes of a shell: no single quote and no dollar may be in it. Up to the check of the version it must be understood by
a Python as old as 3.6. A build of a fork reads the lock from the branch that the pull request is to go into, because a
fork that could name another tool could name anything. The archive is kept, under its SHA-256, in the user's cache.
"""

# ruff: noqa: D103, E402, PLR2004, PTH103, PTH104, PTH111, PTH112, PTH118, PTH123, RUF005, S202, S310, S606, TRY301
# ruff: noqa: UP031, UP036

import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import urllib.error
import urllib.request
from typing import NoReturn

LOCK = ".buildkite/automation.lock"
LARGEST = 2**26


def stop(code: int, sentence: str) -> NoReturn:
    print("error: " + sentence, file=sys.stderr)
    sys.exit(code)


if sys.version_info < (3, 11):
    for newer in filter(None, [shutil.which("python3.%d" % minor) for minor in range(30, 10, -1)]):
        with open("/proc/self/cmdline", "rb") as words:
            os.execv(newer, [newer.encode()] + words.read().split(b"\0")[1:-1])
    stop(78, "Python 3.11 or newer is needed, and this agent has %s" % sys.version.split()[0])

import tomllib

env = os.environ


def git(*words: str) -> bytes | None:
    done = subprocess.run(["git", *words], stdout=subprocess.PIPE, check=False)
    return done.stdout if done.returncode == 0 else None


def repository(address: str) -> str:
    plain = re.sub(r"^[a-z+]+://", "", address.lower())
    return re.sub(r"\.git/*\Z", "", re.sub(r"^[^@/]*@", "", plain)).replace(":", "/").strip("/")


def locked() -> bytes:
    ours, theirs = env.get("BUILDKITE_REPO", ""), env.get("BUILDKITE_PULL_REQUEST_REPO", "")
    pull_request = env.get("BUILDKITE_PULL_REQUEST", "false") not in ("", "false")
    if not (repository(theirs) != repository(ours) if theirs else pull_request):
        try:
            with open(LOCK, "rb") as file:
                return file.read()
        except OSError:
            stop(66, LOCK + " cannot be read: start this at the top of the checkout")
    base = env.get("BUILDKITE_PULL_REQUEST_BASE_BRANCH") or env.get("BUILDKITE_PIPELINE_DEFAULT_BRANCH") or "main"
    if git("fetch", "--quiet", "--no-tags", "--", ours or "origin", "refs/heads/" + base) is None:
        stop(75, "the branch that the pull request is to go into cannot be fetched")
    found = git("show", "FETCH_HEAD:" + LOCK)
    if found is None:
        stop(66, "the branch that the pull request is to go into has no " + LOCK)
    return found


def download(address: str) -> bytes:
    try:
        with urllib.request.urlopen(address, timeout=60) as answer:
            return bytes(answer.read(LARGEST))
    except urllib.error.HTTPError as error:
        stop(75 if error.code >= 500 or error.code == 429 else 69, "%s answers %d" % (address, error.code))
    except (OSError, ValueError) as error:
        stop(75, "%s cannot be downloaded: %s" % (address, error))


def unpacked(address: str, sha256: str) -> str:
    cache = os.path.join(env.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "omni-ci")
    place = os.path.join(cache, sha256)
    if os.path.isdir(place):
        return place
    data = download(address)
    if hashlib.sha256(data).hexdigest() != sha256:
        stop(65, address + " is not the archive that " + LOCK + " names: its SHA-256 is another")
    os.makedirs(cache, exist_ok=True)
    making = tempfile.mkdtemp(dir=cache, prefix="making-")
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(making)
    try:
        os.rename(making, place)
    except OSError:
        if not os.path.isdir(place):
            raise
        shutil.rmtree(making)
    return place


try:
    lock = tomllib.loads(locked().decode())
    address, sha256 = lock["address"], lock["sha256"]
    if not re.fullmatch("[0-9a-f]{64}", sha256):
        raise ValueError(sha256)
except (KeyError, TypeError, ValueError):
    stop(65, LOCK + " is not as pipelines.install writes it")
tool = unpacked(address, sha256)
sys.stderr.flush()
os.execv(sys.executable, [sys.executable, os.path.join(tool, "scripts", "on_agent.py"), *sys.argv[1:]])
