"""The Open Inference Protocol, version 2: tensors in JSON to instances, and predictions back to tensors."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from stoker.predict.base import Instance, Prediction
from stoker.predict.online.failures import Refusal
from stoker.schema.bundle import FieldSpec, ModelCard, Signature

_OF_DTYPE = {
    "float": "FP64",
    "integer": "INT64",
    "boolean": "BOOL",
    "string": "BYTES",
    "bytes": "BYTES",
    "any": "BYTES",
}
_FLOATS = frozenset({"FP16", "FP32", "FP64", "BF16"})
_INTEGERS = frozenset({"INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64"})
_DATATYPES = _FLOATS | _INTEGERS | {"BOOL", "BYTES"}
_INPUT, _OUTPUT = "input", "output"  # names of what has none


@dataclass(frozen=True, slots=True)
class InferRequest:
    """What was asked."""

    instances: list[Instance]
    id: str | None
    outputs: tuple[str, ...]  # none: all of them


def read(body: Any, signature: Signature) -> InferRequest:
    """Refusal says which input is wrong, and how."""
    inputs = body.get("inputs") if isinstance(body, dict) else None
    if not isinstance(inputs, list) or not inputs:
        raise Refusal(400, 'The body must be {"inputs": [{"name", "shape", "datatype", "data"}, …]}.')
    tensors = dict(_tensor(tensor, at) for at, tensor in enumerate(inputs))
    if len(tensors) < len(inputs):
        raise Refusal(400, "Two inputs have the same name.")
    counts = {name: len(rows) for name, rows in tensors.items()}
    if len(set(counts.values())) > 1:
        raise Refusal(400, f"The inputs have different numbers of rows: {counts}.")
    if not next(iter(counts.values())):
        raise Refusal(400, "There are no instances in the body: the first number of each shape is 0.")
    wanted = body.get("outputs") or []
    if not isinstance(wanted, list) or not all(isinstance(each, dict) and "name" in each for each in wanted):
        raise Refusal(400, '"outputs" must be [{"name": …}, …].')
    request_id = body.get("id")
    return InferRequest(
        _instances(tensors, signature),
        None if request_id is None else str(request_id),
        tuple(str(each["name"]) for each in wanted),
    )


def outputs_of(predictions: Sequence[Prediction], request: InferRequest, signature: Signature) -> list[dict[str, Any]]:
    """One tensor for each key of the predictions, or one in all."""
    columns = _columns(predictions, signature)
    if missing := [name for name in request.outputs if name not in columns]:
        raise Refusal(400, f"No output {missing[0]!r}. There are: {', '.join(columns)}.")
    return [_output(name, columns[name]) for name in request.outputs or columns]


def metadata(name: str, version: str | None, card: ModelCard) -> dict[str, Any]:
    signature = card.signature
    return {
        "name": name,
        "versions": [version] if version is not None else [],
        "platform": card.framework,
        "inputs": [_described(spec, at, _INPUT) for at, spec in enumerate(signature.inputs)],
        "outputs": [_described(spec, at, _OUTPUT) for at, spec in enumerate(signature.outputs)],
    }


def _tensor(tensor: Any, at: int) -> tuple[str, list[Any]]:
    """An input's name and its rows."""
    if not isinstance(tensor, dict) or not isinstance(tensor.get("name"), str):
        raise Refusal(400, f"inputs[{at}] has no name.")
    name, shape, datatype, data = (tensor.get(key) for key in ("name", "shape", "datatype", "data"))
    if not isinstance(shape, list) or not shape or not all(type(size) is int and size >= 0 for size in shape):
        raise Refusal(400, f"Input {name!r}: its shape must be a list of sizes, the number of instances first.")
    if datatype not in _DATATYPES:
        raise Refusal(400, f"Input {name!r}: no datatype {datatype!r}. There are: {', '.join(sorted(_DATATYPES))}.")
    if not isinstance(data, list):
        raise Refusal(400, f"Input {name!r}: its data must be a list (binary data is not taken).")
    flat = _flat(data)
    if len(flat) != prod(shape):
        raise Refusal(400, f"Input {name!r}: {len(flat)} values do not fill the shape {shape}.")
    for index, value in enumerate(flat):
        if not _fits(value, datatype):
            raise Refusal(400, f"Input {name!r}: value {index} is {value!r}, which is no {datatype}.")
    return str(name), _nested(flat, shape)


def _instances(tensors: dict[str, list[Any]], signature: Signature) -> list[Instance]:
    """Named fields if the model has names; bare values or rows for the one input of one that has none."""
    inputs = signature.inputs
    if len(tensors) == 1 and not any(spec.name in tensors for spec in inputs):
        return next(iter(tensors.values()))
    return [dict(zip(tensors, row, strict=True)) for row in zip(*tensors.values(), strict=True)]


def _columns(predictions: Sequence[Prediction], signature: Signature) -> dict[str, list[Any]]:
    first = predictions[0]
    if isinstance(first, dict):
        return {name: [prediction[name] for prediction in predictions] for name in first}
    outputs = signature.outputs
    name = outputs[0].name if len(outputs) == 1 and outputs[0].name else _OUTPUT
    return {name: list(predictions)}


def _output(name: str, rows: list[Any]) -> dict[str, Any]:
    shape = [len(rows)]
    sample = rows[0]
    while isinstance(sample, list):
        shape.append(len(sample))
        sample = sample[0] if sample else None
    flat = _flat(rows)
    if len(flat) != prod(shape):
        raise Refusal(400, f"Output {name!r} has rows of different lengths, which is no tensor. Ask :predict for it.")
    return {"name": name, "shape": shape, "datatype": _datatype(flat), "data": flat}


def _datatype(flat: list[Any]) -> str:
    kinds = set(map(type, flat))
    if kinds <= {bool}:
        return "BOOL"
    if kinds <= {int}:
        return "INT64"
    return "FP64" if kinds <= {int, float} else "BYTES"


def _described(spec: FieldSpec, at: int, fallback: str) -> dict[str, Any]:
    shape = [-1, *(-1 if size is None else size for size in spec.shape or ())]
    return {
        "name": spec.name or (fallback if at == 0 else f"{fallback}-{at}"),
        "datatype": _OF_DTYPE[spec.dtype],
        "shape": shape,
    }


def _fits(value: Any, datatype: str) -> bool:
    if datatype in _FLOATS:
        return type(value) in (int, float)
    if datatype in _INTEGERS:
        return type(value) is int
    return type(value) is bool if datatype == "BOOL" else isinstance(value, str)


def _flat(data: list[Any]) -> list[Any]:
    """Row-major, whether it came nested or flat."""
    while data and any(isinstance(item, list) for item in data):
        data = [value for item in data for value in (item if isinstance(item, list) else [item])]
    return data


def _nested(flat: list[Any], shape: Sequence[int]) -> list[Any]:
    if len(shape) == 1:
        return flat
    step = prod(shape[1:])
    return [_nested(flat[at * step : (at + 1) * step], shape[1:]) for at in range(shape[0])]
