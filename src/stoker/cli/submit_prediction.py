"""`stoker jobs submit prediction`: a batch prediction as a job, with the flags of gcloud."""

import json
import math
import os
import re
from typing import TYPE_CHECKING, Any

from stoker.cli.submit import print_submitted
from stoker.compat.aiplatform.gcloud import add_format_flag, add_global_flags
from stoker.errors import UsageError
from stoker.submission.pipeline import Submission, dry_run, submit_job
from stoker.terminal import flags
from stoker.terminal.output import say
from stoker.terminal.parser import Arguments, Parser

if TYPE_CHECKING:
    from stoker.client.client import Client
    from stoker.host.home import Home
    from stoker.submission.reading import JobValues

FORMATS = ("text", "csv", "tf-record", "tf-record-gzip", "parquet")
COMMAND = ("python", "-m", "stoker.predict.batch")
_MOST_WORKERS = 10  # AI Platform's own default
_BYTES_PER_WORKER = 32 << 20
# What may be different the next time: a crash, a kill, a disk. Exit code 2 says that the request itself is wrong.
_RETRIED = [1, 134, 135, 137, 139, 143]

_OF_AI_PLATFORM = re.compile(r"\d+\.\d+")


def build(group: Parser) -> None:
    command = group.add_command(
        "prediction",
        submit_prediction,
        help="predict for all that is in files, as a job, with the flags of `gcloud … jobs submit prediction`",
        example="stoker jobs submit prediction fares_1 --model taxi --data-format csv \\\n"
        "    --input-paths 'gs://my-bucket/rides/*' --output-path gs://my-bucket/fares --region local",
    )
    command.add_argument("name", metavar="JOB", help="letters, digits and underscores, starting with a letter")
    what = command.add_argument_group("which model")
    which = what.add_mutually_exclusive_group(required=True)
    which.add_argument("--model", metavar="M", help="a registered one: M, M:3, M@alias, M/versions/v1")
    which.add_argument("--model-dir", metavar="URL", help="a model's folder: a path, gs:// or s3://")
    what.add_argument("--version", metavar="V", help="of --model; its default without one")
    what.add_argument("--signature-name", metavar="NAME", help="which of the model's signatures")
    what.add_argument("--trust", action="store_true", help="load pickles and code that are in the model: they run")
    data = command.add_argument_group("the data")
    data.add_argument(
        "--data-format", required=True, type=_format, metavar="FORMAT", help=f"{', '.join(FORMATS)} (text: JSON a line)"
    )
    data.add_argument(
        "--input-paths", required=True, type=flags.comma_list, action="extend", metavar="URL,…", help="also with *"
    )
    data.add_argument("--output-path", required=True, metavar="URL", help="the folder for results; for this job alone")
    data.add_argument("--instance-key", metavar="FIELD", help="a field to pass on beside each prediction")
    data.add_argument("--batch-size", type=flags.positive, default=64, metavar="N", help="rows at a time (64)")
    _add_size(command)


def _add_size(command: Parser) -> None:
    size = command.add_argument_group("where, and how big")
    size.add_argument("--region", "--pool", dest="region", metavar="POOL", help="the pool; the default one if none")
    size.add_argument("--max-worker-count", type=flags.positive, metavar="N", help="processes, at most")
    size.add_argument("--runtime-version", metavar="NAME", help="a runtime, see `stoker runtimes list`")
    size.add_argument("--labels", type=flags.key_values, action="append", metavar="K=V,…", help="to find the job by")
    size.add_argument("--priority", type=flags.whole, default=0, metavar="N", help="0 to 1000, larger first")
    size.add_argument(
        "--max-restarts", type=flags.whole, default=3, metavar="N", help="go on so often after a crash (3)"
    )
    then = command.add_argument_group("and then")
    how = then.add_mutually_exclusive_group()
    how.add_argument("--stream-logs", action="store_true", help="follow the log; exit 0 if the job succeeded, 1 if not")
    how.add_argument("--async", action="store_true", help="return at once (that is the default)")
    how.add_argument("--dry-run", action="store_true", help="submit nothing: print what would be started, as JSON")
    then.add_argument("--json", action="store_true", help="print the job as JSON")
    add_format_flag(command)
    add_global_flags(command)


def submit_prediction(arguments: Arguments) -> int:
    from stoker.client.client import connect
    from stoker.host.home import Home

    if arguments.model_dir and arguments.version:
        raise UsageError("--version is of a registered --model; a --model-dir has none. Leave it out.")
    home = Home.find().make()
    client = connect(home)
    values = spec_values(arguments, client, home=home)
    if arguments.dry_run:
        print(json.dumps(dry_run(Submission(values), home=home, notify=say), indent=2))
        return 0
    job = submit_job(Submission(values), home=home, notify=say)
    print_submitted(arguments, job)
    if not arguments.stream_logs:
        return 0
    from stoker.cli.logs import follow

    return follow(client, job["id"])


def spec_values(arguments: Arguments, client: "Client", *, home: "Home") -> "JobValues":
    """The job's fields. The version is looked up now, so that the job means the same however often it is started."""
    model: dict[str, Any] = (
        {"url": _place(arguments.model_dir)} if arguments.model_dir else _registered(arguments, client)
    )
    if arguments.runtime_version:
        model["runtime_version"] = arguments.runtime_version
    runtime = model.get("runtime_version")
    _check_model(arguments, model, home=home)
    inputs = [_place(path) for path in arguments.input_paths]
    output = _place(arguments.output_path)
    prediction = {
        "model": model,
        "signature_name": arguments.signature_name,
        "trust_pickle": arguments.trust,
        "data_format": arguments.data_format,
        "input_paths": inputs,
        "output_path": output,
        "batch_size": arguments.batch_size,
        "instance_key": arguments.instance_key,
    }
    return {
        "name": arguments.name,
        "kind": "predict",
        "command": list(COMMAND),
        "data": {"prediction": {name: value for name, value in prediction.items() if value is not None}},
        "pool": arguments.region,
        "resources": {"slots": _workers(arguments, inputs, output, client, home=home)},
        # AI Platform's numbers tell what the model was made on; the job itself runs on a Python that stoker runs on.
        "environment": {"runtime": runtime} if runtime and not _OF_AI_PLATFORM.fullmatch(runtime) else {},
        "restarts": {"max_restarts": arguments.max_restarts, "exit_codes": _RETRIED},
        "priority": arguments.priority,
        "labels": flags.merged(arguments.labels) or {},
    }


def _check_model(arguments: Arguments, model: dict[str, Any], *, home: "Home") -> None:
    """A model that is not there, damaged, or not trusted is found before anything is stored."""
    from stoker.predict.fetching import local_folder
    from stoker.predict.loading import ask_for_trust, describe

    folder = local_folder(model["url"], home=home)
    card = describe(folder, prediction_class=model.get("prediction_class"))
    ask_for_trust(folder, card, trust_pickle=arguments.trust, home=home)


def _registered(arguments: Arguments, client: "Client") -> dict[str, Any]:
    from stoker.schema.registry import Reference

    found = client.version(Reference.parse(arguments.model, arguments.version))
    found.check_predicts()
    known = {
        "url": found.url,
        "reference": found.reference,
        "prediction_class": found.prediction_class,
        "runtime_version": found.runtime_version,
        "python_version": found.python_version,
    }
    return {name: value for name, value in known.items() if value}


def _workers(arguments: Arguments, inputs: list[str], output: str, client: "Client", *, home: "Home") -> int:
    """As many as the pool has room for, the data is worth, and the user allows. Missing inputs are found here."""
    from stoker.predict.batch.plan import listed, read_plan
    from stoker.storage import Storage

    storage = Storage(home.root)
    size = sum(file.size_bytes for file in listed(storage, inputs, output=output))
    kept = read_plan(storage, output)
    if kept is not None and kept.job != arguments.name:
        raise UsageError(f"{output} holds predictions of job {kept.job!r}. Choose another --output-path.")
    pools = client.pools()
    slots = next((pool.slots for pool in pools if pool.name == arguments.region), pools[0].slots)
    wanted: int = arguments.max_worker_count or min(_MOST_WORKERS, math.ceil(size / _BYTES_PER_WORKER))
    if wanted > slots:
        say(f"The pool has {slots} slots: {slots} of at most {wanted} workers.")
    return max(min(wanted, slots), 1)


def _format(text: str) -> str:
    """gcloud's and the REST API's spellings."""
    from argparse import ArgumentTypeError

    word = text.lower().replace("_", "-")
    word = {"json": "text", "tfrecord": "tf-record", "tfrecord-gzip": "tf-record-gzip"}.get(word, word)
    if word not in FORMATS:
        raise ArgumentTypeError(f"is one of {', '.join(FORMATS)} (got {text!r})")
    return word


def _place(path: str) -> str:
    """A job runs elsewhere: a local path must mean the same from there."""
    return path if "://" in path else os.path.abspath(os.path.expanduser(path))
