"""A stand-in for a vendor's base image: this machine's own shell and python, and packages that only say that they are.

It lets our Dockerfiles run every step for real, with an `uv`, a pip and an `apt-get` that fetch nothing and behave in
the ways that our steps are there for: test tools bring the CPU build of onnxruntime, triton lies over triton-xpu, and
an installation can replace vLLM.
"""

from __future__ import annotations

import io
import secrets
import subprocess
import tarfile
from pathlib import Path

from tests.engine_server import DockerEngine, closure

PYTHON = Path("/usr/bin/python3")
PACKAGES = "usr/lib/python3/dist-packages"
LOG = "/installed.log"
_PROGRAMS = (
    "bash", "cat", "chmod", "env", "id", "install", "ln", "ls", "mkdir", "mktemp", "mount", "rm", "rmdir", "sleep",
    "stat", "tee", "touch", "true", "uname",
)  # fmt: skip
_LEFT_OUT = {"__pycache__", "test", "idlelib", "lib2to3", "pydoc_data", "ensurepip", "tkinter"}

INSTALLER = """\
import os, pathlib, re, shutil, sys
HERE = pathlib.Path("/usr/lib/python3/dist-packages")
DEFAULTS = {"onnxruntime": "CPUExecutionProvider", "onnxruntime-rocm": "ROCMExecutionProvider"}


def install(name, version="1"):
    module = HERE / name.replace("-rocm", "").replace("-", "_")
    module.mkdir(exist_ok=True)
    provider = DEFAULTS.get(name)
    text = f"def get_available_providers(): return [{provider!r}]\\n" if provider else ""
    (module / "__init__.py").write_text(text)
    info = HERE / f"{module.name}-{version}.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n")


def remove(name):
    for found in [HERE / name.replace("-", "_"), *HERE.glob(f"{name.replace('-', '_')}-*.dist-info")]:
        shutil.rmtree(found, ignore_errors=True)


def main(words):
    seen = {key: value for key, value in os.environ.items() if "INDEX" in key or key in ("MAX_JOBS", "UV_CACHE_DIR")}
    netrc = pathlib.Path("/root/.netrc")
    said = f"{words} {seen} netrc={netrc.is_file() and netrc.stat().st_size > 0}"
    with open("/installed.log", "a") as log:
        log.write(said + "\\n")
    if words[0] == "uninstall":
        for word in words[1:]:
            remove(word) if re.fullmatch("[a-z-]+", word) else None
        return
    for word in words[1:]:
        if word in (".", ".[dev]"):
            install("vllm_omni")
            if "dev" in word:
                install("onnxruntime")
            replacement = pathlib.Path("replaces-vllm")
            if replacement.exists():
                remove("vllm")
                install("vllm", replacement.read_text().strip())
        elif word.endswith(".txt"):
            assert pathlib.Path(word).is_file(), word
        elif re.match("onnxruntime-rocm>=", word):
            install("onnxruntime-rocm", word.partition("=")[2])
        elif re.match("triton-xpu==", word):
            install("triton-xpu", word.rpartition("=")[2])


main(sys.argv[1:])
"""
TORCHCODEC = """\
import wave


class AudioDecoder:
    def __init__(self, path): self.path = path

    def get_all_samples(self):
        with wave.open(self.path) as sound:
            count = sound.getnframes()

        class Data: shape = (1, count)
        class Samples: data = Data
        return Samples
"""
UV = '#!/bin/sh\nshift\nexec python3 /opt/installer.py "$@"\n'
CANN = "export ASCEND_SET_BY_THIS=1\n"


def make_source(folder: Path, **files: str) -> Path:
    """Make a git checkout with the little of the library that the Dockerfiles name, tagged v0.28.0, and these files."""
    contents = {f"requirements/{device}.txt": "packaging\n" for device in ("cuda", "rocm", "xpu", "npu")}
    for name, text in {**contents, "vllm_omni/__init__.py": "", **files}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    who = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"], ["tag", "v0.28.0"]):
        subprocess.run(["git", *who, *words], cwd=folder, check=True)
    return folder


def load_base(engine: DockerEngine, tag: str, vllm: str) -> str:
    """Make the base image in an engine, with this version of vLLM installed, and return its id."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name in sorted(_files()):
            _add(tar, name.lstrip("/"), Path(name).read_bytes())
        for name, text in _made(vllm).items():
            _add(tar, name, text.encode())
        # No two bases are the same: a step that ran for one test, without its secrets, is never reused by another.
        _add(tar, "etc/base-id", secrets.token_bytes(16))
        for name, target in (("bin/sh", "bash"), ("usr/bin/python3", "python3.11"), ("root/.cache/kept", "/tmp")):
            _link(tar, name, target)
        for name, mode in (("tmp", 0o1777), ("root", 0o700), ("usr/local/bin", 0o755)):
            _folder(tar, name, mode)
    return engine.docker("import", "-", tag, stdin=archive.getvalue())


def _files() -> set[str]:
    library = Path(f"/usr/lib/{PYTHON.resolve().name}")
    modules = {
        str(path)
        for path in library.rglob("*")
        if path.is_file() and not _LEFT_OUT & set(path.parts) and path.suffix != ".a"
    }
    shared = {name for name in modules if name.endswith(".so")}
    programs = {found for name in _PROGRAMS for found in (f"/bin/{name}",) if Path(found).exists()}
    return closure([*programs, str(PYTHON.resolve()), *shared]) | modules


def _made(vllm: str) -> dict[str, str]:
    ascend = "usr/local/Ascend"
    return {
        "usr/bin/apt-get": "#!/bin/sh\nexit 0\n",
        "usr/bin/uv": UV,
        "opt/installer.py": INSTALLER,
        f"{PACKAGES}/pip/__init__.py": "",
        f"{PACKAGES}/pip/__main__.py": "import runpy\nrunpy.run_path('/opt/installer.py')\n",
        f"{PACKAGES}/vllm/__init__.py": "",
        f"{PACKAGES}/vllm-{vllm}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: vllm\nVersion: {vllm}\n",
        f"{PACKAGES}/torchcodec/__init__.py": "",
        f"{PACKAGES}/torchcodec/decoders.py": TORCHCODEC,
        f"{PACKAGES}/triton/__init__.py": "",
        f"{ascend}/ascend-toolkit/set_env.sh": CANN,
        f"{ascend}/nnal/atb/set_env.sh": CANN,
        "etc/passwd": "root:x:0:0:root:/root:/bin/bash\n",
    }


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    facts = tarfile.TarInfo(name)
    facts.size, facts.mode = len(data), 0o755
    tar.addfile(facts, io.BytesIO(data))


def _link(tar: tarfile.TarFile, name: str, target: str) -> None:
    facts = tarfile.TarInfo(name)
    facts.type, facts.linkname = tarfile.SYMTYPE, target
    tar.addfile(facts)


def _folder(tar: tarfile.TarFile, name: str, mode: int) -> None:
    facts = tarfile.TarInfo(name)
    facts.type, facts.mode = tarfile.DIRTYPE, mode
    tar.addfile(facts)
