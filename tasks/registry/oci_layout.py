"""A folder as a repository of images: an OCI image layout, which skopeo and others read as ``oci:FOLDER:TAG``.

Source: OCI image specification, image-layout.md; a tag is a descriptor of ``index.json`` with the annotation
``org.opencontainers.image.ref.name``. What is not a layout's own (other files, other descriptors) is left alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tasks.registry.documents import (
    INDEXES,
    LARGEST,
    MANIFESTS,
    OCI_INDEX,
    OCI_MANIFEST,
    Descriptor,
    Manifest,
    parse_json,
)
from tasks.registry.interface import Progress, Repository
from tasks.registry.references import RepositoryName, check_digest, check_reference, check_tag, is_digest, is_tag
from tasks.support.errors import ConfigurationError, DataError, MissingInputError, ServiceRefusedError
from tasks.support.file_ops import (
    NewFile,
    copy_file,
    explained,
    locked,
    new_file,
    open_plain,
    pieces,
    plain_stat,
    sweep,
    sync_folder,
    write_all,
)

REF_NAME = "org.opencontainers.image.ref.name"
OWN_FOLDER = ".omni-layout"
_MARKER = "oci-layout"
_VERSION = "1.0.0"
_DAMAGED = "restore the file, or remove the folder when nothing in it is needed"


class LayoutRepository:
    """A repository in a folder, which the first write makes; one that is not there is empty.

    A file appears whole, under its digest, and ``index.json`` is replaced under a lock, so neither a kill nor
    another process or thread leaves or sees half of something. A killed writer leaves at most a hidden file,
    which a later writer removes. As registries do, it refuses a manifest of which something is not there yet.
    """

    def __init__(self, folder: Path) -> None:
        """Name the folder, which need not exist."""
        self.folder = folder.absolute()
        self.name = RepositoryName(None, self.folder.name, self.folder)
        self._swept = False

    def head(self, reference: str) -> Descriptor | None:
        """Return what a tag or digest points at, or None; DataError naming the file when its bytes are others."""
        manifest = self.manifest(reference)
        return None if manifest is None else manifest.descriptor()

    def manifest(self, reference: str) -> Manifest | None:
        """Return a manifest by tag or digest, or None; DataError naming the file when its bytes are others."""
        check_reference(reference)
        while True:
            declared = self._declared(reference)
            if declared is None and not is_digest(reference):
                return None
            digest = declared.digest if declared else reference
            path = self._path(digest)
            with explained(f"cannot read {path}"):
                data = _read(path, LARGEST)
            if data is not None:
                break
            if declared is None:
                return None
            # It may have been deleted, with the tag, since the index was read.
            if self._declared(reference) == declared:
                raise DataError(f"{self._index_path} names {digest}, but {path} is missing", hint=_DAMAGED)
        if declared is None and (len(data) > LARGEST or _sniffed(data) is None):
            return None
        manifest = Manifest(declared.media_type if declared else _sniffed(data) or "", data)
        if manifest.digest != digest:
            raise DataError(f"digest mismatch: {path} holds {manifest.digest}", hint=_DAMAGED)
        return manifest

    def put_manifest(self, manifest: Manifest, tag: str | None = None) -> None:
        """Store a manifest, and move a tag to it; ServiceRefusedError when something of it is not there yet."""
        if tag is not None:
            check_tag(tag)
        self._create()
        path = self._path(manifest.digest)
        with self._changing():
            for part in (*manifest.blobs, *manifest.children):
                self._check_part(part, manifest)
            with new_file(self._own("new"), f"cannot write {path}") as new:
                write_all(new.fd, manifest.data)
                _commit(new, path)
            if tag is not None:
                self._retag(tag, manifest)

    def has_blob(self, digest: str) -> bool:
        """Say whether a blob is there."""
        path = self._path(digest)
        with explained(f"cannot look at {path}"):
            self._check()
            return plain_stat(path) is not None

    def read_blob(self, digest: str, start: int = 0) -> Iterator[bytes]:
        """Yield a blob's bytes from ``start`` on; MissingInputError when it is not there."""
        path = self._path(digest)
        with contextlib.ExitStack() as stack:
            with explained(f"cannot read {path}"):
                self._check()
                opened = open_plain(path)
            if opened is None:
                raise MissingInputError(f"no such blob: {path}")
            stack.callback(os.close, opened)
            rest = pieces(opened, start, os.fstat(opened).st_size)
            while True:
                # The caller's own errors, raised at the yield, must not be taken for the folder's.
                with explained(f"cannot read {path}"):
                    piece = next(rest, None)
                if piece is None:
                    return
                yield piece

    def put_blob(self, blob: Descriptor, chunks: Iterator[bytes], progress: Progress | None = None) -> None:
        """Store a blob; DataError, and nothing stored, when its bytes have another digest or size.

        When it fails, the progress that was told is taken back.
        """
        path = self._path(blob.digest)
        self._create()
        with new_file(self._own("new"), f"cannot write {path}") as new:
            size = 0
            try:
                whole = hashlib.sha256()
                for chunk in chunks:
                    whole.update(chunk)
                    with explained(f"cannot write {path}"):
                        write_all(new.fd, chunk)
                    size += len(chunk)
                    if progress is not None:
                        progress(len(chunk))
                _check_arrived(blob, f"sha256:{whole.hexdigest()}", size)
                with explained(f"cannot write {path}"):
                    _commit(new, path)
            except BaseException:
                if progress is not None and size:
                    progress(-size)
                raise

    def mount(self, blob: Descriptor, source: Repository) -> bool:
        """Take a blob from another layout: a hard link, or a copy where there can be none; False for anything else."""
        if not isinstance(source, LayoutRepository):
            return False
        found, path = source._path(blob.digest), self._path(blob.digest)  # noqa: SLF001 - another one of our own
        self._create()
        with explained(f"cannot read {found}"):
            opened = open_plain(found)
        if opened is None:
            return False
        try:
            _check_size(blob, found, os.fstat(opened).st_size)
            with explained(f"cannot write {path}"):
                try:
                    os.link(found, path)
                    sync_folder(path.parent)
                except FileExistsError:
                    pass
                except OSError:
                    # Another file system, too many links, or a file of another user.
                    with new_file(self._own("new"), f"cannot write {path}") as new:
                        copy_file(opened, new.fd, found, None)
                        _commit(new, path)
        finally:
            os.close(opened)
        return True

    def tags(self) -> list[str]:
        """Return every tag, sorted; DataError when ``index.json`` is damaged."""
        return sorted({tag for row in self._index()["manifests"] if (tag := _tag_of(row)) is not None})

    def delete_manifest(self, digest: str) -> bool:
        """Delete a manifest and every tag on it; False when it was not there. Blobs stay."""
        path = self._path(check_digest(digest))
        with explained(f"cannot look at {path}"):
            if not self._check():
                return False
        with self._changing():
            # Tags first: at no time does one of them point at nothing.
            removed = self._keep(lambda row: row["digest"] != digest)
            data = _read(path, LARGEST)
            if data is None or _sniffed(data) is None:
                return removed
            path.unlink()
            sync_folder(path.parent)
        return True

    def delete_tag(self, tag: str) -> bool:
        """Delete one tag and leave what it points at; False when it was not there."""
        check_tag(tag)
        with explained(f"cannot look at {self.folder}"):
            if not self._check():
                return False
        with self._changing():
            return self._keep(lambda row: _tag_of(row) != tag)

    @property
    def _index_path(self) -> Path:
        return self.folder / "index.json"

    def _path(self, digest: str) -> Path:
        return self.folder / "blobs" / "sha256" / check_digest(digest).removeprefix("sha256:")

    def _declared(self, reference: str) -> Descriptor | None:
        """Return the descriptor of ``index.json`` for a tag or a digest, or None."""
        rows = self._index()["manifests"]
        if is_digest(reference):
            rows = [row for row in rows if row["digest"] == reference][:1]
        else:
            rows = [row for row in rows if _tag_of(row) == reference]
        found = {row["digest"]: Descriptor.read(row, str(self._index_path)) for row in rows}
        if len(found) > 1:
            raise DataError(f"the tag {reference} is there {len(found)} times: {self._index_path}", hint=_DAMAGED)
        return next(iter(found.values()), None)

    def _index(self) -> dict[str, Any]:
        """Return the parsed ``index.json``, an empty one where there is none; DataError when it is damaged."""
        path = self._index_path
        with explained(f"cannot read {path}"):
            self._check()
            data = _read(path)
        if data is None:
            return {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": []}
        index = _parsed(data, path)
        if not isinstance(index.get("manifests"), list):
            raise DataError(f"not an OCI index: {path}", hint=_DAMAGED)
        for row in index["manifests"]:
            Descriptor.read(row, str(path))
        return index

    def _check(self) -> bool:
        """Say whether the folder is a layout; DataError when it is one of another version, or a damaged one."""
        path = self.folder / _MARKER
        # In this order: whoever makes a layout writes the marker first.
        has_index = _is_there(self._index_path)
        data = _read(path)
        if data is None:
            if has_index:
                raise DataError(f"an OCI layout without its marker: {path} is missing", hint=_DAMAGED)
            if self.folder.exists() and not self.folder.is_dir():
                raise ConfigurationError(f"not a folder, so no OCI layout: {self.folder}")
            return False
        version = _parsed(data, path).get("imageLayoutVersion")
        if version != _VERSION:
            raise DataError(f"an OCI layout of version {str(version)[:40]!r}, not {_VERSION}: {path}")
        return True

    def _create(self) -> None:
        """Make the folder a layout if it is none yet; ConfigurationError when it holds other things."""
        with explained(f"cannot write {self.folder}"):
            if not self._check():
                # With the files of another writer that is making the same layout just now.
                ours = {OWN_FOLDER, "blobs", _MARKER, self._index_path.name}
                if self.folder.is_dir() and {entry.name for entry in self.folder.iterdir()} - ours:
                    hint = "name an empty folder or a layout"
                    raise ConfigurationError(f"not an OCI layout, and not empty: {self.folder}", hint=hint)
                self._path(f"sha256:{'0' * 64}").parent.mkdir(parents=True, exist_ok=True)
                self._replace(self.folder / _MARKER, {"imageLayoutVersion": _VERSION})
            if not self._swept:
                self._swept = True
                sweep(self._own("new"))

    def _own(self, name: str) -> Path:
        folder = self.folder / OWN_FOLDER / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """Hold the lock of ``index.json`` and of which manifests there are."""
        with explained(f"cannot write {self._index_path}"), locked(self._own("lock") / "index"):
            yield

    def _retag(self, tag: str, manifest: Manifest) -> None:
        index = self._index()
        kept = [row for row in index["manifests"] if _tag_of(row) != tag]
        row = {"mediaType": manifest.media_type, "digest": manifest.digest, "size": manifest.size}
        self._replace(self._index_path, index | {"manifests": [*kept, row | {"annotations": {REF_NAME: tag}}]})

    def _keep(self, wanted: Callable[[dict[str, Any]], bool]) -> bool:
        """Remove the descriptors that are not wanted; say whether there was one."""
        index = self._index()
        kept = [row for row in index["manifests"] if wanted(row)]
        if len(kept) == len(index["manifests"]):
            return False
        self._replace(self._index_path, index | {"manifests": kept})
        return True

    def _replace(self, path: Path, document: dict[str, Any]) -> None:
        with new_file(self._own("new"), f"cannot write {path}") as new:
            write_all(new.fd, json.dumps(document).encode())
            _commit(new, path)

    def _check_part(self, part: Descriptor, manifest: Manifest) -> None:
        path = self._path(part.digest)
        found = plain_stat(path)
        if found is None:
            raise ServiceRefusedError(f"manifest {manifest.digest} refers to {part.digest}, but {path} is missing")
        _check_size(part, path, found.st_size)


def _commit(new: NewFile, path: Path) -> None:
    """Move a finished file to its place, so that it survives a power failure."""
    os.fsync(new.fd)
    new.path.replace(path)
    sync_folder(path.parent)


def _check_arrived(blob: Descriptor, digest: str, size: int) -> None:
    if (digest, size) != (blob.digest, blob.size):
        raise DataError(
            f"digest mismatch: {blob.digest} ({blob.size} bytes) arrived as {digest} ({size} bytes)",
            hint="nothing was stored; the source is damaged, or the connection to it",
        )


def _check_size(blob: Descriptor, path: Path, size: int) -> None:
    if size != blob.size:
        raise DataError(f"{path} has {size} bytes, not {blob.size}", hint=_DAMAGED)


def _is_there(path: Path) -> bool:
    """Say whether there is a file; DataError when a folder, a pipe or something else is in its place."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return False
    if not stat.S_ISREG(mode):
        raise DataError(f"not a file: {path}", hint=_DAMAGED)
    return True


def _read(path: Path, limit: int | None = None) -> bytes | None:
    """Read a file, or None when there is none; with a limit, at most one byte more than that."""
    opened = open_plain(path)
    if opened is None:
        _is_there(path)
        return None
    with os.fdopen(opened, "rb") as file:
        return file.read(-1 if limit is None else limit + 1)


def _parsed(data: bytes, path: Path) -> dict[str, Any]:
    try:
        document = parse_json(data)
    except (ValueError, RecursionError) as error:
        raise DataError(f"not JSON: {path}: {error}", hint=_DAMAGED) from error
    if not isinstance(document, dict):
        raise DataError(f"not a JSON object: {path}", hint=_DAMAGED)
    return document


def _tag_of(row: dict[str, Any]) -> str | None:
    """Return a descriptor's tag; None for what others wrote and no registry would take as a tag."""
    name = (row.get("annotations") or {}).get(REF_NAME)
    return name if name is not None and is_tag(name) else None


def _sniffed(data: bytes) -> str | None:
    """Return the media type of a manifest's bytes, or None when they are something else.

    Only OCI's may leave out the media type (image specification, manifest.md and image-index.md).
    """
    try:
        document = parse_json(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict):
        return None
    guess = OCI_INDEX if "manifests" in document else OCI_MANIFEST if "layers" in document else None
    found = document.get("mediaType", guess)
    return found if found in INDEXES | MANIFESTS else None
