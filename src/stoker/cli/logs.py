"""`stoker jobs stream-logs` and `logs`: a job's lines as they were written, chosen and followed."""

import json
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stoker.compat.aiplatform.gcloud import add_global_flags, replica_of_task
from stoker.terminal import flags
from stoker.terminal.output import LEVEL_COLOURS, duration, has_colours, paint, say
from stoker.terminal.parser import Arguments, Parser

if TYPE_CHECKING:
    from stoker.client.client import Client
    from stoker.schema.record import Job, LogBlock

Filters = dict[str, str | int | float | None]


def add_log_flags(parser: Parser) -> None:
    """What both commands take to choose lines."""
    which = parser.add_argument_group("which lines")
    which.add_argument("--tail", type=flags.whole, metavar="N", help="only the last N lines (then those that follow)")
    which.add_argument("--replica", metavar="NAME", help="of one process: chief-0, worker-1, ps-0, supervisor")
    which.add_argument("--task-name", metavar="TASK", help="the same in gcloud's words: master-replica-0")
    which.add_argument("--rank", "--rank-id", type=flags.whole, metavar="N", help="of the process with this rank")
    which.add_argument("--level", type=str.upper, metavar="LEVEL", help="of this level or worse, like WARNING")
    which.add_argument("--text", metavar="TEXT", help="that contain TEXT")
    which.add_argument("--regex", metavar="PATTERN", help="that match PATTERN")
    which.add_argument("--since", type=flags.seconds, metavar="AGE", help="written at most this long ago: 90s, 10m, 2h")
    which.add_argument("--until", type=flags.seconds, metavar="AGE", help="written at least this long ago")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--polling-interval", metavar="S", help="accepted for gcloud's sake: lines come at once")
    parser.add_argument("--allow-multiline-logs", action="store_true", help="accepted for gcloud's sake")
    add_global_flags(parser)


def stream_logs(arguments: Arguments) -> int:
    from stoker.client.client import connect

    return follow(connect(), arguments.name, filters=read_filters(arguments), as_json=arguments.json)


def logs(arguments: Arguments) -> int:
    from stoker.client.client import connect

    client = connect()
    filters = read_filters(arguments)
    if arguments.follow:
        return follow(client, arguments.name, filters=filters, as_json=arguments.json)
    writer = writer_of(client.job(arguments.name), as_json=arguments.json)
    for block in _pages(client, arguments.name, filters):
        writer.write(block)
    return 0


def follow(client: "Client", name: str, *, filters: Filters | None = None, as_json: bool = False) -> int:
    """Print lines until the job has ended, then how it ended. Ctrl-C ends the following, not the job."""
    try:
        writer = writer_of(client.job(name), as_json=as_json)
        for block in client.follow(name, **(filters or {})):
            writer.write(block)
        job = client.wait(name)
    except KeyboardInterrupt:
        sys.stdout.flush()
        say(f"\nStopped following. Job [{name}] goes on: `stoker jobs stream-logs {name}` follows it again,")
        say(f"`stoker jobs cancel {name}` ends it.")
        return 130
    sys.stdout.flush()
    say(ending(job))
    return exit_code(job)


def exit_code(job: "Job") -> int:
    return 0 if job.state.value == "SUCCEEDED" else 1


def ending(job: "Job") -> str:
    """How a job ended, in a line or two."""
    from stoker.terminal.output import STATE_COLOURS

    state = paint(job.state, STATE_COLOURS.get(job.state), stream=sys.stderr)
    took = f" after {duration(job.ended - job.created)}" if job.ended is not None else ""
    if job.state.value != "FAILED":
        return f"Job [{job.id}] {state}{took}."
    why = f": {job.reason}" if job.reason else "."
    return f"Job [{job.id}] {state}{took}{why}\nSee it whole with `stoker jobs describe {job.id}`."


@dataclass(slots=True)
class Writer:
    """Prints blocks of lines to stdout, as text or as JSON; tells when the lines of a trial's restart begin."""

    show_replica: bool
    as_json: bool
    colours: bool
    show_trial: bool = False
    attempts: dict[int, int] = field(default_factory=dict)  # of each trial, the run whose lines came last

    def write(self, block: "LogBlock") -> None:
        render = self._json if self.as_json else self._text
        if self.attempts.get(block.trial, block.attempt) != block.attempt and not self.as_json:
            say(f"--- {block.run} starts: run {block.attempt} ---")
        self.attempts[block.trial] = block.attempt
        sys.stdout.write("".join(f"{line}\n" for line in render(block)))
        sys.stdout.flush()

    def _json(self, block: "LogBlock") -> Iterator[str]:
        shared = {"time": block.time, "run": block.run, "trial": block.trial, "attempt": block.attempt}
        for offset, text in enumerate(block.text.split("\n")):
            own = {
                "replica": block.replica,
                "stream": block.stream,
                "level": block.levels.get(offset, "INFO"),
                "text": text,
            }
            yield json.dumps({**shared, **own})

    def _text(self, block: "LogBlock") -> Iterator[str]:
        clock = time.strftime("%H:%M:%S", time.localtime(block.time))
        who = f"  trial {block.trial:<4}" if self.show_trial else ""
        who += f"  {block.replica:<10}" if self.show_replica else ""
        ours = block.replica == "supervisor"
        for offset, text in enumerate(block.text.split("\n")):
            line = f"{clock}{who}  {'stoker: ' if ours and not self.show_replica else ''}{text}"
            level = block.levels.get(offset)
            colour = "grey" if ours and level is None else LEVEL_COLOURS.get(level or "")
            yield paint(line, colour) if self.colours else line


def writer_of(job: "Job", *, as_json: bool) -> Writer:
    return Writer(
        show_replica=_may_have_several(job),
        as_json=as_json,
        colours=has_colours(sys.stdout),
        show_trial=job.spec.search is not None,
    )


def _may_have_several(job: "Job") -> bool:
    """Whether lines need their process's name. A tier's size is the pool's to say, but two are known to be one."""
    resources = job.spec.resources
    if resources.roles is not None:
        return sum(role.count for role in resources.roles.values()) > 1
    if resources.tier is not None:
        return resources.tier not in ("BASIC", "BASIC_GPU")
    return resources.slots > 1


def _pages(client: "Client", name: str, filters: Filters) -> Iterable["LogBlock"]:
    page = client.logs(name, **filters)
    while page.blocks:
        yield from page.blocks
        if filters.get("tail") is not None:
            return
        page = client.logs(name, **filters, after=page.cursor)


def read_filters(arguments: Arguments) -> Filters:
    now = time.time()
    replica = arguments.replica
    if arguments.task_name is not None:
        replica = replica_of_task(arguments.task_name)
    if arguments.rank is not None:
        replica = "chief-0" if arguments.rank == 0 else f"worker-{arguments.rank - 1}"
    return {
        "replica": replica,
        "level": arguments.level,
        "text": arguments.text,
        "regex": arguments.regex,
        "since": None if arguments.since is None else now - arguments.since,
        "until": None if arguments.until is None else now - arguments.until,
        "tail": arguments.tail,
    }
