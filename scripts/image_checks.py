"""Check what an image's build has made; run by our Dockerfiles with the image's own python, the standard library only.

usage: image_checks.py [--vllm VERSION] [--onnx-provider NAME] [--torchcodec]

Exits with 1 and a line per fault, so that a broken image is never tagged. No accelerator is needed.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import importlib.util
import re
import sys
import tempfile
import wave
from collections.abc import Callable, Iterator
from pathlib import Path

RATE = 16_000
_RELEASE = re.compile(r"v?(\d+(?:\.\d+)+)")


def check_vllm(wanted: str) -> str:
    """Import vLLM and find the library; the installed vLLM must be of the wanted release, when that is one.

    An installation of the library's dependencies can replace the base's vLLM, and the image would still start. Only
    the numbers are compared: the tag of a base may be a candidate of a plugin for a vLLM that is final.
    """
    importlib.import_module("vllm")
    if importlib.util.find_spec("vllm_omni") is None:
        raise ValueError("vllm_omni is not installed")
    have = importlib.metadata.version("vllm")
    release, installed = _RELEASE.match(wanted), _RELEASE.match(have)
    if release and (installed is None or installed[1] != release[1]):
        raise ValueError(f"vLLM is {have}, not {release[1]}")
    return f"vLLM {have}"


def check_onnx(provider: str) -> str:
    """Look for an execution provider; another build of onnxruntime over this one takes it away without a word."""
    have = importlib.import_module("onnxruntime").get_available_providers()
    if provider not in have:
        raise ValueError(f"onnxruntime has no {provider}, only {', '.join(have)}")
    return provider


def check_torchcodec() -> str:
    """Decode a second of silence; torchcodec can be imported where it finds no ffmpeg that it can use."""
    decoders = importlib.import_module("torchcodec.decoders")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "silence.wav"
        with wave.open(str(file), "wb") as sound:
            sound.setnchannels(1)
            sound.setsampwidth(2)
            sound.setframerate(RATE)
            sound.writeframes(bytes(2 * RATE))
        samples = decoders.AudioDecoder(str(file)).get_all_samples()
    count = samples.data.shape[-1]
    if count != RATE:
        raise ValueError(f"torchcodec decoded {count} samples of {RATE}")
    return "torchcodec"


def faults(checks: Iterator[Callable[[], str]]) -> Iterator[str]:
    """Run the checks, print what is good, and yield what is not."""
    for check in checks:
        try:
            print(f"checked: {check()}")
        except Exception as error:  # noqa: BLE001 - whatever an import of the library raises is a fault of the image
            yield f"{type(error).__name__}: {error}"


def wanted_checks(options: argparse.Namespace) -> Iterator[Callable[[], str]]:
    """Yield the checks that the options ask for."""
    yield lambda: check_vllm(options.vllm)
    if options.onnx_provider:
        yield lambda: check_onnx(options.onnx_provider)
    if options.torchcodec:
        yield check_torchcodec


def main() -> None:
    """Run the checks, and exit with 1 when one fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vllm", default="", metavar="VERSION")
    parser.add_argument("--onnx-provider", metavar="NAME")
    parser.add_argument("--torchcodec", action="store_true")
    found = list(faults(wanted_checks(parser.parse_args())))
    for fault in found:
        print(f"error: {fault}", file=sys.stderr)
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
