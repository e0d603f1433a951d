"""How things look: tables, times, colours, sparklines."""

import csv
import io

import pytest

from stoker.terminal.output import ago, csv_lines, duration, has_colours, paint, printable, sparkline, table


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


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\ttext\n", "plain\ttext\n"),
        ("\x1b[31mred\x1b[0m", "\x1b[31mred\x1b[0m"),
        ("\x1b]52;c;aGk=\x07", "␛]52;c;aGk=␇"),
        ("\x1b[2J\x1b[1;1Hfake", "␛[2J␛[1;1Hfake"),
        ("a\rb", "a␍b"),
        ("\x9b2J", "\\x9b2J"),
        ("\x7f", "␡"),
        ("naïve 日本 🚂", "naïve 日本 🚂"),
    ],
)
def test_control_characters_of_jobs_are_shown_not_obeyed(text: str, shown: str) -> None:
    assert printable(text) == shown


@pytest.mark.parametrize("cell", ["=cmd|calc!A0", "@SUM(A1)", "+cmd", "-cmd"])
def test_formula_is_quoted_in_a_csv(cell: str) -> None:
    assert csv_lines(["x"], [[cell]]) == f"x\n'{cell}"


@pytest.mark.parametrize("cell", ["-0.5", "+3e-4", "-inf", "1,000", "text"])
def test_number_is_not_quoted_in_a_csv(cell: str) -> None:
    assert next(csv.reader([csv_lines(["x"], [[cell]]).splitlines()[1]])) == [cell]
