"""`stoker init`: a package of training code to start from."""

import json
import shlex
from pathlib import Path

from stoker.errors import UsageError
from stoker.terminal.output import say, table
from stoker.terminal.parser import Arguments, Parser


def build(parser: Parser) -> None:
    parser.be_command(
        init,
        example="stoker init taxi-fares --template sklearn\ncd taxi-fares && make run_locally\n\nstoker init --list",
    )
    parser.add_argument("name", metavar="NAME", nargs="?", help="the project's name, and its directory's")
    parser.add_argument("--template", metavar="TEMPLATE", help="what to start from; --list shows them")
    parser.add_argument("--dir", type=Path, metavar="DIR", help="where to put it, instead of ./NAME")
    parser.add_argument("--list", action="store_true", help="list the templates")
    parser.add_argument("--json", action="store_true", help="print JSON")


def init(arguments: Arguments) -> None:
    if arguments.list:
        _list(as_json=arguments.json)
        return
    missing = [word for word, value in (("NAME", arguments.name), ("--template", arguments.template)) if not value]
    if missing:
        raise UsageError(f"Missing: {', '.join(missing)}. See `stoker init --list` and `stoker init --help`.")
    from stoker.templates import lay_down

    directory = lay_down(arguments.template, name=arguments.name, directory=arguments.dir)
    files = sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())
    if arguments.json:
        print(json.dumps({"directory": str(directory), "files": files}, indent=2))
        return
    print(directory)
    say(f"{len(files)} files of the template {arguments.template}; README.md says what is in them. Now train it:")
    say(f"\n  $ cd {shlex.quote(str(arguments.dir or arguments.name))} && make run_locally\n")


def _list(*, as_json: bool) -> None:
    from stoker.templates import available

    templates = available()
    if as_json:
        print(json.dumps([{"name": each.name, "summary": each.summary} for each in templates], indent=2))
        return
    print(table(["TEMPLATE", "FOR"], [[each.name, each.summary] for each in templates]))
