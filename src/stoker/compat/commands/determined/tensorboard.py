"""`stoker tensorboard`: TensorBoard over the event files of experiments, as a job with a port."""

import shlex
from pathlib import Path

from stoker.cli.experiment_lookup import all_trials, find_job, find_trial
from stoker.compat.commands.determined.cmd import add_task_flags, free_port, submit_task
from stoker.compat.commands.determined.task_verbs import add_open, add_task_verbs
from stoker.errors import NotFoundError, UsageError
from stoker.run_dir import RunDir
from stoker.terminal.output import say
from stoker.terminal.parser import Arguments, Parser


def build(parser: Parser) -> None:
    command = parser.add_command(
        "start",
        start,
        help="show what trials wrote for TensorBoard; it is installed for the job if it is not there",
        example="stoker tensorboard start mnist_1 mnist_2",
    )
    command.add_argument("experiments", nargs="*", metavar="JOB", help="experiments, by name or number")
    command.add_argument("-t", "--trial-ids", nargs="+", default=[], metavar="TRIAL", help="single trials, too")
    command.add_argument("--no-browser", action="store_true", help="accepted: none is opened")
    add_task_flags(command)
    add_task_verbs(parser, "tensorboard")
    add_open(parser, "tensorboard")


def start(arguments: Arguments) -> None:
    if not arguments.experiments and not arguments.trial_ids:
        raise UsageError("Of which experiments? Like `stoker tensorboard start mnist_1`, or -t mnist_1/3.")
    folders = event_folders(arguments)
    if not folders:
        raise NotFoundError("None of these trials has written event files on this machine (yet).")
    port = free_port()
    spec = ",".join(f"{name}:{folder}" for name, folder in folders.items())
    words = ["python", "-m", "tensorboard.main", "--host", "127.0.0.1", "--port", str(port), "--logdir_spec", spec]
    needed = ["tensorboard", "setuptools<81"]  # it imports pkg_resources, which newer ones have no more
    # It mostly waits: no trial should wait for it, as none did there, where it took no slot.
    job = submit_task(arguments, shlex.join(words), task="tensorboard", requirements=needed, cpus=0)
    print(job["id"])
    say(f"TensorBoard starts at http://127.0.0.1:{port}/. End it with `stoker tensorboard kill {job['id']}`.")


def event_folders(arguments: Arguments) -> dict[str, Path]:
    """Name for TensorBoard, and the folder of a trial's newest run; only those that are there."""
    from stoker.client.client import connect

    client = connect()
    wanted = []
    for given in arguments.experiments:
        name = find_job(client, given)
        wanted += [(name, trial) for trial in all_trials(client, name)]
    wanted += [find_trial(client, given) for given in arguments.trial_ids]
    found = {}
    for name, trial in wanted:
        for run in trial.runs:
            folder = RunDir(run.directory or "/nonexistent").tensorboard
            if folder.is_dir():
                found[f"{name}/{trial.number}"] = folder
    return found
