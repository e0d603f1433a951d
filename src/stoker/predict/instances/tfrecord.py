"""TFRecord files: length, checksum, data, checksum; a damaged one is named with the record's number and offset."""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from stoker.errors import InstanceError
from stoker.formats.tfrecord import HEAD_BYTES, TAIL_BYTES, is_whole, length_in

MAX_RECORD_BYTES = 1 << 30
_GZIP = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class Record:
    """`offset` is where it begins in the file (unpacked, if that is gzip)."""

    offset: int
    data: bytes


def records(stream: BinaryIO) -> Iterator[Record]:
    """All records of a file, gzip or not. InstanceError, by number and offset, at the first that is not whole."""
    reader = _Reader(stream)
    index = 0
    while True:
        offset = reader.offset
        head = reader.read(HEAD_BYTES, index=index, offset=offset)
        if not head:
            return
        yield Record(offset, _data(reader, head, index=index, offset=offset))
        index += 1


def _data(reader: "_Reader", head: bytes, *, index: int, offset: int) -> bytes:
    def bad(what: str) -> InstanceError:
        return InstanceError(f"record {index + 1}, at offset {offset}, {what}", index=index)

    if len(head) < HEAD_BYTES:
        raise bad(f"is truncated: {len(head)} bytes of its {HEAD_BYTES}-byte header are there")
    length = length_in(head)
    if length is None:
        raise bad("has a length whose checksum is wrong: the file is corrupt, or no TFRecord file")
    if length > MAX_RECORD_BYTES:
        raise bad(f"claims {length} bytes; more than {MAX_RECORD_BYTES} are not read")
    body = reader.read(length + TAIL_BYTES, index=index, offset=offset)
    if len(body) < length + TAIL_BYTES:
        raise bad(f"is truncated: {len(body)} of {length + TAIL_BYTES} bytes are there")
    data = body[:length]
    if not is_whole(data, body[length:]):
        raise bad("is corrupt: its checksum is wrong")
    return data


class _Reader:
    """So many bytes of a stream, unpacked if it is gzip; memory is bounded by what is asked for."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._held = stream.read(1 << 16)
        self._unpack = zlib.decompressobj(zlib.MAX_WBITS | 16) if self._held.startswith(_GZIP) else None
        self._packed = b""
        if self._unpack is not None:
            self._packed, self._held = self._held, b""
        self.offset = 0

    def read(self, count: int, *, index: int, offset: int) -> bytes:
        parts = []
        missing = count
        while missing > 0 and (part := self._some(missing, index=index, offset=offset)):
            parts.append(part)
            missing -= len(part)
        self.offset += count - missing
        return b"".join(parts)

    def _some(self, most: int, *, index: int, offset: int) -> bytes:
        if not self._held:
            try:
                self._held = self._stream.read(1 << 20) if self._unpack is None else self._unpacked()
            except (zlib.error, EOFError) as error:
                what = f"record {index + 1}, at offset {offset} of what was unpacked, cannot be read: {error}"
                raise InstanceError(what, index=index) from error
        part, self._held = self._held[:most], self._held[most:]
        return part

    def _unpacked(self) -> bytes:
        assert self._unpack is not None
        while True:
            packed = self._packed or self._stream.read(1 << 16)
            if self._unpack.eof:
                rest = self._unpack.unused_data + packed
                if not rest.strip(b"\0"):
                    return b""
                self._unpack, packed = zlib.decompressobj(zlib.MAX_WBITS | 16), rest  # gzip files may be joined
            if not packed:
                raise EOFError("the gzip file is truncated")
            found = self._unpack.decompress(packed, 1 << 20)  # bounded, whatever a hostile file expands to
            self._packed = self._unpack.unconsumed_tail
            if found:
                return found
