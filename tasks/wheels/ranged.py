"""Reading parts of a stored object as if it were a file, in few requests."""

from __future__ import annotations

import io
from collections import OrderedDict

from tasks.support.errors import RemoteChangedError
from tasks.support.store import ObjectStore, Stored

BLOCK = 256 * 1024
_CACHED = 32
# An archive's directory is read at once; a damaged one may claim to fill the whole file.
_LARGEST_READ = 64 * 1024 * 1024


class RangedReader(io.RawIOBase):
    """A seekable reader of one object; what it reads comes in blocks, and neighbouring ones in one request.

    Its own memory is at most ``_CACHED`` blocks beside what one ``read`` asks for. Not for several threads.
    """

    def __init__(self, store: ObjectStore, stored: Stored) -> None:
        """Read the object as it was when ``stored`` was made."""
        super().__init__()
        self._store = store
        self._stored = stored
        self._position = 0
        self._blocks: OrderedDict[int, bytes] = OrderedDict()

    def readable(self) -> bool:
        """Say yes."""
        return True

    def seekable(self) -> bool:
        """Say yes."""
        return True

    def tell(self) -> int:
        """Return the position in bytes."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move, and return the new position; before the beginning is an OSError, as in a file."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._stored.size}[whence]
        if base + offset < 0:
            raise OSError(f"cannot seek to {base + offset}")
        self._position = base + offset
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        """Return up to ``size`` bytes, less only at the end."""
        end = self._stored.size if size is None or size < 0 else min(self._position + size, self._stored.size)
        start = self._position
        if start >= end:
            return b""
        if end - start > _LARGEST_READ:
            raise OSError(f"a part of {end - start} bytes would have to be read at once")
        first, last = start // BLOCK, (end - 1) // BLOCK
        blocks = self._fetch(first, last)
        self._position = end
        return b"".join(blocks)[start - first * BLOCK : end - first * BLOCK]

    def _fetch(self, first: int, last: int) -> list[bytes]:
        missing = [number for number in range(first, last + 1) if number not in self._blocks]
        found = {number: self._blocks[number] for number in range(first, last + 1) if number in self._blocks}
        if missing:
            data = self._request(missing[0] * BLOCK, min((missing[-1] + 1) * BLOCK, self._stored.size))
            for number in range(missing[0], missing[-1] + 1):
                offset = (number - missing[0]) * BLOCK
                found[number] = data[offset : offset + BLOCK]
        for number, block in found.items():
            self._blocks[number] = block
            self._blocks.move_to_end(number)
            while len(self._blocks) > _CACHED:
                self._blocks.popitem(last=False)
        return [found[number] for number in range(first, last + 1)]

    def _request(self, start: int, end: int) -> bytes:
        data = b"".join(self._store.stream(self._stored.key, start, end))
        if len(data) != end - start:
            raise RemoteChangedError(f"{self._stored.key} became shorter while it was read", hint="run it again")
        return data
