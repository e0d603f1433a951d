"""`stoker experiment`: labels and archiving, its file, its code and its checkpoints; Determined's verbs for them."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from stoker.cli.experiment_lookup import all_trials, find_job
from stoker.compat.commands.determined import checkpoint
from stoker.errors import NotFoundError, UsageError
from stoker.terminal import flags
from stoker.terminal.output import say
from stoker.terminal.parser import Arguments, Parser

if TYPE_CHECKING:
    from stoker.client.client import Client
    from stoker.schema.record import CheckpointRecord, Job

ARCHIVED = "archived"
# What has no meaning here, and what to do instead.
_REFUSED = {
    "delete": "Jobs are kept: what is known of one takes little room. `stoker experiment archive {name}` hides it, and"
    " `stoker checkpoint delete UUID` frees the disk",
    "move": "There are no projects here. `stoker experiment label add {name} PROJECT` puts experiments together",
    "delete-tb-files": "Event files lie in the run's directory, and go with it",
}
_NOT_SET = {
    "description": "A file is kept as it was submitted. Say it by a label: `stoker experiment label add {name} X`",
    "name": "A job's name is its identity. Say it by a label: `stoker experiment label add {name} X`",
    "gc-policy": "What is kept is said by the file (checkpoint_storage: save_trial_best, …) when it is created",
    "log-retention": "Logs are kept for as long as the job is: there is nothing to set",
}


def build(parser: Parser) -> None:
    _build_reading(parser)
    _build_labels(parser)
    for verb, why in _REFUSED.items():
        _refused(parser, verb, why, example=f"stoker experiment {verb} mnist_1")


def build_settings(group: Parser) -> None:
    for verb, why in _NOT_SET.items():
        _refused(group, verb, why, example=f"stoker experiment set {verb} mnist_1 x")


def _build_reading(parser: Parser) -> None:
    command = parser.add_command(
        "config", config, help="print an experiment's file, as it was submitted", example="stoker experiment config 3"
    )
    _add_name(command)
    command.add_argument("--json", action="store_true", help="as JSON")

    command = parser.add_command(
        "list-checkpoints",
        list_checkpoints,
        help="list an experiment's checkpoints",
        example="stoker experiment list-checkpoints mnist_1 --best 3",
        aliases=("lc",),
    )
    _add_name(command)
    command.add_argument("--csv", action="store_true", help="print CSV")
    command.add_argument("--best", type=flags.positive, metavar="N", help="of the N best trials, the best first")
    command.add_argument("--json", action="store_true", help="print JSON")

    command = parser.add_command(
        "download",
        download,
        help="copy the checkpoints of the best trials, each into a folder of its own",
        example="stoker experiment download mnist_1 --top-n 2 -o best",
    )
    _add_name(command)
    command.add_argument("--top-n", type=flags.positive, default=1, metavar="N", help="so many (1)")
    checkpoint.add_sorting(command)
    command.add_argument("-q", "--quiet", action="store_true", help="print the folders alone (that is so anyway)")
    command.add_argument("-o", "--output-dir", default="checkpoints", metavar="DIR", help="where to (checkpoints)")

    command = parser.add_command(
        "download-model-def",
        download_code,
        help="unpack the code that was submitted",
        example="stoker experiment download-model-def mnist_1 --output-dir code",
    )
    _add_name(command)
    command.add_argument("-o", "--output-dir", default=".", metavar="DIR", help="where to (.)")


def _build_labels(parser: Parser) -> None:
    group = parser.add_group("label", help="add and remove labels")
    for verb, run in (("add", label_add), ("remove", label_remove)):
        command = group.add_command(
            verb, run, help=f"{verb} a label", example=f"stoker experiment label {verb} mnist_1 baseline"
        )
        _add_name(command)
        command.add_argument("label", metavar="LABEL", help="a word, or k=v")
    for verb, run in (("archive", archive), ("unarchive", unarchive)):
        command = parser.add_command(
            verb,
            run,
            help=f"{'hide an experiment from' if verb == 'archive' else 'show it again in'} `stoker experiment list`",
            example=f"stoker experiment {verb} mnist_1",
        )
        _add_name(command)


def config(arguments: Arguments) -> None:
    from stoker.client.client import connect

    client = connect()
    document = document_of(client.job(find_job(client, arguments.name)))
    if arguments.json:
        import json

        print(json.dumps(document, indent=2))
        return
    import yaml

    print(yaml.safe_dump(document, sort_keys=False, allow_unicode=True), end="")


def document_of(job: "Job") -> dict[str, Any]:
    """The file it was made of, where that was Determined's; else the job in our own words."""
    origin = job.spec.origin
    if origin is not None and origin.document:
        return origin.document
    return job.spec.model_dump(mode="json", exclude_defaults=True)


def list_checkpoints(arguments: Arguments) -> None:
    from stoker.client.client import connect

    client = connect()
    name = find_job(client, arguments.name)
    found = list(client.checkpoints(name))
    if arguments.best is not None:
        found = best_checkpoints(client, name, arguments.best)
    checkpoint.show(found, arguments)


def best_checkpoints(client: "Client", name: str, count: int) -> "list[CheckpointRecord]":
    """The latest of each of the best trials; of a job without a search, its own."""
    records = {record.path: record for record in client.checkpoints(name)}
    if client.job(name).spec.search is None:
        return sorted(records.values(), key=lambda record: -record.step)[:count]
    order = [trial.number for trial in client.search(name, best=count).best]
    latest = {trial.number: trial.latest_checkpoint for trial in all_trials(client, name)}
    paths = [path for number in order if (path := latest.get(number)) is not None]
    return [records[path] for path in paths if path in records]


def download(arguments: Arguments) -> None:
    from stoker.client.client import connect

    client = connect()
    name = find_job(client, arguments.name)
    if arguments.sort_by:
        found = checkpoint.best_by(client, name, arguments)[: arguments.top_n]
    else:
        found = best_checkpoints(client, name, arguments.top_n)
    if not found:
        raise NotFoundError(f"{name} has no checkpoint of a trial that reported the searched metric.")
    for record in found:
        uuid = checkpoint.uuid_of(record)
        checkpoint.fetch(record.path, uuid, str(Path(arguments.output_dir) / f"trial_{record.trial}" / Path(uuid).name))


def download_code(arguments: Arguments) -> None:
    from stoker.client.client import connect
    from stoker.compat import experiments

    client = connect()
    target = Path(arguments.output_dir)
    experiments.download_code(client, client.job(find_job(client, arguments.name)), target)
    print(target)


def label_add(arguments: Arguments) -> None:
    key, _, value = arguments.label.partition("=")
    _change(arguments.name, add={key: value})


def label_remove(arguments: Arguments) -> None:
    _change(arguments.name, remove=arguments.label.partition("=")[0])


def archive(arguments: Arguments) -> None:
    _change(arguments.name, add={ARCHIVED: "true"}, only_ended=True)


def unarchive(arguments: Arguments) -> None:
    _change(arguments.name, remove=ARCHIVED)


def _change(given: str, *, add: dict[str, str] | None = None, remove: str = "", only_ended: bool = False) -> None:
    from stoker.client.client import connect

    client = connect()
    job = client.job(find_job(client, given))
    if only_ended and not job.state.is_final:
        raise UsageError(f"{job.id} has not ended ({job.state.value}): only what has ended is archived.")
    labels = {key: value for key, value in {**job.labels, **(add or {})}.items() if key != remove}
    changed = client.update(job.id, labels=labels)
    shown = ", ".join(f"{key}={value}" if value else key for key, value in changed.labels.items())
    say(f"Labels of [{job.id}]: {shown or 'none'}.")


def _refused(parser: Parser, verb: str, why: str, *, example: str) -> None:
    def run(arguments: Arguments) -> None:
        raise UsageError(f"{why.format(name=arguments.name)}.")

    command = parser.add_command(verb, run, help="refused, with what to do instead", example=example)
    _add_name(command)
    command.add_argument("value", nargs="*", metavar="X", help="any")
    if verb == "delete":
        command.add_argument("-y", "--yes", action="store_true", help="any")


def _add_name(command: Parser) -> None:
    command.add_argument("name", metavar="JOB", help="the experiment's name or number")
