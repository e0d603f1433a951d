"""Which lines of a block are not INFO, by what they say: stderr alone does not make an error.

Runs over all that a run prints, so it searches the block for a few tell-tale words, most of them among its capital
letters alone (a few percent of the bytes), and looks only at the lines that have one.
"""

from collections.abc import Iterator

_SEVERITY = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_WORDS = {b"ERROR": "ERROR", b"CRITICAL": "CRITICAL", b"FATAL": "CRITICAL", b"WARN": "WARNING", b"DEBUG": "DEBUG"}
_LETTERS = {b"E": "ERROR", b"W": "WARNING", b"F": "CRITICAL"}
_TRACEBACK = b"Traceback (most recent call last):"
_PREFIX_BYTES = 120  # a level further right than this is part of what the line says
_PREFIX_WORDS = 5  # 2026-11-15 20:00:01,123 [pid] name ERROR
_NOT_CAPITAL = bytes(byte for byte in range(256) if not chr(byte).isascii() or not chr(byte).isupper())


def levels(block: bytes, *, in_traceback: bool = False) -> tuple[dict[int, str], bool]:
    """The level of each line that is not INFO, by its offset in the block; and whether a traceback is still open."""
    padded = b"\n" + block  # so that every line follows a newline
    capitals = block.translate(None, _NOT_CAPITAL)
    starts: dict[int, str] = {}
    for start, level in _leveled_lines(padded, capitals):
        if start == 0:  # the line's start is too far away
            continue
        if start in starts:
            level = max(level, starts[start], key=_SEVERITY.index)
        starts[start] = level
    if in_traceback or (b"T" in capitals and _TRACEBACK in block):
        in_traceback = _mark_tracebacks(padded, starts, in_traceback=in_traceback)
    found: dict[int, str] = {}
    number, counted = -1, 0
    for start in sorted(starts):
        number += padded.count(b"\n", counted, start)
        counted = start
        found[number] = starts[start]
    return found, in_traceback


def _leveled_lines(padded: bytes, capitals: bytes) -> Iterator[tuple[int, str]]:
    """Start of a line, and a level found on it."""
    for word, level in _WORDS.items():
        if word in capitals:
            for start, place in _occurrences(padded, word):
                after = place + len(word)
                if _is_a_field(padded[start:place], padded[after : after + 4]):
                    yield start, level
    for letter, level in _LETTERS.items():
        if letter in capitals:
            yield from ((start, level) for start in _lettered_lines(padded, letter))
    yield from _warnings(padded, capitals)
    yield from _errors(padded, capitals)


def _occurrences(padded: bytes, word: bytes) -> Iterator[tuple[int, int]]:
    """Where the word stands first on a line, and near its start: (start of the line, place of the word)."""
    place = padded.find(word)
    while place >= 0:
        start = padded.rfind(b"\n", max(0, place - _PREFIX_BYTES), place) + 1
        if start > 0:
            yield start, place
        after = padded.find(b"\n", place)
        place = padded.find(word, after) if after >= 0 else -1


def _is_a_field(before: bytes, after: bytes) -> bool:
    """Whether a word in capitals stands where logging formats put the level, not in the midst of a sentence."""
    follows = after.removeprefix(b"ING")[:1]
    if follows.isalnum() or follows == b"_":
        return False
    if not before or before[-1:] in b"[(<{|:" or before.endswith((b"- ", b"| ", b": ", b"] ")):
        return True
    if before[-1:] != b" ":
        return False
    stamped = before.lstrip(b"[")[:1].isdigit()
    return follows in (b":", b"]") or (stamped and before.count(b" ") <= _PREFIX_WORDS)


def _lettered_lines(padded: bytes, letter: bytes) -> Iterator[int]:
    for lead in (b"\n", b"\n[", b"]:["):  # glog, absl: E1115 20:00:…; torch: [W1115 20:…, [rank0]:[W1115 20:…
        place = padded.find(lead + letter)
        while place >= 0:
            digits = place + len(lead) + 1
            if padded[digits : digits + 4].isdigit() and padded[digits + 4 : digits + 5] == b" ":
                yield padded.rfind(b"\n", max(0, place - _PREFIX_BYTES), place + 1) + 1
            place = padded.find(lead + letter, digits)
    for start, place in _occurrences(padded, b": " + letter + b" "):  # TensorFlow: 2026-11-15 20:00:00.123456: E …
        if place - start < 30 and padded[start : start + 4].isdigit() and padded[start + 4 : start + 5] == b"-":
            yield start


def _warnings(padded: bytes, capitals: bytes) -> Iterator[tuple[int, str]]:
    if b"W" in capitals:
        for start, place in _occurrences(padded, b"Warning: "):
            before = padded[start:place]
            if not before or (b".py:" in before and before.count(b" ") == 1):  # file.py:12: UserWarning: …
                yield start, "WARNING"
    place = padded.find(b"\nwarning: ")
    while place >= 0:
        yield place + 1, "WARNING"
        place = padded.find(b"\nwarning: ", place + 1)


def _errors(padded: bytes, capitals: bytes) -> Iterator[tuple[int, str]]:
    # ValueError: …, or task.py: error: …; but a mean squared error: 0.25 is a result, not a failure.
    if b"E" in capitals:
        for start, place in _occurrences(padded, b"Error: "):
            before = padded[start:place]
            if before[-1:].isalnum() and b" " not in before:
                yield start, "ERROR"
    for start, place in _occurrences(padded, b": error: "):
        if b" " not in padded[start:place]:
            yield start, "ERROR"


def _mark_tracebacks(padded: bytes, starts: dict[int, str], *, in_traceback: bool) -> bool:
    """Mark tracebacks as errors, from their first line to the exception; True if the last one is still open."""
    start = 1
    while True:
        if not in_traceback:
            place = padded.find(_TRACEBACK, start)
            if place < 0:
                return False
            start = padded.rfind(b"\n", 0, place) + 1
            starts[start] = "ERROR"
            start = _next_line(padded, start)
            in_traceback = True
        while in_traceback and start > 0:
            starts[start] = "ERROR"
            in_traceback = _without_rank(padded[start : start + 40]).startswith((b" ", b"\n"))
            start = _next_line(padded, start)
        if start <= 0:
            return in_traceback


def _next_line(padded: bytes, start: int) -> int:
    """Where the next line starts; 0 after the last."""
    return padded.find(b"\n", start) + 1


def _without_rank(line: bytes) -> bytes:
    """Without the [rank0]: that torch puts before each line of a traceback."""
    if line.startswith(b"[rank"):
        return line.partition(b"]:")[2].removeprefix(b" ")
    return line
