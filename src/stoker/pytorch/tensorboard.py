"""TensorBoard event files, written without TensorBoard: scalars as the few bytes of protobuf they are."""

import os
import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path


class EventFile:
    """Append scalars to an event file that `tensorboard --logdir` shows. Opened at the first scalar."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._descriptor = -1

    def add(self, step: int, scalars: Mapping[str, float]) -> None:
        if self._descriptor < 0:
            self._open()
        values = b"".join(_field(1, _field(1, tag.encode()) + _float(2, value)) for tag, value in scalars.items())
        self._append(_double(1, time.time()) + _integer(2, step) + _field(5, values))

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _open(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{time.time_ns() // 1000}.{socket.gethostname()}.{os.getpid()}.0"
        self._descriptor = os.open(self._folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        self._append(_double(1, time.time()) + _field(3, b"brain.Event:2"))

    def _append(self, event: bytes) -> None:
        length = struct.pack("<Q", len(event))
        os.write(self._descriptor, length + _checksum(length) + event + _checksum(event))


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _field(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _integer(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _double(number: int, value: float) -> bytes:
    return _varint(number << 3 | 1) + struct.pack("<d", value)


def _float(number: int, value: float) -> bytes:
    return _varint(number << 3 | 5) + struct.pack("<f", _in_float32(value))


def _in_float32(value: float) -> float:
    """A double beyond float32's range becomes an infinity, where struct would raise."""
    return value if value != value or abs(value) <= 3.4028234e38 else float("inf") * (1 if value > 0 else -1)


def _table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return tuple(table)


_CRC32C = _table()


def _checksum(data: bytes) -> bytes:
    """The masked CRC-32C that the record format asks for."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _CRC32C[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
