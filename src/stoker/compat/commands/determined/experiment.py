"""`stoker experiment`: searches as experiments, in Determined's words; the verbs that read and those that steer."""

import time
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from stoker.cli import logs
from stoker.cli.experiment_lookup import all_trials, find_job, trial_of
from stoker.compat.commands.determined import experiment_create, experiment_keeping
from stoker.errors import NotFoundError, UsageError
from stoker.terminal import flags
from stoker.terminal.output import STATE_COLOURS, ago, csv_lines, duration, paint, print_json, say, table
from stoker.terminal.parser import Arguments, Command, Parser

if TYPE_CHECKING:
    from stoker.client.client import Client
    from stoker.schema.record import Job, JobSummary, SearchStatus, Trial

_ALL = 10_000


def build(parser: Parser) -> None:
    experiment_create.build(parser)
    _build_reading(parser)
    _build_watching(parser)
    _build_steering(parser)
    _build_setting(parser)
    experiment_keeping.build(parser)


def _build_reading(parser: Parser) -> None:
    command = parser.add_command(
        "list",
        list_experiments,
        help="list experiments, newest first",
        example="stoker experiment list --limit 5",
        aliases=("ls",),
    )
    command.add_argument("--state", action="append", type=str.upper, metavar="STATE", help="may be given several times")
    command.add_argument("--limit", type=flags.positive, default=20, metavar="N", help="at most so many (20)")
    command.add_argument("-a", "--all", action="store_true", help="archived ones, too")
    command.add_argument("--show_project", "--show-project", action="store_true", help="accepted: there are none")
    command.add_argument("--csv", action="store_true", help="print CSV")
    command.add_argument("--json", action="store_true", help="print JSON")

    command = _reader(
        parser,
        "describe",
        describe,
        help="how a search stands: the best trials, the curve of the best so far, what mattered",
        example="stoker experiment describe mnist_1 --best 20",
    )
    command.add_argument("--best", type=flags.positive, default=10, metavar="N", help="so many of the best trials (10)")
    command.add_argument("--metrics", action="store_true", help="the course of all that those trials reported, too")

    command = _reader(
        parser,
        "trials",
        trials,
        help="list an experiment's trials",
        example="stoker experiment trials mnist_1 --sort best --limit 5",
        aliases=("list-trials", "lt"),
    )
    command.add_argument("--csv", action="store_true", help="print CSV: all trials, as `stoker experiment export` does")
    command.add_argument(
        "--sort", default="number", metavar="METRIC", help="number, newest, best, or a metric; ~METRIC turns it round"
    )
    command.add_argument("--limit", type=flags.positive, default=100, metavar="N", help="at most so many (100)")

    _reader(
        parser,
        "best",
        best,
        help="the best trial, its hyperparameters and its checkpoint; with several objectives, the front",
        example="stoker experiment best mnist_1 --json",
    )

    command = parser.add_command(
        "export",
        export,
        help="write every trial to a file: a table, or a study that Optuna reads",
        example="stoker experiment export mnist_1 --format csv -o trials.csv",
    )
    _add_name(command)
    command.add_argument("--format", choices=("csv", "parquet", "optuna"), default="csv", help="csv unless given")
    command.add_argument("-o", "--output", metavar="FILE", required=True, help="the file; - is stdout, for csv")


def _build_watching(parser: Parser) -> None:
    command = parser.add_command(
        "logs",
        show_logs,
        help="print the trials' logs, each line with its trial",
        example="stoker experiment logs mnist_1 --trial 3 --tail 20",
    )
    _add_name(command)
    command.add_argument("--follow", "-f", action="store_true", help="go on until the experiment has ended")
    command.add_argument("--trial", type=flags.positive, metavar="N", help="of this trial alone")
    logs.add_log_flags(command)

    command = parser.add_command(
        "wait",
        wait,
        help="wait until experiments have ended; exit 0 if all succeeded, 1 if not, 124 if --timeout was over first",
        example="stoker experiment wait mnist_1 --timeout 2h",
    )
    _add_names(command)
    command.add_argument("--timeout", type=flags.seconds, metavar="TIME", help="wait no longer: 90s, 10m, 2h")
    command.add_argument("--polling-interval", metavar="S", help="accepted: it ends at once")


def _build_steering(parser: Parser) -> None:
    steering: list[tuple[str, Command, str, tuple[str, ...]]] = [
        ("pause", pause, "stop the running trials so that they can go on later, and start no more", ()),
        (
            "activate",
            activate,
            "let a paused experiment go on; trials go on from their checkpoints",
            ("resume", "unpause"),
        ),
        ("cancel", cancel, "end experiments: trials get the job's grace to save and leave, then are killed", ()),
        ("kill", kill, "end experiments at once: trials get no time to save", ()),
    ]
    for verb, run, text, aliases in steering:
        command = parser.add_command(verb, run, help=text, example=f"stoker experiment {verb} mnist_1", aliases=aliases)
        _add_names(command)
        command.add_argument("--json", action="store_true", help="print JSON")


def _build_setting(parser: Parser) -> None:
    group = parser.add_group("set", help="change an experiment that there is")
    command = group.add_command(
        "priority", set_priority, help="change its priority", example="stoker experiment set priority mnist_1 500"
    )
    _add_name(command)
    command.add_argument("value", type=flags.whole, metavar="N", help="0 to 1000, larger first")
    command.add_argument("--json", action="store_true", help="print JSON")

    command = group.add_command(
        "max-slots",
        set_max_slots,
        help="change how many slots its running trials may take together; those that run go on",
        example="stoker experiment set max-slots mnist_1 4",
    )
    _add_name(command)
    command.add_argument("value", type=flags.positive, metavar="N", help="1 or more")
    command.add_argument("--json", action="store_true", help="print JSON")

    command = group.add_command(
        "weight",
        set_weight,
        help="refused: there are no weights here",
        example="stoker experiment set weight mnist_1 2",
    )
    _add_name(command)
    command.add_argument("value", metavar="W", help="any")
    experiment_keeping.build_settings(group)


def list_experiments(arguments: Arguments) -> None:
    from stoker.client.client import connect

    client = connect()
    found = list(_experiments(client, states=arguments.state or (), limit=arguments.limit, archived=arguments.all))
    if arguments.json:
        print_json([status for _, status in found])
    elif found or arguments.csv:
        print(experiments_table(found, now=time.time(), as_csv=arguments.csv))
    else:
        say("No experiments. Create one with `stoker experiment create CONFIG DIR`.")


def experiments_table(found: "Sequence[tuple[JobSummary, SearchStatus]]", *, now: float, as_csv: bool = False) -> str:
    rows = []
    for job, status in found:
        first = status.best[0].objective if status.best else None
        best_ = "" if first is None else f"{status.metric}={first:.6g}"
        made = f"{sum(status.states.values())}/{status.max_trials}"
        took = "" if job.started is None else duration((job.ended or now) - job.started)
        how = status.sampler if status.stopping == "none" else f"{status.sampler}+{status.stopping}"
        rows.append([job.id, job.state.value, str(job.number), how, made, best_, ago(job.created, now=now), took])
    colours = [STATE_COLOURS.get(job.state.value) for job, _ in found]
    head = ["EXPERIMENT", "STATE", "NUMBER", "SEARCH", "TRIALS", "BEST", "CREATED", "DURATION"]
    return csv_lines(head, rows) if as_csv else table(head, rows, colours=colours)


def describe(arguments: Arguments) -> None:
    from stoker.client.client import connect

    client = connect()
    name = find_job(client, arguments.name)
    status = client.search(name, best=arguments.best)
    if arguments.json:
        print_json(status)
        return
    from stoker.cli.search_report import facts, report

    job = client.job(name)
    for label, value in [*_head(job), *facts(status)]:
        print(f"{label + ':':<16}{value}")
    for line in report(status):
        print(line)
    if arguments.metrics:
        _print_metrics(client, status)
    say(f"\nAll trials: stoker experiment trials {name}; the best: stoker experiment best {name}")


def trials(arguments: Arguments) -> None:
    from stoker.client.client import connect

    client = connect()
    name = find_job(client, arguments.name)
    if arguments.csv:
        arguments.format, arguments.output = "csv", "-"
        return export(arguments)
    objectives = [objective.metric for objective in client.search(name, best=1).objectives]
    by = arguments.sort
    metric = None if by in ("number", "newest", "best") else by.removeprefix("~")
    if metric is None:
        page = client.trials(name, limit=arguments.limit, sort=by)
        found, total = list(page.trials), page.total
    else:
        everyone = list(all_trials(client, name))
        found, total = sorted_by(everyone, by, objectives)[: arguments.limit], len(everyone)
    if arguments.json:
        print_json(found)
    elif not found:
        say(f"Experiment [{name}] has no trials yet.")
    else:
        from stoker.cli.search_report import trials_table

        print(trials_table(found, objectives=objectives, metric=metric))
        if total > len(found):
            say(f"{len(found)} of {total} trials; --limit shows more.")


def sorted_by(found: "Sequence[Trial]", by: str, objectives: Sequence[str]) -> "list[Trial]":
    """By a metric, least first (`~METRIC`: most first); trials without it come last. UsageError if none has it."""
    from stoker.cli.search_report import value_of

    metric = by.removeprefix("~")
    values = {trial.number: value_of(trial, metric, objectives) for trial in found}
    if found and all(value is None for value in values.values()):
        known = sorted({*objectives, *(name for trial in found for name in trial.metrics)})
        raise UsageError(f"No trial has a metric {metric!r}. There are: {', '.join(known) or 'none yet'}.")

    def place(trial: "Trial") -> tuple[bool, float, int]:
        value = values[trial.number]
        missing = value is None or value != value
        return missing, 0.0 if missing else (-(value or 0.0) if by.startswith("~") else value or 0.0), trial.number

    return sorted(found, key=place)


def best(arguments: Arguments) -> int:
    from stoker.client.client import connect

    client = connect()
    name = find_job(client, arguments.name)
    status = client.search(name, best=1)
    numbers = list(status.front) or [trial.number for trial in status.best[:1]]
    # The status has trials without their runs and checkpoints, so each is asked for again.
    found = [trial for number in numbers if (trial := trial_of(client, name, number)) is not None]
    if not found:
        reported = f"No trial of [{name}] has reported {status.metric!r} yet."
        say(reported if status.metric else f"The search of [{name}] has no metric: no trial is better than another.")
        return 1
    if arguments.json:
        print_json(found if status.front else found[0])
    elif status.front:
        from stoker.cli.search_report import trials_table

        print(trials_table(found, objectives=[objective.metric for objective in status.objectives]))
    else:
        from stoker.compat.commands.determined.trial import page

        print("\n".join(page(name, found[0], metric=status.metric, now=time.time())))
    return 0


def export(arguments: Arguments) -> None:
    from stoker.cli.export import export_trials
    from stoker.client.client import connect

    client = connect()
    job = client.job(find_job(client, arguments.name))
    if job.spec.search is None:
        raise NotFoundError(f"Job {job.id} has no search, so there are no trials to export.")
    written = export_trials(
        job.id, job.spec.search, list(all_trials(client, job.id)), format=arguments.format, output=arguments.output
    )
    say(f"{written} trials of [{job.id}] are in {'stdout' if arguments.output == '-' else arguments.output}.")


def show_logs(arguments: Arguments) -> int:
    from stoker.client.client import connect

    client = connect()
    arguments.name = find_job(client, arguments.name)
    if arguments.trial is None:
        return logs.logs(arguments)
    from stoker.compat.commands.determined.trial import print_logs

    return print_logs(client, arguments, arguments.name, arguments.trial)


def wait(arguments: Arguments) -> int:
    from stoker.client.client import connect

    client = connect()
    deadline = None if arguments.timeout is None else time.monotonic() + arguments.timeout
    codes = [0]
    for given in arguments.names:
        left_s = None if deadline is None else max(deadline - time.monotonic(), 0)
        try:
            job = client.wait(find_job(client, given), timeout_s=left_s)
        except TimeoutError as error:
            say(str(error))
            return 124
        say(logs.ending(job))
        codes.append(logs.exit_code(job))
    return max(codes)


def pause(arguments: Arguments) -> None:
    _steer(arguments, "pause")


def activate(arguments: Arguments) -> None:
    _steer(arguments, "resume")


def cancel(arguments: Arguments) -> None:
    _steer(arguments, "cancel")


def kill(arguments: Arguments) -> None:
    _steer(arguments, "kill")


def set_max_slots(arguments: Arguments) -> None:
    from stoker.client.client import connect

    client = connect()
    _show(arguments, [client.update(find_job(client, arguments.name), max_slots=arguments.value)])


def set_weight(arguments: Arguments) -> None:
    raise UsageError(
        "Weights share a cluster out between experiments; here the queue goes by priority."
        f" Use `stoker experiment set priority {arguments.name} N`, or `set max-slots {arguments.name} N`."
    )


def set_priority(arguments: Arguments) -> None:
    from stoker.client.client import connect

    client = connect()
    _show(arguments, [client.update(find_job(client, arguments.name), priority=arguments.value)])


def _steer(arguments: Arguments, verb: str) -> None:
    from stoker.client.client import connect

    client = connect()
    _show(arguments, [getattr(client, verb)(find_job(client, given)) for given in arguments.names])


def _show(arguments: Arguments, changed: "Sequence[Job]") -> None:
    if arguments.json:
        print_json(changed[0] if len(changed) == 1 else changed)
        return
    for job in changed:
        print(f"{job.id}  {paint(job.state.value, STATE_COLOURS.get(job.state.value))}")


def _experiments(
    client: "Client", *, states: Sequence[str], limit: int, archived: bool
) -> "Iterator[tuple[JobSummary, SearchStatus]]":
    """Jobs that have a search, newest first."""
    searches = (
        job
        for job in client.jobs(state=states, limit=_ALL)
        if job.search is not None and (archived or experiment_keeping.ARCHIVED not in job.labels)
    )
    for job in islice(searches, limit):
        yield job, client.search(job.id, best=1)


def _head(job: "Job") -> Iterator[tuple[str, str]]:
    yield "experiment", f"{job.id} (number {job.number})"
    yield "state", paint(job.state.value, STATE_COLOURS.get(job.state.value))
    if job.reason:
        yield "failed because" if job.state.value == "FAILED" else "why", job.reason
    if job.started is not None:
        yield "ran for", duration((job.ended or time.time()) - job.started)


def _print_metrics(client: "Client", status: "SearchStatus") -> None:
    from stoker.cli.metrics import overview

    wanted = {trial.number for trial in status.best}
    points = sorted((p for p in client.metrics(status.job) if p.trial in wanted), key=lambda point: point.trial)
    if points:
        print(f"\n{overview(points)}")


def _reader(parser: Parser, name: str, run: Command, *, help: str, example: str, aliases: Sequence[str] = ()) -> Parser:
    command = parser.add_command(name, run, help=help, example=example, aliases=aliases)
    _add_name(command)
    command.add_argument("--json", action="store_true", help="print JSON")
    return command


def _add_name(command: Parser) -> None:
    command.add_argument("name", metavar="JOB", help="the experiment's name or number")


def _add_names(command: Parser) -> None:
    command.add_argument("names", metavar="JOB", nargs="+", help="the experiments' names or numbers")
