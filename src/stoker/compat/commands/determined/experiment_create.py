"""`stoker experiment create`, `fork` and `continue`: from a file, or from an experiment there is, to a new one."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from stoker.cli.experiment_lookup import find_job
from stoker.compat.search_config import (
    Override,
    add_config_flags,
    add_override_flag,
    load_config,
    overrides_of,
    read_search,
    with_overrides,
)
from stoker.errors import ConflictError, UsageError
from stoker.submission.reading import Document, JobValues, origin_of, overlay
from stoker.submission.shipment import Shipment
from stoker.submission.upload import JobRecord, SubmitClient
from stoker.terminal.output import say
from stoker.terminal.parser import Arguments, Parser

if TYPE_CHECKING:
    from stoker.client.client import Client
    from stoker.host.home import Home
    from stoker.schema.record import Job, Trial


def build(parser: Parser) -> None:
    command = parser.add_command(
        "create",
        create,
        help="search with the hyperparameters of a file; prints the experiment's id",
        example="stoker experiment create adaptive.yaml . --config searcher.max_trials=20 --follow-first-trial",
    )
    command.add_argument("config", metavar="CONFIG", help="Determined's file, a stoker.yaml, or AI Platform's")
    command.add_argument("directory", metavar="DIR", nargs="?", help="the code (the file's directory)")
    command.add_argument(
        "-i", "--include", action="append", default=[], metavar="PATH", help="ship this file or folder, too"
    )
    add_config_flags(command)
    _add_afterwards(command)
    command.add_argument("--project_id", "--project-id", metavar="N", help="accepted: there are no projects")
    trying = command.add_argument_group("trying it out")
    trying.add_argument(
        "-t",
        "--test",
        "--test-mode",
        action="store_true",
        help="one trial; a trial class trains and validates one batch",
    )
    trying.add_argument("--local", action="store_true", help="follow it: jobs of the local pool run on this machine")
    trying.add_argument(
        "-p", "--publish", action="append", metavar="PORT", help="accepted: a job's ports are open here"
    )

    command = parser.add_command(
        "fork",
        fork,
        help="make a new experiment of one there is: the same code, with what --config changes",
        example="stoker experiment fork mnist_1 --config searcher.max_trials=50",
    )
    command.add_argument("name", metavar="JOB", help="the experiment's name or number")
    add_override_flag(command)
    _add_afterwards(command)

    command = parser.add_command(
        "continue",
        continue_,
        help="go on in a new experiment: a single trial from its checkpoint, tpe, gp and cmaes from what they learnt",
        example="stoker experiment continue mnist_1 --config searcher.max_length.batches=2000",
    )
    command.add_argument("name", metavar="JOB", help="the experiment's name or number; it has ended")
    add_override_flag(command)
    command.add_argument("--config-file", metavar="FILE", help="a file with such settings")
    _add_afterwards(command)


def _add_afterwards(command: Parser) -> None:
    then = command.add_argument_group("and then")
    then.add_argument(
        "-f",
        "--follow-first-trial",
        "--follow",
        action="store_true",
        help="print the first trial's log until that trial has ended; a paused one's is not followed",
    )
    then.add_argument("--paused", action="store_true", help="pause it at once; `stoker experiment activate` starts it")
    then.add_argument("--json", action="store_true", help="print the job as JSON")


def create(arguments: Arguments) -> int:
    from stoker.compat.experiments import create_experiment
    from stoker.host.home import Home

    file = Path(arguments.config)
    template = Path(arguments.template) if arguments.template else None
    home = Home.find().make()
    job = create_experiment(
        load_config(file, notify=say, template=template, overrides=arguments.overrides),
        Path(arguments.directory) if arguments.directory else file.parent,
        source=str(file),
        home=home,
        notify=say,
        include=[Path(path) for path in arguments.include],
        is_test=arguments.test,
    )
    arguments.follow_first_trial |= arguments.local
    return _afterwards(arguments, job, home=home)


def fork(arguments: Arguments) -> int:
    from stoker.client.client import connect
    from stoker.host.home import Home

    home = Home.find().make()
    client = connect(home)
    source = client.job(find_job(client, arguments.name))
    values = forked(source, arguments.overrides)
    job = _submit_again(values, source, home=home)
    return _afterwards(arguments, job, home=home)


def continue_(arguments: Arguments) -> int:
    from stoker.client.client import connect
    from stoker.host.home import Home

    home = Home.find().make()
    client = connect(home)
    source = client.job(find_job(client, arguments.name))
    if not source.state.is_final:
        raise ConflictError(
            f"Experiment {source.id} is {source.state}: only one that has ended is continued."
            f" A paused one goes on with `stoker experiment activate {source.id}`."
        )
    in_file = overrides_of(load_config(Path(arguments.config_file), notify=say)) if arguments.config_file else []
    values = forked(source, [*in_file, *arguments.overrides])
    values["search"] = {**values["search"], **_continuation(client, source)}
    job = _submit_again(values, source, home=home)
    return _afterwards(arguments, job, home=home)


def forked(source: "Job", overrides: Sequence[Override]) -> JobValues:
    """The stored spec with overrides, which are in the words of the file it was made of."""
    from stoker.schema.job import JobSpec

    if source.spec.search is None:
        raise UsageError(f"Job {source.id} has no search, so there is nothing to fork. Submit it again by its file.")
    spec = source.spec.model_dump(mode="json")
    original = origin_of(spec).get("document")
    where = f"The experiment {source.id}, overridden,"
    if not original:
        spec = with_overrides(spec, overrides)
        JobSpec.parse(spec, source=where)
        return cast("JobValues", spec)
    document = with_overrides({**original, **({"data": spec["data"]} if spec["data"] else {})}, overrides)
    reading = read_search(document, source=where)
    kept = ["package", "import_roots"]
    if document.get("entrypoint") == original.get("entrypoint"):
        kept.append("command")  # which has a startup hook in front, and links to what was mounted
    shipped = {name: spec[name] for name in kept}
    environment = {name: spec["environment"][name] for name in ("runtime", "python", "requirements", "archives")}
    return overlay(reading.values, {**shipped, "environment": environment})


def _continuation(client: "Client", source: "Job") -> Document:
    """What of its search a new one begins with. UsageError where there is nothing to go on from."""
    assert source.spec.search is not None
    sampler = source.spec.search.sampler.name
    if sampler in ("tpe", "gp", "cmaes"):
        return {"resume_from": source.id}
    if sampler == "single":
        trial = _single_trial(client, source)
        return {"warm_start": {"trial": trial.id}}
    raise UsageError(
        f"A {sampler} search learns nothing from trial to trial, so {source.id} cannot be continued."
        f" Try other points with `stoker experiment fork {source.id} --config …` and another seed."
    )


def _single_trial(client: "Client", source: "Job") -> "Trial":
    trials = client.trials(source.id, limit=1).trials
    if not trials or trials[0].latest_checkpoint is None:
        raise UsageError(
            f"Experiment {source.id} left no checkpoint to continue from."
            f" Start over with `stoker experiment fork {source.id}`."
        )
    return trials[0]


def _submit_again(values: JobValues, source: "Job", *, home: "Home") -> JobRecord:
    """With the code of the experiment it is made of, which the server has."""
    shipment = Shipment({**values, "name": base_of(source)})
    with SubmitClient(home) as server:
        return server.submit_numbered(shipment)


def base_of(source: "Job") -> str:
    """The name without its number."""
    base, _, number = source.id.rpartition("_")
    return base if base and number.isdecimal() else source.id


def _afterwards(arguments: Arguments, job: JobRecord, *, home: "Home") -> int:
    from stoker.client.client import connect

    name = job["id"]
    if arguments.paused:
        job = connect(home).pause(name).model_dump(mode="json")
    print(json.dumps(job, indent=2) if arguments.json else name)
    say(f"Experiment [{name}] created (number {job['number']}).")
    if arguments.follow_first_trial and not arguments.paused:
        from stoker.compat.commands.determined.trial import follow_trial

        return follow_trial(connect(home), name, 1)
    say(f"See how it stands: stoker experiment describe {name}")
    return 0
