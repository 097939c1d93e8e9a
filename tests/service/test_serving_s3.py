"""Serving and checking an index in a real bucket: what a folder of files cannot show, headers above all."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from urllib.parse import quote

import pytest
import requests

from tasks.support.store import ABSENT, Headers, ObjectStore, open_store
from tasks.wheels import browse, layout
from tasks.wheels.checking import check_view
from tasks.wheels.findings import Severity
from tasks.wheels.index import Index
from tasks.wheels.serving import Server, serve
from tests.factory_index import commit, index_of, nightly
from tests.services import S3Server, use_aws

pytestmark = pytest.mark.service

WHEEL = f"{commit(1)}/sample-1.0+cu130-py3-none-any.whl"
JSON = "application/vnd.pypi.simple.v1+json"


def publish(url: str) -> Index:
    made = index_of(open_store(url))
    nightly(made, 1, ("sample", "1.0"), ("sample", "1.0+cu130"), ("other-thing", "2.0"))
    return made


@pytest.fixture(scope="module")
def index(s3_server: S3Server) -> Iterator[Index]:
    """Return an index in a bucket, which no test changes."""
    with pytest.MonkeyPatch.context() as patch:
        use_aws(patch, s3_server.environment)
        yield publish(f"s3://{s3_server.new_bucket()}/some/prefix")


@pytest.fixture(scope="module")
def server(index: Index) -> Iterator[Server]:
    with serve(index.store) as running:
        yield running


def ask(server: Server, path: str, **headers: str) -> requests.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return requests.get(server.url + path, headers=named, timeout=30, allow_redirects=False)


def data_of(store: ObjectStore, key: str) -> bytes:
    blob = store.get(key)
    assert blob is not None
    return blob.data


def test_every_object_with_the_headers_it_was_stored_with(index: Index, server: Server) -> None:
    keys = [stored.key for stored in index.store.list() if not stored.key.startswith("_")]
    assert len(keys) > 30
    for key in keys:
        answer = ask(server, f"/{quote(key)}")
        right = layout.headers_for(key)
        # Pages for people get the server's own address in the place of the one that they do not know.
        stored = browse.with_address(data_of(index.store, key), server.url) if key.endswith(layout.BROWSE) else None
        assert (answer.status_code, answer.content) == (200, stored or data_of(index.store, key))
        assert answer.headers["Content-Type"] == right.content_type
        assert answer.headers["Cache-Control"] == right.cache_control
        assert ask(server, f"/{quote(key)}", If_None_Match=answer.headers["ETag"]).status_code == 304


def test_other_headers_of_an_object_are_passed_on(s3_url: str) -> None:
    store = open_store(s3_url)
    store.put("notes.txt", b"x", Headers("text/plain", "max-age=7"), expected=ABSENT)
    with serve(store) as server:
        answer = ask(server, "/notes.txt")
    assert (answer.headers["Content-Type"], answer.headers["Cache-Control"]) == ("text/plain", "max-age=7")


def test_folders_that_are_no_objects(server: Server) -> None:
    for path, status, target in (
        ("/", 302, "/browse.html"),
        ("/nightly", 301, "/nightly/"),
        ("/nightly/Sample", 301, "/nightly/sample/"),
        ("/nightly/Other_Thing/", 301, "/nightly/other-thing/"),
        ("/nightly/cu130", 301, "/nightly/cu130/"),
        ("/nightly/json/Sample/", 301, "/nightly/json/sample/"),
        ("/nightly/nothing/", 404, None),
        ("/_state/views", 404, None),
        ("/_state/views/nightly.json", 404, None),
        ("/_probe", 404, None),
        ("/%5Fprobe", 404, None),
        ("/some/prefix/nightly/", 404, None),
        (f"/nightly/{'x' * 2000}/", 404, None),
    ):
        answer = ask(server, path)
        assert (answer.status_code, answer.headers.get("Location")) == (status, target), path


def test_each_form_of_a_page(server: Server) -> None:
    for path, json_path in (
        ("/nightly/", "/nightly/json/"),
        ("/nightly/sample/", "/nightly/json/sample/"),
        ("/nightly/cu130/", "/nightly/cu130/json/"),
        ("/nightly/cu130/sample/", "/nightly/cu130/json/sample/"),
    ):
        redirect = ask(server, path, Accept=JSON)
        assert (redirect.status_code, redirect.headers["Location"]) == (302, json_path)
        assert ask(server, json_path).headers["Content-Type"] == JSON
        assert ask(server, path, Accept="text/html").headers["Content-Type"] == "text/html; charset=utf-8"


def test_ranges_of_a_wheel(index: Index, server: Server) -> None:
    data, path = data_of(index.store, WHEEL), f"/{quote(WHEEL)}"
    for asked, part in (("bytes=0-9", data[:10]), ("bytes=-9", data[-9:]), ("bytes=100-", data[100:])):
        answer = ask(server, path, Range=asked)
        assert (answer.status_code, answer.content) == (206, part)
    assert ask(server, path, Range=f"bytes={len(data)}-").status_code == 416
    assert requests.head(server.url + path, timeout=30).headers["Content-Length"] == str(len(data))


def test_a_bucket_that_refuses_or_is_gone(
    index: Index, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    wrong = {**s3_server.environment, "AWS_SECRET_ACCESS_KEY": "not-the-secret"}
    for environment, url in ((wrong, index.store.url), (s3_server.environment, "s3://no-such-bucket-here/x")):
        use_aws(monkeypatch, environment)
        with serve(open_store(url)) as server:
            answer = ask(server, "/nightly/")
        shown = capfd.readouterr().err
        assert answer.status_code == 502
        assert shown.count("\n") == 1
        assert shown.startswith("warning: 502 for /nightly/: ")
        for secret in (*s3_server.secrets, "not-the-secret"):
            assert secret not in answer.text + shown


def test_a_real_bucket_is_clean(index: Index) -> None:
    for view in ("nightly", commit(1)):
        report = check_view(index, view)
        assert (report.findings, report.files) == ((), 3)


def test_damage_in_a_bucket_is_found(s3_url: str) -> None:
    index = publish(s3_url)
    page = "nightly/sample/index.html"
    bare = Headers("binary/octet-stream", "")
    index.store.put(page, data_of(index.store, page), bare, expected=None)
    index.store.put(f"{WHEEL}.metadata", b"other", layout.METADATA, expected=None)
    gone = f"{commit(1)}/sample-1.0-py3-none-any.whl"
    index.store.delete(gone)
    index.store.delete("nightly/json/sample/index.json")
    index.store.put("nightly/old/index.html", b"", layout.HTML, expected=ABSENT)
    found = {(finding.severity, finding.key) for finding in check_view(index, "nightly").findings}
    assert found == {
        (Severity.WARNING, page),
        (Severity.ERROR, f"{WHEEL}.metadata"),
        (Severity.ERROR, gone),
        (Severity.ERROR, "nightly/json/sample/index.json"),
        (Severity.ERROR, "nightly/old/index.html"),
    }


def test_a_reader_may_serve_and_check(index: Index, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    use_aws(monkeypatch, s3_server.reader_environment)
    reading = open_store(index.store.url)
    assert check_view(Index(reading, index.rules), "nightly").findings == ()
    with serve(reading) as server:
        digest = hashlib.sha256(ask(server, f"/{quote(WHEEL)}").content).hexdigest()
    assert digest in data_of(index.store, "nightly/cu130/sample/index.html").decode()
