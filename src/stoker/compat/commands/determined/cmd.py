"""`stoker cmd`: any command as a job, as with `det cmd run`; and what commands, notebooks and tensorboards share."""

import shlex
import socket
from collections.abc import Sequence
from pathlib import Path

from stoker.compat.commands.determined.task_verbs import TASK, add_task_verbs
from stoker.compat.search_config import add_config_flags, laid_over, notify_of, out_of_container, with_overrides
from stoker.compat.startup_hook import apply_startup_hook
from stoker.errors import UsageError
from stoker.submission.pipeline import Submission, submit_job
from stoker.submission.reading import Document, JobValues
from stoker.submission.upload import JobRecord
from stoker.terminal.output import say
from stoker.terminal.parser import Arguments, Parser


def build(parser: Parser) -> None:
    command = parser.add_command(
        "run",
        run,
        help="run a command as a job and follow it; exit 0 if it succeeded, 1 if not",
        example="stoker cmd run --context . --config resources.slots=2 python3 train.py --epochs 3",
        user_args=True,
    )
    add_task_flags(command)
    command.add_argument("entrypoint", nargs="...", metavar="COMMAND", help="the command and its arguments")
    add_task_verbs(parser, "cmd")


def add_task_flags(command: Parser) -> None:
    """Those that all of Determined's tasks have."""
    add_config_flags(command)
    command.add_argument("--config-file", metavar="FILE", help="a file with such settings: resources, environment, …")
    command.add_argument("-c", "--context", metavar="DIR", help="ship this directory; the command runs in it")
    command.add_argument(
        "-i", "--include", action="append", default=[], metavar="PATH", help="ship this file or folder, too"
    )
    command.add_argument(
        "-v", "--volume", action="append", default=[], metavar="HOST:PATH", help="a folder of the host, linked at PATH"
    )
    command.add_argument("-w", "--workspace-name", metavar="X", help="accepted: there are no workspaces")
    command.add_argument("-d", "--detach", action="store_true", help="do not follow it: print its name and return")


def run(arguments: Arguments) -> int:
    words = [*arguments.entrypoint, *(arguments.user_args or ())]
    if not words:
        raise UsageError("Which command? Say it behind the flags, like `stoker cmd run python3 train.py`.")
    entrypoint = words[0] if len(words) == 1 else shlex.join(words)
    job = submit_task(arguments, entrypoint, task="cmd")
    print(job["id"])
    if arguments.detach:
        say(f"Follow it: stoker cmd logs --follow {job['id']}")
        return 0
    from stoker.cli.logs import follow
    from stoker.client.client import connect

    return follow(connect(), job["id"])


def submit_task(
    arguments: Arguments, entrypoint: str, *, task: str, requirements: Sequence[str] = (), cpus: float | None = None
) -> JobRecord:
    """Store a command job of the entrypoint, with the settings and code that the flags name.

    `cpus` is what it takes of the pool, unless the settings say.
    """
    from stoker.compat.mounts import with_links
    from stoker.host.home import Home
    from stoker.packaging.package.tree import source_of_directory

    values: JobValues = {**_read(arguments, entrypoint), "kind": "command"}
    values["name"] = values.get("name") or task
    values["labels"] = {**values.get("labels", {}), TASK: task}
    if cpus is not None and not any(name.startswith("resources") for name in _named(arguments)):
        values["resources"] = {**values.get("resources", {}), "cpus": cpus}
    environment = values.get("environment", {})
    lines = [*environment.get("requirements", ()), *requirements]
    if lines:
        values["environment"] = {**environment, "requirements": lines}
    include = tuple(Path(path) for path in arguments.include)
    if include and not arguments.context:
        raise UsageError("--include goes with --context DIR: the directory that it is added to.")
    if arguments.context:
        source = source_of_directory(Path(arguments.context))
        submission = Submission(values, source, include, adapt=apply_startup_hook, is_numbered=True)
    else:
        submission = Submission(with_links(values), is_numbered=True)
    return submit_job(submission, home=Home.find().make(), notify=say)


def _named(arguments: Arguments) -> list[str]:
    """The settings that flags and files give, by their first words."""
    from stoker.submission.job_file import load

    files = [load(Path(file)) for file in (arguments.template, arguments.config_file) if file]
    return [*(str(name) for document in files for name in document), *with_overrides({}, arguments.overrides)]


def free_port() -> int:
    """Of this machine, at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _read(arguments: Arguments, entrypoint: str) -> JobValues:
    """The settings in Determined's words, with the command as their entrypoint."""
    from stoker.compat.dialects.document import read
    from stoker.submission.job_file import load

    document: Document = {}
    for file in (arguments.template, arguments.config_file):
        document = laid_over(document, load(Path(file))) if file else document
    volumes = [text.rsplit(":", 1) for text in arguments.volume]
    mounts = [{"host_path": volume[0], "container_path": volume[-1]} for volume in volumes]
    if mounts:
        document = {**document, "bind_mounts": [*document.get("bind_mounts", ()), *mounts]}
    document = out_of_container({**with_overrides(document, arguments.overrides), "entrypoint": entrypoint}, say)
    reading = read(document, source=arguments.config_file or "--config")
    notify_of(reading, say)
    return reading.values
