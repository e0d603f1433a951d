"""How far training is, for the person watching: one line rewritten in place on a terminal, plain lines in a log."""

import time
from collections.abc import Callable, Mapping
from typing import TextIO

_REDRAW_S = 0.1
_LINE_S = 1.0  # a log gets at most one training line a second
_SHOWN = 6  # metrics in a line


class Progress:
    """Draws on `stream`. Rates are of this process's own batches, so a resumed run does not look fast."""

    def __init__(self, stream: TextIO, *, first: int, total: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._total = total
        self._clock = clock
        self._terminal = stream.isatty()
        self._metrics = ""
        self._drawn = -_LINE_S
        self._first = first
        self._began = clock()
        self._width = 0

    def batch(self, step: int) -> None:
        """Called after every batch."""
        if self._terminal and self._clock() - self._drawn >= _REDRAW_S:
            self._draw(step)

    def training(self, step: int, metrics: Mapping[str, float]) -> None:
        self._metrics = _in_words(metrics)
        if self._terminal:
            self._draw(step)
        elif self._clock() - self._drawn >= _LINE_S or step >= self._total:
            self._drawn = self._clock()
            self._stream.write(f"{self._where(step)}\n")
            self._stream.flush()

    def validation(self, step: int, metrics: Mapping[str, float]) -> None:
        self.say(f"batch {step}/{self._total}  validation  {_in_words(metrics)}")

    def say(self, line: str) -> None:
        """A line that stays."""
        self._clear()
        self._stream.write(f"{line}\n")
        self._stream.flush()

    def close(self) -> None:
        if self._width:
            self._stream.write("\n")
            self._stream.flush()
            self._width = 0

    def _draw(self, step: int) -> None:
        line = self._where(step)
        self._clear()
        self._stream.write(line)
        self._stream.flush()
        self._width = len(line)
        self._drawn = self._clock()

    def _clear(self) -> None:
        if self._width:
            self._stream.write("\r" + " " * self._width + "\r")
            self._width = 0

    def _where(self, step: int) -> str:
        elapsed = self._clock() - self._began
        done = step - self._first
        speed = f"{done / elapsed:.3g} batches/s" if done and elapsed > 0 else ""
        left = f"{_duration((self._total - step) * elapsed / done)} left" if done and step < self._total else ""
        parts = (f"batch {step}/{self._total}", self._metrics, speed, left)
        return "  ".join(part for part in parts if part)


def _in_words(metrics: Mapping[str, float]) -> str:
    shown = [f"{name} {value:.5g}" for name, value in metrics.items() if name not in ("batches", "epochs")]
    return "  ".join(shown[:_SHOWN])


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
