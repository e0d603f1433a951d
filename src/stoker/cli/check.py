"""`stoker check`: what a package needs, beside what a runtime has, before anything is submitted."""

import json
import sys
from typing import TYPE_CHECKING

from stoker.terminal.output import say, table
from stoker.terminal.parser import Arguments, Parser

if TYPE_CHECKING:
    from stoker.packaging.environment.check import Report

_COLOURS = {"ok": "green", "conflict": "red", "no build": "red", "unknown": "red", "build": "yellow"}
_EXAMPLE = """
stoker check ./trainer
stoker check ./trainer --python-version 3.7
stoker check trainer-0.1.tar.gz --prefer-runtime --json
"""


def build(parser: Parser) -> None:
    parser.be_command(check_package, example=_EXAMPLE)
    parser.add_argument("package", metavar="PACKAGE", help="a directory of code, or a wheel, sdist or zip")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--prefer-runtime", action="store_true", help="take the runtime's version of what the package pins otherwise"
    )
    parser.add_argument(
        "--runtime-version", "--runtime", dest="runtime", metavar="NAME", help="the runtime; `stoker runtimes list`"
    )
    parser.add_argument("--python-version", dest="python", metavar="X.Y", help="a runtime with this Python")


def check_package(arguments: Arguments) -> int:
    from pathlib import Path

    from stoker.host.home import Home
    from stoker.packaging.environment.check import check

    report = check(
        Path(arguments.package),
        home=Home.find().make(),
        runtime=arguments.runtime,
        python=arguments.python,
        prefer_runtime=arguments.prefer_runtime,
    )
    if arguments.json:
        print(json.dumps(_plain(report), indent=2))
    else:
        _show(report)
    return 0 if report.can_run else 2


def _show(report: "Report") -> None:
    for note in report.notes:
        say(note)
    if report.rows:
        head = ["REQUIREMENT", "VERDICT", "RUNTIME HAS", "DETAIL"]
        rows = [[row.requirement, str(row.verdict), row.runtime_has or "-", row.detail] for row in report.rows]
        print(table(head, rows, colours=[_COLOURS.get(row.verdict) for row in report.rows]))
    else:
        print("It requires nothing.")
    if report.also:
        print(f"Needed by these, and installed too: {', '.join(report.also)}")
    sys.stdout.flush()  # what is said below comes after the table, also where both go to one file
    verdict = "can run" if report.can_run else "cannot run"
    say(f"{report.package} {verdict} on the runtime {report.runtime} (Python {report.python}).")


def _plain(report: "Report") -> dict[str, object]:
    rows = [
        {
            "requirement": row.requirement,
            "runtime_has": row.runtime_has,
            "verdict": str(row.verdict),
            "detail": row.detail,
        }
        for row in report.rows
    ]
    return {
        "package": report.package,
        "runtime": report.runtime,
        "python": report.python,
        "can_run": report.can_run,
        "requirements": rows,
        "also": list(report.also),
        "notes": list(report.notes),
    }
