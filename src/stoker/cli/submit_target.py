"""`stoker submit`: what `stoker run` runs here, as a job."""

import json
from pathlib import Path
from typing import Any

from stoker.cli.run import add_target_flags, read_job
from stoker.submission.pipeline import Submission, default_name, dry_run, submit_job
from stoker.submission.reading import overlay
from stoker.terminal import flags
from stoker.terminal.output import say
from stoker.terminal.parser import Arguments, Parser


def build(parser: Parser) -> None:
    parser.be_command(submit, example="stoker submit train.py --follow -- --epochs 3", user_args=True)
    parser.usage = "stoker submit TARGET [flags] [-- args of your code]"
    add_target_flags(parser)
    parser.add_argument("--name", metavar="JOB", help="the job's name (default: the target's, with a number)")
    parser.add_argument("--pool", metavar="POOL", help="the pool to run on (default: local)")
    parser.add_argument("--cpus", type=float, metavar="N", help="CPUs for each process")
    parser.add_argument("--gpus", type=float, metavar="N", help="GPUs for each process")
    parser.add_argument("--memory", type=float, metavar="GB", help="memory for each process, in GB")
    parser.add_argument("--slots", type=flags.positive, metavar="N", help="number of processes (default: 1)")
    parser.add_argument("--max-restarts", type=flags.whole, metavar="N", help="number of retries after a failure")
    parser.add_argument("--follow", action="store_true", help="follow the log; exit 0 if the job succeeded, 1 if not")
    parser.add_argument("--dry-run", action="store_true", help="submit nothing: print what would be started, as JSON")
    parser.add_argument("--json", action="store_true", help="print the job as JSON")


def submit(arguments: Arguments) -> int:
    from stoker.host.home import Home
    from stoker.packaging.package.tree import source_of_directory

    directory, values = read_job(arguments)
    values = overlay(values, _options(arguments))
    is_numbered = "name" not in values
    path = Path(arguments.target)
    values.setdefault("name", default_name(path.with_suffix("") if path.is_file() else path))
    home = Home.find().make()
    submission = Submission(values, source_of_directory(directory), is_numbered=is_numbered)
    if arguments.dry_run:
        print(json.dumps(dry_run(submission, home=home, notify=say), indent=2))
        return 0
    job = submit_job(submission, home=home, notify=say)
    name = job["id"]
    if arguments.json:
        print(json.dumps(job, indent=2))
    elif not arguments.follow:
        print(name)
    if not arguments.follow:
        say(f"Submitted {name}. Follow it with `stoker logs {name} --follow`, stop it with `stoker stop {name}`.")
        return 0
    from stoker.cli.logs import follow
    from stoker.client.client import connect

    say(f"Submitted {name}.")
    return follow(connect(home), name)


def _options(arguments: Arguments) -> Any:
    sizes = {"cpus": arguments.cpus, "gpus": arguments.gpus, "memory_gb": arguments.memory, "slots": arguments.slots}
    resources = {name: value for name, value in sizes.items() if value is not None}
    options = {"name": arguments.name, "pool": arguments.pool, "resources": resources or None}
    if arguments.max_restarts is not None:
        options["restarts"] = {"max_restarts": arguments.max_restarts}
    return {name: value for name, value in options.items() if value is not None}
