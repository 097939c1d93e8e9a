"""A base image for our Dockerfiles where the real ones cannot be pulled: this machine's shell and python, no network.

What a Dockerfile itself says is run for real: its copies, arguments, mounts, shell lines, checks, and the set-up of
this tool. Installing is not: `apt-get`, `uv` and `pip` are stand-ins that write down what they were told and put the
library's folder where python finds it; vLLM, onnxruntime and torchcodec are a few lines each.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.engine_server import DockerEngine, closure

PYTHON = Path("/usr/bin/python3")
SITE = "/usr/lib/python3/dist-packages"
TOLD = "/var/log/installs"
_PROGRAMS = (
    "bash", "sh", "cat", "chmod", "env", "id", "install", "ln", "ls", "mkdir", "rm", "uname", "readlink", "test",
)  # fmt: skip
_NOT_NEEDED = {
    *("test", "tests", "idlelib", "lib2to3", "__pycache__", "ensurepip"),
    *("tkinter", "turtledemo", "pydoc_data", "dist-packages"),
}

# Whether a credential was there is written down, and never what it was.
_INSTALL = f"""
import os, shutil, sys
with open({TOLD!r}, "a") as told:
    secret = os.path.exists("/root/.netrc")
    print(sys.argv[1:], "with a .netrc" if secret else "without a .netrc", file=told)
if sys.argv[1:2] == ["pip"]:
    del sys.argv[1]
if sys.argv[1] == "install" and any(word in (".", ".[dev]") for word in sys.argv):
    shutil.copytree("vllm_omni", {SITE + "/vllm_omni"!r}, dirs_exist_ok=True)
for option, file in zip(sys.argv, sys.argv[1:]):
    if option == "-r":
        open(file).close()
"""
_TORCHCODEC = """
import wave
from types import SimpleNamespace
class AudioDecoder:
    def __init__(self, file): self._file = file
    def get_all_samples(self):
        with wave.open(self._file) as sound:
            return SimpleNamespace(data=SimpleNamespace(shape=(1, sound.getnframes())))
"""


def load_base(engine: DockerEngine, tag: str, vllm: str) -> str:
    """Make the base with a vLLM of this version, and return the image's id."""
    return engine.load_files(tag, dict(_files(vllm)))


def _files(vllm: str) -> Iterator[tuple[str, bytes]]:
    version = subprocess.run(
        [PYTHON, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], capture_output=True, text=True, check=True
    ).stdout.strip()
    library = Path(f"/usr/lib/python{version}")
    modules = [path for path in library.rglob("*") if path.is_file() and not _NOT_NEEDED & set(path.parts[4:])]
    programs = {f"/bin/{name}" for name in _PROGRAMS if Path(f"/bin/{name}").exists()}
    shared = [str(path) for path in modules if path.suffix == ".so"]
    for name in sorted(closure([*programs, str(PYTHON), *shared])):
        yield name, Path(name).read_bytes()
    for path in modules:
        yield str(path), path.read_bytes()
    yield "/usr/bin/apt-get", b"#!/bin/sh\nexit 0\n"
    yield "/usr/bin/uv", f"#!{PYTHON}\n{_INSTALL}".encode()
    yield f"{SITE}/pip/__main__.py", _INSTALL.encode()
    yield f"{SITE}/vllm/__init__.py", b""
    yield f"{SITE}/vllm-{vllm}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: vllm\nVersion: {vllm}\n".encode()
    yield f"{SITE}/onnxruntime.py", b"def get_available_providers():\n    return ['ROCMExecutionProvider']\n"
    yield f"{SITE}/torchcodec/decoders.py", _TORCHCODEC.encode()
    for part in ("ascend-toolkit", "nnal/atb"):
        yield f"/usr/local/Ascend/{part}/set_env.sh", b"export LD_LIBRARY_PATH=/usr/local/Ascend/lib\n"
    for folder in ("/root", "/var/log", "/var/lib/apt/lists", "/usr/local/bin", "/tmp"):
        yield f"{folder}/.keep", b""
