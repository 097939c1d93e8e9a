"""The table of gates, row by row, over the product of branches, pull requests, forks, labels, schedules and skips."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations, product

import pytest

from tasks.pipelines.build_facts import Build, read_build
from tasks.suites import gates, tiers
from tasks.suites.gates import SCHEDULES
from tasks.support import settings
from tests import conditionals
from tests.unit.test_gates import known_to_buildkite, subsets

LABELS = (
    "ready", "npu-test", "merge-test", "nightly-test", "omni-test", "tts-test", "diffusion-x2iat-test",
    "diffusion-x2v-test", "weekly-test", "ready-run-all-tests", "ci-no-fail-fast",
)  # fmt: skip
TIERS = tiers.load()


class Row:
    """What a row of the table asks a build, in the table's words; independent of the model under test."""

    def __init__(self, build: Build) -> None:
        self.main = build.branch == "main" and build.pull_request is None and not build.fork
        self.fork = build.fork
        self.schedules = build.schedules
        self.labels = build.labels if build.pull_request is not None else frozenset()

    def label(self, *names: str) -> bool:
        return not self.main and not self.labels.isdisjoint(names)

    def on(self, *schedules: str) -> bool:
        return self.main and not self.schedules.isdisjoint(schedules)


Groups = dict[str, Callable[[Row], bool]]


def nightly() -> Groups:
    def of(label: str) -> Callable[[Row], bool]:
        return lambda row: row.on("NIGHTLY") or row.label("nightly-test", label)

    return {
        "omni": of("omni-test"),
        "tts": of("tts-test"),
        "x2iat": of("diffusion-x2iat-test"),
        "x2v": of("diffusion-x2v-test"),
        "others": lambda row: row.on("NIGHTLY") or row.label("nightly-test"),
    }


def weekly_or_label(row: Row) -> bool:
    return row.on("WEEKLY") or row.label("weekly-test")


TABLE: dict[str, Groups] = {
    "cuda_ready": {
        "e2e": lambda row: row.label("ready") or row.on("WEEKLY"),
        "others": lambda row: row.label("ready"),
    },
    "cuda_merge": {
        "e2e": lambda row: row.label("merge-test") or row.on("WEEKLY") or (row.main and not row.schedules),
        "others": lambda row: row.label("merge-test") or (row.main and not row.schedules),
    },
    "cuda_nightly": nightly(),
    "cuda_weekly": {
        "coverage": lambda row: row.on("WEEKLY"),
        "perf": weekly_or_label,
        "e2e": lambda row: row.on("NON_CRITICAL"),
        "reliability": weekly_or_label,
        "others": weekly_or_label,
    },
    "rocm_ready": {"all": lambda row: not row.main and (not row.fork or row.label("ready"))},
    "rocm_merge": {"all": lambda row: row.main},
    "xpu_ready": {"all": lambda row: not row.fork or row.label("ready")},
    "npu_ready": {"all": lambda row: row.label("ready", "npu-test")},
    "npu_nightly": nightly(),
}


def uploaded(cell: str, row: Row) -> bool:
    return any(holds(row) for holds in TABLE[cell].values())


def builds() -> Iterator[Build]:
    """Yield the product: all sets of the labels of gates, and every label and pair of labels with every schedule."""
    singles = [frozenset(), *(frozenset({label}) for label in LABELS), frozenset(LABELS)]
    pairs = [frozenset(pair) for pair in combinations(LABELS, 2)]
    few = [*product(singles, subsets(SCHEDULES)), *product(pairs, [frozenset({name}) for name in SCHEDULES])]
    nothing: frozenset[str] = frozenset()
    many = product(subsets(LABELS[:9]), [nothing])
    for branch, fork in product(("main", "feature"), (False, True)):
        for labels, schedules in {*few, *many}:
            yield Build(branch=branch, pull_request=7, fork=fork, labels=labels, schedules=schedules)
        for schedules in subsets(SCHEDULES):  # a build of a branch, whatever labels its variables claim
            for labels in (frozenset(), frozenset(LABELS)):
                yield Build(branch=branch, fork=fork, labels=labels, schedules=schedules)


PRODUCT = [(build, Row(build), known_to_buildkite(build)) for build in builds()]


def test_the_table_is_whole() -> None:
    assert {name: [group.name for group in cell.groups] for name, cell in TIERS.cells.items()} == {
        name: [*groups] for name, groups in TABLE.items()
    }


@pytest.mark.parametrize("name", TABLE)
def test_a_tier_is_uploaded_exactly_when_its_row_says_so(name: str) -> None:
    cell = TIERS.cell(name)
    written = conditionals.compiled(gates.expression(cell.gate))
    for build, row, facts in PRODUCT:
        wanted = uploaded(name, row)
        assert (gates.holds(cell.gate, build), written(facts)) == (wanted, wanted), build


@pytest.mark.parametrize("name", TABLE)
def test_a_group_runs_exactly_when_its_row_says_so(name: str) -> None:
    for group in TIERS.cell(name).groups:
        holds = TABLE[name][group.name]
        for build, row, _ in PRODUCT:
            assert gates.holds(group.gate, build) == holds(row), (group.name, build)


@pytest.mark.parametrize("name", TABLE)
def test_a_skipped_tier_runs_for_schedules_on_main_only(name: str) -> None:
    cell = TIERS.cell(name)
    gate = tiers.gate_of(cell, skipped=True)
    written = conditionals.compiled(gates.expression(gate))
    for build, row, facts in PRODUCT:
        wanted = uploaded(name, row) and row.main and bool(row.schedules)
        assert (gates.holds(gate, build), written(facts)) == (wanted, wanted), build


def test_a_schedule_counts_when_it_is_exactly_1() -> None:
    plain = settings.load(environment={})
    for branch, values in product(("main", "feature"), product(("0", "1", "true", None), repeat=len(SCHEDULES))):
        given = {key: value for key, value in zip(SCHEDULES, values, strict=True) if value is not None}
        env = {"BUILDKITE": "true", "BUILDKITE_BRANCH": branch, "BUILDKITE_PULL_REQUEST": "false", **given}
        build = read_build(replace(plain, environment=env))
        assert build.schedules == {key for key, value in given.items() if value == "1"}
        facts = {**known_to_buildkite(build), "env": given}
        for name, cell in TIERS.cells.items():
            written = conditionals.evaluate(gates.expression(cell.gate), facts)
            assert gates.holds(cell.gate, build) == written == uploaded(name, Row(build)), (name, env)


GATE_01 = [
    ({"branch": "feature"}, {}, {}),
    ({"branch": "feature", "labels": {"ready"}}, {}, {"ready": {"e2e", "others"}}),
    ({"branch": "main"}, {}, {"merge": {"e2e", "others"}}),
    ({"branch": "main"}, {"NIGHTLY"}, {"nightly": {"omni", "tts", "x2iat", "x2v", "others"}}),
    (
        {"branch": "main"},
        {"WEEKLY"},
        {"ready": {"e2e"}, "merge": {"e2e"}, "weekly": {"coverage", "perf", "reliability", "others"}},
    ),
    ({"branch": "main"}, {"NON_CRITICAL"}, {"weekly": {"e2e"}}),
]


@pytest.mark.parametrize(("facts", "schedules", "runs"), GATE_01)
def test_the_situations_of_a_cuda_build(
    facts: dict[str, object], schedules: set[str], runs: dict[str, set[str]]
) -> None:
    labels = frozenset(facts.get("labels", ()))  # type: ignore[call-overload]
    pull_request = None if facts["branch"] == "main" else 7
    build = Build(branch=str(facts["branch"]), labels=labels, schedules=frozenset(schedules), pull_request=pull_request)
    assert open_groups(build, "cuda") == runs


def open_groups(build: Build, device: str) -> dict[str, set[str]]:
    found = {cell.tier: {group.name for group in cell.open_groups(build)} for cell in TIERS.of_device(device)}
    return {tier: groups for tier, groups in found.items() if groups}


def test_a_label_of_one_group_runs_that_group_on_every_device_that_has_it() -> None:
    labels = {"omni-test": "omni", "tts-test": "tts", "diffusion-x2iat-test": "x2iat", "diffusion-x2v-test": "x2v"}
    for device, (label, group) in product(("cuda", "npu"), labels.items()):
        build = Build(branch="feature", pull_request=7, labels=frozenset({label}))
        assert open_groups(build, device) == {"nightly": {group}}


@pytest.mark.parametrize("label", ["ready-run-all-tests", "ci-no-fail-fast", "stale", "READY", "ready "])
def test_other_labels_open_no_gate(label: str) -> None:
    plain = Build(branch="feature", pull_request=7)
    for cell in TIERS.cells.values():
        build = Build(branch="feature", pull_request=7, labels=frozenset({label}))
        assert gates.holds(cell.gate, build) == gates.holds(cell.gate, plain), cell.name


def test_the_default_branch_is_the_pipelines() -> None:
    build = Build(branch="trunk", default_branch="trunk")
    assert open_groups(build, "rocm") == {"merge": {"all"}}
    assert open_groups(Build(branch="main", default_branch="trunk"), "rocm") == {"ready": {"all"}}


def test_no_cell_of_a_fork_opens_without_a_label() -> None:
    for branch, schedules in product(("main", "feature"), subsets(SCHEDULES)):
        build = Build(branch=branch, pull_request=7, fork=True, schedules=schedules)
        assert [name for name, cell in TIERS.cells.items() if gates.holds(cell.gate, build)] == []
