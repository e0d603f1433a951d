"""Buckets: list, make, look at, label, delete."""

from stoker.storage.bucket import BucketFolder
from stoker.storage.gcs_api.bucket_index import Bucket, BucketIndex
from stoker.storage.gcs_api.errors import ApiError
from stoker.storage.gcs_api.http import Request, Response
from stoker.storage.gcs_api.resources import bucket_resource, json_response, read_json

_COMPUTED = {"kind", "id", "name", "selfLink", "etag", "metageneration", "timeCreated", "updated", "projectNumber"}


def listing(request: Request, index: BucketIndex) -> Response:
    prefix = request.query.get("prefix", "")
    names = [name for name in index.names() if name.startswith(prefix)]
    items = [bucket_resource(name, request.base_url, {}) for name in names]
    return json_response({"kind": "storage#buckets", "items": items})


def insert(request: Request, index: BucketIndex) -> Response:
    given = read_json(request.body)
    bucket = index.bucket(str(given.get("name", "")))
    if not index.is_open(bucket) or bucket.store.exists() or not isinstance(bucket.store, BucketFolder):
        raise ApiError(409, f"Your previous request to create the named bucket succeeded: {bucket.name} is there.")
    bucket.store.make()
    return _kept(request, bucket, {name: value for name, value in given.items() if name not in _COMPUTED})


def get(request: Request, bucket: Bucket) -> Response:
    kept = bucket.store.bucket_attributes() if isinstance(bucket.store, BucketFolder) else {}
    return json_response(bucket_resource(bucket.name, request.base_url, kept))


def change(request: Request, bucket: Bucket) -> Response:
    """PATCH merges, PUT replaces; what is set is kept and given back, and means nothing here."""
    given = {name: value for name, value in read_json(request.body).items() if name not in _COMPUTED}
    kept = bucket.store.bucket_attributes() if isinstance(bucket.store, BucketFolder) else {}
    merged = {**kept, **given} if request.method == "PATCH" else given
    return _kept(request, bucket, {name: value for name, value in merged.items() if value is not None})


def delete(index: BucketIndex, bucket: Bucket) -> Response:
    if not bucket.store.exists():
        raise ApiError(404, f"The specified bucket does not exist: {bucket.name}")
    if next(bucket.store.list(), None) is not None:
        raise ApiError(409, "The bucket you tried to delete is not empty.")
    if not index.is_open(bucket) or not isinstance(bucket.store, BucketFolder):
        raise ApiError(403, f"{bucket.name} is set in stoker's config.toml ([storage.buckets]): take it out there.")
    bucket.store.drop()
    return Response(204)


def _kept(request: Request, bucket: Bucket, attributes: dict[str, object]) -> Response:
    if isinstance(bucket.store, BucketFolder):
        bucket.store.set_bucket_attributes(attributes)
    return json_response(bucket_resource(bucket.name, request.base_url, attributes))
