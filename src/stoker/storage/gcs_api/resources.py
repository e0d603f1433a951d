"""Objects and buckets as the JSON resources of Google's API."""

import base64
import json
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from stoker.storage.gcs_api.errors import ApiError
from stoker.storage.gcs_api.http import Body, Response
from stoker.storage.object_store import StoredObject

_WRITABLE = (
    "cacheControl",
    "contentDisposition",
    "contentEncoding",
    "contentLanguage",
    "contentType",
    "customTime",
    "eventBasedHold",
    "metadata",
    "storageClass",
    "temporaryHold",
)
_JSON_LIMIT = 32 << 20


def object_resource(bucket: str, found: StoredObject, base_url: str) -> dict[str, Any]:
    generation = str(found.generation)
    path = f"/b/{quote(bucket, safe='')}/o/{quote(found.key, safe='', errors='surrogateescape')}"
    resource: dict[str, Any] = {
        "kind": "storage#object",
        "id": f"{bucket}/{found.key}/{generation}",
        "selfLink": f"{base_url}/storage/v1{path}",
        "mediaLink": f"{base_url}/download/storage/v1{path}?generation={generation}&alt=media",
        "name": found.key,
        "bucket": bucket,
        "generation": generation,
        "metageneration": str(found.metageneration),
        "contentType": content_type(found),
        "storageClass": "STANDARD",
        "size": str(found.size),
        "etag": etag(found),
        "timeCreated": timestamp(found.created),
        "updated": timestamp(found.updated),
        "timeStorageClassUpdated": timestamp(found.created),
    }
    if found.md5:
        resource["md5Hash"] = found.md5
    if found.crc32c:
        resource["crc32c"] = found.crc32c
    return resource | dict(found.attributes)


def bucket_resource(bucket: str, base_url: str, attributes: Mapping[str, Any]) -> dict[str, Any]:
    created = timestamp(0.0)
    return {
        "kind": "storage#bucket",
        "id": bucket,
        "selfLink": f"{base_url}/storage/v1/b/{bucket}",
        "projectNumber": "0",
        "timeCreated": created,
        "updated": created,
        "metageneration": "1",
        "location": "LOCAL",
        "locationType": "region",
        "storageClass": "STANDARD",
        "etag": "CAE=",
        "iamConfiguration": {"uniformBucketLevelAccess": {"enabled": False}},
        **attributes,
        "name": bucket,
    }


def content_type(found: StoredObject) -> str:
    """What was set, or what the name says (a file put there by hand)."""
    given = found.attributes.get("contentType")
    if given:
        return str(given)
    # Reads the machine's tables at first use: most gateways never need them.
    import mimetypes  # noqa: PLC0415

    return mimetypes.guess_type(found.key)[0] or "application/octet-stream"


def etag(found: StoredObject) -> str:
    return base64.b64encode(f"{found.generation}/{found.metageneration}".encode()).decode()


def timestamp(seconds: float) -> str:
    whole = int(seconds)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole)) + f".{int((seconds - whole) * 1000):03d}Z"


def writable(given: Mapping[str, Any]) -> dict[str, Any]:
    """Of a resource that a client sent, what is kept with the object."""
    kept = {name: given[name] for name in _WRITABLE if given.get(name) is not None}
    if "metadata" in kept:
        if not isinstance(kept["metadata"], dict):
            raise ApiError(400, "metadata must be an object of strings.")
        kept["metadata"] = {str(name): str(value) for name, value in kept["metadata"].items() if value is not None}
    return kept


def patched(present: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """PATCH's rule: null removes, the rest replaces; inside `metadata` too."""
    merged = dict(present)
    for name, value in changes.items():
        if name not in _WRITABLE:
            continue
        if value is None:
            merged.pop(name, None)
        elif name == "metadata" and isinstance(value, dict):
            merged[name] = {**merged.get(name, {}), **value}
        else:
            merged[name] = value
    return writable(merged)


def json_response(value: object, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    kind = {"Content-Type": "application/json; charset=UTF-8"}
    return Response(status, {**kind, **(headers or {})}, json.dumps(value).encode())


def read_json(body: Body) -> dict[str, Any]:
    """The object in a body; an empty body is an empty one."""
    data = read_all(body, _JSON_LIMIT)
    if not data.strip():
        return {}
    return parse_json(data)


def parse_json(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except ValueError as error:
        raise ApiError(400, f"The body is not JSON: {error}.") from error
    if not isinstance(found, dict):
        raise ApiError(400, "The body must be a JSON object.")
    return found


def read_all(body: Body, limit: int) -> bytes:
    pieces = []
    size = 0
    while data := body.read(1 << 20):
        size += len(data)
        if size > limit:
            raise ApiError(413, f"The body is larger than {limit >> 20} MiB. Send it as a resumable upload.")
        pieces.append(data)
    return b"".join(pieces)
