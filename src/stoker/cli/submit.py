"""`stoker jobs submit training` and `stoker jobs create`: from flags and files to a job on the server."""

import contextlib
import json
import os
import re
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stoker.compat.aiplatform import training_flags
from stoker.compat.aiplatform.gcloud import add_format_flag, print_as
from stoker.errors import UsageError
from stoker.submission.legacy import with_old_times
from stoker.submission.reading import Values
from stoker.submission.shipment import Code, Shipment, check_environment, is_local, look_at, pack_up, writable
from stoker.submission.upload import Door
from stoker.terminal.output import say
from stoker.terminal.parser import Arguments, Parser

if TYPE_CHECKING:
    from stoker.host.home import Home

# Of meaning where an image's Dockerfile is run.
_OF_IMAGES = ("masterConfig.imageUri", "masterConfig.containerCommand", "masterConfig.containerArgs")


def build(parser: Parser) -> None:
    group = parser.add_group("submit", help="submit a job, as with gcloud")
    command = group.add_command(
        "training",
        submit_training,
        help="submit a training job, with the flags of `gcloud ai-platform jobs submit training`",
        example="stoker jobs submit training taxi_1 --package-path trainer --module-name trainer.task \\\n"
        "    --job-dir out --stream-logs -- --epochs 3",
        user_args=True,
        usage="stoker jobs submit training JOB [flags] [-- args of your code]",
    )
    training_flags.add(command)
    _add_afterwards(command)

    command = parser.add_command(
        "create",
        create,
        help="submit the job of a stoker.yaml",
        example="stoker jobs create stoker.yaml --stream-logs",
        user_args=True,
    )
    command.add_argument("file", metavar="FILE", help="a stoker.yaml")
    command.add_argument("directory", metavar="DIR", nargs="?", help="the code (the file's directory)")
    command.add_argument("--name", metavar="JOB", help="the job's name; else the file's, else one is made up")
    command.add_argument("--region", "--pool", metavar="POOL", help="the pool")
    _add_afterwards(command)


def _add_afterwards(command: Parser) -> None:
    then = command.add_argument_group("and then")
    how = then.add_mutually_exclusive_group()
    how.add_argument("--stream-logs", action="store_true", help="follow the log; exit 0 if the job succeeded, 1 if not")
    how.add_argument("--async", action="store_true", help="return at once (that is the default)")
    how.add_argument("--dry-run", action="store_true", help="submit nothing: print what would be started, as JSON")
    then.add_argument("--json", action="store_true", help="print the job as JSON")
    add_format_flag(command)


def submit_training(arguments: Arguments) -> int:
    from stoker.host.home import Home

    reading = training_flags.read(arguments)
    image = _image(arguments, reading.values.get("module"), reading.packages)
    said = _OF_IMAGES if image is not None else ()
    if ignored := [name for name in reading.ignored if name not in said]:
        say(f"Without meaning off Google's cloud, and ignored: {', '.join(ignored)}.")
    home = Home.find().make()
    values = _with_absolute_job_dir(reading.values)
    if image is not None:
        from stoker.compat.aiplatform.containers import of_image

        master = _master_config(arguments)
        own = {"command": master.get("containerCommand") or (), "args": master.get("containerArgs") or ()}
        values, code = of_image(values, image, home=home, **own)
        return _submit(arguments, values, code, (), home=home)
    package = _code_of_training(arguments, values, reading.packages, home=home)
    return _submit(arguments, values, package, reading.packages, home=home)


def _image(arguments: Arguments, module: str | None, packages: tuple[str, ...]) -> str | None:
    """The image of a job that names nothing else to run."""
    if module or packages or arguments.package_path:
        return None
    if arguments.master_image_uri:
        return str(arguments.master_image_uri)
    image = _master_config(arguments).get("imageUri")
    return str(image) if image else None


def _master_config(arguments: Arguments) -> dict[str, Any]:
    """`masterConfig` of the job file; empty without one."""
    if not arguments.config:
        return {}
    from stoker.compat.dialects.document import load

    training = load(Path(arguments.config)).get("trainingInput")
    master = training.get("masterConfig") if isinstance(training, dict) else None
    return master if isinstance(master, dict) else {}


def create(arguments: Arguments) -> int:
    from stoker.compat.dialects.document import load
    from stoker.host.home import Home
    from stoker.packaging.package.tree import source_of_directory
    from stoker.submission import job_file as stoker_yaml

    file = Path(arguments.file)
    values = stoker_yaml.read(load(file), source=str(file)).values
    directory = Path(arguments.directory) if arguments.directory else file.parent
    values["name"] = arguments.name or values.get("name") or _made_up_name(directory)
    if arguments.region:
        values["pool"] = arguments.region
    if arguments.user_args is not None:
        values["args"] = list(arguments.user_args)
    home = Home.find().make()
    values = _with_absolute_job_dir(values)
    code = look_at(source_of_directory(directory), values, home=home)
    return _submit(arguments, values, code, (), home=home)


def _code_of_training(arguments: Arguments, values: Values, packages: tuple[str, ...], *, home: "Home") -> Code | None:
    """The directory that --package-path names; a stoker.yaml's own if it does not; None with archives alone."""
    from stoker.packaging.package.tree import source_of_directory, source_of_package

    module = values.get("module")
    if arguments.package_path:
        return look_at(source_of_package(Path(arguments.package_path), module=module), values, home=home)
    if packages:
        return None
    if arguments.config and training_flags.is_own_file(Path(arguments.config)):
        return look_at(source_of_directory(Path(arguments.config).parent), values, home=home)
    raise UsageError(
        "Non-custom jobs must have packages. Give the directory of your code by --package-path, or archives by"
        " --packages (stoker runs Python packages; it does not run container images)."
    )


def _submit(arguments: Arguments, values: Values, code: Code | None, packages: tuple[str, ...], *, home: "Home") -> int:
    if values.get("kind", "train") == "train" and not values.get("module"):
        raise UsageError("Which module? Give it by --module-name, like --module-name trainer.task.")
    if code is not None:
        values = with_old_times(values, code, home=home)
    with tempfile.TemporaryDirectory(prefix="stoker-") as folder:
        shipment = pack_up(values, code, packages, folder=Path(folder))
        check_environment(shipment, home=home)
        if arguments.dry_run:
            print(json.dumps(Door(home).dry_run(shipment), indent=2))
            return 0
        with contextlib.ExitStack() as stack:
            if (job_dir := shipment.values.get("job_dir")) and is_local(job_dir):
                stack.enter_context(writable(Path(job_dir)))
            _stage(arguments, shipment, code, home=home)
            job = Door(home).submit(shipment)
    tell_submitted(arguments, job)
    if not arguments.stream_logs:
        return 0
    from stoker.cli.logs import follow
    from stoker.client.client import connect

    return follow(connect(home), job["id"])


def _stage(arguments: Arguments, shipment: Shipment, code: Code | None, *, home: "Home") -> None:
    """Lay the code out in the staging bucket, if there is one, once it is known that the server would take the job."""
    if not getattr(arguments, "staging_bucket", None):
        return
    from stoker.compat.aiplatform.staging import checked_bucket, stage

    bucket = checked_bucket(arguments.staging_bucket)
    Door(home).dry_run(shipment)
    for url in stage(shipment, code, bucket=bucket, job=shipment.values["name"], home=home):
        say(f"Staged {url}.")


def tell_submitted(arguments: Arguments, job: dict[str, Any]) -> None:
    """What gcloud said, on the streams where it said it."""
    name = job["id"]
    say(f"Job [{name}] submitted successfully.")
    if arguments.stream_logs:
        return
    say(f"Your job is active. See how it stands with\n\n  $ stoker jobs describe {name}\n")
    say(f"or follow its log with\n\n  $ stoker jobs stream-logs {name}\n")
    if arguments.json:
        print(json.dumps(job, indent=2))
    elif arguments.format:
        from stoker.schema.record import Job

        print_as(arguments.format, [Job.model_validate(job)], single=True)
    else:
        print(f"jobId: {name}\nstate: {job['state']}")


def _with_absolute_job_dir(values: Values) -> Values:
    """A job runs elsewhere: a local path must mean the same from there."""
    job_dir = values.get("job_dir")
    if not job_dir or not is_local(job_dir):
        return values
    return {**values, "job_dir": os.path.abspath(os.path.expanduser(job_dir))}


def _made_up_name(directory: Path) -> str:
    """The directory's, and the time."""
    return f"{name_of_directory(directory)}_{time.strftime('%Y%m%d_%H%M%S')}"


def name_of_directory(directory: Path) -> str:
    """Made to fit the rule for names, with room for a number."""
    word = re.sub(r"\W+", "_", directory.resolve().name, flags=re.ASCII).strip("_") or "job"
    return (word if word[0].isalpha() else f"job_{word}")[:100]
