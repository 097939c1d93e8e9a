"""The facts of a wheel or sdist, read once from the file itself: digest, size, name, version, METADATA.

Formats: wheels per the binary distribution format (PEP 427), sdists per PEP 625, METADATA and PKG-INFO
per the core metadata specification. Nothing is ever extracted, and what is read is bounded.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from enum import Enum
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO

from packaging.metadata import RawMetadata, parse_email
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import (
    InvalidName,
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    is_normalized_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version

from tasks.support.errors import DataError, MissingInputError
from tasks.wheels import archives
from tasks.wheels.variants import parse_variant
from tasks.wheels.versions import read_version

_SIDECAR_SUFFIX = ".metadata"
# The longest name of a file in Linux file systems; the metadata sidecar (PEP 658) has the longer name.
_LONGEST_NAME = 255 - len(_SIDECAR_SUFFIX)
# Of Requires-Python, and of what an error shows of a field.
_LONGEST_FIELD = 256
# What the components of both kinds of file name may hold: an escaped name, a version, tags.
_FILENAME = re.compile(r"[A-Za-z0-9._+!-]+")


class Kind(Enum):
    """The two kinds of distribution that an index lists."""

    WHEEL = "wheel"
    SDIST = "sdist"


@dataclass(frozen=True)
class FileName:
    """What a distribution's file name says. ``tags`` and ``build`` are a wheel's; sdists have none."""

    text: str
    kind: Kind
    project: str
    version: Version
    tags: tuple[str, ...] = ()
    build: str | None = None


@dataclass(frozen=True, kw_only=True)
class DistributionFacts:
    """What the index needs to know of a wheel or sdist, wherever its bytes lie.

    ``project`` is normalised (PEP 503), ``version`` too (PEP 440). ``size`` is in bytes, digests are lower-case
    hex; ``metadata_sha256`` is None for an sdist, whose PKG-INFO may not be served as its metadata (PEP 658).
    ``warnings`` are sentences for people about what is allowed but unwise.
    """

    filename: str
    kind: Kind
    project: str
    version: str
    variant: str | None
    unknown: tuple[str, ...]
    size: int
    sha256: str
    metadata: bytes = field(repr=False)
    metadata_sha256: str | None
    requires_python: str | None
    tags: tuple[str, ...]
    build: str | None
    warnings: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Facts(DistributionFacts):
    """The facts of a file on this machine."""

    path: Path


def read_facts(path: Path, patterns: tuple[str, ...]) -> Facts:
    """Read the facts of a local wheel or sdist; its bytes are hashed as a stream.

    ``patterns`` are the declared variants. Raises DataError (65) naming the file for whatever it is not,
    MissingInputError (66) when there is no such file.
    """
    name = parse_filename(path.name)
    with _open(path) as file:
        before = os.fstat(file.fileno())
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        facts = facts_from_reader(name.text, before.st_size, file, digest, patterns)
        after = os.fstat(file.fileno())
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        raise DataError(f"{shown(path)} was changed while it was read", hint="wait until its writer is done")
    values = {item.name: getattr(facts, item.name) for item in fields(DistributionFacts)}
    return Facts(path=path, **values)


def facts_from_reader(
    filename: str, size: int, reader: BinaryIO, sha256: str, patterns: tuple[str, ...]
) -> DistributionFacts:
    """Read the facts of a distribution through any seekable reader; of a wheel only its end and its METADATA.

    ``size`` and ``sha256`` are the caller's word. Raises DataError naming the file.
    """
    name = parse_filename(filename)
    metadata = read_metadata(reader, filename)
    requires_python = _checked_metadata(metadata, name)
    try:
        variant = parse_variant(name.version, patterns)
    except DataError as error:
        raise DataError(f"{filename}: {error.message}", hint=error.hint) from None
    wheel = name.kind is Kind.WHEEL
    return DistributionFacts(
        filename=filename,
        kind=name.kind,
        project=name.project,
        version=str(name.version),
        variant=variant.name,
        unknown=variant.unknown,
        size=size,
        sha256=sha256,
        metadata=metadata,
        metadata_sha256=hashlib.sha256(metadata).hexdigest() if wheel else None,
        requires_python=requires_python,
        tags=name.tags,
        build=name.build,
        warnings=tuple(_warnings(name, variant.unknown)),
    )


def read_metadata(reader: BinaryIO, filename: str) -> bytes:
    """Return a wheel's METADATA, or an sdist's PKG-INFO, of the folder that agrees with the file name.

    ``reader`` is seekable; of a wheel little more than the archive's directory and that member is read.
    Raises DataError naming the file.
    """
    name = parse_filename(filename)
    if name.kind is Kind.SDIST:
        folder, metadata = archives.sdist_metadata(reader, filename)
    else:
        folder, metadata = archives.wheel_metadata(reader, filename)
    _check_folder(folder, name)
    return metadata


def parse_filename(filename: str) -> FileName:
    """Read a distribution's file name, or raise DataError saying what is wrong with it."""
    if not _FILENAME.fullmatch(filename):
        raise DataError(
            f"not a wheel's or sdist's file name: {shown(filename)}",
            hint="it may hold ASCII letters, digits and . _ + ! - only",
        )
    if len(filename) > _LONGEST_NAME:
        raise DataError(
            f"the file name has {len(filename)} characters, and {_LONGEST_NAME} are possible: {filename}",
            hint="a metadata file with a longer name must fit beside it",
        )
    if filename.endswith(".whl"):
        return _parse_wheel_name(filename)
    if filename.endswith(".tar.gz"):
        return _parse_sdist_name(filename)
    hint = "make the sdist a .tar.gz (PEP 625)" if filename.endswith(".zip") else "give .whl or .tar.gz files"
    raise DataError(f"{filename} is neither a wheel nor a .tar.gz sdist", hint=hint)


def shown(name: str | Path) -> str:
    """Return a file's name as it can be printed on one line."""
    text = os.fspath(name)
    return text if text.isprintable() and text else ascii(text)


def _parse_wheel_name(filename: str) -> FileName:
    # `Foo__Bar` is not escaped as PEP 427 wants it; old build tools wrote it, and uv installs it.
    head, dash, rest = filename.partition("-")
    try:
        project, version, build, tags = parse_wheel_filename(f"{_collapsed(head)}{dash}{rest}")
    except InvalidWheelFilename as error:
        raise DataError(f"{filename} is not a wheel's file name: {_reason(error)}") from None
    _check_project(project, filename)
    text = "".join(map(str, build)) or None
    return FileName(filename, Kind.WHEEL, project, version, tuple(sorted(map(str, tags))), text)


def _parse_sdist_name(filename: str) -> FileName:
    try:
        project, version = parse_sdist_filename(filename)
    except InvalidSdistFilename as error:
        raise DataError(f"{filename} is not an sdist's file name: {_reason(error)}") from None
    _check_project(project, filename)
    return FileName(filename, Kind.SDIST, project, version)


def _collapsed(name: str) -> str:
    return re.sub(r"__+", "_", name)


def _reason(error: ValueError) -> str:
    """Return the bracketed reason in packaging's message, else all of it."""
    text = str(error)
    found = re.search(r"\(([^()]*)\)", text)
    return found[1] if found else text.partition(":")[0].lower()


def _check_project(project: str, filename: str) -> None:
    if not is_normalized_name(project):
        raise DataError(f"{filename}: its project name must begin and end with a letter or digit")


def _warnings(name: FileName, unknown: tuple[str, ...]) -> Iterator[str]:
    if unknown:
        yield f"{name.text}: local version labels that are no declared variant: {', '.join(unknown)}"
    head = name.text.partition("-")[0]
    if name.kind is Kind.WHEEL and _collapsed(head) != head:
        yield f"{name.text}: pip 26 and later ignore a wheel whose name holds '__'; build it with a current backend"


@contextmanager
def _open(path: Path) -> Iterator[BufferedReader]:
    """Open a regular file for reading; without O_NONBLOCK the opening of a named pipe would wait for a writer."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise MissingInputError(f"no such file: {shown(path)}") from None
    except OSError as error:
        raise DataError(f"cannot read {shown(path)}: {error.strerror}") from None
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            what = "a folder" if stat.S_ISDIR(facts.st_mode) else "no regular file"
            raise DataError(f"{shown(path)} is {what}; give a wheel or an sdist")
        if facts.st_size == 0:
            raise DataError(f"{shown(path)} is empty")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            yield file
    finally:
        os.close(descriptor)


def _check_folder(folder: str, name: FileName) -> None:
    """Raise DataError unless ``{name}-{version}`` agrees with the file name, both normalised."""
    project, _, version = folder.rpartition("-")
    try:
        agrees = canonicalize_name(project) == name.project and read_version(version) == name.version
    except InvalidVersion:
        agrees = False
    if not agrees:
        raise DataError(
            f"{name.text}: the file name says {name.project} {name.version}, the metadata folder {shown(folder)}",
            hint="a distribution must not be renamed; build it again",
        )


def _checked_metadata(data: bytes, name: FileName) -> str | None:
    """Check that METADATA agrees with the file name, and return its Requires-Python."""
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{name.text}: its metadata is not UTF-8 (byte {error.start})") from None
    raw, unparsed = _parsed(data, name)
    project, version = _single("name", raw, unparsed, name), _single("version", raw, unparsed, name)
    for key in ("name", "version"):
        if key not in raw:
            raise DataError(f"{name.text}: its metadata has no {key.capitalize()}")
    try:
        same_project = canonicalize_name(project or "", validate=True) == name.project
        same_version = read_version(version or "") == name.version
    except (InvalidName, InvalidVersion):
        same_project = same_version = False
    if not (same_project and same_version):
        raise DataError(
            f"{name.text}: the file name says {name.project} {name.version}, "
            f"its metadata {_cut(project)} {_cut(version)}",
            hint="a distribution must not be renamed; build it again",
        )
    requires_python = (_single("requires_python", raw, unparsed, name) or "").strip()
    try:
        # Installers do the same with the text of the page; one that cannot be compared breaks them for the project.
        if len(requires_python) > _LONGEST_FIELD or not requires_python.isprintable():
            raise InvalidSpecifier(requires_python)
        SpecifierSet(requires_python).contains("3.11")
    except ValueError:
        raise DataError(f"{name.text}: its Requires-Python is not valid: {_cut(requires_python)}") from None
    return requires_python or None


def _parsed(data: bytes, name: FileName) -> tuple[RawMetadata, dict[str, list[str]]]:
    """Parse METADATA; only its head can make the parser nest, and no core metadata does."""
    try:
        return parse_email(data)
    except RecursionError:
        raise DataError(f"{name.text}: its metadata nests messages (multipart/mixed or message/rfc822)") from None


def _cut(text: str | None) -> str:
    shown = repr(text)
    return shown if len(shown) <= _LONGEST_FIELD else f"{shown[:_LONGEST_FIELD]}..."


def _single(key: str, raw: RawMetadata, unparsed: dict[str, list[str]], name: FileName) -> str | None:
    header = key.replace("_", "-").title()
    values = unparsed.get(header.lower(), [])
    if len(values) > 1:
        raise DataError(f"{name.text}: its metadata has {header} {len(values)} times: {', '.join(map(repr, values))}")
    value: Any = raw.get(key)
    return value if isinstance(value, str) else None
