"""The file of tiers: what it may say, how groups of native files are recognised, and which labels lead nowhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasks.images import catalogue
from tasks.pipelines.reading import read_native
from tasks.suites import presets, tiers
from tasks.support.errors import DataError, MissingInputError, UsageError

TIERS = tiers.load()
NATIVE = Path(__file__).parents[1] / "native"
TEXT = tiers.FILE.read_text(encoding="utf-8")


def groups_in(cell: str) -> dict[str, str]:
    """Return which group of the model each group (or step outside of all) of a native file is taken for."""
    file = read_native((NATIVE / f"{cell}.yml").read_bytes(), f"{cell}.yml")
    found: dict[str, str] = {}
    for group, step in file.steps():
        title, key = (group.label, group.key) if group else (step.name, step.key)
        found[title.split(":")[-1].strip()] = TIERS.cell(cell).group_of(title, key).name
    return found


def test_the_groups_of_native_files_are_recognised() -> None:
    assert groups_in("cuda_nightly") == {
        "Omni Model Test": "omni",
        "TTS Model Test": "tts",
        "Tiny Model Tests [Multi-GPU]": "others",
        "Diffusion X2I(&A&T) Model Test": "x2iat",
        "Diffusion X2V Model Test": "x2v",
        "Diffusion Test": "others",
    }
    assert groups_in("cuda_weekly") == {
        "CPU Coverage": "coverage",
        "Reliability Test": "reliability",
        "Perf Test": "perf",
        "E2E Tests": "e2e",
    }
    assert groups_in("npu_nightly") == {"Diffusion X2V Model Test": "x2v"}
    for cell in ("cuda_ready", "cuda_merge"):
        found = groups_in(cell)
        assert {title for title, group in found.items() if group == "e2e"} == {"E2E Test"}
        assert set(found.values()) == {"e2e", "others"}
    for cell in ("rocm_ready", "rocm_merge", "xpu_ready", "npu_ready"):
        assert set(groups_in(cell).values()) == {"all"}


@pytest.mark.parametrize(
    ("cell", "title", "key", "group"),
    [
        ("cuda_ready", "Qwen3-TTS E2E Test", None, "e2e"),
        ("cuda_ready", "Simple Unit Test", None, "others"),
        ("cuda_ready", "an e2e test", None, "others"),
        ("cuda_nightly", ":full_moon: Omni · Perf Test", "nightly-omni-performance", "omni"),
        ("cuda_nightly", "", "nightly-omni-test-group", "omni"),
        ("cuda_nightly", ":bar_chart: Testcase Statistics", "nightly-testcase-statistics", "others"),
        ("cuda_nightly", "Diffusion I2I", "nightly-HunyuanImage3-x2i-test-group", "x2iat"),
        ("npu_nightly", "", "nightly-omni-performance-npu-a2", "omni"),
        ("cuda_weekly", "Reliability Test - qwen3-omni", None, "reliability"),
        ("cuda_weekly", "Reliability Test - Invalid parameters Test", None, "reliability"),
        ("cuda_weekly", "", "weekly-omni-performance-multi-replicas", "perf"),
        ("cuda_weekly", "", None, "others"),
        ("rocm_merge", "E2E Test", None, "all"),
    ],
)
def test_titles_and_keys_of_groups(cell: str, title: str, key: str | None, group: str) -> None:
    assert TIERS.cell(cell).group_of(title, key).name == group


def test_a_label_that_uploads_a_cell_whose_file_has_nothing_for_it() -> None:
    present = set(groups_in("npu_nightly").values())
    cell = TIERS.cell("npu_nightly")
    assert cell.unmatched_labels(present) == ("omni-test", "tts-test", "diffusion-x2iat-test")
    assert cell.unmatched_labels({group.name for group in cell.groups}) == ()
    assert TIERS.cell("cuda_nightly").unmatched_labels(set(groups_in("cuda_nightly").values())) == ()
    assert TIERS.cell("cuda_weekly").unmatched_labels({"coverage", "e2e"}) == ("weekly-test",)


def test_what_the_file_names_exists() -> None:
    known, images = presets.load(), catalogue.load().images
    for bootstrap in TIERS.bootstraps.values():
        for image in bootstrap.images:
            assert images[image.image].device == bootstrap.device
            assert known.get(image.preset).queue
        for named in (bootstrap.upload, bootstrap.one_step):
            assert named is None or known.get(named.preset).queue


def test_every_device_and_what_is_not_covered() -> None:
    assert [*TIERS.bootstraps] == [*tiers.DEVICES]
    assert {device: TIERS.not_covered(device) for device in tiers.DEVICES} == {
        "cuda": (),
        "rocm": ("nightly", "weekly"),
        "xpu": ("merge", "nightly", "weekly"),
        "npu": ("merge", "weekly"),
    }


def test_cells_of_a_file() -> None:
    for cell in TIERS.cells.values():
        for path in cell.files:
            assert TIERS.at_file(path) == (cell,)
    assert TIERS.at_file("tests/x.py") == ()


def test_an_unknown_cell_has_a_hint() -> None:
    with pytest.raises(UsageError, match="unknown cell 'cuda_redy'") as raised:
        TIERS.cell("cuda_redy")
    assert raised.value.hint is not None
    assert "cuda_ready" in raised.value.hint


READY = "    files: [.buildkite/cuda/test-ready.yml, .buildkite/test-ready.yml]\n"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("label-ready: {branch: other", "label-ready: {branch: mian", "unknown branch 'mian'"),
        ("{branch: main, schedules: [NIGHTLY]}", "{branch: main, schedules: [NIGHTLYY]}", "unknown schedule"),
        ("{branch: main, schedules: [NIGHTLY]}", "{branch: main, schedules: []}", "schedules names none"),
        ("{branch: main}", "{branch: main, labels: [x]}", "main has neither labels nor forks"),
        ("labels: [ready]", "labels: ['ready\" || true']", "is no label's name"),
        ("labels: [ready]", "labels: []", "labels names none"),
        ("labels: [ready]", "label: [ready]", "unknown key 'label'"),
        ("labels: [ready]", "labels: [ready, ready]", "twice"),
        ("    all: {when: [main]}", "    all: {when: [mian]}", "unknown condition 'mian'"),
        ("    all: {when: [main]}", "    all: {titles: [x], when: [main]}", "the last group of a list takes the rest"),
        ("e2e: {titles: [E2E Test], when", "e2e: {when", "the last group of a list takes the rest"),
        (READY, "    files: []\n", "has no file"),
        (READY, "    files: [/etc/passwd]\n", "is not a path in the source"),
        (READY, "    files: [../x.yml]\n", "is not a path in the source"),
        (READY, "", "has no 'files'"),
        ("  cuda_ready:\n", "  cuda_raedy:\n", "'cuda_raedy' is no cell"),
        ("    groups: ready\n", "    groups: raedy\n", "unknown list of groups"),
        ("  rocm:\n    images", "  rocmm:\n    images", "unknown device 'rocmm'"),
        ("      inner: 30\n", "      inner: 60\n", "shorter than the step's"),
        ("      inner: 30\n", "      inner: 0\n", "at least 1"),
        ("    upload: {preset: premerge, timeout: 15}\n", "", "begins with images and upload, or with one-step"),
        ("preset: premerge, timeout: 60}", "preset: premerge, timeout: 60, not-built: no}", "in two ways"),
        ("preset: premerge, timeout: 60}", "preset: premerge, timeout: 60, not-built: gone}", "no image that is built"),
        ("      cell: xpu_ready\n", "      cell: cuda_ready\n", "unknown cell 'cuda_ready'"),
        ("conditions:\n", "conditions: &a\n", "anchors and aliases"),
    ],
)
def test_a_file_that_is_not_as_it_should_be(tmp_path: Path, old: str, new: str, words: str) -> None:
    assert old in TEXT
    file = tmp_path / "tiers.yml"
    file.write_text(TEXT.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(DataError, match=words) as raised:
        tiers.load(file)
    place = raised.value.message.removeprefix(f"{file}:").split(":")[0]
    assert place.isdigit(), raised.value.message


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError):
        tiers.load(tmp_path / "tiers.yml")
