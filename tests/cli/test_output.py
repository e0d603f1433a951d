"""How things look: tables, times, colours, sparklines."""

import io

import pytest

from stoker.terminal.output import ago, duration, has_colours, paint, sparkline, table


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0.0s"), (0.44, "0.4s"), (9.94, "9.9s"), (12.3, "12s"), (59.6, "1m 00s"), (200, "3m 20s"), (7500, "2h 05m")],
)
def test_durations_have_two_units_at_most(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_long_durations_count_days() -> None:
    assert duration(3 * 86400 + 4 * 3600 + 59) == "3d 4h"


@pytest.mark.parametrize(("then", "words"), [(999, "1s ago"), (940, "1m ago"), (1001, "0s ago")])
def test_ago(then: float, words: str) -> None:
    assert ago(then, now=1000) == words


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    assert table(["A", "B"], [["long", "x"], ["s", ""]]) == "A     B\nlong  x\ns"


def test_colours_are_for_terminals_and_only_if_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)

    assert has_colours(Terminal())
    assert paint("x", "red", stream=Terminal()) == "\033[31mx\033[0m"
    assert paint("x", "red", stream=io.StringIO()) == "x"

    monkeypatch.setenv("NO_COLOR", "1")

    assert not has_colours(Terminal())


def test_sparkline_shows_the_course_and_leaves_gaps() -> None:
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7]) == "▁▂▃▄▅▆▇█"
    assert sparkline([1, float("nan"), 2]) == "▁ █"
    assert sparkline([5, 5]) == "▁▁"
    assert sparkline([float("inf")]) == ""
    assert len(sparkline(list(range(1000)))) == 40
