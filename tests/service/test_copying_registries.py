"""Copies between real registries, over connections that break; skopeo judges what arrived."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tasks.registry.copying import CopyReport, Limits, Tally, execute_copy, plan_copy
from tasks.registry.interface import Repository
from tasks.registry.opening import open_repository
from tasks.registry.wire import Patience
from tasks.support.errors import DataError, TemporaryError
from tests.factory_image import Image, image, index, large_layer, layer, noise, store
from tests.registry_proxy import CutAnswer, CutRequest, Flip, Proxy, Reply, Seen, from_to, limited, proxy_before, times
from tests.registry_servers import Registry
from tests.services import die_with_parent
from tests.skopeo import skopeo

pytestmark = pytest.mark.service

ROOT = Path(__file__).parents[2]
PATIENCE = Patience(tries=2, first_pause=0.01)
LIMITS = Limits(attempts=3, pause=0.01)
SIZE = 600_000


def made_of(seed: object, size: int = SIZE) -> Image:
    """Return an index of two architectures with attestations, four layers each, one of them shared."""
    base = layer({"base": noise((seed, "base"), size)})
    parts = [
        image(arch, layers=(base, *(layer({f"{arch}{n}": noise((seed, arch, n), size)}) for n in range(3))))
        for arch in ("amd64", "arm64")
    ]
    return index(*parts, attest=True)


MADE = made_of("fixed")
LAYERS = {digest for digest, part in MADE.blobs.items() if part.blob.size > SIZE}


def opened(registry: Registry, name: str) -> Repository:
    return open_repository(f"{registry.address}/{name}", registry.settings, patience=PATIENCE)


@pytest.fixture
def staged(registry: Registry) -> str:
    """Return the name of a repository of ``registry`` with the image under the tag ``staged``."""
    name = registry.new_name()
    store(MADE, opened(registry, name), "staged")
    return name


@pytest.fixture
def proxies(registry: Registry, other_registry: Registry) -> Iterator[tuple[Proxy, Proxy]]:
    """Return a proxy before each registry: the staging one and the public one."""
    with ExitStack() as stack:
        yield stack.enter_context(proxy_before(registry)), stack.enter_context(proxy_before(other_registry))


COPY = """
import sys
from pathlib import Path
from tasks.registry.copying import execute_copy, plan_copy
from tasks.registry.opening import open_repository
from tasks.support.settings import load
source, target = (open_repository(name, load()) for name in sys.argv[1:])
top = source.manifest("staged")
execute_copy(plan_copy(source, target, (), [top]), source, target)
print(next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")).split()[1])
"""


def in_process(registry: Registry, source: str, target: str) -> subprocess.Popen[bytes]:
    """Copy what is staged in a process of its own, which prints the peak of its memory in KiB."""
    return subprocess.Popen(
        [sys.executable, "-c", COPY, source, target],
        cwd=ROOT,
        env={"PATH": os.defpath, "PYTHONPATH": str(ROOT), **registry.environment},
        stdout=subprocess.PIPE,
        preexec_fn=die_with_parent,  # noqa: PLW1509 - one system call, and no Python lock is taken
    )


def copy(source: Repository, target: Repository, limits: Limits = LIMITS, made: Image = MADE) -> CopyReport:
    plan = plan_copy(source, target, made.top.children, [made.top], limits=limits)
    return execute_copy(plan, source, target, limits=limits)


def judge(registry: Registry, name: str, folder: Path, made: Image = MADE) -> None:
    """Let skopeo fetch an image with all that it refers to, checking digests, and compare every manifest and blob."""
    fetched = folder / "judged"
    fetched.mkdir(parents=True)
    where = f"docker://{registry.address}/{name}@{made.top.digest}"
    skopeo("copy", "--all", "--preserve-digests", "--src-tls-verify=false", where, f"dir:{fetched}")
    assert (fetched / "manifest.json").read_bytes() == made.top.data
    for manifest in made.below:
        hexadecimal = manifest.digest.removeprefix("sha256:")
        assert (fetched / f"{hexadecimal}.manifest.json").read_bytes() == manifest.data
    assert {f"sha256:{path.name}" for path in fetched.iterdir() if len(path.name) == 64} == set(made.blobs)


def test_two_registries_hold_the_same_bytes_afterwards(
    staged: str, registry: Registry, other_registry: Registry, tmp_path: Path
) -> None:
    name = other_registry.new_name()
    report = copy(opened(registry, staged), opened(other_registry, name))
    assert report.copied == Tally(len(MADE.blobs), MADE.size)
    assert report.retries == 0
    judge(other_registry, name, tmp_path)
    assert opened(other_registry, name).tags() == []
    assert other_registry.uploads(name) == []


def test_a_layout_and_a_registry_are_alike(staged: str, registry: Registry, tmp_path: Path) -> None:
    layout = open_repository((tmp_path / "layout").as_uri(), registry.settings)
    copy(opened(registry, staged), layout)
    name = registry.new_name()
    report = copy(layout, opened(registry, name))
    assert report.copied.size == MADE.size
    judge(registry, name, tmp_path)


def test_inside_one_registry_no_layer_byte_moves(
    staged: str, proxies: tuple[Proxy, Proxy], registry: Registry, tmp_path: Path
) -> None:
    proxy, _ = proxies
    name = registry.new_name()
    report = copy(opened(proxy.registry, staged), opened(proxy.registry, name))
    assert report.mounted == Tally(len(MADE.blobs), MADE.size)
    assert report.copied == Tally()
    assert [one for one in proxy.seen if one.is_blob and one.method == "GET"] == []
    assert proxy.sent == 0
    assert len([one for one in proxy.seen if "mount" in one.query]) == len(MADE.blobs)
    judge(registry, name, tmp_path)


def test_what_is_published_already_costs_heads_only(
    staged: str, proxies: tuple[Proxy, Proxy], other_registry: Registry
) -> None:
    name = other_registry.new_name()
    source, target = (opened(proxy.registry, it) for proxy, it in zip(proxies, (staged, name), strict=True))
    copy(source, target)
    for proxy in proxies:
        proxy.seen.clear()
    report = copy(source, target)
    assert (report.copied, report.mounted) == (Tally(), Tally())
    assert {one.method for proxy in proxies for one in proxy.seen} == {"HEAD"}


def test_looks_share_a_connection(staged: str, registry: Registry) -> None:
    repository = opened(registry, staged)
    connects: list[str] = []
    watching = [True]

    def hook(event: str, _arguments: object) -> None:
        if event == "socket.connect" and watching[0]:
            connects.append(event)

    sys.addaudithook(hook)
    for _ in range(5):
        for digest in (*MADE.blobs, f"sha256:{'0' * 64}"):
            repository.has_blob(digest)
        for reference in ("staged", MADE.top.digest, "not-there"):
            repository.head(reference)
            repository.manifest(reference)
    repository.delete_manifest(f"sha256:{'0' * 64}")
    watching[0] = False  # a hook cannot be taken away
    assert len(connects) <= 1, "an answer whose body is not read costs its connection"


def test_uploads_that_die_are_named_and_a_rerun_sends_only_what_is_missing(
    staged: str, proxies: tuple[Proxy, Proxy], other_registry: Registry, tmp_path: Path
) -> None:
    _, public = proxies
    name = other_registry.new_name()
    source, target = opened(proxies[0].registry, staged), opened(public.registry, name)
    public.rule = from_to(6, 10**9, lambda seen: seen.method == "PATCH", CutRequest(after=SIZE // 2))
    with pytest.raises(TemporaryError, match=r"cannot copy blob sha256:[0-9a-f]{64} to .* \(3 attempts\)"):
        copy(source, target)
    assert opened(other_registry, name).tags() == []
    assert all(target.head(manifest.digest) is None for manifest in MADE.manifests)
    missing = {digest for digest in MADE.blobs if not opened(other_registry, name).has_blob(digest)}
    assert 0 < len(missing) < len(MADE.blobs)
    public.rule = lambda _: None
    public.seen.clear()
    report = copy(source, target)
    assert public.sent == sum(MADE.blobs[digest].blob.size for digest in missing) == report.copied.size
    judge(other_registry, name, tmp_path)


def is_layer_read(seen: Seen) -> bool:
    return seen.method == "GET" and seen.is_blob and seen.path.rpartition("/")[2] in LAYERS


@pytest.mark.parametrize("at", [0, 1, SIZE // 2, SIZE - 1])
def test_a_cut_in_a_blob_is_overcome_on_either_side(
    at: int, staged: str, proxies: tuple[Proxy, Proxy], other_registry: Registry, tmp_path: Path
) -> None:
    staging, public = proxies
    name = other_registry.new_name()
    staging.rule = times(1, is_layer_read, CutAnswer(after=at))
    public.rule = times(1, lambda seen: seen.method == "PATCH", CutRequest(after=at))
    report = copy(opened(staging.registry, staged), opened(public.registry, name))
    assert report.retries == 1, "a cut download goes on inside the blob, a cut upload begins anew"
    judge(other_registry, name, tmp_path)


def test_a_lost_answer_to_a_finished_upload_sends_nothing_again(
    staged: str, proxies: tuple[Proxy, Proxy], other_registry: Registry, tmp_path: Path
) -> None:
    staging, public = proxies
    name = other_registry.new_name()
    public.rule = times(1, lambda seen: seen.method == "PUT" and seen.is_upload, CutAnswer())
    copy(opened(staging.registry, staged), opened(public.registry, name))
    assert public.sent == MADE.size
    judge(other_registry, name, tmp_path)


def test_a_registry_that_does_not_see_its_blobs_yet_is_asked_again(
    staged: str, proxies: tuple[Proxy, Proxy], other_registry: Registry, tmp_path: Path
) -> None:
    """Debian's registry answers so when another writer has just begun to write the same blob's link."""
    staging, public = proxies
    name = other_registry.new_name()
    body = (
        b'{"errors":[{"code":"DIGEST_INVALID"},{"code":"MANIFEST_BLOB_UNKNOWN","message":"blob unknown to registry"}]}'
    )
    public.rule = times(2, lambda seen: seen.method == "PUT" and "/manifests/" in seen.path, Reply(400, {}, body))
    report = copy(opened(staging.registry, staged), opened(public.registry, name))
    assert report.retries == 2
    assert public.sent == MADE.size
    judge(other_registry, name, tmp_path)


def test_bytes_that_do_not_match_never_become_a_blob(
    staged: str, proxies: tuple[Proxy, Proxy], other_registry: Registry
) -> None:
    staging, public = proxies
    name = other_registry.new_name()
    hurt = sorted(LAYERS)[0]
    staging.rule = lambda seen: Flip(at=SIZE // 2) if seen.method == "GET" and seen.path.endswith(hurt) else None
    target = opened(public.registry, name)
    with pytest.raises(DataError, match=rf"{hurt}.*digest mismatch"):
        copy(opened(staging.registry, staged), target)
    assert not target.has_blob(hurt)
    assert public.of("PUT", "/manifests/") == []


def test_a_rate_limit_holds_every_worker_back(
    staged: str, proxies: tuple[Proxy, Proxy], other_registry: Registry, tmp_path: Path
) -> None:
    staging, public = proxies
    name = other_registry.new_name()
    public.rule = from_to(5, 6, lambda _: True, limited("1"))
    copy(opened(staging.registry, staged), opened(public.registry, name))
    refused = [seen for seen in public.seen if seen.status == 429]
    assert len(refused) == 2
    last = refused[-1].ended
    assert [seen for seen in public.seen if last + 0.05 < seen.at < last + 0.9] == []
    judge(other_registry, name, tmp_path)


def test_a_killed_copy_is_completed_without_sending_anything_again(
    registry: Registry, other_registry: Registry, tmp_path: Path, repetitions: int
) -> None:
    with proxy_before(other_registry) as public:
        for number in range(repetitions):
            made = made_of(("killed", number, os.getpid(), time.time_ns()))
            staged, name = registry.new_name(), other_registry.new_name()
            store(made, opened(registry, staged), "staged")
            source, target = opened(registry, staged), opened(public.registry, name)
            public.seen.clear()
            due = made.size * (2 * number + 1) // (2 * repetitions)
            killed = threading.Event()

            def no_manifest_before_the_kill(seen: Seen, killed: threading.Event = killed) -> CutRequest | None:
                if not seen.is_manifest or seen.method != "PUT" or killed.is_set():
                    return None
                killed.wait(60)
                return CutRequest()

            public.rule = no_manifest_before_the_kill
            process = in_process(registry, f"{registry.address}/{staged}", f"{public.address}/{name}")
            while public.sent < due and process.poll() is None:
                time.sleep(0.001)
            process.kill()
            process.communicate()
            killed.set()
            plain = opened(other_registry, name)
            assert all(plain.head(manifest.digest) is None for manifest in made.manifests)
            missing = sum(part.blob.size for digest, part in made.blobs.items() if not plain.has_blob(digest))
            public.seen.clear()
            report = copy(source, target, made=made)
            assert report.copied.size <= missing
            assert public.sent == report.copied.size
            judge(other_registry, name, tmp_path / str(number), made)


def test_sixteen_copies_at_once_end_complete(
    staged: str, registry: Registry, other_registry: Registry, tmp_path: Path
) -> None:
    name = other_registry.new_name()
    # With the patience that people have: a file of Debian's registry that others write is empty for a moment.
    source = open_repository(f"{registry.address}/{staged}", registry.settings)
    target = open_repository(f"{other_registry.address}/{name}", other_registry.settings)
    failures: list[BaseException] = []
    start = threading.Barrier(16)

    def run() -> None:
        start.wait()
        try:
            copy(source, target, Limits())
        except BaseException as error:  # noqa: BLE001 - judged below
            failures.append(error)

    threads = [threading.Thread(target=run) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    judge(other_registry, name, tmp_path)


def test_large_blobs_take_little_memory(registry: Registry, other_registry: Registry) -> None:
    names = [f"{one.address}/{one.new_name()}" for one in (registry, other_registry)]
    parts = [image(arch, layers=[large_layer((arch, n), 16_000_000) for n in range(4)]) for arch in ("amd64", "arm64")]
    made = index(*parts)
    store(made, open_repository(names[0], registry.settings), "staged")
    process = in_process(registry, *names)
    printed, _ = process.communicate()
    assert process.returncode == 0
    assert int(printed) < 80_000
    target = open_repository(names[1], registry.settings)
    assert all(target.head(manifest.digest) for manifest in made.manifests)
