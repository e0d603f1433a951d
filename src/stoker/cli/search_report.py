"""What came of a search, on a terminal: how it stands, the best trials, the curve of the best so far, what mattered."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stoker.terminal.output import STATE_COLOURS, has_colours, paint, table
from stoker.terminal.plot import bar, plot_steps, terminal_width

if TYPE_CHECKING:
    from stoker.schema.record import SearchStatus, Trial

_LEAST_WHY = 24  # columns it keeps when hyperparameters need the room
_MOST_WHY = 60
_VALUE_WIDTH = 24
_ENDINGS = {
    "completed": "completed",
    "stopped": "stopped by the search",
    "failed": "failed",
    "invalid_hp": "with invalid hyperparameters",
}


def facts(status: "SearchStatus") -> Iterator[tuple[str, str]]:
    """Name and value, a line each."""
    how = status.sampler if status.stopping == "none" else f"{status.sampler} with {status.stopping}"
    aims = ", ".join(f"{objective.goal.value} {objective.metric}" for objective in status.objectives)
    yield "search", f"{how}; {aims}" if aims else how
    yield "trials", _counts(status)
    if not status.state.is_final:
        yield "progress", f"{status.progress:.0%}"
    if status.failure and status.state.value != "FAILED":  # then it is the job's own reason
        yield "search failed", status.failure
    if status.best and status.best[0].objective is not None:
        best = status.best[0]
        yield "best", f"{status.metric}={best.objective:.6g} (trial {best.number})"
    if status.front:
        yield "front", "trials " + ", ".join(map(str, status.front))


def report(status: "SearchStatus", *, width: int | None = None) -> Iterator[str]:
    """The best trials, the curve, and each hyperparameter's share, line by line; nothing where there is nothing."""
    width = terminal_width() if width is None else width
    if status.best:
        yield ""
        yield f"Best trials by {status.metric}:"
        yield trials_table(status.best, objectives=[o.metric for o in status.objectives], width=width)
    if len(status.curve) > 1:
        yield ""
        yield f"Best {status.metric} so far, by trial:"
        yield from _painted(plot_steps(status.curve, width=width))
    if status.importance:
        yield ""
        yield "What mattered (share of the objective's spread):"
        longest = max(map(len, status.importance))
        for name, share in status.importance.items():
            yield f"  {name:<{longest}}  {share:>4.0%}  {bar(share)}".rstrip()


def trials_table(
    trials: "Sequence[Trial]", *, objectives: Sequence[str], width: int | None = None, metric: str | None = None
) -> str:
    """A line a trial. What no trial differs in is left out, and so are hyperparameters that do not fit."""
    shown = [*objectives, *([metric] if metric is not None and metric not in objectives else [])]
    head = ["TRIAL", "STATE", *shown]
    rows = [
        [str(trial.number), trial.state.value, *(number(value_of(trial, name, objectives)) for name in shown)]
        for trial in trials
    ]
    whys = [why(trial) for trial in trials]
    reserved = min(max(map(len, whys), default=0), _LEAST_WHY)
    room = (terminal_width() if width is None else width) - _widths([head, *rows]) - (2 + reserved if reserved else 0)
    points = [flat(trial.hparams) for trial in trials]
    left_out = 0
    for name in varied(points):
        cells = [_short(value_text(point.get(name)), _VALUE_WIDTH) for point in points]
        needed = 2 + max(len(name), *map(len, cells))
        if needed > room:
            left_out += 1
            continue
        room -= needed
        head.append(name)
        rows = [[*row, cell] for row, cell in zip(rows, cells, strict=True)]
    if reserved:
        head.append("WHY")
        rows = [[*row, _short(text, min(room + reserved, _MOST_WHY))] for row, text in zip(rows, whys, strict=True)]
    drawn = table(head, rows, colours=[STATE_COLOURS.get(trial.state.value) for trial in trials])
    if not left_out:
        return drawn
    more = "1 more hyperparameter does" if left_out == 1 else f"{left_out} more hyperparameters do"
    return f"{drawn}\n({more} not fit: --json shows all)"


def value_of(trial: "Trial", name: str, objectives: Sequence[str] = ()) -> float | None:
    """A metric of a trial: of an objective the value it is judged by, of another the newest.

    Metrics of other groups than training are named `validation/loss`; without a group, any will do.
    """
    if len(objectives) == 1 and name == objectives[0]:
        return trial.objective
    found = trial.objectives.get(name, trial.metrics.get(name))
    if found is not None:
        return found
    return next((value for known, value in trial.metrics.items() if known.endswith(f"/{name}")), None)


def why(trial: "Trial") -> str:
    """Why a trial is not, or no longer, on its way; nothing if it came to its own end."""
    if trial.stopped and trial.outcome != "completed":
        return trial.stopped
    if trial.outcome == "invalid_hp":
        return "refused its hyperparameters"
    failed = trial.state.value == "FAILED" and bool(trial.runs)
    return trial.runs[-1].message if failed else ""


def flat(hparams: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested hyperparameters by dotted name."""
    found: dict[str, Any] = {}
    for name, value in hparams.items():
        if isinstance(value, Mapping) and value:
            found.update(flat(value, f"{prefix}{name}."))
        else:
            found[prefix + name] = value
    return found


def varied(points: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names of those that differ between trials; all of them where there is one trial."""
    names = list(dict.fromkeys(name for point in points for name in point))
    if len(points) < 2:
        return names
    return [name for name in names if len({repr(point.get(name, _MISSING)) for point in points}) > 1]


def number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def value_text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return "" if value is None else str(value)


_MISSING = object()


def _counts(status: "SearchStatus") -> str:
    made = sum(status.states.values())
    over = [f"{count} {_ENDINGS.get(outcome, outcome)}" for outcome, count in status.outcomes.items() if count]
    live = made - sum(status.outcomes.values())
    if live > 0:
        states = {state: count for state, count in status.states.items() if state not in _FINAL and count}
        over += [f"{count} {state.lower()}" for state, count in states.items()]
    return f"{made} of at most {status.max_trials}" + (f": {', '.join(over)}" if over else "")


_FINAL = frozenset({"SUCCEEDED", "FAILED", "CANCELLED"})


def _painted(lines: Sequence[str]) -> Iterator[str]:
    if not has_colours(sys.stdout):
        yield from lines
        return
    for line in lines:
        side, bar_, drawn = line.partition(" | ")
        yield f"{side}{bar_}{paint(drawn, 'cyan')}" if drawn else line


def _widths(rows: Sequence[Sequence[str]]) -> int:
    columns = len(rows[0])
    return sum(max(len(row[i]) for row in rows) for i in range(columns)) + 2 * (columns - 1)


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
