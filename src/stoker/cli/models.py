"""`stoker models`: names under which versions of a model are kept; AI Platform's verbs, and `register`."""

import time
from typing import TYPE_CHECKING

from stoker.cli.version_report import print_version, print_versions
from stoker.compat.aiplatform.gcloud import add_global_flags, add_region_flag
from stoker.errors import ConflictError, NotFoundError, UsageError
from stoker.terminal import flags
from stoker.terminal.output import ago, print_json, say, table
from stoker.terminal.parser import Arguments, Parser

if TYPE_CHECKING:
    from stoker.client.client import Client
    from stoker.schema.registry import RegisteredModel, Version


def build(parser: Parser) -> None:
    _build_models(parser)
    _build_registering(parser)


def _build_models(parser: Parser) -> None:
    command = parser.add_command(
        "list", list_models, help="list the models", example="stoker models list", aliases=("ls",)
    )
    for flag in ("--sort-by", "--order-by", "--workspace-names"):
        command.add_argument(flag, metavar="X", help="accepted: they are sorted by name")
    _add_output(command)

    command = parser.add_command(
        "create",
        create,
        help="make a model: a name, to keep versions under",
        example="stoker models create taxi_fare --description 'what a ride costs' --labels team=fares",
    )
    _add_name(command)
    command.add_argument("--description", default="", metavar="TEXT", help="what it is for")
    command.add_argument("--labels", type=flags.key_values, action="append", metavar="K=V,…", help="to find it by")
    command.add_argument("--regions", metavar="X", help="accepted, and without meaning here")
    for flag in ("--enable-logging", "--enable-console-logging"):
        command.add_argument(flag, action="store_true", help="accepted, and without meaning here")
    _add_output(command)

    command = parser.add_command(
        "describe", describe, help="say all about a model", example="stoker models describe taxi_fare"
    )
    _add_name(command)
    _add_output(command)

    command = parser.add_command(
        "delete", delete, help="delete a model that has no versions", example="stoker models delete taxi_fare"
    )
    _add_name(command)
    add_region_flag(command)
    add_global_flags(command)

    command = parser.add_command(
        "list-versions",
        list_versions,
        help="list a model's versions, newest first (Determined's word for `stoker versions list`)",
        example="stoker models list-versions taxi_fare",
    )
    _add_name(command)
    _add_output(command)


def _build_registering(parser: Parser) -> None:
    command = parser.add_command(
        "register",
        register,
        help="keep what a job made as a new version: the model it saved, one in its job-dir, or its best checkpoint",
        example="stoker models register taxi_1 --name taxi_fare --alias production",
    )
    command.add_argument("job", metavar="JOB", help="the job; of a search, its best trial is taken")
    command.add_argument("--trial", type=flags.positive, metavar="N", help="another trial of it")
    command.add_argument("--name", metavar="MODEL", help="the model, made if it is not there (the job's name)")
    command.add_argument("--version", metavar="V", help="the version's name; v1, v2, … without one")
    _add_words(command)

    command = parser.add_command(
        "register-version",
        register_version,
        help="keep what a trial made as a new version of a model (Determined's word)",
        example="stoker models register-version taxi_fare taxi_search_1/7",
    )
    _add_name(command)
    command.add_argument("source", metavar="TRIAL", help="JOB/NUMBER or a trial's id; or a checkpoint's path")
    command.add_argument("--version", metavar="V", help="the version's name; v1, v2, … without one")
    _add_words(command)


def _add_words(command: Parser) -> None:
    command.add_argument("--alias", metavar="A", help="what it is called besides: production")
    command.add_argument("--description", default="", metavar="TEXT", help="what is new in it")
    _add_output(command)


def list_models(arguments: Arguments) -> None:
    from stoker.client.client import connect

    found = connect().models()
    if arguments.json:
        print_json(found)
    elif found:
        rows = [
            [model.name, str(model.num_versions), model.default_version or "-", _aliases(model), _created(model)]
            for model in found
        ]
        print(table(["NAME", "VERSIONS", "DEFAULT", "ALIASES", "CREATED"], rows))
    else:
        say("No models.")


def create(arguments: Arguments) -> None:
    from stoker.client.client import connect
    from stoker.schema.registry import NewModel

    given = {"name": arguments.name, "description": arguments.description}
    new = NewModel.parse({**given, "labels": flags.merged(arguments.labels) or {}}, source="The command line")
    made = connect().create_model(new)
    say(f"Created model [{made.name}].")
    if arguments.json:
        print_json(made)


def describe(arguments: Arguments) -> None:
    from stoker.client.client import connect

    client = connect()
    model = client.model(arguments.name)
    if arguments.json:
        print_json(model)
        return
    facts = {
        "name": model.name,
        "description": model.description,
        "labels": ", ".join(f"{key}={value}" for key, value in sorted(model.labels.items())),
        "created": _created(model),
        "default": model.default_version or "(none: it has no version yet)",
        "aliases": _aliases(model),
    }
    print("\n".join(f"{name + ':':<16}{value}" for name, value in facts.items() if value))
    if versions := client.versions(model.name):
        print()
        print_versions(versions)


def delete(arguments: Arguments) -> None:
    from stoker.client.client import connect

    connect().delete_model(arguments.name)
    say(f"Deleted model [{arguments.name}].")


def list_versions(arguments: Arguments) -> None:
    from stoker.client.client import connect

    found = connect().versions(arguments.name)
    print_json(found) if arguments.json else print_versions(found)


def register(arguments: Arguments) -> None:
    from stoker.client.client import connect

    client = connect()
    client.job(arguments.job)  # a model must not be made for a job that is not there
    model = arguments.name or arguments.job
    _show(arguments, _register(client, arguments, model, job=arguments.job, trial=arguments.trial))


def register_version(arguments: Arguments) -> None:
    from stoker.cli.experiment_lookup import find_trial
    from stoker.client.client import connect

    client = connect()
    source = str(arguments.source)
    if "://" in source or source.startswith(("/", ".")):
        from stoker.cli.versions import absolute

        _show(arguments, _register(client, arguments, arguments.name, origin=absolute(source)))
        return
    job, trial = find_trial(client, source)
    _show(arguments, _register(client, arguments, arguments.name, job=job, trial=trial.number))


def _register(client: "Client", arguments: Arguments, model: str, **source: object) -> "Version":
    from stoker.schema.registry import NewModel, NewVersion

    words = {"name": arguments.version, "description": arguments.description, "alias": arguments.alias}
    new = NewVersion.parse({**words, **source}, source="The command line")
    made = False
    try:
        client.model(model)
    except NotFoundError:
        client.create_model(NewModel.parse({"name": model}, source="The command line"))
        made = True
    try:
        return client.create_version(model, new)
    except (ConflictError, NotFoundError, UsageError):
        if made:
            client.delete_model(model)
        raise


def _show(arguments: Arguments, version: "Version") -> None:
    if arguments.json:
        print_json(version)
    else:
        print_version(version)
    say(f"Registered [{version.reference}]. Try it: stoker predict --model {version.model} --json-instances FILE")


def _created(model: "RegisteredModel") -> str:
    return ago(model.created, now=time.time())


def _aliases(model: "RegisteredModel") -> str:
    return ", ".join(f"{alias}={version}" for alias, version in model.aliases.items())


def _add_name(command: Parser) -> None:
    command.add_argument("name", metavar="MODEL", help="the model's name")


def _add_output(command: Parser) -> None:
    command.add_argument("--json", action="store_true", help="print JSON")
    add_region_flag(command)
    add_global_flags(command)
