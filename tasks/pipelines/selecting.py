"""Decide which steps of a file run, and give each decision exactly one reason.

The first of these that fits a step is its reason:

1. The caller asked for steps or groups by name: those run, whatever changed, and nothing else does (CHOSEN, GROUP).
2. The whole pipeline is skipped: documentation or skip marks only (SKIPPED). ``--all``, RUN_ALL=1 and the label lift
   that.
3. The gate of the step's group is shut for this build (GATE). ``--all`` opens every gate; RUN_ALL=1 and the label do
   not: they say that changes do not matter, not that another tier is wanted.
4. The step has no path rules, nor has its group: it runs always (ALWAYS).
5. Everything runs: the caller, a variable or a label says so, or a changed file is under ``run_all`` (RUN_ALL).
6. The change set is not known (UNKNOWN).
7. A changed file is in an area that the step names, matches one of its paths (AREA, PATH), is imported by its tests
   (IMPORTS, steps with ``imports: true``), or is one of its implicit dependencies (IMPLICIT): its tests, their
   conftest.py files, the pipeline's own file.
8. A changed file is covered by no rule of these steps, and ``unmatched`` says ``run_all`` (UNMATCHED). Imports and
   implicit dependencies cover too, and so do the tests of steps without rules, documentation and the
   files of other pipelines.
9. Nothing that it depends on changed (UNCHANGED).

A group's rules gate its steps: a step with rules in a group with rules runs when changed files match the group's and
its own, not always the same file; a step without rules in such a group goes by the group's. Imports and implicit
dependencies stand for both. An *empty* change set is known: nothing changed, so steps with rules do not run and those
without do. Files under ``ignore`` count as not changed.

Then what the kept steps need comes back in (NEEDED), and waits, blocks and inputs are settled (STRUCTURE).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from tasks.pipelines import mentions, structure
from tasks.pipelines.changes import ChangeSet, State
from tasks.pipelines.model import Decision, Group, NativeFile, Reason, Step, Why
from tasks.pipelines.rules import Files, Match, Rule, first_match, literal, matching, uncovered
from tasks.pipelines.structure import Place, structural_kind
from tasks.suites.areas import PathRules, Unmatched
from tasks.support.errors import DataError, UsageError, unknown_choice

if TYPE_CHECKING:
    from tasks.pipelines.build_facts import Build

RULES = "source_file_dependencies"
IMPORTS = "imports"
E2E_TITLE = "E2E Test"

Named = Callable[[str, str | None], bool]
"""Judges a group by its title and key, and a step outside of all groups by its own."""

Shut = Callable[[str, str | None], Reason | None]
"""Returns why nothing of such a group runs: its gate is shut, or nothing but a schedule opens it; else None."""

Chain = Callable[[Sequence[str], Sequence[str]], tuple[str, ...] | None]
"""Returns how one of these tests reaches one of these files through imports, the test first; None when none does."""

Verdict = tuple[bool, Reason]


@dataclass(frozen=True)
class Choice:
    """What the caller asked for: everything, the groups with a text in their title, the end-to-end groups, or steps."""

    run_all: bool = False
    group: str | None = None
    e2e: bool = False
    steps: tuple[str, ...] = ()


NOTHING_ASKED = Choice()


def select(
    file: NativeFile,
    changes: ChangeSet,
    rules: PathRules,
    build: Build,
    *,
    choice: Choice = NOTHING_ASKED,
    skip: Reason | None = None,
    shut: Shut | None = None,
    is_e2e: Named = lambda title, _key: E2E_TITLE in title,
    imports: Chain | None = None,
    elsewhere: Collection[str] = (),
) -> tuple[Decision, ...]:
    """Return a decision for every step of the file, in its order; the module says by which rules.

    ``skip`` is why nothing runs, when that was decided before. ``shut`` judges the gates of groups, ``is_e2e`` says
    which are end-to-end tests; ``elsewhere`` are files of other pipelines. Pure: nothing is read or printed. Raises
    DataError with file and line for rules that are no list of paths, UsageError for a step or group that is not there.
    """
    places = [Place(step, group) for group, step in file.steps()]
    if choice.steps or choice.group is not None or choice.e2e:
        verdicts = _choose(places, choice, is_e2e)
    else:
        judge = _Judge(
            file=file,
            changes=changes,
            rules=rules,
            build=build,
            run_all=choice.run_all,
            skip=skip,
            shut=shut,
            imports=imports,
            elsewhere=elsewhere,
        )
        verdicts = judge.verdicts(places)
    for place, verdict in zip(places, verdicts, strict=True):
        place.keep = verdict[0] if verdict else None
    structure.pull_in(places)
    structure.settle(file, places)
    return tuple(_decision(place, verdict) for place, verdict in zip(places, verdicts, strict=True))


def _decision(place: Place, verdict: Verdict | None) -> Decision:
    reason = verdict[1] if verdict else Reason(Why.STRUCTURE, place.text)
    if place.needed_by is not None:
        reason = Reason(Why.NEEDED, f"pulled in: {place.needed_by} needs it")
    return Decision(place.step, place.group, bool(place.keep), reason)


def _title_and_key(place: Place) -> tuple[str, str | None]:
    if place.group is not None:
        return place.group.label, place.group.key
    label = next((value for name in ("label", "name") if isinstance(value := place.step.body.get(name), str)), "")
    return label, place.step.key


def _choose(places: Sequence[Place], choice: Choice, is_e2e: Named) -> list[Verdict | None]:
    """Keep what was asked for by name, whatever changed."""
    known = {place.step.name for place in places}
    for name in choice.steps:
        if name not in known:
            raise unknown_choice("step", name, known)
    if choice.group is not None:
        wanted, asked = [place.group is not None and choice.group in place.group.label for place in places], "its group"
        missing = f"no group has {choice.group!r} in its title"
    elif choice.e2e:
        wanted, asked = [is_e2e(*_title_and_key(place)) for place in places], "the end-to-end tests"
        missing = "no group is one of end-to-end tests"
    else:
        wanted, asked, missing = [place.step.name in choice.steps for place in places], "this step", ""
    if not any(wanted):
        titles = dict.fromkeys(place.group.label for place in places if place.group is not None)
        raise UsageError(missing, hint=f"the groups are: {', '.join(titles)}" if titles else "the file has no groups")
    return [
        None
        if structural_kind(place.step) and not choice.steps
        else (keep, Reason(Why.CHOSEN, f"{asked} was asked for") if keep else Reason(Why.GROUP, "not asked for"))
        for place, keep in zip(places, wanted, strict=True)
    ]


@dataclass(frozen=True)
class _Gated:
    """A step's own rules and those of its group, each None where there are none, and what it depends on besides."""

    own: tuple[Rule, ...] | None
    around: tuple[Rule, ...] | None
    tests: tuple[str, ...]
    imports: bool
    implicit: tuple[Rule, ...]


class _Judge:
    """Judges the steps of a file; what is the same for all of them is found once."""

    def __init__(
        self,
        *,
        file: NativeFile,
        changes: ChangeSet,
        rules: PathRules,
        build: Build,
        run_all: bool,
        skip: Reason | None,
        shut: Shut | None,
        imports: Chain | None,
        elsewhere: Collection[str],
    ) -> None:
        self._file, self._changes, self._rules, self._build = file, changes, rules, build
        self._run_all, self._skip, self._shut, self._chain = run_all, skip, shut, imports
        self._elsewhere = elsewhere
        every = Files(changes.paths)
        ignored = set(matching(rules.ignore, every)) if rules.ignore else ()
        self._files = Files(path for path in every.paths if path not in ignored) if ignored else every
        self._of_groups: dict[int, tuple[Rule, ...] | None] = {}
        self._gated: dict[int, _Gated | None] = {}

    def verdicts(self, places: Sequence[Place]) -> list[Verdict | None]:
        """Return whether each step runs and why; None for what holds others and is settled with them."""
        gated = [self._read(place) for place in places]
        before = [self._before_rules(place, rules) for place, rules in zip(places, gated, strict=True)]
        found = [
            self._by_rules(rules) if verdict is None and rules is not None else verdict
            for verdict, rules in zip(before, gated, strict=True)
        ]
        unchanged = any(verdict and verdict[1].why is Why.UNCHANGED for verdict in found)
        stray = self._stray(places, gated) if unchanged else None
        if stray is not None:
            reason = Reason(Why.UNMATCHED, f"{stray} is covered by no rule: everything runs")
            found = [(True, reason) if verdict and verdict[1].why is Why.UNCHANGED else verdict for verdict in found]
        return [
            None if structural_kind(place.step) and verdict and verdict[0] else verdict
            for place, verdict in zip(places, found, strict=True)
        ]

    def _before_rules(self, place: Place, gated: _Gated | None) -> Verdict | None:
        """Judge a step by what counts before its rules are looked at; None when its rules are to decide."""
        structural = structural_kind(place.step) is not None
        if self._skip is not None and self._asked_for_all is None:
            return False, self._skip
        if self._shut is not None and not self._run_all and not (structural and place.group is None):
            closed = self._shut(*_title_and_key(place))
            if closed is not None:
                return False, closed
        if gated is None:
            return None if structural else (True, Reason(Why.ALWAYS, "no path rules: always"))
        if self._everything is not None:
            return True, self._everything
        return None

    @cached_property
    def _asked_for_all(self) -> Reason | None:
        """Return the reason why everything runs that was asked for, as far as changes matter."""
        from tasks.pipelines.build_facts import RUN_ALL_LABEL

        if self._run_all:
            return Reason(Why.RUN_ALL, "everything was asked for: --all")
        if self._build.run_all:
            by_label = RUN_ALL_LABEL in self._build.labels
            return Reason(
                Why.RUN_ALL, f"everything was asked for: {f'label {RUN_ALL_LABEL}' if by_label else 'RUN_ALL=1'}"
            )
        return None

    @cached_property
    def _everything(self) -> Reason | None:
        """Return the reason why every step with rules runs, or None."""
        if self._asked_for_all is not None:
            return self._asked_for_all
        if self._changes.state is State.UNKNOWN:
            return Reason(Why.UNKNOWN, f"changed files {self._changes.how}: everything runs")
        match = first_match(self._rules.run_all, self._files)
        return Reason(Why.RUN_ALL, f"{match.text}, which runs everything") if match else None

    def _read(self, place: Place) -> _Gated | None:
        """Return what a step is judged by; None when neither it nor its group has path rules."""
        own = self._rules_of(place.step)
        around = None
        if place.group is not None:
            if id(place.group) not in self._of_groups:
                self._of_groups[id(place.group)] = self._rules_of(place.group)
            around = self._of_groups[id(place.group)]
        if own is None and around is None:
            return None
        tests = mentions.named_tests(place.step.body)
        implicit = (self._file.name, *mentions.conftests_above(tests))
        by_imports = any(bool(one.body.get(IMPORTS)) for one in (place.step, place.group) if one is not None)
        return _Gated(own, around, tests, by_imports, (*mentions.rules_of_tests(tests), *map(literal, implicit)))

    def _rules_of(self, what: Step | Group) -> tuple[Rule, ...] | None:
        by_imports = what.body.get(IMPORTS, False)
        if not isinstance(by_imports, bool):
            raise DataError(f"{_where(what, IMPORTS)}: {IMPORTS} is true or false, not {by_imports!r}")
        if RULES not in what.body:
            return () if by_imports else None
        return self._rules.parse(what.body[RULES], f"{_where(what, RULES)}: {RULES}")

    def _by_rules(self, gated: _Gated) -> Verdict:
        """Judge a step by what changed."""
        files = self._files
        own = first_match(gated.own, files) if gated.own else None
        around = first_match(gated.around, files) if gated.around else None
        if (gated.own is None or own) and (gated.around is None or around):
            return True, _matched(own or around)  # type: ignore[arg-type]
        chain = self._chain(gated.tests, files.paths) if gated.imports and self._chain is not None else None
        if chain is not None:
            return True, Reason(Why.IMPORTS, " -> ".join(chain))
        implicit = first_match(gated.implicit, files)
        if implicit is not None:
            return True, Reason(Why.IMPLICIT, f"{implicit.file}: {self._kind_of(implicit)}")
        lacking = gated.own if gated.own is not None and own is None else gated.around
        whose = "" if lacking is gated.own else "the group's "
        return False, Reason(Why.UNCHANGED, f"nothing under {whose}{_listed(lacking or ())} changed")

    def _kind_of(self, match: Match) -> str:
        if match.file == self._file.name:
            return "this pipeline's own file"
        return "read by its tests" if match.file.endswith("conftest.py") else "one of its tests"

    def _stray(self, places: Sequence[Place], gated: Sequence[_Gated | None]) -> str | None:
        """Return a changed file that makes everything run because no rule covers it."""
        if self._rules.unmatched is not Unmatched.RUN_ALL or self._changes.state is State.UNKNOWN:
            return None
        known = [rules for one in gated if one for rules in (one.own, one.around, one.implicit) if rules]
        always = [
            tuple(mentions.rules_of_tests(mentions.covered_tests(place.step.body)))
            for place, rules in zip(places, gated, strict=True)
            if rules is None
        ]
        others = tuple(map(literal, self._elsewhere))
        found = uncovered([self._rules.docs, *known, *always, others], self._files)
        tests = [one.tests for one in gated if one and one.imports]
        return next((path for path in found if not self._is_imported(path, tests)), None)

    def _is_imported(self, path: str, tests: Sequence[Sequence[str]]) -> bool:
        return self._chain is not None and any(self._chain(one, [path]) is not None for one in tests)


def _matched(match: Match) -> Reason:
    return Reason(Why.AREA if match.rule.area is not None else Why.PATH, match.text)


def _listed(rules: Sequence[Rule]) -> str:
    names = [f"area {rule.area}" if rule.area is not None else rule.text for rule in rules if not rule.negated]
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"{names[0]}{more}" if names else "what its tests import"


def _where(what: Step | Group, key: str) -> str:
    line = what.lines.get(key)
    return what.where if line is None else f"{what.where.rpartition(':')[0]}:{line}"
