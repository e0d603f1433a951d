"""tf.Example, read from protobuf's wire format without TensorFlow.

Example { Features features = 1 }                 Features { map<string, Feature> feature = 1 }
Feature { oneof: BytesList = 1, FloatList = 2, Int64List = 3 }, each with `repeated value = 1`, packed or not
"""

import base64
import struct
from collections.abc import Iterator
from typing import Any

from stoker.errors import InstanceError
from stoker.formats.protobuf import FIXED32, LENGTH, VARINT, Malformed, fields, read_varint, signed
from stoker.predict.base import Instance
from stoker.schema.bundle import FieldSpec, Signature

Values = list[bytes] | list[float] | list[int]
Features = dict[str, Values]

_BYTES, _FLOATS, _INTS = 1, 2, 3


def parse_example(data: bytes, *, index: int = 0) -> Features:
    """The features by name, in the order written. InstanceError if the bytes are no tf.Example."""
    try:
        features: Features = {}
        for entry in _parts(b"".join(_parts(data, 1)), 1):
            name = b"".join(_parts(entry, 1)).decode()
            features[name] = _values(b"".join(_parts(entry, 2)))
        return features
    except UnicodeDecodeError as error:
        raise InstanceError("is no tf.Example: a feature's name is not UTF-8", index=index) from error
    except (Malformed, struct.error) as error:
        raise InstanceError(f"is no tf.Example: {error}", index=index) from error


def as_instance(features: Features, signature: Signature, *, index: int = 0) -> Instance:
    """Features as an object of JSON values, by the signature's kinds and shapes where it knows them."""
    specs = {spec.name: spec for spec in signature.inputs}
    if len(specs) == 1 and "" in specs and len(features) == 1:
        (values,) = features.values()
        return _shaped(values, specs[""], index=index)
    # A feature that is not there is a gap: tf.Example has no other word for one.
    gaps = {spec.name: None for spec in signature.inputs if spec.nullable and spec.name}
    found = {name: _shaped(each, specs.get(name, FieldSpec(name=name)), index=index) for name, each in features.items()}
    return {**gaps, **found}


def _shaped(values: Values, spec: FieldSpec, *, index: int) -> Any:
    plain = [_plain(value, spec, index=index) for value in values]
    if spec.shape is not None and len(spec.shape) > 1:
        return _nested(plain, spec.shape, spec, index=index)
    if spec.shape == () or (spec.shape is None and len(plain) == 1):
        if len(plain) > 1:
            raise InstanceError(f"has {len(plain)} values; expected one", index=index, field=spec.name or None)
        return plain[0] if plain else None
    return plain


def _nested(values: list[Any], shape: tuple[int | None, ...], spec: FieldSpec, *, index: int) -> Any:
    """A flat list cut into rows: tf.Example knows no shapes."""
    if len(shape) <= 1:
        return values
    inner = 1
    for size in shape[1:]:
        inner *= size or 0
    if inner == 0 or len(values) % inner:
        what = f"has {len(values)} values, which do not fill the shape {list(shape)}"
        raise InstanceError(what, index=index, field=spec.name or None)
    return [_nested(values[at : at + inner], shape[1:], spec, index=index) for at in range(0, len(values), inner)]


def _plain(value: bytes | float | int, spec: FieldSpec, *, index: int) -> Any:
    if not isinstance(value, bytes):
        return bool(value) if spec.dtype == "boolean" else value
    if spec.dtype == "bytes":
        return {"b64": base64.b64encode(value).decode()}
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        if spec.dtype == "any":
            return {"b64": base64.b64encode(value).decode()}
        raise InstanceError(f"is not UTF-8: byte {error.start}", index=index, field=spec.name or None) from error


def _values(feature: bytes) -> Values:
    """The list that was written last; parts of the same kind belong together, as protobuf has it."""
    kind, parts = 0, b""
    for number, part in _fields(feature):
        if number in (_BYTES, _FLOATS, _INTS) and isinstance(part, bytes):
            parts = parts + part if number == kind else part
            kind = number
    if kind == _BYTES:
        return list(_parts(parts, 1))
    return _floats(parts) if kind == _FLOATS else _ints(parts) if kind == _INTS else []


def _floats(data: bytes) -> list[float]:
    found: list[float] = []
    for number, part in _fields(data, fixed32=True):
        if number == 1 and isinstance(part, bytes):
            found += [value for (value,) in struct.iter_unpack("<f", part)]
    return found


def _ints(data: bytes) -> list[int]:
    found: list[int] = []
    for number, part in _fields(data):
        if number != 1:
            continue
        if isinstance(part, int):
            found.append(signed(part))
            continue
        at = 0
        while at < len(part):
            value, at = read_varint(part, at)
            found.append(signed(value))
    return found


def _parts(data: bytes, wanted: int) -> Iterator[bytes]:
    return (part for number, part in _fields(data) if number == wanted and isinstance(part, bytes))


def _fields(data: bytes, *, fixed32: bool = False) -> Iterator[tuple[int, bytes | int]]:
    """Field numbers with their bytes, or their number where it is a varint. `fixed32` ones are bytes too, if wanted."""
    wanted = (VARINT, LENGTH, FIXED32) if fixed32 else (VARINT, LENGTH)
    return ((number, part) for number, wire, part in fields(data) if wire in wanted)
