"""What S3 does when it is unwell, or is no S3: the real server behind a proxy that breaks chosen requests."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tasks.support.errors import (
    ConfigurationError,
    CredentialsError,
    OmniError,
    ServiceRefusedError,
    TemporaryError,
)
from tasks.support.store import ABSENT, ConditionFailedError, Expected, Headers, redo_on_conflict
from tasks.support.store_s3 import Limits, S3Store
from tests.s3_proxy import Change, CutAnswer, CutRequest, Fault, Proxy, Reply, Seen, Stall, Strip, proxy_before, times
from tests.services import S3Server, use_aws

pytestmark = pytest.mark.service

PAGE = Headers("text/html; charset=utf-8", "no-cache")
FAST = Limits(connect_seconds=5, read_seconds=30, attempts=1, single_bytes=5 << 20, part_bytes=5 << 20)
PATIENT = replace(FAST, attempts=4)
CONDITIONS = ("if-match", "if-none-match")


@pytest.fixture
def proxy(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    with proxy_before(s3_server) as made:
        use_aws(monkeypatch, made.environment)
        yield made


@pytest.fixture
def store(proxy: Proxy) -> S3Store:
    return S3Store(proxy.server.new_bucket(), "pre", limits=FAST)


@pytest.fixture
def patient_store(store: S3Store) -> S3Store:
    return S3Store(store.bucket, "pre", limits=PATIENT)


def everything(_: Seen) -> bool:
    return True


def is_complete(seen: Seen) -> bool:
    return seen.method == "POST" and "uploadId" in seen.query


def is_part(seen: Seen) -> bool:
    return "partNumber" in seen.query


def a_file(folder: Path, size: int) -> Path:
    path = folder / "big.whl"
    path.write_bytes(bytes(range(251)) * (size // 251 + 1))
    return path


def uploads_left(proxy: Proxy, store: S3Store) -> object:
    return proxy.server.client.list_multipart_uploads(Bucket=store.bucket).get("Uploads", [])


def calls(store: S3Store, expected: Expected = None) -> dict[str, Callable[[], object]]:
    return {
        "head": lambda: store.head("k"),
        "get": lambda: store.get("k"),
        "stream": lambda: list(store.stream("k")),
        "list": lambda: list(store.list()),
        "delete": lambda: store.delete("k"),
        "put": lambda: store.put("k", b"", PAGE, expected=expected),
    }


@pytest.mark.parametrize(
    "case",
    [
        (CONDITIONS, "put", ABSENT),
        (CONDITIONS, "put", '"x"'),
        (("if-match",), "put", ABSENT),
        (("if-match",), "put", '"x"'),
        (("if-none-match",), "put", ABSENT),
        (("if-none-match",), "put", '"x"'),
        (CONDITIONS, "parts", ABSENT),
        (("if-none-match",), "parts", ABSENT),
        (("if-match",), "parts", '"x"'),
    ],
)
def test_server_that_ignores_conditions_is_refused_before_the_first_write(
    proxy: Proxy, store: S3Store, tmp_path: Path, case: tuple[tuple[str, ...], str, Expected]
) -> None:
    ignored, ignored_by, expected = case
    path = a_file(tmp_path, 6 << 20)
    proxy.rule = lambda seen: Strip(ignored) if is_complete(seen) == (ignored_by == "parts") else None

    def write() -> object:
        if ignored_by == "parts":
            return store.put_file("k", path, PAGE, expected=expected)
        return store.put("k", b"new", PAGE, expected=expected)

    for _ in range(2):
        with pytest.raises(ConfigurationError, match=r"^s3://.*: the server ignores If-(None-)?Match"):
            write()
    assert list(store.list()) == []
    assert store.head("k") is None
    assert uploads_left(proxy, store) == []


def test_server_that_ignores_conditions_may_be_read_and_is_asked_nothing_for_it(proxy: Proxy, store: S3Store) -> None:
    proxy.rule = lambda _: Strip(CONDITIONS)
    store.put("k", b"old", PAGE, expected=None)
    assert (store.head("k") is not None, store.get("k") is not None, len(list(store.list()))) == (True, True, 1)
    assert b"".join(store.stream("k")) == b"old"
    store.delete("k")
    assert not [seen for seen in proxy.seen if "_probe" in seen.key]


@pytest.mark.parametrize(
    "reply", [Reply(501, "NotImplemented"), Reply(405, "MethodNotAllowed"), Reply(400, "NotImplemented")]
)
def test_server_that_says_it_has_no_conditions_is_refused(proxy: Proxy, store: S3Store, reply: Reply) -> None:
    proxy.rule = lambda seen: reply if seen.headers.keys() & set(CONDITIONS) else None
    with pytest.raises(ConfigurationError, match="the server ignores If-None-Match and If-Match"):
        store.put("k", b"", PAGE, expected=ABSENT)


def test_conditions_are_tried_once_and_leave_nothing_in_listings(proxy: Proxy, store: S3Store) -> None:
    for number in range(3):
        store.put(f"k{number}", b"", PAGE, expected=ABSENT)
    first = len(proxy.of("PUT", "_probe"))
    assert first == 3
    S3Store(store.bucket, "pre", limits=FAST).put("k3", b"", PAGE, expected=ABSENT)
    assert len(proxy.of("PUT", "_probe")) - first == 2
    assert sorted(found.key for found in store.list()) == ["k0", "k1", "k2", "k3"]
    assert not proxy.of("DELETE")


def test_many_stores_that_try_conditions_at_once_do_not_disturb_each_other(store: S3Store) -> None:
    failures: list[BaseException] = []

    def write(number: int) -> None:
        try:
            S3Store(store.bucket, "pre", limits=FAST).put(f"k{number}", b"", PAGE, expected=ABSENT)
        except BaseException as error:  # noqa: BLE001 - told below
            failures.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


@pytest.mark.parametrize("status", [404, 409, 412])
@pytest.mark.parametrize("expected", [ABSENT, '"x"'])
def test_every_refusal_of_a_condition_is_a_lost_race(
    proxy: Proxy, store: S3Store, tmp_path: Path, status: int, expected: Expected
) -> None:
    path = a_file(tmp_path, 6 << 20)
    store.put("first", b"", PAGE, expected=ABSENT)
    proxy.rule = lambda seen: (
        Reply(status, "X") if seen.method == "PUT" and seen.key == "pre/k" and not is_part(seen) else None
    )
    with pytest.raises(ConditionFailedError, match="k"):
        store.put("k", b"", PAGE, expected=expected)
    old = store.put("big", b"", PAGE, expected=None) if expected is not ABSENT else None
    proxy.rule = lambda seen: Reply(status, "X") if is_complete(seen) and seen.key == "pre/big" else None
    with pytest.raises(ConditionFailedError, match="big"):
        store.put_file("big", path, PAGE, expected=old or ABSENT)
    assert uploads_left(proxy, store) == []


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (Reply(403, "AccessDenied"), CredentialsError),
        (Reply(403, "InvalidAccessKeyId"), CredentialsError),
        (Reply(400, "ExpiredToken"), CredentialsError),
        (Reply(401, "Unauthorized"), CredentialsError),
        (Reply(404, "NoSuchBucket"), ServiceRefusedError),
        (Reply(400, "InvalidRequest"), ServiceRefusedError),
        (Reply(400, "AuthorizationHeaderMalformed"), ConfigurationError),
        (Reply(403, "RequestTimeTooSkewed"), ConfigurationError),
        (Reply(500, "InternalError"), TemporaryError),
        (Reply(502, "BadGateway"), TemporaryError),
        (Reply(503, "SlowDown"), TemporaryError),
        (Reply(429, "TooManyRequests"), TemporaryError),
        (CutAnswer(all=True), TemporaryError),
    ],
    ids=str,
)
def test_only_a_missing_object_reads_as_missing(
    proxy: Proxy, store: S3Store, reply: Fault, kind: type[OmniError]
) -> None:
    store.put("k", b"old", PAGE, expected=ABSENT)
    proxy.rule = lambda _: reply
    for name, call in (calls(store) | {"put if": lambda: store.put("k", b"", PAGE, expected='"x"')}).items():
        if isinstance(reply, Reply) and reply.status == 400 and name in ("head", "stream"):
            continue  # an answer to HEAD has no body, so its code is not known
        with pytest.raises(kind) as caught:
            call()
        message = f"{caught.value.message} {caught.value.hint}"
        assert store.url in message, name
        assert "\n" not in message
        assert not [secret for secret in proxy.server.secrets if secret in message]


def test_head_of_a_missing_bucket_is_no_missing_object(proxy: Proxy) -> None:
    store = S3Store("there-is-none-such", limits=FAST)
    for name, call in (calls(store) | calls(store, ABSENT)).items():
        if name != "delete":
            with pytest.raises(ServiceRefusedError, match=r"there-is-none-such.*NoSuchBucket"):
                call()


def test_key_that_may_only_read(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = s3_server.new_bucket()
    s3_server.client.put_object(Bucket=bucket, Key="k", Body=b"old")
    use_aws(monkeypatch, s3_server.reader_environment)
    store = S3Store(bucket, limits=FAST)
    assert (store.get("k"), len(list(store.list()))) != (None, 0)
    for write in (lambda: store.put("k", b"", PAGE, expected=ABSENT), lambda: store.delete("k")):
        with pytest.raises(CredentialsError, match=rf"s3://{bucket}/.*403"):
            write()


def test_a_proxy_page_is_neither_an_empty_store_nor_a_missing_object(proxy: Proxy, store: S3Store) -> None:
    proxy.rule = lambda _: Reply(200, body=b"<html><body>Please log in</body></html>")
    with pytest.raises(ServiceRefusedError):
        list(store.list())


@pytest.mark.parametrize("fault", [Reply(500, "InternalError"), Reply(503, "SlowDown"), CutAnswer(all=True)], ids=str)
def test_a_failure_that_goes_away_is_not_seen(proxy: Proxy, patient_store: S3Store, fault: Fault) -> None:
    for name, call in calls(patient_store).items():
        patient_store.put("k", b"old", PAGE, expected=None)
        proxy.rule = times(1, everything, fault)
        assert call() is not None or name == "delete"


def test_a_write_whose_answer_was_lost_is_not_taken_for_a_lost_race(
    proxy: Proxy, patient_store: S3Store, tmp_path: Path
) -> None:
    path = a_file(tmp_path, 6 << 20)
    patient_store.put("first", b"", PAGE, expected=ABSENT)
    proxy.rule = times(1, lambda seen: seen.key == "pre/k", CutAnswer(all=True))
    etag = patient_store.put("k", b"mine", PAGE, expected=ABSENT)
    proxy.rule = times(1, lambda seen: seen.key == "pre/k", CutAnswer(all=True))
    etag = patient_store.put("k", b"mine too", PAGE, expected=etag)
    found = patient_store.get("k")
    assert found is not None
    assert (found.data, found.etag) == (b"mine too", etag)
    patient_store.put_file("probed", path, PAGE, expected=ABSENT)
    proxy.rule = times(1, lambda seen: is_complete(seen) and seen.key == "pre/big", CutAnswer(all=True))
    etag = patient_store.put_file("big", path, PAGE, expected=ABSENT)
    assert [one.etag for one in patient_store.list("big")] == [etag]


def test_a_listing_whose_second_page_fails_is_no_listing(proxy: Proxy, store: S3Store) -> None:
    for number in range(1001):
        proxy.server.client.put_object(Bucket=store.bucket, Key=f"pre/{number}", Body=b"")
    assert len(list(store.list())) == 1001
    for fault in (Reply(403, "AccessDenied"), Reply(500, "InternalError"), Reply(404, "NoSuchKey"), CutAnswer()):
        proxy.rule = lambda seen, fault=fault: fault if "continuation-token" in seen.query else None  # type: ignore[misc]
        with pytest.raises(OmniError, match=re.escape(store.url)):
            list(store.list())


@pytest.mark.parametrize(
    "change",
    [
        lambda page: re.sub(rb"<NextContinuationToken>.*</NextContinuationToken>", b"", _cut_short(page)),
        lambda page: re.sub(rb"<IsTruncated>.*?</IsTruncated>", b"", page),
        lambda page: re.sub(rb"<Contents>.*?</Contents>", b"", page, count=1),
        lambda page: page[: len(page) // 2],
        lambda _: b"",
        # A server that never gets past its first page.
        lambda page: _cut_short(page),  # noqa: PLW0108 - it is defined below
    ],
    ids=["no token", "no end mark", "an entry is missing", "half a page", "nothing", "the same page again"],
)
def test_a_page_that_makes_no_sense_is_no_listing(
    proxy: Proxy, store: S3Store, change: Callable[[bytes], bytes]
) -> None:
    for number in range(3):
        store.put(f"k{number}", b"", PAGE, expected=None)

    def rule(seen: Seen) -> Fault | None:
        return Change(change) if seen.method == "GET" else None

    proxy.rule = rule
    with pytest.raises(OmniError, match=re.escape(store.url)):
        list(store.list())


def _cut_short(page: bytes) -> bytes:
    """Make a last page say that there are more."""
    more = b"<IsTruncated>true</IsTruncated><NextContinuationToken>dA</NextContinuationToken>"
    assert b"<IsTruncated>false</IsTruncated>" in page
    return page.replace(b"<IsTruncated>false</IsTruncated>", more)


@pytest.mark.parametrize("start", [0, 1 << 20])
def test_reading_goes_on_where_the_connection_broke(proxy: Proxy, store: S3Store, tmp_path: Path, start: int) -> None:
    path = a_file(tmp_path, 7 << 20)
    store.put_file("k", path, PAGE, expected=None)
    proxy.rule = times(2, lambda seen: seen.method == "GET", CutAnswer())
    assert b"".join(store.stream("k", start)) == path.read_bytes()[start:]
    proxy.rule = times(2, lambda seen: seen.method == "GET", CutAnswer())
    found = store.get("k")
    assert found is not None
    assert found.data == path.read_bytes()


def test_reading_that_never_gets_on_ends_with_an_error(proxy: Proxy, store: S3Store) -> None:
    store.put("k", b"x", PAGE, expected=None)
    proxy.rule = lambda seen: CutAnswer() if seen.method == "GET" else None
    for read in (lambda: list(store.stream("k")), lambda: store.get("k")):
        with pytest.raises(TemporaryError, match="k"):
            read()


def test_reading_of_an_object_that_changes_is_no_mixture(proxy: Proxy, store: S3Store, tmp_path: Path) -> None:
    path = a_file(tmp_path, 4 << 20)
    store.put_file("k", path, PAGE, expected=None)
    proxy.rule = times(1, lambda seen: seen.method == "GET", CutAnswer())
    read = store.stream("k")
    next(read)
    store.put("k", b"new" * 2_000_000, PAGE, expected=None)
    with pytest.raises(OmniError, match="k"):
        list(read)


@pytest.mark.parametrize("fault", [CutRequest(), Reply(500, "InternalError"), CutAnswer(all=True)], ids=str)
def test_parts_that_fail_once_are_sent_again(
    proxy: Proxy, patient_store: S3Store, tmp_path: Path, fault: Fault
) -> None:
    path = a_file(tmp_path, 26 << 20)
    proxy.rule = times(2, is_part, fault)
    done: list[int] = []
    patient_store.put_file("k", path, PAGE, expected=None, progress=done.append)
    assert sum(done) == path.stat().st_size
    assert b"".join(patient_store.stream("k")) == path.read_bytes()


@pytest.mark.parametrize(
    "fault", [CutRequest(), Reply(500, "InternalError"), Reply(403, "AccessDenied"), Stall()], ids=str
)
def test_parts_that_fail_for_good_leave_nothing(proxy: Proxy, store: S3Store, tmp_path: Path, fault: Fault) -> None:
    path = a_file(tmp_path, 26 << 20)
    proxy.rule = lambda seen: fault if seen.query.get("partNumber") == "3" else None
    hasty = S3Store(store.bucket, "pre", limits=replace(FAST, read_seconds=3))
    with pytest.raises((TemporaryError, CredentialsError), match="k"):
        hasty.put_file("k", path, PAGE, expected=None)
    assert uploads_left(proxy, store) == []
    assert store.head("k") is None


def test_progress_that_raises_aborts_the_upload(proxy: Proxy, store: S3Store, tmp_path: Path) -> None:
    path = a_file(tmp_path, 26 << 20)

    def refuse(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.put_file("k", path, PAGE, expected=None, progress=refuse)
    assert uploads_left(proxy, store) == []
    assert store.head("k") is None


def test_file_that_changes_during_an_upload_is_refused(proxy: Proxy, store: S3Store, tmp_path: Path) -> None:
    path = a_file(tmp_path, 26 << 20)

    def spoil(_: int) -> None:
        with path.open("r+b") as opened:
            opened.write(b"!")

    with pytest.raises(OmniError, match=re.escape(f"the file changed while it was read: {path}")):
        store.put_file("k", path, PAGE, expected=None, progress=spoil)
    assert uploads_left(proxy, store) == []


@pytest.mark.parametrize("megabytes", [4, 12])
def test_file_that_changes_while_its_body_is_sent_is_refused(
    proxy: Proxy, store: S3Store, tmp_path: Path, megabytes: int
) -> None:
    path = a_file(tmp_path, megabytes << 20)

    def spoil(seen: Seen) -> None:
        # The body's sum has been computed, and the body is not sent yet.
        if seen.method == "PUT":
            with path.open("r+b") as opened:
                opened.write(b"!" * (megabytes << 20))

    proxy.rule = spoil
    with pytest.raises(OmniError, match=r"changed|BadDigest"):
        store.put_file("k", path, PAGE, expected=None)
    assert store.head("k") is None
    assert uploads_left(proxy, store) == []


def test_a_server_that_does_not_answer_ends_in_time(proxy: Proxy, store: S3Store) -> None:
    proxy.rule = lambda _: Stall()
    limits = Limits(read_seconds=0.5, attempts=3)
    with pytest.raises(TemporaryError, match=r"k.*timed out"):
        S3Store(store.bucket, limits=limits).get("k")
    assert len(proxy.of("GET")) == limits.attempts


def test_no_server_at_all(monkeypatch: pytest.MonkeyPatch, s3_server: S3Server) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        endpoint = f"http://user:hunter2@127.0.0.1:{taken.getsockname()[1]}"
        use_aws(monkeypatch, {**s3_server.environment, "AWS_ENDPOINT_URL": endpoint})
        with pytest.raises(ServiceRefusedError, match="cannot be reached") as caught:
            S3Store("bucket", limits=FAST).get("k")
    assert "hunter2" not in f"{caught.value.message} {caught.value.hint}"


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"AWS_ENDPOINT_URL": "hunter2"}, ConfigurationError),
        ({"AWS_PROFILE": "there-is-none"}, ConfigurationError),
        ({"AWS_SECRET_ACCESS_KEY": ""}, CredentialsError),
        ({"AWS_SECRET_ACCESS_KEY": "", "AWS_ACCESS_KEY_ID": ""}, CredentialsError),
    ],
)
def test_settings_that_cannot_work(
    monkeypatch: pytest.MonkeyPatch, s3_server: S3Server, changes: dict[str, str], kind: type[OmniError]
) -> None:
    use_aws(monkeypatch, {k: v for k, v in (s3_server.environment | changes).items() if v})
    with pytest.raises(kind) as caught:
        S3Store("bucket", limits=FAST).get("k")
    assert "hunter2" not in f"{caught.value.message} {caught.value.hint}"


def test_losing_every_race_ends_with_an_error_that_says_so(proxy: Proxy, store: S3Store) -> None:
    store.put("k", b"", PAGE, expected=ABSENT)
    with pytest.raises(TemporaryError, match="other writers won every race"):
        redo_on_conflict(lambda: store.put("k", b"", PAGE, expected=ABSENT), what="k", seconds=0.5)
