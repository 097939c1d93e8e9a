from __future__ import annotations

import hashlib
import json
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tasks.support import settings
from tasks.support.errors import MissingInputError, OmniError, ServiceRefusedError, TemporaryError
from tasks.support.settings import WheelSettings
from tasks.support.store import Blob, Headers, ObjectStore, Stored, open_store
from tasks.wheels import layout
from tasks.wheels.check_pages import check_headers
from tasks.wheels.checking import TRIES, CheckReport, check_view, public_index, report_error
from tasks.wheels.findings import Finding, Severity
from tasks.wheels.index import Index
from tasks.wheels.redrawing import redraw_all
from tests.factory_index import commit, index_of, move, nightly, rollback, upload
from tests.faults import Meddling, Wrapped

C1, C2 = commit(1), commit(2)
WHEEL = f"{C1}/sample-1.0.dev1-py3-none-any.whl"
CU130 = f"{C1}/sample-1.0.dev1+cu130-py3-none-any.whl"
OTHER = f"{C1}/other_thing-2.0-py3-none-any.whl"
SPECS = (("sample", "1.0.dev1"), ("sample", "1.0.dev1+cu130"), ("other-thing", "2.0"))
OLD = "this page is older than the state, or changed by hand"
PAGES = [
    "nightly/index.html",
    "nightly/json/index.json",
    "nightly/browse.html",
    "nightly/sample/index.html",
    "nightly/sample/metadata.json",
    "nightly/sample/browse.html",
    "nightly/json/sample/index.json",
    "nightly/cu130/index.html",
    "nightly/cu130/json/index.json",
    "nightly/cu130/sample/index.html",
    "nightly/cu130/sample/metadata.json",
    "nightly/cu130/json/sample/index.json",
]

Wanted = tuple[str, str, str]


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store's folder, made by the real functions: two projects, one with a variant, in nightly."""
    folder = tmp_path_factory.mktemp("pristine") / "store"
    nightly(index_of(open_store(str(folder))), 1, *SPECS)
    return folder


@pytest.fixture
def index(pristine: Path, tmp_path: Path) -> Index:
    shutil.copytree(pristine, tmp_path / "store")
    return index_of(open_store(str(tmp_path / "store")))


def told(report: CheckReport) -> list[Wanted]:
    return [(finding.severity.value, finding.key, finding.what) for finding in report.findings]


def write(store: ObjectStore, key: str, data: bytes) -> None:
    store.put(key, data, layout.headers_for(key), expected=None)


def read(store: ObjectStore, key: str) -> bytes:
    blob = store.get(key)
    assert blob is not None, key
    return blob.data


def edit(store: ObjectStore, key: str, old: str, new: str, count: int = -1) -> None:
    data = read(store, key).decode()
    assert old in data
    write(store, key, data.replace(old, new, count).encode())


def edit_state(store: ObjectStore, key: str, change: Callable[[dict[str, object]], None]) -> None:
    document = json.loads(read(store, key))
    change(document)
    write(store, key, json.dumps(document).encode())


@pytest.mark.parametrize("view", ["nightly", C1])
def test_what_the_real_functions_publish_is_clean(index: Index, view: str) -> None:
    report = check_view(index, view)
    assert told(report) == []
    assert (report.view, report.files, report.pages > 15) == (view, 3, True)
    assert report_error(report, strict=True) is None


def test_a_view_that_moved_and_went_back_is_clean(index: Index) -> None:
    nightly(index, 2, ("sample", "1.0.dev2"))
    assert told(check_view(index, "nightly")) == []
    rollback(index, "nightly")
    assert told(check_view(index, "nightly")) == []


def test_a_release_with_files_of_two_commits_is_clean(index: Index) -> None:
    upload(index, 2, ("sample", "1.0"), ("sample", "1.0+cu130"))
    move(index, "v1.0", 2)
    upload(index, 3, ("sample", "1.0+rocm7.2"), ("sample", "1.0"))
    move(index, "v1.0", 3)
    report = check_view(index, "v1.0")
    assert (told(report), report.files) == ([], 3)


def test_a_project_without_a_default_is_clean(index: Index) -> None:
    upload(index, 2, ("sample", "3.0+cu130"), ("sample", "3.0+rocm7.2"))
    assert told(check_view(index, C2)) == []


def test_names_and_versions_that_need_encoding_are_clean(index: Index) -> None:
    upload(index, 2, ("ruamel.yaml", "1!2.0+cu130"), ("Foo__Bar", "0.11.2.dev3+g1234567.d20260101"))
    assert told(check_view(index, C2)) == []


def test_a_view_that_was_never_published_is_66(index: Index) -> None:
    for view in ("v9.9", commit(9)):
        with pytest.raises(MissingInputError, match=f"view {view} was never published in file://"):
            check_view(index, view)


@pytest.mark.parametrize("page", PAGES)
def test_a_missing_page(index: Index, page: str) -> None:
    index.store.delete(page)
    assert told(check_view(index, "nightly")) == [("error", page, "this page is missing")]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_changed_by_hand(index: Index, page: str) -> None:
    write(index.store, page, read(index.store, page) + b"\n")
    assert told(check_view(index, "nightly")) == [("error", page, OLD)]


def test_pages_older_than_the_state(index: Index) -> None:
    old = {page: read(index.store, page) for page in PAGES}
    nightly(index, 2, ("sample", "1.0.dev2"), ("sample", "1.0.dev2+cu130"), ("other-thing", "2.0"))
    for page in ("nightly/sample/index.html", "nightly/json/sample/index.json", "nightly/cu130/sample/metadata.json"):
        write(index.store, page, old[page])
    report = check_view(index, "nightly")
    stale = {finding.key for finding in report.findings if finding.what == OLD}
    assert stale == {
        "nightly/sample/index.html",
        "nightly/json/sample/index.json",
        "nightly/cu130/sample/metadata.json",
    }
    assert {finding.hint for finding in report.findings} == {"invoke wheels.redraw"}


@pytest.mark.parametrize(
    "page",
    [
        "nightly/gone/index.html",
        "nightly/json/gone/index.json",
        "nightly/gone/metadata.json",
        "nightly/gone/browse.html",
        "nightly/rocm7.2/index.html",
        "nightly/cu130/other-thing/index.html",
    ],
)
def test_a_left_over_page(index: Index, page: str) -> None:
    write(index.store, page, read(index.store, "nightly/sample/index.html"))
    what = "this page is left over: nothing in the state asks for it"
    assert told(check_view(index, "nightly")) == [("error", page, what)]


def test_what_a_redraw_is_said_to_mend_it_mends(index: Index) -> None:
    write(index.store, "nightly/gone/index.html", b"left over")
    index.store.delete("nightly/json/index.json")
    for page in ("nightly/index.html", "nightly/sample/index.html", "nightly/json/sample/index.json"):
        write(index.store, page, b"damaged")
    assert {finding.hint for finding in check_view(index, "nightly").findings} == {"invoke wheels.redraw"}
    redraw_all(index)
    assert told(check_view(index, "nightly")) == []


def test_other_objects_in_a_view_are_nobodys_business(index: Index) -> None:
    write(index.store, "nightly/notes.txt", b"")
    write(index.store, f"{C1}/log.json", b"")
    assert told(check_view(index, "nightly")) + told(check_view(index, C1)) == []


@pytest.mark.parametrize("page", ["nightly/cu130/sample/index.html", "nightly/cu130/json/sample/index.json"])
def test_a_page_without_any_digest_is_not_half_hashed(index: Index, page: str) -> None:
    digest = hashlib.sha256(read(index.store, CU130)).hexdigest()
    mark = f"#sha256={digest}" if page.endswith("html") else f'"sha256":"{digest}"'
    edit(index.store, page, mark, "")
    found = told(check_view(index, "nightly"))
    assert ("error", page, OLD) in found
    assert not any("no sha256" in what for _, _, what in found)


@pytest.mark.parametrize("form", ["html", "json"])
def test_a_half_hashed_page(index: Index, form: str) -> None:
    upload(index, 3, ("sample", "1.0.post1"), ("sample", "1.0"))
    forms = {"html": f"{commit(3)}/sample/index.html", "json": f"{commit(3)}/json/sample/index.json"}
    page = forms[form]
    digest = hashlib.sha256(read(index.store, f"{commit(3)}/sample-1.0-py3-none-any.whl")).hexdigest()
    edit(index.store, page, f"#sha256={digest}" if form == "html" else f'"sha256":"{digest}"', "")
    found = told(check_view(index, commit(3)))
    half = "1 of 2 files have no sha256 here, the first sample-1.0-py3-none-any.whl"
    assert ("error", page, half) in found
    assert ("error", page, OLD) in found
    differ = [what for _, key, what in found if key == forms["json"] and "differently" in what]
    assert len(differ) == 1
    assert len(found) == 3


def test_html_and_json_describe_the_same_set(index: Index) -> None:
    for old, new in (('"size"', '"yanked":"bad","size"'), ("sample-1.0.dev1-py3", "sample-1.0.dev9-py3")):
        before = read(index.store, "nightly/json/sample/index.json")
        edit(index.store, "nightly/json/sample/index.json", old, new)
        found = told(check_view(index, "nightly"))
        said = [what for _, key, what in found if key == "nightly/json/sample/index.json"]
        assert OLD in said
        assert any("nightly/sample/index.html describe files differently: " in what for what in said)
        write(index.store, "nightly/json/sample/index.json", before)


@pytest.mark.parametrize("key", [WHEEL, CU130, OTHER])
def test_a_dangling_link(index: Index, key: str) -> None:
    index.store.delete(key)
    for view in ("nightly", C1):
        (found,) = check_view(index, view).findings
        assert (found.severity, found.key) == (Severity.ERROR, key)
        assert found.what.startswith(f"{view}/")
        assert found.what.endswith(" links to it, but it is not in the store")


def test_a_link_to_something_that_the_state_does_not_know(index: Index) -> None:
    page = "nightly/sample/index.html"
    edit(index.store, page, f"{C1}/sample-1.0.dev1-py3", f"{C2}/sample-1.0.dev1-py3", 1)
    found = told(check_view(index, "nightly"))
    dangling = f"{C2}/sample-1.0.dev1-py3-none-any.whl"
    assert ("error", dangling, f"{page} links to it, but it is not in the store") in found
    assert ("error", page, OLD) in found


@pytest.mark.parametrize(
    ("page", "old", "new"),
    [
        ("nightly/sample/index.html", "../../", "../../../"),
        ("nightly/sample/index.html", "../../", "https://elsewhere.invalid/"),
        ("nightly/sample/index.html", "../../", "file:///"),
        ("nightly/json/sample/index.json", "../../../", "//elsewhere.invalid/"),
        ("nightly/sample/metadata.json", "../../", "../../../../"),
        ("nightly/index.html", 'href="sample/', 'href="https://elsewhere.invalid/sample/'),
        ("nightly/json/index.json", '"sample"', '"../../../sample"'),
    ],
)
def test_a_link_that_leads_out_of_the_store(index: Index, page: str, old: str, new: str) -> None:
    edit(index.store, page, old, new)
    found = told(check_view(index, "nightly"))
    assert ("error", page, "a link leads out of the store") in found
    assert ("error", page, OLD) in found


@pytest.mark.parametrize(
    ("page", "data"),
    [
        ("nightly/json/sample/index.json", b""),
        ("nightly/json/sample/index.json", b"[]"),
        ("nightly/json/sample/index.json", b'{"meta":{"api-version":"2.0"},"name":"sample","files":[]}'),
        ("nightly/json/sample/index.json", b"[" * 100_000),
        ("nightly/json/index.json", b'{"meta":{}}'),
        ("nightly/json/index.json", b"\xff\xfe"),
        ("nightly/sample/metadata.json", b'{"path":1}'),
        ("nightly/sample/metadata.json", b'[{"path":1}]'),
        ("nightly/sample/index.html", b'<meta name="pypi:repository-version" content="9.0">'),
        ("nightly/index.html", b'<meta name="pypi:repository-version" content="one">'),
    ],
)
def test_a_page_that_no_client_can_read(index: Index, page: str, data: bytes) -> None:
    write(index.store, page, data)
    found = told(check_view(index, "nightly"))
    assert [(severity, key) for severity, key, _ in found] == [("error", page)] * 2
    assert found[0][2].startswith("no client can read this page: ")
    assert found[1][2] == OLD


@pytest.mark.parametrize("data", [b"<![", b"\xff\x00", b"<!DOCTYPE html><a href='http://[x'>a</a>", b"<a href>", b""])
def test_a_page_of_rubbish_is_at_least_seen_to_differ(index: Index, data: bytes) -> None:
    for page in ("nightly/sample/index.html", "nightly/index.html"):
        write(index.store, page, data)
        assert ("error", page, OLD) in told(check_view(index, "nightly"))


def test_an_object_of_another_size(index: Index) -> None:
    size = len(read(index.store, WHEEL))
    write(index.store, WHEEL, b"short")
    what = f"it has 5 bytes in the store, and {size} in the state"
    assert told(check_view(index, "nightly")) == [("error", WHEEL, what)]


@pytest.mark.parametrize("key", [WHEEL, CU130, OTHER])
def test_a_missing_sidecar(index: Index, key: str) -> None:
    index.store.delete(f"{key}.metadata")
    assert told(check_view(index, "nightly")) == [("error", f"{key}.metadata", "this metadata sidecar is missing")]


def test_another_sidecar(index: Index) -> None:
    right = hashlib.sha256(read(index.store, f"{WHEEL}.metadata")).hexdigest()
    write(index.store, f"{WHEEL}.metadata", b"Name: other\n")
    wrong = hashlib.sha256(b"Name: other\n").hexdigest()
    what = f"its sha256 is {wrong}, and {right} in the state"
    assert told(check_view(index, "nightly")) == [("error", f"{WHEEL}.metadata", what)]


@pytest.mark.parametrize("data", [b"", b"{", b'{"format":99}', b"\xff", b"[]", b'{"format":1,"project":"sample"}'])
def test_a_state_that_cannot_be_read(index: Index, data: bytes) -> None:
    for key in (layout.project_state("sample"), layout.view_state("nightly")):
        write(index.store, key, data)
        (found,) = check_view(index, "nightly").findings
        assert (found.severity, found.key) == (Severity.ERROR, key)
        assert found.what.startswith(f"cannot read the state {key}: ")
        assert "version history" in (found.hint or "")


def test_a_missing_project_state(index: Index) -> None:
    key = layout.project_state("sample")
    index.store.delete(key)
    what = "this state is missing, and view nightly holds files of the project"
    assert told(check_view(index, "nightly")) == [("error", key, what)]


def test_other_projects_are_checked_beside_a_broken_state(index: Index) -> None:
    index.store.delete(layout.project_state("sample"))
    index.store.delete(f"{OTHER}.metadata")
    write(index.store, "nightly/index.html", b"changed")
    keys = {finding.key for finding in check_view(index, "nightly").findings}
    assert keys == {layout.project_state("sample"), f"{OTHER}.metadata", "nightly/index.html"}


def test_a_view_with_a_file_that_its_project_does_not_know(index: Index) -> None:
    state = layout.project_state("sample")
    edit_state(index.store, state, lambda document: document["files"].pop(WHEEL))  # type: ignore[attr-defined]
    (found,) = check_view(index, "nightly").findings
    assert (found.key, found.what) == (WHEEL, f"view nightly holds it, but {state} does not know it")
    assert "wheels.rollback" in (found.hint or "")


def test_a_commit_view_behind_its_projects(index: Index) -> None:
    # As after a kill between the two states of an upload.
    key, state = layout.view_state(C1), layout.project_state("sample")
    before = read(index.store, key)
    upload(index, 1, ("sample", "1.0.dev2"))
    write(index.store, key, before)
    what = f"it counts files: 1 default, 1 cu130 of sample, but {state} has files: 2 default, 1 cu130"
    assert ("error", key, what) in told(check_view(index, C1))
    upload(index, 1, *SPECS)
    assert told(check_view(index, C1)) == []


def test_counts_that_disagree_with_the_files(index: Index) -> None:
    key = layout.view_state("nightly")
    edit(index.store, key, '"counts":{"other-thing":{"":1}', '"counts":{"other-thing":{"":7}')
    what = f"it counts files: 7 default of other-thing, but {layout.project_state('other-thing')} has files: 1 default"
    assert ("error", key, what) in told(check_view(index, "nightly"))


def test_an_alias_that_collides_with_a_variant(index: Index) -> None:
    other = Index(index.store, replace(index.rules, alias_of_default="cu130"))
    found = [finding for finding in check_view(other, "nightly").findings if "alias" in finding.what]
    assert [(finding.severity, finding.key) for finding in found] == [(Severity.ERROR, layout.project_state("sample"))]


@pytest.mark.parametrize(
    "odd", ["../../etc/passwd", f"{C1}/{'x' * 300}-1.0-py3-none-any.whl", f"{C1}/no-wheel.whl", f"_state/{C1}.json"]
)
def test_keys_in_a_state_that_are_none(index: Index, odd: str) -> None:
    state = layout.project_state("sample")
    edit(index.store, state, WHEEL, odd)
    edit(index.store, layout.view_state("nightly"), WHEEL, odd)
    report = check_view(index, "nightly")
    assert any(odd in (finding.key, *finding.what.split("'")) for finding in report.errors)


class Remembering(Wrapped):
    """A folder that keeps headers, as S3 does: the right ones unless ``other`` has some."""

    other: dict[str, Headers] = {}  # noqa: RUF012 - one test's own subclass sets it

    def head(self, key: str) -> Stored | None:
        found = super().head(key)
        return replace(found, headers=self.other.get(key, layout.headers_for(key))) if found else None

    def get(self, key: str) -> Blob | None:
        blob, stored = super().get(key), self.head(key)
        return Blob(stored, blob.data) if blob and stored else None


@pytest.mark.parametrize("key", [WHEEL, f"{WHEEL}.metadata", "nightly/sample/index.html", "nightly/json/index.json"])
def test_wrong_headers_are_a_warning(index: Index, key: str) -> None:
    class Odd(Remembering):
        other = {key: Headers("binary/octet-stream", "")}  # noqa: RUF012

    right = layout.headers_for(key)
    what = (
        "it is stored with Content-Type binary/octet-stream, Cache-Control none, and should be with "
        f"Content-Type {right.content_type}, Cache-Control {right.cache_control}"
    )
    report = check_view(Index(Odd(index.store), index.rules), "nightly")
    assert told(report) == [("warning", key, what)]
    assert told(check_view(Index(Remembering(index.store), index.rules), "nightly")) == []
    assert report_error(report, strict=False) is None
    assert report_error(report, strict=True) is not None


def test_a_store_without_headers_has_none_to_check(index: Index) -> None:
    stored = index.store.head(WHEEL)
    assert stored is not None
    assert list(check_headers(stored)) == []


def test_an_unknown_label_is_a_warning(index: Index) -> None:
    nightly(index, 2, ("sample", "1.0+weird.thing"), ("sample", "1.0+g1234567.d20260101.cu130"))
    key = f"{C2}/sample-1.0+weird.thing-py3-none-any.whl"
    what = "weird, thing in version 1.0+weird.thing is no known variant: the file counts as default"
    assert told(check_view(index, "nightly")) == [("warning", key, what)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("version", "release", "said"),
    [
        (
            "0.20.2rc1.dev233+g5497ffbf7.cu129",
            "0.20.2",
            "0.20.2rc1.dev233 sorts below 0.20.2; --pre users get the release",
        ),
        ("0.20.2.dev1", "0.20.2", "0.20.2.dev1 sorts below 0.20.2; --pre users get the release"),
        ("0.19.9", "0.20.0rc1", "0.19.9 sorts below 0.20.0rc1; --pre users get the release"),
        ("9.0", "1!0.1", "9.0 sorts below 1!0.1; --pre users get the release"),
        ("0.20.3.dev1+g5497ffbf7", "0.20.2", None),
        ("0.20.2+cu130", "0.20.2", None),
        ("0.20.2", "0.20.2", None),
        ("0.20.10.dev1", "0.20.9", None),
    ],
)
def test_a_nightly_below_the_newest_release(index: Index, version: str, release: str, said: str | None) -> None:
    for number, older in ((2, "0.1"), (3, release), (4, "0.2")):
        upload(index, number, ("sample", older))
        move(index, layout.release_view(older), number)
    nightly(index, 5, ("sample", version))
    report = check_view(index, "nightly")
    assert told(report) == ([("warning", "nightly/sample/index.html", said)] if said else [])
    assert told(check_view(index, commit(5))) == []
    error = report_error(report, strict=True)
    assert (error is not None) == (said is not None)
    assert error is None or error.exit_code == 65


def test_a_release_counts_for_its_own_projects_only(index: Index) -> None:
    upload(index, 2, ("other-thing", "5.0"))
    move(index, "v5.0", 2)
    upload(index, 3, ("sample", "2.0"))
    move(index, "v2.0", 3)
    nightly(index, 4, ("sample", "1.0"), ("other-thing", "6.0"))
    what = "1.0 sorts below 2.0; --pre users get the release"
    assert told(check_view(index, "nightly")) == [("warning", "nightly/sample/index.html", what)]


def test_a_broken_release_state_does_not_hide_the_others(index: Index) -> None:
    upload(index, 2, ("sample", "2.0"))
    move(index, "v2.0", 2)
    write(index.store, layout.view_state("v3.0"), b"broken")
    write(index.store, layout.view_state("vnext"), b"no version")
    what = "1.0.dev1 sorts below 2.0; --pre users get the release"
    assert told(check_view(index, "nightly")) == [("warning", "nightly/sample/index.html", what)]


def test_the_error_counts_and_names_the_first() -> None:
    bad = Finding(Severity.ERROR, "nightly/a/index.html", "it is bad", "do this")
    odd = Finding(Severity.WARNING, "nightly/b/index.html", "it is odd", "do that")
    for found, strict, said in (
        ((), True, None),
        ((odd,), False, None),
        ((odd,), True, ("view nightly: 1 warning; the first: nightly/b/index.html: it is odd", "do that")),
        ((bad,), False, ("view nightly: 1 error; the first: nightly/a/index.html: it is bad", "do this")),
        (
            (bad, bad, odd),
            False,
            ("view nightly: 2 errors and 1 warning; the first: nightly/a/index.html: it is bad", "do this"),
        ),
    ):
        error = report_error(CheckReport("nightly", found), strict=strict)
        assert (error and (error.message, error.hint)) == said
        assert error is None or error.exit_code == 65


def test_errors_come_first_and_each_once(index: Index) -> None:
    nightly(index, 2, ("sample", "1.0+weird"))
    index.store.delete(f"{C2}/sample-1.0+weird-py3-none-any.whl")
    index.store.delete("nightly/sample/browse.html")
    severities = [finding.severity.value for finding in check_view(index, "nightly").findings]
    assert severities == ["error", "error", "warning"]


def test_a_view_that_moves_meanwhile_is_read_again(index: Index) -> None:
    moved = threading.Event()

    class Moving(Wrapped):
        def head(self, key: str) -> Stored | None:
            if key == WHEEL and not moved.is_set():
                moved.set()
                nightly(index, 2, ("sample", "1.0.dev2"))
                index.store.delete(WHEEL)
                return None
            return super().head(key)

    report = check_view(Index(Moving(index.store), index.rules), "nightly")
    assert (told(report), report.files) == ([], 1)


def test_a_view_that_always_moves_ends_the_check(index: Index) -> None:
    numbers = iter(range(2, 1000))

    class Restless(Wrapped):
        def get(self, key: str) -> Blob | None:
            if key == "nightly/sample/index.html":
                nightly(index, next(numbers), ("sample", "1.0"))
            return super().get(key)

    assert check_view(Index(Restless(index.store), index.rules), "nightly").errors
    assert next(numbers) == 2 + TRIES


def test_a_store_that_fails_is_no_finding(index: Index) -> None:
    class Failing(Wrapped):
        def head(self, key: str) -> Stored | None:
            raise TemporaryError("the store is away")

    with pytest.raises(TemporaryError, match="the store is away"):
        check_view(Index(Failing(index.store), index.rules), "nightly")


def test_nothing_is_written(index: Index) -> None:
    def refuse(method: str, key: str) -> None:
        pytest.fail(f"{method} {key}")

    index.store.delete("nightly/sample/index.html")
    check_view(Index(Meddling(index.store, before=refuse), index.rules), "nightly")


# The public index, as a real server that answers what a test says.

PUBLIC = {
    "/simple/sample/": (200, "text/html", b'<a href="sample-0.9-py3-none-any.whl">sample-0.9-py3-none-any.whl</a>'),
}


@pytest.fixture
def public() -> Iterator[tuple[str, dict[str, tuple[int, str, bytes]], list[str]]]:
    answers = dict(PUBLIC)
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(f"{self.command} {self.path}")
            status, kind, body = answers.get(self.path, (404, "text/plain", b"not here"))
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_words: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/simple/", answers, asked
    server.shutdown()
    thread.join()
    server.server_close()


Public = tuple[str, dict[str, tuple[int, str, bytes]], list[str]]


def test_a_name_that_is_free_on_the_public_index(index: Index, public: Public) -> None:
    address, _, asked = public
    what = "the name other-thing is free on the public index: what somebody publishes there could be installed instead"
    report = check_view(index, "nightly", online=address)
    assert told(report) == [("warning", "nightly/other-thing/index.html", what)]
    assert sorted(asked) == ["GET /simple/other-thing/", "GET /simple/sample/"]
    assert told(check_view(index, C1, online=address))[0][1] == f"{C1}/other-thing/index.html"


def test_a_nightly_below_the_public_release(index: Index, public: Public) -> None:
    address, answers, _ = public
    page = {
        "meta": {"api-version": "1.1"},
        "name": "sample",
        "files": [
            {"filename": f"sample-{version}.tar.gz", "url": "x", "hashes": {}, "yanked": yanked}
            for version, yanked in (("0.9", False), ("1.0", False), ("3.0", "broken"), ("not_a_version", False))
        ],
    }
    answers["/simple/sample/"] = (200, "application/vnd.pypi.simple.v1+json", json.dumps(page).encode())
    answers["/simple/other-thing/"] = (200, "text/html", b"")
    what = "1.0.dev1 sorts below 1.0; --pre users get the release of the public index"
    assert told(check_view(index, "nightly", online=address)) == [("warning", "nightly/sample/index.html", what)]
    assert told(check_view(index, C1, online=address)) == []


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ((200, "image/png", b""), ServiceRefusedError),
        ((200, "application/vnd.pypi.simple.v1+json", b"<html>"), ServiceRefusedError),
        (
            (200, "application/vnd.pypi.simple.v1+json", b'{"meta":{"api-version":"9.0"},"name":"a","files":[]}'),
            ServiceRefusedError,
        ),
        ((410, "text/plain", b""), ServiceRefusedError),
        ((403, "text/plain", b""), OmniError),
    ],
)
def test_a_public_index_that_makes_no_sense(
    index: Index, public: Public, answer: tuple[int, str, bytes], error: type[OmniError]
) -> None:
    address, answers, _ = public
    answers["/simple/other-thing/"] = answer
    with pytest.raises(error, match=f"{address}other-thing/"):
        check_view(index, "nightly", online=address)


def test_the_public_index_is_the_settings_or_the_usual_one() -> None:
    from pypi_simple import PYPI_SIMPLE_ENDPOINT

    named = {"OMNI_CI_PYPI_INDEX_URL": "http://127.0.0.1:1/simple/"}
    assert public_index(settings.load(environment=named)) == "http://127.0.0.1:1/simple/"
    assert public_index(settings.load(environment={})) == PYPI_SIMPLE_ENDPOINT


def test_without_online_nobody_is_asked(index: Index, public: Public) -> None:
    check_view(index, "nightly")
    assert public[2] == []


def test_rules_of_the_index_are_those_given(index: Index) -> None:
    plain = Index(index.store, WheelSettings(project="sample"))
    labels = [
        finding.what
        for finding in check_view(plain, "nightly").findings
        if "label" in finding.what or "variant" in finding.what
    ]
    assert labels == ["cu130 in version 1.0.dev1+cu130 is no known variant: the file counts as default"]


@pytest.mark.parametrize("key", [WHEEL, CU130, OTHER])
def test_a_file_with_other_bytes_of_the_same_size_is_found_by_a_deep_check(index: Index, key: str) -> None:
    data = bytearray(read(index.store, key))
    right = hashlib.sha256(data).hexdigest()
    data[len(data) // 2] ^= 1
    write(index.store, key, bytes(data))
    assert told(check_view(index, "nightly")) == []
    wrong = hashlib.sha256(data).hexdigest()
    for view in ("nightly", C1):
        assert told(check_view(index, view, deep=True)) == [
            ("error", key, f"its sha256 is {wrong}, and {right} in the state")
        ]


def test_a_deep_check_reports_a_lost_or_cut_file_once(index: Index) -> None:
    assert told(check_view(index, "nightly", deep=True)) == []
    index.store.delete(WHEEL)
    write(index.store, CU130, b"cut")
    assert told(check_view(index, "nightly", deep=True)) == told(check_view(index, "nightly"))
    assert [finding.key for finding in check_view(index, "nightly", deep=True).findings] == sorted([WHEEL, CU130])


def test_causes_come_before_what_follows_from_them(index: Index) -> None:
    index.store.delete(WHEEL)
    index.store.delete(f"{OTHER}{layout.METADATA_SUFFIX}")
    index.store.delete("nightly/index.html")
    index.store.delete("nightly/browse.html")
    keys = [finding.key for finding in check_view(index, "nightly").findings]
    assert keys[:2] == sorted([WHEEL, f"{OTHER}{layout.METADATA_SUFFIX}"])
    assert all(key.startswith("nightly/") for key in keys[2:])
