"""The jobs that ``bench_registry.py`` measures or needs, each in a process of its own."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # a script is not installed; this finds the tasks package

TAG = "staged"


def serve(folder: str) -> None:
    """Run a registry with its data in a folder until stdin ends; print its address."""
    from tests.registry_servers import registry_in

    with registry_in(Path(folder)) as registry:
        print(registry.address, flush=True)
        sys.stdin.read()


def fill(name: str, layers: str, size: str) -> None:
    """Put an index of two architectures into a repository, each with its own layers of ``size`` bytes."""
    from tasks.registry.opening import open_repository
    from tasks.support.settings import load
    from tests.factory_image import image, index, large_layer, store

    parts = [
        image(arch, layers=[large_layer((arch, number), int(size)) for number in range(int(layers))])
        for arch in ("amd64", "arm64")
    ]
    store(index(*parts, attest=True), open_repository(name, load()), TAG)


def copy(source_name: str, target_name: str) -> None:
    """Publish what is staged, as a release does: by digest, the tag last. Print what moved, as JSON."""
    from tasks.registry.copying import execute_copy, plan_copy
    from tasks.registry.opening import open_repository
    from tasks.support.settings import load

    settings = load()
    source, target = open_repository(source_name, settings), open_repository(target_name, settings)
    staged, found = source.head(TAG), target.head(TAG)
    if staged is None:
        raise SystemExit(f"nothing is staged in {source_name}")
    if found is not None and found.digest == staged.digest:
        print(json.dumps({"copied": 0, "mounted": 0}))
        return
    top = source.manifest(staged.digest)
    if top is None:
        raise SystemExit(f"{source_name} lost {staged.digest}")
    report = execute_copy(plan_copy(source, target, (), [top]), source, target)
    target.put_manifest(top, TAG)
    print(json.dumps({"copied": report.copied.size, "mounted": report.mounted.size}))


JOBS: dict[str, Callable[..., None]] = {"serve": serve, "fill": fill, "copy": copy}

if __name__ == "__main__":
    JOBS[sys.argv[1]](*sys.argv[2:])
