"""`stoker checkpoint`: what trials saved, by the uuid or path it is known by; Determined's verbs."""

import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from stoker.cli.experiment_lookup import find_job
from stoker.errors import ConflictError, NotFoundError, UsageError
from stoker.terminal import flags
from stoker.terminal.output import ago, csv_lines, print_json, say, table
from stoker.terminal.parser import Arguments, Parser

if TYPE_CHECKING:
    from stoker.client.client import Client
    from stoker.schema.record import CheckpointRecord

_ALL = 10_000
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def build(parser: Parser) -> None:
    command = parser.add_command(
        "list", list_, help="list a job's checkpoints, newest first", example="stoker checkpoint list mnist_1"
    )
    command.add_argument("name", metavar="JOB", help="the job's name or number")
    command.add_argument("--json", action="store_true", help="print JSON")

    command = parser.add_command(
        "describe",
        describe,
        help="say all about a checkpoint",
        example="stoker checkpoint describe 8d45f621-8652-4268-8445-6ae9a735e453",
    )
    _add_uuid(command)
    command.add_argument("--json", action="store_true", help="print JSON")

    command = parser.add_command(
        "download",
        download,
        help="copy a checkpoint to a folder",
        example="stoker checkpoint download 8d45f621-8652-4268-8445-6ae9a735e453 -o mnist",
    )
    _add_uuid(command)
    add_output(command)
    command.add_argument("--mode", metavar="MODE", help="accepted, and without meaning here: files are copied")
    command.add_argument("-q", "--quiet", action="store_true", help="print the folder alone (that is so anyway)")

    command = parser.add_command(
        "delete",
        delete,
        help="delete checkpoints' files, of jobs that have ended; that they were there stays known",
        example="stoker checkpoint delete 8d45f621-8652-4268-8445-6ae9a735e453 --yes",
        aliases=("rm",),
    )
    command.add_argument("uuids", metavar="UUID", nargs="+", help="uuids or paths; several may be joined by commas")
    command.add_argument("-y", "--yes", action="store_true", help="do it without asking")


def add_output(command: Parser) -> None:
    command.add_argument(
        "-o", "--output", "--output-dir", metavar="DIR", help="where to (checkpoints/UUID); it must not be there yet"
    )


def list_(arguments: Arguments) -> None:
    from stoker.client.client import connect

    client = connect()
    show(sorted(client.checkpoints(find_job(client, arguments.name)), key=lambda each: -each.time), arguments)


def show(found: "Sequence[CheckpointRecord]", arguments: Arguments) -> None:
    """A table of checkpoints, or JSON."""
    if arguments.json:
        print_json(found)
        return
    if not found:
        say("No checkpoints.")
        return
    now = time.time()
    is_csv = getattr(arguments, "csv", False)
    rows = [
        [str(each.trial), str(each.step), _state(each), size(each.size_bytes), ago(each.time, now=now), uuid_of(each)]
        for each in found
    ]
    print((csv_lines if is_csv else table)(["TRIAL", "STEP", "STATE", "SIZE", "SAVED", "UUID"], rows))


def add_sorting(command: Parser) -> None:
    command.add_argument("--sort-by", metavar="METRIC", help="the best by this metric, and not by the search's")
    command.add_argument(
        "--smaller-is-better", type=flags.boolean, metavar="BOOL", help="of that metric: true unless given"
    )


def best_by(client: "Client", job: str, arguments: Arguments, *, trial: int | None = None) -> "list[CheckpointRecord]":
    """The best by a metric first, as reported where each was saved. NotFoundError where none was."""
    from stoker.compat.determined.sdk_checkpoint import order_of

    metric = arguments.sort_by
    order = order_of(metric, None, arguments.smaller_is_better, searcher=("", True))
    points = [point for point in client.metrics(job) if metric in point.values]
    known = {(point.trial, point.step) for point in points}
    found = [
        each for each in client.checkpoints(job) if trial in (None, each.trial) and (each.trial, each.step) in known
    ]
    if not found:
        raise NotFoundError(f"{job} has no checkpoint where {metric!r} was reported.")
    return order.apply(found, points)


def describe(arguments: Arguments) -> None:
    from stoker.client.client import connect

    job, found = find_checkpoint(connect(), arguments.uuid)
    if arguments.json:
        print_json(found)
        return
    for name, value in _facts(job, found):
        print(f"{name + ':':<16}{value}")


def download(arguments: Arguments) -> None:
    from stoker.client.client import connect

    _, found = find_checkpoint(connect(), arguments.uuid)
    fetch(found.path, uuid_of(found), arguments.output)


def fetch(path: str, uuid: str, output: str | None) -> None:
    """Copy what is at a path to the folder that was asked for, and print it. UsageError if something is there."""
    target = Path(output) if output else Path("checkpoints") / Path(uuid).name
    check_is_free(target)
    copy(path, target)
    print(target)


def check_is_free(target: Path) -> None:
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"{target} is there already, and nothing is overwritten. Name another place by -o.")


def delete(arguments: Arguments) -> int:
    from stoker.client.client import connect

    client = connect()
    wanted = [uuid for word in arguments.uuids for uuid in word.split(",") if uuid]
    found = [find_checkpoint(client, uuid) for uuid in wanted]
    for job, record in found:
        if not client.job(job).state.is_final:
            raise ConflictError(f"{job} has not ended, and may go on from {uuid_of(record)}. End it first, or wait.")
    check_not_needed(client, [record for _, record in found])
    if not arguments.yes and not _is_sure(len(found)):
        say("Nothing was deleted.")
        return 1
    for _, record in found:
        _remove(record.path)
        print(uuid_of(record))
    return 0


def check_not_needed(client: "Client", records: "Sequence[CheckpointRecord]") -> None:
    """ConflictError where a version of a registered model was made of one, or has its files there."""
    for model in client.models():
        for version in client.versions(model.name):
            for record in records:
                own = record.path.rstrip("/")
                if any(f"{place.rstrip('/')}/".startswith(f"{own}/") for place in (version.url, version.source)):
                    raise ConflictError(
                        f"{uuid_of(record)} is needed by {version.reference}. Delete that first:"
                        f" `stoker versions delete {version.name} --model {version.model}`."
                    )


def find_checkpoint(client: "Client", given: str) -> "tuple[str, CheckpointRecord]":
    """A checkpoint and the name of its job, by uuid or path."""
    for job in client.jobs(limit=_ALL):
        for record in client.checkpoints(job.id):
            if given in (record.path, uuid_of(record)):
                return job.id, record
    raise NotFoundError(f"No checkpoint {given!r}. List a job's with `stoker checkpoint list JOB`.")


def uuid_of(record: "CheckpointRecord") -> str:
    """What Determined's library calls it by; the path of one that other code saved."""
    known = record.metadata.get("uuid")
    name = record.path.rstrip("/").rsplit("/", 1)[-1]
    return str(known) if known else name if len(name) == 36 and name.count("-") == 4 else record.path


def size(size_bytes: int) -> str:
    amount, unit = float(size_bytes), 0
    while amount >= 1024 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1024, unit + 1
    return f"{amount:.0f} {_UNITS[unit]}" if unit == 0 else f"{amount:.1f} {_UNITS[unit]}"


def copy(path: str, target: Path) -> None:
    """Folder to folder, or a file into the folder; whole or not at all."""
    if "://" in path:
        from stoker.host.home import Home
        from stoker.storage import Storage

        Storage(Home.find().root).copy(path, str(target), recursive=True)
        return
    source = Path(path)
    if not source.exists():
        raise NotFoundError(
            f"The checkpoint is at {path}, which is not on this machine (any more). Copy it from where the job ran."
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f"{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    if source.is_dir():
        shutil.copytree(source, partial)
    else:
        partial.mkdir(parents=True)
        shutil.copy2(source, partial / source.name)
    if target.exists():
        target.rmdir()
    partial.rename(target)


def _facts(job: str, found: "CheckpointRecord") -> Iterator[tuple[str, str]]:
    yield "checkpoint", uuid_of(found)
    yield "state", _state(found)
    yield "trial", f"{job}/{found.trial}"
    yield "step", str(found.step)
    yield "saved", ago(found.time, now=time.time())
    yield "size", size(found.size_bytes)
    yield "path", found.path
    for name, value in sorted(found.metadata.items()):
        if name != "uuid":
            yield name, str(value)


def _state(record: "CheckpointRecord") -> str:
    is_gone = "://" not in record.path and not Path(record.path).exists()
    return "DELETED" if is_gone else "COMPLETED"


def _is_sure(count: int) -> bool:
    import sys

    if not sys.stdin.isatty():
        raise UsageError(f"{count} checkpoints would be deleted for good. Say --yes to do it.")
    return input(f"Delete {count} checkpoints for good? [y/N] ").strip().lower() in ("y", "yes")


def _remove(path: str) -> None:
    if "://" in path:
        from stoker.host.home import Home
        from stoker.storage import Storage

        Storage(Home.find().root).remove(path, recursive=True)
    elif Path(path).is_dir():
        shutil.rmtree(path)
    else:
        Path(path).unlink(missing_ok=True)


def _add_uuid(command: Parser) -> None:
    command.add_argument("uuid", metavar="UUID", help="its uuid, or its path")
