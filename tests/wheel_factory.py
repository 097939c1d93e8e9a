"""Makes real wheels and sdists, and one of each kind of broken one, quickly and with the same bytes each time."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import struct
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

TAG = "py3-none-any"
_DATE = (2026, 1, 1, 0, 0, 0)
_SECONDS = 1_767_225_600  # the same day


def escaped(name: str) -> str:
    """Return a project's name as file names have it (PEP 427)."""
    return name.replace("-", "_").replace(".", "_")


def metadata(name: str, version: str, requires_python: str | None = None, extra: str = "") -> bytes:
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    if requires_python is not None:
        lines.append(f"Requires-Python: {requires_python}")
    return ("\n".join(lines) + f"\n{extra}\n").encode()


def make_wheel(
    folder: Path,
    *,
    name: str = "sample",
    version: str = "1.0",
    requires_python: str | None = None,
    tag: str = TAG,
    build: str | None = None,
    extra: str = "",
    files: Mapping[str, bytes] | None = None,
    filename: str | None = None,
    dist_info: str | None = None,
    metadata_bytes: bytes | None = None,
) -> Path:
    """Write a wheel that pip and uv install, unless the last arguments say otherwise.

    ``extra`` are more METADATA lines; ``files`` are more members, so that equal names can have other bytes.
    ``filename``, ``dist_info`` (a folder name) and ``metadata_bytes`` replace what follows from the rest.
    """
    stem = escaped(name)
    info = dist_info or f"{stem}-{version}.dist-info"
    if metadata_bytes is None:
        metadata_bytes = metadata(name, version, requires_python, extra)
    members = {
        f"{stem}/__init__.py": f"__version__ = {version!r}\n".encode(),
        **(files or {}),
        f"{info}/METADATA": metadata_bytes,
        f"{info}/WHEEL": _wheel_file(tag, build),
    }
    rows = [f"{path},sha256={_record_digest(data)},{len(data)}" for path, data in members.items()]
    members[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,", ""]).encode()
    middle = f"-{build}" if build else ""
    path = folder / (filename or f"{stem}-{version}{middle}-{tag}.whl")
    write_zip(path, list(members.items()))
    return path


def make_sdist(
    folder: Path,
    *,
    name: str = "sample",
    version: str = "1.0",
    requires_python: str | None = None,
    extra: str = "",
    files: Mapping[str, bytes] | None = None,
    filename: str | None = None,
    top: str | None = None,
    metadata_bytes: bytes | None = None,
) -> Path:
    """Write a .tar.gz sdist; it has no build backend, so it is for listing and downloading only."""
    stem = f"{escaped(name)}-{version}"
    info = metadata(name, version, requires_python, extra) if metadata_bytes is None else metadata_bytes
    members = {f"{top or stem}/PKG-INFO": info, f"{top or stem}/pyproject.toml": b"", **(files or {})}
    path = folder / (filename or f"{stem}.tar.gz")
    write_tar(path, list(members.items()))
    return path


def write_zip(path: Path, members: list[tuple[str, bytes]], method: int = zipfile.ZIP_DEFLATED) -> None:
    """Write members in this order; a name may come twice."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members:
            member = zipfile.ZipInfo(name, _DATE)
            member.compress_type = method
            member.external_attr = 0o644 << 16
            archive.NameToInfo.pop(name, None)  # else zipfile warns of a name that comes twice
            archive.writestr(member, data)


def write_tar(path: Path, members: list[tuple[str, bytes]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with (
        path.open("wb") as file,
        gzip.GzipFile("", "wb", fileobj=file, mtime=_SECONDS) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, data in members:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            member.mtime = _SECONDS
            archive.addfile(member, io.BytesIO(data))


def _wheel_file(tag: str, build: str | None) -> bytes:
    python, abi, platform = tag.split("-")
    tags = [f"Tag: {p}-{a}-{q}" for p in python.split(".") for a in abi.split(".") for q in platform.split(".")]
    head = ["Wheel-Version: 1.0", "Generator: wheel-factory", "Root-Is-Purelib: true"]
    return "\n".join([*head, *tags, *([f"Build: {build}"] if build else []), ""]).encode()


def _record_digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")


# One maker for each kind of broken distribution. Each returns a path whose reading must be refused.

_WHEEL = f"sample-1.0-{TAG}.whl"
_INFO = "sample-1.0.dist-info"


def empty(folder: Path) -> Path:
    return _write(folder, b"")


def not_a_zip(folder: Path) -> Path:
    return _write(folder, b"<html>404 Not Found</html>\n" * 100)


def truncated(folder: Path) -> Path:
    path = make_wheel(folder)
    return _write(folder, path.read_bytes()[:-40])


def cut_in_front(folder: Path) -> Path:
    """Leave the directory at the end whole, while the members it points at are gone."""
    path = make_wheel(folder, files={"big.bin": b"x"})
    data = path.read_bytes()
    return _write(folder, data[data.rindex(b"PK\1\2") :])


def flipped_bits(folder: Path) -> Path:
    """Change METADATA's stored bytes, so that its checksum no longer holds."""
    path = folder / _WHEEL
    write_zip(path, [(f"{_INFO}/METADATA", metadata("sample", "1.0"))], zipfile.ZIP_STORED)
    return _write(folder, path.read_bytes().replace(b"Version: 1.0\n", b"Version: 2.0\n"))


def broken_deflate(folder: Path) -> Path:
    path = folder / _WHEEL
    name = f"{_INFO}/METADATA".encode()
    write_zip(path, [(name.decode(), metadata("sample", "1.0"))])
    data = path.read_bytes()
    start = data.index(name) + len(name)
    return _write(folder, data[:start] + b"\xff" * 30 + data[start + 30 :])


def encrypted(folder: Path) -> Path:
    path = make_wheel(folder)
    data = bytearray(path.read_bytes())
    for signature, offset in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        start = -1
        while (start := data.find(signature, start + 1)) >= 0:
            data[start + offset] |= 1
    return _write(folder, bytes(data))


def unbounded_method(folder: Path) -> Path:
    """Compress METADATA by a method whose decoder cannot be stopped half-way."""
    write_zip(folder / _WHEEL, [(f"{_INFO}/METADATA", metadata("sample", "1.0"))], zipfile.ZIP_LZMA)
    return folder / _WHEEL


def bomb(folder: Path) -> Path:
    """Make a METADATA of 16 MB out of 16 kB."""
    return make_wheel(folder, metadata_bytes=metadata("sample", "1.0") + b" " * 16_000_000)


def lying_bomb(folder: Path) -> Path:
    """Make the same, where the headers say that METADATA has 100 bytes."""
    path = bomb(folder)
    data = path.read_bytes()
    size = struct.pack("<L", 16_000_000 + len(metadata("sample", "1.0")))
    return _write(folder, data.replace(size, struct.pack("<L", 100)))


def two_dist_infos(folder: Path) -> Path:
    return make_wheel(folder, files={"other-2.0.dist-info/METADATA": metadata("other", "2.0")})


def two_spellings(folder: Path) -> Path:
    return make_wheel(folder, files={"Sample-1.0.dist-info/METADATA": metadata("Sample", "1.0")})


def no_dist_info(folder: Path) -> Path:
    write_zip(folder / _WHEEL, [("sample/__init__.py", b"")])
    return folder / _WHEEL


def no_members(folder: Path) -> Path:
    write_zip(folder / _WHEEL, [])
    return folder / _WHEEL


def nested_dist_info(folder: Path) -> Path:
    write_zip(folder / _WHEEL, [(f"vendor/{_INFO}/METADATA", metadata("sample", "1.0"))])
    return folder / _WHEEL


def no_metadata(folder: Path) -> Path:
    write_zip(folder / _WHEEL, [(f"{_INFO}/WHEEL", _wheel_file(TAG, None))])
    return folder / _WHEEL


def two_metadata(folder: Path) -> Path:
    member = (f"{_INFO}/METADATA", metadata("sample", "1.0"))
    write_zip(folder / _WHEEL, [member, member])
    return folder / _WHEEL


def other_dist_info_name(folder: Path) -> Path:
    return make_wheel(folder, dist_info="simple-1.0.dist-info")


def other_dist_info_version(folder: Path) -> Path:
    return make_wheel(folder, dist_info="sample-1.1.dist-info")


def unversioned_dist_info(folder: Path) -> Path:
    return make_wheel(folder, dist_info="sample.dist-info")


def other_metadata_name(folder: Path) -> Path:
    return make_wheel(folder, metadata_bytes=metadata("simple", "1.0"))


def other_metadata_version(folder: Path) -> Path:
    return make_wheel(folder, metadata_bytes=metadata("sample", "1.0+cu130"))


def not_utf8(folder: Path) -> Path:
    return make_wheel(folder, metadata_bytes=metadata("sample", "1.0") + b"Author: \xe9\n")


def byte_order_mark(folder: Path) -> Path:
    return make_wheel(folder, metadata_bytes=b"\xef\xbb\xbf" + b"Name: sample\nVersion: 1.0\n\n")


def no_name(folder: Path) -> Path:
    return make_wheel(folder, metadata_bytes=b"Metadata-Version: 2.1\nVersion: 1.0\n\n")


def no_version(folder: Path) -> Path:
    return make_wheel(folder, metadata_bytes=b"Metadata-Version: 2.1\nName: sample\n\nVersion: 1.0\n")


def two_names(folder: Path) -> Path:
    return make_wheel(folder, extra="Name: other")


def two_versions(folder: Path) -> Path:
    return make_wheel(folder, extra="Version: 1.0")


def bad_metadata_version(folder: Path) -> Path:
    return make_wheel(folder, metadata_bytes=metadata("sample", "one"))


def bad_requires_python(folder: Path) -> Path:
    return make_wheel(folder, requires_python="3.10 and up")


def two_requires_pythons(folder: Path) -> Path:
    return make_wheel(folder, requires_python=">=3.10", extra="Requires-Python: >=3.11")


def two_variants(folder: Path) -> Path:
    return make_wheel(folder, version="1.0+cu130.rocm7.2")


BROKEN_WHEELS: tuple[Callable[[Path], Path], ...] = (
    empty, not_a_zip, truncated, cut_in_front, flipped_bits, broken_deflate, encrypted, unbounded_method, bomb,
    lying_bomb, two_dist_infos, two_spellings, no_dist_info, no_members, nested_dist_info, no_metadata, two_metadata,
    other_dist_info_name, other_dist_info_version, unversioned_dist_info, other_metadata_name, other_metadata_version,
    not_utf8, byte_order_mark, no_name, no_version, two_names, two_versions, bad_metadata_version,
    bad_requires_python, two_requires_pythons, two_variants,
)  # fmt: skip


_SDIST = "sample-1.0.tar.gz"
_PKG_INFO = "sample-1.0/PKG-INFO"


def sdist_not_gzip(folder: Path) -> Path:
    return _write(folder, b"<html>404 Not Found</html>\n" * 100, _SDIST)


def sdist_not_tar(folder: Path) -> Path:
    return _write(folder, gzip.compress(b"no tar at all" * 100, mtime=0), _SDIST)


def sdist_truncated(folder: Path) -> Path:
    path = make_sdist(folder)
    return _write(folder, path.read_bytes()[:-20], _SDIST)


def sdist_bad_checksum(folder: Path) -> Path:
    """Break gzip's checksum at the very end, after the last byte that tar needs."""
    data = bytearray(make_sdist(folder).read_bytes())
    data[-8] ^= 0xFF
    return _write(folder, bytes(data), _SDIST)


def sdist_bomb(folder: Path) -> Path:
    """Make 512 MB out of 512 kB, of many gzip members so that making it takes little memory."""
    head = tarfile.TarInfo("sample-1.0/zeros")
    head.size = 2**29
    zeros = gzip.compress(bytes(2**24), mtime=0)
    return _write(folder, gzip.compress(head.tobuf(), mtime=0) + zeros * 32, _SDIST)


def sdist_metadata_bomb(folder: Path) -> Path:
    return make_sdist(folder, metadata_bytes=metadata("sample", "1.0") + b" " * 16_000_000)


def sdist_no_metadata(folder: Path) -> Path:
    write_tar(folder / _SDIST, [("sample-1.0/pyproject.toml", b""), ("sample-1.0/x.egg-info/PKG-INFO", b"")])
    return folder / _SDIST


def sdist_two_metadata(folder: Path) -> Path:
    write_tar(folder / _SDIST, [(_PKG_INFO, metadata("sample", "1.0"))] * 2)
    return folder / _SDIST


def sdist_two_tops(folder: Path) -> Path:
    return make_sdist(folder, files={"other-1.0/PKG-INFO": metadata("other", "1.0")})


def sdist_other_top(folder: Path) -> Path:
    return make_sdist(folder, top="sample-1.1")


def sdist_other_metadata(folder: Path) -> Path:
    return make_sdist(folder, metadata_bytes=metadata("sample", "1.1"))


def sdist_linked_metadata(folder: Path) -> Path:
    path = folder / _SDIST
    with path.open("wb") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
        member = tarfile.TarInfo(_PKG_INFO)
        member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(member)
    return path


BROKEN_SDISTS: tuple[Callable[[Path], Path], ...] = (
    sdist_not_gzip, sdist_not_tar, sdist_truncated, sdist_bad_checksum, sdist_bomb, sdist_metadata_bomb,
    sdist_no_metadata, sdist_two_metadata, sdist_two_tops, sdist_other_top, sdist_other_metadata, sdist_linked_metadata,
)  # fmt: skip


def _write(folder: Path, data: bytes, name: str = _WHEEL) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path
