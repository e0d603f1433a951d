"""Protobuf's wire format, for the few small messages of TensorFlow's that are read and written without it."""

from collections.abc import Iterator

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
_SIZES = {FIXED64: 8, FIXED32: 4}

Field = tuple[int, int, int | bytes]  # number, wire type, value: an int of a varint, else its bytes


class Malformed(ValueError):
    """What is wrong with the bytes, and at which of them."""


def fields(message: bytes) -> Iterator[Field]:
    """A message's fields in the order written. Malformed at the first that is none."""
    at = 0
    while at < len(message):
        tag, at = read_varint(message, at)
        number, wire = tag >> 3, tag & 7
        if number == 0:
            raise Malformed(f"a field of number 0 at byte {at}")
        if wire == VARINT:
            value, at = read_varint(message, at)
            yield number, wire, value
            continue
        if wire == LENGTH:
            size, at = read_varint(message, at)
        elif wire in _SIZES:
            size = _SIZES[wire]
        else:
            raise Malformed(f"a field of unknown kind {wire} at byte {at}")
        if at + size > len(message):
            raise Malformed(f"it ends before its field at byte {at} does ({size} bytes)")
        yield number, wire, message[at : at + size]
        at += size


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """The number that begins there, of 64 bits without a sign, and where it ends."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise Malformed(f"it ends inside a number at byte {at}")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
    raise Malformed(f"a number of more than ten bytes at byte {at}")


def signed(value: int) -> int:
    """An int64, as it is read, with its sign."""
    return value - (1 << 64) if value >> 63 else value


def varint(value: int) -> bytes:
    """As an int64, a number below 0 too."""
    value &= (1 << 64) - 1
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def number_field(number: int, value: int) -> bytes:
    return varint(number << 3 | VARINT) + varint(value)


def bytes_field(number: int, content: bytes) -> bytes:
    """Text, bytes, or a message."""
    return varint(number << 3 | LENGTH) + varint(len(content)) + content
