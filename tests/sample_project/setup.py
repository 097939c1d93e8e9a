"""Appends the device to the version, as the library's setup.py does."""

import os
from pathlib import Path

from setuptools import setup

version = Path(__file__).with_name("VERSION").read_text(encoding="utf-8").strip()
device = os.environ.get("VLLM_OMNI_TARGET_DEVICE", "cuda")
if device != "cuda":
    version += ("." if "+" in version else "+") + device

setup(version=version)
