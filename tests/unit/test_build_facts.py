"""The build's facts: what Buildkite's variables mean, and which builds are trusted."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.pipelines.build_facts import Build, read_build, repository_name
from tasks.support.errors import ConfigurationError, UsageError
from tasks.support.settings import load

OURS = "https://github.com/vllm-project/vllm-omni.git"
COMMIT = "0123456789" * 4


def build(**environment: str) -> Build:
    return read_build(load(environment=environment))


def pull_request(**environment: str) -> Build:
    usual = {"BUILDKITE_PULL_REQUEST": "7", "BUILDKITE_REPO": OURS, "BUILDKITE_PULL_REQUEST_REPO": OURS}
    return build(**usual | environment)


# ----------------------------------------------------------------------------------------------------------------------
# Who builds


def test_off_buildkite_nothing_is_known_and_nothing_is_main() -> None:
    facts = build()
    assert facts == Build()
    assert not facts.is_main
    assert facts.mirror_hw == "amdproduction"


def test_every_fact_is_read() -> None:
    facts = build(
        BUILDKITE="true",
        BUILDKITE_BRANCH="topic",
        BUILDKITE_PIPELINE_DEFAULT_BRANCH="trunk",
        BUILDKITE_COMMIT=COMMIT,
        BUILDKITE_PULL_REQUEST="12",
        BUILDKITE_PULL_REQUEST_BASE_BRANCH="release/1",
        BUILDKITE_PULL_REQUEST_REPO=OURS,
        BUILDKITE_REPO=OURS,
        BUILDKITE_PULL_REQUEST_LABELS="ready,omni-test",
        BUILDKITE_PIPELINE_SLUG="omni",
        NIGHTLY="1",
        COV_ENABLED="1",
        DOCS_ONLY_DISABLE="1",
        RUN_ALL="1",
        FAIL_FAST="0",
        MIRROR_HW="other",
    )
    assert facts == Build(
        on_buildkite=True,
        branch="topic",
        default_branch="trunk",
        commit=COMMIT,
        pull_request=12,
        base_branch="release/1",
        fork=False,
        labels=frozenset({"ready", "omni-test"}),
        schedules=frozenset({"NIGHTLY"}),
        run_all=True,
        docs_only_disable=True,
        fail_fast=False,
        mirror_hw="other",
        coverage=True,
    )


def test_main_is_the_default_branch_and_no_pull_request_and_no_fork() -> None:
    branches = ("main", "trunk", "topic", None)
    product = itertools.product(branches, ("main", "trunk"), (None, 3), (False, True))
    for branch, default, number, fork in product:
        facts = Build(branch=branch, default_branch=default, pull_request=number, fork=fork)
        assert facts.is_main is (branch == default and number is None and not fork)


def test_a_pull_request_whose_branch_is_called_main_is_not_main() -> None:
    assert build(BUILDKITE_BRANCH="main", BUILDKITE_PULL_REQUEST="false").is_main
    for repository in (OURS, "https://github.com/someone/vllm-omni"):
        assert not pull_request(BUILDKITE_BRANCH="main", BUILDKITE_PULL_REQUEST_REPO=repository).is_main


@pytest.mark.parametrize("value", ["true", "0", "-1", "7; rm -rf .", "7\n", "٧", "9" * 5000, " ", "none", "False"])
def test_a_pull_request_that_is_no_number_does_not_pass_for_none(value: str) -> None:
    with pytest.raises(ConfigurationError, match="BUILDKITE_PULL_REQUEST is neither"):
        build(BUILDKITE_PULL_REQUEST=value)


@pytest.mark.parametrize(("given", "commit"), [("HEAD", None), ("", None), (COMMIT, COMMIT)])
def test_a_build_started_by_hand_has_no_commit_yet(given: str, commit: str | None) -> None:
    assert build(BUILDKITE_COMMIT=given).commit == commit


def test_a_commit_that_is_no_full_hash_is_refused() -> None:
    with pytest.raises(UsageError, match="BUILDKITE_COMMIT"):
        build(BUILDKITE_COMMIT="abc123")


def test_the_base_is_that_of_the_pull_request_or_of_the_merge_queue() -> None:
    queue = {"BUILDKITE_MERGE_QUEUE_BASE_BRANCH": "main", "BUILDKITE_MERGE_QUEUE_BASE_COMMIT": COMMIT}
    assert build(BUILDKITE_BRANCH="topic").base_branch is None
    assert pull_request(BUILDKITE_PULL_REQUEST_BASE_BRANCH="release/1").base_branch == "release/1"
    assert pull_request(BUILDKITE_PIPELINE_DEFAULT_BRANCH="trunk").base_branch == "trunk"
    facts = build(BUILDKITE_BRANCH="gh-readonly-queue/main/pr-1-abc", BUILDKITE_PULL_REQUEST="false", **queue)
    assert (facts.base_branch, facts.merge_queue_base, facts.is_main) == ("main", COMMIT, False)


# ----------------------------------------------------------------------------------------------------------------------
# Forks

SAME = [
    OURS,
    "https://github.com/vllm-project/vllm-omni",
    "https://github.com/vllm-project/vllm-omni/",
    "https://github.com/VLLM-Project/vLLM-Omni.git",
    "https://user:token@github.com/vllm-project/vllm-omni.git",
    "https://github.com:443/vllm-project/vllm-omni",
    "git@github.com:vllm-project/vllm-omni.git",
    "git@github.com:/vllm-project/vllm-omni",
    "github.com:vllm-project/vllm-omni",
    "ssh://git@github.com/vllm-project/vllm-omni.git",
    "ssh://git@github.com:22/vllm-project/vllm-omni.git",
    "git://github.com/vllm-project/vllm-omni.git",
]
OTHERS = [
    "https://github.com/someone/vllm-omni.git",
    "git@github.com:someone/vllm-omni.git",
    "https://github.com/vllm-project/vllm-omni2",
    "https://github.com/vllm-project/vllm-omni.git.git",
    "https://github.com/someone/../vllm-project/vllm-omni",
    "https://github.com/vllm-project//vllm-omni",
    "https://github.com/vllm-project/vllm-\nomni",
    "https://gitlab.com/vllm-project/vllm-omni",
    "https://github.com:8443/vllm-project/vllm-omni",
    "https://github.com/vllm-project/vllm-omni?x",
    "https://github.com.example/vllm-project/vllm-omni",
    "https://example.com/@github.com/vllm-project/vllm-omni",
    "https://[broken/vllm-project/vllm-omni",
    "https://github.com:port/vllm-project/vllm-omni",
    "/srv/vllm-project/vllm-omni",
    "https://github.com/vllm-project/vllm-omnı",
    "git@github.com:vllm-project/vllm-omni.git@x",
    "x",
]


@pytest.mark.parametrize(("one", "other"), list(itertools.combinations(SAME, 2)))
def test_all_addresses_of_one_repository_are_the_same(one: str, other: str) -> None:
    assert repository_name(one) == repository_name(other)
    assert not pull_request(BUILDKITE_REPO=one, BUILDKITE_PULL_REQUEST_REPO=other).fork


@pytest.mark.parametrize("other", OTHERS)
def test_any_other_address_is_a_fork(other: str) -> None:
    for ours in SAME:
        assert pull_request(BUILDKITE_REPO=ours, BUILDKITE_PULL_REQUEST_REPO=other).fork
        assert pull_request(BUILDKITE_REPO=other, BUILDKITE_PULL_REQUEST_REPO=ours).fork


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
def test_no_address_at_another_host_is_ours(address: str) -> None:
    for theirs in (f"https://example.com/{address}", f"git@example.com:{address}", f"/{address}"):
        assert pull_request(BUILDKITE_PULL_REQUEST_REPO=theirs).fork


def test_a_pull_request_from_an_unknown_repository_is_not_trusted() -> None:
    assert build(BUILDKITE_PULL_REQUEST="7", BUILDKITE_REPO=OURS).fork
    assert build(BUILDKITE_PULL_REQUEST="7", BUILDKITE_PULL_REQUEST_REPO=OURS).fork
    assert build(BUILDKITE_PULL_REQUEST="7").fork
    assert not build(BUILDKITE_PULL_REQUEST="false", BUILDKITE_PULL_REQUEST_REPO="", BUILDKITE_REPO=OURS).fork


# ----------------------------------------------------------------------------------------------------------------------
# Labels and switches


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("", set()),
        (",", set()),
        ("ready", {"ready"}),
        ("ready, ready ,,omni-test", {"ready", "omni-test"}),
        ("good first issue,ready", {"good first issue", "ready"}),
        ('$(id),`id`,a"b,a: b,视频', {"$(id)", "`id`", 'a"b', "a: b", "视频"}),
        ("not-ready,ready-run-all-tests2", {"not-ready", "ready-run-all-tests2"}),
    ],
)
def test_labels_are_parted_by_commas_and_kept_as_they_are(text: str, labels: set[str]) -> None:
    facts = pull_request(BUILDKITE_PULL_REQUEST_LABELS=text)
    assert facts.labels == labels
    assert not facts.run_all


@pytest.mark.parametrize("value", ["1", "0", "true", "", "01", " 1", "yes", "1\n"])
def test_schedules_and_switches_are_exactly_1(value: str) -> None:
    names = ("NIGHTLY", "WEEKLY", "NON_CRITICAL")
    facts = build(**dict.fromkeys((*names, "RUN_ALL", "COV_ENABLED", "DOCS_ONLY_DISABLE"), value))
    assert facts.schedules == (set(names) if value == "1" else set())
    assert (facts.run_all, facts.coverage, facts.docs_only_disable) == (value == "1",) * 3


def test_the_label_runs_all() -> None:
    assert pull_request(BUILDKITE_PULL_REQUEST_LABELS="ready,ready-run-all-tests").run_all


@pytest.mark.parametrize("fail_fast", [None, "1", "true", "True", "0", "false", "FALSE"])
def test_a_pull_request_fails_fast_unless_its_label_or_the_variable_says_otherwise(fail_fast: str | None) -> None:
    given = {} if fail_fast is None else {"FAIL_FAST": fail_fast}
    said = None if fail_fast is None else fail_fast.lower() in ("1", "true")
    assert pull_request(**given).fail_fast is (True if said is None else said)
    assert pull_request(BUILDKITE_PULL_REQUEST_LABELS="ci-no-fail-fast", **given).fail_fast is bool(said)
    assert build(BUILDKITE_BRANCH="main", **given).fail_fast is bool(said)


@pytest.mark.parametrize("value", ["yes", "2", " ", "-"])
def test_a_fail_fast_that_is_neither_yes_nor_no_is_refused(value: str) -> None:
    with pytest.raises(ConfigurationError, match="FAIL_FAST is neither"):
        build(FAIL_FAST=value)


@pytest.mark.parametrize("slug", [None, "omni", "fastcheck"])
@pytest.mark.parametrize("amd", [None, "amdexperimental"])
@pytest.mark.parametrize("mirror", [None, "tpu"])
def test_which_mirror_runs(mirror: str | None, amd: str | None, slug: str | None) -> None:
    given = {"MIRROR_HW": mirror, "AMD_MIRROR_HW": amd, "BUILDKITE_PIPELINE_SLUG": slug}
    facts = build(**{name: value for name, value in given.items() if value is not None})
    assert facts.mirror_hw == ("amdtentative" if slug == "fastcheck" else amd or mirror or "amdproduction")
