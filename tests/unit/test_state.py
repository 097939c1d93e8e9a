from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import packaging
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.support.errors import DataError
from tasks.wheels import layout, state_checks
from tasks.wheels.state import FileRecord, ProjectState, Revision, ViewState

# What could be taken for the document's own structure.
TRICKY = ["", "},", '},"', '"},"', '{"a":{', "\\", '\\"', "},\n", "]}", "\u2028", "größer", '},"abc":{"']
TEXT = st.one_of(
    st.sampled_from(TRICKY), st.text(max_size=20), st.lists(st.sampled_from('{}[],:"\\a'), max_size=8).map("".join)
)

NAMES = st.from_regex(r"[a-z0-9]{1,3}(-[a-z0-9]{1,3}){0,2}", fullmatch=True)
VARIANTS = st.sampled_from(["", "cu130", "rocm7.2", "cpu"])
COMMIT = "c" * 40
TIME = "2026-01-01T00:00:00.000000Z"
PROJECT, VIEW = layout.project_state("a"), layout.view_state("nightly")


def wheel(number: int) -> str:
    return f"{number:040x}/a-1.0-py3-none-any.whl"


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
    files = {key: record(key, *pair) for number, pair in enumerate(texts) if (key := wheel(number))}
    state = ProjectState("a", 3, files)
    assert ProjectState.decode(state.encode(), PROJECT) == state
    assert ProjectState.decode(state.encode(), PROJECT).encode() == state.encode()


@given(TEXT, TEXT, st.sampled_from([None, "rocm7.2"]), st.integers(0, 2**60))
def test_a_projects_state_is_plain_json_with_sorted_names(key: str, text: str, variant: str | None, size: int) -> None:
    one = replace(record(key, text or None, text), variant=variant, size=size, metadata_sha256=variant and "e" * 64)
    row = {name: value for name, value in asdict(one).items() if name != "key" and value is not None}
    document = {"format": 1, "project": text, "revision": 3, "files": {key: row}}
    plain = json.dumps(document, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    assert ProjectState(text, 3, {key: one}).encode() == plain.replace('}},"format"', '}},\n"format"').encode() + b"\n"


@given(TEXT, st.dictionaries(NAMES, st.dictionaries(VARIANTS, st.integers(0, 9), max_size=3), max_size=3))
def test_a_views_state_reads_back_as_it_was_written(note: str, counts: dict[str, dict[str, int]]) -> None:
    files = {
        name: tuple(f"{COMMIT}/{name.replace('-', '_')}-1+{label or 0}-py3-none-any.whl" for label in sorted(row))
        for name, row in counts.items()
    }
    revisions = tuple(
        Revision(number, COMMIT, TIME, "git", TIME, note, counts, files if number % 2 else None, number - 1)
        for number in (1, 2, 10)
    )
    state = ViewState("nightly", revisions)
    assert ViewState.decode(state.encode(), VIEW) == state


def test_a_document_has_one_file_a_line() -> None:
    keys = [f"{number:040x}/a-1.0-py3-none-any.whl" for number in range(5)]
    lines = ProjectState("a", 1, {key: record(key, "},") for key in keys}).encode().decode().splitlines()
    assert [line for line in lines if sum(key in line for key in keys) > 1] == []
    assert sum(key in line for line in lines for key in keys) == len(keys)


def test_the_order_in_which_files_came_does_not_show() -> None:
    keys = [f"{number:040x}/a-1.0-py3-none-any.whl" for number in range(5)]
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


# One wrong thing in a right document

REVISION_1 = Revision(1, COMMIT, TIME, "git", TIME, "upload", {"a": {"": 1}})


def whole(key: str) -> Any:
    """Return a valid document with every kind of fact."""
    one = record(f"{COMMIT}/a-1.0-py3-none-any.whl", "broken", ">=3.8")
    two = replace(
        record(f"{COMMIT}/a-1.0+cu130-py3-none-any.whl", None), version="1!1.0rc1.post2.dev3+g1.cu130", variant="cu130"
    )
    files = {one.key: replace(one, metadata_sha256="a" * 64), two.key: two}
    keys = tuple(sorted(files))
    first = Revision(1, COMMIT, TIME, "git", TIME, "upload", {"a": {"": 1, "cu130": 1}}, {"a": keys})
    view = ViewState("nightly", (first, replace(first, number=2, files=None, restores=1)))
    return json.loads((ProjectState("a", 3, files) if key == PROJECT else view).encode())


def decode(key: str, document: Any) -> ProjectState | ViewState:
    return (ProjectState if key == PROJECT else ViewState).decode(json.dumps(document).encode(), key)


def places(item: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the way to every value of a document."""
    yield path
    for name in item if isinstance(item, dict) else range(len(item)) if isinstance(item, list) else ():
        yield from places(item[name], (*path, name))


def changed(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    parent = document
    for name in path[:-1]:
        parent = parent[name]
    parent[path[-1]] = value
    return document


WRONG: list[object] = [
    None,
    True,
    -1,
    1.5,
    2**64,
    "",
    "x",
    "<script>",
    "\ud800",
    "1.0\n1.0",
    "9" * 5000,
    TIME.replace("01", "13"),
    [],
    [None],
    {},
]
JUNK = st.sampled_from(WRONG) | st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=4,
)


@given(st.data(), st.sampled_from([PROJECT, VIEW]), JUNK, TEXT, st.sampled_from(["value", "gone", "name"]))
def test_one_wrong_thing_is_read_in_its_right_shape_or_refused(
    data: st.DataObject, key: str, junk: object, name: str, how: str
) -> None:
    document = whole(key)
    path = data.draw(st.sampled_from([*places(document)]))
    if how == "value" or not path or isinstance(path[-1], int):
        document = changed(document, path, junk)
    else:
        parent = document
        for step in path[:-1]:
            parent = parent[step]
        value = parent.pop(path[-1])
        if how == "name":
            parent[name] = value
    try:
        state = decode(key, document)
    except DataError as error:
        refused = error.message
    else:
        refused = key
        again = (ProjectState if key == PROJECT else ViewState).decode(state.encode(), key)
        assert again == state
    assert key in refused
    assert "\n" not in refused
    refused.encode()


FILE = ("files", f"{COMMIT}/a-1.0-py3-none-any.whl")
REVISION = ("revisions", "1")


@pytest.mark.parametrize(
    ("key", "path", "values"),
    [
        (PROJECT, ("project",), ["b", "", None, 1, []]),
        (PROJECT, ("revision",), [None, -1, "3", 3.0, True, 2**64]),
        (PROJECT, ("format",), [True, 1.0, "1", None]),
        (PROJECT, (*FILE, "commit_time_from"), ["x", "", None, 1, []]),
        (PROJECT, (*FILE, "version"), ["<script>", "", "1.0 ", "v1.0", "1.0\n1.0", "9" * 5000, None, 1]),
        (PROJECT, (*FILE, "sha256"), ["", "0" * 63, "0" * 65, "A" * 64, "g" * 64, "0" * 64 + "\n", None]),
        (PROJECT, (*FILE, "metadata_sha256"), ["", "0" * 63, 1, []]),
        (PROJECT, (*FILE, "uploaded"), [
            "", "now", TIME[:-1], TIME.replace("00:00", "00:60"), "2026-02-30" + TIME[10:],
        ]),
        (PROJECT, (*FILE, "commit_time"), ["", "999" + TIME[4:], TIME.replace("T", " "), None, 0]),
        (PROJECT, (*FILE, "size"), [None, -1, 1.0, True, "1", 2**64]),
        (PROJECT, (*FILE, "variant"), ["", "<b>", "../x", "CU130", 1, [], {}]),
        (PROJECT, (*FILE, "yanked"), [1, [], {}, False, "\ud800"]),
        (PROJECT, (*FILE, "requires_python"), [1, [], {}, False, "\udfff"]),
        (PROJECT, ("files", "a-1.0-py3-none-any.whl"), [{}]),
        (PROJECT, ("files",), [[], None, "x", {"a-1.0.whl": {}}, {FILE[1]: []}, {FILE[1]: None}]),
        (VIEW, ("view",), ["v1.0", "", None, []]),
        (VIEW, ("revisions",), [[], None, {"1": []}, {"1": {}}]),
        (VIEW, (*REVISION, "number"), [2, 1.0, True, None, "1"]),
        (VIEW, (*REVISION, "commit"), ["c" * 39, "C" * 40, None, COMMIT + "\n"]),
        (VIEW, (*REVISION, "commit_time"), ["", "now", None]),
        (VIEW, (*REVISION, "moved"), ["", "now", None]),
        (VIEW, (*REVISION, "commit_time_from"), ["x", None, []]),
        (VIEW, (*REVISION, "note"), [[], None, 1, "\ud800"]),
        (VIEW, (*REVISION, "restores"), ["1", -1, 1.0, [], 1, 2, 77]),
        (VIEW, (*REVISION, "counts"), [
            [], None, {"a": []}, {"a": {"": "1"}}, {"a": {"": -1}}, {"a": {"<b>": 1}}, {"A/": {}},
        ]),
        (VIEW, (*REVISION, "files"), [
            [], "a", {"a": FILE[1]}, {"a": [1]}, {"a": [[]]}, {"a": ["x"]}, {"a": None}, {"a": [FILE[1]] * 2},
        ]),
    ],
)  # fmt: skip
def test_a_wrong_fact_is_refused_and_its_document_named(key: str, path: tuple[Any, ...], values: list[object]) -> None:
    for value in values:
        document = changed(whole(key), path, value)
        with pytest.raises(DataError, match=key.replace(".", r"\.")):
            decode(key, document)


@pytest.mark.parametrize(
    "name", ["a.whl", "a-1.0.whl", "a-1.0-py3-none.whl", "a-1.0-1-py3-none-any-x.whl", "--.whl", "a"]
)
def test_a_key_that_is_no_wheels_is_refused(name: str) -> None:
    document = whole(PROJECT)
    document["files"][f"{COMMIT}/{name}"] = document["files"].pop(FILE[1])
    with pytest.raises(DataError, match="not a key of a file"):
        decode(PROJECT, document)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32", "surrogates"])
def test_a_document_is_strictly_utf_8(encoding: str) -> None:
    text = json.dumps(whole(PROJECT))
    data = (
        text.replace(">=3.8", ">=\ud800").encode("utf-8", "surrogatepass")
        if encoding == "surrogates"
        else text.encode(encoding)
    )
    with pytest.raises(DataError, match=r"cannot read the state _state/projects/a\.json"):
        ProjectState.decode(data, PROJECT)


def test_a_number_after_which_none_can_follow_is_never_written() -> None:
    for number in (2**63 - 1, 2**63):
        state: ProjectState | ViewState
        for state in (ProjectState("a", number), ViewState("nightly", (replace(REVISION_1, number=number),))):
            with pytest.raises(DataError, match="none can follow"):
                state.encode()


OTHER_PYTHONS = """
import sys
sys.path[:0] = sys.argv[1:3]
from tasks.wheels.state import ProjectState, ViewState
for kind, file, key in zip((ProjectState, ViewState), sys.argv[3:5], sys.argv[5:7]):
    data = open(file, "rb").read()
    assert kind.decode(data, key).encode() == data
"""


@pytest.mark.slow
def test_every_python_here_reads_the_same_state(tmp_path: Path) -> None:
    """Python 3.11.2 has a regular expression engine with faults that later ones lack."""
    root, libraries = Path(state_checks.__file__).parents[2], Path(packaging.__file__).parents[1]
    found = {path for name in ("python3", "python3.11", "python3.12", "python3.13") if (path := shutil.which(name))}
    found |= {str(path) for path in Path("/usr/bin").glob("python3*") if re.fullmatch(r"python3(\.\d+)?", path.name)}
    versions = ["1.0.dev1", "1.0.post1", "1.0rc1", "1!1.0", "1.0+g1.rocm7.2", "1!1.0rc1.post2.dev3+g1.cu130", "0.28.0"]
    files = {wheel(number): replace(record(wheel(number), None), version=v) for number, v in enumerate(versions)}
    (tmp_path / "project").write_bytes(ProjectState("a", 3, files).encode())
    (tmp_path / "view").write_bytes(ViewState("nightly", (REVISION_1, replace(REVISION_1, number=2))).encode())
    names = (root, libraries, tmp_path / "project", tmp_path / "view", PROJECT, VIEW)
    tried = 0
    for python in {sys.executable, *found}:
        if subprocess.run([python, "-c", "import sys; sys.exit(sys.version_info < (3, 11))"], check=False).returncode:
            continue
        argv = [python, "-I", "-c", OTHER_PYTHONS, *map(str, names)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{python}: {done.stderr}"
        tried += 1
    assert tried


@pytest.mark.parametrize(("left", "right"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_a_document_that_nests_without_end_is_refused(left: bytes, right: bytes) -> None:
    data = left * 200_000 + b"1" + right * 200_000
    for text in (data, b'{"format":1,"project":"a","view":"nightly","files":' + data + b"}"):
        for kind, key in ((ProjectState, PROJECT), (ViewState, VIEW)):
            with pytest.raises(DataError, match=key):
                kind.decode(text, key)
