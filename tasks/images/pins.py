"""`docker/pins.yml`: which versions images are built from, and which programs are downloaded for builds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from tasks.registry.references import RepositoryName, check_tag
from tasks.support import paths
from tasks.support.errors import OmniError
from tasks.support.strict_yaml import Node, read_file

VLLM_VERSION = "VLLM_VERSION"
_SHA256 = re.compile(r"[0-9a-f]{64}")
_COMMIT = re.compile(r"[0-9a-f]{7,40}")
_VERSION = re.compile(r"v?[0-9]+(?:\.[0-9]+)*[A-Za-z0-9.+-]*")


@dataclass(frozen=True)
class VllmPin:
    """The vLLM release that a device's images are built from, and where noted the commit that it was when pinned."""

    version: str
    commit: str | None = None


@dataclass(frozen=True)
class DownloadPin:
    """A program that is downloaded: its release, its address, and its sha256 per platform.

    ``sha256`` is None where nobody has recorded one yet; such a download is refused, never trusted.
    """

    name: str
    version: str
    url: str
    sha256: Mapping[str, str | None]
    where: str

    def address(self, platform: str) -> str:
        """Return the address for a platform such as ``linux/arm64``."""
        return self.url.replace("${version}", self.version).replace("${platform}", platform.replace("/", "-"))


@dataclass(frozen=True)
class Pins:
    """Everything pinned. ``values`` has what `${pin:...}` means, such as ``bases.cuda``."""

    vllm: Mapping[str, VllmPin]
    bases: Mapping[str, str]
    packages: Mapping[str, str]
    downloads: Mapping[str, DownloadPin]

    @property
    def values(self) -> Mapping[str, str]:
        """Return every pin by its dotted name."""
        found = {f"vllm.{device}": pin.version for device, pin in self.vllm.items()}
        found |= {f"bases.{name}": base for name, base in self.bases.items()}
        found |= {f"packages.{name}": version for name, version in self.packages.items()}
        return MappingProxyType(found)

    def variables(self, device: str) -> Mapping[str, str]:
        """Return what upper-case placeholders mean for a device's images where the environment says nothing."""
        return {VLLM_VERSION: self.vllm[device].version} if device in self.vllm else {}


def load_pins(file: Path) -> Pins:
    """Read the pins; DataError with file and line for the first thing that is wrong."""
    keys = ("vllm", "bases", "packages", "downloads")
    table = read_file(file, shown_as=paths.from_checkout(file)).table("the pins", keys, keys)
    return Pins(
        vllm=MappingProxyType({name: _vllm(name, node) for name, node in table["vllm"].items("vllm").items()}),
        bases=MappingProxyType({name: _base(name, node) for name, node in table["bases"].items("bases").items()}),
        packages=MappingProxyType(
            {name: _package(name, node) for name, node in table["packages"].items("packages").items()}
        ),
        downloads=MappingProxyType(
            {name: _download(name, node) for name, node in table["downloads"].items("downloads").items()}
        ),
    )


def _vllm(device: str, node: Node) -> VllmPin:
    table = node.table(f"vllm of {device}", ("version", "commit"), ("version",))
    version = table["version"].text("version")
    try:
        check_tag(version)
    except OmniError as error:
        raise table["version"].fail(error.message, error.hint) from error
    commit = table["commit"].text("commit") if "commit" in table else None
    if commit is not None and not _COMMIT.fullmatch(commit):
        raise table["commit"].fail(f"not a commit: {commit!r}")
    return VllmPin(version, commit)


def _base(name: str, node: Node) -> str:
    text = node.text(f"base {name}")
    try:
        RepositoryName.parse(text)
    except OmniError as error:
        raise node.fail(error.message, error.hint) from error
    return text


def _package(name: str, node: Node) -> str:
    text = node.text(f"package {name}")
    if not _VERSION.fullmatch(text):
        raise node.fail(f"not a version: {text!r}")
    return text


def _download(name: str, node: Node) -> DownloadPin:
    keys = ("version", "url", "sha256")
    table = node.table(f"download {name}", keys, keys)
    url = table["url"].text("url")
    if not url.startswith("https://") or "${version}" not in url or "${platform}" not in url:
        raise table["url"].fail("the url must be https and hold ${version} and ${platform}")
    sums: dict[str, str | None] = {}
    for platform, value in table["sha256"].items("sha256").items():
        found = None if value.value is None else value.text("a sha256")
        if found is not None and not _SHA256.fullmatch(found):
            raise value.fail("a sha256 has 64 lower-case hexadecimal digits; null says that none is recorded")
        sums[platform] = found
    return DownloadPin(name, table["version"].text("version"), url, MappingProxyType(sums), node.where)
