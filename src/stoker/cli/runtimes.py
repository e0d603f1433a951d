"""`stoker runtimes`: the Pythons that jobs can be layered on."""

import json
from typing import TYPE_CHECKING

from stoker.terminal.output import say, table
from stoker.terminal.parser import Arguments, Parser

if TYPE_CHECKING:
    from stoker.packaging.environment.runtimes import Runtime


def build(parser: Parser) -> None:
    listing = parser.add_command(
        "list",
        list_all,
        help="list runtimes: stoker's own Python, those you added, those found on this machine",
        example="stoker runtimes list --json",
    )
    listing.add_argument("--json", action="store_true", help="print JSON")
    adding = parser.add_command(
        "add",
        add,
        help="name a Python, so that jobs can ask for it",
        example="stoker runtimes add tf1 --python ~/envs/tf1/bin/python\nstoker runtimes add 1.15 --python ~/envs/tf1",
    )
    adding.add_argument("name", metavar="NAME", help="its name; a version, like 1.15, answers --runtime-version 1.15")
    adding.add_argument(
        "--python", required=True, metavar="PATH", help="an interpreter, a command on PATH, or a virtual environment"
    )
    removing = parser.add_command(
        "remove",
        remove,
        help="forget a runtime that was added; its Python is left alone",
        example="stoker runtimes remove tf1",
    )
    removing.add_argument("name", metavar="NAME", help="the runtime")


def list_all(arguments: Arguments) -> None:
    from stoker.host.home import Home
    from stoker.packaging.environment.runtimes import list_runtimes

    runtimes = list_runtimes(Home.find().make())
    if arguments.json:
        print(json.dumps([_plain(runtime) for runtime in runtimes], indent=2))
        return
    rows = [[each.name, each.version, each.origin, _libraries(each), str(each.python)] for each in runtimes]
    print(table(["RUNTIME", "PYTHON", "ORIGIN", "HAS", "PATH"], rows))


def add(arguments: Arguments) -> None:
    from stoker.host.home import Home
    from stoker.packaging.environment.runtimes import add_runtime

    runtime = add_runtime(Home.find().make(), arguments.name, python=arguments.python)
    print(runtime.name)
    say(f"{runtime} is {runtime.python}. Use it with --runtime-version {runtime.name}.")


def remove(arguments: Arguments) -> None:
    from stoker.host.home import Home
    from stoker.packaging.environment.runtimes import remove_runtime

    remove_runtime(Home.find(), arguments.name)
    say(f"Forgot the runtime {arguments.name}.")


def _libraries(runtime: "Runtime") -> str:
    """The heavy ones, which are why one runtime is chosen over another."""
    from stoker.packaging.environment.distributions import Installed

    installed = Installed(runtime)
    versions = [(name, installed.version(name)) for name in ("torch", "tensorflow", "scikit-learn", "pandas")]
    return ", ".join(f"{name} {version}" for name, version in versions if version) or "-"


def _plain(runtime: "Runtime") -> dict[str, object]:
    from stoker.packaging.environment.distributions import Installed

    installed = Installed(runtime)
    return {
        "name": runtime.name,
        "python": str(runtime.python),
        "version": runtime.version,
        "origin": runtime.origin,
        "installed": {one.name: installed.version(one.name) for one in sorted(installed, key=lambda one: one.name)},
    }
