"""The flags of `gcloud ai-platform jobs submit training`, and the Job resource that they spell.

A flag says what a field of the resource says, so flags become such a resource, are laid over the `--config` file's
field by field, and are read by the same dialect.
"""

from argparse import SUPPRESS
from pathlib import Path
from typing import Any

from stoker.compat.aiplatform.gcloud import add_global_flags, unused_global_flags
from stoker.compat.dialects import training_input
from stoker.errors import UsageError
from stoker.submission.reading import Document, Reading, overlay
from stoker.terminal import flags
from stoker.terminal.parser import Arguments, Parser

_IMAGE_FLAGS = ("--master-image-uri", "--worker-image-uri", "--parameter-server-image-uri")
_UNUSED_FLAGS = (
    "--service-account",
    "--network",
    "--tpu-tf-version",
    "--kms-key",
    "--kms-keyring",
    "--kms-location",
    "--kms-project",
    *_IMAGE_FLAGS,
)


def add(parser: Parser) -> None:
    """Every flag of the original, in groups of our own."""
    parser.add_argument("name", metavar="JOB", help="letters, digits and underscores, starting with a letter")
    what = parser.add_argument_group("what to run")
    what.add_argument("--package-path", metavar="DIR", help="the Python package: a directory with __init__.py")
    what.add_argument(
        "--packages",
        type=flags.comma_list,
        action="extend",
        metavar="FILE,…",
        help="prebuilt archives (.whl, .tar.gz, .zip), as paths or URLs",
    )
    what.add_argument("--module-name", metavar="MODULE", help="run as `python -m MODULE`")
    what.add_argument("--job-dir", metavar="DIR", help="where results go; handed to the code as --job-dir")
    what.add_argument("--staging-bucket", metavar="gs://B", help="also lay the code out there: B/JOB/HASH/NAME.tar.gz")
    what.add_argument("--config", metavar="FILE", help="AI Platform's config.yaml, or a stoker.yaml; flags win over it")
    what.add_argument("--labels", type=flags.key_values, action="append", metavar="K=V,…", help="to find the job by")
    python = parser.add_argument_group("which Python")
    python.add_argument("--runtime-version", metavar="NAME", help="a runtime, see `stoker runtimes list`")
    python.add_argument("--python-version", metavar="X.Y", help="the interpreter's version")
    python.add_argument(
        "--prefer-runtime", action="store_true", help="take the runtime's versions of what the package over-pins"
    )
    python.add_argument(
        "--as-of", type=flags.as_of, metavar="DATE", help="install what was released by then: 2020-01-15, auto or today"
    )
    _add_size(parser)
    unused = parser.add_argument_group("accepted, and without meaning off Google's cloud")
    for flag in _UNUSED_FLAGS:
        unused.add_argument(flag, metavar="X", help=SUPPRESS)
    unused.add_argument("--enable-web-access", action="store_true", help=f"also {', '.join(_UNUSED_FLAGS)}")
    unused.add_argument("--no-enable-web-access", action="store_true", help=SUPPRESS)
    add_global_flags(parser)


def _add_size(parser: Parser) -> None:
    size = parser.add_argument_group("where, and how big")
    size.add_argument("--region", metavar="POOL", help="the pool; a region of Google's means the default one")
    size.add_argument(
        "--scale-tier",
        type=training_input.tier_name,
        metavar="TIER",
        help="basic, standard-1, premium-1, basic-gpu, custom, or what the pool's owner has added",
    )
    size.add_argument("--master-machine-type", metavar="TYPE", help="for custom, like n1-standard-8")
    size.add_argument("--master-accelerator", type=flags.accelerator, metavar="type=T,count=N", help="its GPUs")
    for role in ("worker", "parameter-server"):
        size.add_argument(f"--{role}-count", type=flags.positive, metavar="N", help="for custom: how many")
        size.add_argument(f"--{role}-machine-type", metavar="TYPE", help="for custom, with the count")
        size.add_argument(
            f"--{role}-accelerator", type=flags.accelerator, metavar="type=T,count=N", help="GPUs of each"
        )
    size.add_argument(
        "--use-chief-in-tf-config",
        type=flags.boolean,
        nargs="?",
        const=True,
        metavar="BOOL",
        help="`chief` in TF_CONFIG also for runtimes before 2.1",
    )
    size.add_argument("--priority", type=flags.whole, metavar="N", help="0 to 1000, larger first")
    size.add_argument("--max-restarts", type=flags.whole, metavar="N", help="start again so often when it fails")
    size.add_argument("--max-running-time", type=flags.seconds, metavar="TIME", help="end it after this: 90s, 10m, 2h")


def load_config(arguments: Arguments) -> Document | None:
    """The --config file; None if none is given."""
    if not arguments.config:
        return None
    from stoker.submission.job_file import load

    return load(Path(arguments.config))


def read(arguments: Arguments, config: Document | None) -> Reading:
    """What flags and the --config file say together; flags win."""
    flagged = _resource(arguments)
    if config is None:
        _check(arguments)
        reading = training_input.translate(flagged, source="The command line")
    else:
        reading = _over_file(config, flagged, source=str(arguments.config))
    return Reading(
        values=overlay(reading.values, _own_fields(arguments)),
        packages=reading.packages,
        ignored=(*unused_flags(arguments), *(name for name in reading.ignored if not _is_from_flag(name, flagged))),
    )


def image_of(arguments: Arguments, config: Document | None, reading: Reading) -> str | None:
    """The image of a job that names nothing else to run."""
    if reading.values.get("module") or reading.packages or arguments.package_path:
        return None
    image = arguments.master_image_uri or master_config(config).get("imageUri")
    return str(image) if image else None


def master_config(config: Document | None) -> Document:
    """`masterConfig` of the job file; empty without one."""
    training = (config or {}).get("trainingInput")
    master = training.get("masterConfig") if isinstance(training, dict) else None
    return master if isinstance(master, dict) else {}


def unused_flags(arguments: Arguments) -> list[str]:
    """Those given that mean nothing off Google's cloud."""
    names = [*_UNUSED_FLAGS, "--enable-web-access"]
    return [flag for flag in names if getattr(arguments, _dest(flag))] + unused_global_flags(arguments)


def is_native(config: Document) -> bool:
    """Whether a --config file is not AI Platform's: such files lie next to the code they are about."""
    from stoker.compat.dialects.document import is_aiplatform

    return not is_aiplatform(config)


def _over_file(config: Document, flagged: Document, *, source: str) -> Reading:
    # Imported here: the models that judge such a file are not for those who give none.
    from stoker.compat.dialects import aiplatform
    from stoker.compat.dialects.document import is_aiplatform
    from stoker.compat.dialects.document import read as read_document

    if is_aiplatform(config):
        return aiplatform.read(overlay(config, flagged), source=source)
    file = read_document(config, source=source)
    over = training_input.translate(flagged, source="The command line")
    over.values.pop("origin", None)  # which is for the file to say
    values = overlay(file.values, over.values)
    if "resources" in over.values:
        values["resources"] = over.values["resources"]  # a size is one thing: tier and slots do not mix
    return Reading(values=values, packages=over.packages, ignored=(*file.ignored, *over.ignored), notes=file.notes)


def _resource(arguments: Arguments) -> Document:
    """The Job resource that the flags spell, without what was not said."""
    training = _given(
        scaleTier=arguments.scale_tier,
        masterType=arguments.master_machine_type,
        workerCount=arguments.worker_count,
        workerType=arguments.worker_machine_type,
        parameterServerCount=arguments.parameter_server_count,
        parameterServerType=arguments.parameter_server_machine_type,
        masterConfig=_given(acceleratorConfig=arguments.master_accelerator, imageUri=arguments.master_image_uri),
        workerConfig=_given(acceleratorConfig=arguments.worker_accelerator),
        parameterServerConfig=_given(acceleratorConfig=arguments.parameter_server_accelerator),
        packageUris=arguments.packages,
        pythonModule=arguments.module_name,
        args=None if arguments.user_args is None else list(arguments.user_args),
        region=arguments.region,
        jobDir=arguments.job_dir,
        runtimeVersion=arguments.runtime_version,
        pythonVersion=arguments.python_version,
        useChiefInTfConfig=arguments.use_chief_in_tf_config,
    )
    return _given(jobId=arguments.name, labels=flags.merged(arguments.labels), trainingInput=training)


def _own_fields(arguments: Arguments) -> Document:
    """What AI Platform had no flag for."""
    return _given(
        priority=arguments.priority,
        restarts=_given(max_restarts=arguments.max_restarts),
        limits=_given(max_running_s=arguments.max_running_time),
        environment=_given(prefer_runtime=arguments.prefer_runtime or None, as_of=arguments.as_of),
    )


def _check(arguments: Arguments) -> None:
    """gcloud's own rules about its flags, in its own words where it had any."""
    if arguments.master_image_uri and arguments.runtime_version:
        raise UsageError("Only one of --master-image-uri, --runtime-version can be set.")
    if arguments.scale_tier == "CUSTOM" and not arguments.master_machine_type:
        raise UsageError("--master-machine-type is required if scale-tier is set to `CUSTOM`.")
    for role in ("worker", "parameter-server"):
        given = [getattr(arguments, _dest(f"--{role}-{what}")) is not None for what in ("count", "machine-type")]
        if any(given) and not all(given):
            raise UsageError(f"--{role}-count and --{role}-machine-type go together: give both, or neither.")
    machines = ("--master-machine-type", "--worker-count", "--parameter-server-count")
    asked = [flag for flag in machines if getattr(arguments, _dest(flag)) is not None]
    if asked and arguments.scale_tier != "CUSTOM":
        raise UsageError(f"{', '.join(asked)}: only with --scale-tier custom (got {arguments.scale_tier or 'none'}).")


def _is_from_flag(name: str, flagged: Document) -> bool:
    """Whether a field to be named as ignored came from a flag, which is named already."""
    value: Any = flagged.get("trainingInput", {})
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value is not None


def _dest(flag: str) -> str:
    return flag.removeprefix("--").replace("-", "_")


def _given(**fields: Any) -> Document:
    """Those that have a value; an empty section has none."""
    return {name: value for name, value in fields.items() if value is not None and value != {}}
