"""Check native files: everything that can be known of them before a machine is asked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from tasks.pipelines.amd_form import ordinary
from tasks.pipelines.bootstrapping import upload_key
from tasks.pipelines.build_facts import DEFAULT_MIRROR, Build
from tasks.pipelines.changes import ChangeSet, State
from tasks.pipelines.checks import (
    amd,
    cells,
    dead_paths,
    dollars,
    graph,
    keys,
    marks,
    orphans,
    quarantined,
    quoting,
    schema,
    secret_values,
    selection_tables,
    timeouts,
)
from tasks.pipelines.checks.findings import Finding, Level, Subject, Tree
from tasks.pipelines.model import NativeFile
from tasks.pipelines.reading import read_native
from tasks.pipelines.rendering import render
from tasks.pipelines.rules import Files
from tasks.pipelines.selecting import select
from tasks.suites import areas, presets, quarantine, tiers
from tasks.support import paths
from tasks.support.errors import DataError

__all__ = ["Context", "Finding", "Level", "as_json", "check", "check_file", "context_of", "fails"]


@dataclass(frozen=True)
class Context:
    """What files are checked against. ``tree`` and ``files`` are the source's, None where there is no source."""

    rules: areas.PathRules
    presets: presets.Presets
    tiers: tiers.Tiers
    quarantine: tuple[quarantine.Entry, ...]
    today: date
    tree: Tree | None = None
    files: Files | None = None

    def uploads(self) -> frozenset[str]:
        """Return the keys of the steps that come before any cell's: images and uploads."""
        images = {image.key for one in self.tiers.bootstraps.values() for image in one.images}
        single = {one.one_step.key for one in self.tiers.bootstraps.values() if one.one_step}
        return frozenset(images | single | {upload_key(cell) for cell in self.tiers.cells.values()})


def context_of(source: Path | None, today: date) -> Context:
    """Read our catalogues, and list the source's files: those that git knows or would add, else all of them."""
    tree = _tree(source) if source is not None else None
    return Context(
        rules=areas.load(),
        presets=presets.load(),
        tiers=tiers.load(),
        quarantine=quarantine.load(),
        today=today,
        tree=tree,
        files=Files(tree.paths) if tree else None,
    )


def check_file(data: bytes, name: str, context: Context) -> tuple[Finding, ...]:
    """Check one file, which messages call ``name``; a file that cannot be read is one finding, with its line."""
    try:
        file = read_native(data, name)
    except DataError as error:
        return (_unreadable(error, name),)
    return _sorted(_file(file, data, context))


def check(context: Context) -> tuple[Finding, ...]:
    """Check the file of every cell that the source has, and what only all of them together can show."""
    found: list[Finding] = []
    subjects: list[Subject] = []
    for name in _cell_files(context):
        data = context.tree.read(name) if context.tree else None
        if data is None:
            continue
        try:
            file = read_native(data, name)
        except DataError as error:
            found.append(_unreadable(error, name))
            continue
        subjects.append(_subject(file, data))
        found += _file(file, data, context)
    known = context.tree.paths if context.tree else None
    found += quarantined.check(context.quarantine, context.today, known)
    if context.files is not None:
        found += dead_paths.check_areas(context.rules, context.files, paths.from_checkout(areas.FILE))
    if context.tree is not None:
        found += orphans.check(subjects, context.tree)
    return _sorted(found)


def fails(findings: Iterable[Finding], *, strict: bool = False) -> bool:
    """Say whether findings make the check fail: errors do, warnings with ``strict``."""
    return any(one.level is Level.ERROR or (strict and one.level is Level.WARNING) for one in findings)


def as_json(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """Return findings for machines, in their order."""
    return [
        {
            "level": one.level.value,
            "where": one.where,
            "step": one.step,
            "rule": one.rule,
            "text": one.text,
            "hint": one.hint,
        }
        for one in findings
    ]


def _file(file: NativeFile, data: bytes, context: Context) -> list[Finding]:
    subject = _subject(file, data)
    found = list(_families(subject, context))
    if not fails(found):
        found += _refused(subject, context)
    return found


def _refused(subject: Subject, context: Context) -> Iterator[Finding]:
    """Yield what an upload of the whole file would stop at, in case no family looks for it."""
    try:
        rules = context.rules.with_own(subject.file.top, subject.file.where())
        plain = ordinary(subject.file, DEFAULT_MIRROR).file
        nothing = ChangeSet(State.EMPTY, (), None, None, "nothing")
        decisions = select(plain, nothing, rules, Build())
        render([decision.step for decision in decisions], plain, context.presets, Build())
    except DataError as error:
        yield subject.raised(error, "refused")


def _families(subject: Subject, context: Context) -> Iterator[Finding]:
    file = subject.file
    for text in file.warnings:
        yield subject.raised(DataError(text), "yaml", level=Level.WARNING)
    owners = context.tiers.at_file(file.name)
    yield from schema.check(subject, context.presets)
    yield from keys.check(subject)
    yield from graph.check(subject, context.uploads())
    yield from timeouts.check(subject)
    yield from quoting.check(subject)
    yield from dollars.check(subject)
    yield from secret_values.check(subject)
    yield from amd.check(subject)
    rules = context.rules
    try:
        rules = rules.with_own(file.top, file.where())
    except DataError as error:
        yield subject.raised(error, "path-rule")
    yield from dead_paths.check(subject, rules, context.files)
    yield from marks.check(subject, context.presets, owners[0].device if owners else None)
    yield from selection_tables.check(subject, rules)
    for cell in owners:
        yield from cells.check(subject, cell)


def _subject(file: NativeFile, data: bytes) -> Subject:
    return Subject(file, tuple(data.decode("utf-8", "replace").splitlines()))


def _sorted(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(sorted(dict.fromkeys(findings), key=lambda one: one.order))


def _unreadable(error: DataError, name: str) -> Finding:
    return Subject(NativeFile(name, {}, {}, ())).raised(error, "yaml")


def _cell_files(context: Context) -> Sequence[str]:
    """Return the file of each cell: the first of its names that the source has."""
    known = context.tree.paths if context.tree else frozenset[str]()
    first = (next((name for name in cell.files if name in known), None) for cell in context.tiers.cells.values())
    return tuple(dict.fromkeys(name for name in first if name is not None))


def _tree(source: Path) -> Tree:
    from tasks.support.source import git, has_git

    if has_git(source):
        listed = git(source, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", ".").stdout
        names = [name for name in listed.decode("utf-8", "surrogateescape").split("\0") if name]
    else:
        names = [path.relative_to(source).as_posix() for path in sorted(source.rglob("*")) if path.is_file()]
    known = frozenset(names)

    def read(path: str) -> bytes | None:
        try:
            return (source / path).read_bytes() if path in known else None
        except OSError:
            return None

    return Tree(known, read)
