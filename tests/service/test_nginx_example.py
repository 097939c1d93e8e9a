"""The example for nginx, in a real one: it answers as our own server does, and pip and uv install through it."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tasks.release import judges
from tasks.support.store import ObjectStore
from tasks.wheels import layout
from tasks.wheels.checking import check_view
from tests.factory_index import commit, index_of
from tests.fronts import BROWSER, HTML, JSON, PATHS, PIP, SIMPLE_HTML, UV, WHEEL, filled_store, served
from tests.services import find_program, free_ports, running, service_missing

pytestmark = pytest.mark.service

EXAMPLE = Path(__file__).parents[2] / "docs/cdn/nginx.conf.example"
LATEST = JSON.replace(".v1+", ".latest+")
ACCEPTS = [
    None,
    "",
    "*/*",
    "text/*",
    PIP,
    UV,
    BROWSER,
    HTML,
    SIMPLE_HTML,
    JSON,
    LATEST,
    f"{JSON};q=1.0, {HTML}",
    "image/png",
]
ACCEPTS += [f"{HTML}, {JSON}", f"{HTML}, {JSON};q=0.9", f"{JSON};q=0.9", "application/*", "application/json"]
# nginx joins slashes and has no means of writing small letters.
OWN_WAYS = ("//", "JSON/", "CU130", "SAMPLE")
CONFIGURATION = """\
daemon off;
master_process off;
pid nginx.pid;
error_log stderr;
events {{}}
http {{
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
{}
}}
"""


@dataclass(frozen=True)
class Front:
    """A running nginx and the store that it serves."""

    url: str
    store: ObjectStore
    folder: Path


@dataclass(frozen=True)
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    program = find_program("nginx") or find_program("/usr/sbin/nginx")
    if program is None:
        service_missing("no nginx: Debian's package of that name is not installed")
    folder = tmp_path_factory.mktemp("nginx")
    store = filled_store(folder / "store")
    for attempt in range(3):
        (port,) = free_ports(1)
        home = folder / f"nginx-{attempt}"
        home.mkdir()
        example = replaced(EXAMPLE.read_text(encoding="utf-8"), " 80;", f" 127.0.0.1:{port};")
        example = replaced(example, " /srv/wheels;", f" {folder / 'store'};")
        (home / "nginx.conf").write_text(CONFIGURATION.format(example), encoding="utf-8")
        argv = [program, "-e", "stderr", "-p", str(home), "-c", str(home / "nginx.conf")]
        with running(argv, folder=home, ready=lambda: listens(port)) as is_ready:  # noqa: B023 - called in this turn
            if is_ready:
                yield Front(f"http://127.0.0.1:{port}", store, folder / "store")
                return
    service_missing(f"nginx did not start:\n{(home / 'log').read_text()}")


def replaced(text: str, old: str, new: str) -> str:
    """Replace what is in a text once."""
    assert text.count(old) == 1
    return text.replace(old, new)


def listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def ask(front: Front, path: str, accept: str | None = None) -> Reply:
    """Send one request, its path untouched, and follow nothing."""
    connection = http.client.HTTPConnection(urlsplit(front.url).netloc, timeout=10)
    connection.putrequest("GET", path, skip_accept_encoding=True)
    if accept is not None:
        connection.putheader("Accept", accept)
    connection.endheaders()
    answer = connection.getresponse()
    reply = Reply(answer.status, dict(answer.headers), answer.read())
    connection.close()
    return reply


def followed(front: Front, path: str, accept: str | None) -> tuple[str, Reply]:
    """Return the path that redirects end at, decoded, and the answer there."""
    for _ in range(5):
        reply = ask(front, path, accept)
        if reply.status not in (301, 302):
            return unquote(path.partition("?")[0]), reply
        path = reply.headers["Location"]
    raise AssertionError(f"too many redirects, at last to {path}")


def served_at_last(store: ObjectStore, path: str, accept: str | None) -> tuple[str, object]:
    """Return the path that our own server's redirects end at, and the key or status there."""
    answer = served(store, path, accept)
    if answer[0] in (301, 302):
        return served_at_last(store, str(answer[1]), accept)
    return path.partition("?")[0], answer[0]


@pytest.mark.parametrize("accept", ACCEPTS)
def test_it_answers_as_our_own_server(front: Front, accept: str | None) -> None:
    asked = [path for path in PATHS if path.startswith("/") and not any(way in path for way in OWN_WAYS)]
    assert len(asked) > 50
    for path in (path.replace("Sample", "sample").replace("Thing", "thing") for path in asked):
        right_path, right = served_at_last(front.store, path, accept)
        end, reply = followed(front, path, accept)
        where = f"{path} for {accept}"
        if not isinstance(right, str):
            # Bytes that are no UTF-8 are a name like any other to nginx.
            assert reply.status in ((400, 404) if right == 400 else (right,)), where
            continue
        blob = front.store.get(right)
        assert blob is not None
        assert (reply.status, end, reply.body) == (200, unquote(right_path), blob.data), where
        headers = layout.headers_for(right)
        assert reply.headers["Content-Type"] == headers.content_type, where
        assert reply.headers["Cache-Control"] == headers.cache_control, where
        assert reply.headers.get("Vary") == ("Accept" if right.endswith(".html") else None), where


def test_answers_that_a_wish_chose_say_so(front: Front) -> None:
    for accept, status in ((JSON, 302), (HTML, 200), ("image/png", 406)):
        reply = ask(front, "/nightly/", accept)
        assert (reply.status, reply.headers["Vary"]) == (status, "Accept")
    assert "Vary" not in ask(front, WHEEL).headers


def test_what_is_ours_is_nobodys(front: Front) -> None:
    files = [path.relative_to(front.folder).as_posix() for path in front.folder.rglob("*") if path.is_file()]
    hidden = [path for path in files if path.startswith(("_", "."))]
    assert {path.partition("/")[0] for path in hidden} == {"_state", ".omni-store"}
    for path in hidden:
        encoded = f"%{ord(path[0]):02X}{path[1:]}"
        dotted = [f"/nightly/{up}/{path}" for up in ("..", "%2e%2e", "..%2f.", "x/../..")]
        for spelling in (f"/{path}", f"//{path}", f"/{encoded}", f"/./{path}", *dotted, f"/nightly/..%2f{path}"):
            assert ask(front, spelling).status in (400, 404), spelling


def test_a_folder_without_a_page_is_nothing(front: Front) -> None:
    (front.folder / "nightly/bare").mkdir()
    for path in ("/nightly/bare", "/nightly/bare/"):
        assert followed(front, path, HTML)[1].status == 404


def test_no_line_break_reaches_a_header(front: Front) -> None:
    for path in ("/nightly%0d%0aX-Evil:1/", "/nightly/sample%0aX-Evil:1", "/nightly/a_b%0d%0aX-Evil:1/"):
        for accept in (HTML, JSON):
            reply = ask(front, path, accept)
            assert reply.status == 404
            assert "X-Evil" not in reply.headers


def test_a_missing_file_is_no_other_spelling(front: Front) -> None:
    for path in (
        f"/{commit(1)}/a_b-1.0-py3-none-any.whl",
        f"/{commit(1)}/a_b-1.0.tar.gz",
        "/nightly/other/a_b.json",
        "/nightly/a_b.html",
    ):
        assert ask(front, path).status == 404


def test_pip_and_uv_install_through_it(front: Front, tmp_path: Path) -> None:
    for view in ("nightly", commit(1), "v1.0"):
        assert check_view(index_of(front.store), view).errors == ()
    url = f"{front.url}/nightly/"
    assert judges.pip_download(tmp_path / "pip", url, "Sample_Thing") == "sample_thing-1.0-py3-none-any.whl"
    assert judges.pip_download(tmp_path / "json", f"{url}json/", "other") == "other-1.0-py3-none-any.whl"
    # Without the slash, as people write it.
    assert judges.uv_install(tmp_path / "uv", f"{url}cu130", "sample-thing") == "1.0+cu130"
