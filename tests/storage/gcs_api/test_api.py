"""The API in plain HTTP: what Google's documentation promises, beyond what one client happens to use."""

import base64
import gzip
import hashlib
import json
import socket
import threading
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path

import pytest

from stoker.errors import NotFoundError, StokerError
from stoker.storage.gcs_api.errors import from_stoker
from stoker.storage.gcs_api.server import Gateway
from stoker.storage.object_store import DeniedError
from tests.storage.gcs_api.conftest import Answer, Caller

UPLOAD = "/upload/storage/v1/b/bucket/o"
OBJECTS = "/storage/v1/b/bucket/o"
QUARTER = 256 * 1024


def put(call: Caller, name: str, data: bytes, query: str = "", **headers: str) -> Answer:
    return call("POST", f"{UPLOAD}?uploadType=media&name={name}{query}", data, headers)


def begin(call: Caller, name: str, metadata: object | None = None, query: str = "") -> str:
    answer = call("POST", f"{UPLOAD}?uploadType=resumable&name={name}{query}", metadata or {})
    assert answer.status == 200
    return "/" + answer.headers["location"].split("/", 3)[3]


def names(answer: Answer) -> list[str]:
    return [item["name"] for item in answer.json.get("items", [])]


def test_object_has_the_fields_of_googles_resource(call: Caller) -> None:
    answer = put(call, "a%2Fb.txt", b"123456789", **{"Content-Type": "text/plain"})

    found = call("GET", f"{OBJECTS}/a%2Fb.txt").json
    assert answer.json == found
    assert (found["name"], found["bucket"], found["size"]) == ("a/b.txt", "bucket", "9")
    assert (found["md5Hash"], found["crc32c"]) == ("JfnnlDI7RTiF9RgfG2JNCw==", "4waSgw==")
    assert (found["contentType"], found["metageneration"]) == ("text/plain", "1")
    assert int(found["generation"]) > 10**15


def test_missing_object_is_404_in_googles_words(call: Caller) -> None:
    for answer in (
        call("GET", f"{OBJECTS}/none"),
        call("GET", f"{OBJECTS}/none?alt=media"),
        call("GET", "/download/storage/v1/b/bucket/o/none?alt=media"),
        call("DELETE", f"{OBJECTS}/none"),
        call("PATCH", f"{OBJECTS}/none", {}),
        call("POST", f"{OBJECTS}/none/rewriteTo/b/bucket/o/x"),
    ):
        assert answer.status == 404
        assert answer.json["error"]["message"] == "No such object: bucket/none"
        assert answer.json["error"]["errors"][0]["reason"] == "notFound"


@pytest.mark.parametrize(
    ("wanted", "status", "body", "content_range"),
    [
        ("bytes=2-4", 206, b"234", "bytes 2-4/10"),
        ("bytes=7-", 206, b"789", "bytes 7-9/10"),
        ("bytes=-3", 206, b"789", "bytes 7-9/10"),
        ("bytes=5-500", 206, b"56789", "bytes 5-9/10"),
        ("bytes=-500", 206, b"0123456789", "bytes 0-9/10"),
        ("bytes=10-", 416, None, "bytes */10"),
        ("lines=1-2", 200, b"0123456789", None),
    ],
)
def test_range_is_read(call: Caller, wanted: str, status: int, body: bytes | None, content_range: str | None) -> None:
    put(call, "data", b"0123456789")

    answer = call("GET", f"{OBJECTS}/data?alt=media", headers={"Range": wanted})

    assert answer.status == status
    assert body is None or answer.body == body
    assert answer.headers.get("content-range") == content_range


def test_head_has_the_headers_and_no_body(call: Caller) -> None:
    put(call, "data", b"0123456789")

    answer = call("HEAD", "/bucket/data")

    assert (answer.status, answer.body, answer.headers["content-length"]) == (200, b"", "10")
    assert call("GET", "/bucket/data").body == b"0123456789"  # and the connection is in step


@pytest.mark.parametrize(
    ("newline", "data"),
    [(b"\r\n", b"plain"), (b"\n", b"ends with return\r"), (b"\r\n", b"ends\r\n"), (b"\n", b""), (b"\n", b"--==x--\n")],
)
def test_multipart_keeps_every_byte(call: Caller, newline: bytes, data: bytes) -> None:
    head = newline.join([b"--==b==", b"Content-Type: application/json", b"", b'{"name": "m"}', b"--==b=="])
    body = head + newline + b"Content-Type: text/x-t" + newline * 2 + data + newline + b"--==b==--" + newline

    answer = call(
        "POST", f"{UPLOAD}?uploadType=multipart", body, {"Content-Type": 'multipart/related; boundary="==b=="'}
    )

    assert answer.status == 200
    assert answer.json["contentType"] == "text/x-t"
    assert call("GET", f"{OBJECTS}/m?alt=media").body == data


def test_resumable_upload_arrives_in_pieces(call: Caller, home: Path) -> None:
    place = begin(call, "big", {"metadata": {"k": "v"}})
    data = bytes(range(256)) * 2048  # two quarters

    first = call("PUT", place, data[:QUARTER], {"Content-Range": f"bytes 0-{QUARTER - 1}/*"})
    asked = call("PUT", place, b"", {"Content-Range": "bytes */*"})
    assert call("GET", f"{OBJECTS}/big").status == 404
    assert not (home / "buckets/bucket/big").exists()
    last = call("PUT", place, data[QUARTER:], {"Content-Range": f"bytes {QUARTER}-{len(data) - 1}/{len(data)}"})

    assert (first.status, first.headers["range"]) == (308, f"bytes=0-{QUARTER - 1}")
    assert (asked.status, asked.headers["range"]) == (308, f"bytes=0-{QUARTER - 1}")
    assert (last.status, last.json["size"], last.json["metadata"]) == (200, str(len(data)), {"k": "v"})
    assert call("GET", f"{OBJECTS}/big?alt=media").body == data
    assert call("PUT", place, b"", {"Content-Range": f"bytes */{len(data)}"}).json == last.json


def test_resumable_upload_skips_what_it_has(call: Caller) -> None:
    place = begin(call, "big")
    call("PUT", place, b"a" * QUARTER, {"Content-Range": f"bytes 0-{QUARTER - 1}/*"})

    again = b"a" * QUARTER + b"b" * 10
    answer = call("PUT", place, again, {"Content-Range": f"bytes 0-{len(again) - 1}/{len(again)}"})

    assert answer.json["size"] == str(len(again))
    assert call("GET", f"{OBJECTS}/big?alt=media").body == again


def test_resumable_upload_says_how_far_it_is_when_there_is_a_gap(call: Caller) -> None:
    place = begin(call, "big")

    assert "range" not in call("PUT", place, b"", {"Content-Range": "bytes */*"}).headers
    call("PUT", place, b"a" * QUARTER, {"Content-Range": f"bytes 0-{QUARTER - 1}/*"})
    gap = call("PUT", place, b"c", {"Content-Range": f"bytes {2 * QUARTER}-{2 * QUARTER}/{2 * QUARTER + 1}"})

    assert (gap.status, gap.headers["range"]) == (308, f"bytes=0-{QUARTER - 1}")


def test_resumable_upload_of_nothing_makes_an_empty_object(call: Caller) -> None:
    place = begin(call, "empty")

    assert call("PUT", place, b"", {"Content-Range": "bytes */0"}).json["size"] == "0"


def test_resumable_upload_in_one_request_needs_no_range(call: Caller) -> None:
    place = begin(call, "one")

    assert call("PUT", place, b"all of it").json["size"] == "9"


def test_cancelled_upload_leaves_nothing(call: Caller, home: Path) -> None:
    place = begin(call, "big")
    call("PUT", place, b"a" * QUARTER, {"Content-Range": f"bytes 0-{QUARTER - 1}/*"})

    assert call("DELETE", place).status == 499
    assert call("PUT", place, b"x").status == 404
    assert list((home / "buckets/bucket/.stoker/partial").iterdir()) == []


def test_bytes_that_came_before_the_connection_broke_are_kept(call: Caller, gateway: Gateway) -> None:
    place = begin(call, "big")
    data = bytes(range(256)) * 16_384
    with socket.create_connection(("127.0.0.1", int(gateway.url.rpartition(":")[2]))) as broken:
        head = f"PUT {place} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n"
        head += f"Content-Range: bytes 0-{len(data) - 1}/{len(data)}\r\n\r\n"
        broken.sendall(head.encode() + data[: 3 * 1024 * 1024])
        broken.shutdown(socket.SHUT_WR)
        broken.recv(1)

    asked = call("PUT", place, b"", {"Content-Range": "bytes */*"})
    received = int(asked.headers["range"].rpartition("-")[2]) + 1
    assert 0 < received <= 3 * 1024 * 1024
    rest = data[received:]
    answer = call("PUT", place, rest, {"Content-Range": f"bytes {received}-{len(data) - 1}/{len(data)}"})

    assert answer.status == 200
    assert call("GET", f"{OBJECTS}/big?alt=media").body == data


def test_media_upload_that_breaks_leaves_nothing(call: Caller, gateway: Gateway, home: Path) -> None:
    put(call, "first", b"x")
    with socket.create_connection(("127.0.0.1", int(gateway.url.rpartition(":")[2]))) as broken:
        head = f"POST {UPLOAD}?uploadType=media&name=half HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"
        broken.sendall(head.encode() + b"half")
        broken.shutdown(socket.SHUT_WR)
        assert broken.recv(100) == b""

    assert names(call("GET", OBJECTS)) == ["first"]
    assert list((home / "buckets/bucket/.stoker/partial").iterdir()) == []


@pytest.mark.parametrize("header", ["crc32c=AAAAAA==", "md5=AAAAAAAAAAAAAAAAAAAAAA=="])
def test_wrong_checksum_is_refused(call: Caller, header: str) -> None:
    answer = put(call, "data", b"123456789", **{"X-Goog-Hash": header})

    assert answer.status == 400
    assert "doesn't match calculated" in answer.json["error"]["message"]
    assert call("GET", f"{OBJECTS}/data").status == 404
    assert put(call, "data", b"123456789", **{"X-Goog-Hash": "crc32c=4waSgw=="}).status == 200


def test_preconditions_hold(call: Caller) -> None:
    generation = put(call, "data", b"1", "&ifGenerationMatch=0").json["generation"]

    assert put(call, "data", b"2", "&ifGenerationMatch=0").status == 412
    assert put(call, "data", b"2", "&ifGenerationMatch=7").status == 412
    assert put(call, "data", b"2", "&ifMetagenerationMatch=2").status == 412
    assert call("DELETE", f"{OBJECTS}/data?ifGenerationMatch=7").status == 412
    assert call("GET", f"{OBJECTS}/data?ifGenerationMatch=7").status == 412
    assert call("GET", f"{OBJECTS}/data?ifGenerationNotMatch={generation}").status == 304
    assert call("GET", f"{OBJECTS}/data?generation=7").status == 404
    assert call("GET", f"{OBJECTS}/data?alt=media&generation={generation}").body == b"1"
    assert put(call, "data", b"2", f"&ifGenerationMatch={generation}").status == 200
    assert put(call, "data", b"2", "&ifGenerationMatch=seven").status == 400


def test_resumable_upload_checks_again_when_it_is_complete(call: Caller) -> None:
    place = begin(call, "data", query="&ifGenerationMatch=0")
    put(call, "data", b"somebody was faster")

    assert call("PUT", place, b"too late").status == 412
    assert call("GET", f"{OBJECTS}/data?alt=media").body == b"somebody was faster"


def test_refused_upload_leaves_nothing(call: Caller, home: Path) -> None:
    place = begin(call, "data", {"crc32c": "AAAAAA=="})

    assert call("PUT", place, b"123456789").status == 400
    assert call("PUT", place, b"123456789").status == 404
    assert list((home / "buckets/bucket/.stoker/partial").iterdir()) == []


def test_attributes_cannot_break_into_headers(call: Caller) -> None:
    begun = begin(call, "data", {"contentType": "text/x\r\nX-Evil: yes", "contentDisposition": "a\nb"})
    call("PUT", begun, b"x")

    answer = call("GET", f"{OBJECTS}/data?alt=media")

    assert (answer.body, "x-evil" in answer.headers) == (b"x", False)


def test_attributes_are_patched_and_replaced(call: Caller) -> None:
    put(call, "data", b"x")

    call("PATCH", f"{OBJECTS}/data", {"metadata": {"a": "1", "b": "2"}, "cacheControl": "no-store"})
    patched = call("PATCH", f"{OBJECTS}/data", {"metadata": {"a": None, "c": "3"}, "cacheControl": None}).json
    replaced = call("PUT", f"{OBJECTS}/data", {"contentType": "text/x-new"}).json

    assert (patched["metadata"], patched.get("cacheControl")) == ({"b": "2", "c": "3"}, None)
    assert patched["metageneration"] == "3"
    assert (replaced.get("metadata"), replaced["contentType"]) == (None, "text/x-new")
    assert replaced["generation"] == patched["generation"]


def test_listing_comes_in_pages(call: Caller) -> None:
    wanted = ["a", "b/1", "b/2", "b/3/x", "c", "d/1"]
    for name in wanted:
        put(call, name.replace("/", "%2F"), b"x")

    for delimiter, expected in (("", wanted), ("/", ["a", "b/", "c", "d/"])):
        for size in (1, 2, 3, 10):
            found: list[str] = []
            token = ""
            while True:
                page = call("GET", f"{OBJECTS}?maxResults={size}&delimiter={delimiter}&pageToken={token}")
                shown = sorted(names(page) + page.json.get("prefixes", []))
                assert len(shown) <= size
                found += shown
                token = page.json.get("nextPageToken", "")
                if not token:
                    break
            assert found == expected


def test_listing_takes_prefix_offsets_and_patterns(call: Caller) -> None:
    for name in ("a1", "a2", "b1", "b2/x", "c"):
        put(call, name.replace("/", "%2F"), b"x")

    assert names(call("GET", f"{OBJECTS}?prefix=a")) == ["a1", "a2"]
    assert names(call("GET", f"{OBJECTS}?startOffset=a2&endOffset=c")) == ["a2", "b1", "b2/x"]
    assert names(call("GET", f"{OBJECTS}?matchGlob=**%2Fx")) == ["b2/x"]
    assert names(call("GET", f"{OBJECTS}?matchGlob=%3F1")) == ["a1", "b1"]
    dashed = call("GET", f"{OBJECTS}?delimiter=1")
    assert (names(dashed), dashed.json["prefixes"]) == (["a2", "b2/x", "c"], ["a1", "b1"])
    assert call("GET", f"{OBJECTS}?prefix=none").json == {"kind": "storage#objects"}
    assert call("GET", f"{OBJECTS}?pageToken=%21%21").status == 400


def test_objects_are_composed(call: Caller) -> None:
    put(call, "1", b"one ")
    put(call, "2", b"two")
    body = {"sourceObjects": [{"name": "1"}, {"name": "2"}, {"name": "1"}], "destination": {"contentType": "text/x"}}

    made = call("POST", f"{OBJECTS}/all/compose", body).json

    assert call("GET", f"{OBJECTS}/all?alt=media").body == b"one twoone "
    assert (made["componentCount"], "md5Hash" in made, "crc32c" in made) == (3, False, True)
    assert call("POST", f"{OBJECTS}/x/compose", {"sourceObjects": []}).status == 400
    assert call("POST", f"{OBJECTS}/x/compose", {"sourceObjects": [{"name": "none"}]}).status == 404
    wrong = {"sourceObjects": [{"name": "1", "objectPreconditions": {"ifGenerationMatch": 7}}]}
    assert call("POST", f"{OBJECTS}/x/compose", wrong).status == 412


def test_objects_are_copied_and_moved(call: Caller) -> None:
    source = put(call, "1", b"one", **{"Content-Type": "text/x-one"}).json

    copied = call("POST", f"{OBJECTS}/1/copyTo/b/other/o/dir%2F2").json
    rewritten = call("POST", f"{OBJECTS}/1/rewriteTo/b/bucket/o/3", {"contentType": "text/x-new"}).json
    moved = call("POST", f"{OBJECTS}/1/moveTo/o/4").json

    assert (copied["bucket"], copied["name"], copied["contentType"]) == ("other", "dir/2", "text/x-one")
    assert copied["md5Hash"] == source["md5Hash"]
    assert (rewritten["done"], rewritten["resource"]["contentType"]) == (True, "text/x-new")
    assert moved["name"] == "4"
    assert names(call("GET", OBJECTS)) == ["3", "4"]
    stale = f"{OBJECTS}/3/rewriteTo/b/bucket/o/5?ifSourceGenerationMatch=7"
    assert call("POST", stale).status == 412


def test_batch_answers_each_part(call: Caller) -> None:
    put(call, "1", b"x")
    put(call, "2", b"x")
    body = ""
    for number, line in enumerate([f"DELETE {OBJECTS}/1", f"DELETE {OBJECTS}/none", f"PATCH {OBJECTS}/2"]):
        body += f"--b\nContent-Type: application/http\nContent-ID: <id+{number}>\n\n{line} HTTP/1.1\n"
        body += "Content-Type: application/json\n\n" + ('{"metadata": {"k": "v"}}' if "PATCH" in line else "") + "\n"
    headers = {"Content-Type": "multipart/mixed; boundary=b"}

    answer = call("POST", "/batch/storage/v1", body + "--b--", headers)

    text = answer.body.decode()
    lines = [line for line in text.splitlines() if line.startswith("HTTP/")]
    assert lines == ["HTTP/1.1 204 No Content", "HTTP/1.1 404 Not Found", "HTTP/1.1 200 OK"]
    assert "Content-ID: <response-id+2>" in text
    assert names(call("GET", OBJECTS)) == ["2"]
    assert call("GET", f"{OBJECTS}/2").json["metadata"] == {"k": "v"}


def test_chunked_body_is_read(call: Caller) -> None:
    def pieces():  # type: ignore[no-untyped-def]
        yield from (b"first,", b"second,", b"third")

    answer = call("POST", f"{UPLOAD}?uploadType=media&name=data", pieces())

    assert answer.json["size"] == str(len(b"first,second,third"))
    assert call("GET", f"{OBJECTS}/data?alt=media").body == b"first,second,third"


def test_gzip_is_sent_as_it_is_or_unpacked(call: Caller) -> None:
    packed = gzip.compress(b"text")
    put(call, "data", packed, "&contentEncoding=gzip")

    as_it_is = call("GET", f"{OBJECTS}/data?alt=media", headers={"Accept-Encoding": "gzip"})
    unpacked = call("GET", f"{OBJECTS}/data?alt=media")

    assert (as_it_is.body, as_it_is.headers["content-encoding"]) == (packed, "gzip")
    assert (unpacked.body, "content-encoding" in unpacked.headers) == (b"text", False)


def test_file_put_by_hand_is_served(call: Caller, home: Path) -> None:
    folder = home / "buckets/bucket/data"
    folder.mkdir(parents=True)
    (folder / "train.csv").write_bytes(b"123456789")

    assert names(call("GET", f"{OBJECTS}?prefix=data/")) == ["data/train.csv"]
    found = call("GET", f"{OBJECTS}/data%2Ftrain.csv").json
    assert (found["contentType"], found["crc32c"]) == ("text/csv", "4waSgw==")
    assert call("GET", "/bucket/data/train.csv").body == b"123456789"


def test_any_bucket_is_there_offline_and_can_be_made_once(call: Caller) -> None:
    assert call("GET", "/storage/v1/b/never-made").status == 200
    assert call("POST", "/storage/v1/b", {"name": "made", "labels": {"a": "b"}}).status == 200
    assert call("POST", "/storage/v1/b", {"name": "made"}).status == 409
    assert call("GET", "/storage/v1/b/made").json["labels"] == {"a": "b"}
    call("PATCH", "/storage/v1/b/made", {"labels": {"c": "d"}})
    assert call("GET", "/storage/v1/b/made").json["labels"] == {"c": "d"}
    call("POST", "/upload/storage/v1/b/made/o?uploadType=media&name=x", b"x")
    assert [item["name"] for item in call("GET", "/storage/v1/b").json["items"]] == ["made"]
    assert call("DELETE", "/storage/v1/b/made").status == 409
    call("DELETE", "/storage/v1/b/made/o/x")
    assert call("DELETE", "/storage/v1/b/made").status == 204
    assert call("GET", "/storage/v1/b").json["items"] == []


def test_mapped_bucket_is_its_folder_and_a_missing_folder_is_said(home: Path, tmp_path: Path) -> None:
    home.mkdir()
    (tmp_path / "disk").mkdir()
    settings = f'"gs://mapped" = "{tmp_path}/disk"\n"gs://gone" = "{tmp_path}/unmounted"\n'
    (home / "config.toml").write_text(f"[storage.buckets]\n{settings}")
    with Gateway(home) as gateway:
        call = Caller(gateway.url)
        call("POST", "/upload/storage/v1/b/mapped/o?uploadType=media&name=x", b"x")
        gone = call("POST", "/upload/storage/v1/b/gone/o?uploadType=media&name=x", b"x")
        kept = call("DELETE", "/storage/v1/b/mapped/o/x"), call("DELETE", "/storage/v1/b/mapped")
        call.close()

    assert gone.status == 404
    assert f"{tmp_path}/unmounted" in gone.json["error"]["message"]
    assert (kept[0].status, kept[1].status) == (204, 403)
    assert (tmp_path / "disk").is_dir()


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/storage/v1/b/UPPER/o", 400),
        ("GET", "/storage/v1/b/..%2F..%2Fetc/o/passwd?alt=media", 400),
        ("GET", f"{OBJECTS}/..%2F..%2F..%2Fsecret?alt=media", 404),
        ("GET", "/bucket/../../secret", 404),
        ("GET", f"{OBJECTS}/%FF", 400),
        ("POST", f"{UPLOAD}?uploadType=nonsense&name=x", 400),
        ("POST", f"{UPLOAD}?uploadType=media", 400),
        ("POST", f"{UPLOAD}?uploadType=multipart", 400),
        ("PUT", f"{UPLOAD}?uploadType=resumable&upload_id=none", 404),
        ("POST", "/batch/storage/v1", 400),
        ("GET", "/storage/v1/projects/x/hmacKeys", 501),
        ("GET", "/storage/v1/b/bucket/notificationConfigs", 501),
    ],
)
def test_bad_request_is_refused_and_the_connection_goes_on(
    call: Caller, home: Path, method: str, path: str, status: int
) -> None:
    home.mkdir(exist_ok=True)
    (home / "secret").write_bytes(b"secret")

    assert call(method, path).status == status
    assert call("GET", "/").status == 200


@pytest.mark.parametrize(
    "raw",
    [
        b"nonsense\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: minus\r\n\r\n",
        b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 200 + b"\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
    ],
)
def test_what_is_no_http_ends_that_connection_alone(gateway: Gateway, call: Caller, raw: bytes) -> None:
    with socket.create_connection(("127.0.0.1", int(gateway.url.rpartition(":")[2])), timeout=60) as odd:
        odd.sendall(raw)
        odd.shutdown(socket.SHUT_WR)
        while odd.recv(65536):
            pass

    assert call("GET", "/").status == 200


def test_bad_json_is_400(call: Caller) -> None:
    for body in (b"{", b"[]", b'"x"'):
        answer = call("POST", f"{UPLOAD}?uploadType=resumable&name=x", body)
        assert (answer.status, answer.json["error"]["code"]) == (400, 400)
    assert json.loads(call("POST", "/storage/v1/b", b"{}").body)["error"]["code"] == 400


def test_download_is_of_one_generation_while_the_object_is_replaced(gateway: Gateway, call: Caller) -> None:
    versions = [bytes([n]) * (1000 * (n + 1)) for n in range(60)]
    put(call, "data", versions[0])
    done = threading.Event()

    def write() -> None:
        writer = Caller(gateway.url)
        for version in versions:
            put(writer, "data", version)
        writer.close()
        done.set()

    thread = threading.Thread(target=write)
    thread.start()
    while not done.is_set():
        answer = call("GET", f"{OBJECTS}/data?alt=media")
        assert answer.status == 200
        assert answer.body in versions
        md5 = base64.b64encode(hashlib.md5(answer.body).digest()).decode()
        assert answer.headers["x-goog-hash"].endswith(f"md5={md5}")
    thread.join()


def test_storage_that_refuses_or_fails_is_not_asked_again_for_minutes() -> None:
    """Google's clients repeat a 500 until their deadline."""
    assert from_stoker(DeniedError("gs://bucket/x: permission denied")).status == 403
    assert from_stoker(StokerError("gs://bucket/x: No space left on device.")).status == 507
    assert from_stoker(NotFoundError("gs://bucket: its folder is not there")).status == 404


def test_precondition_in_a_header_of_the_xml_api_is_kept(call: Caller) -> None:
    create = {"x-goog-if-generation-match": "0"}
    assert call("PUT", "/bucket/data", b"first", create).status == 200

    assert call("PUT", "/bucket/data", b"second", create).status == 412

    assert call("GET", "/bucket/data").body == b"first"
    found = call("GET", "/bucket/data").headers["x-goog-generation"]
    assert call("PUT", "/bucket/data", b"third", {"x-goog-if-generation-match": found}).status == 200
    assert call("GET", "/bucket/data").body == b"third"


def test_download_says_when_the_object_was_written(call: Caller) -> None:
    call("PUT", "/bucket/data", b"x")

    written = parsedate_to_datetime(call("GET", "/bucket/data").headers["last-modified"])

    assert abs((datetime.now(UTC) - written).total_seconds()) < 3600
