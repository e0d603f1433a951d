"""Bytes on their way to becoming an object: a file nobody sees, and its checksums."""

import fcntl
import hashlib
import os
from pathlib import Path
from typing import Self

from stoker.formats.checksum import CHUNK_BYTES, crc32c, crc32c_of, crc32c_text, is_crc32c_fast, md5_of, md5_text


class Draft:
    """Append-only. A commit moves or uploads the file; `discard` removes it; after neither it stays, to go on with."""

    def __init__(self, path: Path, descriptor: int, *, is_borrowed: bool = False) -> None:
        """Use `new`, `resumed` or `of_file`."""
        self.path = path
        self.size = 0
        self.is_borrowed = is_borrowed
        self._descriptor = descriptor
        # Without the compiled checksum it is computed only if somebody asks for it.
        self._sums_crc32c = is_crc32c_fast()
        self._md5 = hashlib.md5(usedforsecurity=False)
        self._crc32c = 0

    @classmethod
    def new(cls, path: Path) -> Self:
        return cls(path, os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666))

    @classmethod
    def resumed(cls, path: Path) -> Self | None:
        """What is there already, to write on behind it; None while somebody else is at it."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_still_it = os.path.samestat(os.fstat(descriptor), os.stat(path))
        except OSError:
            is_still_it = False
        if not is_still_it:  # held, or just now committed by another process: its bytes are not ours to write to
            os.close(descriptor)
            return None
        draft = cls(path, descriptor)
        draft._sum_what_is_there()
        return draft

    @classmethod
    def of_file(cls, path: Path) -> Self:
        """A file that is complete already; it is read, never changed."""
        draft = cls(path, os.open(path, os.O_RDONLY), is_borrowed=True)
        draft._sum_what_is_there()
        draft.close()
        return draft

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._descriptor, view) :]
        self._sum(data)

    @property
    def md5(self) -> str:
        return md5_text(self._md5.digest())

    @property
    def crc32c(self) -> str:
        if not self._sums_crc32c:
            with open(self.path, "rb") as file:
                return crc32c_of(file)
        return crc32c_text(self._crc32c)

    def is_on_disk(self) -> bool:
        """Whether the file, read back, has the checksum of what was written into it."""
        with open(self.path, "rb") as file:
            return crc32c_of(file) == self.crc32c if self._sums_crc32c else md5_of(file) == self.md5

    def start_over(self) -> None:
        """Forget what was written so far."""
        os.ftruncate(self._descriptor, 0)
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        self.size = 0
        self._md5 = hashlib.md5(usedforsecurity=False)
        self._crc32c = 0

    def close(self) -> None:
        """Let go of the file, and leave it."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def discard(self) -> None:
        if not self.is_borrowed:
            self.path.unlink(missing_ok=True)
        self.close()

    def _sum_what_is_there(self) -> None:
        while data := os.read(self._descriptor, CHUNK_BYTES):
            self._sum(data)

    def _sum(self, data: bytes) -> None:
        self.size += len(data)
        self._md5.update(data)
        if self._sums_crc32c:
            self._crc32c = crc32c(data, self._crc32c)
