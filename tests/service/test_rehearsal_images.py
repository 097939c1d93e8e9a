from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tasks.images.engine import open_engine
from tasks.registry.documents import digest_of
from tasks.release import rehearsal_image, rehearsal_images
from tasks.release.rehearsal_image import Nightly
from tasks.support.settings import Settings, load
from tasks.support.store import open_store
from tests.engine_server import DockerEngine
from tests.skopeo import skopeo

FIRST = Nightly("a" * 40, "2026-11-29T10:00:00+00:00")
SECOND = Nightly("b" * 40, "2026-11-30T10:00:00+00:00")


def rehearse(settings: Settings, folder: Path) -> list[tuple[str, str]]:
    steps: list[tuple[str, str]] = []

    def step(name: str, action: Callable[[], str]) -> None:
        steps.append((name, action()))

    rehearsal_images.rehearse(settings, folder, open_store(str(folder / "store")), (FIRST, SECOND), step)
    return steps


def inspect(folder: Path, tag: str, architecture: str) -> dict[str, object]:
    words = ("--override-os", "linux", "--override-arch", architecture, "inspect", f"oci:{folder}:{tag}")
    found: dict[str, object] = json.loads(skopeo(*words))
    return found


@pytest.mark.service
def test_a_rehearsal_builds_with_the_engine_where_there_is_one(engine: DockerEngine, tmp_path: Path) -> None:
    steps = rehearse(engine.settings, tmp_path)
    assert [name for name, _ in steps if "built by the engine" in name]
    public, staging = tmp_path / "registry" / "public", tmp_path / "registry" / "staging"
    for architecture, alias in (("amd64", "x86_64"), ("arm64", "aarch64")):
        shown = inspect(public, "nightly", architecture)
        assert shown["Architecture"] == architecture
        assert shown["Labels"] == dict(FIRST.labels), "rolled back to the first"
        staged = skopeo("inspect", "--raw", f"oci:{staging}:{FIRST.commit}-{alias}")
        assert digest_of(staged.encode()) in skopeo("inspect", "--raw", f"oci:{public}:nightly")
    with open_engine(engine.settings) as opened, opened.api("listing") as client:
        assert not [image for image in client.images() if rehearsal_image.NAME in str(image["RepoTags"])]


@pytest.mark.service
def test_a_rehearsal_makes_images_of_bytes_where_there_is_none(tmp_path: Path) -> None:
    nowhere = load(environment={"DOCKER_HOST": f"unix://{tmp_path}/none", "HOME": str(tmp_path), "PATH": "/nowhere"})
    steps = rehearse(nowhere, tmp_path)
    assert [name for name, _ in steps if "made of bytes" in name]
    assert dict(steps)["clean up 20 nightlies"] == "6 tags deleted, 14 nightlies left"
    for architecture in ("amd64", "arm64"):
        shown = inspect(tmp_path / "registry" / "public", f"nightly-{SECOND.commit}", architecture)
        assert shown["Labels"] == dict(SECOND.labels)
        assert shown["Architecture"] == architecture
