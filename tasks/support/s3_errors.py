"""What S3 and botocore failures mean to a person; never an answer's free text, which may repeat a credential."""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from tasks.support.errors import (
    ConfigurationError,
    CredentialsError,
    DataError,
    OmniError,
    ServiceRefusedError,
    TemporaryError,
)

if TYPE_CHECKING:
    from botocore.exceptions import BotoCoreError, ClientError

_CREDENTIAL_CODES = frozenset(
    {"ExpiredToken", "InvalidToken", "TokenRefreshRequired", "InvalidAccessKeyId", "SignatureDoesNotMatch"}
)
_TEMPORARY_CODES = frozenset(
    {"SlowDown", "RequestTimeout", "Throttling", "ThrottlingException", "RequestTimeTooSkewed"}
)
_REGION_CODES = frozenset({"AuthorizationHeaderMalformed", "PermanentRedirect", "IllegalLocationConstraintException"})
_CREDENTIAL_HINT = "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN or AWS_PROFILE"
_FORBIDDEN_HINT = (
    f"{_CREDENTIAL_HINT}; S3 also answers 403 for an object that is not there when s3:ListBucket is not granted"
)
_LATER = "run the same command again later"
_RACE_STATUSES = (HTTPStatus.CONFLICT, HTTPStatus.PRECONDITION_FAILED)


def status_of(error: ClientError) -> int:
    """Return the answer's HTTP status, 0 when unknown."""
    answer: Mapping[str, Any] = error.response.get("ResponseMetadata", {})
    return int(answer.get("HTTPStatusCode", 0))


def code_of(error: ClientError) -> str:
    """Return S3's error code, reduced to what a code may hold; an answer to HEAD has its status there."""
    return re.sub(r"[^A-Za-z0-9.]", "", str(error.response.get("Error", {}).get("Code", "")))[:60]


def retried(error: ClientError) -> bool:
    """Return whether the request was sent more than once, so that an earlier sending may have had its effect."""
    answer: Mapping[str, Any] = error.response.get("ResponseMetadata", {})
    return int(answer.get("RetryAttempts", 0)) > 0


def bucket_missing(error: ClientError) -> bool:
    """Return whether the answer says that there is no such bucket."""
    return code_of(error) == "NoSuchBucket"


def key_missing(error: ClientError) -> bool:
    """Return whether the answer says that there is no such object, and only that."""
    return status_of(error) == HTTPStatus.NOT_FOUND and code_of(error) in ("404", "NoSuchKey", "NotFound")


def condition_failed(error: ClientError) -> bool:
    """Return whether a conditional write lost its race: 412, 409 (another write is running) or 404 (deleted)."""
    return status_of(error) in (HTTPStatus.NOT_FOUND, *_RACE_STATUSES) and not bucket_missing(error)


def conditions_unknown(error: ClientError) -> bool:
    """Return whether the server says that it has no conditional writes."""
    return (
        status_of(error) in (HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.NOT_IMPLEMENTED)
        or code_of(error) == "NotImplemented"
    )


def explain_answer(error: ClientError, doing: str) -> OmniError:
    """Make our error from an S3 error answer."""
    status, code = status_of(error), code_of(error)
    kind, hint = _meaning(status, code)
    return kind(f"{doing} ({status}{'' if code == str(status) else ' ' + code})", hint=hint)


def _meaning(status: int, code: str) -> tuple[type[OmniError], str | None]:
    """Return the class of error and the next step for an answer; codes say more than the status, so they come first."""
    rules: list[tuple[bool, type[OmniError], str | None]] = [
        (code == "RequestTimeTooSkewed", ConfigurationError, "set this machine's clock"),
        (code in _TEMPORARY_CODES, TemporaryError, _LATER),
        (code in _REGION_CODES, ConfigurationError, "the bucket is in another region: set AWS_DEFAULT_REGION"),
        (code in _CREDENTIAL_CODES, CredentialsError, _CREDENTIAL_HINT),
        (code == "BadDigest", TemporaryError, "the file changed while it was sent, or the connection garbled it"),
        (code == "KeyTooLongError", DataError, None),
        (code == "NoSuchBucket", ServiceRefusedError, "check the name and AWS_ENDPOINT_URL_S3; no bucket is made here"),
        (status == HTTPStatus.UNAUTHORIZED, CredentialsError, _CREDENTIAL_HINT),
        (status == HTTPStatus.FORBIDDEN, CredentialsError, _FORBIDDEN_HINT),
        (
            HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST,
            ConfigurationError,
            "check AWS_DEFAULT_REGION",
        ),
        (status in _RACE_STATUSES, TemporaryError, "another write was running; run the same command again"),
        (status == HTTPStatus.TOO_MANY_REQUESTS, TemporaryError, _LATER),
        (status == HTTPStatus.NOT_IMPLEMENTED, ServiceRefusedError, "the server lacks this part of S3"),
        (status >= HTTPStatus.INTERNAL_SERVER_ERROR, TemporaryError, _LATER),
    ]
    return next(((kind, hint) for holds, kind, hint in rules if holds), (ServiceRefusedError, None))


def explain_failure(error: BotoCoreError, doing: str) -> OmniError:
    """Make our error from a request that got no answer, or could not be made."""
    from botocore import exceptions
    from botocore.parsers import ResponseParserError

    trouble = _credential_trouble(error)
    if trouble is not None:
        return CredentialsError(f"{doing}: {trouble}", hint=_CREDENTIAL_HINT)
    if isinstance(error, (exceptions.EndpointConnectionError, exceptions.ProxyConnectionError, exceptions.SSLError)):
        hint = "check AWS_ENDPOINT_URL_S3 and the network"
        return ServiceRefusedError(f"{doing}: the server cannot be reached ({type(error).__name__})", hint=hint)
    broken = (exceptions.HTTPClientError, exceptions.IncompleteReadError, exceptions.ResponseStreamingError)
    if isinstance(error, broken):
        return TemporaryError(f"{doing}: the connection broke or timed out ({type(error).__name__})", hint=_LATER)
    if isinstance(error, ResponseParserError):
        return ServiceRefusedError(f"{doing}: the answer is not S3's", hint="check AWS_ENDPOINT_URL_S3")
    hint = "check AWS_ENDPOINT_URL_S3, AWS_DEFAULT_REGION, AWS_PROFILE and AWS_CONFIG_FILE"
    return ConfigurationError(f"{doing}: the AWS settings cannot be used ({type(error).__name__})", hint=hint)


def _credential_trouble(error: BotoCoreError) -> str | None:
    from botocore import exceptions

    if isinstance(error, (exceptions.NoCredentialsError, exceptions.PartialCredentialsError)):
        return "there are no AWS credentials"
    if isinstance(error, (exceptions.CredentialRetrievalError, exceptions.SSOError, exceptions.TokenRetrievalError)):
        return "AWS credentials could not be had"
    if isinstance(error, exceptions.HTTPClientError) and isinstance(error.kwargs.get("error"), ValueError):
        # No request could be made of the headers, and these are what people set in them.
        return "AWS_ACCESS_KEY_ID, AWS_SESSION_TOKEN or AWS_DEFAULT_REGION holds a line break or another odd character"
    return None
