"""Judges what a build left behind and moves it to where it is wanted, all of it or nothing."""

from __future__ import annotations

import re
import shlex
import shutil
import tempfile
from collections.abc import Sequence
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
        _refuse_others(facts, dist, patterns)
        new = [item for item in facts if not paths.is_there(dist / item.filename)]
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


def check_beside(dist: Path, project: str, commit: str, patterns: tuple[str, ...]) -> None:
    """Raise DataError when files in ``dist`` cannot lie beside a build of ``commit``, as far as their names tell.

    One whose version names another commit, as setuptools_scm's ``+g<hash>`` does, cannot; and of files of two
    versions at least one is in the way of whatever version is built.
    """
    there = _of_project(dist, project)
    versions = {path: without_variant(version, patterns) for path, version in there.items()}
    stale = [path for path, version in there.items() if _names_another(version, commit)]
    if len(set(versions.values())) > 1 and not stale:
        stale = sorted(there)
    if stale:
        raise _in_the_way(dist, stale, f"a build of commit {commit}")


def _names_another(version: Version, commit: str) -> bool:
    named = (re.fullmatch(r"g([0-9a-f]{7,40})", part) for part in (version.local or "").split("."))
    return any(found is not None and not commit.startswith(found[1]) for found in named)


def _of_project(dist: Path, project: str) -> dict[Path, Version]:
    """Return a project's distributions in a folder, sorted by path, with their versions."""
    found = {}
    for path in sorted(dist.iterdir()) if paths.is_folder(dist) else ():
        try:
            name = parse_filename(path.name)
        except DataError:
            continue
        if name.project == project:
            found[path] = name.version
    return found


def _in_the_way(dist: Path, files: Sequence[Path], what: str) -> DataError:
    names = ", ".join(path.name for path in files)
    remove = shlex.join(["rm", "--", *map(str, files)])
    return DataError(
        f"{dist} holds other versions' files, which cannot lie beside {what}: {names}",
        hint=f"choose another --dist, or remove them: {remove}",
    )


def _refuse_others(facts: Sequence[Facts], dist: Path, patterns: tuple[str, ...]) -> None:
    """Refuse, all at once, what must not lie beside these files: another version, or other bytes under a name."""
    others: list[Path] = []
    for item in facts:
        version = without_variant(Version(item.version), patterns)
        there = _of_project(dist, item.project)
        others += [path for path, other in there.items() if without_variant(other, patterns) != version]
    if others:
        raise _in_the_way(dist, sorted(set(others)), ", ".join(item.filename for item in facts))
    same = [dist / item.filename for item in facts if paths.is_there(dist / item.filename)]
    digests = {item.filename: item.sha256 for item in facts}
    changed = [path for path in same if read_facts(path, patterns).sha256 != digests[path.name]]
    if changed:
        are = "is" if len(changed) == 1 else "are"
        raise DataError(
            f"{', '.join(map(str, changed))} {are} there with other bytes",
            hint=f"choose another --dist, or remove what is there: {shlex.join(['rm', '--', *map(str, changed)])}",
        )
