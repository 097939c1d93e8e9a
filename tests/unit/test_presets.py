"""The presets: every queue, plugin and image that CI has, one template a family, and retries that hide no failure."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tasks.images import catalogue
from tasks.pipelines import dollar
from tasks.pipelines.expanding import expand
from tasks.suites import presets
from tasks.suites.presets import Preset, Presets
from tasks.support.errors import DataError, UsageError

ALL = presets.load()
PYTEST_CODES = range(6)


def plugin(preset: Preset, name: str) -> Any:
    found: list[Any] = [entry[name] for entry in preset.body.get("plugins", []) if name in entry]
    assert len(found) == 1
    return found[0]


def walk(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield every key with its value, however deep."""
    if isinstance(value, Mapping):
        for key, child in value.items():
            yield key, child
            yield from walk(child)
    elif isinstance(value, list):
        for child in value:
            yield from walk(child)


@pytest.mark.parametrize(
    ("name", "queue", "count"),
    [
        ("l4_1", "gpu_1_queue", 1),
        ("l4_4", "gpu_4_queue", 4),
        *((f"h100_{number}", "mithril-h100-pool", number) for number in (1, 2, 3, 4)),
        *((f"mi300_{number}", f"amd_mi300_{number}", number) for number in (1, 2, 4)),
        ("b60_1", "intel-gpu-omni", 1),
        ("a2b3_npu_1", "ascend-a2b3", 1),
        ("a2b3_npu_4", "ascend-a2b3", 4),
        ("a3_npu_2", "ascend-a3", 2),
        ("a3_npu_8", "ascend-a3", 8),
        ("cpu_1", "cpu_queue_premerge", 0),
        ("premerge", "cpu_queue_premerge", 0),
        ("amd_build", "amd-cpu", 0),
        ("release_build", "cpu_queue_release", 0),
        ("release_build_arm64", "arm64_cpu_queue_release", 0),
        ("release_small", "small_cpu_queue_release", 0),
    ],
)
def test_every_queue_has_a_preset_and_counts_are_numbers(name: str, queue: str, count: int) -> None:
    preset = ALL.get(name)
    assert preset.body["agents"]["queue"] == queue
    assert preset.count == count
    assert type(preset.count) is int


@pytest.mark.parametrize("number", [1, 2, 4])
def test_amds_older_names_are_other_names_of_the_same_preset(number: int) -> None:
    assert ALL.get(f"mi325_{number}") is ALL.get(f"mi300_{number}")


@pytest.mark.parametrize("name", ["l4_1", "l4_4"])
def test_l4_is_the_docker_plugin_with_what_artifacts_and_annotations_need(name: str) -> None:
    docker = plugin(ALL.get(name), "docker#v5.2.0")
    assert docker["propagate-environment"] is True
    assert docker["mount-buildkite-agent"] is True
    assert docker["always-pull"] is True
    assert docker["shm-size"] == "8gb"
    assert docker["environment"] == ["HF_HOME=/fsx/hf_cache", "HF_TOKEN"]
    assert docker["volumes"] == ["/fsx/hf_cache:/fsx/hf_cache"]


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_h100_is_a_pod_with_its_number_of_devices_and_a_referenced_token(number: int) -> None:
    pod = plugin(ALL.get(f"h100_{number}"), "kubernetes")["podSpec"]
    (container,) = pod["containers"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": number}
    token = next(entry for entry in container["env"] if entry["name"] == "HF_TOKEN")
    assert token == {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf-token-secret", "key": "token"}}}
    assert pod["nodeSelector"] == {"node.kubernetes.io/instance-type": "gpu-h100-sxm"}
    assert {"name": "devshm", "emptyDir": {"medium": "Memory"}} in pod["volumes"]
    assert {"name": "hf-cache", "hostPath": {"path": "/mnt/hf-cache", "type": "DirectoryOrCreate"}} in pod["volumes"]


@pytest.mark.parametrize("number", [1, 2, 4])
def test_mi300_is_a_patched_pod_that_says_how_many_devices_to_expect(number: int) -> None:
    preset = ALL.get(f"mi300_{number}")
    patch = plugin(preset, "kubernetes")["podSpecPatch"]
    (container,) = patch["containers"]
    assert container["resources"] == {"limits": {"amd.com/gpu": number}, "requests": {"amd.com/gpu": number}}
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["capabilities"] == {"add": ["IPC_LOCK"]}
    assert patch["automountServiceAccountToken"] is False
    assert patch["volumes"][0]["emptyDir"] == {"medium": "Memory", "sizeLimit": "16Gi"}
    assert preset.body["env"]["VLLM_CI_EXPECTED_GPU_COUNT"] == number
    assert preset.body["env"]["VLLM_CI_DOCKER_DISABLED"] == "1"
    assert "docker#" not in json.dumps(dict(preset.body))


@pytest.mark.parametrize(("name", "resource"), [("a2b3_npu_4", "npu-4"), ("a3_npu_2", "npu-2"), ("a3_npu_8", "npu-8")])
def test_npu_agents_are_asked_for_by_resource_class(name: str, resource: str) -> None:
    assert ALL.get(name).body["agents"]["resource_class"] == resource


def test_the_builders_certificates_reach_builds_only_and_are_checked() -> None:
    with_vault = {preset.name for preset in ALL if "vault.hashicorp.com" in json.dumps(dict(preset.body))}
    assert with_vault == {"a2_build", "a3_build"}
    annotations = plugin(ALL.get("a2_build"), "kubernetes")["metadata"]["annotations"]
    assert annotations["vault.hashicorp.com/role"] == "ascend-gha-runners"
    for file in ("ca.pem", "cert.pem", "key.pem", "config.json"):
        assert annotations[f"vault.hashicorp.com/agent-inject-secret-{file}"] == "internal/data/ascend/buildkitd"
        assert annotations[f"vault.hashicorp.com/agent-inject-perms-{file}"] == "0400"
        folder = annotations[f"vault.hashicorp.com/secret-volume-path-{file}"]
        assert folder.rstrip("/") == catalogue.load().buildkitd.certificates
    assert not [key for key in annotations if "tls-skip-verify" in key]


def test_images_are_those_of_the_catalogue() -> None:
    images = catalogue.load()
    for preset in ALL:
        if preset.image is None:
            assert preset.reference is None
            continue
        image = images.image(preset.image)
        repository = images.repository(image.repository)
        (tag,) = image.tags
        tag = tag.replace("${commit}", "$BUILDKITE_COMMIT")
        places = filter(None, (repository.address, repository.pull_through))
        assert preset.reference in {f"{place.removeprefix('docker.io/')}:{tag}" for place in places}
        assert image.device == preset.device or (preset.device, image.device) == ("cpu", "cuda")


def test_a_preset_brings_no_dollar_that_is_not_known_at_upload() -> None:
    for preset in ALL:
        body = json.dumps(expand({"command": "x"}, preset))
        uses = dollar.scan(body)
        assert {use.name for use in uses} <= {"BUILDKITE_COMMIT"}, preset.name
        assert bool(uses) == ("BUILDKITE_COMMIT" in body)


def retried(rules: list[dict[str, Any]], code: int, reason: str) -> bool:
    """Say whether Buildkite would try again: one rule of which every condition holds; a missing one always does."""
    return any(
        rule.get("exit_status", "*") in {"*", code} and rule.get("signal_reason", "*") in {"*", reason}
        for rule in rules
    )


@pytest.mark.parametrize("preset", list(ALL), ids=lambda preset: preset.name)
def test_lost_machines_are_tried_again_and_failed_tests_never(preset: Preset) -> None:
    rules = preset.body["retry"]["automatic"]
    for code in range(128):
        assert not retried(rules, code, "none")
    for code in (-1, -10, 128):
        assert retried(rules, code, "none")
    for reason in ("agent_stop", "stack_error"):
        assert retried(rules, 1, reason)  # the machine's doing, whatever the code
    assert not retried(rules, 1, "cancel")
    assert retried(rules, 134, "none") == (preset.device == "rocm")
    assert all(1 <= rule["limit"] <= 2 for rule in rules)


def test_an_unknown_name_names_the_closest() -> None:
    with pytest.raises(UsageError, match="unknown preset 'h100_5'") as caught:
        ALL.get("h100_5")
    assert "h100_" in str(caught.value.hint)
    assert ALL.find("h100_5") is None


def test_presets_with_a_mark_come_with_fewer_devices_first() -> None:
    assert [preset.name for preset in ALL.with_mark("H100")] == ["h100_1", "h100_2", "h100_3", "h100_4"]
    assert ALL.with_mark("MI300") == ALL.with_mark("MI325") != ()
    assert ALL.marks() == {"L4", "H100", "MI325", "MI300", "B60", "A2", "A3"}


SMALL = """\
retries:
  machine:
    - {exit_status: 128, limit: 2}
families:
  pod:
    device: cuda
    marks: [H100]
    in-image: true
    workdir: source
    retry: machine
    step:
      agents: {queue: '${queue}'}
      plugins:
        - kubernetes: {limits: {gpu: '${count}'}, text: '${count} of ${queue}'}
presets:
  pod_0: {family: pod, count: 0, queue: q}
"""


def read(folder: Path, text: str) -> Presets:
    file = folder / "presets.yml"
    file.write_text(textwrap.dedent(text))
    return presets.load(file)


def test_a_count_of_zero_is_written_out(tmp_path: Path) -> None:
    body = read(tmp_path, SMALL).get("pod_0").body
    assert body["plugins"] == [{"kubernetes": {"limits": {"gpu": 0}, "text": "0 of q"}}]


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("exit_status: 128", "exit_status: 1", 3, "exit status 1 can be a test's own"),
        ("exit_status: 128", "exit_status: 5", 3, "exit status 5 can be a test's own"),
        ("exit_status: 128", "exit_status: 127", 3, "exit status 127 can be a test's own"),
        ("exit_status: 128", "exit_status: '*'", 3, "must be a whole number"),
        ("exit_status: 128, ", "", 3, "would try everything again"),
        ("exit_status: 128", "signal_reason: none", 3, "unknown signal_reason 'none'"),
        ("family: pod", "family: pods", 16, "unknown family 'pods'"),
        ("count: 0", "count: '2'", 16, "count must be a whole number"),
        ("count: 0, ", "", 16, "has no 'count'"),
        ("'${count}'", "'${cout}'", 14, "'cout' has no value"),
        ("'${count}'", "'${reference}'", 14, "'reference' has no value"),
        ("agents: {", "agnets: {", 12, "unknown key 'agnets'"),
        ("queue: q}", "queue: q, also: [pod_0]}", 16, "two presets are called 'pod_0'"),
        ("  pod_0:", "  Pod-0:", 16, "not a preset's name"),
        ("retry: machine", "retry: machines", 10, "unknown retry 'machines'"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(tmp_path: Path, old: str, new: str, line: int, message: str) -> None:
    assert old in SMALL
    with pytest.raises(DataError) as caught:
        read(tmp_path, SMALL.replace(old, new))
    assert message in caught.value.message
    assert f"presets.yml:{line}:" in caught.value.message


def test_the_templates_are_written_once_a_family() -> None:
    text = presets.FILE.read_text()
    assert text.count("hf-token-secret") == 1
    assert text.count("amd.com/gpu") == 2  # the limit and the request
    assert not [key for preset in ALL for key, _ in walk(dict(preset.body)) if "$" in key]
