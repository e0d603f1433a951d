"""`stoker server`: the server starts by itself when a command needs it; these are for looking and for control."""

import argparse
import json
import os
import sys
import time
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from stoker.errors import ConflictError, ServerError, UsageError
from stoker.host.processes import ProcessId
from stoker.terminal import flags
from stoker.terminal.output import say, show_bar
from stoker.terminal.parser import Arguments, Parser

if TYPE_CHECKING:
    from stoker.client.client import Client

_STOP_TIMEOUT_S = 30.0


def build(parser: Parser) -> None:
    start_command = parser.add_command(
        "start", start, help="start the server in the background, if it is not running", example="stoker server start"
    )
    _add_database(start_command)
    parser.add_command(
        "stop", stop, help="end the server; jobs that run go on without it", example="stoker server stop"
    )
    status_command = parser.add_command(
        "status", status, help="say whether the server runs, and where", example="stoker server status --json"
    )
    status_command.add_argument("--json", action="store_true", help="pid, url, version and home, as JSON")
    run_command = parser.add_command(
        "run", run, help="run the server in the foreground, until Ctrl-C", example="stoker server run --port 8765"
    )
    run_command.add_argument(
        "--host", metavar="ADDRESS", help="an address of this machine (default: config.toml's listen, or 127.0.0.1)"
    )
    run_command.add_argument("--port", type=flags.whole, metavar="P", help="default: config.toml's listen, or any free")
    _add_database(run_command)
    copy = parser.add_command(
        "copy-store",
        copy_store,
        help="copy all that a server keeps into another database, which must be empty",
        example="stoker server copy-store --from sqlite:///home/ada/stoker.db --to postgresql://ada@db.example/stoker",
    )
    copy.add_argument("--from", dest="source", metavar="URL", help="default: the database of this home")
    copy.add_argument("--to", dest="target", metavar="URL", required=True, help="a database with no tables of ours")
    parser.allow_no_verb(serve, options=lambda noun: noun.add_argument("--database", metavar="URL", help=_DATABASE))


_DATABASE = (
    "where it keeps what it knows: postgresql://USER@HOST:PORT/NAME (default: config.toml, or a file in the home)"
)


def _add_database(command: Parser) -> None:
    # Without a default of its own: that would hide the one given before the verb.
    command.add_argument("--database", metavar="URL", default=argparse.SUPPRESS, help=_DATABASE)


def start(arguments: Arguments) -> None:
    from stoker.client.client import connect

    if arguments.database:
        _refuse_if_running()
        os.environ["STOKER_DATABASE"] = arguments.database
        say('This time. To keep it there, write it into config.toml: database = "…"')
    health = connect().health()
    say(f"The server runs at {health.url} (pid {health.pid}).")


def _refuse_if_running() -> None:
    from stoker.client.client import connect

    try:
        running = connect(start=False).health()
    except ServerError:
        return
    raise ConflictError(f"A server runs already (pid {running.pid}). End it first, with `stoker server stop`.")


def stop(arguments: Arguments) -> None:
    from stoker.client.client import connect
    from stoker.host.home import Home

    try:
        client = connect(start=False)
    except ServerError:
        say(f"No server is running for {Home.find().root}.")
        return
    # A server elsewhere (STOKER_SERVER) has a pid that means nothing here.
    server = ProcessId.of(client.address.pid) if client.address.pid else None
    client.shutdown()
    if server is not None:
        _wait_until_gone(server)
    say("The server has ended. Jobs that run go on; the next command that needs a server starts one.")


def status(arguments: Arguments) -> int:
    from stoker.client.client import connect
    from stoker.host.home import Home

    try:
        client = connect(start=False)
        health = client.health()
    except ServerError as error:
        if arguments.json:
            print(json.dumps({"running": False, "home": str(Home.find().root)}, indent=2))
        else:
            say(str(error))
        return 1
    if arguments.json:
        print(json.dumps({"running": True, **health.model_dump(mode="json")}, indent=2))
    else:
        shown = {"pid": health.pid, "url": health.url, "version": health.version, "home": health.home}
        shown["page"] = page_url(client)
        print("\n".join(f"{name + ':':<10}{value}" for name, value in shown.items()))
    return 0


def run(arguments: Arguments) -> None:
    # The command line that starts it in the background, in place of this process: signals reach it directly.
    never = str(100 * 365 * 86400)  # in the foreground it stays until it is told to go
    words = ["--idle-exit-s", never]
    words += [] if arguments.host is None else ["--host", arguments.host]
    words += [] if arguments.port is None else ["--port", str(arguments.port)]
    if arguments.database:
        os.environ["STOKER_DATABASE"] = arguments.database  # not among the words, which everybody can see
    os.execv(sys.executable, [sys.executable, "-P", "-m", "stoker.server", *words])


def serve(arguments: Arguments) -> None:
    """`stoker server --database URL`, without a verb."""
    if not arguments.database:
        raise UsageError("Missing: VERB. See `stoker server --help`.")
    arguments.host, arguments.port = None, None
    run(arguments)


def copy_store(arguments: Arguments) -> None:
    from stoker.engines.local import local_capacity
    from stoker.host.home import Home
    from stoker.server.settings import load_settings
    from stoker.server.store.copy import copy_all

    home = Home.find()
    source = arguments.source or load_settings(home.config, capacity=local_capacity).database or home.database
    copied = copy_all(source, arguments.target, step=_show_step)
    say(f"Copied {sum(copied.values())} rows of {len(copied)} tables; both sides were read back and are the same.")
    say('To use it from now on, write it into config.toml: database = "…"')


def _show_step(table: str, done: int, total: int) -> None:
    show_bar(table, done, total, words=f"{done} of {total}")


def page_url(client: "Client") -> str:
    """The page's address with the key to it."""
    return f"{client.address.url}/?{urlencode({'token': client.address.token})}"


def _wait_until_gone(server: ProcessId) -> None:
    deadline = time.monotonic() + _STOP_TIMEOUT_S
    while server.is_alive():
        if time.monotonic() > deadline:
            raise ServerError(f"The server (pid {server.pid}) was told to end and has not in {_STOP_TIMEOUT_S:g} s.")
        time.sleep(0.02)
