"""The two checksums that object stores speak: CRC32C and MD5, both as base64."""

import base64
import binascii
import functools
import hashlib
import importlib
from collections.abc import Callable
from typing import BinaryIO

CHUNK_BYTES = 1 << 20


@functools.cache
def _extend() -> Callable[[int, bytes], int] | None:
    """The compiled one of the `google-crc32c` wheel, where it is installed."""
    try:
        found: Callable[[int, bytes], int] = importlib.import_module("google_crc32c").extend
    except ImportError:
        return None
    return found


def is_crc32c_fast() -> bool:
    """Whether CRC32C costs next to nothing; without `google-crc32c` it takes two minutes for a gigabyte."""
    return _extend() is not None


def crc32c(data: bytes, value: int = 0) -> int:
    """CRC32C of the data, going on from the value for what came before."""
    extend = _extend()
    return extend(value, data) if extend else _crc32c_by_hand(data, value)


def crc32c_text(value: int) -> str:
    return base64.b64encode(value.to_bytes(4, "big")).decode()


def md5_text(digest: bytes) -> str:
    return base64.b64encode(digest).decode()


def md5_from_hex(text: str) -> str:
    """The base64 of a hexadecimal MD5 (S3 writes it so), or nothing if it is none."""
    try:
        return md5_text(binascii.unhexlify(text)) if len(text) == 32 else ""
    except binascii.Error:
        return ""


def crc32c_of(file: BinaryIO) -> str:
    value = 0
    while data := file.read(CHUNK_BYTES):
        value = crc32c(data, value)
    return crc32c_text(value)


def md5_of(file: BinaryIO) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    while data := file.read(CHUNK_BYTES):
        digest.update(data)
    return md5_text(digest.digest())


@functools.cache
def _table() -> tuple[int, ...]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return tuple(table)


def _crc32c_by_hand(data: bytes, value: int) -> int:
    table = _table()
    value ^= 0xFFFFFFFF
    for byte in data:
        value = table[(value ^ byte) & 0xFF] ^ (value >> 8)
    return value ^ 0xFFFFFFFF
