from __future__ import annotations

import json
from collections.abc import Callable
from html import unescape
from pathlib import Path

import pytest

from tasks.support.errors import MissingInputError, UsageError
from tasks.support.store import open_store
from tasks.wheels import yanking
from tasks.wheels.index import Index
from tests.factory_index import commit, index_of, move, nightly, upload
from tests.faults import Counting, Meddling, broken, tree
from tests.scenarios import prune, yank

pytestmark = pytest.mark.slow  # together these take longer than the fast set may


@pytest.fixture
def index(tmp_path: Path) -> Index:
    index = index_of(Counting(open_store(str(tmp_path / "store"))))
    nightly(index, 1, ("sample", "0.1"), ("sample", "0.1+cu130"), ("other", "0.1"))
    nightly(index, 2, ("sample", "0.1"), ("sample", "0.1rc1"), ("sample", "10.1"))
    move(index, "v0.1", 1)
    return index


def yanked(index: Index) -> dict[str, str]:
    """Return commit and version of every yanked file, with the reason."""
    records = [record for name in index.project_names() for record in index.project(name).state.files.values()]
    return {f"{r.commit[0]}:{r.version}": r.yanked for r in records if r.yanked is not None}


@pytest.mark.parametrize(
    ("version", "wanted"),
    [
        ("0.1", {"1:0.1", "1:0.1+cu130", "2:0.1"}),
        ("0.1.0", {"1:0.1", "1:0.1+cu130", "2:0.1"}),
        ("0.1+cu130", {"1:0.1+cu130"}),
        ("0.1rc1", {"2:0.1rc1"}),
        ("10.1", {"2:10.1"}),
    ],
)
def test_a_version_without_a_local_part_means_its_variants_too(index: Index, version: str, wanted: set[str]) -> None:
    yank(index, version, "broken")
    assert yanked(index) == dict.fromkeys(wanted, "broken")
    assert broken(index.store) == []


def test_commit_and_file_narrow_it_down(index: Index) -> None:
    yank(index, "0.1", "a", commit=commit(1))
    assert yanked(index) == {"1:0.1": "a", "1:0.1+cu130": "a"}
    yank(index, "0.1", "b", files=("sample-0.1-py3-none-any.whl",))
    assert yanked(index) == {"1:0.1": "b", "1:0.1+cu130": "a", "2:0.1": "b"}
    yank(index, "0.1", None, commit=commit(1))
    assert yanked(index) == {"2:0.1": "b"}


@pytest.mark.parametrize("reason", ["", "broken", '<b>"quotes" & more</b>', "größer · 破損", "x" * 500])
def test_the_reason_reaches_every_page_of_every_view(index: Index, reason: str) -> None:
    yank(index, "0.1", reason, commit=commit(1))
    for view in (commit(1), "v0.1"):
        for root in (view, f"{view}/cu130"):
            page = index.store.get(f"{root}/sample/index.html")
            document = index.store.get(f"{root}/json/sample/index.json")
            assert page is not None
            assert document is not None
            for line in page.data.decode().splitlines():
                if "<a " in line:
                    assert f'data-yanked="{reason}"' in unescape(line)
            assert {row["yanked"] for row in json.loads(document.data)["files"]} == {reason or True}
    for untouched in (f"{commit(2)}/sample/index.html", "nightly/sample/index.html", f"{commit(1)}/other/index.html"):
        page = index.store.get(untouched)
        assert page is not None
        assert b"data-yanked" not in page.data
    assert broken(index.store) == []


def test_undoing_restores_every_page(index: Index) -> None:
    before = {key: data for key, data in tree(index.store).items() if not key.startswith("_")}
    yank(index, "0.1", "broken")
    yank(index, "0.1", None)
    assert {key: data for key, data in tree(index.store).items() if not key.startswith("_")} == before
    assert yanked(index) == {}


@pytest.mark.parametrize("reason", ["", "broken", None])
def test_the_same_again_writes_nothing(index: Index, reason: str | None) -> None:
    yank(index, "0.1", reason)
    assert isinstance(index.store, Counting)
    index.store.log.clear()
    yank(index, "0.1", reason)
    assert index.store.changes == []


def test_another_reason_replaces_the_first(index: Index) -> None:
    yank(index, "0.1", "")
    yank(index, "0.1", "why")
    assert set(yanked(index).values()) == {"why"}


def test_a_file_that_is_not_there_is_answered_with_those_of_its_version(index: Index) -> None:
    records = index.project("sample").state.files.values()
    for sha in (None, *sorted({record.commit for record in records})):
        with pytest.raises(MissingInputError, match="nothere") as caught:
            yank(index, "0.1", commit=sha, files=("nothere",))
        of_version = {r.filename for r in records if r.version.split("+")[0] == "0.1" and sha in (None, r.commit)}
        said = {name for name in (caught.value.hint or "").replace(",", " ").split() if name.endswith(".whl")}
        assert said == of_version


@pytest.mark.parametrize(
    ("project", "version", "commit_number", "files"),
    [
        ("sample", "0.2", None, ()),
        ("unknown", "0.1", None, ()),
        ("sample", "0.1", 3, ()),
        ("sample", "0.1", None, ("sample-0.1-py3-none-any.whl", "sample-0.9-py3-none-any.whl")),
        ("sample", "0.1rc1", None, ("sample-0.1-py3-none-any.whl",)),
    ],
)
def test_nothing_matched_is_missing_input(
    index: Index, project: str, version: str, commit_number: int | None, files: tuple[str, ...]
) -> None:
    before = tree(index.store)
    sha = None if commit_number is None else commit(commit_number)
    with pytest.raises(MissingInputError) as caught:
        yank(index, version, project=project, commit=sha, files=files)
    assert caught.value.exit_code == 66
    assert tree(index.store) == before


@pytest.mark.parametrize(
    ("project", "version", "sha", "reason", "undo"),
    [
        ("sample", "one", None, "", False),
        ("-sample", "1.0", None, "", False),
        ("sample", "1.0", "abc", "", False),
        ("sample", "1.0", None, "why", True),
        ("sample", "1.0", None, "two\nlines", False),
        ("sample", "1.0", None, "tab\there", False),
        ("sample", "1.0", None, "bell\x07", False),
        ("sample", "1.0", None, "line\u2028separator", False),
        ("sample", "1.0", None, "lone \ud800 surrogate", False),
        ("sample", "1.0", None, "x" * 501, False),
    ],
)
def test_what_makes_no_sense_is_a_usage_error(
    project: str, version: str, sha: str | None, reason: str, undo: bool
) -> None:
    with pytest.raises(UsageError):
        yanking.request(project, version, commit=sha, files=(), reason=reason, undo=undo)


def test_the_project_may_be_written_in_any_way(index: Index) -> None:
    yank(index, "0.1", "", project="SAMPLE", commit=commit(2))
    assert yanked(index) == {"2:0.1": ""}


def test_the_plan_names_files_and_views(index: Index) -> None:
    asked = yanking.request("sample", "0.1", commit=commit(1), files=(), reason="why", undo=False)
    keys = [key for _, key, _ in yanking.plan_yank(index, asked).actions()]
    assert keys == [
        f"{commit(1)}/sample-0.1+cu130-py3-none-any.whl",
        f"{commit(1)}/sample-0.1-py3-none-any.whl",
        f"{commit(1)}/sample/",
        "v0.1/sample/",
    ]


Act = Callable[[Index], object]


@pytest.mark.parametrize("place", [0, 1, 3])
@pytest.mark.parametrize(
    "act",
    [
        lambda index: upload(index, 1, ("sample", "0.2")),
        lambda index: move(index, "v0.1", 2),
        lambda index: nightly(index, 3, ("sample", "0.2")),
        prune,
    ],
    ids=["upload", "release", "nightly", "prune"],
)
def test_what_others_do_between_two_changes_of_a_yank_is_not_lost(index: Index, act: Act, place: int) -> None:
    seen: list[str] = []

    def hook(_method: str, key: str) -> None:
        seen.append(key)
        if len(seen) == place + 1:
            act(index)

    yank(index_of(Meddling(index.store, before=hook)), "0.1", "why")
    assert len(seen) > place, "the act ran"
    assert broken(index.store) == []
    for view in index.view_names():
        page = index.store.get(f"{view}/sample/index.html")
        assert page is not None
        for line in page.data.decode().splitlines():
            if "<a " in line:
                assert ("data-yanked" in line) == ("/sample-0.1-" in line or "/sample-0.1%2B" in line), (view, line)
