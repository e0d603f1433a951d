"""TensorBoard event files, written without TensorBoard: scalars as the few bytes of protobuf they are."""

import os
import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path

from stoker.formats.protobuf import FIXED32, FIXED64, bytes_field, number_field, varint
from stoker.formats.tfrecord import framed


class EventFile:
    """Append scalars to an event file that `tensorboard --logdir` shows. Opened at the first scalar."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._descriptor = -1

    def add(self, step: int, scalars: Mapping[str, float]) -> None:
        if self._descriptor < 0:
            self._open()
        values = b"".join(
            bytes_field(1, bytes_field(1, tag.encode()) + _float(2, value)) for tag, value in scalars.items()
        )
        self._append(_double(1, time.time()) + number_field(2, step) + bytes_field(5, values))

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _open(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{time.time_ns() // 1000}.{socket.gethostname()}.{os.getpid()}.0"
        self._descriptor = os.open(self._folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        self._append(_double(1, time.time()) + bytes_field(3, b"brain.Event:2"))

    def _append(self, event: bytes) -> None:
        os.write(self._descriptor, framed(event))


def _double(number: int, value: float) -> bytes:
    return varint(number << 3 | FIXED64) + struct.pack("<d", value)


def _float(number: int, value: float) -> bytes:
    return varint(number << 3 | FIXED32) + struct.pack("<f", _in_float32(value))


def _in_float32(value: float) -> float:
    """A double beyond float32's range becomes an infinity, where struct would raise."""
    return value if value != value or abs(value) <= 3.4028234e38 else float("inf") * (1 if value > 0 else -1)
