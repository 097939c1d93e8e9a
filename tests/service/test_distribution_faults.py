"""The distribution client when connections break, answers lie, and registries want to be left alone."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import pairwise

import pytest

from tasks.registry.distribution import DistributionRepository
from tasks.registry.documents import OCI_LAYER, OCI_MANIFEST, Descriptor, Manifest, digest_of
from tasks.registry.opening import open_repository
from tasks.registry.wire import Patience
from tasks.support.errors import (
    DataError,
    MissingInputError,
    OmniError,
    ServiceRefusedError,
    TemporaryError,
)
from tasks.support.settings import load
from tests import factory_image
from tests.registry_proxy import (
    NO_ADDRESSES,
    Change,
    CutAnswer,
    CutRequest,
    Fault,
    Flip,
    Proxy,
    Reply,
    Seen,
    limited,
    proxy_before,
    times,
)
from tests.registry_servers import Registry
from tests.services import free_ports

pytestmark = pytest.mark.service

QUICK = Patience(tries=3, limited=4, first_pause=0.01, longest_pause=0.02, longest_wait=5)
DATA = random.Random(1).randbytes(3 * 2**20 + 17)
BLOB = Descriptor(OCI_LAYER, digest_of(DATA), len(DATA))


def at(registry: Registry, name: str, patience: Patience = QUICK) -> DistributionRepository:
    repository = open_repository(f"{registry.address}/{name}", registry.settings, patience=patience)
    assert isinstance(repository, DistributionRepository)
    return repository


def pieces(data: bytes = DATA) -> Iterator[bytes]:
    return (data[start : start + 70_001] for start in range(0, len(data), 70_001))


@pytest.fixture
def proxy(registry: Registry) -> Iterator[Proxy]:
    with proxy_before(registry) as running:
        yield running


@pytest.fixture
def name(registry: Registry) -> str:
    return registry.new_name()


@pytest.fixture
def stored(registry: Registry, proxy: Proxy) -> DistributionRepository:
    """Return a repository behind the proxy that holds the blob; tests share it."""
    straight = at(registry, "test/stored")
    if not straight.has_blob(BLOB.digest):
        straight.put_blob(BLOB, pieces())
    return at(proxy.registry, "test/stored")


def is_method(method: str) -> Callable[[Seen], bool]:
    return lambda seen: seen.method == method


def blob_reads(seen: Seen) -> bool:
    return seen.method == "GET" and seen.is_blob


@pytest.mark.parametrize("start", [0, 1, 2**20])
@pytest.mark.parametrize("after", [0, 1, 700_000, 2**21])
def test_a_read_goes_on_where_it_was_cut(stored: DistributionRepository, proxy: Proxy, after: int, start: int) -> None:
    proxy.rule = times(2, blob_reads, CutAnswer(after))
    assert b"".join(stored.read_blob(BLOB.digest, start)) == DATA[start:]
    ranges = [one.headers.get("range") for one in proxy.seen]
    where = [place for place in (start + after * turn for turn in range(3)) if place < BLOB.size]
    assert ranges == [f"bytes={place}-" if place else None for place in where]


def test_a_read_goes_on_as_long_as_it_gets_on(stored: DistributionRepository, proxy: Proxy) -> None:
    proxy.rule = lambda seen: CutAnswer(2**20) if blob_reads(seen) else None
    assert b"".join(stored.read_blob(BLOB.digest)) == DATA
    assert len(proxy.seen) == 4


@pytest.mark.parametrize("after", [None, 0, 100])
def test_a_read_that_does_not_get_on_ends(stored: DistributionRepository, proxy: Proxy, after: int | None) -> None:
    proxy.rule = lambda seen: CutAnswer(after) if blob_reads(seen) else None
    with pytest.raises(TemporaryError, match="3 tries") as caught:
        b"".join(stored.read_blob(BLOB.digest))
    assert f"{stored.name}@{BLOB.digest}" in caught.value.message
    assert len(proxy.seen) == 3


@pytest.mark.parametrize("after", [0, 700_001, 2**20])
def test_a_server_that_knows_no_ranges_is_read_again_from_the_start(
    stored: DistributionRepository, proxy: Proxy, after: int
) -> None:
    cut = times(2, blob_reads, CutAnswer(after))

    def forget(seen: Seen) -> Fault | None:
        seen.headers.pop("range", None)  # which the proxy forwards
        return cut(seen)

    proxy.rule = forget
    assert b"".join(stored.read_blob(BLOB.digest)) == DATA
    assert b"".join(stored.read_blob(BLOB.digest, 1234)) == DATA[1234:]


def test_an_answer_to_another_range_is_refused(stored: DistributionRepository, proxy: Proxy) -> None:
    def other(headers: dict[str, str], body: bytes) -> tuple[dict[str, str], bytes]:
        return {**headers, "Content-Range": f"bytes 5-{len(DATA) - 1}/{len(DATA)}"}, body

    proxy.rule = lambda seen: Change(other)
    with pytest.raises(ServiceRefusedError, match="not the range"):
        b"".join(stored.read_blob(BLOB.digest, 10))


def test_a_read_from_behind_the_end_is_refused(stored: DistributionRepository) -> None:
    assert b"".join(stored.read_blob(BLOB.digest, BLOB.size)) == b""
    with pytest.raises(ServiceRefusedError, match="416"):
        b"".join(stored.read_blob(BLOB.digest, BLOB.size + 1))


def test_a_flipped_bit_on_the_way_in_is_found_here(registry: Registry, stored: DistributionRepository) -> None:
    """The reader does not check, so the writer does."""
    with proxy_before(registry) as source:
        source.rule = lambda seen: Flip(1_000_000) if blob_reads(seen) else None
        read = at(source.registry, stored.name.name).read_blob(BLOB.digest)
        target = at(registry, registry.new_name())
        with pytest.raises(DataError, match="digest mismatch") as caught:
            target.put_blob(BLOB, read)
    assert BLOB.digest in caught.value.message
    assert not target.has_blob(BLOB.digest)
    assert registry.uploads(target.name.name) == []


def test_a_flipped_bit_on_the_way_out_is_found_by_the_registry(proxy: Proxy, name: str) -> None:
    proxy.rule = lambda seen: Flip(1000, request=True) if seen.method == "PATCH" else None
    repository = at(proxy.registry, name)
    with pytest.raises(TemporaryError, match="DIGEST_INVALID"):
        repository.put_blob(BLOB, pieces())
    assert not repository.has_blob(BLOB.digest)
    proxy.rule = lambda seen: None
    repository.put_blob(BLOB, pieces())
    assert repository.has_blob(BLOB.digest)


@pytest.mark.parametrize("after", [0, 1, 1_500_000])
@pytest.mark.parametrize("chunk_bytes", [None, 2**20])
def test_an_upload_that_is_cut_is_temporary_and_not_sent_again_by_itself(
    proxy: Proxy, name: str, after: int, chunk_bytes: int | None
) -> None:
    proxy.rule = lambda seen: CutRequest(min(after, seen_length(seen) - 1)) if seen.method == "PATCH" else None
    repository = open_repository(
        f"{proxy.address}/{name}", proxy.registry.settings, chunk_bytes=chunk_bytes, patience=QUICK
    )
    told: list[int] = []
    with pytest.raises(TemporaryError, match=BLOB.digest) as caught:
        repository.put_blob(BLOB, pieces(), told.append)
    assert str(repository.name) in caught.value.message
    assert "_state" not in caught.value.message
    assert len(proxy.of("PATCH")) == 1
    assert len(proxy.of("DELETE")) == 1
    assert sum(told) == 0
    assert not repository.has_blob(BLOB.digest)
    proxy.rule = lambda seen: None
    repository.put_blob(BLOB, pieces(), told.append)
    assert sum(told) == BLOB.size


def seen_length(seen: Seen) -> int:
    return int(seen.headers.get("content-length", 0))


@pytest.mark.parametrize("method", ["POST", "PUT"])
@pytest.mark.parametrize(
    "fault", [CutRequest(), CutAnswer(), Reply(500), Reply(502), Reply(503, {"Retry-After": "0"}), limited("0")]
)
def test_the_steps_without_a_body_are_tried_again(proxy: Proxy, name: str, method: str, fault: Fault) -> None:
    proxy.rule = times(1, lambda seen: seen.method == method, fault)
    repository = at(proxy.registry, name)
    repository.put_blob(BLOB, pieces())
    assert repository.has_blob(BLOB.digest)
    assert len(proxy.of("PATCH")) == 1


@pytest.mark.parametrize("fault", [Reply(500), Reply(503), limited("0"), limited(None)])
def test_a_refused_body_is_temporary(proxy: Proxy, name: str, fault: Fault) -> None:
    proxy.rule = times(1, lambda seen: seen.method == "PATCH", fault)
    with pytest.raises(TemporaryError, match=rf"{fault.status}"):  # type: ignore[union-attr]
        at(proxy.registry, name).put_blob(BLOB, pieces())
    assert len(proxy.of("PATCH")) == 1


def test_a_failure_does_not_wait_to_tidy_up(proxy: Proxy, name: str) -> None:
    proxy.rule = times(1, is_method("PATCH"), limited("15"))
    with pytest.raises(TemporaryError, match="429"):
        at(proxy.registry, name, Patience(longest_wait=20)).put_blob(BLOB, pieces())
    assert [one.method for one in proxy.seen] == ["POST", "PATCH"]


def test_a_session_that_the_registry_forgot_is_temporary(proxy: Proxy, name: str) -> None:
    body = b'{"errors":[{"code":"BLOB_UPLOAD_UNKNOWN","message":"blob upload unknown to registry"}]}'
    for method in ("PATCH", "PUT"):
        proxy.rule = times(1, is_method(method), Reply(404, {}, body))
        with pytest.raises(TemporaryError, match="BLOB_UPLOAD_UNKNOWN"):
            at(proxy.registry, name).put_blob(BLOB, pieces())


def test_a_commit_whose_answer_never_comes_is_found_done(proxy: Proxy, name: str) -> None:
    proxy.rule = lambda seen: CutAnswer() if seen.method == "PUT" else None
    repository = at(proxy.registry, name)
    repository.put_blob(BLOB, pieces())
    assert repository.has_blob(BLOB.digest)


CALLS: dict[str, Callable[[DistributionRepository], object]] = {
    "head": lambda repository: repository.head("v1"),
    "manifest": lambda repository: repository.manifest("v1"),
    "has_blob": lambda repository: repository.has_blob(BLOB.digest),
    "tags": lambda repository: repository.tags(),
    "delete": lambda repository: repository.delete_manifest(BLOB.digest),
    "read": lambda repository: b"".join(repository.read_blob(BLOB.digest)),
    "put": lambda repository: repository.put_manifest(Manifest(OCI_MANIFEST, b"{}"), "v1"),
    "mount": lambda repository: repository.mount(BLOB, at_other(repository)),
    "put_blob": lambda repository: repository.put_blob(BLOB, pieces()),
}


def at_other(repository: DistributionRepository) -> DistributionRepository:
    name = repository.name
    return DistributionRepository(type(name)(name.registry, "another/one"), repository.client)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    ("fault", "error", "says"),
    [
        (Reply(500, {}, b'{"errors":[{"code":"UNKNOWN","message":"full"}]}'), TemporaryError, "500 UNKNOWN full"),
        (Reply(503, {}, b"<html><h1>Service Unavailable</h1></html>"), TemporaryError, "503 Service Unavailable"),
        (limited(None), TemporaryError, "429 TOOMANYREQUESTS Rate exceeded"),
        (Reply(418, {}, b'{"errors":[{"code":"TEA","message":"no\\nnews"}]}'), ServiceRefusedError, "418 TEA no news"),
        (Reply(302, {"Location": "http://127.0.0.1:1/x"}), ServiceRefusedError, "302|cannot connect"),
        (CutAnswer(), TemporaryError, r"\(3 tries\)"),
    ],
)
def test_every_call_names_what_failed_and_ends(
    proxy: Proxy, *, call: str, fault: Fault, error: type[OmniError], says: str
) -> None:
    if call in {"head", "has_blob"} and isinstance(fault, Reply) and fault.status != 302:
        says = str(fault.status)  # an answer to HEAD has no body
    repository = at(proxy.registry, "test/faults")
    proxy.rule = lambda seen: fault
    with pytest.raises(error, match=says) as caught:
        CALLS[call](repository)
    assert str(repository.name) in caught.value.message
    assert caught.value.message.isprintable()
    assert len(proxy.seen) <= QUICK.limited


@pytest.mark.parametrize("call", [call for call in CALLS if call not in {"put", "mount", "put_blob", "delete"}])
@pytest.mark.parametrize("fault", [Reply(500), Reply(504), limited("0"), CutRequest(), CutAnswer(), CutAnswer(5)])
def test_what_changes_nothing_is_tried_again(
    registry: Registry, stored: DistributionRepository, proxy: Proxy, call: str, fault: Fault
) -> None:
    factory_image.store(factory_image.image(), at(registry, stored.name.name), "v1")
    expected = CALLS[call](stored)
    proxy.rule = times(2, lambda seen: True, fault)
    assert CALLS[call](stored) == expected


def test_a_registry_that_is_not_there_is_said_to_be_so() -> None:
    repository = open_repository(
        f"127.0.0.1:{free_ports(1)[0]}/x", load(environment={"DOCKER_CONFIG": "/nowhere"}), patience=QUICK
    )
    with pytest.raises(ServiceRefusedError, match=r"cannot look at .*cannot connect.*3 tries") as caught:
        repository.head("v1")
    assert caught.value.hint


@pytest.mark.parametrize("kind", ["seconds", "date"])
def test_no_worker_asks_while_the_registry_wants_to_be_left_alone(
    registry: Registry, stored: DistributionRepository, proxy: Proxy, kind: str
) -> None:
    """IMG-13: what is on its way already when the refusal comes cannot be called back; nothing later is sent."""
    refused = [5, 20]
    count = iter(range(1, 1000))
    lock = threading.Lock()

    def rule(seen: Seen) -> Fault | None:
        with lock:
            if next(count) not in refused:
                return None
        soon = datetime.now(UTC) + timedelta(seconds=2)
        return limited("1" if kind == "seconds" else format_datetime(soon, usegmt=True))

    proxy.rule = rule
    before = stored.waited
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(lambda _: stored.has_blob(BLOB.digest), range(48)))
    waited = stored.waited - before
    assert waited.times == 2
    assert 1.5 <= waited.seconds <= 4.5
    assert str(waited).startswith("rate limited 2 times, waited ")
    for refusal in (one for one in proxy.seen if one.status == 429):
        pause = 1.0
        later = sorted(one.at for one in proxy.seen if one.at > refusal.ended)
        # Up to one request per worker may have left before the answer was read.
        early = [moment for moment in later if moment < refusal.ended + pause - 0.05]
        assert len(early) <= 8


def test_a_second_repository_of_the_host_waits_as_well(
    registry: Registry, stored: DistributionRepository, proxy: Proxy
) -> None:
    other = at(proxy.registry, registry.new_name(), Patience(tries=2))
    assert other.client is not stored.client
    proxy.rule = times(1, lambda seen: True, limited("1"))
    assert stored.has_blob(BLOB.digest)
    proxy.rule = times(1, lambda seen: seen.method == "PATCH", limited("1"))
    proxy.seen.clear()
    with pytest.raises(TemporaryError, match="429"):
        stored.put_blob(BLOB, pieces())
    assert other.tags() == []
    refusal = next(one for one in proxy.seen if one.status == 429)
    assert all(one.at >= refusal.ended + 0.95 for one in proxy.seen if one.at > refusal.ended)


def test_a_registry_that_wants_hours_is_not_waited_for(stored: DistributionRepository, proxy: Proxy) -> None:
    proxy.rule = lambda seen: limited("21600")
    patience = Patience(longest_wait=0.1)
    repository = at(proxy.registry, stored.name.name, patience)
    with pytest.raises(TemporaryError, match="429 TOOMANYREQUESTS") as caught:
        repository.manifest("v1")
    assert caught.value.hint == "the registry asks to be left alone for 360 minutes"
    assert len(proxy.seen) == 1


@pytest.mark.parametrize("call", ["head", "manifest"])
def test_a_manifest_of_another_digest_is_never_given_out(
    registry: Registry, proxy: Proxy, name: str, call: str
) -> None:
    one, two = factory_image.image("amd64"), factory_image.image("arm64")
    for made in (one, two):
        factory_image.store(made, at(registry, name))

    def swap(headers: dict[str, str], body: bytes) -> tuple[dict[str, str], bytes]:
        return {**headers, "Docker-Content-Digest": two.top.digest}, two.top.data

    proxy.rule = lambda seen: Change(swap)
    with pytest.raises(DataError, match="digest mismatch") as caught:
        getattr(at(proxy.registry, name), call)(one.top.digest)
    assert one.top.digest in caught.value.message


def test_a_flipped_bit_in_a_manifest_is_found(registry: Registry, proxy: Proxy, name: str) -> None:
    made = factory_image.image()
    factory_image.store(made, at(registry, name), "v1")
    proxy.rule = lambda seen: Flip(10)
    for reference in ("v1", made.top.digest):
        with pytest.raises(DataError, match="digest mismatch"):
            at(proxy.registry, name).manifest(reference)


def test_a_registry_that_stores_something_else_is_found_out(registry: Registry, proxy: Proxy, name: str) -> None:
    made = factory_image.image()
    factory_image.store(made, at(registry, name))
    other = "sha256:" + "1" * 64
    for answer in ({"Docker-Content-Digest": other}, {}):
        proxy.rule = times(1, is_method("PUT"), Reply(201, answer))
        with pytest.raises(DataError, match="digest mismatch"):
            at(proxy.registry, name).put_manifest(made.top, "v1")


def test_blobs_may_come_from_another_host(registry: Registry, stored: DistributionRepository, proxy: Proxy) -> None:
    with proxy_before(registry) as storage:
        proxy.rule = lambda seen: (
            Reply(307, {"Location": f"http://{storage.address}{seen.path}?signature=abc"}) if seen.is_blob else None
        )
        assert stored.has_blob(BLOB.digest)
        storage.rule = times(1, blob_reads, CutAnswer(2**20))
        assert b"".join(stored.read_blob(BLOB.digest)) == DATA
        assert [one.headers.get("range") for one in storage.of("GET")] == [None, f"bytes={2**20}-"]
        assert len(proxy.of("GET")) == 2  # each try asks the registry anew: such addresses are good for a short time


@pytest.mark.parametrize("target", NO_ADDRESSES)
@pytest.mark.parametrize("call", [call for call in CALLS if call not in {"put", "mount", "put_blob", "delete"}])
def test_a_redirect_to_no_address_is_a_refusal(proxy: Proxy, call: str, target: str) -> None:
    repository = at(proxy.registry, "test/faults")
    proxy.rule = lambda seen: Reply(307, {"Location": f"{target}?signature=abc"})
    with pytest.raises(ServiceRefusedError) as caught:
        CALLS[call](repository)
    assert str(repository.name) in caught.value.message
    assert "abc?" not in caught.value.message
    assert "signature" not in caught.value.message
    assert len(proxy.seen) == 1


@pytest.mark.parametrize("target", NO_ADDRESSES)
@pytest.mark.parametrize("call", ["mount", "put_blob"])
@pytest.mark.parametrize("method", ["POST", "PATCH"])
def test_an_upload_to_no_address_is_a_refusal(proxy: Proxy, name: str, *, call: str, method: str, target: str) -> None:
    if (call, method) == ("mount", "PATCH"):
        return  # a mount sends no bytes
    repository = at(proxy.registry, name)
    proxy.rule = lambda seen: (
        Change(lambda headers, body: ({**headers, "Location": target}, body)) if seen.method == method else None
    )
    with pytest.raises(ServiceRefusedError) as caught:
        CALLS[call](repository)
    assert str(repository.name) in caught.value.message
    assert "is not https" in caught.value.message or "no address" in caught.value.message


def test_redirects_that_never_end_do(stored: DistributionRepository, proxy: Proxy) -> None:
    proxy.rule = lambda seen: Reply(307, {"Location": seen.path})
    with pytest.raises(ServiceRefusedError, match="too many redirects"):
        stored.has_blob(BLOB.digest)


def test_a_blob_that_is_gone_is_missing(proxy: Proxy, name: str) -> None:
    with pytest.raises(MissingInputError, match=rf"{name}@{BLOB.digest}"):
        b"".join(at(proxy.registry, name).read_blob(BLOB.digest))


def test_locations_may_be_relative(stored: DistributionRepository, proxy: Proxy, name: str) -> None:
    def relative(headers: dict[str, str], body: bytes) -> tuple[dict[str, str], bytes]:
        place = headers.get("Location", "")
        return {**headers, "Location": place.partition(proxy.address)[2]}, body

    proxy.rule = lambda seen: Change(relative) if seen.method in {"POST", "PATCH"} else None
    data = b"relative" * 1000
    blob = Descriptor(OCI_LAYER, digest_of(data), len(data))
    stored.put_blob(blob, pieces(data))
    assert stored.has_blob(blob.digest)
    assert all(first.at <= second.at for first, second in pairwise(proxy.seen))
