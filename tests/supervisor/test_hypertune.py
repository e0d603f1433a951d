"""The metric file of cloudml-hypertune, which is rewritten at each report."""

import json
import math
from pathlib import Path

import pytest

from stoker.run_dir import RunDir
from stoker.supervisor.tails.hypertune import HypertuneTail


class Reporter:
    """Writes the file as cloudml-hypertune does: whole, from memory, one sorted JSON object a line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: list[str] = []

    def report(self, step: int, value: float, *, time: float, tag: str = "test_loss") -> None:
        line = {"timestamp": time, "trial": "1", tag: str(value), "global_step": str(step), "checkpoint_path": ""}
        self.lines.append(json.dumps(line, sort_keys=True) + "\n")
        self.path.parent.mkdir(exist_ok=True)
        self.path.write_text("".join(self.lines))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return RunDir(tmp_path).metric_file("chief-0")


@pytest.fixture
def tail(tmp_path: Path) -> HypertuneTail:
    return HypertuneTail(RunDir(tmp_path), replica="chief-0")


def read(tail: HypertuneTail) -> list[tuple[int, object]]:
    return [(entry.event["step"], entry.event["values"]) for entry in tail.read()]


def test_no_file_is_no_report(tail: HypertuneTail) -> None:
    assert tail.read() == []


def test_each_report_is_an_event_once_though_the_file_is_rewritten(path: Path, tail: HypertuneTail) -> None:
    reporter = Reporter(path)
    reporter.report(1, 0.5, time=10.0)
    assert read(tail) == [(1, {"test_loss": 0.5})]

    reporter.report(2, 0.25, time=11.0)
    assert read(tail) == [(2, {"test_loss": 0.25})]
    assert read(tail) == []


def test_event_is_a_metric_of_the_hypertune_group_at_the_reports_time(path: Path, tail: HypertuneTail) -> None:
    Reporter(path).report(1, 0.5, time=10.5, tag="my metric")

    (entry,) = tail.read()

    assert entry.event == {
        "time": 10.5,
        "type": "metric",
        "replica": "chief-0",
        "group": "hypertune",
        "step": 1,
        "values": {"my metric": 0.5},
    }


def test_new_reporter_that_starts_from_an_empty_file_loses_nothing_that_was_read(
    path: Path, tail: HypertuneTail
) -> None:
    Reporter(path).report(1, 0.5, time=10.0)
    first = read(tail)
    Reporter(path).report(2, 0.25, time=11.0)
    second = read(tail)

    assert [first, second] == [[(1, {"test_loss": 0.5})], [(2, {"test_loss": 0.25})]]


@pytest.mark.parametrize("cut", [0, 1, 30, 60, 100])
def test_torn_file_is_read_when_it_is_whole(path: Path, tail: HypertuneTail, cut: int) -> None:
    reporter = Reporter(path)
    reporter.report(1, 0.5, time=10.0)
    reporter.report(2, 0.25, time=11.0)
    whole = path.read_text()

    path.write_text(whole[: len(whole) - cut - 1])
    found = read(tail)
    path.write_text(whole)
    found += read(tail)

    assert found == [(1, {"test_loss": 0.5}), (2, {"test_loss": 0.25})]


def test_same_step_at_another_time_is_another_report(path: Path, tail: HypertuneTail) -> None:
    reporter = Reporter(path)
    reporter.report(0, 0.5, time=10.0)
    reporter.report(0, 0.4, time=11.0)

    assert read(tail) == [(0, {"test_loss": 0.5}), (0, {"test_loss": 0.4})]


@pytest.mark.parametrize(("value", "name"), [(math.nan, "NaN"), (math.inf, "Infinity"), (-math.inf, "-Infinity")])
def test_values_that_are_not_finite_go_by_name(path: Path, tail: HypertuneTail, value: float, name: str) -> None:
    Reporter(path).report(1, value, time=10.0)

    assert read(tail) == [(1, {"test_loss": name})]


@pytest.mark.parametrize(
    "content", ["nonsense\n", "[]\n", "{}\n", '{"timestamp": "x"}\n', '{"timestamp": 1, "a": "b"}\n', "\xff\n"]
)
def test_file_that_is_none_of_hypertunes_is_left_alone(path: Path, tail: HypertuneTail, content: str) -> None:
    path.parent.mkdir()
    path.write_text(content, encoding="latin-1")

    assert tail.read() == []


def test_reports_that_are_in_the_spool_are_not_read_again(path: Path, tmp_path: Path, tail: HypertuneTail) -> None:
    reporter = Reporter(path)
    reporter.report(1, 0.5, time=10.123456789)
    spooled = [json.loads(json.dumps(entry.event)) for entry in tail.read()]
    reporter.report(2, 0.4, time=11.0)

    again = HypertuneTail(RunDir(tmp_path), replica="chief-0", reported=spooled)

    assert read(again) == [(2, {"test_loss": 0.4})]
