from __future__ import annotations

import re
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tasks.support.errors import DataError, RemoteChangedError, UsageError
from tasks.support.store import open_store
from tasks.wheels import layout
from tasks.wheels.distribution import read_facts
from tasks.wheels.index import Index
from tasks.wheels.state import ProjectState, TimeSource
from tasks.wheels.upload import CommitTime, Standing, UploadPlan, best_time, check_labels, execute_upload, plan_upload
from tests.factory_index import RULES, commit, held, index_of, time_of, upload
from tests.faults import Counting, Meddling, broken, tree
from tests.wheel_factory import make_sdist, make_wheel


@pytest.fixture
def index(tmp_path: Path) -> Index:
    return index_of(Counting(open_store(str(tmp_path / "store"))))


def log(index: Index) -> Counting:
    assert isinstance(index.store, Counting)
    return index.store


def planned(index: Index, *paths: Path, number: int = 1) -> UploadPlan:
    facts = [read_facts(path, index.rules.variants) for path in paths]
    return plan_upload(index, commit(number), time_of(number), facts)


def test_publishing_order_is_wheel_sidecar_state_project_pages_root_page(index: Index, tmp_path: Path) -> None:
    execute_upload(index, planned(index, make_wheel(tmp_path)))
    folder = commit(1)
    kinds = {
        f"{folder}/sample-1.0-py3-none-any.whl": 0,
        f"{folder}/sample-1.0-py3-none-any.whl.metadata": 1,
        layout.project_state("sample"): 2,
        layout.view_state(folder): 3,
        f"{folder}/sample/index.html": 4,
        f"{folder}/json/sample/index.json": 4,
        f"{folder}/sample/metadata.json": 4,
        f"{folder}/sample/browse.html": 4,
        f"{folder}/index.html": 5,
        f"{folder}/json/index.json": 5,
        f"{folder}/browse.html": 5,
        layout.BROWSE: 6,
    }
    order = [kinds[key] for key in log(index).changes]
    assert order == sorted(order)
    assert set(log(index).changes) == set(kinds)


def test_the_same_upload_again_reads_no_wheel_and_writes_nothing(index: Index) -> None:
    upload(index, 1, ("sample", "1.0"), ("other", "2.0+cu130"))
    log(index).log.clear()
    report = upload(index, 1, ("sample", "1.0"), ("other", "2.0+cu130"))
    assert [plan.standing for plan in report.plan.files] == [Standing.PUBLISHED] * 2
    assert log(index).changes == []
    assert log(index).keys("stream") == []
    assert not [key for key in log(index).keys("head", "get") if key.endswith((".whl", ".metadata"))]


def test_an_upload_reads_nothing_of_the_wheels_already_published(index: Index) -> None:
    for number in range(5):
        upload(index, 1, ("sample", f"1.{number}"))
    log(index).log.clear()
    upload(index, 1, ("sample", "2.0"))
    asked = log(index).keys("head", "get", "stream", "list")
    assert not [key for key in asked if "/sample-1." in key]
    assert [key for key in asked if key.startswith(commit(1))]


def test_other_bytes_under_a_published_name_are_refused_before_anything_is_written(
    index: Index, tmp_path: Path
) -> None:
    upload(index, 1, ("sample", "1.0"))
    before = tree(index.store)
    log(index).log.clear()
    other = make_wheel(tmp_path, files={"sample/more.py": b""})
    new = make_wheel(tmp_path, version="1.1")
    with pytest.raises(DataError, match=r"sample-1\.0-py3-none-any\.whl is already published with other bytes"):
        planned(index, new, other)
    assert log(index).changes == []
    assert tree(index.store) == before
    assert planned(index, other, number=2).missing


def test_other_bytes_that_a_killed_upload_left_unrecorded_are_refused(index: Index, tmp_path: Path) -> None:
    index.store.put(f"{commit(1)}/sample-1.0-py3-none-any.whl", b"other", layout.DISTRIBUTION, expected=None)
    with pytest.raises(DataError, match="other bytes"):
        execute_upload(index, planned(index, make_wheel(tmp_path)))
    assert index.project("sample").state == ProjectState("sample")


@pytest.mark.parametrize("lost", [False, True])
def test_a_wheel_that_is_replaced_after_it_was_read_is_not_published(index: Index, tmp_path: Path, lost: bool) -> None:
    first = make_wheel(tmp_path, files={"sample/x": b"0"})
    if lost:
        execute_upload(index, planned(index, first))
        index.store.delete(f"{commit(1)}/{first.name}")
    before = tree(index.store)
    plan = planned(index, make_wheel(tmp_path, version="1.1"), first)
    data = first.read_bytes()
    first.with_name("other").write_bytes(data.replace(b"sample/x", b"sample/y"))
    first.with_name("other").replace(first)
    with pytest.raises(DataError, match=re.escape(str(first))):
        execute_upload(index, plan)
    after = tree(index.store)
    assert {key: after[key] for key in before} == before
    assert f"{commit(1)}/{first.name}" not in after
    first.write_bytes(data)
    execute_upload(index, plan)
    assert broken(index.store) == []


def test_a_wheel_that_a_killed_upload_left_unrecorded_is_taken(index: Index, tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path)
    index.store.put(f"{commit(1)}/{wheel.name}", wheel.read_bytes(), layout.DISTRIBUTION, expected=None)
    execute_upload(index, planned(index, wheel))
    assert broken(index.store) == []
    assert held(index, commit(1)) == [f"{commit(1)}/{wheel.name}"]


SPELLINGS = [
    {"version": "1.0.0"}, {"version": "1.0", "filename": "Sample-1.0-py3-none-any.whl"},
    {"version": "1.0", "filename": "sample-1.0-PY3-none-any.whl"}, {"version": "v1.0"}, {"version": "01.0"},
    {"version": "1.0", "filename": "sample-1.0-py3-None-Any.whl", "files": {"sample/more.py": b""}},
]  # fmt: skip


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("later", [False, True])
def test_one_commit_has_one_spelling_of_a_distribution(
    index: Index, tmp_path: Path, spelling: dict[str, Any], later: bool
) -> None:
    first, second = make_wheel(tmp_path / "a"), make_wheel(tmp_path / "b", **spelling)
    meanwhile = planned(index, second)
    if later:
        execute_upload(index, planned(index, first))
    with pytest.raises(DataError, match="two spellings") as caught:
        planned(index, second) if later else planned(index, first, second)
    assert first.name in caught.value.message
    assert second.name in caught.value.message
    if later:
        with pytest.raises(DataError, match="two spellings"):
            execute_upload(index, meanwhile)
        assert held(index, commit(1)) == [f"{commit(1)}/{first.name}"]
        assert planned(index, first).missing == ()
    assert planned(index, second, number=2).missing


def test_build_tags_tags_and_kinds_tell_files_apart(index: Index, tmp_path: Path) -> None:
    made = [make_wheel(tmp_path), make_wheel(tmp_path, build="1"), make_wheel(tmp_path, build="2")]
    made += [make_wheel(tmp_path, tag="py2-none-any"), make_wheel(tmp_path, version="1.0+cu130"), make_sdist(tmp_path)]
    execute_upload(index, planned(index, *made))
    assert held(index, commit(1)) == sorted(f"{commit(1)}/{path.name}" for path in made)
    assert broken(index.store) == []


def test_two_files_of_one_name_with_other_bytes_are_refused(index: Index, tmp_path: Path) -> None:
    same = [make_wheel(tmp_path / "a"), make_wheel(tmp_path / "b")]
    assert len(planned(index, *same).files) == 2
    other = make_wheel(tmp_path / "c", files={"sample/more.py": b""})
    with pytest.raises(DataError, match="two files have the name"):
        planned(index, same[0], other)


@pytest.mark.parametrize("name", ["json", "cu130", "npu", "rocm", "musa", "cpu"])
def test_a_project_named_like_a_folder_of_the_index_is_refused(index: Index, tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match="may not be called"):
        planned(index, make_wheel(tmp_path, name=name))


@pytest.mark.parametrize(
    "text", ["", "a" * 39, "a" * 41, "A" * 40, "g" * 40, "a" * 39 + "\n", "nightly", "../" + "a" * 37]
)
def test_a_commit_that_is_not_one_is_refused(index: Index, tmp_path: Path, text: str) -> None:
    facts = [read_facts(make_wheel(tmp_path), index.rules.variants)]
    with pytest.raises(UsageError, match="not a full commit hash"):
        plan_upload(index, text, None, facts)


def test_nothing_to_upload_is_refused(index: Index) -> None:
    with pytest.raises(UsageError, match="nothing to upload"):
        plan_upload(index, commit(1), None, [])


@pytest.mark.parametrize("first", ["1.0", "1.0+cu130"])
def test_an_alias_and_its_real_variant_in_one_commit_are_refused_and_named(index: Index, first: str) -> None:
    from dataclasses import replace

    aliased = Index(index.store, replace(RULES, alias_of_default="cu130"))
    second = "1.0" if first != "1.0" else "1.0+cu130"
    with pytest.raises(DataError, match=r"cu130.*default"):
        upload(aliased, 1, ("sample", first), ("sample", second))
    upload(aliased, 1, ("sample", first))
    log(index).log.clear()
    with pytest.raises(DataError, match=r"sample-1\.0\+cu130.*sample-1\.0-py3"):
        upload(aliased, 1, ("sample", second))
    assert log(index).changes == []


def test_an_sdist_has_no_sidecar_and_lies_beside_the_wheel(index: Index, tmp_path: Path) -> None:
    execute_upload(index, planned(index, make_wheel(tmp_path), make_sdist(tmp_path)))
    assert index.store.head(f"{commit(1)}/sample-1.0.tar.gz.metadata") is None
    assert len(held(index, commit(1))) == 2
    assert broken(index.store) == []


def test_a_project_without_files_in_the_commit_is_not_listed(index: Index) -> None:
    upload(index, 1, ("sample", "1.0"))
    upload(index, 2, ("other", "1.0"))
    page = index.store.get(f"{commit(2)}/index.html")
    assert page is not None
    assert b"sample" not in page.data


def test_uploads_to_one_commit_at_once_lose_nothing(index: Index) -> None:
    together = threading.Barrier(8)

    def run(number: int) -> None:
        own = index_of(open_store(index.store.url))
        together.wait()
        upload(own, 1, ("sample", f"1.0.dev{number}+cu129"), ("other", f"1.{number % 2}"))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(run, range(8)))
    assert len(held(index, commit(1))) == 10
    assert broken(index.store) == []
    quiet = tree(index.store)
    upload(index, 1, ("sample", "1.0.dev0+cu129"))
    assert tree(index.store) == quiet, "the pages were those of the newest state"


def test_files_that_are_pruned_during_the_upload_are_not_reported_as_there(index: Index) -> None:
    upload(index, 1, ("sample", "1.0"))

    def prune(_method: str, key: str) -> None:
        if key.endswith("sample-2.0-py3-none-any.whl"):
            gone = frozenset([f"{commit(1)}/sample-1.0-py3-none-any.whl"])
            index.change_project("sample", lambda state: state.with_files({}, gone))

    with pytest.raises(RemoteChangedError, match=r"sample-1\.0.*was pruned during the upload"):
        upload(index_of(Meddling(index.store, before=prune)), 1, ("sample", "1.0"), ("sample", "2.0"))


GIT, GIVEN, UPLOADED = (
    CommitTime("2026-01-03T00:00:00.000000Z", TimeSource.GIT),
    CommitTime("2026-01-02T00:00:00.000000Z", TimeSource.GIVEN),
    CommitTime("2026-01-01T00:00:00.000000Z", TimeSource.UPLOAD),
)


@pytest.mark.parametrize(
    ("times", "best"),
    [([UPLOADED, GIVEN, GIT], GIT), ([UPLOADED, GIVEN], GIVEN), ([UPLOADED], UPLOADED), ([GIT, UPLOADED], GIT)],
)
def test_a_commits_time_is_gits_else_the_given_else_the_first_uploads(
    index: Index, times: list[CommitTime], best: CommitTime
) -> None:
    for number, time in enumerate(times):
        upload(index, 1, ("sample", f"1.{number}"), time=time)
    assert best_time(index.project("sample").state.files.values()) == best
    assert best_time([]) is None


@pytest.mark.parametrize("ending", ["", ".metadata"])
@pytest.mark.parametrize("damage", ["gone", "cut"])
def test_a_published_file_that_is_not_there_whole_is_put_again(
    index: Index, tmp_path: Path, damage: str, ending: str
) -> None:
    wheel = make_wheel(tmp_path)
    upload = planned(index, wheel)
    execute_upload(index, upload)
    before = tree(index.store)
    key = f"{commit(1)}/{wheel.name}{ending}"
    index.store.delete(key)
    if damage == "cut":
        index.store.put(key, b"PK", layout.headers_for(key), expected=None)

    repair = planned(index, wheel)
    assert [file.standing for file in repair.files] == [Standing.LOST]
    execute_upload(index, repair)
    assert tree(index.store) == before
    assert [file.standing for file in planned(index, wheel).files] == [Standing.PUBLISHED]


@pytest.mark.parametrize(
    ("version", "fits"),
    [
        ("1.0", True),
        ("1.0.dev3+g1000000", True),
        ("1.0.dev3+g1000000.rocm", True),
        ("1.0.dev3+g2000000", False),
        ("1.0.dev3+g2000000.d20260101.rocm", False),
        ("1.0+gpu", True),
    ],
)
def test_a_version_that_names_another_commit_is_refused(tmp_path: Path, version: str, fits: bool) -> None:
    facts = [read_facts(make_wheel(tmp_path, version=version), ())]
    if fits:
        check_labels(commit(1), facts)
    else:
        with pytest.raises(DataError, match="was built from commit 2000000"):
            check_labels(commit(1), facts)
