"""Write tf.Example messages of plain values, without TensorFlow; predict/instances/example.py reads them."""

import struct
from typing import Any

from stoker.formats.protobuf import bytes_field, varint


def encode(values: dict[str, Any]) -> bytes:
    """The message of plain values: strings, floats, whole numbers; None is left out."""
    entries = b""
    for name, value in values.items():
        if value is not None:
            entries += bytes_field(1, bytes_field(1, name.encode()) + bytes_field(2, _feature(value)))
    return bytes_field(1, entries)


def _feature(value: Any) -> bytes:
    """One of three lists, by its number, of one value."""
    if isinstance(value, float):
        return bytes_field(2, bytes_field(1, struct.pack("<f", value)))
    if isinstance(value, int):
        return bytes_field(3, bytes_field(1, varint(value)))
    return bytes_field(1, bytes_field(1, value if isinstance(value, bytes) else str(value).encode()))
