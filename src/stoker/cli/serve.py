"""`stoker serve`: a model behind HTTP, until Ctrl-C."""

import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from stoker.errors import ConfigError, UsageError
from stoker.terminal.output import say
from stoker.terminal.parser import Arguments, Parser

if TYPE_CHECKING:
    from stoker.predict.online.settings import ModelLocation
    from stoker.schema.registry import Reference

TOKEN_VARIABLE = "STOKER_SERVE_TOKEN"
_WATCH_S = 1.0
_LOOPBACK = ("127.", "localhost", "::1")

_EXAMPLE = """\
stoker serve taxi --port 8080
stoker serve taxi:v2 --workers 2
stoker serve gs://my-bucket/taxi_1/model --trust
curl -d '{"instances": [[5.2, 1]]}' http://127.0.0.1:8080/v1/models/taxi:predict"""


def build(parser: Parser) -> None:
    parser.be_command(serve, example=_EXAMPLE)
    parser.add_argument(
        "model", metavar="MODEL[:VERSION]|DIR", help="a registered model (its default version), or a folder or URL"
    )
    parser.add_argument("--port", type=int, default=8080, help="0 takes a free one (default: %(default)s)")
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="processes (default: %(default)s)")
    parser.add_argument(
        "--max-batch", type=int, default=64, metavar="N", help="instances in one call of the model (default: 64)"
    )
    parser.add_argument(
        "--max-delay-ms",
        type=float,
        default=0.0,
        metavar="MS",
        help="how long a request may wait for others while the model is busy anyway (default: 0)",
    )
    parser.add_argument(
        "--queue",
        type=int,
        default=1024,
        metavar="N",
        help="requests that wait in a worker before a 429 (default: 1024)",
    )
    parser.add_argument("--max-body-mb", type=float, default=32.0, metavar="MB", help="larger is a 413 (default: 32)")
    parser.add_argument("--timeout-s", type=float, default=60.0, metavar="S", help="longer is a 504 (default: 60)")
    parser.add_argument(
        "--trust", action="store_true", help="load pickles and custom code that a stranger may have made"
    )
    parser.add_argument(
        "--token", help=f"what clients must send as a bearer token (or {TOKEN_VARIABLE}; default: none)"
    )


def serve(arguments: Arguments) -> None:
    from stoker.schema.model import config_error

    if arguments.workers < 1:
        raise UsageError(f"--workers {arguments.workers}: at least 1.")
    _check_installed()
    from pydantic import ValidationError

    from stoker.predict.online.settings import Limits, ModelLocation
    from stoker.predict.online.worker_pool import WorkerPool, listen, url_of

    try:
        limits = Limits(
            max_batch=arguments.max_batch,
            max_delay_ms=arguments.max_delay_ms,
            queue=arguments.queue,
            max_body_bytes=int(arguments.max_body_mb * 1e6),
            timeout_s=arguments.timeout_s,
        )
    except ValidationError as error:
        raise config_error(error, source="The command") from error
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    token = arguments.token or os.environ.pop(TOKEN_VARIABLE, None)
    if token is None and not arguments.host.startswith(_LOOPBACK):
        say(f"Anybody who can reach {arguments.host} can use this model: no --token is set.")
    with listen(arguments.host, arguments.port) as listener:
        url = url_of(listener)

        def tell(located: ModelLocation) -> None:
            which = f"version {located.version}" if located.version else located.folder
            print(url, flush=True)
            say(f"Serving {located.name}, {which}, at {url}/v1/models/{located.name}:predict; Ctrl-C ends it.")

        WorkerPool(
            lambda: resolve(arguments.model),
            listener,
            workers=arguments.workers,
            limits=limits,
            trust_pickle=arguments.trust,
            token=token,
            watch_s=_WATCH_S if follows(arguments.model) else None,
        ).run(tell)


def resolve(name: str) -> "ModelLocation":
    """Where the model is, on this machine; fetched first if it lies elsewhere. NotFoundError, ConfigError."""
    from stoker.host.home import Home
    from stoker.predict.fetching import local_folder
    from stoker.predict.online.settings import ModelLocation

    reference = _reference(name)
    home = Home.find()
    if reference is None:
        folder = local_folder(name, home=home).absolute()
        return ModelLocation(name=_name_in(folder), folder=str(folder))
    from stoker.client.client import connect

    with connect(home) as client:
        version = client.version(reference)
    folder = local_folder(version.url, home=home)
    return ModelLocation(
        name=version.model,
        version=version.name,
        folder=str(folder),
        prediction_class=version.prediction_class,
        runtime_version=version.runtime_version,
        python_version=version.python_version,
    )


def follows(name: str) -> bool:
    """Whether what the words mean may change: a default version or an alias does, one version or a folder does not."""
    reference = _reference(name)
    return reference is not None and reference.version is None and reference.number is None


def _reference(name: str) -> "Reference | None":
    """None for a folder or URL. A registered model's name has no slash and no dot, so `./taxi` is always a folder.

    A folder beside us that holds no model is none: a package's code often has the name of its model.
    """
    from stoker.schema.registry import Reference

    is_path = os.sep in name and "/versions/" not in name
    if "://" in name or is_path or name.startswith(("~", ".")) or _holds_model(Path(name)):
        return None
    return Reference.parse(name)


def _holds_model(folder: Path) -> bool:
    if not folder.is_dir():
        return False
    from stoker.predict import bundle, frameworks

    return bundle.is_bundle(folder) or bool(frameworks.found_in(folder))


def _name_in(folder: Path) -> str:
    from stoker.predict import bundle

    return bundle.read(folder).name if bundle.is_bundle(folder) else folder.resolve().name


def _check_installed() -> None:
    from importlib.util import find_spec

    if missing := [name for name in ("httptools", "uvloop") if find_spec(name) is None]:
        raise ConfigError(f"`stoker serve` needs {' and '.join(missing)}. Install: pip install 'stoker[server]'.")
