"""`stoker server`: the server starts by itself when a command needs it; these are for looking and for control."""

import json
import os
import sys
import time
from pathlib import Path

from stoker.cli.output import say
from stoker.cli.parser import Arguments, Parser
from stoker.errors import ServerError

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
    parser.add_command("run", run, help="run the server in the foreground", example="stoker server run")


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
    pid = client.health().pid
    client.shutdown()
    _wait_until_gone(pid)
    say("The server has ended. Jobs that run go on; the next command that needs a server starts one.")


def status(arguments: Arguments) -> int:
    from stoker.client import connect
    from stoker.home import Home

    try:
        health = connect(start=False).health()
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
        print("\n".join(f"{name + ':':<10}{value}" for name, value in shown.items()))
    return 0


def run(arguments: Arguments) -> None:
    # The same command line that starts it in the background, in place of this process: signals reach it directly.
    os.execv(sys.executable, [sys.executable, "-m", "stoker.server"])


def _wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + _STOP_TIMEOUT_S
    while time.monotonic() < deadline:
        if not _is_alive(pid):
            return
        time.sleep(0.02)
    raise ServerError(f"The server (pid {pid}) was told to end and has not within {_STOP_TIMEOUT_S:g} s.")


def _is_alive(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    if stat.exists():  # a zombie has ended, though nobody has asked it how
        return stat.read_text().rpartition(")")[2].split()[0] != "Z"
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return not Path("/proc/self").exists()
