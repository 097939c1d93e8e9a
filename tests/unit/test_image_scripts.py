"""The checks that run inside an image's build, with stand-ins for what the image has installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tasks.support.settings import CHECKOUT

SCRIPT = CHECKOUT / "scripts" / "image_checks.py"
DECODER = """
import wave
class AudioDecoder:
    def __init__(self, path): self.path = path
    def get_all_samples(self):
        with wave.open(self.path) as sound: count = sound.getnframes()
        class Data: shape = (1, count - {lost})
        class Samples: data = Data
        return Samples
"""


class Image:
    """A folder of installed packages."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def package(self, name: str, text: str = "", version: str | None = None) -> None:
        (self.folder / name).mkdir(parents=True)
        (self.folder / name / "__init__.py").write_text(text)
        if version:
            info = self.folder / f"{name}-{version}.dist-info"
            info.mkdir()
            (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")

    def check(self, *words: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-S", SCRIPT, *words],
            env={"PYTHONPATH": str(self.folder), "PATH": os.defpath},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stderr


@pytest.fixture
def image(tmp_path: Path) -> Image:
    made = Image(tmp_path)
    made.package("vllm_omni")
    return made


@pytest.mark.parametrize(
    ("have", "wanted", "good"),
    [
        ("0.28.0", "v0.28.0", True),
        ("0.28.0+cu130", "v0.28.0", True),
        ("0.28.0", "v0.28.0rc1", True),
        ("0.27.0", "v0.28.0", False),
        ("0.28.1", "v0.28.0", False),
        ("0.28.0.dev3+gabc", "2cf0a6915ce5", True),
        ("0.28.0", "", True),
        ("dev", "v0.28.0", False),
    ],
)
def test_the_wrong_vllm_fails_the_build(image: Image, have: str, wanted: str, good: bool) -> None:
    image.package("vllm", version=have)
    code, said = image.check("--vllm", wanted)
    assert (code == 0) is good, said
    assert good or f"vLLM is {have}, not 0.28.0" in said


def test_a_vllm_that_cannot_be_imported_fails_the_build(image: Image) -> None:
    image.package("vllm", "raise OSError('libcuda.so.1: cannot open shared object file')", "0.28.0")
    code, said = image.check("--vllm", "v0.28.0")
    assert (code, said) == (1, "error: OSError: libcuda.so.1: cannot open shared object file\n")


def test_a_library_that_is_not_installed_fails_the_build(tmp_path: Path) -> None:
    made = Image(tmp_path)
    made.package("vllm", version="0.28.0")
    assert made.check() == (1, "error: ValueError: vllm_omni is not installed\n")


@pytest.mark.parametrize(
    ("providers", "good"),
    [(["ROCMExecutionProvider", "CPUExecutionProvider"], True), (["CPUExecutionProvider"], False), ([], False)],
)
def test_the_cpu_build_of_onnxruntime_fails_the_build(image: Image, providers: list[str], good: bool) -> None:
    image.package("vllm", version="0.28.0")
    image.package("onnxruntime", f"def get_available_providers(): return {providers}")
    code, said = image.check("--onnx-provider", "ROCMExecutionProvider")
    assert (code == 0) is good
    assert good or "onnxruntime has no ROCMExecutionProvider" in said


@pytest.mark.parametrize("lost", [0, 1])
def test_a_decoder_that_loses_sound_fails_the_build(image: Image, lost: int) -> None:
    image.package("vllm", version="0.28.0")
    image.package("torchcodec")
    (image.folder / "torchcodec" / "decoders.py").write_text(DECODER.format(lost=lost))
    code, said = image.check("--torchcodec")
    assert code == lost
    assert ("torchcodec decoded 15999 samples of 16000" in said) is bool(lost)


def test_every_fault_is_told_at_once(image: Image) -> None:
    code, said = image.check("--onnx-provider", "ROCMExecutionProvider", "--torchcodec")
    assert code == 1
    assert [line.partition(": No module named ")[2] for line in said.splitlines()] == [
        "'vllm'",
        "'onnxruntime'",
        "'torchcodec'",
    ]
