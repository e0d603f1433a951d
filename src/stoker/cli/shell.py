"""`stoker shell`: refused, with what to do instead: a job here is a process of this machine, not a container."""

from stoker.cli.parser import Arguments, Parser
from stoker.errors import UsageError


def build(parser: Parser) -> None:
    command = parser.add_command(
        "start", start, help="refused, with what to do instead", example="stoker shell start --config resources.slots=1"
    )
    command.add_argument("words", nargs="...", metavar="X", help="any")


def start(arguments: Arguments) -> None:
    raise UsageError(
        "There is no container to log into: jobs are processes of the pool's machines. Run one command in a job's"
        " environment with `stoker cmd run --context . COMMAND`, or work in one with `stoker notebook start`, which has"
        " terminals."
    )
