from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.support.errors import DataError
from tasks.wheels.state import FileRecord, ProjectState, Revision, ViewState

# What could be taken for the document's own structure.
TRICKY = ["", "},", '},"', '"},"', '{"a":{', "\\", '\\"', "},\n", "]}", "\u2028", "größer", '},"abc":{"']
TEXT = st.one_of(
    st.sampled_from(TRICKY), st.text(max_size=20), st.lists(st.sampled_from('{}[],:"\\a'), max_size=8).map("".join)
)


def record(key: str, yanked: str | None, requires_python: str | None = None) -> FileRecord:
    return FileRecord(
        key=key,
        version="1.0",
        size=1,
        sha256="0" * 64,
        uploaded="2026-01-01T00:00:00.000000Z",
        commit_time="2026-01-01T00:00:00.000000Z",
        commit_time_from="git",
        requires_python=requires_python,
        yanked=yanked,
    )


@given(st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=4))
def test_a_projects_state_reads_back_as_it_was_written(texts: list[tuple[str, str]]) -> None:
    files = {key: record(key, *pair) for number, pair in enumerate(texts) if (key := f"{number:040x}/a-1.0.whl")}
    state = ProjectState("a", 3, files)
    assert ProjectState.decode(state.encode(), "key") == state
    assert ProjectState.decode(state.encode(), "key").encode() == state.encode()


@given(TEXT, TEXT, st.sampled_from([None, "", "rocm"]), st.integers(0, 2**60))
def test_a_projects_state_is_plain_json_with_sorted_names(key: str, text: str, variant: str | None, size: int) -> None:
    one = replace(record(key, text or None, text), variant=variant, size=size, version=text, metadata_sha256=variant)
    row = {name: value for name, value in asdict(one).items() if name != "key" and value is not None}
    document = {"format": 1, "project": text, "revision": 3, "files": {key: row}}
    plain = json.dumps(document, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    assert ProjectState(text, 3, {key: one}).encode() == plain.replace('}},"format"', '}},\n"format"').encode() + b"\n"


@given(TEXT, st.dictionaries(TEXT, st.dictionaries(TEXT, st.integers(0, 9), max_size=3), max_size=3))
def test_a_views_state_reads_back_as_it_was_written(note: str, counts: dict[str, dict[str, int]]) -> None:
    files = {project: tuple(f"{project}/{variant}" for variant in sorted(row)) for project, row in counts.items()}
    revisions = tuple(
        Revision(number, "0" * 40, "time", "git", "time", note, counts, files if number % 2 else None, number - 1)
        for number in (1, 2, 10)
    )
    state = ViewState("nightly", revisions)
    assert ViewState.decode(state.encode(), "key") == state


def test_a_document_has_one_file_a_line() -> None:
    keys = [f"{number:040x}/a-1.0.whl" for number in range(5)]
    lines = ProjectState("a", 1, {key: record(key, "},") for key in keys}).encode().decode().splitlines()
    assert [line for line in lines if sum(key in line for key in keys) > 1] == []
    assert sum(key in line for line in lines for key in keys) == len(keys)


def test_the_order_in_which_files_came_does_not_show() -> None:
    keys = [f"{number:040x}/a-1.0.whl" for number in range(5)]
    files = {key: record(key, None) for key in keys}
    backwards = {key: files[key] for key in reversed(keys)}
    assert ProjectState("a", 1, files).encode() == ProjectState("a", 1, backwards).encode()


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b"null", b"\xff", b'{"format":1}', b'{"format":2,"project":"a"}', b"{" * 9]
)
def test_a_damaged_document_is_an_error_that_names_it(data: bytes) -> None:
    for kind in (ProjectState, ViewState):
        with pytest.raises(DataError, match=r"_state/x\.json"):
            kind.decode(data, "_state/x.json")
