"""`stoker versions`: the versions of a model, with AI Platform's verbs and flags."""

import os
from argparse import SUPPRESS
from pathlib import Path
from typing import Any

from stoker.cli.version_report import print_version, print_versions
from stoker.compat.aiplatform.gcloud import add_global_flags, add_region_flag
from stoker.errors import UsageError
from stoker.terminal import flags
from stoker.terminal.output import print_json, say
from stoker.terminal.parser import Arguments, Parser

# Sizes and containers of a cloud's machines, and its accounts.
_UNUSED_FLAGS = (
    "--machine-type",
    "--accelerator",
    "--min-nodes",
    "--max-nodes",
    "--metric-targets",
    "--service-account",
    "--explanation-method",
    "--num-integral-steps",
    "--num-paths",
    "--image",
    "--ports",
    "--health-route",
    "--predict-route",
    "--env-vars",
    "--command",
    "--args",
)


def build(parser: Parser) -> None:
    _build_create(parser)
    command = parser.add_command(
        "list", list_versions, help="list a model's versions, newest first", example="stoker versions list --model taxi"
    )
    _add_model(command)
    _add_output(command)

    command = parser.add_command(
        "describe",
        describe,
        help="say all about a version, and where it came from",
        example="stoker versions describe v1 --model taxi",
    )
    _add_which(command)
    _add_output(command)

    command = parser.add_command(
        "set-default",
        set_default,
        help="make it the version that is meant when none is named",
        example="stoker versions set-default v2 --model taxi",
    )
    _add_which(command)
    _add_output(command)

    command = parser.add_command(
        "set-alias",
        set_alias,
        help="let a word name this version from now on, and no other: taxi@production",
        example="stoker versions set-alias v2 --model taxi --alias production",
    )
    _add_which(command)
    command.add_argument("--alias", required=True, metavar="A", help="the word")
    _add_output(command)

    command = parser.add_command(
        "remove-alias",
        remove_alias,
        help="take a word away from a model",
        example="stoker versions remove-alias production --model taxi",
    )
    command.add_argument("alias", metavar="ALIAS", help="the word")
    _add_model(command)
    add_global_flags(command)

    command = parser.add_command(
        "delete",
        delete,
        help="delete a version and its files; the default one goes last",
        example="stoker versions delete v1 --model taxi",
    )
    _add_which(command)
    add_global_flags(command)


def _build_create(parser: Parser) -> None:
    command = parser.add_command(
        "create",
        create,
        help="copy a model into the registry, from a folder or URL, or from what a job left",
        example="stoker versions create v1 --model taxi --origin gs://my-bucket/taxi_1/model --framework scikit-learn\n"
        "stoker versions create v2 --model taxi --job taxi_search --trial 3",
    )
    command.add_argument("version", metavar="VERSION", help="letters, digits and underscores, starting with a letter")
    _add_model(command)
    place = command.add_mutually_exclusive_group()
    place.add_argument("--origin", metavar="DIR", help="the model's folder: a path, gs:// or s3://")
    place.add_argument("--job", metavar="JOB", help="the job that made it; of a search, its best trial")
    command.add_argument("--config", metavar="FILE", help="AI Platform's Version resource; flags win over it")
    command.add_argument("--trial", type=flags.positive, metavar="N", help="with --job: this trial")
    command.add_argument("--framework", metavar="NAME", help="scikit-learn, xgboost, tensorflow, …; told by the files")
    command.add_argument("--runtime-version", metavar="NAME", help="the runtime that it is to predict on")
    command.add_argument("--python-version", metavar="X.Y", help="the interpreter's version")
    command.add_argument("--prediction-class", metavar="PKG.CLASS", help="a custom prediction routine's class")
    command.add_argument(
        "--package-uris", type=flags.comma_list, action="extend", metavar="FILE,…", help="archives with its code"
    )
    command.add_argument("--description", metavar="TEXT", help="what is new in it")
    command.add_argument("--labels", type=flags.key_values, action="append", metavar="K=V,…", help="to find it by")
    command.add_argument("--metadata", type=flags.key_values, action="append", metavar="K=V,…", help="kept with it")
    command.add_argument("--alias", metavar="A", help="what it is called besides: production")
    unused = command.add_argument_group("accepted, and without meaning here")
    for flag in (*_UNUSED_FLAGS, "--staging-bucket"):
        unused.add_argument(flag, metavar="X", help=SUPPRESS)
    unused.add_argument("--async", action="store_true", help=f"also {', '.join(_UNUSED_FLAGS)}")
    _add_output(command)


def create(arguments: Arguments) -> None:
    from stoker.client.client import connect
    from stoker.schema.registry import NewVersion, Reference

    model = Reference.parse(arguments.model).model
    new = NewVersion.parse(_values(arguments), source="The command line")
    made = connect().create_version(model, new)
    say(f"Created version [{made.name}] of model [{made.model}].")
    print_json(made) if arguments.json else print_version(made)


def list_versions(arguments: Arguments) -> None:
    from stoker.client.client import connect

    found = connect().versions(arguments.model)
    if arguments.json:
        print_json(found)
    elif found:
        print_versions(found)
    else:
        say(f"Model {arguments.model} has no versions.")


def describe(arguments: Arguments) -> None:
    from stoker.client.client import connect
    from stoker.schema.registry import Reference

    which = Reference.parse(arguments.model, arguments.version)
    found = connect().version(which)
    print_json(found) if arguments.json else print_version(found)


def set_default(arguments: Arguments) -> None:
    from stoker.client.client import connect
    from stoker.schema.registry import Reference

    which = Reference.parse(arguments.model, arguments.version)
    found = connect().set_default(which)
    say(f"The default of model [{found.model}] is [{found.name}].")
    if arguments.json:
        print_json(found)


def set_alias(arguments: Arguments) -> None:
    from stoker.client.client import connect
    from stoker.schema.registry import Reference

    which = Reference.parse(arguments.model, arguments.version)
    found = connect().set_alias(which, arguments.alias)
    say(f"{found.model}@{arguments.alias} is [{found.name}].")
    if arguments.json:
        print_json(found)


def remove_alias(arguments: Arguments) -> None:
    from stoker.client.client import connect

    connect().delete_alias(arguments.model, arguments.alias)
    say(f"{arguments.model}@{arguments.alias} is gone.")


def delete(arguments: Arguments) -> None:
    from stoker.client.client import connect
    from stoker.schema.registry import Reference

    which = Reference.parse(arguments.model, arguments.version)
    connect().delete_version(which)
    say(f"Deleted version [{which}], and its files.")


def absolute(place: str) -> str:
    """A path as the server sees it; a URL as it is."""
    return place if "://" in place else os.path.abspath(os.path.expanduser(place))


# Fields of a version that say how Google is to run it.
_OF_THE_CLOUD = {
    "name",
    "machineType",
    "autoScaling",
    "manualScaling",
    "acceleratorConfig",
    "container",
    "explanationConfig",
    "requestLoggingConfig",
    "routes",
    "serviceAccount",
}
# AI Platform's Version resource, in our words.
_FIELDS = {
    "deploymentUri": "origin",
    "framework": "framework",
    "runtimeVersion": "runtime_version",
    "pythonVersion": "python_version",
    "predictionClass": "prediction_class",
    "packageUris": "package_uris",
    "description": "description",
    "labels": "labels",
}


def _values(arguments: Arguments) -> dict[str, Any]:
    given = {
        "name": arguments.version,
        "origin": arguments.origin,
        "job": arguments.job,
        "trial": arguments.trial,
        "framework": arguments.framework,
        "runtime_version": arguments.runtime_version,
        "python_version": arguments.python_version,
        "prediction_class": arguments.prediction_class,
        "package_uris": arguments.package_uris,
        "description": arguments.description,
        "labels": flags.merged(arguments.labels),
        "metadata": flags.merged(arguments.metadata),
        "alias": arguments.alias,
    }
    values = {name: value for name, value in given.items() if value is not None}
    if arguments.config is not None:
        values = {**_read(Path(arguments.config)), **values}
    if "origin" not in values and "job" not in values:
        raise UsageError("One of the arguments --origin --job --config is required, to say where the model is.")
    if "origin" in values:
        values["origin"] = absolute(values["origin"])
    values["package_uris"] = [absolute(uri) for uri in values.get("package_uris", ())]
    return values


def _read(path: Path) -> dict[str, Any]:
    from stoker.submission.job_file import load

    found = load(path)
    unknown = sorted(found.keys() - _FIELDS.keys() - _OF_THE_CLOUD)
    if unknown:
        raise UsageError(
            f"{path} has fields that a version has not: {', '.join(unknown)}. Known: {', '.join(_FIELDS)}."
        )
    return {_FIELDS[name]: value for name, value in found.items() if name in _FIELDS}


def _add_model(command: Parser) -> None:
    command.add_argument("--model", required=True, metavar="MODEL", help="the model's name")
    add_region_flag(command)


def _add_which(command: Parser) -> None:
    command.add_argument("version", metavar="VERSION", help="its name, its number, or @alias")
    _add_model(command)


def _add_output(command: Parser) -> None:
    command.add_argument("--json", action="store_true", help="print JSON")
    add_global_flags(command)
