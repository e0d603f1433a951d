"""`stoker job`: Determined's generic job, from its file: any script, with ranks and `data`; and the queue."""

import json
import time
from pathlib import Path

from stoker.cli.experiment_lookup import find_job
from stoker.compat.search_config import add_config_flags, load_config, notify_of
from stoker.errors import DoesNotFitError, UsageError
from stoker.submission.pipeline import submit_job
from stoker.submission.reading import Reading
from stoker.submission.upload import JobRecord
from stoker.terminal import flags
from stoker.terminal.output import print_json, say
from stoker.terminal.parser import Arguments, Parser


def build(parser: Parser) -> None:
    command = parser.add_command(
        "run",
        run,
        help="run the script of a file as a job: `entrypoint_script`, `data`, `resources: slots`",
        example="stoker job run batch_inference.yaml . --config resources.slots=2 --follow",
    )
    command.add_argument("config", metavar="CONFIG", help="Determined's file, or a stoker.yaml")
    command.add_argument("directory", metavar="DIR", nargs="?", help="the code (the file's directory)")
    command.add_argument(
        "-i", "--include", action="append", default=[], metavar="PATH", help="ship this file or folder, too"
    )
    command.add_argument("--name", metavar="JOB", help="the job's name; else the file's, with a number")
    add_config_flags(command)
    then = command.add_argument_group("and then")
    then.add_argument("-f", "--follow", action="store_true", help="follow the log; exit 0 if it succeeded, 1 if not")
    then.add_argument("--json", action="store_true", help="print the job as JSON")

    command = parser.add_command(
        "list",
        list_,
        help="the queue: jobs that have not ended, those that come first first",
        example="stoker job list --resource-pool gpus",
        aliases=["ls"],
    )
    command.add_argument("--resource-pool", metavar="POOL", help="of this pool alone")
    command.add_argument("--json", action="store_true", help="print JSON")
    command = parser.add_command(
        "update", update, help="change a job's priority", example="stoker job update mnist_1 --priority 500"
    )
    command.add_argument("name", metavar="JOB", help="its name or number")
    command.add_argument("-p", "--priority", type=flags.whole, metavar="N", help="0 to 1000, larger first")
    for flag in ("--weight", "--resource-pool", "--ahead-of", "--behind-of"):
        command.add_argument(flag, metavar="X", help="refused: a job stays in its pool, and the queue goes by priority")


def run(arguments: Arguments) -> int:
    from stoker.compat.experiments import submission_of
    from stoker.host.home import Home

    file = Path(arguments.config)
    reading = _read(arguments, file)
    notify_of(reading, say)
    directory = Path(arguments.directory) if arguments.directory else file.parent
    include = [Path(path) for path in arguments.include]
    submission = submission_of(reading, directory, include=include, name=arguments.name)
    try:
        job = submit_job(submission, home=Home.find().make(), notify=say)
    except DoesNotFitError as error:
        raise DoesNotFitError(f"{error} Fewer ranks: --config resources.slots=N.") from error
    return _afterwards(arguments, job)


def list_(arguments: Arguments) -> None:
    from stoker.cli.jobs import jobs_table
    from stoker.client.client import connect

    pool = arguments.resource_pool
    waiting = [job for job in connect().jobs(limit=10_000) if not job.state.is_final and pool in (None, job.pool)]
    waiting.sort(key=lambda job: (-job.priority, job.number))
    if arguments.json:
        print_json(waiting)
    elif waiting:
        print(jobs_table(waiting, now=time.time()))
    else:
        say("The queue is empty.")


def update(arguments: Arguments) -> None:
    from stoker.client.client import connect

    refused = (arguments.weight, arguments.resource_pool, arguments.ahead_of, arguments.behind_of)
    if any(refused) or arguments.priority is None:
        raise UsageError("Only its priority can be changed: the queue goes by it. Say --priority N, 0 to 1000.")
    client = connect()
    job = client.update(find_job(client, arguments.name), priority=arguments.priority)
    print(f"{job.id}  priority {job.priority}")


def _read(arguments: Arguments, file: Path) -> Reading:
    from stoker.compat.dialects.document import read

    template = Path(arguments.template) if arguments.template else None
    reading = read(load_config(file, notify=say, template=template, overrides=arguments.overrides), source=str(file))
    if reading.values.get("search") is not None:
        raise UsageError(f"{file} searches hyperparameters. Run it with `stoker experiment create {file}`.")
    if not reading.values.get("command") and not reading.values.get("module"):
        raise UsageError(f"{file} says nothing to run. Write `entrypoint_script: python3 script.py` in it.")
    return reading


def _afterwards(arguments: Arguments, job: JobRecord) -> int:
    name = job["id"]
    print(json.dumps(job, indent=2) if arguments.json else name)
    say(f"Job [{name}] submitted (number {job['number']}).")
    if not arguments.follow:
        say(f"Follow it: stoker jobs stream-logs {name}")
        return 0
    from stoker.cli.logs import follow
    from stoker.client.client import connect

    return follow(connect(), name)
