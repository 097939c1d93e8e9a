"""Copies between repositories: what is planned, what is sent, and what failures and kills at any point leave."""

from __future__ import annotations

import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from tasks.registry.copying import CopyReport, Limits, Tally, Way, execute_copy, plan_copy
from tasks.registry.documents import Descriptor, Manifest
from tasks.registry.gate import Gate
from tasks.registry.interface import Progress, Repository
from tasks.registry.oci_layout import LayoutRepository
from tasks.registry.references import RepositoryName
from tasks.support.errors import (
    CredentialsError,
    DataError,
    MissingInputError,
    OmniError,
    ServiceRefusedError,
    TemporaryError,
)
from tasks.support.transfers import SILENT, Transfers
from tests.factory_image import Image, attested, image, index, layer, noise, store
from tests.faults import in_child, memory_folder
from tests.registry_faults import Hooked, Mountless, Strike, kill, nothing, raising

pytestmark = pytest.mark.slow  # together these take longer than the fast set may

ONE = Limits(workers=1, attempts=3, pause=0.001)
FOUR = Limits(attempts=3, pause=0.001)
BASE = layer({"base": noise("base", 30_000)})


def both() -> Image:
    """Return an index of two architectures with attestations, which share a layer."""
    parts = [
        image(arch, layers=(BASE, *(layer({f"{arch}{n}": noise((arch, n), 5_000 * n)}) for n in (1, 2, 3))))
        for arch in ("amd64", "arm64")
    ]
    return index(*parts, attest=True)


MADE = both()


@pytest.fixture
def folder() -> Iterator[Path]:
    with memory_folder() as empty:
        yield empty


class Streaming(Hooked):
    """A layout that says it is a registry of its own, so that nothing can be mounted from another one."""

    @property
    def name(self) -> RepositoryName:
        folder = self.inner.name.folder
        assert folder is not None
        return RepositoryName(f"{folder.name}.example", "omni/image")

    def mount(self, blob: Descriptor, source: Repository) -> bool:
        raise AssertionError("a blob of another registry cannot be mounted")


@pytest.fixture
def source(folder: Path) -> Hooked:
    layout = LayoutRepository(folder / "source")
    store(MADE, layout, "staged")
    return Streaming(layout)


@pytest.fixture
def target(folder: Path) -> Hooked:
    return Streaming(LayoutRepository(folder / "target"), piece=4096)


def copy(
    source: Repository, target: Repository, limits: Limits = FOUR, transfers: Transfers = SILENT, made: Image = MADE
) -> CopyReport:
    plan = plan_copy(source, target, made.top.children, [made.top], limits=limits)
    return execute_copy(plan, source, target, transfers=transfers, limits=limits)


def complete(target: Repository, made: Image = MADE) -> bool:
    """Say whether everything of an image is in a repository, with its own bytes."""
    return all(target.manifest(manifest.digest) == manifest for manifest in made.manifests) and all(
        target.has_blob(digest) and b"".join(target.read_blob(digest)) == b"".join(part.read())
        for digest, part in made.blobs.items()
    )


def sound(target: Repository, made: Image = MADE) -> bool:
    """Say whether no manifest is there without all that it refers to."""
    there = {manifest.digest for manifest in made.manifests if target.head(manifest.digest)}
    return all(
        all(target.has_blob(blob.digest) for blob in manifest.blobs)
        and {child.digest for child in manifest.children} <= there
        for manifest in made.manifests
        if manifest.digest in there
    )


def outcome(deed: Callable[[], object]) -> BaseException | None:
    """Return what a deed raises, or None."""
    try:
        deed()
    except BaseException as error:  # noqa: BLE001 - for the caller to judge
        return error
    return None


@dataclass
class Watching:
    """Transfers that remember what they were told."""

    counts: dict[str, list[int]] = field(default_factory=dict)
    spared: list[int] = field(default_factory=list)

    @contextmanager
    def transfer(self, name: str, size: int) -> Iterator[Progress]:
        yield self.counts.setdefault(name, []).append

    def spare(self, size: int) -> None:
        self.spared.append(size)


def test_a_plan_reads_nothing_but_manifests(source: Hooked, target: Hooked) -> None:
    plan = plan_copy(source, target, MADE.top.children, [MADE.top])
    assert {method for method, _ in target.log} == {"head", "has_blob"}
    assert {method for method, _ in source.log} == {"manifest"}
    assert len(set(target.log)) == len(target.log), "nothing is asked twice"
    assert plan.size(Way.STREAM) == MADE.size
    assert [step.descriptor for step in plan.manifests] == list(MADE.top.children)
    assert not any(step.there for step in plan.steps)
    known = {manifest.digest: manifest for manifest in MADE.manifests}
    source.log.clear()
    assert plan_copy(source, target, (), [MADE.top], known=known) == plan, "an index's children are copied anyway"
    assert source.log == []


def test_everything_arrives_in_its_bytes_and_each_blob_is_sent_once(source: Hooked, target: Hooked) -> None:
    report = copy(source, target)
    assert complete(target)
    assert sorted(target.calls("put_blob")) == sorted(MADE.blobs)
    assert sum(target.sent.values()) == MADE.size
    assert (report.copied, report.mounted) == (Tally(len(MADE.blobs), MADE.size), Tally())
    assert report.there == Tally(1, BASE.blob.size), "the second architecture has the shared layer already"
    assert [part.written for part in (*report.manifests, *report.indexes)] == [True] * 5
    for part, manifest in zip(report.manifests, MADE.below, strict=True):
        blobs = part.copied + part.mounted + part.there
        assert blobs == Tally(len(manifest.blobs), sum(blob.size for blob in manifest.blobs))


def test_the_order_is_blobs_then_manifests_then_indexes_and_largest_first(source: Hooked, target: Hooked) -> None:
    copy(source, target, ONE)
    sizes = [MADE.blobs[digest].blob.size for digest in target.calls("put_blob")]
    assert sizes == sorted(sizes, reverse=True)
    kinds = [method for method, _ in target.log if method.startswith("put")]
    assert kinds == ["put_blob"] * len(MADE.blobs) + ["put_manifest"] * 5
    assert target.calls("put_manifest")[-1] == MADE.top.digest
    assert target.inner.tags() == []


def test_a_second_copy_changes_nothing_and_reads_no_blob(source: Hooked, target: Hooked) -> None:
    copy(source, target)
    for side in (source, target):
        side.log.clear()
    known = {manifest.digest: manifest for manifest in MADE.manifests}
    plan = plan_copy(source, target, MADE.top.children, [MADE.top], known=known)
    assert all(step.there for step in plan.steps)
    report = execute_copy(plan, source, target)
    assert source.log == []
    assert {method for method, _ in target.log} == {"head"}
    assert (report.copied, report.mounted) == (Tally(), Tally())
    assert report.there.size == sum(blob.size for manifest in MADE.below for blob in manifest.blobs)
    assert not any(part.written for part in report.manifests)


def test_only_what_changed_is_sent(source: Hooked, target: Hooked) -> None:
    store(image(layers=(BASE,)), target.inner)
    report = copy(source, target)
    assert BASE.blob.digest not in target.calls("put_blob")
    assert report.copied.size == MADE.size - BASE.blob.size
    assert complete(target)


def test_what_came_after_the_plan_is_not_sent_again(source: Hooked, target: Hooked) -> None:
    plan = plan_copy(source, target, MADE.top.children, [MADE.top])
    store(MADE, target.inner)
    watching = Watching()
    report = execute_copy(plan, source, target, transfers=watching)
    assert target.changes == []
    assert report.copied == Tally()
    assert sum(watching.spared) == MADE.size


def test_blobs_of_the_same_registry_are_mounted(source: Hooked, folder: Path) -> None:
    staging, public = Hooked(source.inner), Hooked(LayoutRepository(folder / "public"))
    plan = plan_copy(staging, public, MADE.top.children, [MADE.top])
    assert (plan.size(Way.MOUNT), plan.size(Way.STREAM)) == (MADE.size, 0)
    watching = Watching()
    report = execute_copy(plan, staging, public, transfers=watching)
    assert sorted(public.calls("mount")) == sorted(MADE.blobs)
    assert staging.calls("read_blob") == public.calls("put_blob") == []
    assert report.mounted == Tally(len(MADE.blobs), MADE.size)
    assert sum(watching.spared) == MADE.size
    assert complete(public)


def test_a_refused_mount_becomes_a_stream(source: Hooked, folder: Path) -> None:
    staging, public = Hooked(source.inner), Mountless(LayoutRepository(folder / "public"))
    report = copy(staging, public)
    assert (report.copied.size, report.mounted) == (MADE.size, Tally())
    assert complete(public)


def test_progress_counts_every_byte_once_however_often_it_was_sent(source: Hooked, target: Hooked) -> None:
    watching = Watching()
    target.hook = Strike(5, raising(lambda: TemporaryError("cut")), ("send",), times=3)
    report = copy(source, target, Limits(workers=1, attempts=9, pause=0.001), watching)
    assert report.retries > 0
    for digest, part in MADE.blobs.items():
        counts = watching.counts[digest.removeprefix("sha256:")[:12]]
        assert sum(counts) == part.blob.size
    assert any(number < 0 for counts in watching.counts.values() for number in counts)


def test_a_passing_failure_is_overcome(source: Hooked, target: Hooked) -> None:
    for number in count(1):
        shutil.rmtree(target.inner.name.folder or "", ignore_errors=True)
        cut = raising(lambda: TemporaryError("cut"))
        strike = Strike(number, cut, ("put_blob", "send", "has_blob", "head", "put_manifest"))
        plan = plan_copy(source, target, MADE.top.children, [MADE.top], limits=ONE)
        target.hook = strike
        report = execute_copy(plan, source, target, limits=ONE)
        target.hook = nothing
        assert complete(target)
        assert report.retries == strike.struck
        if not strike.struck:
            break
    assert number > 40, "each boundary was met"


FAILURES: list[Callable[[], BaseException]] = [
    lambda: TemporaryError("cut"),
    lambda: DataError("digest mismatch"),
    lambda: CredentialsError("403"),
    lambda: ServiceRefusedError("405", hint="their hint"),
    KeyboardInterrupt,
    ZeroDivisionError,
]


@pytest.mark.parametrize("failure", FAILURES, ids=lambda make: type(make()).__name__)
@pytest.mark.parametrize("side", ["source", "target"])
def test_a_lasting_failure_at_any_boundary_leaves_what_a_second_run_completes(
    failure: Callable[[], BaseException], side: str, source: Hooked, target: Hooked
) -> None:
    struck = 0
    failing = source if side == "source" else target
    for number in count(1, 7):
        shutil.rmtree(target.inner.name.folder or "", ignore_errors=True)
        plan = plan_copy(source, target, MADE.top.children, [MADE.top], limits=ONE)
        failing.hook = failing.after = strike = Strike(number, raising(failure), (), times=10**9)
        error = outcome(lambda: execute_copy(plan, source, target, limits=ONE))  # noqa: B023 - called in this turn
        failing.hook = failing.after = nothing
        if not strike.struck:
            assert error is None
            break
        struck += 1
        assert type(error) is type(failure())
        if isinstance(error, OmniError):
            tries = ONE.attempts if isinstance(error, TemporaryError) else 1
            assert "sha256:" in error.message
            assert f"({tries} attempt" in error.message
            assert error.hint
        assert sound(target)
        there = {digest for digest in MADE.blobs if target.inner.has_blob(digest)}
        target.log.clear()
        copy(source, target)
        assert complete(target)
        assert set(target.calls("put_blob")) == set(MADE.blobs) - there, "nothing is sent again"
    assert struck > 2


@pytest.mark.parametrize("end", ["failure", "interrupt"])
@pytest.mark.parametrize("plans", [True, False])
def test_an_end_wakes_workers_at_the_gate_of_a_busy_registry(
    source: Hooked, target: Hooked, *, plans: bool, end: str
) -> None:
    gate = Gate()
    gate.close(3600.0, limited=True)
    limits = Limits(workers=2)
    looks = iter(range(1000))
    waits = threading.Event()

    def hook(method: str, _digest: str) -> None:
        if method != "has_blob":
            return
        if end == "failure" and next(looks):
            assert waits.wait(60)
            raise DataError("no")
        waits.set()
        gate.wait()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    plan = plan_copy(source, target, MADE.top.children, [MADE.top], limits=limits)
    call: Callable[[], object] = partial(execute_copy, plan, source, target, limits=limits)
    if plans:
        call = partial(plan_copy, source, target, MADE.top.children, [MADE.top], limits=limits)
    target.hook = hook
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        if end == "interrupt":
            signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(DataError if end == "failure" else KeyboardInterrupt):
            call()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert gate.left > 0


def test_the_error_names_blob_and_attempts_and_the_rest_stops(source: Hooked, target: Hooked) -> None:
    largest = max(MADE.blobs.values(), key=lambda part: part.blob.size).blob.digest
    failed = threading.Event()

    def hook(method: str, digest: str) -> None:
        if (method, digest) == ("send", largest):
            failed.set()
            raise ServiceRefusedError("not today")
        if method == "send":
            failed.wait(10)
            time.sleep(0.3)  # for the failing worker to say so; nobody else can see when it has

    target.hook = hook
    with pytest.raises(ServiceRefusedError, match=rf"cannot copy blob {largest} to .* \(1 attempt\): not today"):
        copy(source, target)
    begun = target.calls("put_blob")
    assert len(begun) <= FOUR.workers, "no other blob is begun"
    assert target.calls("put_manifest") == []


def test_a_pause_before_another_try_ends_when_another_worker_fails(source: Hooked, target: Hooked) -> None:
    digests = sorted(MADE.blobs, key=lambda digest: -MADE.blobs[digest].blob.size)
    waiting = threading.Event()

    def hook(method: str, digest: str) -> None:
        if (method, digest) == ("send", digests[0]):
            waiting.set()
            raise TemporaryError("again in an hour")
        if (method, digest) == ("send", digests[1]):
            waiting.wait(10)
            raise DataError("wrong for good")

    target.hook = hook
    with pytest.raises(DataError, match=digests[1]):
        copy(source, target, Limits(workers=2, attempts=3, pause=3600))


def test_damaged_bytes_never_become_a_blob(source: Hooked, target: Hooked) -> None:
    digest = BASE.blob.digest

    class Flipping(Streaming):
        def read_blob(self, digest: str, start: int = 0) -> Iterator[bytes]:
            data = b"".join(self.inner.read_blob(digest, start))
            yield bytes([data[0] ^ 1]) + data[1:] if digest == BASE.blob.digest else data

    with pytest.raises(DataError, match=rf"{digest}.*digest mismatch"):
        copy(Flipping(source.inner), target)
    assert not target.has_blob(digest)
    assert target.calls("put_manifest") == []


def test_what_the_source_lacks_is_named(source: Hooked, target: Hooked) -> None:
    source.inner.delete_manifest(MADE.below[2].digest)
    with pytest.raises(MissingInputError, match=MADE.below[2].digest):
        copy(source, target)
    assert target.changes == []


def test_an_index_in_an_index_is_refused(source: Hooked, target: Hooked) -> None:
    outer = index(MADE)
    store(outer, source.inner)
    with pytest.raises(DataError, match=MADE.top.digest):
        plan_copy(source, target, (), [outer.top])


@pytest.mark.parametrize("step", [9, pytest.param(1, marks=[pytest.mark.slow, pytest.mark.sweep])])
def test_a_kill_at_any_boundary_leaves_what_a_second_run_completes(step: int, source: Hooked, target: Hooked) -> None:
    kills = 0
    for number in count(1, step):
        shutil.rmtree(target.inner.name.folder or "", ignore_errors=True)
        strike = Strike(number, kill, ())
        killed = Streaming(target.inner, hook=strike, after=strike, piece=4096)
        ended = in_child(lambda: copy(source, killed, ONE))  # noqa: B023 - called in this turn
        assert ended in {0, -signal.SIGKILL}
        assert sound(target)
        there = {digest for digest in MADE.blobs if target.has_blob(digest)}
        target.log.clear()
        copy(source, target)
        assert complete(target)
        assert set(target.calls("put_blob")) == set(MADE.blobs) - there, "nothing is sent again"
        if ended == 0:
            break
        kills += 1
    assert kills > 8


def test_many_copies_at_once_end_complete(source: Hooked, target: Hooked) -> None:
    errors: list[BaseException | None] = []
    start = threading.Barrier(16)

    def run() -> None:
        start.wait()
        errors.append(outcome(lambda: copy(source, target)))

    threads = [threading.Thread(target=run) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == [None] * 16
    assert complete(target)


def test_a_plain_image_needs_no_index(source: Hooked, target: Hooked) -> None:
    plain = attested(image()).below[0]
    store(image(), source.inner)
    execute_copy(plan_copy(source, target, [plain.descriptor()]), source, target)
    assert target.manifest(plain.digest) == Manifest(plain.media_type, plain.data)
