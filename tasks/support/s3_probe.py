"""Proof that an S3 server honours conditional writes, which every promise about concurrent writers stands on."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from tasks.support import s3_errors
from tasks.support.errors import ConfigurationError
from tasks.support.s3_parts import PartSource, PartsUpload
from tasks.support.store import ABSENT, Expected, Headers

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_BODY = b"Written by each writer to see that conditional writes hold here; never deleted.\n"
_HEADERS = Headers("text/plain; charset=utf-8", "no-store")
_WRONG_ETAG = '"00000000000000000000000000000000"'


def as_condition(expected: Expected) -> dict[str, Any]:
    """Return the request parameters for a condition (RFC 9110 section 13.1)."""
    if expected is None:
        return {}
    return {"IfNoneMatch": "*"} if expected is ABSENT else {"IfMatch": expected}


class ConditionProver:
    """Tries, once and before they are relied on, writes whose conditions do not hold.

    All tries write the same bytes under one key, which stays: so nothing has to be deleted (a CI role may lack that
    right), processes that try at once do not disturb each other, and a kill leaves nothing else behind.
    """

    def __init__(self, bucket: str, key: str, url: str) -> None:
        """Name the bucket, the full key to try on, and the store's URL for messages."""
        self._bucket = bucket
        self._key = key
        self._url = url
        self._lock = threading.Lock()
        self._ignored: dict[str, bool] = {}

    def prove(self, client: S3Client, expected: Expected, *, parts: bool) -> None:
        """Raise ConfigurationError when the server ignores conditions on the kind of write that is about to be made.

        Botocore's errors pass.
        """
        if expected is None:
            return
        name = "If-None-Match" if expected is ABSENT else "If-Match"
        with self._lock:
            if not self._ignored:
                self._ignored = self._ignored_by_put(client)
            if parts and not any(self._ignored.values()):
                kind = f"{name} on uploads in parts"
                if kind not in self._ignored:
                    wrong = ABSENT if expected is ABSENT else _WRONG_ETAG
                    self._ignored[kind] = not self._refuses_parts(client, wrong)
            ignored = [kind for kind, is_ignored in self._ignored.items() if is_ignored]
        if ignored:
            raise ConfigurationError(
                f"{self._url}: the server ignores {' and '.join(ignored)}, so concurrent writers would lose data",
                hint="nothing was changed; use a server with conditional writes",
            )

    def _ignored_by_put(self, client: S3Client) -> dict[str, bool]:
        created = not self._refuses(client, ABSENT)
        creates_again = created and not self._refuses(client, ABSENT)
        # The object is there now, so this is refused for its wrong tag and for no other reason.
        return {"If-None-Match": creates_again, "If-Match": not self._refuses(client, _WRONG_ETAG)}

    def _refuses(self, client: S3Client, expected: Expected) -> bool:
        from botocore.exceptions import ClientError

        try:
            client.put_object(
                Bucket=self._bucket,
                Key=self._key,
                Body=_BODY,
                ContentType=_HEADERS.content_type,
                CacheControl=_HEADERS.cache_control,
                **as_condition(expected),
            )
        except ClientError as error:
            return _is_refusal(error)
        return False

    def _refuses_parts(self, client: S3Client, expected: Expected) -> bool:
        from botocore.exceptions import ClientError

        upload = PartsUpload(client, self._bucket, self._key, part_bytes=len(_BODY), parallel=1)
        try:
            upload.run(PartSource.of_bytes(_BODY), _HEADERS, as_condition(expected), None)
        except ClientError as error:
            return _is_refusal(error)
        return False


def _is_refusal(error: Any) -> bool:
    """Return whether a ClientError says that the condition does not hold; a server without conditions says 501."""
    if s3_errors.condition_failed(error):
        return True
    if s3_errors.conditions_unknown(error):
        return False
    raise error
