"""Objects that are there: read, list, change, copy, compose, delete."""

import base64
import contextlib
import re
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, BinaryIO

from stoker.formats.checksum import CHUNK_BYTES
from stoker.storage.gcs_api.bucket_index import Bucket, ReplacedError
from stoker.storage.gcs_api.conditions import check_of, is_generation, is_unchanged
from stoker.storage.gcs_api.errors import ApiError, error_response, no_object
from stoker.storage.gcs_api.http import Request, Response
from stoker.storage.gcs_api.resources import (
    content_type,
    etag,
    json_response,
    object_resource,
    patched,
    read_json,
    writable,
)
from stoker.storage.glob import compiled
from stoker.storage.object_store import Check, Folder, StoredObject

_RANGE = re.compile(r"bytes=(\d*)-(\d*)")
_PAGE = 1000
_TRIES = 20
_SUMMED_BYTES = 64 << 20  # files put there by hand are read for their checksums up to this size
_COMPOSED_MOST = 32


def get(request: Request, bucket: Bucket, key: str) -> Response:
    if request.query.get("alt") == "media":
        return download(request, bucket, key)
    found = _generation_of(request, bucket, key)
    if is_unchanged(request.query, found):
        return Response(304)
    check_of(request.query)(found)
    if found.size <= _SUMMED_BYTES:
        found = bucket.store.with_checksums(found)
    return json_response(object_resource(bucket.name, found, request.base_url), headers={"ETag": etag(found)})


def download(request: Request, bucket: Bucket, key: str) -> Response:
    """The bytes, or a range of them."""
    for _ in range(_TRIES):
        with contextlib.suppress(ReplacedError):
            return _download(request, bucket, key)
    raise ApiError(503, f"{bucket.name}/{key} is replaced all the time.")


def _download(request: Request, bucket: Bucket, key: str) -> Response:
    found = _generation_of(request, bucket, key)
    if is_unchanged(request.query, found):
        return Response(304)
    check_of(request.query)(found)
    headers = _media_headers(found)
    start, end = 0, found.size
    wanted = _RANGE.fullmatch(request.headers.get("range", "").strip())
    if wanted is not None and wanted[0] != "bytes=-":
        start, end = _range(wanted, found.size)
        if start >= end:
            refusal = error_response(416, "The requested range cannot be satisfied: not satisfiable.")
            return replace(refusal, headers={**refusal.headers, "Content-Range": f"bytes */{found.size}"})
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{found.size}"
    file = bucket.open(found)
    if headers.get("Content-Encoding") == "gzip" and "gzip" not in request.headers.get("accept-encoding", ""):
        return _decompressed(file, headers)
    status = 206 if "Content-Range" in headers else 200
    return Response(status, headers, file=file, start=start, length=end - start)


def listing(request: Request, bucket: Bucket) -> Response:
    """One page, in the order of the names."""
    query = request.query
    delimiter = query.get("delimiter", "")
    most = max(1, min(int(query.get("maxResults") or _PAGE), _PAGE))
    page = _Page(query, delimiter)
    items: list[dict[str, Any]] = []
    prefixes: list[str] = []
    token = ""
    last = page.after
    for found in bucket.store.list(page.prefix, folders=delimiter == "/", after=page.after):
        shown = page.shown(found)
        if shown is None or shown.key == last:
            continue
        if len(items) + len(prefixes) == most:
            token = base64.urlsafe_b64encode(last.encode("utf-8", "surrogateescape")).decode()
            break
        last = shown.key
        if isinstance(shown, Folder):
            prefixes.append(shown.key)
        else:
            items.append(object_resource(bucket.name, shown, request.base_url))
    result: dict[str, Any] = {"kind": "storage#objects"}
    result |= {"items": items} if items else {}
    result |= {"prefixes": prefixes} if prefixes else {}
    result |= {"nextPageToken": token} if token else {}
    return json_response(result)


def change(request: Request, bucket: Bucket, key: str) -> Response:
    """PATCH merges, PUT replaces."""
    found = _generation_of(request, bucket, key)
    given = read_json(request.body)
    attributes = patched(found.attributes, given) if request.method == "PATCH" else writable(given)
    if "componentCount" in found.attributes:
        attributes["componentCount"] = found.attributes["componentCount"]
    changed = bucket.store.update(key, attributes, check=check_of(request.query))
    return json_response(object_resource(bucket.name, changed, request.base_url))


def delete(request: Request, bucket: Bucket, key: str) -> Response:
    _generation_of(request, bucket, key)
    bucket.store.remove(key, check=check_of(request.query))
    return Response(204)


def copy(request: Request, source: tuple[Bucket, str], target: tuple[Bucket, str]) -> StoredObject:
    """The copy, with the source's attributes unless the body has others."""
    bucket, key = source
    found = bucket.store.with_checksums(bucket.stat(key))
    if not is_generation(request.query, found, name="sourceGeneration"):
        raise no_object(bucket.name, key)
    check_of(request.query, source=True)(found)
    given = read_json(request.body)
    attributes = writable(given) or {name: found.attributes[name] for name in writable(found.attributes)}
    attributes.setdefault("contentType", content_type(found))
    return _concatenated([(bucket, key)], target, attributes, check_of(request.query))


def rewrite(request: Request, source: tuple[Bucket, str], target: tuple[Bucket, str]) -> Response:
    made = copy(request, source, target)
    return json_response(
        {
            "kind": "storage#rewriteResponse",
            "totalBytesRewritten": str(made.size),
            "objectSize": str(made.size),
            "done": True,
            "resource": object_resource(target[0].name, made, request.base_url),
        }
    )


def move(request: Request, bucket: Bucket, source: str, target: str) -> Response:
    made = copy(request, (bucket, source), (bucket, target))
    if source != target:
        bucket.store.remove(source)
    return json_response(object_resource(bucket.name, made, request.base_url))


def compose(request: Request, bucket: Bucket, key: str) -> Response:
    """Concatenate. Google tells no MD5 of such objects, and how many components they have: so do we."""
    given = read_json(request.body)
    sources = given.get("sourceObjects")
    if not isinstance(sources, list) or not 1 <= len(sources) <= _COMPOSED_MOST:
        raise ApiError(400, f"sourceObjects must name 1 to {_COMPOSED_MOST} objects.")
    keys = []
    components = 0
    for source in sources:
        found = bucket.stat(str(source.get("name")))
        if not is_generation(_as_query(source), found):
            raise no_object(bucket.name, found.key)
        check_of(_as_query(source.get("objectPreconditions") or {}))(found)
        keys.append((bucket, found.key))
        components += int(found.attributes.get("componentCount", 1))
    attributes = {**writable(given.get("destination") or {}), "componentCount": components}
    attributes.setdefault("contentType", content_type(bucket.stat(keys[0][1])))
    made = _concatenated(keys, (bucket, key), attributes, check_of(request.query))
    return json_response(object_resource(bucket.name, made, request.base_url))


def _generation_of(request: Request, bucket: Bucket, key: str) -> StoredObject:
    found = bucket.stat(key)
    if not is_generation(request.query, found):
        raise no_object(bucket.name, key)
    return found


def _concatenated(
    sources: list[tuple[Bucket, str]], target: tuple[Bucket, str], attributes: Mapping[str, Any], check: Check
) -> StoredObject:
    store, key = target[0].store, target[1]
    draft = store.draft(key)
    try:
        for bucket, name in sources:
            with bucket.store.open(name) as file:
                while data := file.read(CHUNK_BYTES):
                    draft.write(data)
        return store.with_checksums(store.commit(key, draft, attributes=attributes, check=check))
    except BaseException:
        draft.discard()
        raise


def _as_query(given: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in given.items() if value is not None}


class _Page:
    """Which of a bucket's keys a listing request asks for."""

    def __init__(self, query: Mapping[str, str], delimiter: str) -> None:
        self.prefix = query.get("prefix", "")
        self.after = ""
        if "pageToken" in query:
            try:
                self.after = base64.b64decode(query["pageToken"], altchars=b"-_", validate=True).decode(
                    "utf-8", "surrogateescape"
                )
            except ValueError as error:
                raise ApiError(400, "Invalid page token.") from error
        self._delimiter = delimiter
        self._start = query.get("startOffset", "")
        self._end = query.get("endOffset", "")
        self._pattern = compiled(query["matchGlob"]) if query.get("matchGlob") else None

    def shown(self, found: StoredObject | Folder) -> StoredObject | Folder | None:
        """None for what is not asked for; below a delimiter, the folder in its place."""
        if (self._start and found.key < self._start) or (self._end and found.key >= self._end):
            return None
        if self._pattern is not None and not self._pattern.fullmatch(found.key):
            return None
        if self._delimiter and isinstance(found, StoredObject):
            head, mark, _ = found.key[len(self.prefix) :].partition(self._delimiter)
            if mark:
                folder = self.prefix + head + mark
                return Folder(folder) if folder > self.after else None
        return found


def _range(wanted: re.Match[str], size: int) -> tuple[int, int]:
    """First byte and the one behind the last. Several ranges, or units we do not know, never come here: HTTP allows
    to send it all then."""
    if not wanted[1]:
        return max(size - int(wanted[2]), 0), size
    return int(wanted[1]), min(int(wanted[2]) + 1, size) if wanted[2] else size


def _media_headers(found: StoredObject) -> dict[str, str]:
    attributes = found.attributes
    encoding = str(attributes.get("contentEncoding", ""))
    headers = {
        "Content-Type": content_type(found),
        "ETag": etag(found),
        "Accept-Ranges": "bytes",
        "Last-Modified": time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(found.updated)),
        "X-Goog-Generation": str(found.generation),
        "X-Goog-Metageneration": str(found.metageneration),
        "X-Goog-Storage-Class": "STANDARD",
        "X-Goog-Stored-Content-Length": str(found.size),
        "X-Goog-Stored-Content-Encoding": encoding or "identity",
    }
    sums = [f"{name}={value}" for name, value in (("crc32c", found.crc32c), ("md5", found.md5)) if value]
    if sums:
        headers["X-Goog-Hash"] = ",".join(sums)
    names = {"contentEncoding": "Content-Encoding", "contentDisposition": "Content-Disposition"}
    names |= {"contentLanguage": "Content-Language", "cacheControl": "Cache-Control"}
    headers |= {header: str(attributes[name]) for name, header in names.items() if attributes.get(name)}
    return headers


def _decompressed(file: BinaryIO, headers: Mapping[str, str]) -> Response:
    """For a client that does not take gzip, as Google does it."""
    import gzip  # noqa: PLC0415  hardly ever needed

    with file:
        data = gzip.decompress(file.read())
    kept = {name: value for name, value in headers.items() if name not in ("Content-Encoding", "Content-Range")}
    return Response(200, {**kept, "Warning": "214 UploadServer gunzipped"}, data)
