"""`stoker jobs metrics`: what a job reported, as a small plot, as CSV or as JSON."""

import csv
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from stoker.terminal.output import print_json, say, sparkline, table
from stoker.terminal.parser import Arguments

if TYPE_CHECKING:
    from stoker.schema.record import MetricPoint


def metrics(arguments: Arguments) -> None:
    from stoker.client.client import connect

    points = connect().metrics(arguments.name)
    if arguments.json:
        print_json(points)
    elif arguments.csv:
        _print_csv(points)
    elif points:
        print(overview(points))
    else:
        say(f"Job [{arguments.name}] has reported no metrics.")


def overview(points: "Sequence[MetricPoint]") -> str:
    """One line a metric: its course, its newest value, its range."""
    series: dict[tuple[int, str, str], list[tuple[int, float]]] = {}
    for point in points:
        for name, value in point.values.items():
            series.setdefault((point.trial, point.group, name), []).append((point.step, value))
    several = len({trial for trial, _, _ in series}) > 1
    rows = []
    for (trial, group, name), course in series.items():
        values = [value for _, value in course]
        shown = name if group == "training" else f"{group}/{name}"
        shown = f"trial {trial}: {shown}" if several else shown
        numbers = [f"{number:.6g}" for number in (values[-1], min(values), max(values))]
        rows.append([shown, *numbers, str(course[-1][0]), sparkline(values)])
    return table(["METRIC", "NEWEST", "LOWEST", "HIGHEST", "STEP", "COURSE"], rows)


def _print_csv(points: "Sequence[MetricPoint]") -> None:
    names = sorted({name for point in points for name in point.values})
    writer = csv.writer(sys.stdout)
    writer.writerow(["trial", "run", "group", "step", "time", *names])
    for point in points:
        values = [point.values.get(name, "") for name in names]
        writer.writerow([point.trial, point.run, point.group, point.step, point.time, *values])
