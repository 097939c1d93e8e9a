"""Plans of image builds."""

from __future__ import annotations

from pathlib import Path

from tasks.images.catalogue import Catalogue, Engine
from tasks.images.planning import BuildPlan, Facts, Request, SecretFile, plan_build
from tasks.registry.documents import Platform

PLAN = BuildPlan(
    image="some-image",
    device="npu",
    platform=Platform("linux", "amd64"),
    engine=Engine.DOCKER,
    context=Path("/source"),
    dockerfile=Path("/tool/docker/Dockerfile.some"),
    target="final",
    args={"BASE_IMAGE": "quay.io/a/b:1", "WORDS": "a, b=c"},
    tags=("r.example/a/b:one", "r.example/a/b:two"),
    labels={"org.opencontainers.image.revision": "c" * 40},
    recipe="0" * 12,
    reusable=False,
    local=False,
    repository="r.example/a/b",
    cache_from=("type=registry,ref=caches.example/a/b:zero",),
    cache_to=("type=inline",),
    secrets=(SecretFile("netrc", Path("/home/net,rc")),),
)


def every_plan(catalogue: Catalogue, facts: Facts) -> tuple[BuildPlan, ...]:
    """Return the plan of every image for every platform, in the catalogue's order."""
    return tuple(
        plan_build(catalogue, Request(image.name, str(platform)), facts)
        for image in catalogue.images.values()
        for platform in image.platforms
    )
