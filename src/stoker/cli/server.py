"""`stoker server`: the server starts by itself when a command needs it; these are for looking and for control."""

import json
import os
import sys
import time
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from stoker.cli import flags
from stoker.cli.output import say
from stoker.cli.parser import Arguments, Parser
from stoker.errors import ServerError
from stoker.processes import ProcessId

if TYPE_CHECKING:
    from stoker.client import Client

_STOP_TIMEOUT_S = 30.0


def build(parser: Parser) -> None:
    parser.add_command(
        "start", start, help="start the server in the background, if it is not running", example="stoker server start"
    )
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
    run_command.add_argument("--host", default="127.0.0.1", metavar="ADDRESS", help="a loopback address (127.0.0.1)")
    run_command.add_argument("--port", type=flags.whole, default=0, metavar="P", help="a free one if not given")


def start(arguments: Arguments) -> None:
    from stoker.client import connect

    health = connect().health()
    say(f"The server runs at {health.url} (pid {health.pid}).")


def stop(arguments: Arguments) -> None:
    from stoker.client import connect
    from stoker.home import Home

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
    from stoker.client import connect
    from stoker.home import Home

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
    words = ["--host", arguments.host, "--port", str(arguments.port), "--idle-exit-s", never]
    os.execv(sys.executable, [sys.executable, "-m", "stoker.server", *words])


def page_url(client: "Client") -> str:
    """The page's address with the key to it."""
    return f"{client.address.url}/?{urlencode({'token': client.address.token})}"


def _wait_until_gone(server: ProcessId) -> None:
    deadline = time.monotonic() + _STOP_TIMEOUT_S
    while server.is_alive():
        if time.monotonic() > deadline:
            raise ServerError(f"The server (pid {server.pid}) was told to end and has not in {_STOP_TIMEOUT_S:g} s.")
        time.sleep(0.02)
