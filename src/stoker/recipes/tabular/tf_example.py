"""tf.Example messages, read without TensorFlow: a map from names to a list of bytes, floats or integers.

Example { Features features = 1; }    Features { map<string, Feature> feature = 1; }
Feature { oneof: BytesList = 1, FloatList = 2, Int64List = 3; each with `repeated value = 1` }
"""

import struct
from collections.abc import Iterator
from typing import Any

Field = tuple[int, int, Any]  # number, wire type, value: an int, or the bytes of it


def decode(message: bytes) -> dict[str, list[Any]]:
    """The features by name. ValueError for what is no tf.Example."""
    found: dict[str, list[Any]] = {}
    try:
        for features in _of(message, 1):
            for entry in _of(features, 1):
                name = next(_of(entry, 1), b"").decode()
                found[name] = _values(next(_of(entry, 2), b""))
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise ValueError("not a tf.Example") from error
    return found


def encode(values: dict[str, Any]) -> bytes:
    """The message of plain values: strings, floats, whole numbers; None is left out."""
    entries = b""
    for name, value in values.items():
        if value is not None:
            entry = _with_length(1, name.encode()) + _with_length(2, _feature(value))
            entries += _with_length(1, entry)
    return _with_length(1, entries)


def _feature(value: Any) -> bytes:
    if isinstance(value, float):
        return _with_length(2, _with_length(1, struct.pack("<f", value)))
    if isinstance(value, int):
        return _with_length(3, _with_length(1, _varint(value & (1 << 64) - 1)))
    return _with_length(1, _with_length(1, value if isinstance(value, bytes) else str(value).encode()))


def _values(feature: bytes) -> list[Any]:
    for number, _, content in _fields(feature):
        items = list(_fields(content))
        if number == 1:
            return [value for _, _, value in items]
        if number == 2:
            return [value for _, wire, item in items for value in _floats(wire, item)]
        if number == 3:
            return [_signed(value) for _, wire, item in items for value in ([item] if wire == 0 else _varints(item))]
    return []


def _floats(wire: int, item: Any) -> tuple[float, ...]:
    data = struct.pack("<I", item) if wire == 5 else item
    return struct.unpack(f"<{len(data) // 4}f", data)


def _of(message: bytes, number: int) -> Iterator[bytes]:
    for found, wire, value in _fields(message):
        if found == number:
            if wire != 2:
                raise IndexError("a number where a message was expected")
            yield value


def _fields(message: bytes) -> Iterator[Field]:
    at = 0
    while at < len(message):
        key, at = _read_varint(message, at)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, at = _read_varint(message, at)
            yield number, wire, value
        elif wire == 5:
            yield number, wire, struct.unpack_from("<I", message, at)[0]
            at += 4
        elif wire == 2:
            size, at = _read_varint(message, at)
            if at + size > len(message):
                raise IndexError("cut short")
            yield number, wire, message[at : at + size]
            at += size
        else:
            raise IndexError(f"wire type {wire}")


def _varints(data: bytes) -> Iterator[int]:
    at = 0
    while at < len(data):
        value, at = _read_varint(data, at)
        yield value


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(found) + bytes([value])


def _with_length(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content
