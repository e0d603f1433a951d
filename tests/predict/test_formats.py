"""Instances in each form they come in, and what is wrong with those that are none."""

import base64
import contextlib
import gzip
import io
import json
import math
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.errors import ConfigError, InstanceError, StokerError
from stoker.formats.tfrecord import masked_crc32c
from stoker.predict.instances.csv import csv_instances
from stoker.predict.instances.example import as_instance, parse_example
from stoker.predict.instances.lines import json_instances, json_request, text_instances
from stoker.predict.instances.tfrecord import records
from stoker.schema.bundle import FieldSpec, Signature

ROW = Signature(inputs=(FieldSpec(name="", dtype="float", shape=(2,)),))
NAMED = Signature(
    inputs=(
        FieldSpec(name="km", dtype="float", shape=()),
        FieldSpec(name="town", dtype="string", shape=(), categories=("a", "b")),
        FieldSpec(name="n", dtype="integer", shape=(), nullable=True),
        FieldSpec(name="ok", dtype="boolean", shape=(), nullable=True),
    )
)


# A writer of tf.Example, which the product has no use for.
def varint(value: int) -> bytes:
    value &= 0xFFFFFFFFFFFFFFFF
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def field(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def feature(values: list[Any], *, packed: bool = True) -> bytes:
    if not values:
        return b""
    if isinstance(values[0], bytes):
        return field(1, b"".join(field(1, value) for value in values))
    if isinstance(values[0], float):
        if packed:
            return field(2, field(1, struct.pack(f"<{len(values)}f", *values)))
        return field(2, b"".join(varint(1 << 3 | 5) + struct.pack("<f", value) for value in values))
    if packed:
        return field(3, field(1, b"".join(map(varint, values))))
    return field(3, b"".join(varint(1 << 3) + varint(value) for value in values))


def example(features: dict[str, list[Any]], *, packed: bool = True) -> bytes:
    entries = [field(1, name.encode()) + field(2, feature(values, packed=packed)) for name, values in features.items()]
    return field(1, b"".join(field(1, entry) for entry in entries))


def record(data: bytes) -> bytes:
    head = struct.pack("<Q", len(data))
    return head + struct.pack("<I", masked_crc32c(head)) + data + struct.pack("<I", masked_crc32c(data))


VALUES = st.one_of(
    st.lists(st.binary(max_size=20), max_size=4),
    st.lists(st.floats(width=32, allow_nan=False), max_size=4),
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4),
)
FEATURES = st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), VALUES, max_size=4)


@settings(max_examples=150, deadline=None)
@given(features=FEATURES, packed=st.booleans())
def test_example_comes_back_as_it_was_written(features: dict[str, list[Any]], packed: bool) -> None:
    assert parse_example(example(features, packed=packed)) == features


@settings(max_examples=300, deadline=None)
@given(data=st.binary(max_size=60))
def test_any_bytes_are_an_example_or_an_instance_error(data: bytes) -> None:
    with contextlib.suppress(InstanceError):
        parse_example(data)


@settings(max_examples=100, deadline=None)
@given(features=FEATURES, cut=st.integers(0, 200), flip=st.integers(0, 200), packed=st.booleans())
def test_damaged_file_is_noticed(features: dict[str, list[Any]], cut: int, flip: int, packed: bool) -> None:
    whole = record(example({"first": [1]})) + record(example(features))
    first = len(record(example({"first": [1]})))
    truncated = whole[: max(first + 1, len(whole) - 1 - cut % (len(whole) - first))]
    place = first + flip % (len(whole) - first)
    flipped = whole[:place] + bytes([whole[place] ^ 0x40]) + whole[place + 1 :]
    for damaged in (truncated, flipped):
        with pytest.raises(InstanceError, match=f"instance 1: record 2, at offset {first}"):
            list(records(io.BytesIO(gzip.compress(damaged) if packed else damaged)))


def test_records_and_examples_of_tensorboards_protobuf_are_read() -> None:
    """Its own copy of TensorFlow's wire format, by Google's protobuf."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    from tensorboard.summary.writer.record_writer import RecordWriter

    made = _example_class(descriptor_pb2, descriptor_pool, message_factory)()
    made.features.feature["km"].float_list.value.extend([1.5, -2.0])
    made.features.feature["n"].int64_list.value.extend([-1, 2**40])
    made.features.feature["town"].bytes_list.value.append("é".encode())
    file = io.BytesIO()
    writer = RecordWriter(file)
    writer.write(made.SerializeToString())
    writer.write(made.SerializeToString())

    found = list(records(io.BytesIO(file.getvalue())))

    assert [item.offset for item in found] == [0, len(file.getvalue()) // 2]
    assert parse_example(found[1].data) == {"km": [1.5, -2.0], "n": [-1, 2**40], "town": ["é".encode()]}


def _example_class(pb2: Any, pool: Any, factory: Any) -> Any:
    """tf.train.Example, described by hand: TensorFlow is not installed here."""
    file = pb2.FileDescriptorProto(name="example.proto", package="t", syntax="proto3")
    kinds = pb2.FieldDescriptorProto

    def message(name: str, *fields: tuple[str, int, int, int, str]) -> Any:
        made = file.message_type.add(name=name)
        for field_name, number, label, kind, type_name in fields:
            made.field.add(name=field_name, number=number, label=label, type=kind, type_name=type_name or None)
        return made

    one, many = kinds.LABEL_OPTIONAL, kinds.LABEL_REPEATED
    message("BytesList", ("value", 1, many, kinds.TYPE_BYTES, ""))
    message("FloatList", ("value", 1, many, kinds.TYPE_FLOAT, ""))
    message("Int64List", ("value", 1, many, kinds.TYPE_INT64, ""))
    lists = [("bytes_list", "BytesList"), ("float_list", "FloatList"), ("int64_list", "Int64List")]
    parts = [(name, at, one, kinds.TYPE_MESSAGE, f".t.{kind}") for at, (name, kind) in enumerate(lists, 1)]
    made = message("Feature", *parts)
    made.oneof_decl.add(name="kind")
    for each in made.field:
        each.oneof_index = 0
    features = message("Features", ("feature", 1, many, kinds.TYPE_MESSAGE, ".t.Features.FeatureEntry"))
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, label=one, type=kinds.TYPE_STRING)
    entry.field.add(name="value", number=2, label=one, type=kinds.TYPE_MESSAGE, type_name=".t.Feature")
    message("Example", ("features", 1, one, kinds.TYPE_MESSAGE, ".t.Features"))
    found = pool.DescriptorPool()
    found.Add(file)
    return factory.GetMessageClass(found.FindMessageTypeByName("t.Example"))


def test_joined_gzip_files_are_one_file_and_a_truncated_one_is_told() -> None:
    packed = gzip.compress(record(b"a")) + gzip.compress(record(b"b"))

    assert [item.data for item in records(io.BytesIO(packed))] == [b"a", b"b"]
    with pytest.raises(InstanceError, match="record 2, at offset 17 of what was unpacked, cannot be read: the gzip"):
        list(records(io.BytesIO(packed[:-10])))


def test_features_take_the_signatures_shapes() -> None:
    signature = Signature(
        inputs=(
            FieldSpec(name="image", dtype="float", shape=(2, 2)),
            FieldSpec(name="raw", dtype="bytes", shape=()),
            FieldSpec(name="ok", dtype="boolean", shape=()),
            FieldSpec(name="words", dtype="string", shape=(None,)),
        )
    )
    found = as_instance(
        {"image": [1.0, 2.0, 3.0, 4.0], "raw": [b"\xff"], "ok": [1], "words": [b"x"], "new": [7]}, signature
    )

    raw = {"b64": base64.b64encode(b"\xff").decode()}
    assert found == {"image": [[1.0, 2.0], [3.0, 4.0]], "raw": raw, "ok": True, "words": ["x"], "new": 7}
    assert as_instance({"x": [1.0, 2.0]}, ROW) == [1.0, 2.0]
    for features, message in [
        ({"image": [1.0] * 3}, "field 'image': has 3 values, which do not fill the shape"),
        ({"ok": [1, 0]}, "field 'ok': has 2 values; expected one"),
        ({"words": [b"\xff"]}, "field 'words': is not UTF-8: byte 0"),
    ]:
        with pytest.raises(InstanceError, match=message):
            as_instance(features, signature)


def test_json_lines_take_a_bom_and_carriage_returns() -> None:
    assert json_instances(b'\xef\xbb\xbf[1, 2]\r\n{"a": "\xe2\x80\xa8"}') == [[1, 2], {"a": "\u2028"}]
    assert text_instances("a\nb c\n\u2028\n".encode()) == ["a", "b c", "\u2028"]
    assert json_instances(b"") == []


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"1\n\n2", "instance 1: line 2 is empty"),
        (b"1\n{", "instance 1: line 2 is not JSON: Expecting property name"),
        (b'1\n"\xff"', "instance 1: line 2 is not UTF-8: byte 1 of the line is 0xff"),
        (b"[" * 200_000, "instance 0: line 1 is not JSON that can be read: it is nested too deeply"),
        (b"1" * 5000, "instance 0: line 1 is not JSON that can be read: Exceeds the limit"),
    ],
)
def test_bad_line_is_named(data: bytes, message: str) -> None:
    with pytest.raises(InstanceError, match=message):
        json_instances(data)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not JSON"),
        (b"[]", "no object with a list of instances"),
        (b'{"instances": 3}', "no object with a list of instances"),
        (b'{"instances": [], "signature_name": 3}', "signature_name"),
        (b'\n{"\xff', r"not UTF-8: byte 3, in line 2"),
        (b"[" * 200_000, "nested too deeply"),
    ],
)
def test_bad_request_is_told(data: bytes, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        json_request(data)
    assert json_request(b'{"instances": [1], "signature_name": "s"}') == ([1], "s")


def test_csv_goes_by_header_or_by_the_signatures_order() -> None:
    row = {"km": 1.5, "town": "a", "n": 3, "ok": True}

    assert csv_instances(b"town,km,ok,n\na,1.5,true,3\n", NAMED) == [row]
    assert csv_instances(b'1.5,"a",3,1\n', NAMED) == [row]
    assert csv_instances(b"1.5,a,,\r\n\r\n", NAMED) == [{**row, "n": None, "ok": None}]
    assert csv_instances(b"x,y\n1,2\n3,4", ROW) == [[1.0, 2.0], [3.0, 4.0]]
    assert csv_instances(b"1,2", ROW) == [[1.0, 2.0]]
    assert csv_instances(b"a,b\nx,2\n", Signature()) == [{"a": "x", "b": 2.0}]
    assert csv_instances(b"", NAMED) == []
    assert math.isnan(csv_instances(b"nan,2", ROW)[0][0])  # refused when it is checked, as everywhere


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"1.5,a,3\n", "instance 0: has 3 columns; expected 4: km, town, n, ok"),
        (b"km,town,n,ok\n1,a,2,1\nx,a,2,1\n", "instance 1, field 'km': is 'x'; expected a number"),
        (b"1,a,2,maybe\n", "instance 0, field 'ok': is 'maybe'; expected true or false"),
        (b"1_0,a,2,1\n", "field 'km': is '1_0'; expected a number"),
        (b"km,town,kg,kg\n1,a,2,2\n", r"(?s)kg: the model has no such field.*kg: is there twice"),
        (b"town,n\na,2\n", "km: is missing"),
        (b"1,a,2,1\n1,\xff,2,1\n", "not UTF-8: byte 2 of line 2 is 0xff"),
        (b'1,"a,2,1\n', "cannot be read at line 1: unexpected end of data"),
    ],
)
def test_bad_csv_is_named(data: bytes, message: str) -> None:
    with pytest.raises(StokerError, match=message):
        csv_instances(data, NAMED)


def test_a_file_may_be_large(tmp_path: Path) -> None:
    lines = b"".join(json.dumps([i, i + 1]).encode() + b"\n" for i in range(20_000))

    assert len(json_instances(lines)) == 20_000
