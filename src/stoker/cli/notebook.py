"""`stoker notebook`: JupyterLab as a job with a port and a token."""

import secrets
import shlex

from stoker.cli.cmd import add_task_flags, add_task_verbs, free_port, submit_task
from stoker.cli.output import say
from stoker.cli.parser import Arguments, Parser


def build(parser: Parser) -> None:
    command = parser.add_command(
        "start",
        start,
        help="start JupyterLab as a job; it is installed for the job if it is not there",
        example="stoker notebook start --context .",
    )
    add_task_flags(command)
    command.add_argument("--no-browser", action="store_true", help="accepted: none is opened")
    add_task_verbs(parser, "notebook")


def start(arguments: Arguments) -> None:
    port, token = free_port(), secrets.token_hex(16)
    # The token is in the environment and not among the words, which every user of the machine can see.
    words = ["jupyter", "lab", "--no-browser", "--allow-root", "--ip=127.0.0.1", f"--port={port}"]
    entrypoint = f"JUPYTER_TOKEN={token} exec {shlex.join(['python', '-m', *words])}"
    job = submit_task(arguments, entrypoint, task="notebook", requirements=["jupyterlab"])
    print(job["id"])
    say(f"JupyterLab starts at http://127.0.0.1:{port}/lab?token={token}")
    say(f"End it with `stoker notebook kill {job['id']}`.")
