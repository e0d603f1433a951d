"""The framing of TFRecords and protobuf's wire format, against bytes that TensorFlow and protobuf wrote."""

import pytest

from stoker.formats import protobuf as wire
from stoker.formats.tfrecord import HEAD_BYTES, framed, is_whole, length_in

EMPTY = bytes.fromhex("0000000000000000 29039807 d8ea82a2")


def test_records_are_framed_as_tensorflow_does() -> None:
    assert framed(b"") == EMPTY

    record = framed(b"some data")

    assert length_in(record[:HEAD_BYTES]) == 9
    assert is_whole(b"some data", record[-4:])
    assert not is_whole(b"some dAta", record[-4:])
    assert length_in(b"\x01" + record[1:HEAD_BYTES]) is None


def test_fields_are_read_as_they_were_written() -> None:
    message = wire.number_field(1, 150) + wire.bytes_field(2, b"testing") + b"\x1d\x00\x00\x80\x3f"

    assert message[:12] == bytes.fromhex("089601 1207 74657374696e67")  # protobuf's own documentation
    assert list(wire.fields(message)) == [(1, 0, 150), (2, 2, b"testing"), (3, 5, b"\x00\x00\x80\x3f")]
    assert wire.signed(wire.read_varint(wire.varint(-2), 0)[0]) == -2
    assert len(wire.varint(-1)) == 10


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (b"\x08", "ends inside a number at byte 1"),
        (b"\x12\x05abc", r"ends before its field at byte 2 does \(5 bytes\)"),
        (b"\x0b", "unknown kind 3"),
        (b"\x00\x01", "number 0"),
        (b"\x08" + b"\xff" * 10, "more than ten bytes"),
    ],
)
def test_what_is_no_message_is_named_with_its_place(message: bytes, words: str) -> None:
    with pytest.raises(wire.Malformed, match=words):
        list(wire.fields(message))
