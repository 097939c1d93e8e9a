"""Disk care on the real engine: what goes, what stays, and what is taken into use in between."""

from __future__ import annotations

import hashlib
import json
import secrets
import subprocess
import tarfile
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path

import pytest

from tasks.images.disk import DiskPlan, DiskReport, Kind, execute_disk, plan_disk
from tasks.images.engine import Engine, open_engine
from tests.engine_server import DockerEngine, own_engine

pytestmark = pytest.mark.service

OLD = datetime(2020, 1, 1, tzinfo=UTC)
LATER = timedelta(days=4)


@pytest.fixture(scope="module")
def host() -> Iterator[DockerEngine]:
    """Return an engine of this file's own: what it prunes would be other tests'."""
    with own_engine() as server:
        server.load_shell("shell:latest")
        yield server


@pytest.fixture
def opened(host: DockerEngine) -> Iterator[Engine]:
    with open_engine(host.settings) as engine:
        yield engine


def plan(engine: Engine, *, after: timedelta = timedelta(), older_than: str = "72h", prune: bool = True) -> DiskPlan:
    """Plan as seen ``after`` from now: the engine gives nothing an age that could be chosen."""
    age = timedelta(hours=int(older_than.rstrip("h")))
    return plan_disk(engine, datetime.now(UTC) + after, prune=prune, older_than=age)


def care(engine: Engine, after: timedelta = LATER) -> DiskReport:
    return execute_disk(engine, plan(engine, after=after))


def names(found: DiskPlan | DiskReport, kind: Kind) -> set[str]:
    removals = found.removals if isinstance(found, DiskPlan) else found.removed
    return {item.name for item in removals if item.kind is kind}


def image(host: DockerEngine, tag: str) -> str:
    return host.load_files(tag, {"file": secrets.token_bytes(1000)})


def load_old(host: DockerEngine, tag: str) -> str:
    """Load an image that was made long ago, as a pulled one may be; return its id."""
    layer = BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        facts = tarfile.TarInfo("file")
        facts.size = 16
        tar.addfile(facts, BytesIO(secrets.token_bytes(16)))
    diff = hashlib.sha256(layer.getvalue()).hexdigest()
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "created": OLD.isoformat(),
            "config": {},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{diff}"]},
        }
    ).encode()
    manifest = json.dumps([{"Config": "config.json", "RepoTags": [tag], "Layers": ["layer.tar"]}]).encode()
    saved = BytesIO()
    with tarfile.open(fileobj=saved, mode="w") as tar:
        for name, data in (("config.json", config), ("layer.tar", layer.getvalue()), ("manifest.json", manifest)):
            facts = tarfile.TarInfo(name)
            facts.size = len(data)
            tar.addfile(facts, BytesIO(data))
    host.docker("load", stdin=saved.getvalue())
    return str(host.client.inspect_image(tag)["Id"])


def commit_tag() -> str:
    return f"ci/images:{secrets.token_hex(20)}"


def cache(host: DockerEngine) -> set[str]:
    return {record["ID"] for record in host.client.df()["BuildCache"] or ()}


def run(host: DockerEngine, *words: str, image: str = "shell:latest") -> str:
    return host.docker("run", "--detach", "--network=none", *words, image, "/bin/sleep", "600")


def test_the_plan_is_what_is_removed_and_a_look_removes_nothing(host: DockerEngine, opened: Engine) -> None:
    dangling, tag = image(host, "soon/dangling:1"), commit_tag()
    image(host, "soon/dangling:1")  # takes the tag away from the first
    image(host, tag)
    volume = host.client.create_volume()["Name"]
    stopped = host.docker("create", "--name", "was-there", "shell:latest", "/bin/sleep", "1")
    found = plan(opened, after=LATER)
    assert dangling in names(found, Kind.IMAGE)
    assert tag in names(found, Kind.TAG)
    assert volume in names(found, Kind.VOLUME)
    assert "was-there" in names(found, Kind.CONTAINER)
    looked = plan(opened, after=LATER, prune=False)
    assert [item.name for item in looked.removals] == [item.name for item in found.removals]
    if not looked.due:
        assert execute_disk(opened, looked).removed == ()
        assert looked.actions() == []
    report = execute_disk(opened, found)
    assert report.removed == found.removals
    assert report.kept == ()
    left = {one["Id"] for one in host.client.images(all=True)}
    assert dangling not in left
    assert not host.client.images(tag)
    assert volume not in {one["Name"] for one in host.client.volumes()["Volumes"] or ()}
    assert stopped not in {one["Id"] for one in host.client.containers(all=True)}
    assert host.client.images("soon/dangling:1")
    assert host.client.images("shell:latest")
    assert plan(opened, after=LATER).removals == ()


def test_nothing_that_a_container_uses_goes(host: DockerEngine, opened: Engine) -> None:
    tag, untagged = commit_tag(), "soon/untagged:1"
    for name in (tag, untagged):
        host.load_shell(name)
        host.docker("tag", name, name)
    volume = host.client.create_volume()["Name"]
    shell = host.client.inspect_image("shell:latest")["Id"]
    running = [
        run(host, "--volume", f"{volume}:/data", image=tag),
        run(host, image=untagged),
    ]
    image(host, untagged)  # takes the tag away from what runs
    found = plan(opened, after=LATER)
    try:
        assert names(found, Kind.TAG) == set()
        assert names(found, Kind.VOLUME) == set()
        assert names(found, Kind.CONTAINER) == set()
        used = {one["ImageID"] for one in host.client.containers()}
        assert not used & names(found, Kind.IMAGE)
        assert shell not in names(found, Kind.IMAGE)
        care(opened)
        assert {one["Id"] for one in host.client.containers()} == set(running)
    finally:
        host.docker("rm", "--force", *running)


def test_what_is_taken_into_use_after_the_plan_stays_and_is_said(host: DockerEngine, opened: Engine) -> None:
    tag, other = commit_tag(), commit_tag()
    host.load_files(tag, {name: Path(name).read_bytes() for name in ("/bin/sleep",)})
    image(host, other)
    volume = host.client.create_volume()["Name"]
    found = plan(opened, after=LATER)
    assert {tag, other} <= names(found, Kind.TAG)
    used = host.docker("create", "--volume", f"{volume}:/data", tag, "/bin/sleep")
    moved = image(host, "elsewhere:1")
    host.docker("tag", moved, other)  # the tag is on another image by now
    report = execute_disk(opened, found)
    try:
        kept = {item.name: reason for item, reason in report.kept}
        assert set(kept) >= {tag, other, volume}
        assert "another image" in kept[other]
        assert host.client.inspect_image(other)["Id"] == moved
        assert host.client.inspect_image(tag)
        assert host.client.inspect_volume(volume)
    finally:
        host.docker("rm", used)
        care(opened)


def test_ages_count_from_when_something_came_here(host: DockerEngine, opened: Engine) -> None:
    tag = commit_tag()
    load_old(host, tag)
    host.docker("tag", tag, tag)  # as a build does that found all its layers in the cache
    young = host.client.create_volume()["Name"]
    ended = run(host)
    host.docker("stop", "--time", "0", ended)
    for after in (timedelta(), timedelta(hours=71)):
        found = plan(opened, after=after)
        assert names(found, Kind.TAG) == set()
        assert names(found, Kind.CONTAINER) == set()
        assert (young in names(found, Kind.VOLUME)) is (after > timedelta())
    assert tag in names(plan(opened, after=timedelta(hours=73)), Kind.TAG)
    assert tag in names(plan(opened, after=timedelta(hours=2), older_than="1h"), Kind.TAG)
    care(opened)


def test_what_people_named_stays(host: DockerEngine, opened: Engine) -> None:
    host.docker("volume", "create", "models")
    image(host, "xpu/base:v0.27.0-0123456789ab")
    both = commit_tag()
    image(host, both)
    host.docker("tag", both, "somebodys/own:1")
    care(opened)
    assert host.client.inspect_volume("models")
    assert host.client.images("xpu/base:v0.27.0-0123456789ab")
    assert host.client.images(both)


def test_build_cache_goes_by_its_last_use(host: DockerEngine, opened: Engine, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM scratch\nCOPY Dockerfile /file\n")
    host.docker("build", "--tag", "some/thing:1", tmp_path)
    cached: set[str] = cache(host)
    before: set[str] = set()
    while cached != before:  # the engine tidies up its records for a moment after a build
        time.sleep(0.5)
        cached, before = cache(host), cached
    assert cached
    assert names(plan(opened), Kind.CACHE) == set()
    found = plan(opened, after=LATER)
    assert names(found, Kind.CACHE) == cached
    report = execute_disk(opened, found)
    assert names(report, Kind.CACHE) == cached
    assert not cache(host)
    assert host.client.images("some/thing:1")


def test_a_full_disk_is_cleaned_unasked(host: DockerEngine, opened: Engine) -> None:
    now = datetime.now(UTC)
    share = plan_disk(opened, now, older_than=LATER).use.share
    assert share is not None
    said = subprocess.run(["df", "--output=pcent", host.root], capture_output=True, text=True, check=True).stdout
    assert abs(share * 100 - int(said.split()[-1].rstrip("%"))) <= 1
    assert plan_disk(opened, now, threshold=share - 0.01, older_than=LATER).due
    assert not plan_disk(opened, now, threshold=share + 0.01, older_than=LATER).due


def test_a_file_system_that_cannot_be_seen_is_never_full(host: DockerEngine, opened: Engine) -> None:
    far = Engine(replace(opened.endpoint, address="tcp://10.0.0.1:2376"), host.client)
    found = plan_disk(far, datetime.now(UTC), threshold=0.0, older_than=LATER)
    assert found.use.share is None
    assert not found.due
    assert "another machine" in found.why
