"""`stoker shell`: a job that is a shell, in its own environment and folder; and a terminal in it."""

import contextlib
import json
import os
import select
import shlex
import shutil
import signal
import socket
import sys
import termios
import time
import tty
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from stoker.cli.experiment_lookup import all_trials, find_job
from stoker.compat.commands.determined.cmd import add_task_flags, submit_task
from stoker.compat.commands.determined.task_verbs import add_task_verbs
from stoker.errors import StokerError, UsageError
from stoker.run_dir import RunDir
from stoker.schema.state import JobState
from stoker.terminal.output import say
from stoker.terminal.parser import Arguments, Parser

if TYPE_CHECKING:
    from stoker.client.client import Client

_POLL_S = 0.2


def build(parser: Parser) -> None:
    command = parser.add_command(
        "start",
        start,
        help="start a shell as a job and open a terminal in it; the job stays until it is killed",
        example="stoker shell start --context . --config resources.slots=2",
        user_args=True,
    )
    add_task_flags(command)
    command.add_argument("--show-ssh-command", action="store_true", help="accepted: there is no ssh")
    command = parser.add_command(
        "open",
        open_,
        help="open a terminal in a shell's job, or run one command there; its exit code is the command's",
        example="stoker shell open shell_1 -- nvidia-smi",
        user_args=True,
    )
    command.add_argument("name", metavar="JOB", help="its name or number")
    command.add_argument("--show-ssh-command", action="store_true", help="accepted: there is no ssh")
    command = parser.add_command(
        "show-ssh-command",
        show_ssh_command,
        help="refused: there is no ssh",
        example="stoker shell show-ssh-command shell_1",
        aliases=("show_ssh_command",),
        user_args=True,
    )
    command.add_argument("name", metavar="JOB", help="its name or number")
    add_task_verbs(parser, "shell")


def start(arguments: Arguments) -> int:
    from stoker.client.client import connect

    entrypoint = f"exec {shlex.join(['python', '-m', 'stoker.compat.shells'])}"
    job = submit_task(arguments, entrypoint, task="shell", cpus=0)
    print(job["id"], flush=True)
    say(f"End it with `stoker shell kill {job['id']}`; come back with `stoker shell open {job['id']}`.")
    if arguments.detach:
        return 0
    return _enter(connect(), job["id"], _command(arguments))


def open_(arguments: Arguments) -> int:
    from stoker.client.client import connect

    client = connect()
    return _enter(client, find_job(client, arguments.name), _command(arguments))


def show_ssh_command(arguments: Arguments) -> None:
    name = arguments.name
    raise UsageError(f"There is no ssh to a shell: it is on this machine. Go in with `stoker shell open {name}`.")


def _command(arguments: Arguments) -> str:
    """What to run there. Options in front are ssh's, which forwarded ports; here they are the machine's own."""
    words: tuple[str, ...] = arguments.user_args or ()
    if words and words[0].startswith("-"):
        say(f"Without meaning here, and ignored: {' '.join(words)}. There is no ssh, and ports are this machine's.")
        words = ()
    return words[0] if len(words) == 1 else shlex.join(words)


def _connect(there: socket.socket, client: "Client", name: str) -> None:
    """To where the job listens, as soon as it does."""
    from stoker.compat.shells import inside

    while True:
        runs = [run for trial in all_trials(client, name) for run in trial.runs]
        shell = RunDir(runs[-1].directory).shell if runs and runs[-1].directory else None
        error = None
        if shell is not None and shell.exists():
            try:
                with inside(shell.parent):
                    return there.connect(shell.name)
            except OSError as refused:
                error = refused
        # Asked after the socket: a job that was just ended may not listen any more, and not yet be over.
        state = client.job(name).state
        if state.is_final:
            raise StokerError(f"{name} has ended ({state}). See `stoker shell logs {name}`.")
        if error is not None and state is JobState.RUNNING:
            raise UsageError(f"{name} is on another machine: only a shell of this machine can be opened.") from error
        time.sleep(_POLL_S)


def _enter(client: "Client", name: str, command: str) -> int:
    from stoker.compat.shells import receive, send

    with socket.socket(socket.AF_UNIX) as there:
        _connect(there, client, name)
        hello = {"term": os.environ.get("TERM"), "size": _size(), **({"command": command} if command else {})}
        send(there, b"d", json.dumps(hello).encode())
        with _raw_terminal(there):
            typed: list[Any] = [sys.stdin.fileno()]
            while True:
                ready, _, _ = select.select([there, *typed], [], [])
                if there in ready:
                    kind, data = receive(there)
                    if kind == b"x":
                        return int(data)
                    os.write(sys.stdout.fileno(), data)
                elif typed:
                    data = os.read(typed[0], 65536)
                    send(there, b"d", data or b"\x04")  # a file that has ended is a Ctrl-D
                    typed = typed if data else []


@contextlib.contextmanager
def _raw_terminal(there: socket.socket) -> Iterator[None]:
    """Keys go over as they are, and so does a new size of the window."""
    from stoker.compat.shells import send

    if not sys.stdin.isatty():
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    signal.signal(signal.SIGWINCH, lambda *_: send(there, b"w", json.dumps(_size()).encode()))
    try:
        tty.setraw(sys.stdin)
        yield
    finally:
        signal.signal(signal.SIGWINCH, signal.SIG_DFL)
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _size() -> list[int]:
    columns, rows = shutil.get_terminal_size()
    return [rows, columns]
