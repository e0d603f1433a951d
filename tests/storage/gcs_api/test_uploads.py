"""Requests of one upload that meet: a part on its way when the end comes, and one that waited meanwhile."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from stoker.storage.buckets import Buckets
from stoker.storage.gcs_api.http import Request, Response
from stoker.storage.gcs_api.service import Service
from tests.processes import DEADLINE_S


class Body:
    """Bytes, and what happens just when the last of them has come."""

    def __init__(self, data: bytes, at_end: Callable[[], object] = lambda: None) -> None:
        self._data, self._at_end = data, at_end

    def read(self, size: int) -> bytes:
        data, self._data = self._data[:size], self._data[size:]
        if not data:
            self._at_end()
            self._at_end = lambda: None
        return data


@pytest.fixture
def service(tmp_path: Path) -> Service:
    return Service(Buckets.of_home(tmp_path))


def ask(
    service: Service, method: str, path: str, body: Body | None = None, headers: dict[str, str] | None = None
) -> Response:
    path, _, query = path.partition("?")
    words = dict(word.partition("=")[::2] for word in query.split("&") if word)
    return service.answer(Request(method, path, words, headers or {}, body or Body(b"")))


def holding(folder: Path, data: bytes) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and path.read_bytes() == data]


@pytest.mark.parametrize("end", ["DELETE", "POST"])
def test_part_that_arrives_when_its_upload_has_ended_is_refused_and_leaves_nothing(
    service: Service, tmp_path: Path, end: str
) -> None:
    begun = ask(service, "POST", "/bucket/key?uploads=").body.decode()
    word = begun.partition("<UploadId>")[2].partition("<")[0]
    first = ask(service, "PUT", f"/bucket/key?uploadId={word}&partNumber=1", Body(b"one"))
    all_parts = f"<Part><PartNumber>1</PartNumber><ETag>{first.headers['ETag']}</ETag></Part>".encode()
    ended = []

    def at_end() -> None:
        ended.append(ask(service, end, f"/bucket/key?uploadId={word}", Body(all_parts)).status)

    late = ask(service, "PUT", f"/bucket/key?uploadId={word}&partNumber=2", Body(b"two", at_end))

    assert (late.status, ended) == (404, [204 if end == "DELETE" else 200])
    assert holding(tmp_path / "buckets", b"two") == []
    assert len(holding(tmp_path / "buckets", b"one")) == (0 if end == "DELETE" else 1)


def test_piece_that_waited_while_its_upload_was_cancelled_is_refused(service: Service, tmp_path: Path) -> None:
    begun = ask(service, "POST", "/upload/storage/v1/b/bucket/o?uploadType=resumable&name=key", Body(b"{}"))
    word = begun.headers["X-GUploader-UploadID"]
    path = f"/upload/storage/v1/b/bucket/o?uploadType=resumable&upload_id={word}"
    answers: list[Response] = []
    (session,) = service._uploads._sessions.values()
    waits = threading.Event()

    class Lock:
        """Notes that somebody is about to wait for it."""

        def __init__(self) -> None:
            self.lock = threading.Lock()

        def __enter__(self) -> None:
            waits.set()
            self.lock.acquire()

        def __exit__(self, *error: object) -> None:
            self.lock.release()

    session.lock = lock = Lock()  # type: ignore[assignment]
    lock.lock.acquire()
    piece = threading.Thread(target=lambda: answers.append(ask(service, "PUT", path, Body(b"all of it"))))
    piece.start()
    assert waits.wait(DEADLINE_S)
    service._uploads._forget(word, session)  # what a DELETE does that holds the lock
    lock.lock.release()
    piece.join(DEADLINE_S)

    assert [answer.status for answer in answers] == [404]
    assert holding(tmp_path / "buckets", b"all of it") == []
