"""Challenges, scopes, pauses and refusals: what registries write, and what it is read as."""

from __future__ import annotations

import io
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
import requests
from hypothesis import example, given
from hypothesis import strategies as st

from tasks.registry.challenge import Challenge, merged, parse_challenges, scope_of
from tasks.registry.client import RegistryClient, origin_of_registry
from tasks.registry.gate import Gate, StoppedError, Waited, asked_pause, heed
from tasks.registry.refusals import Refused, is_passing
from tasks.support.errors import CredentialsError, OmniError, ServiceRefusedError, TemporaryError
from tasks.support.settings import load

WORDS = st.text("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_", min_size=1)
TEXTS = st.text(st.characters(min_codepoint=32, max_codepoint=255, exclude_characters="\x7f"))


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (
            'Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="repository:a/b:pull,push"',
            [
                (
                    "bearer",
                    {
                        "realm": "https://auth.docker.io/token",
                        "service": "registry.docker.io",
                        "scope": "repository:a/b:pull,push",
                    },
                )
            ],
        ),
        (
            'Basic realm="https://1.dkr.ecr.us-east-1.amazonaws.com/",service="ecr.amazonaws.com"',
            [("basic", {"realm": "https://1.dkr.ecr.us-east-1.amazonaws.com/", "service": "ecr.amazonaws.com"})],
        ),
        ('Basic realm=plain, Bearer realm="a, b"', [("basic", {"realm": "plain"}), ("bearer", {"realm": "a, b"})]),
        ('Negotiate, Basic realm="x"', [("negotiate", {}), ("basic", {"realm": "x"})]),
        ('Negotiate YWJj==, Basic realm="x"', [("negotiate", {}), ("basic", {"realm": "x"})]),
        (r'BEARER Realm = "say \"hi\\" , SERVICE=s', [("bearer", {"realm": 'say "hi\\', "service": "s"})]),
        ("Bearer", [("bearer", {})]),
        ("", []),
        ("   ", []),
        ('"', []),
    ],
)
def test_challenges_are_read(header: str, expected: list[tuple[str, dict[str, str]]]) -> None:
    assert parse_challenges(header) == [Challenge(scheme, parameters) for scheme, parameters in expected]


@given(st.lists(st.tuples(WORDS, st.dictionaries(WORDS.map(str.lower), TEXTS, min_size=1)), min_size=1, max_size=3))
def test_every_challenge_comes_back(challenges: list[tuple[str, dict[str, str]]]) -> None:
    def quoted(text: str) -> str:
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

    header = ", ".join(
        f"{scheme} " + ",".join(f"{name}={quoted(text)}" for name, text in parameters.items())
        for scheme, parameters in challenges
    )
    assert parse_challenges(header) == [Challenge(scheme.lower(), parameters) for scheme, parameters in challenges]


@given(st.text(max_size=300))
@example("Bearer " + "a=" * 100_000)
@example("," * 100_000)
@example('Bearer a="' + "\\" * 100_000)
def test_no_header_is_too_odd(header: str) -> None:
    for challenge in parse_challenges(header):
        assert challenge.scheme


def test_scopes_of_one_resource_become_one() -> None:
    assert scope_of("a/b", "pull", "push") == ("repository:a/b:pull,push",)
    assert merged("repository:a/b:pull", "repository:c:pull", "repository:a/b:pull,push") == (
        "repository:a/b:pull,push",
        "repository:c:pull",
    )
    assert merged("aws", "repository:a:pull") == ("aws", "repository:a:pull")
    assert merged("repository:host:5000/a:pull", "repository:host:5000/a:push") == ("repository:host:5000/a:pull,push",)


NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2", 2.0),
        (" 120 ", 120.0),
        ("0", 0.0),
        (format_datetime(NOW + timedelta(seconds=30), usegmt=True), 30.0),
        (format_datetime(NOW - timedelta(seconds=30), usegmt=True), 0.0),
        ("Monday, 30-Nov-26 12:00:05 GMT", 5.0),
        ("", None),
        ("-1", None),
        ("1.5", None),
        ("soon", None),
        ("²", None),
        ("Mon, 99 Nov 2026 12:00:00 GMT", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(text: str, expected: float | None) -> None:
    assert asked_pause({"Retry-After": text}, NOW) == expected


@given(st.text(max_size=40))
def test_no_retry_after_is_too_odd(text: str) -> None:
    pause = asked_pause({"Retry-After": text}, NOW)
    assert pause is None or pause >= 0
    assert asked_pause({}, NOW) is None


def test_a_gate_counts_what_it_was_shut_for_and_not_what_overlaps() -> None:
    gate = Gate()
    gate.wait()
    gate.close(30.0, limited=True)
    gate.close(30.0, limited=True)
    gate.close(10.0, limited=True)
    gate.close(60.0, limited=False)
    assert gate.waited.times == 3
    assert gate.waited.seconds == pytest.approx(30.0, abs=1.0)
    assert str(Waited()) == ""
    assert str(Waited(1, 2.2)) == "rate limited once, waited 2 s"
    assert str(Waited(3, 9.0) - Waited(1, 5.0)) == "rate limited 2 times, waited 4 s"


def test_a_thread_whose_work_is_to_end_leaves_a_shut_gate() -> None:
    gate, stop, asked = Gate(), threading.Event(), threading.Event()
    gate.close(3600.0, limited=True)

    def work() -> None:
        asked.set()
        gate.wait()

    with ThreadPoolExecutor(1, "worker", heed, (stop,)) as pool:
        waiting = pool.submit(work)
        assert asked.wait(60)
        stop.set()
        assert isinstance(waiting.exception(60), StoppedError)
        assert isinstance(pool.submit(gate.wait).exception(60), StoppedError)
    assert gate.left > 0


def answer(status: int, body: bytes, reason: str = "Reason") -> requests.Response:
    response = requests.Response()
    response.status_code = status
    response.reason = reason
    response.raw = io.BytesIO(body)
    return response


@pytest.mark.parametrize(
    ("status", "body", "kind", "message"),
    [
        (
            403,
            b'{"errors":[{"code":"DENIED","message":"requested access to the resource is denied"}]}',
            CredentialsError,
            "doing: 403 DENIED requested access to the resource is denied",
        ),
        (401, b'{"errors":[{"code":"UNAUTHORIZED"}]}', CredentialsError, "doing: 401 UNAUTHORIZED"),
        (429, b"HAP429: too many requests\n", TemporaryError, "doing: 429 HAP429: too many requests"),
        (503, b"", TemporaryError, "doing: 503 Reason"),
        (501, b"", ServiceRefusedError, "doing: 501 Reason"),
        (400, b'{"message":"a\\u001b[31mred"}', ServiceRefusedError, "doing: 400 a [31mred"),
        (400, b'{"errors":"odd"}', ServiceRefusedError, "doing: 400 Reason"),
        (400, b'[{"code":"X"}]', ServiceRefusedError, 'doing: 400 [{"code":"X"}]'),
        (400, b'{"errors":[{"code":"a b","message":"m"},3]}', ServiceRefusedError, "doing: 400 m"),
        (400, b"\xff\xfe<b>bold</b>", ServiceRefusedError, "doing: 400 \ufffd\ufffd bold"),
        (
            400,
            b'{"message":"see https://me:word@host/?token=abcdef Authorization: Bearer abcdefghijk"}',
            ServiceRefusedError,
            "doing: 400 see https://***@host/?token=*** Authorization: ***",
        ),
    ],
)
def test_a_refusal_says_what_the_registry_said(status: int, body: bytes, kind: type[OmniError], message: str) -> None:
    error = Refused.read(answer(status, body)).error("doing", login="log in")
    assert type(error) is kind
    assert error.message == message
    assert kind is not CredentialsError or error.hint == "log in"


@given(st.integers(400, 599), st.binary(max_size=500))
@example(400, b"x" * 10_000)
@example(400, b'{"errors":' + b"[" * 3000)
def test_no_refusal_is_too_odd(status: int, body: bytes) -> None:
    error = Refused.read(answer(status, body)).error("doing", login="log in")
    assert error.message.isprintable()
    assert len(error.message) < 400
    assert isinstance(error, TemporaryError) == is_passing(status)


@pytest.mark.parametrize(
    ("registry", "origin"),
    [
        ("docker.io", "https://registry-1.docker.io"),
        ("public.ecr.aws", "https://public.ecr.aws"),
        ("host.example:5000", "https://host.example:5000"),
        ("127.0.0.1:5000", "http://127.0.0.1:5000"),
        ("localhost", "http://localhost"),
        ("localhost:80", "http://localhost:80"),
        ("[::1]:5000", "http://[::1]:5000"),
        ("127.0.0.1.example", "https://127.0.0.1.example"),
        ("localhost.example", "https://localhost.example"),
        ("10.0.0.1:5000", "https://10.0.0.1:5000"),
    ],
)
def test_only_this_machine_is_asked_in_the_clear(registry: str, origin: str) -> None:
    assert origin_of_registry(registry) == origin


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("/v2/x/blobs/uploads/1?a=b", "https://host.example:5000/v2/x/blobs/uploads/1?a=b"),
        ("1?a=b", "https://host.example:5000/v2/x/blobs/uploads/1?a=b"),
        ("https://host.example:5000/u/1", "https://host.example:5000/u/1"),
        ("http://host.example:5000/u/1?a=b", "https://host.example:5000/u/1?a=b"),
        ("http://host.example/u/1", "https://host.example:5000/u/1"),
        ("//other.example/u/1", "https://other.example/u/1"),
        ("http://other.example/u/1", None),
        ("http://127.0.0.1/u/1", None),
        ("ftp://host.example:5000/u/1", None),
        ("file:///etc/passwd", None),
    ],
)
def test_an_upload_goes_where_the_registry_says_but_never_in_the_clear(target: str, expected: str | None) -> None:
    client = RegistryClient("host.example:5000", load(environment={}))
    asked = "https://host.example:5000/v2/x/blobs/uploads/"
    if expected is None:
        with pytest.raises(ServiceRefusedError, match="doing: the registry leads to"):
            client.next_url(asked, target, "doing")
    else:
        assert client.next_url(asked, target, "doing") == expected
