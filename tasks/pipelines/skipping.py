"""Whether a change needs no test at all: documentation, skip marks, or the configuration of some cells only.

One rule for all devices. What a schedule started on main runs all the same; that is for the gates to say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from tasks.pipelines.build_facts import Build
from tasks.pipelines.changes import ChangedFile, ChangeSet, State
from tasks.pipelines.model import Reason, Why
from tasks.pipelines.rules import Files, first_match, matching
from tasks.pipelines.skip_marks import is_test_file, why_not_only_skips
from tasks.suites.areas import PathRules
from tasks.suites.tiers import Tiers
from tasks.support.errors import OmniError

MOST_TESTS = 200  # files whose versions are compared; a change of more is no case of skip marks

ReadFile = Callable[[str], bytes | None]


class SkipKind(Enum):
    """What a change that needs no test consists of."""

    NONE = "none"  # it needs tests
    DOCS = "docs"
    SKIP_MARKS = "skip marks"
    MIXED = "docs and skip marks"
    CI_CONFIG = "ci configuration"  # the files that hold the steps of some cells, and maybe any of the above


@dataclass(frozen=True)
class Skip:
    """A skip decision and why. ``cells`` are those whose own files changed, in the tiers' order: CI_CONFIG's."""

    kind: SkipKind
    reason: Reason
    cells: tuple[str, ...] = ()


def decide_skip(  # noqa: PLR0917 - the change and the two versions of its files belong together
    changes: ChangeSet,
    rules: PathRules,
    build: Build,
    tiers: Tiers,
    read_old: ReadFile,
    read_new: ReadFile,
    *,
    run_all: bool = False,
) -> Skip:
    """Decide whether a change needs no test.

    ``read_old`` and ``read_new`` return a file's content before and after the change, None where there is none.
    A change that is empty or not known, RUN_ALL, the label of it, ``run_all`` and DOCS_ONLY_DISABLE skip nothing;
    neither does a file that cannot be read. A file that runs everything is no test file here, whatever its name.
    """
    off = _switched_off(changes, build, run_all=run_all)
    if off is not None:
        return Skip(SkipKind.NONE, off)
    files = Files(changes.paths)
    docs = set(matching(rules.docs, files))
    rest = [file for file in changes.files if file.path not in docs]
    owned = {path for cell in tiers.cells.values() for path in cell.files}
    marked = [file for file in rest if file.path not in owned]
    why_not = _why_not_marks(marked, rules, read_old, read_new)
    if why_not is not None:
        return Skip(SkipKind.NONE, Reason(Why.PATH, why_not))
    if len(rest) > len(marked):
        touched = {file.path for file in rest}
        cells = tuple(cell.name for cell in tiers.cells.values() if touched.intersection(cell.files))
        return Skip(SkipKind.CI_CONFIG, Reason(Why.SKIPPED, f"only the steps of {', '.join(cells)} changed"), cells)
    if not marked:
        return Skip(SkipKind.DOCS, Reason(Why.SKIPPED, "documentation only"))
    if not docs:
        return Skip(SkipKind.SKIP_MARKS, Reason(Why.SKIPPED, "skip marks only"))
    return Skip(SkipKind.MIXED, Reason(Why.SKIPPED, "documentation and skip marks only"))


def _switched_off(changes: ChangeSet, build: Build, *, run_all: bool) -> Reason | None:
    """Return why nothing is skipped whatever changed, or None."""
    if run_all:
        return Reason(Why.RUN_ALL, "everything was asked for")
    if build.run_all:
        return Reason(Why.RUN_ALL, "RUN_ALL or the label ready-run-all-tests runs everything")
    if build.docs_only_disable:
        return Reason(Why.RUN_ALL, "DOCS_ONLY_DISABLE is set: no change is skipped")
    if changes.state is State.UNKNOWN:
        return Reason(Why.UNKNOWN, f"what changed is {changes.how}")
    if changes.state is State.EMPTY or not changes.files:
        return Reason(Why.UNCHANGED, "nothing changed, which is no reason to skip")
    return None


def _why_not_marks(
    changed: Sequence[ChangedFile], rules: PathRules, read_old: ReadFile, read_new: ReadFile
) -> str | None:
    """Return why changed files do more than add skip marks, or None. Nothing is read before all names are right."""
    for file in changed:
        if not is_test_file(file.path):
            return f"{file.path} is neither documentation nor a test"
        if file.status not in ("A", "M"):
            return f"{file.path} was {'deleted' if file.status == 'D' else 'replaced by another kind of file'}"
    if len(changed) > MOST_TESTS:
        return f"{len(changed)} test files changed, which is more than {MOST_TESTS}"
    match = first_match(rules.run_all, Files(file.path for file in changed))
    if match is not None:
        return f"{match.text}, which runs everything"
    found = (_why_not(file, read_old, read_new) for file in changed)
    return next((why for why in found if why is not None), None)


def _why_not(file: ChangedFile, read_old: ReadFile, read_new: ReadFile) -> str | None:
    try:
        old = None if file.status == "A" else read_old(file.path)
        new = read_new(file.path)
    except (OmniError, OSError) as error:
        return f"{file.path} cannot be read: {error}"
    if new is None or (old is None and file.status != "A"):
        return f"{file.path} cannot be read in both versions"
    return why_not_only_skips(file.path, old, new)
