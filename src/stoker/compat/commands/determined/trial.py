"""`stoker trial`: one trial, what it is, its log, and its checkpoint."""

import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from stoker.cli import logs
from stoker.cli.experiment_lookup import find_trial, trial_of
from stoker.cli.search_report import flat, value_text, why
from stoker.compat.commands.determined import checkpoint
from stoker.errors import NotFoundError, UsageError
from stoker.terminal.output import STATE_COLOURS, duration, paint, print_json, say, table
from stoker.terminal.parser import Arguments, Parser

if TYPE_CHECKING:
    from stoker.client.client import Client
    from stoker.schema.record import CheckpointRecord, LogBlock, MetricPoint, Trial
    from stoker.schema.search import SearchSpec

_POLL_S = 0.25


def build(parser: Parser) -> None:
    command = parser.add_command(
        "describe", describe, help="say all about a trial", example="stoker trial describe mnist_1/3 --metrics"
    )
    _add_trial(command)
    command.add_argument(
        "--metrics", "--metrics-summary", action="store_true", help="the course of all that it reported, too"
    )
    command.add_argument("--json", action="store_true", help="print JSON")

    command = parser.add_command(
        "logs", show_logs, help="print a trial's log", example="stoker trial logs mnist_1/3 --follow"
    )
    _add_trial(command)
    command.add_argument("--follow", "-f", action="store_true", help="go on until the trial has ended")
    logs.add_log_flags(command)

    command = parser.add_command(
        "download",
        download,
        help="copy a trial's checkpoint",
        example="stoker trial download mnist_1/3 --best -o checkpoint",
    )
    _add_trial(command)
    which = command.add_mutually_exclusive_group()
    which.add_argument("--latest", action="store_true", help="the newest (that is the default)")
    which.add_argument("--best", action="store_true", help="the one saved where the search's metric was best")
    which.add_argument("--uuid", metavar="UUID", help="this one of its checkpoints")
    checkpoint.add_sorting(command)
    command.add_argument("-q", "--quiet", action="store_true", help="print the folder alone (that is so anyway)")
    checkpoint.add_output(command)

    command = parser.add_command(
        "kill",
        kill,
        help="end a trial that is all there is of its job; refused for one of many",
        example="stoker trial kill mnist_1/1",
    )
    _add_trial(command)


def describe(arguments: Arguments) -> None:
    from stoker.client.client import connect

    client = connect()
    job, trial = find_trial(client, arguments.trial)
    if arguments.json:
        print_json(trial)
        return
    search = client.job(job).spec.search
    print("\n".join(page(job, trial, metric=search.metric if search is not None else None, now=time.time())))
    if arguments.metrics:
        from stoker.cli.metrics import overview

        points = _points(client, job, trial)
        print(f"\n{overview(points)}" if points else "\nIt has reported no metrics.")


def page(job: str, trial: "Trial", *, metric: str | None, now: float) -> Iterator[str]:
    """All that is known of a trial, line by line."""
    for name, value in _facts(job, trial, metric=metric, now=now):
        yield f"{name + ':':<16}{value}"
    points = flat(trial.hparams)
    if points:
        yield "hyperparameters:"
        longest = max(map(len, points))
        yield from (f"  {name:<{longest}}  {value_text(value)}" for name, value in points.items())
    if len(trial.runs) > 1:
        yield ""
        rows = [[str(run.attempt), run.state.value, run.message] for run in trial.runs]
        yield table(["RUN", "STATE", "WHY"], rows)


def show_logs(arguments: Arguments) -> int:
    from stoker.client.client import connect

    client = connect()
    job, trial = find_trial(client, arguments.trial)
    return print_logs(client, arguments, job, trial.number)


def print_logs(client: "Client", arguments: Arguments, job: str, number: int) -> int:
    """The lines of one trial, as the log flags choose them."""
    chosen = logs.read_filters(arguments)
    if arguments.follow:
        return follow_trial(client, job, number, filters=chosen, as_json=arguments.json)
    writer = _writer(client, job, as_json=arguments.json)
    blocks, _ = _sweep(client, job, number, chosen, after=0)
    for block in blocks:
        writer.write(block)
    return 0


def follow_trial(
    client: "Client", job: str, number: int, *, filters: logs.Filters | None = None, as_json: bool = False
) -> int:
    """Print a trial's lines until it has ended; 0 if it went well. Ctrl-C ends the following, not the trial."""
    try:
        trial = _followed(client, job, number, filters or {}, as_json=as_json)
    except KeyboardInterrupt:
        sys.stdout.flush()
        say(f"\nStopped following. Experiment [{job}] goes on: see `stoker experiment describe {job}`.")
        return 130
    reason = f": {text}" if (text := why(trial)) else ""
    say(f"Trial {number} of [{job}] {paint(trial.state.value, STATE_COLOURS.get(trial.state.value))}{reason}.")
    return 0 if trial.state.value == "SUCCEEDED" else 1


def download(arguments: Arguments) -> None:
    from stoker.client.client import connect

    client = connect()
    job, trial = find_trial(client, arguments.trial)
    if arguments.output:
        checkpoint.check_is_free(Path(arguments.output))
    if arguments.uuid:
        path: str | None = _by_uuid(client, job, trial, arguments.uuid)
    elif arguments.sort_by:
        path = checkpoint.best_by(client, job, arguments, trial=trial.number)[0].path
    else:
        path = _best_checkpoint(client, job, trial) if arguments.best else trial.latest_checkpoint
    if path is None:
        raise NotFoundError(f"Trial {trial.number} of {job} has saved no checkpoint (ctx.save_checkpoint does).")
    checkpoint.fetch(path, arguments.uuid or path, arguments.output)


def kill(arguments: Arguments) -> None:
    from stoker.client.client import connect

    client = connect()
    job, trial = find_trial(client, arguments.trial)
    if client.trials(job, limit=1).total > 1:
        raise UsageError(
            f"Trial {trial.number} is one of many of {job}, and the search would miss it."
            f" End them all with `stoker experiment kill {job}`."
        )
    print(client.kill(job).id)


def _by_uuid(client: "Client", job: str, trial: "Trial", uuid: str) -> str:
    for record in client.checkpoints(job):
        if record.trial == trial.number and uuid in (checkpoint.uuid_of(record), record.path):
            return record.path
    raise NotFoundError(
        f"Trial {trial.number} of {job} has no checkpoint {uuid!r}. See `stoker checkpoint list {job}`."
    )


def pick_best(
    search: "SearchSpec", checkpoints: "Sequence[CheckpointRecord]", points: "Sequence[MetricPoint]"
) -> str | None:
    """The checkpoint at whose step the metric was best; None where none was saved at a step that has a value."""
    from stoker.schema.search import Goal

    sign = -1.0 if search.goal is Goal.MAXIMIZE else 1.0
    at = {
        point.step: sign * point.values[search.metric]
        for point in points
        if search.metric in point.values and search.group in (None, point.group)
    }
    judged = [(at[saved.step], saved.path) for saved in checkpoints if saved.step in at]
    finite = [item for item in judged if item[0] - item[0] == 0.0]
    return min(finite, key=lambda item: item[0])[1] if finite else None


def _best_checkpoint(client: "Client", job: str, trial: "Trial") -> str | None:
    search = client.job(job).spec.search
    if search is None or search.metric is None:
        raise UsageError(f"{job} has no metric to choose by. Take the newest: --latest.")
    saved = [each for each in client.checkpoints(job) if each.trial == trial.number]
    found = pick_best(search, saved, _points(client, job, trial))
    if found is None and saved:
        raise NotFoundError(
            f"No checkpoint of trial {trial.number} was saved at a step where {search.metric!r} was reported."
            " Take the newest: --latest."
        )
    return found


def _followed(client: "Client", job: str, number: int, chosen: logs.Filters, *, as_json: bool) -> "Trial":
    """By pages and not by the job's stream, which goes on while other trials do."""
    writer = _writer(client, job, as_json=as_json)
    cursor = 0
    while True:
        trial = trial_of(client, job, number)
        ended = trial is None and client.job(job).state.is_final
        blocks, cursor = _sweep(client, job, number, chosen, after=cursor)
        for block in blocks:
            writer.write(block)
        # What a trial said comes before its end does, so what was read after the end is the last of it.
        if trial is not None and (trial.outcome is not None or trial.state.is_final):
            return trial
        if ended:
            raise NotFoundError(f"{job} ended before it had a trial {number}. See `stoker experiment describe {job}`.")
        time.sleep(_POLL_S)


def _sweep(
    client: "Client", job: str, number: int, chosen: logs.Filters, *, after: int
) -> "tuple[list[LogBlock], int]":
    """The trial's blocks after a cursor, and the cursor to go on from."""
    filters: logs.Filters = {**chosen, "trial": number}
    if after == 0 and chosen.get("tail") is not None:
        page = client.logs(job, **filters)
        return list(page.blocks), page.cursor
    found: list[LogBlock] = []
    cursor = after
    while (page := client.logs(job, **{**filters, "tail": None}, after=cursor)).blocks:
        found += page.blocks
        cursor = page.cursor
    return found, cursor


def _writer(client: "Client", job: str, *, as_json: bool) -> logs.Writer:
    writer = logs.writer_of(client.job(job), as_json=as_json)
    writer.show_trial = False  # it is the same on every line
    return writer


def _points(client: "Client", job: str, trial: "Trial") -> "list[MetricPoint]":
    return [point for point in client.metrics(job) if point.trial == trial.number]


def _facts(job: str, trial: "Trial", *, metric: str | None, now: float) -> Iterator[tuple[str, str]]:
    yield "trial", f"{job}/{trial.number} (id {trial.id})"
    yield "state", paint(trial.state.value, STATE_COLOURS.get(trial.state.value))
    if reason := why(trial):
        yield "why", reason
    if trial.objective is not None:
        yield "best value", f"{metric}={trial.objective:.6g}"
    if trial.metrics:
        yield "newest values", "  ".join(f"{name}={value:.6g}" for name, value in sorted(trial.metrics.items()))
    started = next((run.started for run in trial.runs if run.started is not None), None)
    if started is not None:
        yield "ran for", duration((trial.runs[-1].ended or now) - started)
    if trial.parent is not None:
        yield "started from", f"the checkpoint of trial {trial.parent}"
    if trial.seed is not None:
        yield "seed", str(trial.seed)
    if trial.latest_checkpoint is not None:
        yield "checkpoint", trial.latest_checkpoint
    if trial.runs and trial.runs[-1].directory:
        yield "run directory", trial.runs[-1].directory


def _add_trial(command: Parser) -> None:
    command.add_argument("trial", metavar="TRIAL", help="JOB/NUMBER, like mnist_1/3, or the trial's id")
