"""What the index does when others write, die or come later, on a folder and on a real S3 server."""

from __future__ import annotations

import hashlib
import random
import secrets
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from tasks.support.store import ObjectStore, open_store
from tasks.support.store_s3 import Limits, S3Store
from tasks.wheels import layout
from tasks.wheels.redrawing import redraw_all
from tests.factory_index import commit, index_of, move, nightly, rollback
from tests.faults import Counting, broken, every_kill, memory_folder, tree
from tests.scenarios import BIG, SCENARIOS, Scenario, adopt, prune, put_foreign, yank
from tests.wheel_factory import make_wheel


def test_the_whole_life_of_an_index(store_any: ObjectStore) -> None:
    index = index_of(Counting(store_any))
    put_foreign(store_any, 1, *BIG)
    assert len(adopt(index).adopted) == 3
    for number in (2, 3, 4):
        nightly(index, number)
        assert broken(store_any) == []
    move(index, "v0.1", 1)
    yank(index, "0.1", "broken")
    rollback(index, "nightly")
    assert broken(store_any) == []
    assert prune(index, keep=1).commits == (commit(4),)
    assert broken(store_any) == []
    assert isinstance(index.store, Counting)
    index.store.log.clear()
    assert redraw_all(index).written == ()
    assert index.store.changes == []
    assert adopt(index).adopted == ()
    assert index.store.changes == []
    page = store_any.head("nightly/sample/index.html")
    wheel = store_any.head(f"{commit(3)}/sample-0.3-py3-none-any.whl")
    assert page is not None
    assert wheel is not None
    if page.headers is not None:
        assert page.headers == layout.HTML
        assert wheel.headers == layout.DISTRIBUTION


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
@pytest.mark.service
@pytest.mark.timeout(900)
def test_a_kill_at_any_boundary_in_s3(scenario: Scenario, kill_step: int, s3_url: str) -> None:
    with memory_folder() as folder:
        base = open_store((folder / "base").as_uri())
        scenario.prepare(index_of(base))
        objects = {stored.key: blob.data for stored in base.list() if (blob := base.get(stored.key))}
        wheels = {key for key in objects if key.endswith(".whl")}
    with ThreadPoolExecutor(8) as pool:

        def prepare() -> str:
            url = f"{s3_url}/{secrets.token_hex(4)}"
            store = open_store(url)

            def put(key: str) -> None:
                store.put(key, objects[key], layout.headers_for(key), expected=None)

            # S3 counts whole seconds. Files that are adopted are ordered by their time and, at the same time, by key:
            # written in the order of their keys they come out in one order, wherever a second ends.
            for key in sorted(wheels):
                put(key)
            list(pool.map(put, objects.keys() - wheels))
            return url

        undisturbed = open_store(prepare())
        scenario.act(index_of(undisturbed))
        wanted = tree(undisturbed)
        for limit, store in every_kill(prepare, lambda store: scenario.act(index_of(store)), step=kill_step):
            assert broken(store) == [], f"killed after {limit} changes"
            scenario.act(index_of(store))
            assert broken(store) == [], f"killed after {limit} changes, then completed"
            assert tree(store) == wanted, f"killed after {limit} changes, then completed"


def test_two_prunes_and_an_upload_at_once(store_any: ObjectStore) -> None:
    index = index_of(store_any)
    for number in (1, 2, 3, 4):
        nightly(index, number)

    def run(act: int) -> None:
        own = index_of(open_store(store_any.url))
        if act:
            prune(own)
        else:
            nightly(own, 5)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(run, range(3)))
    assert broken(store_any) == []
    prune(index)
    assert broken(store_any) == []
    assert list(store_any.list(layout.PRUNINGS)) == []


@pytest.mark.service
def test_a_composite_checksum_is_never_taken_for_a_digest(s3_url: str, tmp_path: Path) -> None:
    """A large wheel that came in parts has an entity tag, and may have a checksum, that no client can check."""
    wheel = make_wheel(tmp_path, files={"sample/big.bin": random.Random(1).randbytes(12 << 20)})
    bucket, _, prefix = s3_url.removeprefix("s3://").partition("/")
    key = f"{commit(1)}/{wheel.name}"
    S3Store(bucket, prefix, limits=replace(Limits(), single_bytes=5 << 20, part_bytes=5 << 20)).put_file(
        key, wheel, layout.DISTRIBUTION, expected=None
    )
    store = Counting(open_store(s3_url))
    stored = store.head(key)
    assert stored is not None
    assert stored.etag.strip('"') != hashlib.md5(wheel.read_bytes()).hexdigest(), "it came in parts"
    index = index_of(store)
    assert adopt(index).adopted == (key,)
    assert index.project("sample").state.files[key].sha256 == hashlib.sha256(wheel.read_bytes()).hexdigest()
    assert broken(store) == []
    assert store.streamed[key] < stored.size + (1 << 20), "hashed once; of its metadata only the end was read"
