"""What the tests of DockerHub's tags start from: an account, a repository, and builds pushed day by day."""

from __future__ import annotations

import contextlib
import http.client
import os
import random
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tasks.registry.documents import Manifest
from tasks.registry.hub import HubRepository, open_hub
from tasks.registry.hub_door import HubPatience
from tasks.registry.references import RepositoryName
from tasks.support.settings import Settings, load
from tests.factory_image import Image, image, index
from tests.hub_server import Credential, Hub
from tests.registry_servers import Registry, registry_in

NOW = datetime.now(UTC).replace(microsecond=0)
"""The present, because tags to which no time is given were pushed just now."""
USER = Credential("somebody", "dckr_pat_Aa-1_$'\"`\\%s")


def commit(number: int) -> str:
    """Return a commit's hash; hashes sort in another order than their numbers."""
    return f"{random.Random(f'commit {number}').getrandbits(160):040x}"


def nightly(number: int) -> str:
    return f"nightly-{commit(number)}"


def days_ago(days: float) -> str:
    """Return a time as DockerHub writes it; fractions have as many digits as it pleases it."""
    text = (NOW - timedelta(days=days)).isoformat().replace("+00:00", "")
    return text + ["Z", ".1Z", ".123456Z", ".123456789Z"][int(days) % 4]


def plain_image(name: object) -> Image:
    """Make the smallest image that there is: an index of one image without layers."""
    return index(image(commit=str(name), layers=()))


@contextlib.contextmanager
def quick_registry() -> Iterator[Registry]:
    """Run a registry whose storage is in memory where that is possible: many small files are slow to remove."""
    memory = Path("/dev/shm")
    place = memory if os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=place) as folder, registry_in(Path(folder) / "registry") as registry:
        yield registry


def push(registry: Registry, repository: str, made: Mapping[str, Image]) -> None:
    """Push images under tags with nothing but HTTP, so that no code under test takes part."""
    with contextlib.closing(http.client.HTTPConnection(registry.address, timeout=30)) as connection:

        def send(method: str, path: str, body: bytes = b"", kind: str = "application/octet-stream") -> str:
            connection.request(method, path, body, {"Content-Type": kind})
            answer = connection.getresponse()
            said = answer.read()
            assert answer.status in {201, 202}, said
            return answer.getheader("Location") or ""

        def put(manifest: Manifest, reference: str) -> None:
            send("PUT", f"/v2/{repository}/manifests/{reference}", manifest.data, manifest.media_type)

        there: set[str] = set()
        for tag, one in made.items():
            for digest, content in one.blobs.items():
                if digest not in there:
                    there.add(digest)
                    place = send("POST", f"/v2/{repository}/blobs/uploads/")
                    send("PUT", f"{place}&digest={digest}", b"".join(content.read()))
            for manifest in one.below:
                if manifest.digest not in there:
                    there.add(manifest.digest)
                    put(manifest, manifest.digest)
            put(one.top, tag)


def copy_repository(registry: Registry, source: str, target: str) -> None:
    """Make a repository like another one, which takes no time: blobs are shared, and the rest are small files."""
    folder = registry.storage / "docker/registry/v2/repositories"
    shutil.copytree(folder / source, folder / target)


@dataclass
class Scene:
    """A repository behind the stand-in. ``waits`` are the pauses that the client made, which take no time here."""

    hub: Hub
    repository: str
    waits: list[float] = field(default_factory=list)

    @property
    def settings(self) -> Settings:
        return self.settings_of(USER)

    def settings_of(self, who: Credential, **others: str) -> Settings:
        environment = {
            "DOCKERHUB_USERNAME": who.name,
            "DOCKERHUB_TOKEN": who.secret,
            "OMNI_CI_HUB_URL": self.hub.address,
        }
        return load(environment={**environment, **others})

    @property
    def name(self) -> RepositoryName:
        return RepositoryName.parse(self.repository)

    def open(self, who: Credential = USER, **patience: float) -> HubRepository:
        """Return the client under test, which waits for nothing."""
        return open_hub(self.name, self.settings_of(who), HubPatience(sleep=self.waits.append, **patience))  # type: ignore[arg-type]

    def push(self, made: Mapping[str, Image], ages: Mapping[str, float | None] | None = None) -> None:
        """Push images, each so many days ago; None for a push time that nobody knows."""
        push(self.hub.registry, self.repository, made)
        for tag, age in (ages or {}).items():
            self.hub.pushed[tag] = None if age is None else days_ago(age)

    def push_builds(self, count: int) -> None:
        """Push the nightlies of commits 1 to ``count``, each a day older than the one before."""
        builds = {nightly(number): plain_image(commit(number)) for number in range(1, count + 1)}
        self.push_copy(f"builds-{count}", builds)
        self.hub.pushed |= {nightly(number): days_ago(number) for number in range(1, count + 1)}

    def push_copy(self, what: str, made: Mapping[str, Image]) -> None:
        """Fill the repository with images that are pushed once for all tests that ask for ``what``."""
        template = f"test/{what}"
        if not self.hub.tags_folder(template).is_dir():
            push(self.hub.registry, template, made)
        copy_repository(self.hub.registry, template, self.repository)

    @property
    def tags(self) -> list[str]:
        return self.hub.tags(self.repository)
