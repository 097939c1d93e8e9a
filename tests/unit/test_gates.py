"""The gate model: conditions held against builds, written as Buildkite's conditionals, and narrowed to schedules."""

from __future__ import annotations

from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.pipelines.build_facts import Build
from tasks.suites import gates
from tasks.suites.gates import SCHEDULES, Branch, Condition, Gate
from tests import conditionals

LABELS = ("ready", "merge-test", "nightly-test")

conditions = st.builds(
    Condition,
    branch=st.sampled_from(Branch),
    labels=st.lists(st.sampled_from(LABELS), unique=True, max_size=2).map(tuple),
    schedules=st.lists(st.sampled_from(SCHEDULES), unique=True, max_size=2).map(tuple),
    without=st.lists(st.sampled_from(SCHEDULES), unique=True, max_size=2).map(tuple),
    fork=st.sampled_from((None, True, False)),
)
any_gate = st.lists(conditions, max_size=3).map(lambda found: Gate(tuple(found)))


def subsets(words: tuple[str, ...]) -> list[frozenset[str]]:
    return [frozenset(chosen) for size in range(len(words) + 1) for chosen in combinations(words, size)]


BUILDS = [
    Build(branch=branch, pull_request=pull_request, fork=fork, labels=labels, schedules=schedules)
    for branch, pull_request, fork, labels, schedules in product(
        ("main", "feature"), (None, 7), (False, True), subsets(LABELS), subsets(SCHEDULES)
    )
]


def known_to_buildkite(build: Build, env: dict[str, str] | None = None) -> conditionals.Facts:
    return conditionals.facts(
        branch=build.branch,
        default_branch=build.default_branch,
        pull_request=build.pull_request,
        fork=build.fork,
        labels=build.labels,
        env=dict.fromkeys(build.schedules, "1") | (env or {}),
    )


FACTS = [(build, known_to_buildkite(build)) for build in BUILDS]


@given(any_gate)
def test_an_expression_holds_for_the_same_builds_as_its_gate(gate: Gate) -> None:
    written = conditionals.compiled(gates.expression(gate))
    assert [written(facts) for _, facts in FACTS] == [gates.holds(gate, build) for build, _ in FACTS]


@given(any_gate, any_gate)
def test_a_union_holds_where_one_of_its_gates_does(one: Gate, other: Gate) -> None:
    together = gates.union((one, other))
    assert len(together.conditions) <= len({*one.conditions, *other.conditions})
    for build in BUILDS:
        assert gates.holds(together, build) == (gates.holds(one, build) or gates.holds(other, build))


@given(any_gate)
def test_what_is_left_of_a_skipped_gate_are_schedules_on_main(gate: Gate) -> None:
    narrowed = gates.schedules_only(gate)
    for build in BUILDS:
        scheduled = build.is_main and bool(build.schedules)
        assert gates.holds(narrowed, build) == (gates.holds(gate, build) and scheduled), build


@given(any_gate)
def test_what_opened_a_gate_is_said_exactly_when_it_is_open(gate: Gate) -> None:
    for build in BUILDS:
        opening = gates.opened_by(gate, build)
        assert (opening is not None) == gates.holds(gate, build)
        assert opening is None or opening in gate.conditions


def test_gates_without_an_end() -> None:
    assert gates.expression(Gate()) == "false"
    assert gates.expression(Gate((Condition(),))) == "true"
    assert not any(gates.holds(Gate(), build) for build in BUILDS)
    assert all(gates.holds(Gate((Condition(),)), build) for build in BUILDS)
    assert gates.wanted(Gate()) == "what no build has"


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        (Condition(Branch.MAIN, schedules=("NIGHTLY",)), "main with NIGHTLY"),
        (Condition(Branch.MAIN, without=("NIGHTLY", "WEEKLY")), "main without NIGHTLY, WEEKLY"),
        (Condition(Branch.OTHER, labels=("ready", "npu-test")), "label ready or npu-test outside main"),
        (Condition(labels=("ready",), fork=True), "label ready from a fork"),
        (Condition(), "any build"),
    ],
)
def test_conditions_in_words(condition: Condition, words: str) -> None:
    assert gates.described(condition) == words


def test_labels_of_a_branch_without_a_pull_request_count_for_nothing() -> None:
    gate = Gate((Condition(Branch.OTHER, labels=("ready",)),))
    assert not gates.holds(gate, Build(branch="feature", labels=frozenset({"ready"})))
    assert gates.holds(gate, Build(branch="feature", labels=frozenset({"ready"}), pull_request=7))


@pytest.mark.parametrize(
    "text",
    [
        "build.branch",
        "build.brunch == null",
        "true && false || true",
        '(build.branch == "a"',
        "build.env(NAME)",
        "true true",
        'build.branch == "a" &&',
        "a ? b : c",
    ],
)
def test_the_evaluator_refuses_what_is_no_conditional(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        conditionals.evaluate(text, FACTS[0][1])


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ('build.branch == "main" // the trunk', True),
        ("build.branch != pipeline.default_branch", False),
        ("build.branch =~ /^ma[in]+$/", True),
        ("build.branch !~ /^ma/", False),
        ("build.pull_request.id == null", True),
        ('!(build.env("NIGHTLY") == "1") && (true || false)', True),
        ("build.env('NIGHTLY') == null", True),
        ('build.pull_request.labels includes "ready"', False),
        ("build.pull_request.repository.fork != true", True),
        ("build.pull_request.repository.fork == false", False),
    ],
)
def test_the_evaluator_knows_the_grammar(text: str, holds: bool) -> None:
    assert conditionals.evaluate(text, known_to_buildkite(Build(branch="main"))) is holds
