"""Uploads in parts to S3, made by hand because boto3's own transfer takes no condition and hides its parts."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
import os
import stat
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tasks.support.errors import DataError, MissingInputError, ServiceRefusedError
from tasks.support.file_ops import SentBytes
from tasks.support.store import Headers, Progress

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import CompletedPartTypeDef

_PARTS_MAX = 10_000


@dataclass(frozen=True)
class PartSource:
    """Bytes that any thread may read at any offset, and that are hashed once, from the first to the last."""

    size: int
    read: Callable[[int, int], bytes]
    """Return at most the second number of bytes from the offset given first."""
    check_unchanged: Callable[[], None]
    sent: SentBytes | None = None

    @staticmethod
    def of_bytes(data: bytes) -> PartSource:
        """Make a source of bytes in memory."""
        return PartSource(len(data), lambda offset, count: data[offset : offset + count], lambda: None)

    def md5(self, start: int, end: int) -> bytes:
        """Return the MD5 sum of a part: S3 refuses a body that differs from it, and makes entity tags from it.

        To be called for the parts in their order: the whole is hashed by the way, so that what S3 accepts is exactly
        what ``check_sent`` speaks of.
        """
        digest = hashlib.md5(usedforsecurity=False)
        for offset in range(start, end, 1 << 20):
            data = self.read(offset, min(1 << 20, end - offset))
            digest.update(data)
            if self.sent is not None:
                self.sent.update(data)
        return digest.digest()

    def check_sent(self) -> None:
        """Raise DataError when the bytes that were hashed are not those that the caller knows."""
        if self.sent is not None:
            self.sent.check()


@contextlib.contextmanager
def open_source(path: Path, sha256: str | None = None) -> Iterator[PartSource]:
    """Open a file to upload from; DataError from ``check_unchanged`` when somebody wrote to it meanwhile.

    ``sha256`` is what its bytes must have; None compares nothing.
    """
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except FileNotFoundError as error:
        raise MissingInputError(f"no such file: {path}") from error
    except OSError as error:
        raise ServiceRefusedError(f"cannot read {path}: {(error.strerror or str(error)).lower()}") from error
    try:
        before = os.fstat(opened)
        if not stat.S_ISREG(before.st_mode):
            raise DataError(f"not a file: {path}")

        def check_unchanged() -> None:
            after = os.fstat(opened)
            if (after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
                raise DataError(
                    f"the file changed while it was read: {path}", hint="run this again when it is complete"
                )

        def read(offset: int, count: int) -> bytes:
            return os.pread(opened, count, offset)

        yield PartSource(before.st_size, read, check_unchanged, SentBytes(path, sha256))
    finally:
        os.close(opened)


class PartsUpload:
    """One upload in parts: a few parts at a time, each streamed from the source, so memory does not grow with size."""

    def __init__(self, client: S3Client, bucket: str, key: str, *, part_bytes: int, parallel: int) -> None:
        """Name the object; nothing is sent yet. Parts grow where 10,000 (S3's limit) of them would not do."""
        self._client = client
        self._object: Any = {"Bucket": bucket, "Key": key}
        self._part_bytes = part_bytes
        self._parallel = parallel
        self._stop = threading.Event()
        self._parts: list[CompletedPartTypeDef] = []

    def run(self, source: PartSource, headers: Headers, condition: dict[str, Any], progress: Progress | None) -> str:
        """Upload all parts, then complete under the condition (``IfMatch``, ``IfNoneMatch``); return the entity tag.

        Whatever goes wrong, Ctrl-C included, the upload is aborted, so that no part is kept and paid for.
        Botocore's errors pass.
        """
        upload_id = self._client.create_multipart_upload(
            **self._object, ContentType=headers.content_type, CacheControl=headers.cache_control
        )["UploadId"]
        try:
            self._send_parts(upload_id, source, progress)
            source.check_unchanged()
            source.check_sent()
            return self._client.complete_multipart_upload(
                **self._object, UploadId=upload_id, MultipartUpload={"Parts": self._parts}, **condition
            )["ETag"]
        except BaseException:
            self._abort(upload_id)
            raise

    def expected_etag(self) -> str | None:
        """Return the tag that S3 gives to the completed upload, None when the parts' tags are no MD5 sums."""
        try:
            sums = b"".join(bytes.fromhex(part["ETag"].strip('"')) for part in self._parts)
        except ValueError:
            return None
        return f'"{hashlib.md5(sums, usedforsecurity=False).hexdigest()}-{len(self._parts)}"' if sums else None

    def _send_parts(self, upload_id: str, source: PartSource, progress: Progress | None) -> None:
        part_bytes = max(self._part_bytes, -(-source.size // _PARTS_MAX))
        starts = range(0, source.size, part_bytes)
        pool = ThreadPoolExecutor(self._parallel, thread_name_prefix="upload-part")
        sending: dict[Future[CompletedPartTypeDef], int] = {}

        def gather(returned: set[Future[CompletedPartTypeDef]]) -> None:
            for sent in returned:
                count = sending.pop(sent)
                self._parts.append(sent.result())
                if progress is not None:
                    progress(count)

        try:
            for number, start in enumerate(starts, start=1):
                end = min(start + part_bytes, source.size)
                # Hashed here, one after the other and one part ahead, so that its bytes are still in memory when sent.
                md5 = source.md5(start, end)
                while len(sending) > self._parallel:
                    gather(wait(sending, return_when=FIRST_COMPLETED).done)
                section = Section(source, start, end, self._stop)
                sending[pool.submit(self._send_part, upload_id, number, section, md5)] = end - start
            while sending:
                gather(wait(sending, return_when=FIRST_COMPLETED).done)
        except BaseException:
            self._stop.set()
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
        self._parts.sort(key=lambda part: part["PartNumber"])

    def _send_part(self, upload_id: str, number: int, section: Any, md5: bytes) -> CompletedPartTypeDef:
        tag = self._client.upload_part(
            **self._object,
            UploadId=upload_id,
            PartNumber=number,
            Body=section,
            ContentMD5=base64.b64encode(md5).decode(),
        )["ETag"]
        return {"PartNumber": number, "ETag": tag}

    def _abort(self, upload_id: str) -> None:
        from botocore.exceptions import BotoCoreError, ClientError

        # The first error is the one to tell; a bucket's life-cycle rule removes what stays.
        with contextlib.suppress(ClientError, BotoCoreError):
            self._client.abort_multipart_upload(**self._object, UploadId=upload_id)


class Section(io.RawIOBase):
    """A part of a source as a file, for botocore to read, measure and rewind."""

    def __init__(self, source: PartSource, start: int, end: int, stop: threading.Event | None = None) -> None:
        """Name the part; setting ``stop`` makes the next read fail."""
        self._source = source
        self._start = start
        self._size = end - start
        self._at = 0
        self._stop = stop or threading.Event()

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position in the part."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set the position in the part; ServiceRefusedError when the upload was given up."""
        if self._stop.is_set():
            raise ServiceRefusedError("the upload was given up")
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Read into a buffer; ServiceRefusedError when the upload was given up, DataError when the file is short."""
        if self._stop.is_set():
            raise ServiceRefusedError("the upload was given up")
        view = memoryview(buffer).cast("B")
        data = self._source.read(self._start + self._at, min(len(view), self._size - self._at))
        if not data and self._at < self._size and len(view):
            raise DataError("the file became shorter while it was read")
        view[: len(data)] = data
        self._at += len(data)
        return len(data)
