"""Instances out of a request's body: JSON, CSV or tf.Example."""

import json
from io import BytesIO
from typing import Any

from stoker.predict.base import Instance
from stoker.predict.instances import csv, example, tfrecord
from stoker.predict.online.failures import Refusal
from stoker.predict.online.http import Request
from stoker.schema.bundle import ModelCard

_DECODE = json.JSONDecoder().decode
_BOM = b"\xef\xbb\xbf"
# AI Platform's clients may name it; a predictor has one.
_SIGNATURES = (None, "", "serving_default", "predict")


def instances_of(request: Request, card: ModelCard) -> list[Instance]:
    """At least one. UsageError, Refusal or InstanceError say what is wrong and where."""
    kind = request.headers.get(b"content-type", b"")
    if kind == b"application/json":
        return _of_json(request.body)
    kind = kind.partition(b";")[0].strip().lower()
    if kind == b"text/csv":
        return _of_csv(request.body, card)
    if kind == b"application/x-tfrecord":
        return _of_tfrecord(request.body, card)
    # Whatever else it is called: `curl -d` says it is a form.
    return _of_json(request.body)


def json_of(body: bytes) -> Any:
    """The value; Refusal with the position of what is no UTF-8 or no JSON."""
    try:
        return _DECODE((body[3:] if body.startswith(_BOM) else body).decode())
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise Refusal(400, f"The body is not UTF-8: byte 0x{byte:02x} at position {error.start}.") from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno} (position {error.pos})"
        raise Refusal(400, f"The body is not JSON: {error.msg} at {where}.") from None
    except RecursionError:
        raise Refusal(400, "The body is not taken: it is nested too deeply.") from None
    except ValueError as error:  # a number of more digits than Python reads
        raise Refusal(400, f"The body is not taken: {error}.") from None


def _of_json(body: bytes) -> list[Instance]:
    value = json_of(body)
    if not isinstance(value, dict) or "instances" not in value:
        raise Refusal(400, 'The body must be {"instances": [...]}, with one item for each prediction.')
    instances = value["instances"]
    if not isinstance(instances, list):
        raise Refusal(400, f'"instances" must be a list (got {_kind(instances)}).')
    if (name := value.get("signature_name")) not in _SIGNATURES:
        raise Refusal(400, f"signature_name {name!r} is not there; this model has one, serving_default.")
    return _some(instances)


def _of_csv(body: bytes, card: ModelCard) -> list[Instance]:
    return _some(csv.csv_instances(body, card.signature))


def _of_tfrecord(body: bytes, card: ModelCard) -> list[Instance]:
    found = (example.parse_example(record.data, index=at) for at, record in enumerate(tfrecord.records(BytesIO(body))))
    return _some([example.as_instance(features, card.signature, index=at) for at, features in enumerate(found)])


def _some(instances: list[Instance]) -> list[Instance]:
    if not instances:
        raise Refusal(400, "There are no instances in the body: send at least one.")
    return instances


def _kind(value: object) -> str:
    names = {dict: "an object", str: "a string", bool: "a boolean", int: "a number", float: "a number"}
    return names.get(type(value), "null")
