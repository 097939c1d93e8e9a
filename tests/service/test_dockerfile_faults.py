"""What our Dockerfiles' steps are there for: each fault that they repair or refuse, on a base that has it."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from tasks.images import building, facts
from tasks.images.catalogue import Catalogue, load
from tasks.images.planning import BuildPlan, Facts, Request, plan_chain
from tasks.support.errors import DataError
from tests.engine_server import DockerEngine
from tests.factory_base import LOG, PYTHON, load_base, make_source
from tests.services import service_missing

pytestmark = [pytest.mark.service, pytest.mark.slow]

INDEXES = {"INDEX_URL": "https://index.test/packages", "EXTRA_INDEX_URL": "https://extra.test/packages"}


@dataclass(frozen=True)
class Yard:
    """An engine with stand-in bases, a source and the real catalogue."""

    engine: DockerEngine
    catalogue: Catalogue
    facts: Facts
    logs: Path

    def plans(self, image: str, **args: str) -> list[BuildPlan]:
        """Return the plans of an image on the stand-in base, and of the tool for it."""
        version = self.catalogue.pins.vllm[self.catalogue.image(image).device].version
        request = Request(image, args={"BASE_IMAGE": f"faulty:{version}", **args})
        return [plan for plan in plan_chain(self.catalogue, request, self.facts) if plan.image != "xpu-base"]

    def build(self, *plans: BuildPlan) -> BuildPlan:
        """Build plans and return the last one."""
        for plan in plans:
            building.build(plan, self.engine.settings, self.catalogue, tool=self.facts.tool, logs=self.logs, pauses=())
        return plans[-1]

    def run(self, plan: BuildPlan, script: str, *options: str) -> str:
        """Run a shell script in an image and return what it prints."""
        words = ("run", "--rm", "--network", "host", "--entrypoint", "/bin/bash", *options, plan.tags[0], "-ec", script)
        return self.engine.docker(*words)


@pytest.fixture(scope="module")
def yard(engine: DockerEngine, tmp_path_factory: pytest.TempPathFactory) -> Yard:
    if PYTHON.resolve().name != "python3.11":
        service_missing("the stand-in base is made from Debian's python3.11")
    real = load()
    for version in {pin.version for pin in real.pins.vllm.values()}:
        load_base(engine, f"faulty:{version}", version.removeprefix("v"))
    folder = tmp_path_factory.mktemp("yard")
    return Yard(engine, real, facts.gather(make_source(folder / "library"), real.source), folder / "logs")


def test_a_build_is_told_its_indexes_and_leaves_a_place_for_mounted_caches(yard: Yard, tmp_path: Path) -> None:
    plan = yard.build(*yard.plans("cuda-ci", **INDEXES))
    log = yard.run(plan, f"cat {LOG}")
    assert all(address in line for line in log.splitlines() for address in INDEXES.values())
    (tmp_path / "model").write_text("here")
    mounted = ("--volume", f"{tmp_path}:/root/.cache/huggingface")
    assert yard.run(plan, 'cat "$HF_HOME/model"', *mounted) == "here"
    # The version can still be made from git, which knows nothing of where it was fetched from.
    script = "cd .git && ls refs/tags; ls config logs 2>/dev/null || true"
    assert yard.run(plan, script, "--workdir", "/workspace/vllm-omni") == "v0.28.0"


@pytest.mark.parametrize(
    ("image", "entry"),
    [
        ("cuda-release", None),
        ("rocm-ci", None),
        ("rocm-final", ["vllm", "serve", "--omni"]),
        ("xpu-ci", None),
        ("xpu-openai", ["vllm", "serve", "--omni"]),
    ],
)
def test_images_for_users_serve_and_others_wait_for_a_command(yard: Yard, image: str, entry: list[str] | None) -> None:
    plan = yard.build(*yard.plans(image))
    found = json.loads(yard.engine.docker("image", "inspect", plan.tags[0]))[0]["Config"]
    assert found["Entrypoint"] == entry
    assert found["Labels"]["org.opencontainers.image.title"].startswith("vLLM-Omni")


def test_xpu_keeps_its_own_triton_only(yard: Yard) -> None:
    plan = yard.build(*yard.plans("xpu-ci"))
    found = yard.run(plan, "ls /usr/lib/python3/dist-packages").split()
    assert f"triton_xpu-{yard.catalogue.pins.packages['triton-xpu']}.dist-info" in found
    assert "triton" not in found


def test_an_installation_that_replaces_vllm_fails_the_build(yard: Yard, tmp_path: Path) -> None:
    source = make_source(tmp_path / "library", **{"replaces-vllm": "9.9.9"})
    bad = dataclasses.replace(yard, facts=facts.gather(source, yard.catalogue.source))
    with pytest.raises(DataError, match=r"9\.9\.9"):
        bad.build(*bad.plans("cuda-ci"))


def test_without_its_repair_of_onnxruntime_the_build_for_rocm_fails(yard: Yard, tmp_path: Path) -> None:
    *before, plan = yard.plans("rocm-ci")
    assert isinstance(plan.dockerfile, Path)
    text = plan.dockerfile.read_text()
    repair = text[text.index(" \\\n    && uv pip uninstall") : text.index("\n\nARG VLLM_VERSION\n")]
    broken = tmp_path / plan.dockerfile.name
    broken.write_text(text.replace(repair, ""))
    with pytest.raises(DataError, match="ROCMExecutionProvider"):
        yard.build(*before, dataclasses.replace(plan, dockerfile=broken))
