"""Finds and reads the metadata member of a wheel (zip) or an sdist (gzipped tar), with caps and without extracting."""

from __future__ import annotations

import gzip
import struct
import tarfile
import zipfile
import zlib
from collections import Counter
from pathlib import Path, PurePosixPath
from typing import BinaryIO, cast

from tasks.support.errors import DataError

METADATA_LIMIT = 4 * 2**20
SDIST_LIMIT = 2**28
_DIST_INFO = ".dist-info"
_ENCRYPTED = 0x1
# pip, uv and PyPI read these; the others' decoders cannot be bounded.
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_BROKEN = (zlib.error, struct.error, EOFError, RuntimeError, ValueError, LookupError, OverflowError, OSError)
_BROKEN_ZIP = (zipfile.BadZipFile, *_BROKEN)
_BROKEN_TAR = (tarfile.TarError, *_BROKEN)


def wheel_metadata(reader: BinaryIO, filename: str) -> tuple[str, bytes]:
    """Return the ``{name}-{version}`` of a wheel's only top-level .dist-info folder, and its METADATA.

    At most METADATA_LIMIT bytes are unpacked, whatever the archive's headers say.
    """
    try:
        with zipfile.ZipFile(reader) as archive:
            names = archive.namelist()
            folder = _dist_info(names, filename)
            member = f"{folder}/METADATA"
            found = Counter(names)[member]
            if found != 1:
                raise DataError(f"{filename}: it holds {found} members {member}, and exactly one is needed")
            return folder.removesuffix(_DIST_INFO), _read_member(archive, archive.getinfo(member), filename)
    except _BROKEN_ZIP as error:
        raise _broken(filename, "wheel", error) from error


def _dist_info(names: list[str], filename: str) -> str:
    tops = sorted({name.partition("/")[0] for name in names})
    folders = [top for top in tops if top.endswith(_DIST_INFO)]
    if len(folders) != 1:
        listed = f": {', '.join(map(ascii, folders))}" if folders else ""
        raise DataError(f"{filename}: it holds {len(folders)} .dist-info folders, and exactly one is needed{listed}")
    return folders[0]


def _read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, filename: str) -> bytes:
    if member.flag_bits & _ENCRYPTED:
        raise DataError(f"{filename}: {member.filename} is encrypted")
    if member.compress_type not in _METHODS:
        raise DataError(f"{filename}: {member.filename} is compressed by method {member.compress_type}, not deflated")
    with archive.open(member) as file:
        data = file.read(METADATA_LIMIT + 1)
    return _within_limit(data, member.filename, filename)


def _within_limit(data: bytes, member: str, filename: str) -> bytes:
    if len(data) > METADATA_LIMIT:
        raise DataError(f"{filename}: {member!a} is larger than {METADATA_LIMIT} bytes")
    return data


def sdist_metadata(reader: BinaryIO, filename: str) -> tuple[str, bytes]:
    """Return an sdist's top folder and the PKG-INFO directly in it (PEP 625); all of it is read, so it is whole.

    At most SDIST_LIMIT bytes are unpacked.
    """
    found: dict[str, bytes] = {}
    try:
        reader.seek(0)
        with gzip.GzipFile(fileobj=reader) as unpacked:
            source = _Bounded(unpacked, filename)
            with tarfile.open(fileobj=cast("BinaryIO", source), mode="r|") as archive:
                while (member := archive.next()) is not None:
                    vars(archive)["members"].clear()  # tarfile would keep every one in memory
                    parts = PurePosixPath(member.name).parts
                    if len(parts) == 2 and parts[1] == "PKG-INFO":  # noqa: PLR2004 - the folder and the file
                        if parts[0] in found:
                            raise DataError(f"{filename}: it holds {member.name!a} twice")
                        found[parts[0]] = _read_tar_member(archive, member, filename)
            while source.read(2**16):  # the checksum stands at the very end
                pass
    except _BROKEN_TAR as error:
        raise _broken(filename, "sdist", error) from error
    if len(found) != 1:
        listed = f" (in {', '.join(map(ascii, sorted(found)))})" if found else ""
        raise DataError(
            f"{filename}: it holds {len(found)} PKG-INFO in a top folder, and exactly one is needed{listed}"
        )
    return next(iter(found.items()))


def _read_tar_member(archive: tarfile.TarFile, member: tarfile.TarInfo, filename: str) -> bytes:
    file = archive.extractfile(member) if member.isreg() else None
    if file is None:
        raise DataError(f"{filename}: {member.name!a} is not a regular file")
    return _within_limit(file.read(METADATA_LIMIT + 1), member.name, filename)


class _Bounded:
    """A reader that refuses to yield more than SDIST_LIMIT bytes."""

    def __init__(self, source: gzip.GzipFile, filename: str) -> None:
        self._source = source
        self._filename = filename
        self._left = SDIST_LIMIT

    def read(self, size: int) -> bytes:
        data = self._source.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise DataError(f"{self._filename}: it unpacks to more than {SDIST_LIMIT} bytes")
        return data


def _broken(filename: str, kind: str, error: Exception) -> DataError:
    return DataError(
        f"{filename} is not a readable {kind}: {str(error) or type(error).__name__}", hint="build or fetch it again"
    )


def settle_sdist(path: Path, epoch: int) -> None:
    """Rewrite an sdist so that only its contents decide its bytes: one time, no owner, 644 or 755.

    setuptools does not heed SOURCE_DATE_EPOCH in sdists, and a repeated build of a commit has to be the
    same file as the first. Replaces the file in one step.
    """
    settled = path.with_name(f".{path.name}.settled")
    with (
        tarfile.open(path, "r:gz") as archive,
        settled.open("wb") as file,
        gzip.GzipFile("", "wb", fileobj=file, mtime=epoch) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as copy,
    ):
        for member in archive:
            member.mtime = epoch
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            kept = {key: value for key, value in member.pax_headers.items() if not key.endswith("time")}
            member.pax_headers = kept
            copy.addfile(member, archive.extractfile(member) if member.isreg() else None)
    settled.replace(path)
