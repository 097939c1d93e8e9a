"""What every pipelines task starts with: the build's facts, what changed, and the decisions about a cell or a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tasks.pipelines import cells
from tasks.pipelines.amd_form import ordinary
from tasks.pipelines.build_facts import Build, read_build
from tasks.pipelines.changes import ChangeSet, base_tip, change_set
from tasks.pipelines.explaining import Explanation
from tasks.pipelines.model import NativeFile, Reason, Why
from tasks.pipelines.selecting import E2E_TITLE, IMPORTS, Chain, Choice, Named, Shut, select
from tasks.suites import areas, gates, tiers
from tasks.suites.areas import PathRules
from tasks.suites.tiers import E2E, Cell, Tiers, gate_of
from tasks.support import announcing, console, paths, settings
from tasks.support.errors import DataError, MissingInputError, UsageError
from tasks.support.profiles import Deed
from tasks.support.settings import Settings
from tasks.support.source import resolve_source

if TYPE_CHECKING:
    from tasks.pipelines.checks.findings import Finding
    from tasks.pipelines.skipping import Skip


@dataclass(frozen=True)
class Run:
    """One run's settings, source, build and catalogues."""

    settings: Settings
    source: Path
    build: Build
    rules: PathRules
    tiers: Tiers


@dataclass(frozen=True)
class Wanted:
    """What a task was asked about: a cell or a file, of another commit than the build's, compared with another base."""

    cell: str | None = None
    file: str | None = None
    base: str | None = None
    commit: str | None = None

    @property
    def name(self) -> str:
        """Return the cell or file, as it was given."""
        return self.cell or self.file or ""

    def __post_init__(self) -> None:
        if (self.cell is None) == (self.file is None):
            both = self.cell is not None
            raise UsageError(
                "--cell and --file exclude each other" if both else "neither --cell nor --file is given",
                hint="pass --cell cuda_ready or another cell, or --file with the path of a pipeline",
            )


@dataclass(frozen=True)
class Decided:
    """A pipeline's steps, and what was decided about them."""

    run: Run
    cell: Cell | None
    file: NativeFile
    explanation: Explanation


def open_run(*, profile: str | None = None, source: str | None = None, store: str | None = None) -> Run:
    """Read the settings, the build and the catalogues, and find the source."""
    chosen = settings.load(profile=profile, source=source, store=store)
    found = resolve_source(chosen, paths.current_folder())
    return Run(chosen, found, read_build(chosen), areas.load(), tiers.load())


def decide(run: Run, wanted: Wanted, choice: Choice, *, notes: bool = False) -> Decided:
    """Decide which steps of a cell or a file run; ``notes`` adds what else an explanation says.

    Gates are judged for a cell and in a build: a file has none, and a person's computer has no labels. A fork's build
    reads the file from the branch that it is to be merged into, never from its own tree.
    """
    cell = run.tiers.cell(wanted.cell) if wanted.cell is not None else None
    record = _uploaded(run, wanted) if run.build.is_main and wanted.commit is None else ()
    changes = change_set(
        run.source,
        run.build,
        base=wanted.base,
        commit=wanted.commit,
        record=record,
        notice=console.on_terminal(),
    )
    origin = _origin(run, wanted, changes)
    written = cells.read(cell, origin) if cell is not None else cells.read_file(wanted.name, origin)
    for warning in written.warnings:
        console.warn(warning)
    plain = ordinary(written, run.build.mirror_hw)
    rules = run.rules.with_own(written.top, written.where())
    skip = skip_of(replace(run, rules=rules), changes, run_all=choice.run_all)
    decisions = select(
        plain.file,
        changes,
        rules,
        run.build,
        choice=choice,
        skip=_skip_reason(run, cell, written, skip),
        shut=_shut(cell, run.build, skip),
        is_e2e=_is_e2e(cell),
        imports=_chain(run, plain.file, changes),
        elsewhere=[name for one in run.tiers.cells.values() for name in one.files],
    )
    found = plain.in_order(decisions)
    explanation = Explanation(cell.name if cell is not None else written.name, changes, found)
    if notes:
        explanation = replace(explanation, notes=_notes(run, cell, explanation))
    return Decided(run, cell, plain.file, explanation)


def document(decided: Decided) -> dict[str, Any]:
    """Return the pipeline of the steps that run; its ``steps`` are empty when none does."""
    from tasks.pipelines.rendering import render
    from tasks.suites import presets

    kept = [decision.step for decision in decided.explanation.decisions if decision.keep]
    if not decided.explanation.runs:
        return {"steps": []}
    return render(kept, decided.file, presets.load(), decided.run.build)


def parts(decided: Decided) -> tuple[bytes, ...]:
    """Return what is uploaded, in the file's order; nothing when no step runs."""
    from tasks.pipelines.limits import split
    from tasks.pipelines.uploading import require_independence
    from tasks.pipelines.writing import to_yaml

    found = split(document(decided))
    require_independence(found)
    return tuple(to_yaml(part).encode() for part in found)


def record(decided: Decided, wanted: Wanted, choice: Choice) -> None:
    """Record that this build's whole pipeline was uploaded, for the next such build to compare with.

    One that was narrowed by hand, compared with another base, or had no group open says nothing about what changed
    before it. Trouble is a warning.
    """
    from tasks.pipelines.branch_records import record_upload

    run, commit = decided.run, decided.explanation.changes.commit
    narrowed = choice.group or choice.e2e or choice.steps or wanted.base
    shut = decided.cell is not None and not choice.run_all and not decided.cell.open_groups(run.build)
    if commit is not None and not narrowed and not shut:
        record_upload(run.settings, run.source, run.build, _record_name(run, wanted), commit)


def _uploaded(run: Run, wanted: Wanted) -> tuple[str, ...]:
    from tasks.pipelines.branch_records import uploaded_commits

    return uploaded_commits(run.settings, run.build, _record_name(run, wanted))


def _record_name(run: Run, wanted: Wanted) -> str:
    return wanted.name if wanted.cell is None else run.tiers.cell(wanted.cell).record_name(run.build)


def _origin(run: Run, wanted: Wanted, changes: ChangeSet) -> cells.Origin:
    if wanted.commit is not None:
        return cells.Origin(run.source, changes.commit or wanted.commit)
    if run.build.fork:
        return cells.Origin(run.source, base_tip(run.source, run.build))
    return cells.Origin(run.source)


def skip_of(run: Run, changes: ChangeSet, *, run_all: bool = False) -> Skip:
    """Decide whether the change is one that nothing has to be tested for."""
    from tasks.pipelines.changes import file_at
    from tasks.pipelines.skipping import ReadFile, decide_skip

    def reader(revision: str | None) -> ReadFile:
        return lambda path: file_at(run.source, revision, path) if revision is not None else None

    return decide_skip(
        changes, run.rules, run.build, run.tiers, reader(changes.base), reader(changes.commit), run_all=run_all
    )


def _skip_reason(run: Run, cell: Cell | None, file: NativeFile, skip: Skip) -> Reason | None:
    """Return why nothing at all runs, or None. A file is skipped as the cell that it is the file of."""
    if skip.kind.name == "NONE":
        return None
    cells_of_file = [cell] if cell is not None else list(run.tiers.at_file(file.name))
    if cells_of_file:
        from tasks.pipelines.bootstrapping import skip_reason

        reasons = [skip_reason(one, run.build, skip) for one in cells_of_file]
        return None if None in reasons else reasons[0]
    whole = skip.kind.name != "CI_CONFIG"
    return skip.reason if whole and not (run.build.is_main and run.build.schedules) else None


def _shut(cell: Cell | None, build: Build, skip: Skip) -> Shut | None:
    """Return what says why a group of a cell does not run in this build; None where no gate is judged."""
    if cell is None or build.branch is None:
        return None
    from tasks.pipelines.bootstrapping import is_skipped

    skipped = is_skipped(cell, skip)

    def shut(title: str, key: str | None) -> Reason | None:
        group = cell.group_of(title, key)
        if gates.holds(gate_of(group, skipped=skipped), build):
            return None
        if skipped and gates.holds(group.gate, build):
            return skip.reason
        return Reason(Why.GATE, f"group {group.name} needs {gates.wanted(group.gate)}")

    return shut


def _is_e2e(cell: Cell | None) -> Named:
    if cell is None or all(group.name != E2E for group in cell.groups):
        return lambda title, _key: E2E_TITLE in title
    return lambda title, key: cell.group_of(title, key).name == E2E


def _chain(run: Run, file: NativeFile, changes: ChangeSet) -> Chain | None:
    """Return what finds changed files through imports; None where no step asks for it."""
    bodies = (one.body for group, step in file.steps() for one in (group, step) if one is not None)
    if not any(body.get(IMPORTS) is True for body in bodies):
        return None
    from tasks.pipelines.importing import chain_finder

    return chain_finder(run.source, changes)


def _notes(run: Run, cell: Cell | None, explanation: Explanation) -> tuple[str, ...]:
    """Return what else an explanation says: quarantined tests, gates that were not judged, the steps' image."""
    from tasks.suites import quarantine

    soft = sum(quarantine.state_of(entry, today())[0] is quarantine.State.SOFT for entry in quarantine.load())
    notes = [f"{console.plural(soft, 'test')} quarantined" if soft else "nothing quarantined"]
    if cell is not None:
        if run.build.branch is None:
            notes.append("gates were not judged: this is no build")
        images = [image.image for image in run.tiers.bootstraps[cell.device].images if image.not_built is None]
        if images and explanation.runs:
            notes.append(f"image: {', '.join(images)}, since this tier runs")
        elif images:
            notes.append("image: not needed here")
    return tuple(notes)


def today() -> date:
    """Return the present day, in UTC."""
    return datetime.now(UTC).date()


def choose(
    *,
    run_all: bool = False,
    e2e: bool = False,
    group: str | None = None,
    steps: Sequence[str] | None = None,
    inline: bool = False,
) -> Choice:
    """Return what the flags ask for; UsageError where they exclude each other or ask for what a file has already."""
    exclude({"--e2e": e2e, "--only-group": group is not None, "--step": bool(steps)})
    if inline:
        raise UsageError("a native file has its commands written out already", hint="leave --inline out")
    return Choice(run_all, group, e2e, tuple(steps or ()))


def exclude(flags: Mapping[str, bool]) -> None:
    """Raise UsageError when more than one of these flags is given."""
    given = [name for name, there in flags.items() if there]
    if len(given) > 1:
        raise UsageError(f"{given[0]} and {given[1]} exclude each other", hint="leave one of them out")


def announce(chosen: Settings, what: str, *, dry_run: bool) -> None:
    """Say what the profile promises. An upload changes nothing but the running build, so that every profile may."""
    announcing.announce(chosen.profile, Deed.STAGE, (), what, dry_run=dry_run)


def check(file: str | None, *, today: str | None, source: str | None) -> tuple[Finding, ...]:
    """Check one file, or every cell's file in the source; a file is checked without a source where there is none."""
    from tasks.pipelines import checking

    chosen = settings.load(source=source)
    day = parse_day(today)
    try:
        found: Path | None = resolve_source(chosen, paths.current_folder())
    except MissingInputError:
        if file is None or source is not None:
            raise
        found = None
    context = checking.context_of(found, day)
    if file is None:
        return checking.check(context)
    name, data = cells.find_file(file, cells.Origin(found or paths.current_folder()))
    return checking.check_file(data, name, context)


def require_clean(found: Sequence[Finding], *, failed: bool) -> None:
    """Raise DataError when a check failed."""
    if failed:
        raise DataError(
            f"the check failed: {console.plural(len(found), 'finding')}", hint="each line says where and why"
        )


def parse_day(word: str | None) -> date:
    """Return the day that ``--today`` names, or the present one; UsageError for what is no day."""
    if word is None:
        return today()
    try:
        return date.fromisoformat(word)
    except ValueError:
        raise UsageError(f"--today takes a day such as 2026-01-31, not {word!r}") from None


def read_rendered(word: str) -> Mapping[str, Any]:
    """Return a rendered pipeline, YAML or JSON; DataError when the file holds something else."""
    from tasks.pipelines.yaml_values import read_document

    name, data = cells.find_file(word, cells.Origin(paths.current_folder()))
    value = read_document(data, name).value
    if not isinstance(value, Mapping) or not isinstance(value.get("steps"), list):
        raise DataError(f"{name} is no rendered pipeline: it has no list of steps", hint="pipelines.render makes one")
    return value
