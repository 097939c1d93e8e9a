"""What a build begins with: a device's first pipeline, and the library's entry pipelines that ask for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tasks.pipelines import begin, bootstrapping, installing
from tasks.pipelines.begin import Run
from tasks.pipelines.bootstrapping import Bootstrapped
from tasks.pipelines.branch_records import uploaded_commits
from tasks.pipelines.changes import change_set
from tasks.pipelines.installing import Archive, Installed, Lock
from tasks.suites import gates, presets, tiers
from tasks.suites.presets import Presets
from tasks.suites.tiers import Tiers
from tasks.support import paths, settings
from tasks.support.source import resolve_source

_DEBUGGED = "rocm"  # the device whose tiers DEBUG_TEST_YAML names


@dataclass(frozen=True)
class Install:
    """What an installation starts with: the library's checkout and the catalogues that its pipelines are made from."""

    source: Path
    tiers: Tiers
    presets: Presets


@dataclass(frozen=True)
class Planned:
    """What the library's checkout is to hold, and the archive of this tool that its lock names."""

    archive: Archive
    files: tuple[Installed, ...]


def bootstrap(run: Run, device: str, only: Sequence[str], *, base: str | None = None) -> Bootstrapped:
    """Return a device's first pipeline for this build.

    On main a change is what came since the newest commit that every open tier was uploaded for. Without ``only``, rocm
    takes the tiers from DEBUG_TEST_YAML. Raises UsageError for a device or tier that does not exist.
    """
    if not only and device == _DEBUGGED:
        only = bootstrapping.debug_tiers(run.settings.variable("DEBUG_TEST_YAML"))
    open_cells = [cell for cell in run.tiers.of_device(device) if gates.holds(cell.gate, run.build)]
    records = [uploaded_commits(run.settings, run.build, cell.record_name(run.build)) for cell in open_cells]
    common = [commit for commit in records[0] if all(commit in one for one in records)] if records else ()
    changes = change_set(run.source, run.build, base=base, record=common)
    skip = begin.skip_of(run, changes)
    start = installing.start() if installing.read_lock(run.source) is not None else None
    return bootstrapping.bootstrap(device, run.tiers, presets.load(), run.build, skip, only=only, start=start)


def open_install(source: str | None, *, profile: str | None, writes: bool) -> Install:
    """Find the library's checkout, and say where something will be written."""
    chosen = settings.load(profile=profile, source=source)
    found = resolve_source(chosen, paths.current_folder())
    begin.announce(chosen, str(found), dry_run=not writes)
    return Install(found, tiers.load(), presets.load())


def plan(run: Install, address: str | None) -> Planned:
    """Return what ``pipelines.install`` writes; nothing is written yet."""
    archive = installing.archive_of()
    lock = installing.make_lock(archive, address, installing.read_lock(run.source))
    return Planned(archive, installing.plan_install(run.source, lock, run.tiers, run.presets))


def check(run: Install) -> Lock:
    """Return the lock of a checkout that holds what this tool installs; DataError naming what differs."""
    return installing.check(run.source, run.tiers, run.presets)


def folder(word: str) -> Path:
    """Return the folder that ``--archive`` names."""
    return paths.absolute(paths.as_path(word, "--archive"))
