"""How things look on a terminal: colours, tables, times. Results go to stdout, talk to stderr."""

import io
import json
import os
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from pydantic import BaseModel

# Everything but tab, newline, and the escape that begins a color (ESC [ numbers m).
_CONTROL = re.compile(r"\x1b(?!\[[0-9;]*m)|[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f]")
_NUMBER = re.compile(r"[+-]?(\d[\d.,]*)([eE][+-]?\d+)?%?|[+-]?inf(inity)?|-?nan", re.IGNORECASE)
_CODES = {"red": "31", "green": "32", "yellow": "33", "blue": "34", "cyan": "36", "grey": "90", "bold": "1"}

STATE_COLOURS = {
    "SUCCEEDED": "green",
    "FAILED": "red",
    "CANCELLED": "yellow",
    "CANCELLING": "yellow",
    "RUNNING": "cyan",
    "PREPARING": "blue",
    "PAUSED": "yellow",
    "PAUSING": "yellow",
}
LEVEL_COLOURS = {"DEBUG": "grey", "WARNING": "yellow", "ERROR": "red", "CRITICAL": "red"}


def has_colours(stream: TextIO) -> bool:
    """On terminals, unless the user said no (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, colour: str | None, *, stream: TextIO | None = None) -> str:
    if colour is None or not has_colours(stream or sys.stdout):
        return text
    return f"\033[{_CODES[colour]}m{text}\033[0m"


def printable(text: str) -> str:
    """The text with control characters made visible, except tabs, newlines and SGR colors.

    A job's output, metric names and failures are untrusted: escapes could set the clipboard or forge what is shown.
    """
    return _CONTROL.sub(lambda match: _visible(match[0]), text)


def _visible(control: str) -> str:
    code = ord(control)
    return chr(0x2400 + code) if code < 0x20 else "\u2421" if code == 0x7F else f"\\x{code:02x}"


class SafeTerminal:
    """A terminal stream that only ever gets printable text."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(printable(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def say(text: str) -> None:
    """Talk: to the person, not to the script that reads stdout."""
    print(printable(text) if sys.stderr.isatty() else text, file=sys.stderr, flush=True)


def show_bar(name: str, done: float, total: float, *, words: str) -> None:
    """A bar of progress that is written over itself, and `words` behind it; on a terminal only."""
    if sys.stderr.isatty():
        share = min(done / total, 1.0) if total else 1.0
        line = f"{name[-30:]:<16} {'#' * round(30 * share):<30} {words}"
        print(f"\r\033[K{line}" + "\n" * (done >= total), end="", file=sys.stderr, flush=True)


def print_json(value: "BaseModel | Sequence[BaseModel]") -> None:
    """One JSON document on stdout; NaN and the infinities as strings, so that any reader takes it."""
    if isinstance(value, Sequence):
        plain: object = [item.model_dump(mode="json") for item in value]
    else:
        plain = value.model_dump(mode="json")
    print(json.dumps(plain, indent=2))


def csv_lines(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    import csv

    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([head, *([_no_formula(cell) for cell in row] for row in rows)])
    return text.getvalue().rstrip("\n")


def _no_formula(cell: str) -> str:
    """Spreadsheets run cells that begin like this; numbers stay numbers."""
    if cell[:1] in ("=", "+", "-", "@", "\t", "\r") and not _NUMBER.fullmatch(cell):
        return f"'{cell}"
    return cell


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, colours: Sequence[str | None] = ()) -> str:
    """Columns as wide as their widest cell; `colours` gives each row's, for its second cell (the state)."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    lines = [_line(head, widths, colour=None)]
    for row, colour in zip(rows, colours or [None] * len(rows), strict=True):
        lines.append(_line(row, widths, colour=colour))
    return "\n".join(lines)


def _line(cells: Sequence[str], widths: Sequence[int], *, colour: str | None) -> str:
    padded = [f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)]
    padded[-1] = cells[-1]
    if colour is not None and len(padded) > 1:
        padded[1] = paint(padded[1], colour)
    return "  ".join(padded).rstrip()


def duration(seconds: float) -> str:
    """Two units at most: 0.4s, 12s, 3m 20s, 2h 05m, 3d 4h."""
    if seconds < 9.95:
        return f"{max(seconds, 0):.1f}s"
    whole = round(seconds)
    minutes, s = divmod(whole, 60)
    hours, m = divmod(minutes, 60)
    days, h = divmod(hours, 24)
    if days:
        return f"{days}d {h}h"
    if hours:
        return f"{h}h {m:02}m"
    return f"{m}m {s:02}s" if minutes else f"{s}s"


def ago(then: float, *, now: float) -> str:
    """When something was, as one says it: 12s ago, 3m ago, 2h ago, 5d ago."""
    seconds = max(now - then, 0)
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{int(seconds // size)}{unit} ago"
    return f"{int(seconds)}s ago"


def sparkline(values: Sequence[float], *, width: int = 40) -> str:
    """The course of a series in one line of blocks; values that are no numbers are gaps."""
    if len(values) > width:
        values = [values[i * len(values) // width] for i in range(width - 1)] + [values[-1]]
    finite = [value for value in values if abs(value) < float("inf")]
    if not finite:
        return ""
    low, high = min(finite), max(finite)
    blocks = "▁▂▃▄▅▆▇█"
    scale = (len(blocks) - 1) / (high - low) if high > low else 0.0
    return "".join(blocks[round((v - low) * scale)] if abs(v) < float("inf") else " " for v in values)
