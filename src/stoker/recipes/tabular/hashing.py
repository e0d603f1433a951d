"""Strings to buckets: FNV-1a over the UTF-8 bytes, the same on every machine and in every version."""

import numpy as np
import numpy.typing as npt
import polars as pl

_OFFSET, _PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)


def bucket_of(texts: pl.Series, buckets: int) -> npt.NDArray[np.int32]:
    """The bucket of each string, from 0; all strings at once, a byte position at a time."""
    arrow = texts.fill_null("").to_arrow().cast("large_binary")
    offsets = np.frombuffer(arrow.buffers()[1], np.int64)[arrow.offset : arrow.offset + len(arrow) + 1]
    data = np.frombuffer(arrow.buffers()[2] or b"\0", np.uint8)
    begin, length = offsets[:-1], np.diff(offsets)
    hashes = np.full(len(length), _OFFSET, np.uint64)
    rows = np.arange(len(length))
    with np.errstate(over="ignore"):  # the product is meant modulo 2**64
        for place in range(int(length.max(initial=0))):
            rows = rows[length[rows] > place]
            hashes[rows] = (hashes[rows] ^ data[begin[rows] + place]) * _PRIME
    return (hashes % np.uint64(buckets)).astype(np.int32)
