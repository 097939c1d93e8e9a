"""Every Dockerfile of ours, built with the real engine as far as a base made here allows (docs/images.md)."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tasks.images import building, catalogue
from tasks.images.catalogue import Engine, Folder
from tasks.images.facts import gather
from tasks.images.planning import BuildPlan, Facts, Request, SecretFile, plan_chain
from tasks.registry.documents import Platform
from tasks.support.errors import DataError
from tests.engine_server import DockerEngine
from tests.factory_base import LOG, PYTHON, load_base, make_source
from tests.services import service_missing

pytestmark = [pytest.mark.service, pytest.mark.slow]

FOUND = catalogue.load()
NAMES = [name for name, image in FOUND.images.items() if image.context is Folder.SOURCE]
SAMPLE = {FOUND.images[name].dockerfile: name for name in reversed(NAMES)}
"""The first image of each Dockerfile; test_dockerfile_faults.py builds further targets."""
FROM_SOURCE = [pytest.param(name, marks=[] if name in SAMPLE.values() else pytest.mark.sweep) for name in NAMES]
SECRET = "word-of-the-netrc"


@dataclass(frozen=True)
class Yard:
    """What the images of a module's tests are built from."""

    engine: DockerEngine
    folder: Path
    facts: Facts

    def plans(self, name: str, base: str) -> tuple[BuildPlan, BuildPlan]:
        """Return the plans of the tool's image and of an image, on this machine's engine and architecture."""
        image = FOUND.image(name)
        request = Request(name, args={"BASE_IMAGE": base}, variables={"NETRC": str(self.folder / "netrc")})
        chain = plan_chain(FOUND, request, self.facts)
        tool = next(plan for plan in chain if FOUND.image(plan.image).context is Folder.TOOL)
        assert any(isinstance(secret, SecretFile) for secret in chain[-1].secrets) is bool(image.secrets)
        own = {"engine": Engine.DOCKER, "platform": Platform("linux", "amd64")}
        return replace(tool, **own), replace(chain[-1], **own)  # type: ignore[arg-type]

    def build(self, name: str, base: str) -> BuildPlan:
        tool, plan = self.plans(name, base)
        for one in (tool, plan):
            building.build(one, self.engine.settings, FOUND, tool=self.facts.tool, logs=self.folder / "logs", pauses=())
        return plan

    def run(self, plan: BuildPlan, *words: str, user: str = "12345:12345") -> str:
        return self.engine.docker(
            "run", "--rm", "--network=none", "--user", user, "--entrypoint", words[0], plan.tags[0], *words[1:]
        )


@pytest.fixture(scope="module")
def yard(engine: DockerEngine, tmp_path_factory: pytest.TempPathFactory) -> Yard:
    if PYTHON.resolve().name != "python3.11":
        service_missing("the stand-in base is made from Debian's python3.11")
    folder = tmp_path_factory.mktemp("yard")
    (folder / "netrc").write_text(f"machine example.org login me password {SECRET}\n")
    for version in {pin.version.removeprefix("v") for pin in FOUND.pins.vllm.values()}:
        load_base(engine, f"base:{version}", version)
    source = make_source(folder / "source", **{".env": SECRET, ".gitignore": ".env\n"})
    subprocess.run(["git", "config", "http.extraheader", f"Authorization: {SECRET}"], cwd=source, check=True)
    return Yard(engine, folder, gather(source, FOUND.source))


def base_for(name: str) -> str:
    return f"base:{FOUND.pins.vllm[FOUND.image(name).device].version.removeprefix('v')}"


@pytest.mark.parametrize("name", FROM_SOURCE)
def test_it_builds_carries_the_tool_and_no_credential(yard: Yard, name: str) -> None:
    plan = yard.build(name, base_for(name))
    facts = yard.engine.client.inspect_image(plan.tags[0])
    labels = facts["Config"]["Labels"]
    assert labels["org.opencontainers.image.revision"] == plan.labels["org.opencontainers.image.revision"]
    assert labels["org.opencontainers.image.version"] == "0.28.0"
    assert "images.build" in yard.run(plan, "omni-ci", "--list")
    assert yard.run(plan, "python3", "-c", "import vllm_omni; print('found')") == "found"
    # Any user id can write where caches go, and nobody's password is in the way.
    yard.run(
        plan, "bash", "-c", 'set -e; for f in "$HF_HOME" "$XDG_CACHE_HOME" "$TRITON_CACHE_DIR"; do echo > "$f/x"; done'
    )
    told = yard.run(plan, "cat", LOG).splitlines()
    assert told
    assert all(line.endswith("netrc=True") for line in told)
    saved = yard.folder / "saved"
    yard.engine.docker("save", "--output", saved, plan.tags[0])
    assert SECRET.encode() not in saved.read_bytes()
    assert SECRET not in json.dumps([facts["Config"], yard.engine.client.history(plan.tags[0])])
    saved.unlink()


@pytest.mark.parametrize("name", ["cuda-ci", "npu-a2-ci"])
def test_a_base_of_another_vllm_never_becomes_an_image(yard: Yard, name: str) -> None:
    load_base(yard.engine, "base:other", "0.1.0")
    with pytest.raises(DataError, match=r"vLLM is 0\.1\.0, not .* \(exit code: 1\)"):
        yard.build(name, "base:other")
