"""The catalogue of areas: ours, and what a wrong one is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasks.pipelines.rules import Files, first_match, matching
from tasks.suites.areas import PathRules, Unmatched, load, read
from tasks.support.errors import DataError, MissingInputError

OURS = load()
MODELS = "vllm_omni/model_executor/models"


def _covered(rules: str, path: str) -> bool:
    return first_match(getattr(OURS, rules), Files([path])) is not None


@pytest.mark.parametrize(
    "path",
    [
        "pyproject.toml",
        "setup.py",
        "setup.cfg",
        "requirements/cuda.txt",
        "docker/Dockerfile.ci",
        "docker/Dockerfile.npu.a3",
        ".buildkite/automation.lock",
        "tests/conftest.py",
        "tests/helpers/mark.py",
        "tests/helpers/fixtures/runtime.py",
        "vllm_omni/patch.py",
        "vllm_omni/engine/orchestrator.py",
        "vllm_omni/worker/gpu_worker.py",
    ],
)
def test_what_every_test_stands_on_runs_everything(path: str) -> None:
    assert _covered("run_all", path)
    assert not _covered("ignore", path)
    assert not _covered("docs", path)


@pytest.mark.parametrize(
    "path",
    [
        "tests/e2e/test_a.py",
        "tests/diffusion/models/wan2_2/conftest.py",
        "docs/pyproject.toml",
        f"{MODELS}/qwen3_tts/pipeline.py",
        "apps/x/setup.py",
        "requirements.md",
    ],
)
def test_what_only_some_tests_stand_on_does_not(path: str) -> None:
    assert not _covered("run_all", path)


@pytest.mark.parametrize(
    ("path", "is_doc"),
    [
        ("docs/conf.py", True),
        ("docs/a/b.png", True),
        ("README.md", True),
        ("a/b.md", True),
        ("tests/e2e/README.md", True),
        ("mkdocs.yml", True),
        ("sub/mkdocs.yml", False),
        ("mkdocs.yaml", False),
        ("README.MD", False),
        ("README.mdx", False),
        ("README", False),
        ("pkg/docs/a.py", False),
        ("docsx/a.py", False),
        ("md", False),
        ("pkg/a.py", False),
    ],
)
def test_documentation_has_one_rule(path: str, is_doc: bool) -> None:
    assert _covered("docs", path) is is_doc


@pytest.mark.parametrize(
    ("path", "areas"),
    [
        (f"{MODELS}/qwen3_tts/qwen3_tts_talker.py", ["qwen3-tts"]),
        (f"{MODELS}/qwen3_tts/cuda_graph_decoder_wrapper.py", ["qwen3-omni", "qwen3-tts"]),
        (f"{MODELS}/common/snake_activation.py", ["qwen3-omni", "qwen3-tts"]),
        (f"{MODELS}/common/new.py", []),
        (f"{MODELS}/bagel/bagel.py", ["bagel"]),
        ("vllm_omni/diffusion/models/bagel/autoencoder.py", ["bagel"]),
        ("vllm_omni/deploy/bagel_think.yaml", ["bagel"]),
        ("vllm_omni/deploy/qwen3_tts.yaml", ["qwen3-tts"]),
        ("vllm_omni/deploy/qwen3_tts.yaml.bak", []),
        ("vllm_omni/deploy/qwen3_omni_moe_multi_replicas.yaml", ["qwen3-omni"]),
        ("vllm_omni/diffusion/models/dmd2/scheduler.py", ["qwen-image", "wan22"]),
        ("vllm_omni/diffusion/models/wan2_2/pipeline_wan2_2.py", ["wan22"]),
        ("vllm_omni/diffusion/models/flux2/a.py", []),
        (f"{MODELS}/voxcpm/a.py", []),
        (f"{MODELS}/voxcpm2/a.py", ["voxcpm2"]),
    ],
)
def test_areas_hold_their_models(path: str, areas: list[str]) -> None:
    assert [name for name, rules in OURS.areas.items() if first_match(rules, Files([path]))] == areas


def test_our_areas_are_told_apart_from_what_runs_everything() -> None:
    rules = [rule.path for inside in OURS.areas.values() for rule in inside]
    assert matching(OURS.run_all, Files(rules)) == ()
    assert matching(OURS.docs, Files(rules)) == ()
    assert list(OURS.areas) == sorted(OURS.areas)
    assert OURS.unmatched is Unmatched.RUN_ALL


def test_reads_a_catalogue() -> None:
    data = b"""
run_all: [pyproject.toml]
ignore: ['*.txt']
unmatched: ungated
docs: [docs/, '!docs/code/']
areas:
  tts: [pkg/tts/, ./pkg/tts.yaml]
"""
    found = read(data, "areas.yml")
    assert found.unmatched is Unmatched.UNGATED
    assert [rule.path for rule in found.areas["tts"]] == ["pkg/tts", "pkg/tts.yaml"]
    assert matching(found.docs, Files(["docs/a", "docs/code/b"])) == ("docs/a",)
    (rule,) = found.parse(["tts"], "x")
    assert (rule.area, rule.inside) == ("tts", found.areas["tts"])
    assert read(b"unmatched: run_all", "x") == PathRules()


@pytest.mark.parametrize(
    ("data", "line", "message"),
    [
        ("run_all: [a]\n", 1, "has no 'unmatched'"),
        ("unmatched: run-all\n", 1, "unknown unmatched 'run-all'"),
        ("unmatched: run_all\nrunall: []\n", 2, "unknown key 'runall'"),
        ("unmatched: run_all\nrun_all: pyproject.toml\n", 2, "must be a list"),
        ("unmatched: run_all\ndocs:\n  - docs/\n  - /docs\n", 4, "starts with a slash"),
        ("unmatched: run_all\ndocs:\n  - docs/\n  - '!/docs'\n", 4, "starts with a slash"),
        ("unmatched: run_all\ndocs:\n  - docs/\n  - 3\n", 4, "must be a text"),
        ("unmatched: run_all\ndocs:\n  - docs/\n  - ./docs\n", 2, "says the same"),
        ("unmatched: run_all\ndocs:\n  - docs/\n  - docs/\n", 4, "twice"),
        ("unmatched: run_all\ndocs:\n  - '!docs/'\n", 2, "every rule starts with !"),
        ("unmatched: run_all\nareas: [a]\n", 2, "must be a mapping"),
        ("unmatched: run_all\nareas:\n  A_b: [a]\n", 3, "an area cannot be called"),
        ("unmatched: run_all\nareas:\n  ab: []\n", 3, "has no rules"),
        ("unmatched: run_all\nareas:\n  a: [x]\n  b:\n    - area:a\n", 5, "there is no area 'a'"),
        ("unmatched: run_all\nareas:\n  a: [x]\n  a: [y]\n", 4, "twice"),
        ("- a\n", 1, "must be a mapping"),
    ],
)
def test_a_wrong_catalogue_is_told_where(data: str, line: int, message: str) -> None:
    with pytest.raises(DataError) as caught:
        read(data.encode(), "areas.yml")
    assert caught.value.message.startswith(f"areas.yml:{line}: ")
    assert message in caught.value.message


def test_a_catalogue_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match=r"areas\.yml"):
        load(tmp_path / "areas.yml")


FILE_WHERE = dict.fromkeys(("run_all", "ignore", "docs", "unmatched", "areas"), "ci.yml:1")


def test_a_files_own_rules_come_in_addition() -> None:
    ours = read(b"unmatched: run_all\nrun_all: [setup.py]\nareas: {a: [x/], b: [y/]}\n", "areas.yml")
    top = {
        "run_all": ["build.py"],
        "ignore": ["*.txt"],
        "docs": "notes/",
        "unmatched": "ungated",
        "areas": {"b": ["z/"], "c": ["w/"]},
        "env": {"A": "1"},
    }
    found = ours.with_own(top, FILE_WHERE)
    assert matching(found.run_all, Files(["setup.py", "build.py", "x"])) == ("build.py", "setup.py")
    assert matching(found.ignore, Files(["a.txt"])) == ("a.txt",)
    assert matching(found.docs, Files(["notes/a"])) == ("notes/a",)
    assert found.unmatched is Unmatched.UNGATED
    assert {name: inside[0].path for name, inside in found.areas.items()} == {"a": "x", "b": "z", "c": "w"}
    assert ours.with_own({"env": {}}, {}) is ours


@pytest.mark.parametrize(
    ("top", "message"),
    [
        ({"unmatched": "run-all"}, "unknown unmatched 'run-all'"),
        ({"unmatched": None}, "unknown unmatched None"),
        ({"areas": ["a"]}, "areas must be a mapping"),
        ({"areas": {"A_b": ["x"]}}, "area 'A_b'"),
        ({"areas": {"a": []}}, "area 'a' has no rules"),
        ({"areas": {"a": {"b": 1}}}, "area a: path rules must be a list of paths or areas"),
        ({"run_all": {"a": 1}}, "path rules must be a list of paths or areas"),
        ({"run_all": None}, "path rules must be a list of paths or areas"),
        ({"ignore": ["/x"]}, "starts with a slash"),
        ({"docs": ["a", "./a"]}, "says the same"),
    ],
)
def test_a_files_own_rules_that_are_wrong_are_told_where(top: dict[str, object], message: str) -> None:
    with pytest.raises(DataError) as caught:
        OURS.with_own(top, FILE_WHERE)
    assert caught.value.message.startswith("ci.yml:1: ")
    assert message in caught.value.message
