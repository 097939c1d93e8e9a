"""An S3 bucket, or a part of one below a prefix, as an object store (any S3-compatible server)."""

from __future__ import annotations

import base64
import contextlib
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tasks.support import s3_errors
from tasks.support.errors import ConfigurationError, DataError, MissingInputError, ServiceRefusedError, UsageError
from tasks.support.packages import missing_package
from tasks.support.s3_parts import PartSource, PartsUpload, Section, open_source
from tasks.support.s3_probe import ConditionProver, as_condition
from tasks.support.store import (
    ABSENT,
    Blob,
    ConditionFailedError,
    Expected,
    Headers,
    Progress,
    Stored,
    check_key,
    check_range,
)

if TYPE_CHECKING:
    from botocore.exceptions import ClientError
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import ListObjectsV2OutputTypeDef, ListObjectsV2RequestTypeDef

PROBE_KEY = "_probe"
_KEY_MAX = 1024
_READ_TRIES = 4


@dataclass(frozen=True)
class Limits:
    """Times in seconds, the number of times a request is sent at most, and sizes in bytes.

    Files up to ``single_bytes`` go in one request: that is where every server's conditions are atomic.
    """

    connect_seconds: float = 10
    read_seconds: float = 60
    attempts: int = 4
    single_bytes: int = 32 << 20
    part_bytes: int = 8 << 20
    parallel_parts: int = 4
    connections: int = 32


class S3Store:
    """An object store in a bucket, which must exist. Nothing is asked of the server before the first call.

    Endpoint, region and credentials are what boto3 finds: AWS's own variables and files. An entity tag is the
    server's, so writing the same bytes again may give the same tag. Before its first conditional write each store
    object makes sure, on the key ``_probe``, that the server honours conditions; that key is never listed.
    """

    def __init__(self, bucket: str, prefix: str = "", *, limits: Limits | None = None) -> None:
        """Name the bucket, and the key prefix without slashes at its ends."""
        if not re.fullmatch(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", bucket):
            hint = "write s3://bucket/prefix; a name has 3 to 63 small letters, digits, dots and hyphens"
            raise UsageError(f"not a bucket's name: {bucket!r}", hint=hint)
        if prefix:
            check_key(prefix)
        self.bucket = bucket
        self.url = f"s3://{bucket}/{prefix}".rstrip("/")
        self._prefix = f"{prefix}/" if prefix else ""
        self._limits = limits or Limits()
        self._made: S3Client | None = None
        self._lock = threading.RLock()
        self._bucket_seen = False
        self._prover = ConditionProver(bucket, self._prefix + PROBE_KEY, self.url)

    def head(self, key: str) -> Stored | None:
        """Return an object's facts, or None when there is no such object."""
        from botocore.exceptions import ClientError

        doing = f"cannot look at {self._name(key)}"
        with self._explained(doing):
            try:
                answer = self._client().head_object(Bucket=self.bucket, Key=self._key(key))
            except ClientError as error:
                if not s3_errors.key_missing(error) or not self._bucket_seen:
                    self._ask_why(key, error)
                self._bucket_seen = True
                return None
        return _stored(key, answer, answer["ContentLength"])

    def get(self, key: str) -> Blob | None:
        """Read a small object whole, or return None when there is no such object."""
        doing = f"cannot read {self._name(key)}"
        for left in reversed(range(_READ_TRIES)):
            with self._explained(doing):
                answer = self._get_object(key, {})
                if answer is None:
                    return None
                with contextlib.closing(answer["Body"]) as body, _broken_body(last=left == 0):
                    data = body.read()
                    return Blob(_stored(key, answer, len(data)), data)
        raise AssertionError("unreachable: the last try returns or raises")

    def stream(self, key: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """Yield the bytes from ``start`` up to, not including, ``end``; a broken connection is taken up where it broke.

        Raises MissingInputError when there is no object, RemoteChangedError when it changes meanwhile.
        """
        check_range(start, end)
        found = self.head(key)
        if found is None:
            raise MissingInputError(f"no such object: {self._name(key)}")
        stop = found.size if end is None else min(end, found.size)
        tries = _READ_TRIES
        while start < stop:
            before = start
            for piece in self._stream_once(key, start, stop, found.etag, last=tries <= 1):
                start += len(piece)
                yield piece
            tries = _READ_TRIES if start > before else tries - 1

    def put(self, key: str, data: bytes, headers: Headers, *, expected: Expected) -> str:
        """Write a small object and return its entity tag; ConditionFailedError when the condition does not hold."""
        return self._put_whole(key, PartSource.of_bytes(data), headers, expected)

    def put_file(
        self,
        key: str,
        path: Path,
        headers: Headers,
        *,
        expected: Expected,
        sha256: str | None = None,
        progress: Progress | None = None,
    ) -> str:
        """Write a file's bytes, in parts when it is large, and return the entity tag; no part is left on failure."""
        with open_source(path, sha256) as source:
            if source.size > self._limits.single_bytes:
                return self._put_parts(key, source, headers, expected, progress)
            etag = self._put_whole(key, source, headers, expected)
            if progress is not None:
                progress(source.size)
            return etag

    def delete(self, key: str) -> None:
        """Delete an object; a missing one is no error."""
        from botocore.exceptions import ClientError

        with self._explained(f"cannot delete {self._name(key)}"):
            try:
                self._client().delete_object(Bucket=self.bucket, Key=self._key(key))
            except ClientError as error:
                if not s3_errors.key_missing(error):
                    raise

    def list(self, prefix: str = "") -> Iterator[Stored]:
        """Yield every object whose key starts with ``prefix``; a page that is missing or makes no sense raises.

        Zero-byte keys that end in ``/``, with which consoles mark folders, are left out.
        """
        if prefix.startswith("/"):
            raise UsageError(f"not a store prefix: {prefix!r}")
        for page in self._pages(self._prefix + prefix):
            for entry in page.get("Contents", []):
                key = entry["Key"].removeprefix(self._prefix)
                if not entry["Key"].startswith(self._prefix + prefix):
                    raise ServiceRefusedError(f"the listing of {self._name(prefix)} holds a key outside it: {key!r}")
                if key == PROBE_KEY or (key.endswith("/") and entry["Size"] == 0) or not key:
                    continue
                yield Stored(key, entry["Size"], entry["ETag"], entry["LastModified"].astimezone(UTC))

    def _name(self, key: str) -> str:
        return f"{self.url}/{key}"

    def _key(self, key: str) -> str:
        if check_key(key) == PROBE_KEY:
            raise UsageError(f"{PROBE_KEY} is the store's own key")
        full_key = self._prefix + key
        if len(full_key.encode()) > _KEY_MAX:
            raise DataError(f"a key may have {_KEY_MAX} bytes, this has {len(full_key.encode())}: {key!r}")
        return full_key

    def _check_tag(self, key: str, expected: Expected) -> None:
        """Refuse an empty tag, which servers take for no condition, and ``*``, which any object fulfils."""
        if expected in ("", "*"):
            raise ConditionFailedError(f"{expected!r} is no entity tag, so it is not that of {self._name(key)}")

    def _client(self) -> S3Client:
        with self._lock:
            if self._made is None:
                with self._explained(f"cannot use {self.url}"):
                    self._made = _make_client(self._limits)
            return self._made

    @contextlib.contextmanager
    def _explained(self, doing: str) -> Iterator[None]:
        """Turn botocore's errors into ours, naming what was being done."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            yield
        except ClientError as error:
            raise s3_errors.explain_answer(error, doing) from error
        except BotoCoreError as error:
            raise s3_errors.explain_failure(error, doing) from error

    def _ask_why(self, key: str, error: ClientError) -> None:
        """Return when a refused HEAD means a missing object, else raise ClientError with the reason.

        An answer to HEAD has no body: a missing bucket looks like a missing object, a late clock like a wrong key.
        """
        from botocore.exceptions import ClientError

        try:
            answer = self._get_object(key, {"Range": "bytes=0-0"})
        except ClientError as reason:
            if s3_errors.status_of(reason) == s3_errors.status_of(error):
                raise
            raise error from None
        if answer is not None:
            answer["Body"].close()
        if not s3_errors.key_missing(error):
            raise error

    def _get_object(self, key: str, options: dict[str, str]) -> Any | None:
        from botocore.exceptions import ClientError

        request: Any = {"Bucket": self.bucket, "Key": self._key(key), **options}
        try:
            return self._client().get_object(**request)
        except ClientError as error:
            if s3_errors.key_missing(error):
                return None
            raise

    def _stream_once(self, key: str, start: int, stop: int, etag: str, *, last: bool) -> Iterator[bytes]:
        doing = f"cannot read {self._name(key)}"
        with self._explained(doing):
            answer = self._get_object(key, {"Range": f"bytes={start}-{stop - 1}", "IfMatch": etag})
        if answer is None:
            raise MissingInputError(f"no such object any more: {self._name(key)}")
        if answer["ContentLength"] != stop - start:
            raise ServiceRefusedError(f"{doing}: the server does not answer the range that was asked for")
        with contextlib.closing(answer["Body"]) as body:
            pieces = body.iter_chunks(1 << 20)
            while True:
                piece = b""
                # The caller's own errors, raised at the yield, must not be taken for the server's.
                with self._explained(doing), _broken_body(last=last):
                    piece = next(pieces, b"")
                if not piece:
                    return
                yield piece

    def _pages(self, prefix: str) -> Iterator[ListObjectsV2OutputTypeDef]:
        request: ListObjectsV2RequestTypeDef = {"Bucket": self.bucket, "Prefix": prefix}
        tokens: set[str] = set()
        doing = f"cannot list {self._name('')}"
        while True:
            with self._explained(doing):
                page = self._client().list_objects_v2(**request)
            answered: dict[str, Any] = {**page}
            if "IsTruncated" not in answered or answered.get("KeyCount", 0) != len(page.get("Contents", [])):
                raise ServiceRefusedError(f"{doing}: a page of the listing is incomplete")
            yield page
            if not page["IsTruncated"]:
                return
            token = page.get("NextContinuationToken", "")
            if not token or token in tokens:
                raise ServiceRefusedError(f"{doing}: the listing goes on, but does not say where")
            tokens.add(token)
            request["ContinuationToken"] = token

    def _put_whole(self, key: str, source: PartSource, headers: Headers, expected: Expected) -> str:
        from botocore.exceptions import ClientError

        with self._explained(f"cannot write {self._name(key)}"):
            full_key = self._key(key)
            self._check_tag(key, expected)
            self._prover.prove(self._client(), expected, parts=False)
            body: Any = Section(source, 0, source.size)
            md5 = source.md5(0, source.size)
            source.check_unchanged()
            source.check_sent()
            try:
                return self._client().put_object(
                    Bucket=self.bucket,
                    Key=full_key,
                    Body=body,
                    ContentMD5=base64.b64encode(md5).decode(),
                    ContentType=headers.content_type,
                    CacheControl=headers.cache_control,
                    **as_condition(expected),
                )["ETag"]
            except ClientError as error:
                return self._lost(error, key, expected, f'"{md5.hex()}"')

    def _put_parts(
        self, key: str, source: PartSource, headers: Headers, expected: Expected, progress: Progress | None
    ) -> str:
        from botocore.exceptions import ClientError

        with self._explained(f"cannot write {self._name(key)}"):
            full_key = self._key(key)
            self._check_tag(key, expected)
            self._prover.prove(self._client(), expected, parts=True)
            if expected is not None:
                # A large upload for nothing is saved here; the check that counts is the server's.
                found = self.head(key)
                if (None if found is None else found.etag) != (None if expected is ABSENT else expected):
                    raise ConditionFailedError(f"the object is not what was expected: {self._name(key)}")
            upload = PartsUpload(
                client=self._client(),
                bucket=self.bucket,
                key=full_key,
                part_bytes=self._limits.part_bytes,
                parallel=self._limits.parallel_parts,
            )
            try:
                etag = upload.run(source, headers, as_condition(expected), progress)
            except ClientError as error:
                return self._lost(error, key, expected, upload.expected_etag())
            found = None if expected is None else self.head(key)
            if found is not None and found.etag.strip('"') != etag.strip('"'):
                # SeaweedFS 4.48 checks the condition and then completes: of two at once the first would not know.
                raise ConditionFailedError(f"another upload took its place at once: {self._name(key)}")
            return etag

    def _lost(self, error: Any, key: str, expected: Expected, own_etag: str | None) -> str:
        """Return the tag when a refused write was won after all, else raise what the refusal means."""
        if not s3_errors.condition_failed(error):
            raise error
        if s3_errors.retried(error):
            # The answer to the first sending was lost: the write that the second one lost against may be our own.
            found = self.head(key)
            if found is not None and found.etag == own_etag:
                return found.etag
        if expected is None:
            raise error
        if expected is ABSENT and self.head(key) is None and next(self.list(f"{key}/"), None) is not None:
            # Servers that keep objects as files refuse to create a key that is a folder, but hide it on reading.
            raise DataError(f"objects are below it, so this server cannot hold {self._name(key)}") from error
        raise ConditionFailedError(f"the object is not what was expected: {self._name(key)}") from error


def _make_client(limits: Limits) -> S3Client:
    """Make a client with AWS's own settings; botocore uses path-style addresses for a custom endpoint."""
    try:
        import boto3  # type: ignore[import-untyped]
    except ModuleNotFoundError as error:
        raise (missing_package(error) or error) from error
    from botocore.config import Config
    from botocore.exceptions import InvalidRegionError

    config = Config(
        connect_timeout=limits.connect_seconds,
        read_timeout=limits.read_seconds,
        retries={"mode": "standard", "total_max_attempts": limits.attempts},
        max_pool_connections=limits.connections,
        # Older S3-compatible servers refuse the checksum trailers that botocore would add.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        user_agent_extra="omni-ci",
    )
    try:
        client: S3Client = boto3.session.Session().client("s3", config=config)
    except InvalidRegionError as error:
        hint = "correct AWS_DEFAULT_REGION, or the region in the file of AWS_CONFIG_FILE"
        raise ConfigurationError("the AWS region is not a region's name", hint=hint) from error
    except ValueError as error:
        # Not repeated: an endpoint's URL may hold a password.
        raise ConfigurationError("AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL is not a URL") from error
    return client


def _stored(key: str, answer: Any, size: int) -> Stored:
    headers = Headers(answer.get("ContentType", ""), answer.get("CacheControl", ""))
    return Stored(key, size, answer["ETag"], answer["LastModified"].astimezone(UTC), headers)


@contextlib.contextmanager
def _broken_body(*, last: bool) -> Iterator[None]:
    """Let a body that broke off pass, so that the caller asks again, unless it was the last try."""
    from botocore.exceptions import HTTPClientError, IncompleteReadError

    try:
        yield
    except (HTTPClientError, IncompleteReadError):
        if last:
            raise
