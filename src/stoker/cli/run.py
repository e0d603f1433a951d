"""`stoker run`: a script, a directory or a stoker.yaml, run here in the foreground."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from stoker.cli.local import launch_here, name_here, print_reported
from stoker.errors import UsageError
from stoker.submission.pipeline import Submission, default_name, prepare_code, with_absolute_job_dir
from stoker.submission.reading import EnvironmentValues, JobValues, overlay
from stoker.submission.shipment import Code, check_module
from stoker.terminal.output import say
from stoker.terminal.parser import Arguments, Parser

if TYPE_CHECKING:
    from stoker.schema.launch import Launch


def build(parser: Parser) -> None:
    parser.be_command(run, example="stoker run train.py -- --epochs 3", user_args=True)
    parser.usage = "stoker run TARGET [flags] [-- args of your code]"
    add_target_flags(parser)


def add_target_flags(parser: Parser) -> None:
    """What to run, and the environment it runs in."""
    parser.add_argument("target", metavar="TARGET", help="a script, a directory with a stoker.yaml, or that file")
    parser.add_argument("--module", metavar="MODULE", help="run `python -m MODULE` in the directory TARGET")
    parser.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="NAME[=VALUE]",
        help="set a variable, or pass on yours; repeatable",
    )
    parser.add_argument("--python", metavar="X.Y", help="the Python version to use (default: the project's)")


def read_job(arguments: Arguments) -> tuple[Path, JobValues]:
    """The directory with the code, and the job's fields, from the flags above."""
    # Imported here: YAML and the models that check a job file are only for those who run something.
    from stoker.submission import job_file
    from stoker.submission.target import read_target

    path = Path(arguments.target).expanduser()
    directory, document = read_target(path, module=arguments.module)
    environment: EnvironmentValues = {}
    if arguments.env:
        environment["variables"] = dict(map(_variable, arguments.env))
    if arguments.python:
        environment["python"] = arguments.python
    fields = {"module": arguments.module, "args": list(arguments.user_args or ()) or None, "environment": environment}
    document = overlay(document, {name: value for name, value in fields.items() if value})
    values = with_absolute_job_dir(job_file.read(document, source=str(path)).values)
    return directory, values


def _variable(word: str) -> tuple[str, str]:
    name, has_value, value = word.partition("=")
    if not name:
        raise UsageError(f"--env {word}: expected NAME=VALUE, or NAME to pass on a variable of this shell.")
    if not has_value and name not in os.environ:
        raise UsageError(f"--env {name}: it is not set in this shell. Set it, or write --env {name}=VALUE.")
    return name, value if has_value else os.environ[name]


def run(arguments: Arguments) -> int:
    from stoker.host.home import Home
    from stoker.packaging.package.tree import source_of_directory
    from stoker.supervisor.here import run_here

    directory, values = read_job(arguments)
    if "search" in values:
        raise UsageError(f"{arguments.target} describes a search. Submit it: stoker submit {arguments.target}")
    home = Home.find().make()
    values, code = prepare_code(Submission(values, source_of_directory(directory)), home=home, notify=say)
    assert code is not None
    check_module(values.get("module"), code, ())
    path = Path(arguments.target)
    launch = _launch(default_name(path.with_suffix("") if path.is_file() else path), code, values)
    run_dir = home.local_run_dir(launch.job)
    exit_code = run_here(launch, run_dir, home=home, out=sys.stdout.buffer, err=sys.stderr.buffer, distributed=False)
    print_reported(run_dir.spool)
    return exit_code


def _launch(name: str, code: Code, values: JobValues) -> "Launch":
    from stoker.schema.launch import EnvironmentSpec, Replica, Role

    environment = values.get("environment", {})
    command = values.get("command")
    return launch_here(
        name_here(name),
        source=str(code.tree.source.root),
        import_roots=code.project.import_roots,
        environment=EnvironmentSpec(
            runtime=environment.get("runtime"),
            python=environment.get("python"),
            requirements=(*code.project.requirements, *environment.get("requirements", ())),
            prefer_runtime=environment.get("prefer_runtime", False),
            as_of=environment.get("as_of"),
            variables=dict(environment.get("variables", {})),
        ),
        module=values.get("module"),
        command=None if command is None else tuple(command),
        args=tuple(values.get("args", ())),
        hparams=dict(values.get("hparams", {})),
        data=dict(values.get("data", {})),
        job_dir=values.get("job_dir"),
        replicas=(Replica(role=Role.CHIEF, index=0, rank=0),),
    )
