from __future__ import annotations

import hashlib
import io
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tasks.support.errors import MissingInputError, RemoteChangedError, UsageError
from tasks.support.store import ObjectStore, Stored, open_store
from tasks.wheels import adopting, layout
from tasks.wheels.index import Index, timestamp
from tasks.wheels.ranged import BLOCK, RangedReader
from tasks.wheels.state import TimeSource
from tasks.wheels.upload import CommitTime
from tests.factory_index import RULES, commit, held, index_of, move, upload
from tests.faults import Counting, Wrapped, broken, memory_folder, run_killed, tree
from tests.scenarios import BIG, adopt, put_foreign
from tests.wheel_factory import BROKEN_WHEELS, make_sdist, make_wheel, write_zip


@pytest.fixture
def index(tmp_path: Path) -> Index:
    return index_of(Counting(open_store(str(tmp_path / "store"))))


def log(index: Index) -> Counting:
    assert isinstance(index.store, Counting)
    return index.store


def put(store: ObjectStore, number: int, path: Path) -> str:
    key = layout.distribution(commit(number), path.name)
    store.put_file(key, path, layout.DISTRIBUTION, expected=None)
    return key


def test_a_foreign_bucket_becomes_an_index(index: Index) -> None:
    put_foreign(index.store, 1, *BIG)
    put_foreign(index.store, 2, ("sample", "0.2"))
    report = adopt(index)
    assert len(report.adopted) == 4
    assert report.known == ()
    assert report.refused == ()
    assert broken(index.store) == []
    move(index, "nightly", 2)
    assert held(index, "nightly") == [f"{commit(2)}/sample-0.2-py3-none-any.whl"]


def test_the_second_spelling_of_a_distribution_is_not_adopted(index: Index) -> None:
    put_foreign(index.store, 1, ("sample", "1.0"), ("sample", "1.0.0"), ("sample", "1.1"))
    report = adopt(index)
    assert [key.partition("/")[2] for key in report.adopted] == [f"sample-1.{n}-py3-none-any.whl" for n in ("0", "1")]
    (key, reason), *_ = report.refused
    assert key.endswith("sample-1.0.0-py3-none-any.whl")
    assert "two spellings" in reason
    assert broken(index.store) == []


def test_an_adopted_file_is_what_an_uploaded_one_is(index: Index, tmp_path: Path) -> None:
    uploaded = index_of(open_store(str(tmp_path / "other")))
    time = CommitTime("2026-01-01T00:00:00.000000Z", TimeSource.GIT)
    upload(uploaded, 1, *BIG, time=time)
    put_foreign(index.store, 1, *BIG)
    adopting.execute_adopt(index, adopting.plan_adopt(index), lambda _commit: time)
    assert tree(index.store) == tree(uploaded.store), "except for the upload times"


def test_times_are_the_objects_and_a_known_file_keeps_its_own(index: Index) -> None:
    upload(index, 1, ("sample", "1.0"))
    first = "2026-01-01T00:00:00.000000Z"
    index.change_project(
        "sample",
        lambda state: state.with_files({k: replace(r, uploaded=first) for k, r in state.files.items()}),
    )
    put_foreign(index.store, 1, ("sample", "1.1"))
    put_foreign(index.store, 2, ("sample", "1.2"))
    adopt(index)
    files = index.project("sample").state.files
    assert files[f"{commit(1)}/sample-1.0-py3-none-any.whl"].uploaded == first
    for number, version in ((1, "1.1"), (2, "1.2")):
        key = f"{commit(number)}/sample-{version}-py3-none-any.whl"
        stored = index.store.head(key)
        assert stored is not None
        assert files[key].uploaded == timestamp(stored.modified)
    alone = files[f"{commit(2)}/sample-1.2-py3-none-any.whl"]
    assert (alone.commit_time, alone.commit_time_from) == (alone.uploaded, "upload")


def test_each_wheel_is_hashed_once_ever_and_known_ones_are_not_touched(index: Index) -> None:
    upload(index, 3)
    put_foreign(index.store, 1, *BIG)
    plan = adopting.plan_adopt(index)
    done: list[int] = []
    log(index).log.clear()
    adopting.execute_adopt(index, plan, progress=done.append)
    assert sum(done) == plan.size == sum(stored.size for stored in plan.new)
    for stored in plan.new:
        assert log(index).streamed[stored.key] <= stored.size * 2, "once for the hash, and its end for the metadata"
    assert not [key for key in log(index).keys("stream", "get") if key.startswith(f"{commit(3)}/sample-")]
    log(index).log.clear()
    log(index).streamed.clear()
    report = adopt(index)
    assert report.adopted == ()
    assert len(report.known) == 4
    assert log(index).changes == []
    assert log(index).streamed == {}


@pytest.mark.slow
@pytest.mark.parametrize("make", BROKEN_WHEELS, ids=lambda make: make.__name__)
def test_a_broken_wheel_is_reported_and_the_others_are_adopted(index: Index, tmp_path: Path, make: object) -> None:
    assert callable(make)
    bad = put(index.store, 1, make(tmp_path))
    good = put(index.store, 1, make_wheel(tmp_path, name="good"))
    put(index.store, 2, make_wheel(tmp_path, name="other"))
    report = adopt(index)
    assert [key for key, _ in report.refused] == [bad]
    assert good in report.adopted
    assert len(report.adopted) == 2
    error = adopting.report_error(report)
    assert error is not None
    assert error.exit_code == 65
    assert bad in error.message
    assert index.store.head(f"{bad}.metadata") is None
    assert log(index).streamed.get(bad, 0) <= 2 * 10**6, "a broken wheel is not hashed"
    assert broken(index.store) == []


@pytest.mark.parametrize(
    "name", ["sample.whl", "sample-1.0.whl", "sam ple-1.0-py3-none-any.whl", "sample-x-py3-none-any.whl"]
)
def test_a_name_that_is_no_wheels_is_reported(index: Index, tmp_path: Path, name: str) -> None:
    index.store.put(f"{commit(1)}/{name}", make_wheel(tmp_path).read_bytes(), layout.DISTRIBUTION, expected=None)
    assert [key for key, _ in adopt(index).refused] == [f"{commit(1)}/{name}"]


def test_a_commit_of_broken_wheels_only_keeps_its_foreign_pages(index: Index) -> None:
    index.store.put(f"{commit(1)}/bad-1.0-py3-none-any.whl", b"bad", layout.DISTRIBUTION, expected=None)
    index.store.put(f"{commit(1)}/index.html", b"foreign", layout.HTML, expected=None)
    adopt(index)
    page = index.store.get(f"{commit(1)}/index.html")
    assert page is not None
    assert page.data == b"foreign"


def test_foreign_pages_go_in_adopted_commits_only(index: Index) -> None:
    put_foreign(index.store, 1, ("sample", "1.0"))
    put_foreign(index.store, 2, ("sample", "2.0"))
    others = ["nightly/index.html", "v1.0/sample/index.html", f"{commit(2)}/rocm/index.html"]
    for key in others:
        index.store.put(key, b"<html></html>", layout.HTML, expected=None)
    adopt(index, commit(1))
    assert index.store.head(f"{commit(1)}/rocm/index.html") is None
    for key in others:
        page = index.store.get(key)
        assert page is not None
        assert page.data == b"<html></html>"


def test_a_foreign_sidecar_with_other_bytes_is_replaced_and_a_right_one_kept(index: Index, tmp_path: Path) -> None:
    first, second = make_wheel(tmp_path, name="first"), make_wheel(tmp_path, name="second")
    for path in (first, second):
        put(index.store, 1, path)
    upload(index, 2, ("first", "1.0"))
    right = index.store.get(f"{commit(2)}/{first.name}.metadata")
    assert right is not None
    index.store.put(f"{commit(1)}/{first.name}.metadata", right.data, layout.METADATA, expected=None)
    index.store.put(f"{commit(1)}/{second.name}.metadata", b"wrong", layout.METADATA, expected=None)
    log(index).log.clear()
    adopt(index)
    sidecars = [key for key in log(index).changes if key.endswith(".metadata")]
    assert sidecars == [f"{commit(1)}/{second.name}.metadata"]
    assert broken(index.store) == []


def test_a_variant_beside_its_alias_is_refused(index: Index) -> None:
    put_foreign(index.store, 1, ("sample", "1.0"), ("sample", "1.0+cu130"), ("other", "1.0"))
    report = adopt(Index(index.store, replace(RULES, alias_of_default="cu130")))
    assert len(report.refused) == 1
    assert len(report.adopted) == 2
    assert broken(index.store) == []


@pytest.mark.parametrize("name", ["json", "cu130"])
def test_a_project_named_like_a_folder_of_the_index_is_refused(index: Index, tmp_path: Path, name: str) -> None:
    key = put(index.store, 1, make_wheel(tmp_path, name=name))
    report = adopt(index)
    assert [refused for refused, _ in report.refused] == [key]


def test_sdists_are_taken_on_request_only(index: Index, tmp_path: Path) -> None:
    put(index.store, 1, make_wheel(tmp_path))
    sdist = put(index.store, 1, make_sdist(tmp_path))
    assert sdist not in adopt(index).adopted
    report = adopting.execute_adopt(index, adopting.plan_adopt(index, sdists=True))
    assert report.adopted == (sdist,)
    assert index.store.head(f"{sdist}.metadata") is None
    assert broken(index.store) == []


def test_only_files_directly_in_commit_folders_count(index: Index, tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path).read_bytes()
    for folder in ("nightly", "v1.0", commit(1) + "/deep", "abc", "A" * 40):
        index.store.put(f"{folder}/sample-1.0-py3-none-any.whl", wheel, layout.DISTRIBUTION, expected=None)
    index.store.put(f"{commit(1)}/notes.txt", b"", layout.PLAIN_JSON, expected=None)
    assert adopting.plan_adopt(index).actions() == []


def test_a_given_commit_must_have_wheels_and_be_one(index: Index) -> None:
    with pytest.raises(MissingInputError, match=commit(1)):
        adopting.plan_adopt(index, [commit(1)])
    with pytest.raises(UsageError):
        adopting.plan_adopt(index, ["nightly"])


def test_what_a_prune_is_removing_is_left_alone(index: Index) -> None:
    put_foreign(index.store, 1, ("sample", "1.0"))
    put_foreign(index.store, 2, ("sample", "2.0"))
    index.store.put(layout.pruning(commit(1)), b"{}", layout.PLAIN_JSON, expected=None)
    with pytest.raises(RemoteChangedError, match="being removed"):
        adopting.plan_adopt(index, [commit(1)])
    assert adopt(index).adopted == (f"{commit(2)}/sample-2.0-py3-none-any.whl",)


def test_an_object_that_changes_while_it_is_read_is_refused(index: Index, tmp_path: Path) -> None:
    key = put(index.store, 1, make_wheel(tmp_path))
    other = make_wheel(tmp_path / "b", files={"sample/more.py": b"1"}).read_bytes()

    class Changing(Wrapped):
        def stream(self, key: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
            yield from super().stream(key, start, end)
            if end is None:
                self.put(key, other, layout.DISTRIBUTION, expected=None)

    report = adopt(index_of(Changing(index.store)))
    assert [refused for refused, _ in report.refused] == [key]
    assert "was changed" in report.refused[0][1]
    assert adopt(index).adopted == (key,)
    assert broken(index.store) == []


def test_a_stopped_run_does_not_read_again_what_it_recorded() -> None:
    with memory_folder() as folder:
        store = open_store(str(folder / "store"))
        for number in (1, 2, 3):
            put_foreign(store, number, ("sample", f"0.{number}"))
        url = store.url
        # The first commit's sidecar and state were written, and the second one's sidecar.
        assert run_killed(url, 3, lambda store: adopt(index_of(store)))
        again = Counting(open_store(url))
        report = adopt(index_of(again))
        assert report.known == (f"{commit(1)}/sample-0.1-py3-none-any.whl",)
        assert report.known[0] not in again.streamed
        assert broken(again) == []
        assert len(report.adopted) == 2


# The reader


class _Memory(Wrapped):
    """One object of given bytes, with a log of the ranges that were asked for."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.ranges: list[tuple[int, int]] = []

    def stream(self, key: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        assert end is not None
        self.ranges.append((start, end))
        yield self.data[start:end]

    @property
    def stored(self) -> Stored:
        from datetime import UTC, datetime

        return Stored("key", len(self.data), "etag", datetime.now(UTC))


@pytest.mark.parametrize("size", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 17])
def test_the_reader_reads_what_a_file_reads(size: int) -> None:
    chance = random.Random(size)
    data = chance.randbytes(size)
    reader, file = RangedReader(_Memory(data), _Memory(data).stored), io.BytesIO(data)
    for _ in range(300):
        whence = chance.choice([io.SEEK_SET, io.SEEK_CUR, io.SEEK_END])
        position = file.tell()
        base = {io.SEEK_SET: 0, io.SEEK_CUR: position, io.SEEK_END: size}[whence]
        offset = chance.randint(-base, size + 10 - base)
        assert reader.seek(offset, whence) == file.seek(offset, whence)
        length = chance.choice([-1, 0, 1, 100, BLOCK, 2 * BLOCK])
        assert reader.read(length) == file.read(length)
        assert reader.tell() == file.tell()
    with pytest.raises(OSError, match="seek"):
        reader.seek(-1)


def test_metadata_takes_few_requests_and_little_of_the_wheel(tmp_path: Path) -> None:
    from tasks.wheels.distribution import facts_from_reader

    wheel = make_wheel(tmp_path)
    big = random.Random(1).randbytes(12 * BLOCK)
    import zipfile

    with zipfile.ZipFile(wheel) as archive:
        members = [(name, archive.read(name)) for name in archive.namelist()]
    # METADATA at the front is the worst order; there is a large member and a long directory behind it.
    members = [*members[::-1], ("sample/big.bin", big), *((f"sample/{n:0200}", b"") for n in range(2000))]
    write_zip(wheel, members)
    store = _Memory(wheel.read_bytes())
    reader = RangedReader(store, store.stored)
    facts_from_reader(wheel.name, store.stored.size, reader, hashlib.sha256().hexdigest(), ())  # type: ignore[arg-type]
    assert len(store.ranges) <= 4
    assert sum(end - start for start, end in store.ranges) < len(store.data) / 2


def test_a_directory_that_claims_to_be_huge_is_not_read() -> None:
    store = _Memory(b"")
    reader = RangedReader(store, replace(store.stored, size=2**40))
    with pytest.raises(OSError, match="at once"):
        reader.read()
    assert store.ranges == []
