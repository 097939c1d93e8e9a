"""A device's first pipeline: images exactly when tiers need them, gates, reasons, and nothing from outside in it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import pytest
import yaml

from tasks.pipelines.bootstrapping import (
    Bootstrapped,
    Start,
    bootstrap,
    debug_tiers,
    is_skipped,
    one_step_commands,
    skip_reason,
)  # fmt: skip
from tasks.pipelines.build_facts import Build
from tasks.pipelines.dollar import Kind, scan
from tasks.pipelines.model import Reason, Why
from tasks.pipelines.skipping import Skip, SkipKind
from tasks.pipelines.writing import to_json, to_yaml
from tasks.suites import presets, tiers
from tasks.suites.gates import SCHEDULES
from tasks.support.errors import UsageError
from tests import conditionals
from tests.unit.test_gate_table import LABELS, Row, uploaded
from tests.unit.test_gates import known_to_buildkite, subsets
from tests.vendored_schema import faults

TIERS, PRESETS = tiers.load(), presets.load()
DEVICES = tuple(TIERS.bootstraps)
IMAGES = {"cuda": {"image-build"}, "rocm": {"amd-build"}, "npu": {"image-build"}, "xpu": set()}


DOCS = Reason(Why.SKIPPED, "only documentation changed")


def skip_of(kind: SkipKind, *cells: str) -> Skip:
    return Skip(kind, DOCS, cells)


SKIPS = (
    None,
    *(skip_of(kind) for kind in SkipKind),
    *(skip_of(SkipKind.CI_CONFIG, name) for name in ("cuda_merge", "rocm_ready", "npu_nightly", "xpu_ready")),
    skip_of(SkipKind.CI_CONFIG, *TIERS.cells),
)


def plan(device: str, build: Build, skip: Skip | None = None, **options: Any) -> Bootstrapped:
    return bootstrap(device, TIERS, PRESETS, build, skip, **options)


def builds() -> Iterator[Build]:
    labels = [frozenset(), *(frozenset({label}) for label in LABELS), frozenset(LABELS)]
    schedules_set = [found for found in subsets(SCHEDULES) if len(found) != 2]
    for branch, fork, schedules in product(("main", "feature"), (False, True), schedules_set):
        yield Build(branch=branch, fork=fork, schedules=schedules)
        for chosen in labels:
            yield Build(branch=branch, pull_request=7, fork=fork, labels=chosen, schedules=schedules)


def expected(device: str, build: Build, skip: Skip | None) -> list[str]:
    """Return the cells that run, from the table's words and the three sentences about skips."""
    row, found = Row(build), []
    for cell in TIERS.of_device(device):
        narrowed = skip is not None and skip.kind is not SkipKind.NONE
        if narrowed and skip is not None and skip.kind is SkipKind.CI_CONFIG:
            narrowed = cell.tier in ("ready", "merge") and cell.name not in skip.cells
        scheduled = row.main and bool(row.schedules)
        if uploaded(cell.name, row) and (scheduled or not narrowed):
            found.append(cell.name)
    return found


def cells_of(found: Bootstrapped) -> list[str]:
    """Return the cells that the pipeline's own commands upload or run."""
    words = [command.split() for step in found.steps for command in step["commands"]]
    uploads = [line[line.index("--cell") + 1] for line in words if "pipelines.upload" in line]
    return [*uploads, *(line[line.index("suites.run") + 1] for line in words if "suites.run" in line)]


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
def test_no_tier_is_without_its_image_over_the_whole_product(device: str) -> None:
    for build, skip in product(builds(), SKIPS):
        found = plan(device, build, skip)
        wanted = expected(device, build, skip)
        assert cells_of(found) == wanted, (build, skip)
        before: set[str] = set()
        built = {step["key"] for step in found.steps if "images.build" in step["commands"][0]}
        assert built == (IMAGES[device] if wanted else set()), (build, skip)
        for step in found.steps:
            needs = step.get("depends_on", [])
            needs = {needs} if isinstance(needs, str) else set(needs)
            assert needs == (set() if step["key"] in built or device == "xpu" else built), (build, skip, step["key"])
            assert needs <= before
            before.add(step["key"])
        if skip in (None, SKIPS[2]):  # the conditionals are those of the model, which has a walk of its own
            facts = known_to_buildkite(build)
            assert all(conditionals.evaluate(step["if"], facts) for step in found.steps), (build, skip)


@pytest.mark.parametrize("device", DEVICES)
def test_every_part_has_its_reason(device: str) -> None:
    for build, skip in product(builds(), SKIPS[:3]):
        found = plan(device, build, skip)
        kept = {part.key for part in found.parts if part.keep}
        assert kept == {step["key"] for step in found.steps}
        assert {cell.name for cell in TIERS.of_device(device)} <= {part.name for part in found.parts}
        assert all(part.reason.text for part in found.parts)
        assert found.summary.count("\n| ") == len(found.parts)


def test_a_skip_says_why_only_where_the_gate_was_open() -> None:
    docs = skip_of(SkipKind.DOCS)
    parts = {part.name: part for part in plan("cuda", Build(branch="main"), docs).parts}
    assert parts["cuda_merge"].reason == docs.reason
    assert parts["cuda_nightly"].reason.why is Why.GATE
    assert parts["image cuda-ci"].reason.text == "no tier that runs needs it"


def test_the_weekly_run_of_ready_and_merge_is_end_to_end_only() -> None:
    def commands(build: Build, device: str = "cuda", skip: Skip | None = None) -> list[str]:
        return [step["commands"][-1].removeprefix("omni-ci ") for step in plan(device, build, skip).steps]

    weekly = Build(branch="main", schedules=frozenset({"WEEKLY"}))
    for skip in (None, skip_of(SkipKind.DOCS)):
        assert commands(weekly, skip=skip) == [
            "images.build cuda-ci --push --profile ci",
            "pipelines.upload --cell cuda_ready --e2e",
            "pipelines.upload --cell cuda_merge --e2e",
            "pipelines.upload --cell cuda_weekly",
        ]
    assert commands(Build(branch="main"))[1:] == ["pipelines.upload --cell cuda_merge"]
    pull_request = Build(branch="x", pull_request=7, labels=frozenset({"ready"}), schedules=frozenset({"WEEKLY"}))
    assert commands(pull_request)[1:] == ["pipelines.upload --cell cuda_ready"]
    non_critical = Build(branch="main", schedules=frozenset({"NON_CRITICAL"}))
    assert commands(non_critical)[1:] == ["pipelines.upload --cell cuda_weekly"]
    assert commands(weekly, "rocm")[1:] == ["pipelines.upload --cell rocm_merge"]


def test_keys_and_queues_that_others_rely_on() -> None:
    ready = Build(branch="x", pull_request=7, labels=frozenset({"ready", "merge-test", "nightly-test", "weekly-test"}))
    keys = {device: [step["key"] for step in plan(device, ready).steps] for device in DEVICES}
    assert keys == {
        "cuda": ["image-build", *(f"upload-{tier}-pipeline" for tier in ("ready", "merge", "nightly", "weekly"))],
        "rocm": ["amd-build", "upload-ready-pipeline"],
        "xpu": ["xpu-test"],
        "npu": ["image-build", "upload-ready-pipeline", "upload-nightly-pipeline"],
    }
    queues = {device: {step["agents"]["queue"] for step in plan(device, ready).steps} for device in DEVICES}
    assert queues == {
        "cuda": {"cpu_queue_premerge"},
        "rocm": {"amd-cpu"},
        "xpu": {"intel-gpu-omni"},
        "npu": {"ascend-a2b3"},
    }


def test_only_what_a_machine_ends_with_is_tried_again() -> None:
    for device in DEVICES:
        for step in plan(device, Build(branch="x", pull_request=7, labels=frozenset({"ready"}))).steps:
            rules = step["retry"]["automatic"]
            assert rules
            statuses = [rule["exit_status"] for rule in rules if "exit_status" in rule]
            assert all(status < 0 or status > 127 for status in statuses), step["key"]
            assert step["timeout_in_minutes"] > 0


def test_xpu_builds_tests_and_cleans_up_in_one_step() -> None:
    (step,) = plan("xpu", Build(branch="main")).steps
    assert step["commands"] == ["omni-ci suites.run xpu_ready --in-image --build --remove-image --timeout 30"]
    assert (step["priority"], step["timeout_in_minutes"], step["agents"]) == (100, 60, {"queue": "intel-gpu-omni"})
    one_step = TIERS.bootstraps["xpu"].one_step
    assert one_step is not None
    assert [" ".join(words) for words in one_step_commands(one_step)] == step["commands"]
    assert "soft_fail" not in step


def test_an_image_that_is_not_built_says_why() -> None:
    build = Build(branch="x", pull_request=7, labels=frozenset({"ready"}))
    parts = {part.name: part for part in plan("npu", build).parts}
    assert not parts["image npu-a3-ci"].keep
    assert parts["image npu-a3-ci"].reason == Reason(Why.HARDWARE, "no agent of A3 builds images yet")


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (None, ()),
        ("merge", ("merge",)),
        ("ready,merge", ("ready", "merge")),
        (" Merge , READY ,", ("merge", "ready")),
    ],
)
def test_the_tiers_of_debug_test_yaml(value: str | None, found: tuple[str, ...]) -> None:
    assert debug_tiers(value) == found


@pytest.mark.parametrize("value", ["", " ", ",", " , ,"])
def test_debug_test_yaml_that_names_nothing(value: str) -> None:
    with pytest.raises(UsageError, match="names no tier"):
        debug_tiers(value)


@pytest.mark.parametrize("build", [Build(branch="main"), Build(branch="x", pull_request=7), Build(branch=None)])
@pytest.mark.parametrize("skip", [None, skip_of(SkipKind.DOCS), skip_of(SkipKind.CI_CONFIG)])
def test_tiers_that_somebody_asked_for_share_one_image(build: Build, skip: Skip | None) -> None:
    steps = plan("rocm", build, skip, only=debug_tiers("ready,merge")).steps
    assert [step["commands"] for step in steps] == [
        ["omni-ci images.build rocm-ci --push --profile ci"],
        ["omni-ci pipelines.upload --cell rocm_ready --all"],
        ["omni-ci pipelines.upload --cell rocm_merge --all"],
    ]
    assert [step.get("depends_on") for step in steps] == [None, "amd-build", "amd-build"]
    assert not any("if" in step for step in steps)


@pytest.mark.parametrize(
    ("only", "words"),
    [
        (("ready", "ready"), "'ready' is named twice"),
        (("ready", "merge", "ready"), "'ready' is named twice"),
        (("raedy",), "unknown tier of rocm 'raedy'"),
        (("nightly",), "unknown tier of rocm 'nightly'"),
    ],
)
def test_tiers_that_cannot_be_asked_for(only: tuple[str, ...], words: str) -> None:
    with pytest.raises(UsageError, match=words) as raised:
        plan("rocm", Build(branch="main"), only=only)
    assert raised.value.hint


def test_an_unknown_device() -> None:
    with pytest.raises(UsageError, match="unknown device 'cudda'") as raised:
        plan("cudda", Build(branch="main"))
    assert raised.value.hint == "did you mean cuda?"


@pytest.mark.parametrize("device", DEVICES)
def test_asking_for_a_tier_opens_nothing_for_a_fork(device: str) -> None:
    fork = Build(branch="main", pull_request=7, fork=True)
    every = tuple(cell.tier for cell in TIERS.of_device(device))
    assert plan(device, fork, only=every).steps == []
    labelled = plan(device, Build(branch="x", pull_request=7, fork=True, labels=frozenset({"ready"})), only=every)
    assert cells_of(labelled) == [f"{device}_ready"]
    assert all("if" in step and "--all" not in step["commands"][0] for step in labelled.steps)


@pytest.mark.parametrize("device", DEVICES)
def test_a_fork_gets_no_login_outside_of_its_images_build(device: str) -> None:
    found = plan(device, Build(branch="x", pull_request=7, fork=True, labels=frozenset({"ready", "nightly-test"})))
    for step in found.steps:
        if "images.build" not in step["commands"][0]:
            written = json.dumps(step).lower()
            assert not [word for word in ("vault", "secret", "token", "password", "docker-login") if word in written]


HOSTILE = (
    "$(id)", "`id`", "${HF_TOKEN}", "a;b", "a\nsteps: []", "'\"", "!!python/object:os.system", "--help", "& *x",
    "é" * 99,
)  # fmt: skip


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", HOSTILE)
def test_nothing_that_a_build_is_called_gets_into_the_pipeline(device: str, name: str) -> None:
    labels = frozenset({"ready", "merge-test", "nightly-test", "weekly-test"})
    plain = Build(branch="x", pull_request=7, labels=labels)
    odd = Build(branch=name, base_branch=name, pull_request=7, labels=labels | {name}, mirror_hw=name)
    assert plan(device, odd).document == plan(device, plain).document
    assert plan(device, odd).summary == plan(device, plain).summary


START = Start('python3 -c "$STARTER"', {"STARTER": "print($HOME)"})


@pytest.mark.parametrize("device", DEVICES)
def test_the_pipeline_is_of_buildkites_schema_and_reads_back(device: str) -> None:
    documents = [plan(device, build, start=start).document for build, start in product(builds(), (None, START))]
    for text in dict.fromkeys(json.dumps(document) for document in documents):
        document = json.loads(text)
        assert faults(document) == []
        assert yaml.load(to_yaml(document), Loader=yaml.CSafeLoader) == json.loads(to_json(document)) == document


def texts(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, child in value.items():
            yield from texts(key)
            yield from texts(child)
    elif isinstance(value, list):
        for child in value:
            yield from texts(child)
    elif isinstance(value, str):
        yield value


@pytest.mark.parametrize("device", DEVICES)
def test_what_starts_the_tool_survives_the_upload(device: str) -> None:
    labels = frozenset({"ready", "nightly-test"})
    found = plan(device, Build(branch="x", pull_request=7, labels=labels), start=START)
    assert found.document["env"] == {"STARTER": "print($$HOME)"}
    assert all(step["commands"][-1].startswith('python3 -c "$$STARTER" omni-ci ') for step in found.steps)
    uses = [use for text in texts(found.document) for use in scan(text)]
    assert {use.kind for use in uses} <= {Kind.UPLOAD}


def test_nothing_to_run_is_an_empty_pipeline_with_reasons() -> None:
    found = plan("cuda", Build(branch="feature"), start=START)
    assert found.document == {"steps": []}
    assert {part.keep for part in found.parts} == {False}


def test_a_schedule_on_main_is_not_skipped() -> None:
    cell, docs = TIERS.cell("cuda_merge"), skip_of(SkipKind.DOCS)
    assert skip_reason(cell, Build(branch="main"), docs) == docs.reason
    assert skip_reason(cell, Build(branch="main", schedules=frozenset({"WEEKLY"})), docs) is None
    assert skip_reason(cell, Build(branch="x", schedules=frozenset({"WEEKLY"})), docs) == docs.reason
    assert skip_reason(cell, Build(branch="main"), None) is None
    assert not is_skipped(cell, skip_of(SkipKind.NONE))
    assert not is_skipped(cell, skip_of(SkipKind.CI_CONFIG, "cuda_merge"))
    assert is_skipped(cell, skip_of(SkipKind.CI_CONFIG, "cuda_ready"))
    assert not is_skipped(TIERS.cell("cuda_nightly"), skip_of(SkipKind.CI_CONFIG, "cuda_ready"))
