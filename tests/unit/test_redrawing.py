from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tasks.support.errors import DataError
from tasks.support.store import open_store
from tasks.wheels import layout
from tasks.wheels.index import Index
from tasks.wheels.redrawing import plan_redraw, redraw_all
from tests.factory_index import RULES, commit, index_of, move, nightly, upload
from tests.faults import Counting, broken, tree


@pytest.fixture
def index(tmp_path: Path) -> Index:
    index = index_of(Counting(open_store(str(tmp_path / "store"))))
    nightly(index, 1, ("sample", "0.1"), ("sample", "0.1+cu130"), ("other", "0.1"))
    nightly(index, 2, ("sample", "0.2"), ("wee", "7"))
    move(index, "v0.1", 1)
    upload(index, 3, ("other", "0.3+rocm7.2"))
    return index


def changes(index: Index) -> list[str]:
    assert isinstance(index.store, Counting)
    found = index.store.changes
    index.store.log.clear()
    return found


def test_nothing_changed_nothing_written_and_no_wheel_read(index: Index) -> None:
    changes(index)
    assert redraw_all(index).written == ()
    assert isinstance(index.store, Counting)
    assert not [key for key in index.store.keys("get", "head", "stream") if key.endswith((".whl", ".metadata"))]
    assert changes(index) == []


@pytest.mark.slow
def test_every_page_is_made_anew_from_the_state_byte_for_byte(index: Index) -> None:
    before = tree(index.store)
    pages = [key for key in before if key.endswith((".html", ".json")) and not key.startswith("_")]
    for number, key in enumerate(pages):
        if number % 2:
            index.store.delete(key)
        else:
            index.store.put(key, b"damaged", layout.headers_for(key), expected=None)
    left_over = ["nightly/gone/index.html", f"{commit(1)}/rocm/json/sample/index.json", "v0.1/other/x/browse.html"]
    for key in left_over:
        index.store.put(key, b"left over", layout.headers_for(key), expected=None)
    drawn = redraw_all(index)
    assert sorted(drawn.written) == sorted(pages)
    assert sorted(drawn.deleted) == sorted(left_over)
    assert tree(index.store) == before
    assert broken(index.store) == []


def test_what_is_no_page_and_what_is_in_no_view_is_left_alone(index: Index) -> None:
    others = ["nightly/notes.txt", "docs/index.html", "_ledger/nightly/1.json", f"{commit(9)}/index.html"]
    for key in others:
        index.store.put(key, b"somebody's", layout.PLAIN_JSON, expected=None)
    redraw_all(index)
    assert all(index.store.head(key) is not None for key in others)


def test_another_rule_changes_the_pages(index: Index) -> None:
    changed = Index(index.store, replace(RULES, alias_of_default="cu129"))
    assert f"{commit(1)}/cu129/sample/index.html" in redraw_all(changed).written
    assert broken(index.store) == []
    assert f"{commit(1)}/cu129/sample/index.html" in redraw_all(index).deleted


def test_one_view_that_cannot_be_drawn_does_not_keep_the_others_from_it(index: Index) -> None:
    key = f"{commit(1)}/sample-0.1-py3-none-any.whl"
    index.change_project("sample", lambda state: state.with_files({}, frozenset([key])))
    index.store.delete("nightly/index.html")
    with pytest.raises(DataError, match=rf"1 of 5 views .* v0\.1: no longer in the store: {commit(1)}"):
        redraw_all(index)
    assert index.store.head("nightly/index.html") is not None


def test_the_plan_names_exactly_what_a_redraw_writes_and_deletes(index: Index) -> None:
    assert plan_redraw(index).actions() == []
    index.store.delete("nightly/index.html")
    index.store.put("v0.1/index.html", b"somebody's", layout.HTML, expected=None)
    index.store.put("v0.1/gone/index.html", b"left over", layout.HTML, expected=None)
    index.store.delete(layout.BROWSE)
    before = tree(index.store)
    plan = plan_redraw(index)
    assert tree(index.store) == before
    assert plan.actions() == [
        ("draw pages", "nightly/", "1 page to write"),
        ("draw pages", "v0.1/", "1 page to write"),
        ("delete page", "v0.1/gone/index.html", "left over: nothing asks for it"),
        ("draw page", layout.BROWSE, "it differs"),
    ]
    drawn = redraw_all(index)
    assert set(drawn.written) == {"nightly/index.html", "v0.1/index.html", layout.BROWSE}
    assert drawn.deleted == ("v0.1/gone/index.html",)
    assert plan_redraw(index).actions() == []


def test_the_plan_ends_in_the_error_that_the_redraw_ends_in(index: Index) -> None:
    key = f"{commit(1)}/sample-0.1-py3-none-any.whl"
    index.change_project("sample", lambda state: state.with_files({}, frozenset([key])))
    planned = plan_redraw(index)
    with pytest.raises(DataError) as caught:
        redraw_all(index)
    assert planned.error is not None
    assert planned.error.message == caught.value.message


def test_an_empty_store_gets_its_page(tmp_path: Path) -> None:
    index = index_of(open_store(str(tmp_path / "empty")))
    assert redraw_all(index).written == (layout.BROWSE,)
    assert redraw_all(index).written == ()
