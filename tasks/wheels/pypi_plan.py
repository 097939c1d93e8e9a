"""Planning a publish: the files of exactly one version, and what the public package index has of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from packaging.utils import canonicalize_name
from packaging.version import Version

from tasks.support.errors import DataError, MissingInputError, UsageError
from tasks.wheels.distribution import Kind, parse_filename
from tasks.wheels.index import Index
from tasks.wheels.published import Published
from tasks.wheels.state import FileRecord
from tasks.wheels.upload import Standing
from tasks.wheels.versions import parse_version
from tasks.wheels.views import commit_records


@dataclass(frozen=True)
class PlannedFile:
    """One file of a version, and what the index knows of it."""

    record: FileRecord
    standing: Standing


@dataclass(frozen=True)
class PublishPlan:
    """What a publish will do. ``actions`` is what ``--dry-run`` prints and what the executor runs."""

    project: str
    version: Version
    commit: str
    files: tuple[PlannedFile, ...]
    index: str
    why: str
    """Why it is this commit."""

    @property
    def new(self) -> tuple[PlannedFile, ...]:
        """Return the files that the index does not have yet."""
        return tuple(file for file in self.files if file.standing is Standing.NEW)

    def actions(self) -> list[tuple[str, str, str]]:
        """Return (action, file or address, reason) in the order of execution."""
        names = [file.record.filename for file in self.new]
        rows = [("twine check", name, "--strict") for name in names]
        rows += [("twine upload", name, "new") for name in names]
        if rows:
            rows.append(("read back", self.index, "compare every sha256"))
        return rows


def parse_release(version: str) -> Version:
    """Return the version to publish; a leading ``v`` is allowed, a development or local version is not (PEP 440)."""
    parsed = parse_version(version)
    if parsed.is_devrelease:
        raise UsageError(f"{parsed} is a development version: it is not published", hint="give a released version")
    if parsed.local:
        raise UsageError(
            f"{parsed} has a local version, +{parsed.local}: public indexes take none",
            hint=f"{parsed.public} is the version without it",
        )
    return parsed


def plan_publish(
    index: Index, version: str, commit: str | None, published: Published, *, sdist: bool = False
) -> PublishPlan:
    """Choose the files of exactly this version, and compare them with what the index has; nothing is written.

    ``commit`` None means the commit that has the version. Raises UsageError for a version that is not published,
    MissingInputError when its wheel (or, with ``sdist``, its sdist) is not there, DataError when a file is yanked,
    when two commits built it with other bytes, or when the index has it with other bytes.
    """
    chosen, why = choose_records(index, version, commit, sdist=sdist)
    files = tuple(PlannedFile(record, _compare(record, published)) for record in chosen)
    project = canonicalize_name(index.rules.project)
    return PublishPlan(project, parse_release(version), chosen[0].commit, files, published.index, why)


def choose_records(index: Index, version: str, commit: str | None, *, sdist: bool) -> tuple[list[FileRecord], str]:
    """Return the files of exactly this version in the order of their upload, and why they are their commit's.

    Raises as ``plan_publish`` says.
    """
    wanted = parse_release(version)
    project = canonicalize_name(index.rules.project)
    state = index.project(project).state
    kinds = {Kind.WHEEL, Kind.SDIST} if sdist else {Kind.WHEEL}
    everywhere = [record for record in state.files.values() if _matches(record, wanted, kinds)]
    _refuse_two_builds(everywhere, wanted)
    if commit is None:
        chosen, why = _choose_commit(everywhere, wanted)
        where, there = index.store.url, [*state.files.values()]
    else:
        there, why = [*commit_records(index, commit).get(project, ())], "it was named"
        chosen, where = [record for record in there if _matches(record, wanted, kinds)], f"commit {commit}"
    for kind in sorted(kinds, key=lambda kind: kind is Kind.SDIST):
        if not any(_kind(record) is kind for record in chosen):
            raise _missing(kind, project, wanted, where, there)
    _refuse_yanked(chosen)
    # The sdist comes last: alone, it would make installers build what a wheel is about to offer.
    return sorted(chosen, key=lambda record: (_kind(record) is Kind.SDIST, record.filename)), why


def _kind(record: FileRecord) -> Kind:
    return parse_filename(record.filename).kind


def _matches(record: FileRecord, wanted: Version, kinds: Iterable[Kind]) -> bool:
    return record.variant is None and Version(record.version) == wanted and _kind(record) in kinds


def _missing(kind: Kind, project: str, wanted: Version, where: str, there: Sequence[FileRecord]) -> MissingInputError:
    versions = sorted({Version(record.version) for record in there if _kind(record) is kind}, reverse=True)
    close = [str(version) for version in versions if version.release == wanted.release] or [*map(str, versions[:5])]
    hint = f"there are {kind.value}s of {', '.join(close)}" if close else "upload it first: invoke wheels.upload"
    return MissingInputError(f"{where} has no {kind.value} of {project} {wanted}", hint=hint)


def _refuse_two_builds(records: Iterable[FileRecord], wanted: Version) -> None:
    """Refuse a version that two commits built with other bytes, unless one of the two was taken back."""
    by_name: dict[str, FileRecord] = {}
    for record in sorted(records, key=lambda record: record.key):
        if record.yanked is not None:
            continue
        other = by_name.setdefault(record.filename, record)
        if other.sha256 != record.sha256:
            raise DataError(
                f"two commits have {record.filename} with other bytes: {other.commit} and {record.commit}",
                hint=f"take back the wrong one: invoke wheels.yank {wanted} --commit SHA",
            )


def _choose_commit(records: Sequence[FileRecord], wanted: Version) -> tuple[list[FileRecord], str]:
    """Return the files of the commit that has all that any commit has of the version; of several, the newest.

    The second value says why it is that one.
    """
    by_commit: dict[str, list[FileRecord]] = {}
    for record in records:
        by_commit.setdefault(record.commit, []).append(record)
    living = {
        commit: {record.filename for record in files if record.yanked is None} for commit, files in by_commit.items()
    }
    if not any(living.values()):
        return list(records), ""
    best = max(living, key=lambda commit: (len(living[commit]), by_commit[commit][0].commit_time, commit))
    for commit, names in living.items():
        if names - living[best]:
            raise DataError(
                f"no commit has all files of {wanted}: {commit} has {min(names - living[best])}, {best} does not",
                hint="choose one with --commit",
            )
    alike = sum(names == living[best] for names in living.values())
    if alike > 1:
        return by_commit[best], f"the newest of {alike} commits with the same files of {wanted}"
    others = " all files of it; others have some" if len(living) > 1 else " this version"
    return by_commit[best], f"the only commit with{others}"


def _refuse_yanked(records: Iterable[FileRecord]) -> None:
    for record in records:
        if record.yanked is not None:
            raise DataError(
                f"{record.key} is yanked: {record.yanked or 'no reason given'}",
                hint="publish another version, or take the yank back: invoke wheels.yank --undo",
            )


def _compare(record: FileRecord, published: Published) -> Standing:
    there = published.files.get(record.filename)
    if there is None:
        return Standing.NEW
    if there != record.sha256:
        raise DataError(
            f"{published.index} has {record.filename} with other bytes: sha256 {there}, not {record.sha256}",
            hint="nothing was uploaded; a published file never changes: release another version",
        )
    return Standing.PUBLISHED
