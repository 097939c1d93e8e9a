from __future__ import annotations

import http.client
import shlex
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.support.errors import (
    ConfigurationError,
    CredentialsError,
    DataError,
    MissingInputError,
    OmniError,
    RemoteChangedError,
    ServiceRefusedError,
    TemporaryError,
    UsageError,
)
from tasks.support.store import ABSENT, Blob, Headers, ObjectStore, Stored, open_store
from tasks.wheels import browse, layout
from tasks.wheels.index import Index
from tasks.wheels.negotiation import Form, choose_form, choose_range, range_counts, still_fresh
from tasks.wheels.routing import RefusedError, parse_target
from tasks.wheels.serving import Server, serve, usage_lines
from tests.factory_index import RULES, commit, index_of, nightly
from tests.faults import Wrapped

COMMIT = "0123456789abcdef0123456789abcdef01234567"
WHEEL = f"{COMMIT}/vllm_omni-1.0+cu130-py3-none-any.whl"
BODY = bytes(range(256)) * 10_000
JSON = "application/vnd.pypi.simple.v1+json"
SIMPLE_HTML = "application/vnd.pypi.simple.v1+html"
HTML = "text/html; charset=utf-8"
PAGES = {
    "browse.html": b"<p>people",
    "nightly/index.html": b"<p>html root",
    "nightly/json/index.json": b'{"root": 1}',
    "nightly/browse.html": b"<p>people",
    "nightly/vllm-omni/index.html": b"<p>html project",
    "nightly/vllm-omni/metadata.json": b"[]",
    "nightly/json/vllm-omni/index.json": b'{"project": 1}',
    "nightly/rocm7.2/index.html": b"<p>html variant root",
    "nightly/rocm7.2/json/index.json": b'{"variant": 1}',
    "nightly/rocm7.2/vllm-omni/index.html": b"<p>html variant project",
    "nightly/rocm7.2/json/vllm-omni/index.json": b'{"variant project": 1}',
    "old/index.html": b"<p>an index without JSON",
    "old/some-project/index.html": b"<p>a page without JSON",
    "_state/views/nightly.json": b"{}",
    "_ledger/index.html": b"ledger",
    f"{WHEEL}.metadata": b"Name: vllm-omni\n",
    "nightly/100%25.txt": b"odd name",
}


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> ObjectStore:
    filled = open_store(str(tmp_path_factory.mktemp("served") / "store"))
    for key, data in {**PAGES, WHEEL: BODY}.items():
        filled.put(key, data, layout.headers_for(key), expected=ABSENT)
    return filled


@pytest.fixture(scope="module")
def server(store: ObjectStore) -> Iterator[Server]:
    with serve(store) as running:
        yield running


def ask(server: Server, path: str, method: str = "GET", **headers: str) -> Answer:
    """Send one request, its path untouched, and follow nothing."""
    connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=10)
    connection.putrequest(method, path, skip_accept_encoding=True)
    for name, value in headers.items():
        connection.putheader(name.replace("_", "-"), value)
    connection.endheaders()
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return Answer(answer.status, dict(answer.headers), body)


def ask_raw(server: Server, request: bytes) -> bytes:
    """Send bytes, and return everything until the server closes the connection."""
    with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), timeout=10) as connection:
        connection.sendall(request)
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    return answer


@pytest.mark.parametrize(
    ("key", "content_type"),
    [
        ("browse.html", HTML),
        ("nightly/index.html", HTML),
        ("nightly/json/index.json", JSON),
        ("nightly/vllm-omni/metadata.json", "application/json"),
        (f"{WHEEL}.metadata", "text/plain; charset=utf-8"),
    ],
)
def test_every_object_is_served_under_its_key(server: Server, key: str, content_type: str) -> None:
    answer = ask(server, f"/{quote(key)}")
    assert (answer.status, answer.body) == (200, PAGES[key])
    assert answer.headers["Content-Type"] == content_type
    assert answer.headers["Cache-Control"] == layout.headers_for(key).cache_control
    assert answer.headers["Content-Length"] == str(len(PAGES[key]))


def test_a_wheel_has_its_own_headers(server: Server) -> None:
    answer = ask(server, f"/{quote(WHEEL)}")
    assert (answer.status, answer.body) == (200, BODY)
    assert answer.headers["Content-Type"] == "application/octet-stream"
    assert "immutable" in answer.headers["Cache-Control"]
    assert answer.headers["Accept-Ranges"] == "bytes"
    assert "Vary" not in answer.headers


def test_stored_headers_win_over_those_of_the_key(store: ObjectStore) -> None:
    own = Headers("text/html; charset=latin-1", "max-age=5")

    class Remembering(Wrapped):
        def head(self, key: str) -> Stored | None:
            found = super().head(key)
            headers = Headers("", "") if key == "browse.html" else own
            return found and Stored(found.key, found.size, found.etag, found.modified, headers)

        def get(self, key: str) -> Blob | None:
            blob, stored = super().get(key), self.head(key)
            return Blob(stored, blob.data) if blob and stored else None

    with serve(Remembering(store)) as server:
        page = ask(server, "/nightly/browse.html")
        assert (page.headers["Content-Type"], page.headers["Cache-Control"]) == (own.content_type, own.cache_control)
        # Old objects were stored without headers.
        bare = ask(server, "/browse.html")
        assert (bare.headers["Content-Type"], bare.headers["Cache-Control"]) == (HTML, "no-cache")


@pytest.mark.parametrize(
    "path", ["/nightly/", "/nightly/vllm-omni/", "/nightly/rocm7.2/", "/nightly/rocm7.2/vllm-omni/"]
)
@pytest.mark.parametrize("accept", [None, "", "*/*", "text/html", f"{JSON};q=0.5, text/html", f"{JSON};q=0, */*"])
def test_html_is_for_clients_that_prefer_it_or_say_nothing(server: Server, path: str, accept: str | None) -> None:
    answer = ask(server, path, **({} if accept is None else {"Accept": accept}))
    assert (answer.status, answer.body) == (200, PAGES[f"{path[1:]}index.html"])
    assert (answer.headers["Content-Type"], answer.headers["Vary"]) == (HTML, "Accept")


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("/nightly/", "/nightly/json/"),
        ("/nightly/vllm-omni/", "/nightly/json/vllm-omni/"),
        ("/nightly/rocm7.2/", "/nightly/rocm7.2/json/"),
        ("/nightly/rocm7.2/vllm-omni/", "/nightly/rocm7.2/json/vllm-omni/"),
    ],
)
@pytest.mark.parametrize(
    "accept",
    [
        JSON,
        JSON.upper(),
        "application/vnd.pypi.simple.latest+json",
        f"{JSON}, {SIMPLE_HTML}; q=0.1, text/html; q=0.01",  # pip
        f"{JSON}, {SIMPLE_HTML};q=0.2, text/html;q=0.01",  # uv
        f"{JSON}, {SIMPLE_HTML}, text/html;q=0.01",  # pypi-simple
    ],
)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_clients_that_prefer_json_are_sent_to_it(
    server: Server, path: str, target: str, accept: str, method: str
) -> None:
    answer = ask(server, path, method, Accept=accept)
    assert (answer.status, answer.headers["Location"], answer.headers["Vary"]) == (302, target, "Accept")
    page = ask(server, target, Accept=accept)
    assert (page.status, page.body) == (200, PAGES[f"{target[1:]}index.json"])
    assert page.headers["Content-Type"] == JSON


def test_the_simple_html_type_is_for_those_who_ask_for_exactly_that(server: Server) -> None:
    for accept in (SIMPLE_HTML, f"{SIMPLE_HTML}, text/html;q=0.5", f"{JSON};q=0.1, {SIMPLE_HTML};q=0.2"):
        answer = ask(server, "/nightly/vllm-omni/", Accept=accept)
        assert (answer.status, answer.headers["Content-Type"]) == (200, SIMPLE_HTML)
        assert answer.body == PAGES["nightly/vllm-omni/index.html"]


@pytest.mark.parametrize("accept", ["image/png", f"{JSON};q=0", "*/*;q=0", "text/html;q=0, image/*", "nonsense"])
def test_nothing_acceptable_is_406(server: Server, accept: str) -> None:
    answer = ask(server, "/nightly/vllm-omni/", Accept=accept)
    assert (answer.status, answer.headers["Vary"]) == (406, "Accept")
    assert JSON in answer.text


def test_an_index_without_json_gives_html_or_406(server: Server) -> None:
    for path in ("/old/", "/old/some-project/"):
        assert ask(server, path, Accept=f"{JSON}, text/html;q=0.1").headers["Content-Type"] == HTML
        assert ask(server, path, Accept=JSON).status == 406


def test_several_accept_headers_are_one(server: Server) -> None:
    lines = f"GET /nightly/ HTTP/1.0\r\nAccept: text/html;q=0.5\r\nAccept: {JSON}\r\n\r\n"
    assert ask_raw(server, lines.encode()).startswith(b"HTTP/1.1 302")


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("/", "/browse.html"),
        ("/?from=somewhere", "/browse.html"),
        ("/nightly", "/nightly/"),
        ("/nightly/json", "/nightly/json/"),
        ("/nightly/json/vllm-omni", "/nightly/json/vllm-omni/"),
        ("/nightly/vllm-omni", "/nightly/vllm-omni/"),
        ("/nightly/vllm-omni?x=1", "/nightly/vllm-omni/"),
        ("/nightly/rocm7.2", "/nightly/rocm7.2/"),
        ("/nightly/Vllm.Omni/", "/nightly/vllm-omni/"),
        ("/nightly/VLLM__omni", "/nightly/vllm-omni/"),
        ("/nightly/vllm%5Fomni/", "/nightly/vllm-omni/"),
        ("/nightly/json/Vllm.Omni/", "/nightly/json/vllm-omni/"),
        ("/nightly/rocm7.2/Vllm_Omni/", "/nightly/rocm7.2/vllm-omni/"),
    ],
)
def test_redirects(server: Server, path: str, target: str) -> None:
    for method in ("GET", "HEAD"):
        answer = ask(server, path, method)
        assert (answer.status, answer.headers["Location"]) == (302 if target == "/browse.html" else 301, target)
        assert answer.body == b""
    assert ask(server, target).status == 200


@pytest.mark.parametrize(
    "path",
    [
        "/nothing",
        "/nothing/",
        "/nightly/nothing/",
        "/nightly/No.Thing/",
        "/nightly/json/nothing/",
        "/nightly/index.html/",
        "/nightly/-/",
        "/nightly/100%25.txt",  # decoded once, this is another file than 100%25.txt
        "/nightly/100%2525.txt/",
        f"/{'x' * 300}",
        f"/nightly/{'x' * 3000}/",
    ],
)
def test_what_is_not_there_is_404(server: Server, path: str) -> None:
    for method in ("GET", "HEAD"):
        assert ask(server, path, method).status == 404


def test_percent_signs_are_decoded_exactly_once(server: Server) -> None:
    assert ask(server, "/nightly/100%2525.txt").body == b"odd name"
    plus = WHEEL.replace("+", "%2B")
    assert ask(server, f"/{plus}").body == BODY
    assert ask(server, f"/{WHEEL}").body == BODY
    assert ask(server, f"/{plus.replace('%', '%25')}").status == 404


@pytest.mark.parametrize(
    "path",
    [
        "/_state/views/nightly.json",
        "/%5Fstate/views/nightly.json",
        "/_state/",
        "/_state",
        "/_ledger/",
        "/_ledger/index.html",
        "/_ledger",
        "/_probe",
        "/.omni-store/locks/00",
        "/.omni-store/",
        "/%2Eomni-store/",
    ],
)
def test_what_is_ours_is_never_served(server: Server, path: str) -> None:
    answer = ask(server, path)
    assert answer.status == 404
    assert b"ledger</" not in answer.body


@pytest.mark.parametrize(
    "path",
    [
        "/..",
        "/../",
        "/../secret",
        "/nightly/../../secret",
        "/nightly/../nightly/index.html",
        "/nightly/./index.html",
        "/%2e%2e/secret",
        "/%2E%2e%2Fsecret",
        "/nightly/%2e%2e/%2e%2e/secret",
        "/nightly%2findex.html",
        "/nightly/..%2f..%2fsecret",
        "/nightly\\..\\..\\secret",
        "/nightly%5cindex.html",
        "/nightly/index.html%00",
        "/%00",
        "/nightly/%0d%0aSet-Cookie:x",
        "/nightly//index.html",
        "/nightly//vllm-omni/",
        "/nightly/%zz",
        "/nightly/%",
        "/nightly/%ff/",
        "/nightly/%ed%a0%80/",
        "nightly/",
        "*",
        "http://127.0.0.1/nightly/",
    ],
)
def test_paths_that_could_mean_another_file_are_refused(server: Server, store: ObjectStore, path: str) -> None:
    beside = Path(urlsplit(store.url).path).parent / "secret"
    beside.write_text("secret words")
    answer = ask(server, path)
    assert answer.status == 400
    assert b"secret words" not in answer.body
    assert "Set-Cookie" not in answer.headers


def test_an_absolute_path_names_no_file_of_the_machine(server: Server, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret words")
    assert ask(server, f"/{tmp_path}/secret").status in (400, 404)
    assert ask(server, quote(f"{tmp_path}/secret")).status == 404
    assert ask(server, f"/{quote(str(tmp_path), safe='')}").status == 400


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=8), min_size=1, max_size=4))
def test_a_path_means_its_own_segments_or_nothing(names: list[str]) -> None:
    path = "/" + "/".join(quote(name, safe="") for name in names)
    odd = [name for name in names[:-1] if not name] + [name for name in names if name in (".", "..")]
    if odd or any(letter in "/\\\x7f" or letter < " " for letter in "".join(names)):
        with pytest.raises(RefusedError) as refused:
            parse_target(path)
        assert refused.value.status == 400
    else:
        target = parse_target(path)
        assert [*target.segments, *([""] if target.is_folder else [])] == names


def test_what_an_error_repeats_is_escaped(server: Server) -> None:
    for path in ("/<script>alert(1)</script>", "/nightly/%3Cscript%3E&amp;/", '/"onload="x'):
        answer = ask(server, path)
        assert answer.status == 404
        assert answer.headers["Content-Type"].startswith("text/html")
        assert "<script>" not in answer.text
        assert '"onload' not in answer.text
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
    raw = ask_raw(server, b"GET /a <script>alert(1)</script> HTTP/1.1\r\n\r\n")
    assert b" 400 " in raw.partition(b"\r\n")[0]
    assert b"<script>" not in raw


@pytest.mark.parametrize("path", ["/nightly/", "/nightly/json/vllm-omni/", f"/{quote(WHEEL)}", "/browse.html"])
def test_head_says_what_get_says_without_the_body(server: Server, path: str) -> None:
    head, get = ask(server, path, "HEAD"), ask(server, path)
    assert (head.status, head.body) == (200, b"")
    assert {k: v for k, v in head.headers.items() if k != "Date"} == {
        k: v for k, v in get.headers.items() if k != "Date"
    }


@pytest.mark.parametrize("path", ["/nightly/", "/nightly/json/vllm-omni/", f"/{quote(WHEEL)}"])
def test_what_the_client_still_has_is_304(server: Server, path: str) -> None:
    etag = ask(server, path).headers["ETag"]
    for header in (etag, f"W/{etag}", f'"other", {etag}', "*"):
        answer = ask(server, path, If_None_Match=header)
        assert (answer.status, answer.body, answer.headers["ETag"]) == (304, b"", etag)
        assert "Content-Length" not in answer.headers
    assert ask(server, path, If_None_Match='"other"').status == 200
    assert ask(server, path, If_None_Match=etag.strip('"')).status == 200


def test_a_changed_page_has_another_etag(tmp_path: Path) -> None:
    changing = open_store(str(tmp_path))
    tag = changing.put("v/index.html", b"one", layout.HTML, expected=ABSENT)
    with serve(changing) as server:
        etag = ask(server, "/v/").headers["ETag"]
        changing.put("v/index.html", b"two", layout.HTML, expected=tag)
        assert ask(server, "/v/", If_None_Match=etag).body == b"two"


@pytest.mark.parametrize(
    ("asked", "start", "end"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=0-99", 0, 100),
        ("bytes=100-", 100, len(BODY)),
        ("bytes=-7", len(BODY) - 7, len(BODY)),
        ("bytes=-99999999999999999999999", 0, len(BODY)),
        (f"bytes={len(BODY) - 1}-", len(BODY) - 1, len(BODY)),
        ("bytes=5-99999999999999999999999", 5, len(BODY)),
        ("BYTES=1000000-2000000", 1_000_000, 2_000_001),
    ],
)
def test_ranges_of_a_wheel(server: Server, asked: str, start: int, end: int) -> None:
    answer = ask(server, f"/{quote(WHEEL)}", Range=asked)
    assert (answer.status, answer.body) == (206, BODY[start:end])
    assert answer.headers["Content-Range"] == f"bytes {start}-{end - 1}/{len(BODY)}"
    assert answer.headers["Content-Length"] == str(end - start)


@pytest.mark.parametrize("asked", [f"bytes={len(BODY)}-", "bytes=-0", f"bytes={'9' * 5000}-"])
def test_a_range_beyond_the_end_is_416(server: Server, asked: str) -> None:
    answer = ask(server, f"/{quote(WHEEL)}", Range=asked)
    assert (answer.status, answer.headers["Content-Range"]) == (416, f"bytes */{len(BODY)}")


@pytest.mark.parametrize("asked", ["bytes=5-2", "bytes=-", "lines=1-2", "bytes=0-1,5-6", "bytes=a-b", "bytes 0-1"])
def test_what_is_no_single_range_gives_the_whole(server: Server, asked: str) -> None:
    answer = ask(server, f"/{quote(WHEEL)}", Range=asked)
    assert (answer.status, answer.body) == (200, BODY)


def test_a_range_of_another_version_gives_the_whole(server: Server) -> None:
    path = f"/{quote(WHEEL)}"
    etag = ask(server, path, "HEAD").headers["ETag"]
    assert ask(server, path, Range="bytes=0-9", If_Range=etag).status == 206
    assert ask(server, path, Range="bytes=0-9", If_Range='"other"').status == 200
    assert ask(server, path, "HEAD", Range="bytes=0-9").headers["Content-Length"] == str(len(BODY))


@given(st.integers(0, 30), st.integers(0, 40), st.integers(0, 40))
def test_a_range_is_never_more_than_the_object(size: int, first: int, last: int) -> None:
    data = bytes(range(size))
    closed, from_, tail = (choose_range(f"bytes={text}", size) for text in (f"{first}-{last}", f"{first}-", f"-{last}"))
    assert (closed is None) == (first > last)
    assert closed is None or data[slice(*closed)] == data[first : last + 1]
    assert from_ is not None
    assert data[slice(*from_)] == data[first:]
    assert tail is not None
    assert data[slice(*tail)] == (data[-last:] if last else b"")


def test_an_empty_file_has_no_range(tmp_path: Path) -> None:
    empty = open_store(str(tmp_path))
    empty.put("c/a-1.0.tar.gz", b"", layout.DISTRIBUTION, expected=ABSENT)
    with serve(empty) as server:
        assert (ask(server, "/c/a-1.0.tar.gz").status, ask(server, "/c/a-1.0.tar.gz").body) == (200, b"")
        assert ask(server, "/c/a-1.0.tar.gz", Range="bytes=0-").status == 416


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        (None, Form.HTML),
        ("  ", Form.HTML),
        ("*/*", Form.HTML),
        ("application/*", Form.JSON),
        ("text/*", Form.HTML),
        (f"*/*, {JSON};q=0.2", Form.HTML),
        (f"*/*;q=0.1, {JSON};q=0.2", Form.JSON),
        (f"{SIMPLE_HTML};q=0.5, */*;q=0.5", Form.SIMPLE_HTML),
        ("text/html, application/xhtml+xml, application/xml;q=0.9, */*;q=0.8", Form.HTML),
        ("application/vnd.pypi.simple.latest+html", Form.SIMPLE_HTML),
        ("text/html;charset=utf-8;q=0.3", Form.HTML),
        (f"{JSON};q=5, text/html;q=0.1", Form.HTML),
        (f"{JSON};q=1.000, text/html;q=0.999", Form.JSON),
        ("*/html", None),
        ("text/plain", None),
        (",,;q=1,/", None),
        (f"{JSON};q=0, {SIMPLE_HTML};q=0, */*", Form.HTML),
    ],
)
def test_the_preferred_form(accept: str | None, form: Form | None) -> None:
    assert choose_form(accept) is form


@given(st.text(max_size=60))
def test_header_values_never_fail(text: str) -> None:
    choose_form(text)
    choose_range(text, 10)
    still_fresh(text, '"tag"')
    range_counts(text, '"tag"')


FAILURES = [
    (TemporaryError, 503),
    (RemoteChangedError, 503),
    (ServiceRefusedError, 502),
    (CredentialsError, 502),
    (ConfigurationError, 502),
    (MissingInputError, 404),
]
PATHS = {"head": "/nightly/vllm-omni/", "get": "/nightly/vllm-omni/", "stream": f"/{quote(WHEEL)}"}


@pytest.mark.parametrize(("error", "status"), FAILURES)
@pytest.mark.parametrize("call", PATHS)
def test_a_store_that_fails(
    store: ObjectStore, capfd: pytest.CaptureFixture[str], call: str, error: type[OmniError], status: int
) -> None:
    def fail(*_arguments: object, **_more: object) -> Iterator[bytes]:
        raise error("cannot read <the> bucket")

    failing = Wrapped(store)
    setattr(failing, call, fail)
    with serve(failing) as server:
        answer = ask(server, PATHS[call])
    shown = capfd.readouterr().err
    assert answer.status == status
    assert "Traceback" not in answer.text + shown
    if status != 404:
        assert "cannot read &lt;the&gt; bucket" in answer.text
        assert shown.count("\n") == 1
        assert f"warning: {status} for {PATHS[call]}: cannot read <the> bucket" in shown


def test_a_key_that_the_store_cannot_hold_is_404(store: ObjectStore) -> None:
    class Short(Wrapped):
        def head(self, key: str) -> Stored | None:
            raise DataError("a key may have 9 bytes")

    with serve(Short(store)) as server:
        assert ask(server, "/nightly/").status == 404


def test_a_body_that_breaks_off_is_seen_as_short(store: ObjectStore, capfd: pytest.CaptureFixture[str]) -> None:
    class Breaking(Wrapped):
        def stream(self, key: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
            yield BODY[:1000]
            raise TemporaryError("the connection broke")

    with serve(Breaking(store)) as server, pytest.raises(http.client.IncompleteRead):
        ask(server, PATHS["stream"])
    assert capfd.readouterr().err == f"warning: {WHEEL} broke off: the connection broke\n"


def test_a_store_that_gives_too_much_or_too_little(store: ObjectStore) -> None:
    class Odd(Wrapped):
        def stream(self, key: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
            yield from ((BODY, b"more", b"more") if start == 0 else (b"x",))

    with serve(Odd(store)) as server:
        assert ask(server, PATHS["stream"]).body == BODY
        with pytest.raises(http.client.IncompleteRead):
            ask(server, PATHS["stream"], Range="bytes=1-9")


def test_a_wheel_is_streamed_in_pieces(store: ObjectStore) -> None:
    sent = threading.Event()

    class Slow(Wrapped):
        def stream(self, key: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
            yield BODY[:10]
            assert sent.wait(10)
            yield BODY[10:]

    with serve(Slow(store)) as server:
        connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=10)
        connection.request("GET", PATHS["stream"])
        answer = connection.getresponse()
        assert answer.read(10) == BODY[:10]  # while the store still holds the rest back
        sent.set()
        assert answer.read() == BODY[10:]
        connection.close()


def test_our_own_bug_is_500_for_the_client_and_a_traceback_here(
    store: ObjectStore, capfd: pytest.CaptureFixture[str]
) -> None:
    class Broken(Wrapped):
        def head(self, key: str) -> Stored | None:
            raise ZeroDivisionError

    with serve(Broken(store)) as server:
        answer = ask(server, "/nightly/")
    assert (answer.status, "ZeroDivision" in answer.text) == (500, False)
    assert "ZeroDivisionError" in capfd.readouterr().err


def test_a_client_that_goes_away_is_no_error(store: ObjectStore, capfd: pytest.CaptureFixture[str]) -> None:
    gone, done = threading.Event(), threading.Event()

    class Endless(Wrapped):
        def stream(self, key: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
            try:
                yield BODY[:10]
                assert gone.wait(10)
                yield BODY[10:]
            finally:
                done.set()

    with serve(Endless(store)) as server:
        connection = socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])))
        connection.sendall(f"GET {PATHS['stream']} HTTP/1.1\r\n\r\n".encode())
        assert connection.recv(5) == b"HTTP/"
        # An end without a farewell: the server's next write fails.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        connection.close()
        gone.set()
        assert done.wait(10)
        assert ask(server, "/browse.html").status == 200
    assert capfd.readouterr().err == ""


def test_one_connection_carries_many_requests(server: Server) -> None:
    connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=10)
    socket_used = None
    for path, status in (("/browse.html", 200), ("/nothing", 404), ("/..", 400), ("/", 302), ("/nightly/", 200)):
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        assert answer.status == status
        socket_used = socket_used or connection.sock
        assert connection.sock is socket_used
    connection.close()


def test_a_body_is_never_taken_for_a_request(server: Server) -> None:
    smuggled = b"GET /browse.html HTTP/1.1\r\n\r\n"
    lengths = [b"Content-Length: %d" % len(smuggled), b"Transfer-Encoding: chunked", b"Content-Length: 1x"]
    for header in lengths:
        answer = ask_raw(server, b"GET /nothing HTTP/1.1\r\n" + header + b"\r\n\r\n" + smuggled)
        assert answer.count(b"HTTP/1.1 ") == 1
        assert b"Connection: close" in answer


ODD_HEADS = [
    b"Content-Length: 0\r\nContent-Length: 0", b"Content-Length: 0\r\ncontent-length: 40", b"Content-Length : 40",
    b"Content-Length\t: 40", b"Host: x\r\nTransfer-Encoding : chunked", b"Host : x\r\nContent-Length: 0",
    b"no colon", b": no name", b" folded: x\r\nHost: x", b"Content-Length: 0, 40", b"Content-Length: +0",
    b"Content-Length: -1", b"Content-Length: 0x0", b"Content-Length:", "Content-Length: \u0664".encode(),
    b"a b: x", b"\xff: x",
]  # fmt: skip


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"POST /nightly/ HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}", b" 501 "),
        (b"DELETE /browse.html HTTP/1.1\r\n\r\n", b" 501 "),
        (b"nonsense\r\n\r\n", b" 400 "),
        (b"GET / HTTP/9.9\r\n\r\n", b" 505 "),
        *((b"GET /browse.html HTTP/1.1\r\n" + head + b"\r\n\r\n", b" 400 ") for head in ODD_HEADS),
        (b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n", b" 414 "),
        (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 200 + b"\r\n", b" 431 "),
    ],
)
def test_requests_that_are_none(server: Server, request_: bytes, status: bytes) -> None:
    answer = ask_raw(server, request_)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert status in head.partition(b"\r\n")[0]
    assert b"Connection: close" in head
    assert b"Traceback" not in body
    assert ask(server, "/browse.html").status == 200


def test_fifty_clients_at_once(server: Server) -> None:
    statuses: list[int] = []
    clients = [threading.Thread(target=lambda: statuses.append(ask(server, "/nightly/").status)) for _ in range(50)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    assert statuses == [200] * 50


def test_stop_closes_the_port_and_idle_connections(store: ObjectStore) -> None:
    before = set(threading.enumerate())
    server = serve(store)
    idle = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=10)
    idle.request("GET", "/browse.html")
    idle.getresponse().read()
    server.stop()
    server.stop()
    assert idle.sock.recv(1) == b""
    idle.close()
    with pytest.raises(ConnectionRefusedError):
        ask(server, "/")
    server.wait()
    for thread in set(threading.enumerate()) - before:
        thread.join(10)
        assert not thread.is_alive()


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.1", "example.org", "", "::", "::1", "127.0.0.1.example.org"])
def test_only_loopback_is_served(store: ObjectStore, host: str) -> None:
    with pytest.raises(UsageError, match="loopback"):
        serve(store, host=host)


def test_a_taken_port_and_one_that_is_none(store: ObjectStore, server: Server) -> None:
    with pytest.raises(ConfigurationError, match=f"cannot serve on 127.0.0.1:{server.url.rpartition(':')[2]}: "):
        serve(store, port=int(server.url.rpartition(":")[2]))
    for port in (-1, 65_536):
        with pytest.raises(UsageError, match="not a port"):
            serve(store, port=port)


def test_requests_are_logged_only_when_asked_for(store: ObjectStore, capfd: pytest.CaptureFixture[str]) -> None:
    with serve(store) as quiet:
        ask(quiet, "/browse.html")
    assert capfd.readouterr().err == ""
    with serve(store, log=True) as talking:
        ask(talking, "/browse.html")
        ask_raw(talking, b"GET /\x1b[31mred HTTP/1.0\r\n\r\n")
    assert capfd.readouterr().err == "200 GET /browse.html HTTP/1.1\n400 GET /?[31mred HTTP/1.0\n"


@pytest.fixture(scope="module", params=[None, "https://wheels.invalid/omni"])
def people(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Index:
    """Return an index whose pages for people know their own address, or do not."""
    rules = replace(RULES, public_url=request.param)
    index = index_of(open_store(str(tmp_path_factory.mktemp("people") / "store")), rules)
    nightly(index, 1, ("sample", "1.0"), ("sample", "1.0+cu130"), ("other-thing", "2.0"))
    return index


@pytest.mark.parametrize("view", ["nightly", commit(1)])
@pytest.mark.parametrize("page", ["browse.html", "sample/browse.html", "other-thing/browse.html"])
def test_pages_that_do_not_know_their_address_get_the_servers(people: Index, view: str, page: str) -> None:
    key = f"{view}/{page}"
    blob = people.store.get(key)
    assert blob is not None
    knows = browse.PLACEHOLDER.encode() not in blob.data
    assert knows or people.rules.public_url is None
    with serve(people.store) as first, serve(people.store) as second:
        got = ask(first, f"/{key}")
        assert got.status == 200
        assert browse.PLACEHOLDER not in got.text
        assert "does not know its own address" not in got.text
        assert (got.body == blob.data) is knows
        if not knows:
            assert f"{first.url}/{view}/" in got.text
        head = ask(first, f"/{key}", "HEAD")
        assert head.body == b""
        for name in ("ETag", "Content-Length", "Content-Type", "Cache-Control"):
            assert head.headers[name] == got.headers[name]
        assert int(got.headers["Content-Length"]) == len(got.body)
        for method in ("GET", "HEAD"):
            assert ask(first, f"/{key}", method, If_None_Match=got.headers["ETag"]).status == 304
        # Another port is another page: what a browser keeps from the one must not pass for the other.
        assert (ask(second, f"/{key}", If_None_Match=got.headers["ETag"]).status == 304) is knows
        assert (ask(first, f"/{key}", If_None_Match=blob.etag).status == 304) is knows
    assert people.store.get(key) == blob


@pytest.mark.parametrize(("view", "count"), [("nightly", 3), ("v1!2.0", 3), (None, 1)])
def test_the_lines_to_paste_are_whole_commands(view: str | None, count: int) -> None:
    lines = usage_lines("http://127.0.0.1:1", view, "some-project")
    assert len(lines) == count
    assert lines[0].endswith("/browse.html")
    for line in lines[1:]:
        words = shlex.split(line)
        assert words[-1] == "some-project"
        (address,) = (word for word in words if word.startswith("http"))
        assert address == f"http://127.0.0.1:1/{quote(view or '', safe='')}/"
