"""`stoker notebook`: JupyterLab as a job with a port."""

import shlex

from stoker.compat.commands.determined.cmd import add_task_flags, free_port, submit_task
from stoker.compat.commands.determined.task_verbs import add_open, add_task_verbs
from stoker.terminal.output import say
from stoker.terminal.parser import Arguments, Parser


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
    add_open(parser, "notebook")


def start(arguments: Arguments) -> None:
    port = free_port()
    # Jupyter makes its own token and writes it to its log: among the words, everybody on the machine could read it.
    words = ["jupyter", "lab", "--no-browser", "--allow-root", "--ip=127.0.0.1", f"--port={port}"]
    entrypoint = f"exec {shlex.join(['python', '-m', *words])}"
    job = submit_task(arguments, entrypoint, task="notebook", requirements=["jupyterlab"])
    print(job["id"])
    say(f"JupyterLab starts on port {port}; its log has the address with the key: stoker notebook logs {job['id']}")
    say(f"End it with `stoker notebook kill {job['id']}`.")
