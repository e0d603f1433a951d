"""`stoker jobs submit training` and `stoker jobs create`: read flags and files, submit, print."""

import json
import time
from dataclasses import replace
from pathlib import Path

from stoker.compat.aiplatform import training_flags
from stoker.compat.aiplatform.gcloud import add_format_flag, print_as
from stoker.errors import UsageError
from stoker.submission.pipeline import Prepared, Submission, default_name, dry_run, submit_job, with_absolute_job_dir
from stoker.submission.reading import Document, Reading
from stoker.submission.upload import JobRecord, SubmitClient
from stoker.terminal.output import say
from stoker.terminal.parser import Arguments, Parser

# Used where an image's Dockerfile is run.
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
    config = training_flags.load_config(arguments)
    reading = training_flags.read(arguments, config)
    image = training_flags.image_of(arguments, config, reading)
    used = _OF_IMAGES if image is not None else ()
    if ignored := [name for name in reading.ignored if name not in used]:
        say(f"Without meaning off Google's cloud, and ignored: {', '.join(ignored)}.")
    if image is None:
        return _submit(arguments, _training(arguments, config, reading))
    from stoker.compat.aiplatform.containers import submission_of_image

    master = training_flags.master_config(config)
    command, args = master.get("containerCommand") or (), master.get("containerArgs") or ()
    values = with_absolute_job_dir(reading.values)
    return _submit(arguments, submission_of_image(values, image, command=command, args=args))


def create(arguments: Arguments) -> int:
    from stoker.packaging.package.tree import source_of_directory
    from stoker.submission import job_file

    file = Path(arguments.file)
    values = job_file.read(job_file.load(file), source=str(file)).values
    directory = Path(arguments.directory) if arguments.directory else file.parent
    made_up_name = f"{default_name(directory)}_{time.strftime('%Y%m%d_%H%M%S')}"
    values["name"] = arguments.name or values.get("name") or made_up_name
    if arguments.region:
        values["pool"] = arguments.region
    if arguments.user_args is not None:
        values["args"] = list(arguments.user_args)
    return _submit(arguments, Submission(with_absolute_job_dir(values), source_of_directory(directory)))


def _training(arguments: Arguments, config: Document | None, reading: Reading) -> Submission:
    """Of the directory that --package-path names; else next to a native --config file; else of archives only."""
    from stoker.packaging.package.tree import source_of_directory, source_of_package

    values = with_absolute_job_dir(reading.values)
    if arguments.package_path:
        source = source_of_package(Path(arguments.package_path), module=values.get("module"))
    elif reading.packages:
        return Submission(values, packages=reading.packages)
    elif config is not None and training_flags.is_native(config):
        source = source_of_directory(Path(arguments.config).parent)
    else:
        raise UsageError(
            "Non-custom jobs must have packages. Give the directory of your code with --package-path, or archives with"
            " --packages (stoker runs Python packages; it does not run container images)."
        )
    submission = Submission(values, source, packages=reading.packages)
    if config is None:
        return submission
    from stoker.compat.startup_hook import apply_startup_hook

    return replace(submission, adapt=apply_startup_hook)  # the file may be Determined's


def _submit(arguments: Arguments, submission: Submission) -> int:
    from stoker.host.home import Home

    home = Home.find().make()
    if arguments.dry_run:
        print(json.dumps(dry_run(submission, home=home, notify=say), indent=2))
        return 0

    def stage(prepared: Prepared) -> None:
        """Copy the code to the staging bucket, once it is known that the server would take the job."""
        from stoker.compat.aiplatform.staging import checked_bucket, stage

        bucket = checked_bucket(arguments.staging_bucket)
        with SubmitClient(home) as client:
            client.dry_run(prepared.shipment)
        job = prepared.shipment.values["name"]
        for url in stage(prepared.shipment, prepared.code, bucket=bucket, job=job, home=home):
            say(f"Staged {url}.")

    before_upload = stage if getattr(arguments, "staging_bucket", None) else None
    job = submit_job(submission, home=home, notify=say, before_upload=before_upload)
    print_submitted(arguments, job)
    if not arguments.stream_logs:
        return 0
    from stoker.cli.logs import follow
    from stoker.client.client import connect

    return follow(connect(home), job["id"])


def print_submitted(arguments: Arguments, job: JobRecord) -> None:
    """What gcloud printed, on the streams where it printed it."""
    name = job["id"]
    say(f"Job [{name}] submitted successfully.")
    if arguments.stream_logs:
        return
    say(f"Your job is active. Check its status with\n\n  $ stoker jobs describe {name}\n")
    say(f"or follow its log with\n\n  $ stoker jobs stream-logs {name}\n")
    if arguments.json:
        print(json.dumps(job, indent=2))
    elif arguments.format:
        from stoker.schema.record import Job

        print_as(arguments.format, [Job.model_validate(job)], single=True)
    else:
        print(f"jobId: {name}\nstate: {job['state']}")
