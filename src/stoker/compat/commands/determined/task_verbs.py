"""What Determined's commands, notebooks, shells and tensorboards have in common once they are there: verbs."""

import re
import time

from stoker.cli.experiment_lookup import find_job
from stoker.cli.logs import add_log_flags
from stoker.compat.commands.determined.experiment import set_priority
from stoker.compat.commands.determined.experiment_keeping import config
from stoker.errors import NotFoundError, StokerError
from stoker.terminal import flags
from stoker.terminal.output import print_json, say
from stoker.terminal.parser import Arguments, Parser

TASK = "task"  # the label by which each kind is listed
_ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+/[^\s)]*")


def add_task_verbs(parser: Parser, task: str) -> None:
    """Of one kind of task."""

    def list_(arguments: Arguments) -> None:
        list_tasks(arguments, task)

    command = parser.add_command(
        "list", list_, help="list them, newest first", example=f"stoker {task} list", aliases=["ls"]
    )
    command.add_argument("-a", "--all", action="store_true", help="accepted: everybody's are listed")
    command.add_argument("-q", "--quiet", action="store_true", help="print the names alone")
    command.add_argument("-w", "--workspace-name", metavar="X", help="accepted: there are no workspaces")
    command.add_argument("--json", action="store_true", help="print JSON")

    command = parser.add_command("logs", logs, help="print its log", example=f"stoker {task} logs {task}_1 --tail 20")
    _add_name(command)
    command.add_argument("--follow", "-f", action="store_true", help="go on until it has ended")
    add_log_flags(command)

    command = parser.add_command("kill", kill, help="end it at once", example=f"stoker {task} kill {task}_1")
    command.add_argument("names", metavar="JOB", nargs="+", help="names or numbers")
    command.add_argument("-f", "--force", action="store_true", help="go on where one cannot be ended")

    command = parser.add_command(
        "describe", describe, help="show its settings and how it stands", example=f"stoker {task} describe {task}_1"
    )
    _add_name(command)
    command.add_argument("--json", action="store_true", help="print JSON")

    command = parser.add_command(
        "config", config, help="print the settings it was started with", example=f"stoker {task} config {task}_1"
    )
    _add_name(command)
    command.add_argument("--json", action="store_true", help="as JSON")

    command = parser.add_group("set", help="change one that there is").add_command(
        "priority", set_priority, help="change its priority", example=f"stoker {task} set priority {task}_1 500"
    )
    _add_name(command)
    command.add_argument("value", type=flags.whole, metavar="N", help="0 to 1000, larger first")
    command.add_argument("--json", action="store_true", help="print JSON")


def add_open(parser: Parser, task: str) -> None:
    """Of what is looked at by a browser."""
    command = parser.add_command(
        "open", open_, help="print the address that it is at", example=f"stoker {task} open {task}_1"
    )
    _add_name(command)


def list_tasks(arguments: Arguments, task: str) -> None:
    from stoker.cli.jobs import jobs_table
    from stoker.client.client import connect

    found = connect().jobs(label=f"{TASK}={task}", limit=100)
    if arguments.json:
        print_json(found)
    elif arguments.quiet:
        print("\n".join(job.id for job in found))
    elif found:
        print(jobs_table(found, now=time.time()))
    else:
        say("None.")


def logs(arguments: Arguments) -> int:
    from stoker.cli.logs import follow, logs
    from stoker.client.client import connect

    client = connect()
    arguments.name = find_job(client, arguments.name)
    return follow(client, arguments.name) if arguments.follow else logs(arguments)


def describe(arguments: Arguments) -> int | None:
    from stoker.cli.main import run
    from stoker.client.client import connect

    name = find_job(connect(), arguments.name)
    return run(["jobs", "describe", name, *(["--json"] if arguments.json else [])])


def kill(arguments: Arguments) -> None:
    from stoker.client.client import connect

    client = connect()
    for given in arguments.names:
        try:
            print(client.kill(find_job(client, given)).id)
        except StokerError as error:
            if not arguments.force:
                raise
            say(str(error))


def open_(arguments: Arguments) -> None:
    from stoker.client.client import connect

    client = connect()
    job = client.job(find_job(client, arguments.name))
    said = [found for block in client.logs(job.id).blocks for found in _ADDRESS.findall(block.text)]
    if job.state.is_final or not said:
        why = f"it has ended ({job.state.value})" if job.state.is_final else "it has not said its address yet"
        raise NotFoundError(f"{job.id} cannot be opened: {why}. See `stoker jobs logs {job.id}`.")
    print(said[-1])


def _add_name(command: Parser) -> None:
    command.add_argument("name", metavar="JOB", help="its name or number")
