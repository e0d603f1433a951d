"""`stoker jobs`: the verbs, and those of them that are a line or two."""

import time
from argparse import SUPPRESS
from collections.abc import Sequence
from typing import TYPE_CHECKING

from stoker.cli import logs, submit, submit_prediction
from stoker.compat.aiplatform.gcloud import JobFilter, add_format_flag, add_global_flags, print_as, read_filter, sort_by
from stoker.errors import UsageError
from stoker.terminal import flags
from stoker.terminal.output import STATE_COLOURS, ago, duration, print_json, say, table
from stoker.terminal.parser import Arguments, Parser

if TYPE_CHECKING:
    from stoker.schema.record import Job, JobSummary

_ALL = 10_000


def build(parser: Parser) -> None:
    submit.build(parser)
    submit_prediction.build(parser.commands["submit"])
    _build_reading(parser)
    _build_steering(parser)


def _build_reading(parser: Parser) -> None:
    command = parser.add_command(
        "list", list_jobs, help="list jobs, newest first", example="stoker jobs list --state FAILED --limit 5"
    )
    command.add_argument("--state", action="append", type=str.upper, metavar="STATE", help="may be given several times")
    command.add_argument("--name", metavar="GLOB", help="a prefix, or a pattern like 'taxi_*'")
    command.add_argument("--label", action="append", type=flags.key_values, metavar="K=V", help="jobs with this label")
    command.add_argument("--pool", "--region", metavar="NAME", help="jobs of this pool")
    command.add_argument("--filter", metavar="EXPR", help="gcloud's: 'jobId:census* AND state:FAILED'")
    command.add_argument(
        "--sort-by", metavar="FIELD", help="gcloud's: jobId, state, createTime, …; ~FIELD turns it round"
    )
    command.add_argument("--page-size", metavar="N", help=SUPPRESS)
    command.add_argument("--limit", type=flags.positive, default=50, metavar="N", help="at most so many (50)")
    _add_output(command)

    command = parser.add_command(
        "describe", describe, help="say all about a job", example="stoker jobs describe taxi_1"
    )
    _add_name(command)
    command.add_argument("--summarize", action="store_true", help="one line")
    _add_output(command)

    command = parser.add_command(
        "stream-logs",
        logs.stream_logs,
        help="print a job's log and follow it to the end; exit 0 if the job succeeded, 1 if not",
        example="stoker jobs stream-logs taxi_1 --rank 0",
    )
    _add_name(command)
    logs.add_log_flags(command)

    command = parser.add_command(
        "logs", logs.logs, help="print a job's log", example="stoker jobs logs taxi_1 --tail 20 --level WARNING"
    )
    _add_name(command)
    command.add_argument("--follow", "-f", action="store_true", help="go on until the job has ended")
    logs.add_log_flags(command)

    command = parser.add_command(
        "metrics", metrics, help="show what a job reported", example="stoker jobs metrics taxi_1 --csv > m.csv"
    )
    _add_name(command)
    how = command.add_mutually_exclusive_group()
    how.add_argument("--csv", action="store_true", help="every point, as CSV")
    how.add_argument("--json", action="store_true", help="every point, as JSON")

    command = parser.add_command(
        "wait",
        wait,
        help="wait until jobs have ended; exit 0 if all succeeded, 1 if not, 124 if --timeout was over first",
        example="stoker jobs wait taxi_1 taxi_2 --timeout 2h",
    )
    _add_names(command)
    command.add_argument("--timeout", type=flags.seconds, metavar="TIME", help="wait no longer: 90s, 10m, 2h")
    _add_output(command)


def _build_steering(parser: Parser) -> None:
    command = parser.add_command(
        "cancel", cancel, help="end jobs; one that has ended stays as it is", example="stoker jobs cancel taxi_1"
    )
    _add_names(command)
    _add_output(command)

    command = parser.add_command(
        "pause", pause, help="stop a job so that it can go on later", example="stoker jobs pause taxi_1"
    )
    _add_names(command)
    _add_output(command)

    command = parser.add_command(
        "resume",
        resume,
        help="let a paused job go on, from its latest checkpoint",
        example="stoker jobs resume taxi_1",
    )
    _add_names(command)
    _add_output(command)

    command = parser.add_command(
        "update",
        update,
        help="change a job's labels or priority",
        example="stoker jobs update taxi_1 --update-labels team=fares --priority 10",
    )
    _add_name(command)
    command.add_argument("--update-labels", action="append", type=flags.key_values, metavar="K=V,…", help="set these")
    which = command.add_mutually_exclusive_group()
    which.add_argument("--remove-labels", type=flags.comma_list, metavar="K,…", help="take these away")
    which.add_argument("--clear-labels", action="store_true", help="take all away (then set those of --update-labels)")
    command.add_argument("--priority", type=flags.whole, metavar="N", help="0 to 1000, larger first")
    _add_output(command)


def describe(arguments: Arguments) -> None:
    from stoker.cli.describe import describe as show

    show(arguments)


def metrics(arguments: Arguments) -> None:
    from stoker.cli.metrics import metrics as show

    show(arguments)


def list_jobs(arguments: Arguments) -> None:
    from stoker.client.client import connect

    wanted = read_filter(arguments.filter) if arguments.filter else JobFilter()
    labels = {**wanted.labels, **(flags.merged(arguments.label) or {})}
    first = next((f"{key}={value}" for key, value in labels.items()), None)
    found = connect().jobs(
        state=(*wanted.states, *(arguments.state or ())),
        name=arguments.name or wanted.name,
        label=first,
        pool=arguments.pool,
        # The server looks for one label; for more, all that have the first are looked at here.
        limit=arguments.limit if len(labels) < 2 else _ALL,
    )
    found = tuple(job for job in found if labels.items() <= job.labels.items())[: arguments.limit]
    if arguments.sort_by:
        found = sort_by(arguments.sort_by, found)
    if arguments.json:
        print_json(found)
    elif arguments.format:
        print_as(arguments.format, found, single=False)
    elif found:
        print(jobs_table(found, now=time.time()))
    else:
        say("No jobs.")


def jobs_table(found: "Sequence[JobSummary]", *, now: float) -> str:
    rows = []
    for job in found:
        took = "" if job.started is None else duration((job.ended or now) - job.started)
        progress = "" if job.progress is None else f"{job.progress:.0%}"
        rows.append([job.id, job.state.value, ago(job.created, now=now), took, progress, job.pool])
    colours = [STATE_COLOURS.get(job.state.value) for job in found]
    return table(["JOB", "STATE", "CREATED", "DURATION", "PROGRESS", "POOL"], rows, colours=colours)


def wait(arguments: Arguments) -> int:
    from stoker.client.client import connect

    client = connect()
    deadline = None if arguments.timeout is None else time.monotonic() + arguments.timeout
    ended: list[Job] = []
    for name in arguments.names:
        left_s = None if deadline is None else max(deadline - time.monotonic(), 0)
        try:
            ended.append(client.wait(name, timeout_s=left_s))
        except TimeoutError as error:
            say(str(error))
            return 124
        say(logs.ending(ended[-1]))
    _show(arguments, ended, quiet=True)
    return max(map(logs.exit_code, ended))


def cancel(arguments: Arguments) -> None:
    from stoker.client.client import connect

    client = connect()
    _show(arguments, [client.cancel(name) for name in arguments.names])


def pause(arguments: Arguments) -> None:
    from stoker.client.client import connect

    client = connect()
    _show(arguments, [client.pause(name) for name in arguments.names])


def resume(arguments: Arguments) -> None:
    from stoker.client.client import connect

    client = connect()
    _show(arguments, [client.resume(name) for name in arguments.names])


def update(arguments: Arguments) -> None:
    from stoker.client.client import connect

    changes_labels = arguments.update_labels or arguments.remove_labels or arguments.clear_labels
    if not changes_labels and arguments.priority is None:
        raise UsageError(
            "Nothing to change: give --update-labels, --remove-labels, --clear-labels or --priority."
            f" See `stoker jobs update --help`, and `stoker jobs describe {arguments.name}` for what it has."
        )
    client = connect()
    labels = None
    if changes_labels:
        removed = set(arguments.remove_labels or ())
        old = {} if arguments.clear_labels else client.job(arguments.name).labels
        labels = {key: value for key, value in old.items() if key not in removed}
        labels |= flags.merged(arguments.update_labels) or {}
    _show(arguments, [client.update(arguments.name, labels=labels, priority=arguments.priority)])


def _show(arguments: Arguments, changed: "Sequence[Job]", *, quiet: bool = False) -> None:
    """What a command that changed jobs prints: how they stand now."""
    if arguments.json:
        print_json(changed[0] if len(changed) == 1 else changed)
    elif arguments.format:
        print_as(arguments.format, changed, single=len(changed) == 1)
    elif not quiet:
        for job in changed:
            print(f"jobId: {job.id}\nstate: {job.state}")


def _add_name(command: Parser) -> None:
    command.add_argument("name", metavar="JOB", help="the job's name")


def _add_names(command: Parser) -> None:
    command.add_argument("names", metavar="JOB", nargs="+", help="the jobs' names")


def _add_output(command: Parser) -> None:
    command.add_argument("--json", action="store_true", help="print JSON")
    add_format_flag(command)
    add_global_flags(command)
