"""What each address answers, to good requests and to bad ones."""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stoker.errors import ConflictError, NotFoundError, StokerError, UsageError
from stoker.formats.tfrecord import masked_crc32c
from stoker.predict.online.failures import in_words
from stoker.predict.online.settings import Limits
from tests.predict.online.fakes import NAMED, Adder, Caller, serving
from tests.processes import wait_until


@pytest.fixture
def model() -> Adder:
    return Adder()


@pytest.fixture
def call(model: Adder, tmp_path: Path) -> Iterator[Caller]:
    with serving(model, tmp_path, limits=Limits(max_body_bytes=20_000, queue=2)) as caller:
        yield caller


@pytest.mark.parametrize(
    "path",
    [
        "/predict",
        "/v1/models/adder:predict",
        "/v1/models/adder/versions/v1:predict",
        "/v1/projects/p/models/adder:predict",
        "/v1/projects/p/models/adder/versions/v1:predict?alt=json",
    ],
)
def test_predict_answers_at_all_its_addresses(call: Caller, path: str) -> None:
    answer = call("POST", path, {"instances": [[1, 2], [3, 4.5]], "signature_name": "serving_default"})

    assert answer.status == 200
    assert answer.body == b'{"predictions": [3, 7.5]}'
    assert answer.headers["content-type"] == "application/json"


def test_a_body_may_be_called_anything_and_begin_with_a_mark(call: Caller) -> None:
    body = b'\xef\xbb\xbf{"instances": [[1, 2]]}'

    assert call("POST", "/predict", body, kind="application/x-www-form-urlencoded").json == {"predictions": [3]}


def test_csv_and_tf_examples_are_taken(model: Adder, tmp_path: Path) -> None:
    model.card = model.card.with_(signature=NAMED)
    record = tf_record({"a": 1.5, "b": 2.0})
    with serving(model, tmp_path) as call:
        with_header = call("POST", "/predict", b"b,a\n1,2\n3,4\n", kind="text/csv; charset=utf-8")
        bad_cell = call("POST", "/predict", b"1,2\n3,x\n", kind="text/csv")
        examples = call("POST", "/predict", record * 2, kind="application/x-tfrecord")
        truncated = call("POST", "/predict", record + record[:-5], kind="application/x-tfrecord")

    assert with_header.json == {"predictions": [{"sum": 3.0, "count": 2}, {"sum": 7.0, "count": 2}]}
    assert bad_cell.status == 400
    assert bad_cell.json["error"].startswith("instance 1, field 'b'")
    assert examples.json == {"predictions": [{"sum": 3.5, "count": 2}] * 2}
    assert truncated.status == 400
    assert f"offset {len(record)}" in truncated.json["error"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "not JSON: Expecting value at line 1, column 1 (position 0)"),
        (b'{"instances": [[1, 2],\n ]}', "line 2, column 2"),
        (b'{"instances": ["\xff"]}', "not UTF-8: byte 0xff at position 16"),
        (b"[[1, 2]]", '{"instances": [...]}'),
        (b'{"instances": {"a": 1}}', '"instances" must be a list (got an object)'),
        (b'{"instances": []}', "no instances"),
        (b'{"instances": ["bad"]}', "instance 0, field 'a': is bad"),
        (b'{"instances": ["value"]}', "ValueError: no such value"),
        (b'{"instances": [[1]], "signature_name": "other"}', "signature_name 'other'"),
        (b"[" * 15_000, "nested too deeply"),
        (b'{"instances": [' + b"1" * 5000 + b"]}", "not taken"),
    ],
)
def test_bad_bodies_are_400_and_say_where(call: Caller, body: bytes, message: str) -> None:
    answer = call("POST", "/predict", body)

    assert answer.status == 400
    assert message in answer.json["error"]
    assert call.predict([1, 2]).json == {"predictions": [3]}


def test_a_bug_in_the_model_is_one_line_and_the_worker_goes_on(call: Caller) -> None:
    answer = call.predict("bug")

    assert (answer.status, answer.json) == (500, {"error": "The model failed: RuntimeError: it broke in two lines"})
    assert call.predict([1, 2]).status == 200


def test_what_json_has_no_numbers_for_is_spelled(call: Caller) -> None:
    assert call.predict("nan", "inf").json == {"predictions": [["NaN", {"x": "NaN"}], ["Infinity", {"x": "-Infinity"}]]}


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/v1/models/other:predict", 404),
        ("POST", "/v1/models/adder/versions/v9:predict", 404),
        ("GET", "/nowhere", 404),
        ("GET", "/predict", 405),
        ("POST", "/v2/models/other/infer", 404),
    ],
)
def test_what_is_not_there_says_so(call: Caller, method: str, path: str, status: int) -> None:
    answer = call(method, path, {} if method == "POST" else None)

    assert answer.status == status
    assert answer.json["error"]


def test_a_body_over_the_limit_is_refused_before_it_is_sent(call: Caller) -> None:
    with socket.create_connection(("127.0.0.1", call.port), timeout=60) as raw:
        raw.sendall(b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\n\r\n")
        reply = raw.makefile("rb").read()  # to the end: it hangs up

    assert reply.startswith(b"HTTP/1.1 413 ")
    assert b"larger than 0.02 MB" in reply


def test_a_body_in_chunks_is_refused_where_it_passes_the_limit(call: Caller) -> None:
    chunk = b"1000\r\n" + b" " * 4096 + b"\r\n"
    with socket.create_connection(("127.0.0.1", call.port), timeout=60) as raw:
        raw.sendall(b"POST /predict HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk * 6)

        assert raw.makefile("rb").readline().startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize("raw_request", [b"hello\r\n\r\n", b"GET / HTTP/1.1\r\nX: " + b"x" * 70_000 + b"\r\n\r\n"])
def test_what_is_no_http_is_answered_and_hung_up_on(call: Caller, raw_request: bytes) -> None:
    with socket.create_connection(("127.0.0.1", call.port), timeout=60) as raw:
        raw.sendall(raw_request)

        assert raw.makefile("rb").readline()[:10] == b"HTTP/1.1 4"


def test_pipelined_requests_are_answered_in_order(call: Caller) -> None:
    one = b'POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 24\r\n\r\n{"instances": [[%d, 00]]}'
    requests = b"".join(one % n for n in range(1, 10)).replace(b", 00", b", 0 ")
    with socket.create_connection(("127.0.0.1", call.port), timeout=60) as raw:
        raw.sendall(requests + b"GET /health HTTP/1.1\r\nConnection: close\r\n\r\n")
        replies = raw.makefile("rb").read()

    found = [line for line in replies.split(b"\r\n") if line.startswith(b'{"predictions')]
    assert [line.partition(b"}")[0] for line in found] == [b'{"predictions": [%d]' % n for n in range(1, 10)]
    assert b'"status": "ok"' in replies


def test_a_full_queue_is_429_and_health_still_answers(call: Caller, model: Adder) -> None:
    model.gate.clear()
    answers: list[Any] = []
    threads = [threading.Thread(target=lambda: answers.append(call.predict([1, 2]))) for _ in range(3)]
    threads[0].start()
    model.entered.wait(60)
    for thread in threads[1:]:
        thread.start()
    wait_until(lambda: b"queue_requests 2" in call("GET", "/metrics").body, what="a full queue")

    refused = call.predict([1, 2])
    health = call("GET", "/health")
    model.gate.set()
    for thread in threads:
        thread.join(60)

    assert (refused.status, refused.headers["retry-after"]) == (429, "1")
    assert health.status == 200
    assert [answer.json for answer in answers] == [{"predictions": [3]}] * 3


def test_what_takes_too_long_is_504_and_the_queue_goes_on(model: Adder, tmp_path: Path) -> None:
    model.gate.clear()
    with serving(model, tmp_path, limits=Limits(timeout_s=0.2)) as call:
        late = call.predict([1, 2])
        model.gate.set()
        wait_until(lambda: call.predict([1, 2]).status == 200, what="an answer in time")

    assert (late.status, late.json) == (504, {"error": "No prediction within 0.2 s."})


def test_half_a_request_is_408_in_the_end(model: Adder, tmp_path: Path) -> None:
    with serving(model, tmp_path, limits=Limits(timeout_s=0.2)) as call:
        with socket.create_connection(("127.0.0.1", call.port), timeout=60) as raw:
            raw.sendall(b"POST /predict HTTP/1.1\r\nContent-Length: 10\r\n\r\n{")

            assert raw.makefile("rb").readline().startswith(b"HTTP/1.1 408 ")


def test_a_token_is_asked_for_but_not_for_health(model: Adder, tmp_path: Path) -> None:
    with serving(model, tmp_path, token="secret") as call:
        without = call.predict([1, 2])
        wrong = call("POST", "/predict", {"instances": [[1, 2]]}, Authorization="Bearer other")
        right = call("POST", "/predict", {"instances": [[1, 2]]}, Authorization="Bearer secret")
        ready = call("GET", "/v2/health/ready")

    assert (without.status, wrong.status, right.status, ready.status) == (401, 401, 200, 200)
    assert without.headers["www-authenticate"] == "Bearer"


def test_infer_takes_tensors_flat_or_nested_and_answers_with_one(call: Caller) -> None:
    tensor = {"name": "x", "shape": [2, 2], "datatype": "FP32", "data": [1, 2, 3, 4.5]}

    flat = call("POST", "/v2/models/adder/infer", {"id": "7", "inputs": [tensor]})
    nested = call("POST", "/v2/models/adder/infer", {"inputs": [{**tensor, "data": [[1, 2], [3, 4.5]]}]})

    outputs = [{"name": "output", "shape": [2], "datatype": "FP64", "data": [3, 7.5]}]
    assert flat.json == {"model_name": "adder", "model_version": "v1", "id": "7", "outputs": outputs}
    assert nested.json["outputs"] == outputs


def test_infer_takes_a_tensor_for_each_field_and_gives_one_for_each_key(model: Adder, tmp_path: Path) -> None:
    model.card = model.card.with_(signature=NAMED)
    inputs = [{"name": name, "shape": [2], "datatype": "FP64", "data": [1.5, 2.5]} for name in ("a", "b")]
    with serving(model, tmp_path) as call:
        all_of_it = call("POST", "/v2/models/adder/infer", {"inputs": inputs})
        one = call("POST", "/v2/models/adder/infer", {"inputs": inputs, "outputs": [{"name": "count"}]})
        none = call("POST", "/v2/models/adder/infer", {"inputs": inputs, "outputs": [{"name": "x"}]})
        metadata = call("GET", "/v2/models/adder")

    total = {"name": "sum", "shape": [2], "datatype": "FP64", "data": [3.0, 5.0]}
    count = {"name": "count", "shape": [2], "datatype": "INT64", "data": [2, 2]}
    assert all_of_it.json["outputs"] == [total, count]
    assert one.json["outputs"] == [count]
    assert (none.status, none.json) == (400, {"error": "No output 'x'. There are: sum, count."})
    assert metadata.json["inputs"][1] == {"name": "b", "datatype": "FP64", "shape": [-1]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"shape": [3, 2]}, "4 values do not fill the shape [3, 2]"),
        ({"datatype": "FP99"}, "no datatype 'FP99'"),
        ({"data": [1, 2, 3, "x"]}, "value 3 is 'x', which is no FP32"),
        ({"data": "AAAA"}, "must be a list"),
        ({"shape": [0, 2], "data": []}, "no instances"),
        ({"name": 3}, "inputs[0] has no name"),
    ],
)
def test_infer_names_what_is_wrong_with_an_input(call: Caller, change: dict[str, Any], message: str) -> None:
    tensor = {"name": "x", "shape": [2, 2], "datatype": "FP32", "data": [1, 2, 3, 4], **change}

    answer = call("POST", "/v2/models/adder/infer", {"inputs": [tensor]})

    assert answer.status == 400
    assert message in answer.json["error"]


def test_the_openapi_document_has_every_path_that_answers(call: Caller) -> None:
    document = call("GET", "/openapi.json").json

    for path, item in document["paths"].items():
        for method in item.keys() & {"get", "post"}:
            answer = call(method.upper(), path.replace("{project}", "p"), {} if method == "post" else None)
            assert answer.status == (200 if method == "get" else 400), path
    assert document["components"]["schemas"]["Instance"] == {
        "type": "array",
        "items": {"type": "number"},
        "minItems": 2,
        "maxItems": 2,
    }


def test_metrics_count_what_was_answered(call: Caller) -> None:
    call.predict([1, 2], [3, 4])
    call.predict("bad")

    page = call("GET", "/metrics").body.decode().splitlines()

    assert 'stoker_serve_requests_total{route="predict",status="200"} 1' in page
    assert 'stoker_serve_requests_total{route="predict",status="400"} 1' in page
    assert 'stoker_serve_latency_seconds_bucket{le="+Inf"} 2' in page
    assert 'stoker_serve_batch_instances_bucket{le="2"} 2' in page
    assert "stoker_serve_batch_instances_sum 3" in page
    assert 'stoker_serve_model_info{model="adder",version="v1"} 1' in page


def tf_record(features: dict[str, float]) -> bytes:
    """A tf.Example of one float for each name, as a TFRecord."""
    import struct

    def field(number: int, data: bytes) -> bytes:
        return bytes([number << 3 | 2, len(data)]) + data

    entries = b"".join(
        field(1, field(1, name.encode()) + field(2, field(2, field(1, struct.pack("<f", value)))))
        for name, value in features.items()
    )
    data = field(1, entries)
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", masked_crc32c(length)) + data + struct.pack("<I", masked_crc32c(data))


@pytest.mark.parametrize("kind", [UsageError, NotFoundError, ConflictError])
def test_what_a_model_says_of_its_input_is_the_callers_error(kind: type[StokerError]) -> None:
    assert in_words(kind("No such label.")) == (400, "No such label.")
    assert in_words(StokerError("Broken.")) == (500, "The model failed: Broken.")
