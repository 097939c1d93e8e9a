"""The distribution client against a real registry: what it reads, writes, mounts, lists and deletes."""

from __future__ import annotations

import hashlib
import json
import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from tasks.registry.distribution import DistributionRepository
from tasks.registry.documents import (
    DOCKER_INDEX,
    DOCKER_MANIFEST,
    OCI_CONFIG,
    OCI_INDEX,
    OCI_LAYER,
    OCI_MANIFEST,
    Descriptor,
    Manifest,
    digest_of,
)
from tasks.registry.interface import Repository
from tasks.registry.opening import open_repository
from tasks.support.errors import DataError, MissingInputError, ServiceRefusedError, TemporaryError, UsageError
from tests import factory_image
from tests.registry_proxy import (
    NO_ADDRESSES,
    Change,
    Drop,
    Fault,
    Proxy,
    Reply,
    Rule,
    Seen,
    from_to,
    proxy_before,
    times,
)
from tests.registry_servers import Registry
from tests.skopeo import skopeo

pytestmark = pytest.mark.service

MISSING = "sha256:" + "0" * 64


def blob_of(data: bytes) -> Descriptor:
    return Descriptor(OCI_LAYER, digest_of(data), len(data))


def pieces(data: bytes, size: int = 7_001) -> Iterator[bytes]:
    """Cut bytes at places that fit nothing."""
    return (data[at : at + size] for at in range(0, len(data), size))


def through(registry: Registry, name: str, chunk_bytes: int | None = None) -> Repository:
    return open_repository(f"{registry.address}/{name}", registry.settings, chunk_bytes=chunk_bytes)


@pytest.fixture
def repository(registry: Registry) -> Repository:
    return registry.repository(registry.new_name())


@pytest.fixture
def proxy(registry: Registry) -> Iterator[Proxy]:
    with proxy_before(registry) as running:
        yield running


def test_everything_is_missing_in_a_repository_that_nobody_used(repository: Repository) -> None:
    assert repository.head("tag") is None
    assert repository.manifest("tag") is None
    assert repository.head(MISSING) is None
    assert repository.manifest(MISSING) is None
    assert repository.has_blob(MISSING) is False
    assert repository.tags() == []
    assert repository.delete_manifest(MISSING) is False
    with pytest.raises(MissingInputError, match=MISSING):
        next(repository.read_blob(MISSING))


@pytest.mark.parametrize("kind", [OCI_MANIFEST, DOCKER_MANIFEST])
def test_an_image_and_its_index_come_back_byte_for_byte(registry: Registry, kind: str) -> None:
    name = registry.new_name()
    repository = registry.repository(name)
    docker = kind == DOCKER_MANIFEST
    made = factory_image.index(
        factory_image.image("amd64", docker=docker),
        factory_image.image("arm64", docker=docker),
        docker=docker,
    )
    factory_image.store(made, repository, "v1")

    assert made.top.media_type == (DOCKER_INDEX if docker else OCI_INDEX)
    for reference in ("v1", made.top.digest):
        assert repository.head(reference) == made.top.descriptor()
        assert repository.manifest(reference) == made.top
    for child in made.below:
        assert repository.manifest(child.digest) == child
    assert repository.tags() == ["v1"]
    raw = skopeo("inspect", "--raw", "--tls-verify=false", f"docker://{registry.address}/{name}:v1")
    assert digest_of(raw.encode()) == made.top.digest


def test_bytes_of_a_manifest_are_never_written_anew(repository: Repository) -> None:
    """Odd spacing, key order and unknown fields are part of the digest."""
    config = b"{}"
    repository.put_blob(Descriptor(OCI_CONFIG, digest_of(config), 2), iter([config]))
    data = (
        b'{\n\n "x-unknown": [1.0, "\\u00e9"],  "schemaVersion":2,"layers":[],\t"config":'
        + json.dumps({"mediaType": OCI_CONFIG, "digest": digest_of(config), "size": 2}).encode()
        + b',"mediaType":"'
        + OCI_MANIFEST.encode()
        + b'"}\n'
    )
    repository.put_manifest(Manifest(OCI_MANIFEST, data), "odd")
    found = repository.manifest("odd")
    assert found is not None
    assert found.data == data
    assert repository.head("odd") == Descriptor(OCI_MANIFEST, digest_of(data), len(data))


@pytest.mark.parametrize("chunk_bytes", [None, 100, 30_000, 10**6])
@pytest.mark.parametrize("size", [0, 1, 1000, 30_000, 100_001])
def test_a_blob_of_any_size_goes_in_and_comes_out_from_any_place(
    registry: Registry, size: int, chunk_bytes: int | None
) -> None:
    if chunk_bytes == 100:
        size %= 1001  # thousands of requests show nothing more
    name = registry.new_name()
    repository = through(registry, name, chunk_bytes=chunk_bytes)
    data = random.Random(size).randbytes(size)
    told: list[int] = []
    repository.put_blob(blob_of(data), pieces(data), told.append)
    assert sum(told) == size
    assert repository.has_blob(digest_of(data))
    for start in {0, 1, size // 2, max(size - 1, 0), size}:
        if start <= size:
            assert b"".join(repository.read_blob(digest_of(data), start)) == data[start:]
    assert registry.uploads(name) == []


def test_chunks_say_where_they_begin_and_one_request_does_not(registry: Registry, proxy: Proxy) -> None:
    data = bytes(range(250)) * 10
    through(proxy.registry, "test/chunked", chunk_bytes=1000).put_blob(blob_of(data), pieces(data, 999))
    patches = proxy.of("PATCH")
    assert [one.headers["content-length"] for one in patches] == ["1000", "1000", "500"]
    assert [one.headers["content-range"] for one in patches] == ["0-999", "1000-1999", "2000-2499"]
    through(proxy.registry, "test/whole").put_blob(blob_of(data), pieces(data, 999))
    whole = proxy.of("PATCH")[3:]
    assert [one.headers.get("content-range") for one in whole] == [None]
    assert "transfer-encoding" not in whole[0].headers


def test_a_registry_that_asks_for_larger_chunks_gets_them(registry: Registry, proxy: Proxy) -> None:
    def ask(headers: dict[str, str], body: bytes) -> tuple[dict[str, str], bytes]:
        return {**headers, "OCI-Chunk-Min-Length": "2000"}, body

    proxy.rule = from_to(1, 1, lambda seen: seen.method == "POST", Change(ask))
    data = bytes(5000)
    through(proxy.registry, registry.new_name(), chunk_bytes=10).put_blob(blob_of(data), pieces(data))
    assert [one.received for one in proxy.of("PATCH")] == [2000, 2000, 1000]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda data: data[:-1], "only 9999 of its 10000 bytes"),
        (lambda data: b"", "only 0 of its 10000 bytes"),
        (lambda data: data + b"x", "more than its 10000 bytes"),
        (lambda data: b"\0" + data[1:], "digest mismatch"),
    ],
)
@pytest.mark.parametrize("chunk_bytes", [None, 3000])
def test_bytes_that_are_not_the_blob_s_never_become_one(
    registry: Registry, proxy: Proxy, change: object, says: str, chunk_bytes: int | None
) -> None:
    assert callable(change)
    data = random.Random(says).randbytes(10_000)
    name = registry.new_name()
    repository = through(proxy.registry, name, chunk_bytes=chunk_bytes)
    blobs = registry.blobs()
    told: list[int] = []
    with pytest.raises(DataError, match=says) as caught:
        repository.put_blob(blob_of(data), pieces(change(data)), told.append)
    assert digest_of(data) in caught.value.message
    assert str(repository.name) in caught.value.message
    assert registry.blobs() == blobs
    assert [one.path for one in proxy.of("DELETE")] == [proxy.of("PATCH")[-1].path]
    if "only" not in says:  # then the request was cut, after which this registry forgets the session's address
        assert registry.uploads(name) == []
    assert proxy.of("PUT") == []
    assert sum(told) == 0


def test_a_reader_s_own_error_comes_out_as_it_is_and_ends_the_session(registry: Registry, proxy: Proxy) -> None:
    repository = through(proxy.registry, registry.new_name())

    def broken() -> Iterator[bytes]:
        yield bytes(1000)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        repository.put_blob(blob_of(bytes(2000)), broken())
    assert len(proxy.of("DELETE")) == 1


@pytest.mark.parametrize(
    "error", [BrokenPipeError(32, "Broken pipe"), ConnectionResetError(104, "reset"), OSError(5, "I/O")]
)
def test_a_file_that_cannot_be_read_is_not_taken_for_the_network(
    registry: Registry, proxy: Proxy, error: OSError
) -> None:
    repository = through(proxy.registry, registry.new_name())

    def broken() -> Iterator[bytes]:
        yield bytes(1000)
        raise error

    with pytest.raises(ServiceRefusedError, match="its bytes cannot be read"):
        repository.put_blob(blob_of(bytes(2000)), broken())
    assert len(proxy.of("DELETE")) == 1


def test_a_mount_moves_no_bytes(registry: Registry, proxy: Proxy) -> None:
    data = factory_image.noise("mount", 50_000)
    source = through(proxy.registry, registry.new_name())
    target = through(proxy.registry, registry.new_name())
    source.put_blob(blob_of(data), pieces(data))
    before = proxy.sent
    assert target.has_blob(digest_of(data)) is False
    assert target.mount(blob_of(data), source) is True
    assert target.has_blob(digest_of(data)) is True
    assert proxy.sent == before
    assert target.mount(blob_of(data), source) is True


def test_a_mount_that_is_not_possible_leaves_no_session(registry: Registry, other_registry: Registry) -> None:
    data = factory_image.noise("no mount", 1000)
    source, target = registry.repository(registry.new_name()), registry.repository(registry.new_name())
    assert target.mount(blob_of(data), source) is False
    assert registry.uploads(target.name.name) == []
    elsewhere = other_registry.repository(other_registry.new_name())
    source.put_blob(blob_of(data), pieces(data))
    assert elsewhere.mount(blob_of(data), source) is False
    assert elsewhere.has_blob(digest_of(data)) is False
    layout = open_repository("file:///nowhere/at/all", registry.settings)
    assert target.mount(blob_of(data), layout) is False


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405])
def test_a_registry_that_refuses_to_mount_gets_the_bytes_instead(registry: Registry, proxy: Proxy, status: int) -> None:
    proxy.rule = times(9, lambda seen: "mount" in seen.query, Reply(status, {"WWW-Authenticate": 'Basic realm="x"'}))
    source, target = (through(proxy.registry, registry.new_name()) for _ in range(2))
    assert target.mount(blob_of(b"x"), source) is False


def test_deleting_a_manifest_takes_its_tags(repository: Repository) -> None:
    made = factory_image.image("amd64")
    factory_image.store(made, repository, "one")
    repository.put_manifest(made.top, "two")
    kept = factory_image.image("arm64")
    factory_image.store(kept, repository, "kept")
    assert repository.tags() == ["kept", "one", "two"]
    assert repository.delete_manifest(made.top.digest) is True
    assert repository.delete_manifest(made.top.digest) is False
    assert repository.head("one") is None
    assert repository.tags() == ["kept"]


def test_a_manifest_without_its_blobs_is_refused_in_the_registry_s_own_words(repository: Repository) -> None:
    made = factory_image.image("amd64")
    with pytest.raises(TemporaryError, match=r"cannot write .*:v1: 40[04] MANIFEST_BLOB_UNKNOWN") as caught:
        repository.put_manifest(made.top, "v1")
    assert str(repository.name) in caught.value.message
    assert caught.value.hint
    assert repository.head("v1") is None


@pytest.mark.parametrize("reference", ["", "a b", "../x", "sha256:short", "x" * 129, "-v", "a/b", "v1?x=1"])
def test_a_reference_outside_the_grammar_is_never_sent(registry: Registry, proxy: Proxy, reference: str) -> None:
    repository = through(proxy.registry, registry.new_name())
    made = Manifest(OCI_MANIFEST, b"{}")
    for call in (repository.head, repository.manifest, repository.has_blob, repository.delete_manifest):
        with pytest.raises(UsageError):
            call(reference)
    with pytest.raises(UsageError):
        repository.put_manifest(made, reference)
    with pytest.raises(UsageError):
        next(repository.read_blob(reference))
    with pytest.raises(UsageError):
        repository.put_blob(Descriptor(OCI_LAYER, reference, 0), iter([]))
    assert proxy.seen == []


def test_a_tag_s_digest_is_read_from_the_body_when_no_header_tells_it(registry: Registry, proxy: Proxy) -> None:
    made = factory_image.image("amd64")
    repository = through(proxy.registry, registry.new_name())
    factory_image.store(made, repository, "v1")
    proxy.rule = lambda seen: Drop(answer=("docker-content-digest",))
    assert repository.head("v1") == made.top.descriptor()
    repository.put_manifest(made.top, "v2")
    assert repository.head("v2") == made.top.descriptor()


def test_a_general_content_type_does_not_hide_what_a_manifest_is(registry: Registry, proxy: Proxy) -> None:
    made = factory_image.index(factory_image.image("amd64"))
    repository = through(proxy.registry, registry.new_name())
    factory_image.store(made, repository, "v1")

    def general(headers: dict[str, str], body: bytes) -> tuple[dict[str, str], bytes]:
        return {**headers, "Content-Type": "application/json; charset=utf-8"}, body

    proxy.rule = lambda seen: Change(general) if seen.is_manifest and seen.method == "GET" else None
    assert repository.manifest("v1") == made.top


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"", b'{"mediaType": 3}', b'{"schemaVersion": 1, "name": "old"}'])
def test_something_else_than_a_manifest_is_said_to_be_so(registry: Registry, proxy: Proxy, body: bytes) -> None:
    proxy.rule = lambda seen: Reply(200, {"Content-Type": "text/html"}, body)
    repository = through(proxy.registry, registry.new_name())
    with pytest.raises(DataError, match="neither an image nor an index"):
        repository.manifest("v1")
    with pytest.raises(DataError, match="neither an image nor an index"):
        repository.head("v1")


def test_an_endless_manifest_is_not_read_to_its_end(registry: Registry, proxy: Proxy) -> None:
    proxy.rule = lambda seen: Reply(200, {"Content-Type": OCI_MANIFEST}, b" " * (5 * 2**20))
    with pytest.raises(ServiceRefusedError, match="larger than 4194304 bytes"):
        through(proxy.registry, registry.new_name()).manifest("v1")


def _paged(tags: list[str], *, size: int, style: str) -> Rule:
    """List tags in pages, as registries differ in it."""

    def rule(seen: Seen) -> Fault | None:
        if not seen.path.endswith("/tags/list"):
            return None
        rest = sorted(tag for tag in tags if tag > seen.query.get("last", ""))
        page, more = rest[:size], len(rest) > size
        base = {
            "absolute": f"http://{seen.headers['host']}{seen.path}",
            "relative": seen.path,
            "query": "",
        }[style]
        link = {"Link": f'<{base}?n={size}&last={page[-1]}>; rel="next"'} if more else {}
        return Reply(200, link, json.dumps({"name": "x", "tags": page or None}).encode())

    return rule


@pytest.mark.parametrize("style", ["absolute", "relative", "query"])
@pytest.mark.parametrize("count", [0, 1, 99, 100, 101, 330])
def test_a_listing_is_read_to_its_last_page(registry: Registry, proxy: Proxy, count: int, style: str) -> None:
    tags = sorted(f"t{number:04}" for number in range(count))
    proxy.rule = _paged(tags, size=100, style=style)
    assert through(proxy.registry, registry.new_name()).tags() == tags
    assert len(proxy.seen) == max(1, -(-count // 100))


def test_a_full_page_that_lost_its_link_is_not_taken_for_the_last(registry: Registry, proxy: Proxy) -> None:
    tags = sorted(f"t{number:04}" for number in range(2500))

    def rule(seen: Seen) -> Fault | None:
        size = int(seen.query["n"])
        rest = [tag for tag in tags if tag > seen.query.get("last", "")]
        return Reply(200, {}, json.dumps({"tags": rest[:size]}).encode())

    proxy.rule = rule
    assert through(proxy.registry, registry.new_name()).tags() == tags


def test_a_registry_that_knows_no_pages_gives_all_at_once(registry: Registry, proxy: Proxy) -> None:
    tags = sorted(f"t{number:04}" for number in range(1000))
    proxy.rule = lambda seen: Reply(200, {}, json.dumps({"tags": tags}).encode())
    assert through(proxy.registry, registry.new_name()).tags() == tags


@pytest.mark.parametrize(
    "link",
    [
        "<{path}?n=1&last=t>; rel=next",  # again and again the same page
        "<{path}?n=1000>; rel=next",
        "<http://127.0.0.1:1{path}?last=t>; rel=next",
        "<https://other.example{path}?last=t>; rel=next",
        "</v2/another/repository/tags/list>; rel=next",
    ],
)
def test_pages_that_lead_in_a_circle_or_away_are_an_error(registry: Registry, proxy: Proxy, link: str) -> None:
    proxy.rule = lambda seen: Reply(200, {"Link": link.format(path=seen.path)}, b'{"tags": ["t"]}')
    with pytest.raises(ServiceRefusedError, match="cannot list the tags of"):
        through(proxy.registry, registry.new_name()).tags()


@pytest.mark.parametrize(
    "link",
    [
        ';;;,,<>="', "<", "<>", "next", "<{path}?last=t", "<{path}?last=t>; rel", '<{path}?last=t>; rel="next',
        "<{path}?last=t>", "<{path}?last=t>; rel=prev, <", "{path}?last=t; rel=next", "<{path}?last=t> rel=next",
        *(f"<{address}>; rel=next" for address in NO_ADDRESSES),
    ],
)  # fmt: skip
def test_a_link_that_cannot_be_read_is_not_the_end(registry: Registry, proxy: Proxy, link: str) -> None:
    proxy.rule = lambda seen: Reply(200, {"Link": link.replace("{path}", seen.path)}, b'{"tags": ["t"]}')
    repository = through(proxy.registry, registry.new_name())
    with pytest.raises(ServiceRefusedError, match=f"cannot list the tags of {repository.name}: "):
        repository.tags()
    assert len(proxy.seen) == 1


@pytest.mark.parametrize("body", [b"", b"[]", b'{"tags": "abc"}', b'{"tags": [1]}', b'{"name": "x"}', b'{"tags": ["a"'])
def test_a_page_that_makes_no_sense_is_an_error(registry: Registry, proxy: Proxy, body: bytes) -> None:
    proxy.rule = lambda seen: Reply(200, {}, body)
    with pytest.raises(ServiceRefusedError, match="not a list of tags"):
        through(proxy.registry, registry.new_name()).tags()


def test_only_the_registry_s_own_word_makes_a_missing_listing_an_empty_one(registry: Registry, proxy: Proxy) -> None:
    proxy.rule = lambda seen: Reply(404, {}, b"<html>no such page</html>")
    with pytest.raises(ServiceRefusedError, match="404 no such page"):
        through(proxy.registry, registry.new_name()).tags()


def test_many_threads_share_one_repository(registry: Registry) -> None:
    repository = registry.repository(registry.new_name())
    contents = [factory_image.noise(number, 20_000) for number in range(24)]
    gate = threading.Barrier(8)

    def work(number: int) -> None:
        if number < 8:
            gate.wait()
        data = contents[number]
        repository.put_blob(blob_of(data), pieces(data))
        assert hashlib.sha256(b"".join(repository.read_blob(digest_of(data)))).hexdigest() == digest_of(data)[7:]

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(24)))
    assert all(repository.has_blob(digest_of(data)) for data in contents)


def test_what_skopeo_writes_is_read_and_the_other_way_round(registry: Registry) -> None:
    name = registry.new_name()
    made = factory_image.index(*(factory_image.image(one) for one in ("amd64", "arm64")))
    repository = registry.repository(name)
    factory_image.store(made, repository, "ours")
    options = ("--all", "--preserve-digests", "--src-tls-verify=false", "--dest-tls-verify=false")
    copied = f"docker://{registry.address}/{name}"
    skopeo("copy", *options, f"{copied}:ours", f"{copied}-theirs:theirs")
    assert registry.repository(f"{name}-theirs").manifest("theirs") == made.top
    assert registry.repository(f"{name}-theirs").has_blob(next(iter(made.blobs)))


def test_repositories_of_one_registry_share_their_client(registry: Registry) -> None:
    one, two = (registry.repository(registry.new_name()) for _ in range(2))
    assert isinstance(one, DistributionRepository)
    assert isinstance(two, DistributionRepository)
    assert one.client is two.client
    other = replace(registry, environment={**registry.environment, "DOCKER_CONFIG": "/elsewhere"}).repository("x")
    assert isinstance(other, DistributionRepository)
    assert other.client is not one.client
