"""No spike is lost: the first, last, lowest and highest of every bucket are kept, for any line."""

import math
import random

import pytest

from stoker.server.views.downsample import downsample, extremes, within


def a_line(seed: int) -> tuple[list[float], list[float]]:
    chance = random.Random(seed)
    xs, x = [], chance.uniform(-5, 5)
    for _ in range(chance.randint(1, 3000)):
        x += chance.choice([0.0, 1.0, chance.expovariate(0.1)])
        xs.append(x)
    odd = [math.nan, math.inf, -math.inf]
    return xs, [chance.choice(odd) if chance.random() < 0.05 else chance.gauss(0, 1) ** 3 for _ in xs]


@pytest.mark.parametrize("seed", range(40))
def test_extremes_of_every_bucket_survive(seed: int) -> None:
    xs, ys = a_line(seed)
    points = random.Random(seed).choice([4, 50, 400])

    kept = downsample(xs, ys, points=points)

    assert kept == sorted(set(kept))
    assert len(kept) <= max(points, 4)
    assert {0, len(xs) - 1} <= set(kept)
    count = points // 4
    width = (xs[-1] - xs[0]) / count
    bucket = [min(int((x - xs[0]) / width), count - 1) if width else 0 for x in xs]
    if len(xs) > points:
        for number in set(bucket):
            mine = [at for at, of in enumerate(bucket) if of == number and math.isfinite(ys[at])]
            if mine and width:
                near = [at for at in kept if abs(bucket[at] - number) <= 1 and math.isfinite(ys[at])]
                assert min(ys[at] for at in mine) >= min(ys[at] for at in near)
                assert max(ys[at] for at in mine) <= max(ys[at] for at in near)


def test_bucket_keeps_first_lowest_highest_and_last() -> None:
    assert extremes([5, 1, 3, 9, 4, 4], 0, 6) == [0, 1, 3, 5]
    assert extremes([5, math.nan, 3, math.inf, 4], 0, 5) == [0, 2, 4]


def test_short_line_is_whole() -> None:
    assert downsample([1, 2, 3], [math.nan, 1, 2], points=4) == [0, 1, 2]


def test_range_has_both_its_ends() -> None:
    assert within([1, 2, 2, 3], 2, 2) == (1, 3)
    assert within([1, 2, 3], None, None) == (0, 3)
    assert within([1, 2, 3], 9, 2) == (3, 3)
