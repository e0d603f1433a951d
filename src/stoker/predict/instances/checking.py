"""Whether instances are what a model's signature says, and if not: which instance, which field, and why.

The one place that knows. `arrays` and `tables` do the same for many values at once, and come here to name the bad one.
"""

import base64
import binascii
import math
from collections.abc import Callable, Sequence
from typing import Any

from stoker.errors import InstanceError
from stoker.predict.base import Instance
from stoker.schema.bundle import FieldSpec, Signature

_INT64 = 2**63
_SHOWN = 8  # names and categories in a message


def checked(instances: Sequence[Instance], signature: Signature) -> list[list[Any]]:
    """Each instance as its values in the order of the inputs, converted; InstanceError names the first bad one.

    Instances are objects of named fields or rows in the signature's order; with one input, its bare value too.
    """
    inputs = signature.inputs
    rows = []
    for index, instance in enumerate(instances):
        values = _values(instance, inputs, index)
        rows.append([check_value(value, spec, index=index) for value, spec in zip(values, inputs, strict=True)])
    return rows


def check_value(value: Any, spec: FieldSpec, *, index: int) -> Any:
    """The value as its kind has it; InstanceError if it is not of that kind, shape or category."""
    try:
        return _nested(value, spec, spec.shape)
    except _Refused as refused:
        raise InstanceError(str(refused), index=index, field=spec.name or None) from None


def listed(words: Sequence[str]) -> str:
    """Some of many words, for a message."""
    shown = ", ".join(words[:_SHOWN])
    return shown if len(words) <= _SHOWN else f"{shown}, … ({len(words)} in all)"


class _Refused(Exception):
    """Why a value is no good; whoever knows its instance and field says so."""


def _values(instance: Instance, inputs: Sequence[FieldSpec], index: int) -> Sequence[Any]:
    names = [spec.name for spec in inputs]
    if len(inputs) == 1 and not (isinstance(instance, dict) and names[0] in instance):
        if not isinstance(instance, dict) or _is_value(instance, inputs[0]):
            return [instance]
        if not names[0]:
            raise InstanceError("is an object; the model takes a bare value or row", index=index)
    if isinstance(instance, dict):
        return _by_name(instance, inputs, index)
    if not isinstance(instance, list | tuple):
        raise InstanceError(f"is {kind(instance)}; the model takes the fields {listed(names)}", index=index)
    if len(instance) != len(inputs):
        what = f"has {len(instance)} values; the model takes {len(inputs)}: {listed(names)}"
        raise InstanceError(what, index=index)
    return instance


def _is_value(instance: dict[str, Any], spec: FieldSpec) -> bool:
    """Whether an object is the one input's value itself, and not its field."""
    return spec.dtype == "any" or (spec.dtype == "bytes" and set(instance) == {"b64"})


def _by_name(instance: dict[str, Any], inputs: Sequence[FieldSpec], index: int) -> list[Any]:
    names = {spec.name for spec in inputs}
    for name in instance:
        if name not in names:
            what = f"the model has no such field; it takes {listed([spec.name for spec in inputs])}"
            raise InstanceError(what, index=index, field=str(name))
    for spec in inputs:
        if spec.name not in instance and not spec.nullable:
            raise InstanceError("is missing", index=index, field=spec.name)
    return [instance.get(spec.name) for spec in inputs]


def _nested(value: Any, spec: FieldSpec, shape: tuple[int | None, ...] | None) -> Any:
    if shape is None:
        return [_nested(item, spec, None) for item in value] if _is_list(value) else _scalar(value, spec)
    if not shape:
        if _is_list(value):
            raise _Refused(f"is a list; expected {_KIND_NAMES[spec.dtype]}")
        return _scalar(value, spec)
    if not _is_list(value):
        raise _Refused(f"is {kind(value)}; expected a list of {_count(shape[0], spec)}")
    if shape[0] is not None and len(value) != shape[0]:
        raise _Refused(f"has {len(value)} values; expected {shape[0]}")
    return [_nested(item, spec, shape[1:]) for item in value]


def _scalar(value: Any, spec: FieldSpec) -> Any:
    if value is None and spec.dtype != "any":
        if spec.nullable:
            return None
        raise _Refused(f"is null; expected {_KIND_NAMES[spec.dtype]}")
    value = _KINDS[spec.dtype](value, spec.nullable)
    if spec.categories is not None and str(value) not in spec.categories:
        raise _Refused(f"unknown category {short(value)}; known: {listed(spec.categories)}")
    return value


def _float(value: Any, nullable: bool) -> Any:
    if type(value) not in (int, float):
        raise _Refused(f"is {kind(value)}; expected a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if math.isinf(number) or (math.isnan(number) and not nullable):
        raise _Refused(f"is {short(value)}; expected a finite number")
    return number


def _integer(value: Any, nullable: bool) -> Any:
    number = _float(value, nullable)
    if not number.is_integer() or not -_INT64 <= value < _INT64:
        raise _Refused(f"is {short(value)}; expected a whole number")
    return int(value)


def _boolean(value: Any, nullable: bool) -> Any:
    if not isinstance(value, bool):
        raise _Refused(f"is {kind(value)}; expected true or false")
    return value


def _string(value: Any, nullable: bool) -> Any:
    if not isinstance(value, str):
        raise _Refused(f"is {kind(value)}; expected a text")
    return value


def _bytes(value: Any, nullable: bool) -> Any:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if not isinstance(value, dict) or set(value) != {"b64"} or not isinstance(value["b64"], str):
        raise _Refused(f'is {kind(value)}; expected a text, or {{"b64": "…"}}')
    try:
        return base64.b64decode(value["b64"], validate=True)
    except (binascii.Error, ValueError) as error:
        raise _Refused(f"is not base64: {error}") from error


def _any(value: Any, nullable: bool) -> Any:
    return value


_KINDS: dict[str, Callable[[Any, bool], Any]] = {
    "float": _float,
    "integer": _integer,
    "boolean": _boolean,
    "string": _string,
    "bytes": _bytes,
    "any": _any,
}
_KIND_NAMES = {
    "float": "a number",
    "integer": "a whole number",
    "boolean": "true or false",
    "string": "a text",
    "bytes": "bytes",
    "any": "a value",
}


def kind(value: Any) -> str:
    """What a value is, in JSON's words."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f"the text {short(value)}"
    if isinstance(value, int | float):
        return f"the number {short(value)}"
    return "a list" if _is_list(value) else "an object" if isinstance(value, dict) else type(value).__name__


def short(value: Any) -> str:
    try:
        text = repr(value)
    except ValueError:  # Python writes no whole number of more than 4300 digits
        text = "a very large number"
    return text if len(text) <= 40 else text[:37] + "…"


def _count(size: int | None, spec: FieldSpec) -> str:
    return f"{'' if size is None else size} {spec.dtype} values".strip()


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)
