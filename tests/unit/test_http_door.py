"""The http door against a real server on the loopback."""

from __future__ import annotations

import base64
import io
import itertools
import json
import re
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import requests

from tasks.support.errors import (
    ConfigurationError,
    CredentialsError,
    MissingInputError,
    OmniError,
    ServiceRefusedError,
    TemporaryError,
    UsageError,
)
from tasks.support.http_door import body_of, open_session, user_agent
from tasks.support.settings import CHECKOUT
from tests.services import find_program, service_missing

pytestmark = pytest.mark.slow  # together these take longer than the fast set may

Answer = Callable[["Handler"], None]


class Handler(BaseHTTPRequestHandler):
    """Give the server's next prepared answer, the last one again and again."""

    protocol_version = "HTTP/1.1"
    server: Server

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except ConnectionError:
            self.close_connection = True

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.asked.append((self.command, self.path, dict(self.headers), body, time.monotonic()))
        answers = self.server.answers
        (answers.pop(0) if len(answers) > 1 else answers[0])(self)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_PATCH = answer  # noqa: N815 - http.server's names

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's name
        """Keep the tests' output readable."""


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[tuple[str, str, dict[str, str], bytes, float]] = []
        self.answers: list[Answer] = [status(200)]
        self.released = threading.Event()

    def url(self, path: str = "/x", userinfo: str = "") -> str:
        return f"http://{userinfo}127.0.0.1:{self.server_address[1]}{path}"


def status(code: int, body: bytes = b"", **headers: str) -> Answer:
    def answer(handler: Handler) -> None:
        handler.send_response(code)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(body)

    return answer


def silence(handler: Handler) -> None:
    handler.server.released.wait(60)
    handler.close_connection = True


def hang_up(handler: Handler) -> None:
    """Reset the connection without a word."""
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.close_connection = True
    handler.rfile.close()
    handler.connection.close()


def half_a_body(handler: Handler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b"x" * 500)
    handler.close_connection = True


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield made
        made.released.set()
        made.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def _no_surprises(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "NETRC"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def quick(**manners: Any) -> requests.Session:
    return open_session(**{"backoff": 0.001, "connect": 5, "read": 5, **manners})


# Retries


@pytest.mark.parametrize("code", [429, 502, 503, 504])
@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE"])
def test_idempotent_requests_are_retried(server: Server, method: str, code: int) -> None:
    server.answers = [status(code), hang_up, status(code), status(200)]
    answer = quick().request(method, server.url(), data=b"body" if method == "PUT" else None)
    assert answer.status_code == 200
    assert [asked[0] for asked in server.asked] == [method] * 4
    assert {asked[3] for asked in server.asked} == {b"body" if method == "PUT" else b""}


@pytest.mark.parametrize("trouble", [status(503), status(429), hang_up])
@pytest.mark.parametrize("method", ["POST", "PATCH"])
def test_other_requests_are_sent_once(server: Server, method: str, trouble: Answer) -> None:
    server.answers = [trouble]
    with pytest.raises(TemporaryError):
        quick().request(method, server.url(), data=b"body")
    assert len(server.asked) == 1


@pytest.mark.parametrize("code", [400, 401, 404, 409, 412, 500, 501])
def test_other_answers_are_not_retried(server: Server, code: int) -> None:
    server.answers = [status(code), status(200)]
    with pytest.raises(OmniError):
        quick().get(server.url())
    assert len(server.asked) == 1


@pytest.mark.parametrize("trouble", [status(503), hang_up])
def test_retries_are_bounded(server: Server, trouble: Answer) -> None:
    server.answers = [trouble]
    with pytest.raises(TemporaryError):
        quick(retries=2).get(server.url())
    assert len(server.asked) == 3


def test_a_file_is_sent_whole_again_and_a_generator_is_refused(server: Server) -> None:
    server.answers = [status(503), status(200)]
    quick().put(server.url(), data=io.BytesIO(b"all of it"))
    assert [asked[3] for asked in server.asked] == [b"all of it"] * 2
    with pytest.raises(TypeError, match="seekable"):
        quick().put(server.url(), data=iter([b"a", b"b"]))
    assert len(server.asked) == 2


class Once:
    """A body with a known length that can be read once."""

    def __len__(self) -> int:
        return 6

    def __iter__(self) -> Iterator[bytes]:
        return iter([b"abc", b"def"])


def test_a_body_that_comes_once_is_for_a_session_that_retries_nothing(server: Server) -> None:
    server.answers = [status(200)]
    with pytest.raises(TypeError, match="seekable"):
        quick().patch(server.url(), data=Once())
    assert server.asked == []
    quick(retries=0).patch(server.url(), data=Once())
    assert server.asked[0][3] == b"abcdef"
    assert server.asked[0][2]["Content-Length"] == "6"


def pauses(server: Server) -> list[float]:
    times = [asked[4] for asked in server.asked]
    return [later - earlier for earlier, later in itertools.pairwise(times)]


def test_retry_after_seconds_are_waited(server: Server) -> None:
    server.answers = [status(503, Retry_After="1"), status(200)]
    quick().get(server.url())
    assert pauses(server)[0] >= 1


def test_retry_after_date_is_waited(server: Server) -> None:
    then = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=3)
    server.answers = [status(429, Retry_After=format_datetime(then, usegmt=True)), status(200)]
    quick().get(server.url())
    assert datetime.now(UTC) >= then


@pytest.mark.parametrize("value", ["100000", "Fri, 31 Dec 2100 23:59:59 GMT", "9" * 400, "soon", "-5", "", "1.5"])
def test_retry_after_is_capped_and_nonsense_ignored(server: Server, value: str) -> None:
    # The test would run into its time limit if any of these were believed.
    server.answers = [status(503, Retry_After=value), status(200)]
    assert quick(longest_pause=1).get(server.url()).status_code == 200


def test_pauses_grow_and_vary() -> None:
    from tasks.support.http_session import PoliteRetry

    retry = PoliteRetry(total=9, backoff_factor=1.0, backoff_max=60, status_forcelist={503})
    for tries in range(9):
        retry = retry.increment("GET", "/")
        longest = min(60, 2**tries)
        drawn = {retry.get_backoff_time() for _ in range(50)}
        assert len(drawn) == 50
        assert longest / 2 <= min(drawn) < max(drawn) <= longest


# Which failure becomes which error


@pytest.mark.parametrize(
    ("code", "kind", "exit_code"),
    [
        (400, ServiceRefusedError, 69),
        (401, CredentialsError, 77),
        (403, CredentialsError, 77),
        (404, MissingInputError, 66),
        (405, ServiceRefusedError, 69),
        (409, ServiceRefusedError, 69),
        (416, ServiceRefusedError, 69),
        (429, TemporaryError, 75),
        (500, TemporaryError, 75),
        (503, TemporaryError, 75),
        (599, TemporaryError, 75),
    ],
)
def test_statuses(server: Server, code: int, kind: type[OmniError], exit_code: int) -> None:
    server.answers = [status(code, b'{"message": "the\\nreason"}', Content_Type="application/json")]
    with pytest.raises(kind) as refused:
        quick().get(server.url("/path"))
    assert refused.value.exit_code == exit_code
    assert refused.value.message.startswith(f"GET {server.url('/path')}: {code} ")
    assert "the\\nreason" in refused.value.message
    assert "\n" not in refused.value.message


def test_allowed_statuses_are_the_callers(server: Server) -> None:
    server.answers = [status(404)]
    assert quick(allow={404}).get(server.url()).status_code == 404
    server.answers = [status(403)]
    with pytest.raises(CredentialsError):
        quick(allow={404}).get(server.url())


def test_refused_connections_and_unknown_hosts_are_refusals() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        with pytest.raises(ServiceRefusedError, match=r"cannot connect: .*Connection refused"):
            quick(retries=1).get(f"http://127.0.0.1:{bound.getsockname()[1]}/")
    with pytest.raises(ServiceRefusedError, match=r"GET http://nowhere\.invalid/: no such host"):
        quick(retries=0).get("http://nowhere.invalid/")


def test_silence_is_temporary(server: Server) -> None:
    server.answers = [silence]
    with pytest.raises(TemporaryError, match="no answer in time"):
        quick(read=0.1, retries=1).get(server.url())
    with pytest.raises(TemporaryError, match="no answer in time"):
        quick(read=0.1).post(server.url())


def test_every_request_has_a_timeout_whatever_the_caller_passes(server: Server) -> None:
    server.answers = [silence]
    session = quick(read=0.1, retries=0)
    prepared = session.prepare_request(requests.Request("GET", server.url()))
    with pytest.raises(TemporaryError, match="no answer in time"):
        session.get(server.url(), timeout=None)
    with pytest.raises(TemporaryError, match="no answer in time"):
        session.send(prepared)


@pytest.mark.parametrize("url", ["nohost", "ftp://x/", "http://", "http://[::1", "http://a b/", ""])
def test_what_is_no_address_is_a_usage_error(url: str) -> None:
    with pytest.raises(UsageError, match="not an http address"):
        quick().get(url)


@pytest.mark.parametrize(
    "target",
    ["http://[::1", "http://127.0.0.1:99999/x", "http://127.0.0.1:abc/x", "ftp://x/", "http://a b/"],
)
def test_a_redirect_to_no_address_is_a_refusal_by_the_server(server: Server, target: str) -> None:
    server.answers = [status(302, Location=f"{target}?hush")]
    with pytest.raises(ServiceRefusedError, match=re.escape(f"GET {server.url()}: redirected to ")) as caught:
        quick().get(server.url())
    assert "hush" not in caught.value.message
    assert quick().get(server.url(), allow_redirects=False).status_code == 302


@pytest.mark.parametrize(
    "proxy",
    [
        "::::", "http://[::1", "[::1", "http://127.0.0.1:99999", "http://127.0.0.1:abc", "http://", "ftp://h:1",
        "socks5://127.0.0.1:1", f"http://{'a' * 70}.com:1", "http://a..b:1", "h\n:99999", "u:hush@127.0.0.1:abc",
        "http://u:hush@[::1", "http://u:hu sh@:1", "http://u:hush/a@b:99999",
    ],
)  # fmt: skip
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_that_is_none_is_named(monkeypatch: pytest.MonkeyPatch, scheme: str, proxy: str) -> None:
    monkeypatch.setenv(f"{scheme}_proxy", proxy)
    with pytest.raises(ConfigurationError, match=r"the proxy .* cannot be used") as caught:
        quick(retries=0).get(f"{scheme}://nowhere.invalid/")
    assert proxy.rpartition("@")[2].partition("//")[2] in caught.value.message
    assert not re.search("hush|hu sh", caught.value.message)
    assert "\n" not in caught.value.message
    assert "HTTPS_PROXY" in (caught.value.hint or "")


@pytest.mark.parametrize("kind", ["missing", "garbage", "empty"])
@pytest.mark.parametrize("name", ["REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
def test_certificates_that_cannot_be_read_are_named(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, name: str, kind: str
) -> None:
    bundle = tmp_path / "bundle.pem"
    if kind != "missing":
        bundle.write_text("x" if kind == "garbage" else "")
    for other in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(other, raising=False)
    monkeypatch.setenv(name, str(bundle))
    with pytest.raises(ConfigurationError, match=re.escape(str(bundle))):
        quick(retries=0).get(server.url().replace("http:", "https:"))
    assert quick().get(server.url()).status_code == 200


def test_endless_redirects_are_a_refusal(server: Server) -> None:
    server.answers = [status(302, Location="/x")]
    with pytest.raises(ServiceRefusedError, match="too many redirects"):
        quick().get(server.url())


def test_a_server_that_does_not_speak_tls_is_refused(server: Server) -> None:
    with pytest.raises(ServiceRefusedError, match="cannot be trusted"):
        quick(retries=1).get(server.url().replace("http:", "https:"))


def test_a_certificate_of_nobody_is_refused_and_not_asked_for_again(server: Server, tmp_path: Path) -> None:
    if find_program("openssl") is None:
        service_missing("openssl is not installed: no certificate to test with")
    pem = tmp_path / "own.pem"
    make = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost"
    subprocess.run([*make.split(), "-keyout", pem, "-out", tmp_path / "crt"], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "crt", pem)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    with pytest.raises(ServiceRefusedError, match="cannot be trusted"):
        quick(retries=9, backoff=30).get(server.url().replace("http:", "https:"))


# Bodies


def test_streamed_bodies_come_in_pieces(server: Server) -> None:
    data = bytes(range(256)) * 4000
    server.answers = [status(200, data)]
    pieces = list(body_of(quick().get(server.url(), stream=True), chunk=100_000))
    assert b"".join(pieces) == data
    assert len(pieces) > 1


def test_half_a_body_never_passes_for_the_whole(server: Server) -> None:
    server.answers = [half_a_body]
    with pytest.raises(TemporaryError, match="the connection broke"):
        quick().get(server.url())
    response = quick().get(server.url("/x?token=hush"), stream=True)
    with pytest.raises(TemporaryError, match=r"GET .*token=\*\*\*: the connection broke"):
        list(body_of(response))


# Who we are and what we know


def test_the_user_agent_names_tool_and_version(server: Server) -> None:
    quick().get(server.url())
    assert re.fullmatch(r"omni-ci/\d+\.\d+\.\d+\S*", server.asked[0][2]["User-Agent"])
    assert server.asked[0][2]["User-Agent"] == user_agent()


@pytest.mark.parametrize("place", ["home", "variable"])
def test_netrc_is_never_read(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    file = tmp_path / (".netrc" if place == "home" else "elsewhere")
    file.write_text("machine 127.0.0.1 login me password hush\ndefault login me password hush\n")
    file.chmod(0o600)
    if place == "variable":
        monkeypatch.setenv("NETRC", str(file))
    assert requests.utils.get_netrc_auth(server.url()) == ("me", "hush")  # so the file would be read
    server.answers = [status(302, Location="/other"), status(200)]
    quick().get(server.url())
    assert [asked[2].get("Authorization") for asked in server.asked] == [None, None]


def test_credentials_in_the_url_and_given_ones_are_used(server: Server) -> None:
    quick().get(server.url(userinfo="me:p%40ss@"))
    quick().get(server.url(), auth=("you", "pw"))
    quick().get(server.url(), headers={"Authorization": "Bearer abc"})
    used = [asked[2].get("Authorization") for asked in server.asked]
    assert used[:2] == ["Basic " + base64.b64encode(pair).decode() for pair in (b"me:p@ss", b"you:pw")]
    assert used[2] == "Bearer abc"


def test_credentials_do_not_follow_a_redirect_to_another_host(server: Server) -> None:
    elsewhere = server.url("/there").replace("127.0.0.1", "localhost")
    server.answers = [status(302, Location=elsewhere), status(200)]
    quick().get(server.url(), headers={"Authorization": "Bearer abc"})
    assert [asked[2].get("Authorization") for asked in server.asked] == ["Bearer abc", None]
    server.asked.clear()
    server.answers = [status(302, Location="/there"), status(200)]
    quick().get(server.url(), headers={"Authorization": "Bearer abc"})
    assert [asked[2].get("Authorization") for asked in server.asked] == ["Bearer abc", "Bearer abc"]


def test_proxies_of_the_environment_are_used(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", server.url("/", "me:hush@"))
    assert quick().get("http://nowhere.invalid/through").status_code == 200
    assert server.asked[0][1] == "http://nowhere.invalid/through"
    monkeypatch.setenv("no_proxy", "nowhere.invalid")
    with pytest.raises(ServiceRefusedError, match="no such host"):
        quick(retries=0).get("http://nowhere.invalid/through")
    monkeypatch.setenv("http_proxy", "http://me:hush@127.0.0.1:1")
    with pytest.raises(ServiceRefusedError) as refused:
        quick(retries=0).get("http://other.invalid/")
    assert "hush" not in refused.value.message


# Secrets

SECRET_QUERY = "X-Amz-Signature=hush1&token=hush2&name=plain&AWSAccessKeyId=hush3&sig=hush4"


@pytest.mark.parametrize("trouble", [status(503), status(401), status(404), hang_up, half_a_body, silence])
def test_no_message_holds_a_credential(server: Server, trouble: Answer) -> None:
    server.answers = [trouble]
    session = quick(read=0.2, retries=1)
    with pytest.raises(OmniError) as failed:
        session.get(server.url(f"/p?{SECRET_QUERY}", "me:hush5@"))
    said = f"{failed.value.message} {failed.value.hint}"
    assert "hush" not in said
    assert "name=plain" in said


@pytest.mark.parametrize("value", ["hush\r\nX: y", "hush\n", " hush", "hush\u20ac", "\u65e5hush"])
def test_a_header_that_cannot_be_sent_is_not_shown(server: Server, value: str) -> None:
    with pytest.raises(CredentialsError) as caught:
        quick().get(server.url(), headers={"Authorization": f"{value}"})
    assert "hush" not in f"{caught.value.message} {caught.value.hint}"
    assert not server.asked


def test_an_answer_that_quotes_our_header_is_redacted(server: Server) -> None:
    echo = json.dumps({"seen": {"Authorization": "Bearer hush-hush-hush"}, "also": "Basic aHVzaDpodXNo"}).encode()
    server.answers = [status(400, echo, Content_Type="application/json")]
    with pytest.raises(ServiceRefusedError) as refused:
        quick().get(server.url(), headers={"Authorization": "Bearer hush-hush-hush"})
    assert "hush" not in refused.value.message
    assert "aHVzaDpodXNo" not in refused.value.message


def test_nothing_is_printed_while_retrying(server: Server) -> None:
    code = (
        "import sys; from tasks.support.http_door import open_session\n"
        "try: open_session(retries=2, backoff=0.001).get(sys.argv[1])\n"
        "except Exception as error: print(type(error).__name__)"
    )
    server.answers = [hang_up]
    done = subprocess.run(
        [sys.executable, "-c", code, server.url("/?token=hush")],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("TemporaryError\n", "")


def test_opening_the_door_loads_requests_late() -> None:
    code = "import sys, tasks.support.http_door; print('requests' in sys.modules or 'urllib3' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=CHECKOUT, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_without_requests_the_door_says_what_to_install() -> None:
    code = (
        "from tasks.support.errors import OmniError\nfrom tasks.support.http_door import open_session\n"
        "try: open_session()\nexcept OmniError as error: print(error.exit_code, error.message)"
    )
    argv = [sys.executable, "-S", "-c", code]
    done = subprocess.run(argv, cwd=CHECKOUT, env={}, capture_output=True, text=True, check=True)
    assert done.stdout == "78 requests is not installed here\n"
