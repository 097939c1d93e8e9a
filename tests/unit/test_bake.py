"""The bake file: what it says of the real catalogue, in the names that buildx reads."""

from __future__ import annotations

import json

import pytest

from tasks.images.bake import bake
from tasks.images.catalogue import Catalogue, load
from tasks.images.planning import Request, plan_chain
from tasks.support.errors import UsageError
from tests.factory_plan import every_plan
from tests.unit.test_image_planning import COMMIT, FACTS

# Every key that a target may have (Bake file reference).
KEYS = {"context", "contexts", "dockerfile", "target", "args", "platforms", "tags", "labels", "output", "cache-from"}
KEYS |= {"cache-to", "secret"}


@pytest.fixture(scope="module")
def real() -> Catalogue:
    return load()


def test_a_chain_is_baked_in_one_file(real: Catalogue) -> None:
    plans = plan_chain(real, Request("xpu-ci", variables={"NETRC": "/n"}), FACTS)
    found = bake(plans)
    targets = found["target"]
    assert found["group"]["default"]["targets"] == ["xpu-base-amd64", "tool-amd64", "xpu-ci-amd64"] == list(targets)
    base, tool, image = targets.values()
    assert base["context"] == f"https://github.com/vllm-project/vllm.git#{real.pins.vllm['xpu'].version}"
    assert (base["dockerfile"], base["target"]) == ("docker/Dockerfile.xpu", "vllm-openai")
    assert image["contexts"] == {base["tags"][0]: "target:xpu-base-amd64", tool["tags"][0]: "target:tool-amd64"}
    assert image["context"] == "/source"
    assert image["dockerfile"].endswith("/docker/Dockerfile.xpu")
    assert image["tags"] == [f"docker.io/xpu/vllm-omni-ci:{COMMIT}"]
    assert image["secret"] == ["id=netrc,src=/n"]
    assert image["labels"]["org.opencontainers.image.revision"] == COMMIT
    assert image["output"] == ["type=docker"]
    assert "cache-to" not in image


def test_both_architectures_fit_into_one_file(real: Catalogue) -> None:
    chains = [plan_chain(real, Request("cuda-release", platform), FACTS) for platform in ("linux/amd64", "linux/arm64")]
    targets = bake(plan for chain in chains for plan in chain)["target"]
    assert {name: target["platforms"] for name, target in targets.items()} == {
        "tool-amd64": ["linux/amd64"],
        "cuda-release-amd64": ["linux/amd64"],
        "tool-arm64": ["linux/arm64"],
        "cuda-release-arm64": ["linux/arm64"],
    }
    assert targets["cuda-release-arm64"]["contexts"] == {targets["tool-arm64"]["tags"][0]: "target:tool-arm64"}


def test_caches_are_written_by_a_push_only(real: Catalogue) -> None:
    (*_, pushed) = bake(plan_chain(real, Request("cuda-ci", push=True), FACTS))["target"].values()
    assert (pushed["output"], pushed["cache-to"]) == (["type=registry"], ["type=inline"])
    assert pushed["cache-from"] == [f"type=registry,ref={pushed['tags'][0].rpartition(':')[0]}:{'b' * 40}"]


def test_every_target_of_the_catalogue_is_plain_json_in_bakes_own_keys(real: Catalogue) -> None:
    for target in bake(every_plan(real, FACTS))["target"].values():
        assert set(target) <= KEYS
        assert json.loads(json.dumps(target)) == target
        assert all(target.values())


def test_what_bake_would_evaluate_is_escaped(real: Catalogue) -> None:
    args = {"EXTRA_INDEX_URL": "https://index.test/${USER}/%{if}"}
    (*_, target) = bake(plan_chain(real, Request("cuda-ci", args=args), FACTS))["target"].values()
    assert target["args"]["EXTRA_INDEX_URL"] == "https://index.test/$${USER}/%%{if}"


def test_a_proxys_password_is_not_printed(real: Catalogue) -> None:
    variables = {"HTTPS_PROXY": "http://me:hunter2@proxy.test:3128", "HTTP_PROXY": "http://proxy.test:3128"}
    (*_, target) = bake(plan_chain(real, Request("cuda-ci", variables=variables), FACTS))["target"].values()
    assert target["args"]["HTTP_PROXY"] == "http://proxy.test:3128"
    assert "hunter2" not in json.dumps(target)


def test_nothing_to_bake_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="nothing to bake"):
        bake([])
