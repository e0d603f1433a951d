"""`stoker local train`: the package runs here, in the foreground, with a job's supervisor and a job's environment."""

import contextlib
import os
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stoker.cli import local_predict
from stoker.compat.aiplatform.gcloud import add_global_flags, unused_global_flags
from stoker.submission.pipeline import Submission, prepare_code
from stoker.submission.reading import EnvironmentValues
from stoker.submission.shipment import Code, check_module, is_local, writable
from stoker.terminal import flags
from stoker.terminal.output import say
from stoker.terminal.parser import Arguments, Parser

if TYPE_CHECKING:
    from stoker.schema.launch import Launch, Replica

_COUNT_FLAGS = ("--worker-count", "--parameter-server-count", "--evaluator-count")
_TORCH = re.compile(rb"^\s*(?:import|from)\s+torch\b", re.MULTILINE)
_TENSORFLOW = re.compile(rb"^\s*(?:import|from)\s+tensorflow\b", re.MULTILINE)


def build(parser: Parser) -> None:
    command = parser.add_command(
        "train",
        train,
        help="run a package here, in the foreground; the exit code is your code's own",
        example="stoker local train --package-path trainer --module-name trainer.task --job-dir out -- --epochs 3",
        user_args=True,
        usage="stoker local train --module-name MODULE [flags] [-- args of your code]",
    )
    command.add_argument("--module-name", required=True, metavar="MODULE", help="run as `python -m MODULE`")
    command.add_argument("--package-path", metavar="DIR", help="the Python package (this directory)")
    command.add_argument(
        "--job-dir", metavar="DIR", help="handed to your code as --job-dir; from the package's parent, if relative"
    )
    python = command.add_argument_group("which Python")
    python.add_argument("--runtime-version", metavar="NAME", help="a runtime, see `stoker runtimes list`")
    python.add_argument("--python-version", metavar="X.Y", help="the interpreter's version")
    python.add_argument(
        "--prefer-runtime", action="store_true", help="take the runtime's versions of what the package over-pins"
    )
    python.add_argument(
        "--as-of", type=flags.as_of, metavar="DATE", help="install what was released by then: 2020-01-15, auto or today"
    )
    many = command.add_argument_group("several processes")
    many.add_argument("--distributed", action="store_true", help="start a chief, workers and parameter servers")
    many.add_argument("--worker-count", type=flags.whole, metavar="N", help="with --distributed (2)")
    many.add_argument(
        "--parameter-server-count",
        type=flags.whole,
        metavar="N",
        help="with --distributed (2; 0 if the code is torch's)",
    )
    many.add_argument("--evaluator-count", type=flags.whole, metavar="N", help="with --distributed (0)")
    many.add_argument("--start-port", type=flags.positive, metavar="P", help="the first of their ports (free ones)")
    add_global_flags(command)
    local_predict.build(parser)


def train(arguments: Arguments) -> int:
    from stoker.host.home import Home
    from stoker.packaging.package.tree import source_of_package
    from stoker.supervisor.here import run_here

    _warn(arguments)
    home = Home.find().make()
    asked: EnvironmentValues = {
        "runtime": arguments.runtime_version,
        "python": arguments.python_version,
        "prefer_runtime": arguments.prefer_runtime,
        "as_of": arguments.as_of,
    }
    source = source_of_package(Path(arguments.package_path or "."), module=arguments.module_name)
    submission = Submission(
        {"module": arguments.module_name, "environment": asked, "origin": {"platform": "aiplatform"}}, source
    )
    values, code = prepare_code(submission, home=home, notify=say)
    assert code is not None
    check_module(arguments.module_name, code, ())
    launch = _launch(arguments, code, values["environment"])
    run_dir = home.local_run_dir(launch.job)
    with contextlib.ExitStack() as stack:
        if arguments.job_dir and is_local(arguments.job_dir):
            stack.enter_context(writable(source.root / arguments.job_dir))
        exit_code = run_here(
            launch,
            run_dir,
            home=home,
            out=sys.stdout.buffer,
            err=sys.stderr.buffer,
            distributed=arguments.distributed,
        )
    print_reported(run_dir.spool)
    return exit_code


def _warn(arguments: Arguments) -> None:
    """gcloud's own warning, for flags that change nothing."""
    for flag in _COUNT_FLAGS:
        if not arguments.distributed and getattr(arguments, flag[2:].replace("-", "_")):
            say(f"WARNING: {flag} is ignored if --distributed is not provided.")
            say("Did you mean to run distributed training?")
    if unused := unused_global_flags(arguments):
        say(f"Without meaning off Google's cloud, and ignored: {', '.join(unused)}.")


def launch_here(name: str, **fields: Any) -> "Launch":
    """A run in the foreground, which no server knows of."""
    from stoker.schema.launch import Launch

    return Launch(run=f"{name}.1.1", job=name, trial=1, trial_id=0, attempt=1, **fields)


def name_here(what: str) -> str:
    """A name that no other run here has."""
    return f"{what}_{time.strftime('%Y%m%d_%H%M%S')}_{os.getpid()}"


def _launch(arguments: Arguments, code: Code, environment: EnvironmentValues) -> "Launch":
    from stoker.origin import Origin, Platform
    from stoker.schema.launch import EnvironmentSpec

    return launch_here(
        name_here(arguments.module_name.replace(".", "_")),
        source=str(code.tree.source.root),
        import_roots=code.project.import_roots,
        environment=EnvironmentSpec(
            runtime=environment["runtime"],
            python=environment["python"],
            requirements=(*code.project.requirements, *environment.get("requirements", ())),
            prefer_runtime=environment["prefer_runtime"],
            as_of=environment.get("as_of"),
            variables=dict(environment.get("variables", {})),
        ),
        module=arguments.module_name,
        args=tuple(arguments.user_args or ()),
        origin=Origin(Platform.AI_PLATFORM),
        job_dir=arguments.job_dir,
        replicas=_replicas(arguments, code),
        start_port=arguments.start_port,
        chief_name=_chief_name(environment),
    )


def _replicas(arguments: Arguments, code: Code) -> "tuple[Replica, ...]":
    from stoker.schema.launch import Replica, Role

    counts = {Role.CHIEF: 1}
    if arguments.distributed:
        servers = 0 if _is_torch(code) else 2
        counts[Role.WORKER] = 2 if arguments.worker_count is None else arguments.worker_count
        counts[Role.PS] = servers if arguments.parameter_server_count is None else arguments.parameter_server_count
        counts[Role.EVALUATOR] = arguments.evaluator_count or 0
    ranks = {Role.CHIEF: 0, Role.WORKER: 1}
    return tuple(
        Replica(role=role, index=index, rank=ranks[role] + index if role in ranks else None)
        for role, count in counts.items()
        for index in range(count)
    )


def _is_torch(code: Code) -> bool:
    """Whether the package trains with torch: parameter servers, which gcloud started unasked, are TensorFlow's."""
    files = [entry.file for entry in code.tree.entries if entry.path.endswith(".py") and entry.link is None]
    sources = [file.read_bytes() for file in files]
    return any(map(_TORCH.search, sources)) and not any(map(_TENSORFLOW.search, sources))


def _chief_name(environment: EnvironmentValues) -> str:
    """`master` where the runtime's TensorFlow is older than 2, as gcloud had it."""
    from stoker.host.home import Home
    from stoker.packaging.environment.distributions import Installed
    from stoker.packaging.environment.runtimes import choose

    choice = choose(Home.find(), runtime=environment["runtime"], python=environment["python"])
    version = Installed(choice.runtime).version("tensorflow") or ""
    return "master" if version.startswith("1.") else "chief"


def print_reported(spool: Path) -> None:
    """Where metrics, checkpoints and models are, if there are any."""
    kinds = (b'"type":"metric"', b'"type":"checkpoint"', b'"type":"model"')
    with spool.open("rb") as lines:
        reported = any(kind in line for line in lines for kind in kinds)
    if reported:
        say(f"What your code reported is in {spool}.")
