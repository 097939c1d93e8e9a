"""Names in the registries' grammar, checked before any request is made.

The grammar is that of the OCI distribution specification ("Pulling manifests"); how a name without a registry is
read is Docker's own rule: `vllm/vllm-omni` is on docker.io, `ubuntu` is `docker.io/library/ubuntu`.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from ipaddress import IPv6Address
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tasks.support.errors import UsageError
from tasks.support.redaction import hide_login, redact

DOCKER_HUB = "docker.io"
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_REGISTRY = re.compile(
    rf"(?:(?P<host>{_LABEL}(?:\.{_LABEL})*)|\[(?P<six>[0-9a-fA-F:.]+)\])(?::(?P<port>[0-9]{{1,5}}))?"
)
_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_NAME = re.compile(rf"{_COMPONENT}(?:/{_COMPONENT})*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_LONGEST_NAME = 255
_LONGEST_HOST = 253
_HIGHEST_PORT = 65535
_SHOWN = 80
_PINNED = re.compile(rf"[^@]*@{_DIGEST.pattern}")
_UNSHOWN = frozenset({"Cc", "Cs", "Zl", "Zp"})
"""Unicode's categories of what breaks a line or cannot be written at all."""
_NO_LOGINS = "a login does not belong in an address: run docker login, or export the registry's variables"


def is_tag(text: str) -> bool:
    """Say whether the registry grammar allows a text as a tag."""
    return _TAG.fullmatch(text) is not None


def check_tag(tag: str) -> str:
    """Return the tag, or raise UsageError when the registry grammar does not allow it."""
    if not is_tag(tag):
        raise UsageError(
            f"not a tag: {_shown(tag)}", hint="1 to 128 letters, digits, '_', '.' and '-', not starting with '.' or '-'"
        )
    return tag


def is_digest(reference: str) -> bool:
    """Say whether a reference is a sha256 digest and not a tag."""
    return _DIGEST.fullmatch(reference) is not None


def check_digest(digest: str) -> str:
    """Return the digest, or raise UsageError when it is not ``sha256:`` and 64 lower-case hexadecimal digits."""
    if not is_digest(digest):
        raise UsageError(f"not a sha256 digest: {_shown(digest)}")
    return digest


def check_reference(reference: str) -> str:
    """Return a tag or digest, or raise UsageError."""
    return reference if is_digest(reference) else check_tag(reference)


def check_image(text: str) -> str:
    """Return an image's reference, a name with or without tag and digest, or raise UsageError when it is none."""
    name, at, digest = text.partition("@")
    head, slash, last = name.rpartition("/")
    last, colon, tag = last.partition(":")
    try:
        where = RepositoryName.parse(f"{head}{slash}{last}")
    except UsageError:
        where = None
    if where is None or where.folder is not None or (colon and not is_tag(tag)) or (at and not is_digest(digest)):
        raise UsageError(
            f"not an image: {_shown(text)}", hint="write it as registry/name:tag or registry/name@sha256:..."
        )
    return text


@dataclass(frozen=True)
class RepositoryName:
    """Where a repository is: on a registry (``registry`` is a host, perhaps with a port), or an OCI layout's folder."""

    registry: str | None
    name: str
    folder: Path | None = None

    @classmethod
    def parse(cls, text: str) -> RepositoryName:
        """Read ``host[:port]/name``, ``name`` (on docker.io) or ``file:///folder``; UsageError when it is none.

        A tag or digest behind the name is refused: what is named here is the repository.
        """
        if text.startswith("file:"):
            folder = _folder_of(text)
            return cls(None, folder.name, folder)
        head, slash, rest = text.partition("/")
        if slash and ("." in head or ":" in head or head == "localhost"):
            registry, name = head, rest
        else:
            registry, name = DOCKER_HUB, text if slash else f"library/{text}"
        if registry in {"index.docker.io", "registry-1.docker.io"}:
            registry = DOCKER_HUB
        if not _is_registry(registry) or not _NAME.fullmatch(name) or len(name) > _LONGEST_NAME:
            hint = "write it as registry/name, lower case, without a tag, or as file:///folder"
            raise UsageError(f"not a repository: {_shown(text)}", hint=_NO_LOGINS if _has_login(text) else hint)
        return cls(registry, name)

    def __str__(self) -> str:
        """Return the name as people write it."""
        return self.folder.as_uri() if self.folder else f"{self.registry}/{self.name}"


def _is_registry(text: str) -> bool:
    """Say whether a text is a host that can be asked: a name (RFC 1123) or an address, perhaps with a port."""
    found = _REGISTRY.fullmatch(text)
    if found is None or not 1 <= int(found["port"] or 1) <= _HIGHEST_PORT:
        return False
    if found["six"] is None:
        return len(found["host"]) <= _LONGEST_HOST
    try:
        IPv6Address(found["six"])
    except ValueError:
        return False
    return True


def _folder_of(text: str) -> Path:
    """Return the folder of a ``file:`` address (RFC 8089); UsageError when it is none that can be shown on a line."""
    hint = _NO_LOGINS if _has_login(text) else "write it as file:///folder"
    try:
        parts = urlsplit(text)
        folder = Path(unquote(parts.path, errors="strict"))
    except ValueError as error:  # also of bytes that are not UTF-8
        raise UsageError(f"not a local repository: {_shown(text)}", hint=hint) from error
    if any(unicodedata.category(letter) in _UNSHOWN for letter in f"{text}{folder}"):
        raise UsageError(f"a control character in a repository's address: {_shown(text)}", hint="rename the folder")
    if parts.netloc not in {"", "localhost"} or parts.query or parts.fragment or not folder.is_absolute():
        raise UsageError(f"not a local repository: {_shown(text)}", hint=hint)
    return folder


def _has_login(text: str) -> bool:
    """Say whether an address has something before an ``@`` that may be a user and a password."""
    return "@" in text and not text.startswith("file:///") and not _PINNED.fullmatch(text)


def _shown(text: str) -> str:
    """Return a word for a message: on one line, not too long, and without the login that may be in it."""
    text = hide_login(text) if _has_login(text) or "@" not in text else redact(text)
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({len(text)} characters)")
