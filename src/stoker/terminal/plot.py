"""A curve on a terminal, in plain characters and as wide as the terminal is."""

import shutil
from collections.abc import Sequence

HEIGHT = 8
MOST_COLUMNS = 100
_SHORTEST = 20


def terminal_width() -> int:
    """Columns of the terminal, or of the variable COLUMNS; 80 where there is neither."""
    return shutil.get_terminal_size().columns


def plot_steps(points: Sequence[tuple[float, float]], *, width: int, height: int = HEIGHT) -> list[str]:
    """The course of a value that stays as it is until it changes, with its scale; x must rise.

    Where the values span three orders of magnitude or more, and are all above zero, the scale is a logarithm.
    """
    if not points:
        return []
    values = [value for _, value in points]
    low, high = min(values), max(values)
    labels = [f"{high:.4g}", f"{low:.4g}"]
    margin = max(map(len, labels))
    columns = max(min(width, MOST_COLUMNS) - margin - 3, _SHORTEST)
    rows = [_row(value, low, high, height) for value in _sampled(points, columns)]
    lines = ["".join(_mark(rows, column, row) for column in range(columns)) for row in range(height)]
    sides = {height - 1: labels[1], **({0: labels[0]} if high > low else {})}
    drawn = [f"{sides.get(row, ''):>{margin}} | {line}".rstrip() for row, line in enumerate(lines)]
    first, last = f"{points[0][0]:g}", f"{points[-1][0]:g}"
    gap = max(columns - len(first) - len(last), 1)
    return [*drawn, f"{'':>{margin}} +{'-' * (columns + 1)}", f"{'':>{margin}}   {first}{' ' * gap}{last}"]


def bar(share: float, *, width: int = 24) -> str:
    return "#" * max(round(share * width), 1 if share > 0 else 0)


def _sampled(points: Sequence[tuple[float, float]], columns: int) -> list[float]:
    """The value in force at each column, from the first x to the last."""
    start, end = points[0][0], points[-1][0]
    found: list[float] = []
    at = 0
    for column in range(columns):
        x = start + (end - start) * column / max(columns - 1, 1)
        while at + 1 < len(points) and points[at + 1][0] <= x + 1e-9:
            at += 1
        found.append(points[at][1])
    return found


def _row(value: float, low: float, high: float, height: int) -> int:
    """From the top, which is 0."""
    if high <= low:
        return height - 1
    if low > 0 and high / low >= 1000:
        import math

        share = math.log(value / low) / math.log(high / low)
    else:
        share = (value - low) / (high - low)
    return round((1 - share) * (height - 1))


def _mark(rows: Sequence[int], column: int, row: int) -> str:
    here = rows[column]
    if row == here:
        return "*"
    before = rows[column - 1] if column else here
    return "|" if min(before, here) < row < max(before, here) else " "
