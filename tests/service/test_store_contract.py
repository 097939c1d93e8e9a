"""What both stores promise alike; the S3 half runs against the real server."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tasks.support.errors import DataError, MissingInputError, OmniError, UsageError
from tasks.support.store import ABSENT, ConditionFailedError, Headers, ObjectStore, open_store, redo_on_conflict
from tasks.support.store_s3 import Limits
from tests.services import S3Server, plain_client

pytestmark = pytest.mark.slow  # together these take longer than the fast set may

PAGE = Headers("text/html; charset=utf-8", "no-cache")
WHEEL = Headers("application/octet-stream", "public, max-age=31536000, immutable")
LARGE = Limits().single_bytes + 1
ROOT = Path(__file__).parents[2]


def keys(store: ObjectStore, prefix: str = "") -> list[str]:
    return sorted(found.key for found in store.list(prefix))


def content(store: ObjectStore, key: str) -> bytes:
    found = store.get(key)
    assert found is not None
    return found.data


def uploads_left(url: str) -> object:
    """Return the unfinished uploads in a store's bucket; a folder has none."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        return [*Path(parts.path, ".omni-store", "new").iterdir()]
    client = plain_client(
        os.environ["AWS_ENDPOINT_URL"], os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"]
    )
    return client.list_multipart_uploads(Bucket=parts.netloc).get("Uploads", [])


def python(code: str, *arguments: str) -> subprocess.Popen[bytes]:
    """Start a Python process with this one's environment."""
    prelude = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
    return subprocess.Popen([sys.executable, "-c", prelude + code, *arguments], stdout=subprocess.PIPE)


def test_empty_store(store_any: ObjectStore, tmp_path: Path) -> None:
    assert store_any.head("a/b") is None
    assert store_any.get("a/b") is None
    assert keys(store_any) == keys(store_any, "a/b") == []
    store_any.delete("a/b")
    with pytest.raises(MissingInputError, match="a/b"):
        next(store_any.stream("a/b"))
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("large", [False, True])
def test_conditions(store_any: ObjectStore, tmp_path: Path, large: bool) -> None:
    def write(data: bytes, expected: object) -> str:
        if not large:
            return store_any.put("d/k", data, PAGE, expected=expected)  # type: ignore[arg-type]
        path = tmp_path / "source"
        path.write_bytes(data * LARGE)
        return store_any.put_file("d/k", path, PAGE, expected=expected)  # type: ignore[arg-type]

    def refused(expected: object) -> None:
        before = store_any.get("d/k")
        with pytest.raises(ConditionFailedError, match=r"d/k"):
            write(b"!", expected)
        assert store_any.get("d/k") == before

    refused('"never"')
    first = write(b"1", ABSENT)
    refused(ABSENT)
    refused('"never"')
    refused("")
    refused("*")
    second = write(b"2", first)
    refused(first)
    third = write(b"3", None)
    refused(second)
    assert len({first, second, third}) == 3
    found = store_any.head("d/k")
    assert found is not None
    assert found.etag == third
    store_any.delete("d/k")
    refused(third)
    write(b"4", ABSENT)
    assert content(store_any, "d/k")[:1] == b"4"
    assert uploads_left(store_any.url) == []


def test_facts(store_any: ObjectStore) -> None:
    etag = store_any.put("d/k", b"four", PAGE, expected=None)
    head, blob, listed = store_any.head("d/k"), store_any.get("d/k"), [*store_any.list()]
    assert head is not None
    assert blob is not None
    assert blob.stored == head
    assert (head.key, head.size, head.etag) == ("d/k", 4, etag)
    assert abs(datetime.now(UTC) - head.modified) < timedelta(minutes=1)
    assert [(one.key, one.size, one.etag) for one in listed] == [("d/k", 4, etag)]
    assert listed[0].modified.utcoffset() == timedelta(0)


@pytest.mark.parametrize("size", [3, LARGE])
def test_s3_keeps_the_headers(s3_url: str, tmp_path: Path, size: int) -> None:
    store = open_store(s3_url)
    (tmp_path / "w").write_bytes(bytes(size))
    store.put("page", b"", PAGE, expected=ABSENT)
    store.put_file("wheel", tmp_path / "w", WHEEL, expected=ABSENT)
    for key, headers in (("page", PAGE), ("wheel", WHEEL)):
        head, blob = store.head(key), store.get(key)
        assert head is not None
        assert blob is not None
        assert head.headers == blob.stored.headers == headers


RANGES: list[tuple[int, int | None]] = [
    (0, None), (0, 0), (0, 1), (3, 7), (9, 10), (9, 99), (5, None), (10, None), (10, 20), (99, None), (4, 4),
]  # fmt: skip


@pytest.mark.parametrize("data", [b"0123456789", b""])
def test_ranges(store_any: ObjectStore, data: bytes) -> None:
    store_any.put("k", data, PAGE, expected=ABSENT)
    for start, end in RANGES:
        assert b"".join(store_any.stream("k", start, end)) == data[start:end], (start, end)
    for start, end in ((-1, None), (3, 2), (0, -1)):
        with pytest.raises(UsageError, match="not a range"):
            next(store_any.stream("k", start, end))


def test_a_large_object_is_read_in_pieces(store_any: ObjectStore, tmp_path: Path) -> None:
    path = tmp_path / "source"
    path.write_bytes(os.urandom(9 << 20))
    store_any.put_file("k", path, WHEEL, expected=ABSENT)
    read = [*store_any.stream("k", 5)]
    assert b"".join(read) == path.read_bytes()[5:]
    assert max(map(len, read)) <= 1 << 20


ODD_KEYS = [
    "w/vllm_omni-0.11.2.dev3+ge2f56c309-py3-none-any.whl", "w/a b", "w/a%2Bb", "w/a%20b", "w/é", "w/e\u0301", "w/日/語",
    "w/a&b<c>\"'", "w/a=1?x#y", "w/ lead", "w/trail ", "w/%", "w/~", "w/;,:@!$*()[]{}|^`", "w/a\tb", "w/a\nb",
    "w/\x7f", "w/.hidden", "w/...", "w/-dash", "_state/projects/x.json", "w/" + "n" * 255, "w/" + "é" * 127,
    "W/UPPER", "w/upper", "w/UPPER",
]  # fmt: skip


def test_any_name_comes_back_as_it_went(store_any: ObjectStore) -> None:
    for key in ODD_KEYS:
        store_any.put(key, key.encode(), PAGE, expected=ABSENT)
    assert keys(store_any) == sorted(ODD_KEYS)
    for key in ODD_KEYS:
        assert content(store_any, key) == key.encode()
        assert keys(store_any, key)[0] == key
        store_any.delete(key)
        assert store_any.head(key) is None
    assert keys(store_any) == []


BAD_KEYS = ["", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/./b", "a/..", "a\\b", "a\0b", "a\udc80"]


@pytest.mark.parametrize("key", BAD_KEYS)
def test_a_key_that_could_leave_the_store_is_refused(store_any: ObjectStore, key: str) -> None:
    calls: list[Callable[[], object]] = [
        lambda: store_any.head(key),
        lambda: store_any.get(key),
        lambda: [*store_any.stream(key)],
        lambda: store_any.put(key, b"", PAGE, expected=None),
        lambda: store_any.put_file(key, Path(__file__), PAGE, expected=None),
        lambda: store_any.delete(key),
    ]
    for call in calls:
        with pytest.raises(UsageError, match="not a store key"):
            call()


@pytest.mark.parametrize("key", ["w/" + "n" * 256, "w/" + "n" * 240 + "é" * 8, "w/" + "n/" * 700 + "n" * 256])
def test_a_key_that_is_too_long_is_refused(store_any: ObjectStore, key: str) -> None:
    with pytest.raises(DataError, match="w/n") as caught:
        store_any.put(key, b"", PAGE, expected=ABSENT)
    assert "\n" not in caught.value.message
    assert keys(store_any) == []


def test_a_listing_is_complete_and_takes_any_beginning(store_any: ObjectStore) -> None:
    wanted = [f"{'ab'[number % 2]}{number % 7}/x{number}" for number in range(1100)]
    with ThreadPoolExecutor(8) as pool:
        [*pool.map(lambda key: store_any.put(key, b"", PAGE, expected=None), wanted)]
    for prefix in ("", "a", "a1", "a1/", "a1/x1", "b6/x", "c", "a1/x99999", "a1/x1/", "a1/x15/y"):
        assert keys(store_any, prefix) == sorted(key for key in wanted if key.startswith(prefix)), prefix
    with pytest.raises(UsageError):
        keys(store_any, "/a")


def test_a_store_sees_nothing_of_its_neighbours(store_any: ObjectStore) -> None:
    inner, beside = open_store(f"{store_any.url}/sub"), open_store(f"{store_any.url}-beside")
    inner.put("k", b"inner", PAGE, expected=None)
    beside.put("k", b"beside", PAGE, expected=None)
    assert (keys(inner), keys(beside), keys(store_any)) == (["k"], ["k"], ["sub/k"])
    assert content(store_any, "sub/k") == b"inner"


@pytest.mark.parametrize("expected", [ABSENT, None])
@pytest.mark.parametrize(("first", "second"), [("d/a", "d/a/b"), ("d/a/b", "d/a"), ("d/a/b/c", "d/a"), ("a", "a/b/c")])
def test_a_key_below_another_is_held_or_refused_but_never_a_race(
    store_any: ObjectStore, first: str, second: str, expected: None
) -> None:
    store_any.put(first, b"first", PAGE, expected=expected)
    try:
        redo_on_conflict(lambda: store_any.put(second, b"second", PAGE, expected=expected), what=second, seconds=5)
    except DataError as error:
        assert second in error.message  # noqa: PT017 - holding both is right too
        assert store_any.get(second) is None
        assert keys(store_any) == [first]
    else:
        assert content(store_any, second) == b"second"
        assert keys(store_any) == sorted([first, second])
    assert content(store_any, first) == b"first"
    store_any.delete(first)
    store_any.delete(second)
    if store_any.url.startswith("file:"):
        # SeaweedFS keeps the emptied folder for minutes, and refuses to create a key of its name as long.
        store_any.put(second, b"again", PAGE, expected=ABSENT)


@pytest.mark.parametrize("size", [0, 1, LARGE - 2, LARGE - 1, LARGE, (48 << 20) + 5])
def test_a_file_is_written_whole_with_progress(store_any: ObjectStore, tmp_path: Path, size: int) -> None:
    path = tmp_path / "source"
    path.write_bytes(os.urandom(size))
    done: list[int] = []
    etag = store_any.put_file("d/k", path, WHEEL, expected=ABSENT, progress=done.append)
    assert sum(done) == size
    assert b"".join(store_any.stream("d/k")) == path.read_bytes()
    found = store_any.head("d/k")
    assert found is not None
    assert (found.size, found.etag) == (size, etag)
    path.write_bytes(b"the store has a copy of its own")
    assert store_any.head("d/k") == found


def _another_file(path: Path, other: bytes) -> None:
    path.with_name("other").write_bytes(other)
    path.with_name("other").replace(path)


def _in_place(path: Path, other: bytes) -> None:
    path.write_bytes(other)


def _in_place_with_its_old_times(path: Path, other: bytes) -> None:
    found = path.stat()
    path.write_bytes(other)
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))


def _a_link_to_another(path: Path, other: bytes) -> None:
    path.with_name("other").write_bytes(other)
    path.unlink()
    path.symlink_to(path.with_name("other"))


WAYS = [_another_file, _in_place, _in_place_with_its_old_times, _a_link_to_another]


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("size", [1, LARGE - 1, LARGE])
@pytest.mark.parametrize("change", WAYS)
def test_a_file_that_is_no_longer_what_was_hashed_is_refused(
    store_any: ObjectStore, tmp_path: Path, change: Callable[[Path, bytes], None], size: int, there: bool
) -> None:
    path = tmp_path / "source"
    data = b"a" * size
    sha256 = hashlib.sha256(data).hexdigest()
    path.write_bytes(data)
    old = store_any.put("d/k", b"old", PAGE, expected=ABSENT) if there else ABSENT
    before = store_any.get("d/k")
    # Where a hash tells it and nothing else would: the same size, and the last byte only.
    change(path, data[:-1] + b"b")
    with pytest.raises(DataError, match=str(path)) as caught:
        store_any.put_file("d/k", path, WHEEL, expected=old, sha256=sha256)
    assert sha256 in caught.value.message
    assert store_any.get("d/k") == before
    assert uploads_left(store_any.url) == []
    change(path, data)
    store_any.put_file("d/k", path, WHEEL, expected=old, sha256=sha256)
    assert content(store_any, "d/k") == data


def test_a_file_that_cannot_be_read_is_told(store_any: ObjectStore, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, kind in ((tmp_path / "none", MissingInputError), (tmp_path, DataError), (tmp_path / "pipe", DataError)):
        with pytest.raises(kind, match=str(path)):
            store_any.put_file("d/k", path, WHEEL, expected=ABSENT)
    assert store_any.head("d/k") is None


def add(store: ObjectStore, word: str) -> None:
    """Add a word to a list in a store."""

    def attempt() -> None:
        found = store.get("d/list")
        words = [] if found is None else json.loads(found.data)
        store.put("d/list", json.dumps([*words, word]).encode(), PAGE, expected=ABSENT if found is None else found.etag)

    redo_on_conflict(attempt, what=word)


def test_sixteen_writers_of_one_key_lose_nothing(store_any: ObjectStore) -> None:
    stores = [open_store(store_any.url) for _ in range(4)]

    def work(number: int) -> None:
        for turn in range(3):
            add(stores[number % 4], f"{number}.{turn}")

    with ThreadPoolExecutor(16) as pool:
        [*pool.map(work, range(16))]
    assert sorted(json.loads(content(store_any, "d/list"))) == sorted(f"{n}.{t}" for n in range(16) for t in range(3))


def test_processes_that_write_one_key_lose_nothing(store_any: ObjectStore) -> None:
    code = """
from tasks.support.store import open_store
from tests.service.test_store_contract import add
store = open_store(sys.argv[1])
for turn in range(10):
    add(store, f"{sys.argv[2]}.{turn}")
"""
    writers = [python(code, store_any.url, str(number)) for number in range(4)]
    assert [writer.communicate()[0] or writer.returncode for writer in writers] == [0] * 4
    assert sorted(json.loads(content(store_any, "d/list"))) == sorted(f"{n}.{t}" for n in range(4) for t in range(10))


@pytest.mark.parametrize("size", [10, 9 << 20, LARGE])
def test_one_of_many_creators_wins(store_any: ObjectStore, tmp_path: Path, size: int) -> None:
    def create(number: int) -> bool:
        path = tmp_path / str(number)
        path.write_bytes(bytes([number]) * size)
        try:
            open_store(store_any.url).put_file("d/k", path, WHEEL, expected=ABSENT)
        except ConditionFailedError:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        won = [*pool.map(create, range(4))]
    data = content(store_any, "d/k")
    assert won[data[0]]
    assert data == data[:1] * size
    if size < LARGE or store_any.url.startswith("file:"):
        # SeaweedFS 4.48 does not complete uploads in parts atomically: there, more than one may be told that it won.
        assert won.count(True) == 1
    assert uploads_left(store_any.url) == []


def test_readers_never_see_a_mixture(store_any: ObjectStore) -> None:
    sizes = {b"a": 3 << 20, b"b": 2 << 20, b"c": 0}
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            for letter, size in sizes.items():
                store_any.put("d/k", letter * size, PAGE, expected=None)

    def read() -> bytes:
        try:
            return b"".join(store_any.stream("d/k"))
        except OmniError as error:
            assert "d/k" in error.message  # noqa: PT017 - the S3 store says so when an object changes under it
            return b""

    store_any.put("d/k", b"", PAGE, expected=None)
    writer = threading.Thread(target=write)
    writer.start()
    letters: set[bytes] = set()
    deadline = time.monotonic() + 60
    try:
        for turn in itertools.count():
            data = read() if turn % 2 else content(store_any, "d/k")
            assert data == data[:1] * sizes.get(data[:1], 0)
            assert {one.size for one in store_any.list()} <= set(sizes.values())
            letters.add(data[:1])
            if (turn >= 40 and len(letters) == len(sizes)) or time.monotonic() > deadline:
                break
    finally:
        stop.set()
        writer.join()
    assert letters == {b"", b"a", b"b"}


def test_folders_that_come_and_go_lose_no_write(store_any: ObjectStore) -> None:
    def work(number: int) -> None:
        for _ in range(25):
            key = f"d/e/f/{number}"
            store_any.put(key, b"", PAGE, expected=ABSENT)
            assert store_any.head(key) is not None
            [*store_any.list("d/")]
            store_any.delete(key)

    with ThreadPoolExecutor(8) as pool:
        [*pool.map(work, range(8))]
    assert keys(store_any) == []


WRITE_SLOWLY = """
import time
from pathlib import Path
from tasks.support.store import Headers, open_store
def progress(count):
    print("part", flush=True)
    time.sleep(SECONDS)
open_store(sys.argv[1]).put_file("d/k", Path(sys.argv[2]), Headers("a/b", "c"), expected=EXPECTED, progress=progress)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_writer_that_is_stopped_in_the_middle_changes_nothing(
    store_any: ObjectStore, tmp_path: Path, number: signal.Signals
) -> None:
    path = tmp_path / "source"
    path.write_bytes(bytes(40 << 20))
    old = store_any.put("d/k", b"old", PAGE, expected=ABSENT)
    code = WRITE_SLOWLY.replace("SECONDS", "60").replace("EXPECTED", repr(old))
    writer = python(code, store_any.url, str(path))
    assert writer.stdout is not None
    assert writer.stdout.readline() == b"part\n"
    writer.send_signal(number)
    writer.communicate()
    assert writer.returncode == -number
    found = store_any.get("d/k")
    assert found is not None
    assert (found.data, found.etag, keys(store_any)) == (b"old", old, ["d/k"])
    if number == signal.SIGINT:
        assert uploads_left(store_any.url) == []
    store_any.put_file("d/k", path, PAGE, expected=old)
    store_any.put("d/k", b"new", PAGE, expected=None)
    assert content(store_any, "d/k") == b"new"


MEASURE = """
import resource
from pathlib import Path
from tasks.support.store import ABSENT, Headers, open_store
store = open_store(sys.argv[1])
store.put("first", b"", Headers("a/b", "c"), expected=ABSENT)
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
before = peak()
store.put_file("k", Path(sys.argv[2]), Headers("a/b", "c"), expected=ABSENT)
uploaded = peak()
for piece in store.stream("k"): pass
print(uploaded - before, peak() - before)
"""


@pytest.mark.parametrize("size", [256 << 20, pytest.param(1 << 30, marks=pytest.mark.slow)])
def test_memory_does_not_grow_with_the_file(store_any: ObjectStore, tmp_path: Path, size: int) -> None:
    path = tmp_path / "source"
    with path.open("wb") as opened:
        opened.truncate(size)
    growth = [int(word) << 10 for word in python(MEASURE, store_any.url, str(path)).communicate()[0].split()]
    assert len(growth) == 2
    assert max(growth) < 60 << 20
    found = store_any.head("k")
    assert found is not None
    assert found.size == size


def test_no_key_or_secret_is_told(s3_server: S3Server, s3_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2hunter2hunter2")
    store = open_store(s3_url)
    told: list[str] = []
    calls: Iterable[Callable[[], object]] = (
        lambda: store.head("k"),
        lambda: store.get("k"),
        lambda: [*store.list()],
        lambda: store.put("k", b"", PAGE, expected=ABSENT),
        lambda: store.delete("k"),
    )
    for call in calls:
        with pytest.raises(OmniError) as caught:
            call()
        told.append(f"{caught.value.exit_code} {caught.value.message} {caught.value.hint}")
    assert all(line.startswith("77 ") and s3_url in line for line in told)
    assert not [word for word in ("hunter2", *s3_server.secrets) if word in "".join(told)]
