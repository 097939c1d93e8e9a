"""Names in the registries' grammar, checked before any request is made.

The grammar is that of the OCI distribution specification ("Pulling manifests"); how a name without a registry is
read is Docker's own rule: `vllm/vllm-omni` is on docker.io, `ubuntu` is `docker.io/library/ubuntu`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tasks.support.errors import UsageError

DOCKER_HUB = "docker.io"
_REGISTRY = re.compile(
    r"(?:[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)*|\[[0-9a-fA-F:]+\])(?::[0-9]{1,5})?"
)
_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_NAME = re.compile(rf"{_COMPONENT}(?:/{_COMPONENT})*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_LONGEST_NAME = 255


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
            parts = urlsplit(text)
            folder = Path(unquote(parts.path))
            if parts.netloc not in {"", "localhost"} or not folder.is_absolute() or "\0" in text:
                raise UsageError(f"not a local repository: {_shown(text)}", hint="write it as file:///folder")
            return cls(None, folder.name, folder)
        head, slash, rest = text.partition("/")
        if slash and ("." in head or ":" in head or head == "localhost"):
            registry, name = head, rest
        else:
            registry, name = DOCKER_HUB, text if slash else f"library/{text}"
        if registry in {"index.docker.io", "registry-1.docker.io"}:
            registry = DOCKER_HUB
        if not _REGISTRY.fullmatch(registry) or not _NAME.fullmatch(name) or len(name) > _LONGEST_NAME:
            raise UsageError(
                f"not a repository: {_shown(text)}",
                hint="write it as registry/name, lower case, without a tag, or as file:///folder",
            )
        return cls(registry, name)

    def __str__(self) -> str:
        """Return the name as people write it."""
        return self.folder.as_uri() if self.folder else f"{self.registry}/{self.name}"


def _shown(text: str) -> str:
    limit = 80
    return repr(text if len(text) <= limit else f"{text[:limit]}... ({len(text)} characters)")
