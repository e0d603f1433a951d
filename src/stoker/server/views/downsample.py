"""Which points of a line to draw: the first, last, lowest and highest of every bucket, so that no spike is lost.

Plain lists and arrays: `min`, `max` and `index` of a slice run in C, and numpy is no dependency of the server.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

KEPT = 4  # of a bucket


def downsample(xs: Sequence[float], ys: Sequence[float], *, points: int) -> list[int]:
    """Positions of at most `points` (at least 4) of them, in order; `xs` must rise.

    Buckets are equally wide in x, as pixels are. Values that are not finite are neither lowest nor highest.
    """
    if len(xs) <= points:
        return list(range(len(xs)))
    kept: list[int] = []
    for begin, end in _buckets(xs, count=max(points // KEPT, 1)):
        kept += extremes(ys, begin, end)
    return kept


def extremes(ys: Sequence[float], begin: int, end: int) -> list[int]:
    """Positions of the first, lowest, highest and last of `ys[begin:end]`, in order, each once."""
    if end - begin <= 2:
        return list(range(begin, end))
    part = ys[begin:end]
    if not math.isfinite(sum(part)):
        finite = [at for at in range(begin, end) if math.isfinite(ys[at])]
        inner = [min(finite, key=ys.__getitem__), max(finite, key=ys.__getitem__)] if finite else []
    else:
        inner = [begin + part.index(min(part)), begin + part.index(max(part))]
    return sorted({begin, *inner, end - 1})


def _buckets(xs: Sequence[float], *, count: int) -> list[tuple[int, int]]:
    """Where each bucket that is not empty begins and ends."""
    low, width = xs[0], (xs[-1] - xs[0]) / count
    if not (math.isfinite(width) and width > 0):
        return [(0, len(xs))]
    found, begin = [], 0
    for number in range(1, count):
        end = bisect_left(xs, low + number * width, begin)
        if end > begin:
            found.append((begin, end))
            begin = end
    if begin < len(xs):
        found.append((begin, len(xs)))
    return found


def within(xs: Sequence[float], start: float | None, end: float | None) -> tuple[int, int]:
    """The part of rising `xs` from `start` to `end`, both among them."""
    first = 0 if start is None else bisect_left(xs, start)
    last = len(xs) if end is None else bisect_right(xs, end)
    return first, max(first, last)
