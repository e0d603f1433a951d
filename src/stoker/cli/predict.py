"""`stoker predict`: a registered model predicts, here or behind `stoker serve`; gcloud's flags."""

import json
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from stoker.cli.instances import Given, add_instance_flags, given, print_predictions
from stoker.compat.aiplatform.gcloud import add_global_flags
from stoker.errors import StokerError, UsageError
from stoker.terminal.parser import Arguments, Parser

if TYPE_CHECKING:
    from stoker.schema.registry import Reference

_TIMEOUT_S = 120.0
_TYPES = {"csv": "text/csv", "tf_example": "application/x-tfrecord"}  # sent as they are; the rest becomes JSON


def build(parser: Parser) -> None:
    parser.be_command(
        predict,
        example="stoker predict --model taxi --version v1 --json-instances rides.json\n"
        "stoker predict --model taxi@production --csv rides.csv --server http://127.0.0.1:8080",
    )
    parser.add_argument("--model", required=True, metavar="M", help="M, M:3, M@alias or M/versions/v1")
    parser.add_argument("--version", metavar="V", help="of the model; its default without one")
    add_instance_flags(parser)
    parser.add_argument("--signature-name", metavar="NAME", help="which of the model's signatures")
    parser.add_argument("--server", metavar="URL", help="ask the `stoker serve` that is there, and load nothing here")
    parser.add_argument("--token", metavar="T", help="what that server wants as a bearer token")
    parser.add_argument("--trust", action="store_true", help="load pickles and code: they run with your rights")
    parser.add_argument("--region", metavar="X", help="accepted, and without meaning here")
    parser.add_argument("--json", action="store_true", help='print {"predictions": […]}')
    add_global_flags(parser)


def predict(arguments: Arguments) -> None:
    from stoker.schema.registry import Reference

    which = Reference.parse(arguments.model, arguments.version)
    what = given(arguments)
    predictions = _ask(arguments, which, what) if arguments.server else _here(arguments, which, what)
    print_predictions(predictions, as_json=arguments.json)


def _here(arguments: Arguments, which: "Reference", what: Given) -> list[Any]:
    from stoker.client.client import connect
    from stoker.predict.loading import MadeOn, load

    version = connect().version(which)
    version.check_predicts()
    predictor = load(
        version.url,
        trust_pickle=arguments.trust,
        prediction_class=version.prediction_class,
        signature_name=arguments.signature_name or what.signature_name,
        made_on=MadeOn(version.runtime_version, version.python_version),
    )
    return predictor.predict(what.instances(predictor.card.signature))


def _ask(arguments: Arguments, which: "Reference", what: Given) -> list[Any]:
    """What the server answers; its error as ours."""
    if which.alias is not None or which.number is not None:
        raise UsageError(f"A server knows versions by their names: write {which.model}/versions/NAME, not {which}.")
    version = f"/versions/{quote(which.version)}" if which.version else ""
    url = f"{arguments.server.rstrip('/')}/v1/models/{quote(which.model)}{version}:predict"
    headers = {"Content-Type": _TYPES.get(what.form, "application/json")}
    if arguments.token:
        headers["Authorization"] = f"Bearer {arguments.token}"
    request = urllib.request.Request(url, data=_body(arguments, what), headers=headers, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as reply:
            found = json.load(reply)
    except urllib.error.HTTPError as error:
        raise StokerError(f"{url} answered {error.code}: {_reason(error.read())}") from error
    except (OSError, ValueError) as error:
        raise StokerError(f"No answer from {url}: {error}. Is `stoker serve {which.model}` running there?") from error
    predictions: list[Any] = found["predictions"]
    return predictions


def _body(arguments: Arguments, what: Given) -> bytes:
    from stoker.schema.bundle import Signature

    if what.form in _TYPES:
        if arguments.signature_name:
            raise UsageError("--signature-name goes with JSON; CSV and tf.Examples are sent as they are.")
        return what.data
    request = {"instances": what.instances(Signature())}
    name = arguments.signature_name or what.signature_name
    return json.dumps({**request, "signature_name": name} if name else request).encode()


def _reason(payload: bytes) -> str:
    try:
        found = json.loads(payload)["error"]
        return str(found.get("message", found) if isinstance(found, dict) else found)
    except (ValueError, KeyError, TypeError):
        return payload[:200].decode("utf-8", "replace")
