"""The few paths of the older XML API that clients still use: `/BUCKET/KEY`, and uploads in parallel parts."""

import base64
import os
import re
import threading
from dataclasses import dataclass, field, replace

from stoker.formats.checksum import CHUNK_BYTES
from stoker.storage.draft import Draft
from stoker.storage.gcs_api import objects
from stoker.storage.gcs_api.bucket_index import Bucket
from stoker.storage.gcs_api.conditions import check_of
from stoker.storage.gcs_api.errors import ApiError
from stoker.storage.gcs_api.http import Request, Response
from stoker.storage.gcs_api.resources import etag, read_all
from stoker.storage.gcs_api.uploads import append, hashes, store, verify

_NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
_PART = re.compile(r"<Part>\s*(.*?)\s*</Part>", re.DOTALL)
_LIMIT = 8 << 20
_CONDITIONS = {
    "x-goog-if-generation-match": "ifGenerationMatch",
    "x-goog-if-metageneration-match": "ifMetagenerationMatch",
}


@dataclass(slots=True)
class _Upload:
    """Parts as they come, by number."""

    bucket: Bucket
    key: str
    attributes: dict[str, str]
    parts: dict[int, Draft] = field(default_factory=dict)
    is_over: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)  # parts come in parallel, and so may the end

    def take(self, number: int, draft: Draft) -> None:
        with self.lock:
            if self.is_over:
                draft.discard()
                raise _no_upload()
            if (replaced := self.parts.get(number)) is not None:
                replaced.discard()
            self.parts[number] = draft

    def discard(self) -> None:
        with self.lock:
            self.is_over = True
            for draft in self.parts.values():
                draft.discard()


class XmlApi:
    """Uploads in parts live as long as this process."""

    def __init__(self) -> None:
        self._uploads: dict[str, _Upload] = {}

    def answer(self, request: Request, bucket: Bucket, key: str) -> Response:
        if not key:
            raise ApiError(501, "stoker's gateway lists buckets by the JSON API only.")
        request = replace(request, query={**request.query, **_conditions(request)})
        match request.method, "uploads" in request.query, "uploadId" in request.query:
            case "POST", True, _:
                return self._begin(request, bucket, key)
            case "PUT", _, True:
                return self._receive(request)
            case "POST", _, True:
                return self._finish(request)
            case "DELETE", _, True:
                self._forget(request.query["uploadId"])
                return Response(204)
            case "GET" | "HEAD", _, _:
                return objects.download(request, bucket, key)
            case "DELETE", _, _:
                return objects.delete(request, bucket, key)
            case "PUT", _, _:
                return self._put(request, bucket, key)
        raise ApiError(405, f"{request.method} is not served here.")

    def close(self) -> None:
        for word in list(self._uploads):
            self._forget(word)

    def _put(self, request: Request, bucket: Bucket, key: str) -> Response:
        made = store(bucket, key, request.body, attributes=_attributes(request), request=request)
        return Response(200, {"ETag": etag(made), "X-Goog-Generation": str(made.generation)})

    def _begin(self, request: Request, bucket: Bucket, key: str) -> Response:
        word = os.urandom(24).hex()
        self._uploads[word] = _Upload(bucket, key, _attributes(request))
        return _xml(
            "InitiateMultipartUploadResult",
            f"<Bucket>{bucket.name}</Bucket><Key>{_escaped(key)}</Key><UploadId>{word}</UploadId>",
        )

    def _receive(self, request: Request) -> Response:
        upload = self._find(request)
        number = request.query.get("partNumber", "")
        if not number.isdigit():
            raise ApiError(400, f"partNumber must be a number (got {number!r}).")
        draft = upload.bucket.store.draft(upload.key)
        try:
            append(request.body, draft)
            verify(draft, hashes(request))
        except BaseException:
            draft.discard()
            raise
        draft.close()
        upload.take(int(number), draft)
        return Response(200, {"ETag": _part_etag(draft), "X-Goog-Hash": f"crc32c={draft.crc32c},md5={draft.md5}"})

    def _finish(self, request: Request) -> Response:
        upload = self._find(request)
        named = read_all(request.body, _LIMIT).decode("utf-8", "replace")
        draft = upload.bucket.store.draft(upload.key)
        try:
            with upload.lock:
                if upload.is_over:
                    raise _no_upload()
                for number in _named_parts(named, upload):
                    with open(upload.parts[number].path, "rb") as file:
                        while data := file.read(CHUNK_BYTES):
                            draft.write(data)
            made = upload.bucket.store.commit(
                upload.key, draft, attributes=upload.attributes, check=check_of(request.query)
            )
        except BaseException:
            draft.discard()
            raise
        self._forget(request.query["uploadId"])
        found = f"<Bucket>{upload.bucket.name}</Bucket><Key>{_escaped(upload.key)}</Key><ETag>{etag(made)}</ETag>"
        response = _xml("CompleteMultipartUploadResult", found)
        return replace(response, headers={**response.headers, "X-Goog-Generation": str(made.generation)})

    def _find(self, request: Request) -> _Upload:
        upload = self._uploads.get(request.query["uploadId"])
        if upload is None:
            raise _no_upload()
        return upload

    def _forget(self, word: str) -> None:
        if (upload := self._uploads.pop(word, None)) is not None:
            upload.discard()


def _no_upload() -> ApiError:
    return ApiError(404, "No such upload: it was finished, aborted, or its gateway has ended.")


def _named_parts(text: str, upload: _Upload) -> list[int]:
    """The parts that the client wants, in order; each must have come with the tag it names."""
    numbers = []
    for part in _PART.findall(text):
        number = re.search(r"<PartNumber>(\d+)</PartNumber>", part)
        tag = re.search(r"<ETag>(.*?)</ETag>", part)
        if number is None or tag is None or int(number[1]) not in upload.parts:
            raise ApiError(400, f"A part is named that has not come: {part}")
        if tag[1].replace("&quot;", '"').strip('"') != _part_etag(upload.parts[int(number[1])]).strip('"'):
            raise ApiError(400, f"Part {number[1]} is not the one that came.")
        numbers.append(int(number[1]))
    if not numbers:
        raise ApiError(400, "No parts are named.")
    return sorted(numbers)


def _part_etag(draft: Draft) -> str:
    return f'"{base64.b64decode(draft.md5).hex()}"'


def _conditions(request: Request) -> dict[str, str]:
    """Preconditions are headers here, and parameters in the JSON API."""
    return {name: request.headers[header] for header, name in _CONDITIONS.items() if header in request.headers}


def _attributes(request: Request) -> dict[str, str]:
    names = {"contentType": "content-type", "contentEncoding": "content-encoding", "cacheControl": "cache-control"}
    return {name: request.headers[header] for name, header in names.items() if request.headers.get(header)}


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _xml(name: str, content: str) -> Response:
    text = f"<?xml version='1.0' encoding='UTF-8'?><{name} xmlns='{_NAMESPACE}'>{content}</{name}>"
    return Response(200, {"Content-Type": "application/xml; charset=UTF-8"}, text.encode())
