"""New objects: in one request (media, multipart) or in many (resumable)."""

import os
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from stoker.errors import StokerError
from stoker.formats.checksum import CHUNK_BYTES
from stoker.storage.draft import Draft
from stoker.storage.gcs_api.bucket_index import Bucket
from stoker.storage.gcs_api.conditions import check_of
from stoker.storage.gcs_api.errors import ApiError
from stoker.storage.gcs_api.http import Body, Request, Response
from stoker.storage.gcs_api.multipart import split_parts
from stoker.storage.gcs_api.resources import json_response, object_resource, parse_json, read_all, read_json, writable
from stoker.storage.object_store import Check, StoredObject

_MULTIPART_LIMIT = 256 << 20  # held in memory; clients send more as resumable uploads
_RANGE = re.compile(r"bytes (?:(\d+)-(\d+|\*)|\*)/(\d+|\*)")
_FINISHED_KEPT = 1000  # answers to a client that asks again whether its upload has arrived


@dataclass(slots=True)
class Session:
    """A resumable upload under way."""

    bucket: Bucket
    key: str
    draft: Draft
    attributes: Mapping[str, Any]
    expected: Mapping[str, str]
    check: Check
    lock: threading.Lock = field(default_factory=threading.Lock)
    made: StoredObject | None = None


class Uploads:
    """Sessions live as long as this process: their bytes are drafts, which nobody sees."""

    def __init__(self) -> None:
        self._sessions: dict[str, Session] = {}

    def insert(self, request: Request, bucket: Bucket) -> Response:
        kind = request.query.get("uploadType", "")
        if "upload_id" in request.query:
            return self.proceed(request)
        if kind == "media":
            return self._media(request, bucket)
        if kind == "multipart":
            return self._multipart(request, bucket)
        if kind == "resumable":
            return self._begin(request, bucket)
        raise ApiError(400, f"uploadType must be media, multipart or resumable (got {kind!r}).")

    def proceed(self, request: Request) -> Response:
        """A piece of a resumable upload, a question how far it is, or the word that nobody wants it any more."""
        word = request.query["upload_id"]
        session = self._find(word)
        with session.lock:
            self._find(word)  # a request before this one may have been its end
            if request.method == "DELETE":
                self._forget(word, session)
                return Response(499)
            if session.made is None:
                self._receive(request, session)
            if session.made is None:
                return Response(308, {"Range": f"bytes=0-{session.draft.size - 1}"} if session.draft.size else {})
        self._tidy()
        return _told(request, session.bucket, session.made)

    def close(self) -> None:
        """Discard what is not finished: no client can come back to it."""
        for word, session in list(self._sessions.items()):
            self._forget(word, session)

    def _media(self, request: Request, bucket: Bucket) -> Response:
        key = _key(request.query.get("name"))
        attributes = {"contentType": request.headers.get("content-type", "application/octet-stream")}
        if "contentEncoding" in request.query:
            attributes["contentEncoding"] = request.query["contentEncoding"]
        made = store(bucket, key, request.body, attributes=attributes, request=request)
        return _told(request, bucket, made)

    def _multipart(self, request: Request, bucket: Bucket) -> Response:
        body = read_all(request.body, _MULTIPART_LIMIT)
        parts = split_parts(body, request.headers.get("content-type", ""))
        if len(parts) != 2:
            raise ApiError(400, f"A multipart upload has two parts, metadata and media (got {len(parts)}).")
        given = parse_json(parts[0].content)
        key = _key(request.query.get("name") or given.get("name"))
        attributes = writable(given)
        attributes.setdefault("contentType", parts[1].headers.get("content-type", "application/octet-stream"))
        draft = bucket.store.draft(key)
        try:
            draft.write(parts[1].content)
            verify(draft, {**_expected(given), **hashes(request)})
            made = bucket.store.commit(key, draft, attributes=attributes, check=check_of(request.query))
        except BaseException:
            draft.discard()
            raise
        return _told(request, bucket, made)

    def _begin(self, request: Request, bucket: Bucket) -> Response:
        given = read_json(request.body)
        key = _key(request.query.get("name") or given.get("name"))
        attributes = writable(given)
        kind = request.headers.get("x-upload-content-type")
        if kind:
            attributes.setdefault("contentType", kind)
        check = check_of(request.query)
        check(bucket.store.stat(key))  # refused before the bytes are sent; asked again when they are there
        word = os.urandom(24).hex()
        self._sessions[word] = Session(
            bucket=bucket,
            key=key,
            draft=bucket.store.draft(key),
            attributes=attributes,
            expected=_expected(given),
            check=check,
        )
        query = urlencode({**request.query, "upload_id": word})
        return Response(200, {"Location": f"{request.base_url}{request.path}?{query}", "X-GUploader-UploadID": word})

    def _find(self, word: str) -> Session:
        session = self._sessions.get(word)
        if session is None:
            raise ApiError(404, "No such upload session: it was finished, cancelled, or its gateway has ended.")
        return session

    def _receive(self, request: Request, session: Session) -> None:
        """Take what this request brings; the object is made when it was the last."""
        start, total = _content_range(request.headers.get("content-range"), session.draft.size)
        if start is not None:
            if start > session.draft.size:
                return  # a gap: the answer says how far we are, and the client goes on from there
            append(request.body, session.draft, skip=session.draft.size - start)
        if total is None and "content-range" not in request.headers:
            total = session.draft.size
        if total is None or session.draft.size < total:
            return
        try:
            if session.draft.size > total:
                raise ApiError(400, f"{session.draft.size} bytes came for an upload of {total}.")
            verify(session.draft, {**session.expected, **hashes(request)})
            session.made = session.bucket.store.commit(
                session.key, session.draft, attributes=session.attributes, check=session.check
            )
        except (ApiError, StokerError):
            self._forget(request.query["upload_id"], session)  # the same bytes would be refused again
            raise

    def _forget(self, word: str, session: Session) -> None:
        self._sessions.pop(word, None)
        if session.made is None:
            session.draft.discard()

    def _tidy(self) -> None:
        finished = [word for word, session in list(self._sessions.items()) if session.made is not None]
        for word in finished[:-_FINISHED_KEPT]:
            self._sessions.pop(word, None)


def _told(request: Request, bucket: Bucket, made: StoredObject) -> Response:
    """The new object's resource. Clients compare its checksums with theirs, so both must be in it."""
    return json_response(object_resource(bucket.name, bucket.store.with_checksums(made), request.base_url))


def store(bucket: Bucket, key: str, body: Body, *, attributes: Mapping[str, Any], request: Request) -> StoredObject:
    """Stream a body into an object."""
    draft = bucket.store.draft(key)
    try:
        append(body, draft)
        verify(draft, hashes(request))
        return bucket.store.commit(key, draft, attributes=attributes, check=check_of(request.query))
    except BaseException:
        draft.discard()
        raise


def hashes(request: Request) -> dict[str, str]:
    """The checksums a client sends along: `x-goog-hash: crc32c=…,md5=…` or `content-md5`."""
    found = {}
    for item in request.headers.get("x-goog-hash", "").split(","):
        name, _, value = item.strip().partition("=")
        if name in ("crc32c", "md5"):
            found[name] = value
    if "content-md5" in request.headers:
        found["md5"] = request.headers["content-md5"]
    return found


def verify(draft: Draft, expected: Mapping[str, str]) -> None:
    for name, value in expected.items():
        computed = draft.md5 if name == "md5" else draft.crc32c
        if value and value != computed:
            raise ApiError(400, f'Provided {name} "{value}" doesn\'t match calculated {name} "{computed}".')


def append(body: Body, draft: Draft, *, skip: int = 0) -> None:
    """Stream a body into a draft, but for the first bytes: a client sends again what it did not hear has arrived."""
    while data := body.read(CHUNK_BYTES):
        if skip >= len(data):
            skip -= len(data)
            continue
        draft.write(data[skip:] if skip else data)
        skip = 0


def _content_range(text: str | None, received: int) -> tuple[int | None, int | None]:
    """Where the bytes of this request begin (None: it has none), and how many there are in all (None: not known)."""
    if text is None:
        return received, None
    found = _RANGE.fullmatch(text.strip())
    if found is None:
        raise ApiError(400, f"Content-Range is not understood: {text!r}.")
    start = None if found[1] is None else int(found[1])
    return start, None if found[3] == "*" else int(found[3])


def _expected(given: Mapping[str, Any]) -> dict[str, str]:
    return {short: str(given[name]) for short, name in (("md5", "md5Hash"), ("crc32c", "crc32c")) if given.get(name)}


def _key(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise ApiError(400, "Required parameter: name")
    if len(name.encode("utf-8", "surrogatepass")) > 1024:
        raise ApiError(400, "The maximum object length is 1024 characters, but got a name with more.")
    return name
