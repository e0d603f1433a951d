"""How TFRecord files frame a record: its length, that one's checksum, the data, its checksum."""

import struct

from stoker.formats.checksum import crc32c

HEAD_BYTES, TAIL_BYTES = 12, 4
_LENGTH = struct.Struct("<Q")
_CHECKSUM = struct.Struct("<I")
_MASK_DELTA = 0xA282EAD8


def masked_crc32c(data: bytes) -> int:
    """The checksum as TFRecord stores it."""
    value = crc32c(data)
    return (((value >> 15) | (value << 17)) + _MASK_DELTA) & 0xFFFFFFFF


def framed(data: bytes) -> bytes:
    length = _LENGTH.pack(len(data))
    return length + _checksum(length) + data + _checksum(data)


def length_in(head: bytes) -> int | None:
    """Of the data that follows a head; None if the head's checksum is wrong."""
    return _LENGTH.unpack(head[:8])[0] if head[8:HEAD_BYTES] == _checksum(head[:8]) else None


def is_whole(data: bytes, tail: bytes) -> bool:
    """Whether it is what was written."""
    return tail == _checksum(data)


def _checksum(data: bytes) -> bytes:
    return _CHECKSUM.pack(masked_crc32c(data))
