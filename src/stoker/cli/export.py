"""`stoker experiment export`: every trial of a search as a table, or as a study that Optuna reads."""

import csv
import json
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stoker.cli.search_report import flat, value_of, why
from stoker.errors import UsageError

if TYPE_CHECKING:
    from stoker.schema.record import Trial
    from stoker.schema.search import SearchSpec

_FIRST = ("trial", "id", "state", "outcome", "why")
_LAST = ("seed", "bracket", "parent", "runs", "started", "ended", "checkpoint")


def export_trials(job: str, search: "SearchSpec", trials: "Sequence[Trial]", *, format: str, output: str) -> int:
    """Write them, and say how many were written. UsageError if a library is missing or the file cannot be written."""
    if output == "-" and format != "csv":
        raise UsageError(f"{format} is not text: name a file by -o.")
    try:
        match format:
            case "csv":
                _write_csv(search, trials, output)
            case "parquet":
                _write_parquet(search, trials, Path(output))
            case _:
                return _write_study(job, search, trials, Path(output))
    except OSError as error:
        raise UsageError(f"Cannot write {output}: {error.strerror or error}.") from error
    return len(trials)


def rows_of(search: "SearchSpec", trials: "Sequence[Trial]") -> tuple[list[str], list[list[Any]]]:
    """A head and a row a trial. Hyperparameters are named `hparams.…`, metrics `metrics.…`, objectives as they are."""
    objectives = [objective.metric for objective in search.objectives]
    points = [flat(trial.hparams) for trial in trials]
    names = list(dict.fromkeys(name for point in points for name in point))
    metrics = sorted({name for trial in trials for name in trial.metrics})
    head = [
        *_FIRST,
        *objectives,
        *(f"hparams.{name}" for name in names),
        *(f"metrics.{name}" for name in metrics),
        *_LAST,
    ]
    rows = [
        [
            *(trial.number, trial.id, trial.state.value, trial.outcome, trial.stopped or why(trial) or None),
            *(value_of(trial, name, objectives) for name in objectives),
            *(point.get(name) for name in names),
            *(trial.metrics.get(name) for name in metrics),
            *_last(trial),
        ]
        for trial, point in zip(trials, points, strict=True)
    ]
    return head, rows


def _last(trial: "Trial") -> Iterator[Any]:
    yield from (trial.seed, trial.bracket, trial.parent, len(trial.runs))
    yield next((run.started for run in trial.runs if run.started is not None), None)
    yield trial.runs[-1].ended if trial.runs else None
    yield trial.latest_checkpoint


def _write_csv(search: "SearchSpec", trials: "Sequence[Trial]", output: str) -> None:
    head, rows = rows_of(search, trials)
    plain = [head, *([_cell(value) for value in row] for row in rows)]
    if output == "-":
        csv.writer(sys.stdout).writerows(plain)
        return
    with Path(output).open("w", newline="") as file:
        csv.writer(file).writerows(plain)


def _write_parquet(search: "SearchSpec", trials: "Sequence[Trial]", file: Path) -> None:
    try:
        pyarrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError as error:
        raise UsageError(
            "Parquet needs pyarrow. Install it with `pip install pyarrow`, or use --format csv."
        ) from error
    head, rows = rows_of(search, trials)
    columns = {name: _uniform([row[at] for row in rows]) for at, name in enumerate(head)}
    parquet.write_table(pyarrow.table(columns), file)


def _write_study(job: str, search: "SearchSpec", trials: "Sequence[Trial]", file: Path) -> int:
    try:
        from stoker.search.study import write_study
    except ImportError as error:
        raise UsageError(
            f"An Optuna study needs {error.name or 'optuna'}. Install it with `pip install 'stoker[search]'`."
        ) from error
    if file.exists():
        raise UsageError(f"{file} is there already; a study is written to a new file. Name another by -o.")
    return write_study(file, name=job, search=search, trials=trials)


def _cell(value: Any) -> Any:
    """Lists and maps as JSON; the rest as the csv module writes it."""
    return json.dumps(value) if isinstance(value, list | dict) else value


def _uniform(values: list[Any]) -> list[Any]:
    """One type a column, as Parquet has it: numbers as numbers, mixtures as JSON text."""
    kinds = {type(value) for value in values if value is not None}
    if len(kinds) <= 1 and not kinds & {list, dict}:
        return values
    if kinds <= {int, float}:
        return [None if value is None else float(value) for value in values]
    return [None if value is None else value if isinstance(value, str) else json.dumps(value) for value in values]
