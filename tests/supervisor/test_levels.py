"""Levels come from what a line says."""

import pytest

from stoker.supervisor.levels import levels


def level(line: str) -> str:
    found, _ = levels(line.encode())
    return found.get(0, "INFO")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("ERROR:root:no such file", "ERROR"),
        ("WARNING:absl:slow", "WARNING"),
        ("WARN something", "WARNING"),
        ("DEBUG: x", "DEBUG"),
        ("CRITICAL:root:gone", "CRITICAL"),
        ("[ERROR] x", "ERROR"),
        ("2026-11-15 20:00:01,123 - my.module - ERROR - boo", "ERROR"),
        ("2026-11-15 20:00:01,123 my.module WARNING boo", "WARNING"),
        ("2026-11-15 20:00:01 | ERROR    | loguru:main:3 - boo", "ERROR"),
        ("[12:00:01] ERROR boo", "ERROR"),
        ("my.module ERROR: boo", "ERROR"),
        ("E1115 20:00:00.123456 1234 file.cc:12] boo", "ERROR"),
        ("W1115 20:00:00.123456 1234 file.cc:12] boo", "WARNING"),
        ("[W1115 20:00:00.123456789 socket.cpp:752] [c10d] boo", "WARNING"),
        ("[rank0]:[E1115 20:00:00.123456789 socket.cpp:752] boo", "ERROR"),
        ("2026-11-15 20:00:00.123456: E tensorflow/core/x.cc:1] boo", "ERROR"),
        ("2026-11-15 20:00:00.123456: W tensorflow/core/x.cc:1] boo", "WARNING"),
        ("/a/b.py:12: UserWarning: deprecated", "WARNING"),
        ("task.py: error: unrecognized arguments: --x", "ERROR"),
        ("ValueError: bad", "ERROR"),
    ],
)
def test_level_is_found_where_logging_formats_put_it(line: str, expected: str) -> None:
    assert level(line) == expected


@pytest.mark.parametrize(
    "line",
    [
        "hello",
        "",
        "Epoch 3",
        "Number of ERROR rows: 5",
        "ERRORS: 0",
        "DEBUGGING the model",
        "Training Error: 0.25",
        "mean squared error: 0.25",
        "Test set: Error: 0.1",
        "I1115 20:00:00.123456 1234 file.cc:12] fine",
        "2026-11-15 20:00:00.123456: I tensorflow/core/x.cc:1] fine",
        "x" * 500 + " ERROR: too far right",
        "E11 no stamp",
    ],
)
def test_line_is_info_when_it_only_mentions_such_words(line: str) -> None:
    assert level(line) == "INFO"


def test_levels_are_given_by_the_lines_offset_in_the_block() -> None:
    found, _ = levels(b"one\nERROR two\nthree\n\nWARNING five\nWARNING six")

    assert found == {1: "ERROR", 4: "WARNING", 5: "WARNING"}


def test_whole_traceback_is_an_error_also_when_it_spans_blocks() -> None:
    first, is_open = levels(b'before\nTraceback (most recent call last):\n  File "x.py", line 1')
    second, is_open_after = levels(b'    raise KeyError\n\nKeyError: "x"\nafter', in_traceback=is_open)

    assert first == {1: "ERROR", 2: "ERROR"}
    assert is_open
    assert second == {0: "ERROR", 1: "ERROR", 2: "ERROR"}
    assert not is_open_after


def test_traceback_of_a_rank_is_an_error() -> None:
    block = b"[rank1]: Traceback (most recent call last):\n[rank1]:   File x\n[rank1]: KeyError: 1\nfine"

    assert levels(block) == ({0: "ERROR", 1: "ERROR", 2: "ERROR"}, False)


def test_the_more_severe_level_wins_on_a_line() -> None:
    assert level("WARNING: CRITICAL: both") == "CRITICAL"


def test_block_of_bytes_that_are_not_text_has_no_levels() -> None:
    assert levels(bytes(range(256)) * 10)[0] == {}
