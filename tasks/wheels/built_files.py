"""Judges what a build left behind and moves it to where it is wanted, all of it or nothing."""

from __future__ import annotations

import re
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

from packaging.version import Version

from tasks.support import paths
from tasks.support.errors import ConfigurationError, DataError
from tasks.wheels import archives
from tasks.wheels.distribution import Facts, Kind, parse_filename, read_facts, shown
from tasks.wheels.variants import without_variant

DEVICES = ("cuda", "rocm", "xpu", "npu", "cpu")
DEFAULT_DEVICE = "cuda"
TARGET_DEVICE = "VLLM_OMNI_TARGET_DEVICE"


def read_built(out: Path, device: str, epoch: int, patterns: tuple[str, ...]) -> tuple[Facts, ...]:
    """Return the facts of the one sdist and the one wheel that a build left in ``out``; the sdist is settled.

    Raises DataError when there is anything else, when they disagree, or when their variant is not the device's.
    """
    names = sorted(path.name for path in out.iterdir()) if paths.is_folder(out) else []
    kinds = [parse_filename(name).kind for name in names]
    if sorted(kinds, key=lambda kind: kind.name) != [Kind.SDIST, Kind.WHEEL]:
        raise DataError(
            f"the build made {', '.join(map(shown, names)) or 'nothing'}; one sdist and one wheel are wanted"
        )
    for name, kind in zip(names, kinds, strict=True):
        if kind is Kind.SDIST:
            read_facts(out / name, patterns)  # it must be whole before it is rewritten
            archives.settle_sdist(out / name, epoch)
    facts = sorted((read_facts(out / name, patterns) for name in names), key=lambda item: item.kind.name)
    sdist, wheel = facts
    if (sdist.project, sdist.version) != (wheel.project, wheel.version):
        raise DataError(f"the build made two things: {sdist.filename} and {wheel.filename}")
    check_variant(wheel.version, wheel.variant, device)
    return sdist, wheel


def check_variant(version: str, variant: str | None, device: str) -> None:
    """Raise DataError unless the version names the device's variant; the default device has none."""
    if device == DEFAULT_DEVICE:
        if variant is not None:
            raise DataError(f"the build for {device} made version {version}, and it must have no variant")
        return
    if variant is None or not re.fullmatch(rf"{device}[\d.]*", variant):
        found = f"its variant is {variant}" if variant else "it has no variant"
        raise DataError(
            f"the build for {device} made version {version}: {found}",
            hint=f"the source's set-up must append +{device} when {TARGET_DEVICE}={device}",
        )


def place(facts: tuple[Facts, ...], dist: Path, patterns: tuple[str, ...]) -> tuple[Facts, ...]:
    """Move the files into ``dist``, all or none; one that is there already with the same bytes stays.

    Raises DataError, and changes nothing, when ``dist`` holds another version of the project or other bytes
    under one of the names. Builds of the same version for other devices may lie there.
    """
    moved: list[Path] = []
    try:
        dist.mkdir(parents=True, exist_ok=True)
        new = [item for item in facts if not _is_there(item, dist, patterns)]
        with tempfile.TemporaryDirectory(prefix=".omni-ci-", dir=dist) as stage:
            for item in new:
                shutil.copyfile(item.path, Path(stage) / item.filename)
            for item in new:
                moved.append(dist / item.filename)
                (Path(stage) / item.filename).rename(dist / item.filename)
    except BaseException as error:
        for path in moved:
            path.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise ConfigurationError(f"cannot write to {dist}: {error.strerror or error}") from error
        raise
    return tuple(replace(item, path=dist / item.filename) for item in facts)


def _is_there(item: Facts, dist: Path, patterns: tuple[str, ...]) -> bool:
    """Say whether ``dist`` holds this very file; refuse what must not lie beside it."""
    version = without_variant(Version(item.version), patterns)
    for path in sorted(dist.iterdir()):
        try:
            other = parse_filename(path.name)
        except DataError:
            continue
        if other.project == item.project and without_variant(other.version, patterns) != version:
            raise DataError(
                f"{dist} holds another version, {path.name}, beside {item.filename}",
                hint="remove it, or choose another --dist",
            )
    path = dist / item.filename
    if not paths.is_there(path):
        return False
    if read_facts(path, patterns).sha256 != item.sha256:
        raise DataError(f"{path} is there with other bytes", hint="remove it, or choose another --dist")
    return True
