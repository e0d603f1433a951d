"""Which request is which: the paths of Google's JSON API, answered over the mapping of buckets."""

from stoker.errors import StokerError
from stoker.storage.buckets import Buckets
from stoker.storage.gcs_api import batch, buckets, objects
from stoker.storage.gcs_api.bucket_index import BucketIndex, unquoted
from stoker.storage.gcs_api.errors import ApiError, error_response, from_stoker
from stoker.storage.gcs_api.http import Request, Response, log_exception
from stoker.storage.gcs_api.resources import json_response, object_resource
from stoker.storage.gcs_api.uploads import Uploads
from stoker.storage.gcs_api.xml import XmlApi


class Service:
    """The API. Stateless but for uploads under way."""

    def __init__(self, buckets: Buckets) -> None:
        self._index = BucketIndex(buckets)
        self._uploads = Uploads()
        self._xml = XmlApi()

    def answer(self, request: Request) -> Response:
        """Never raises, but for a connection that broke."""
        try:
            return self._route(request)
        except ApiError as error:
            return error_response(error.status, str(error))
        except StokerError as error:
            return from_stoker(error)
        except ConnectionError:
            raise
        except Exception as error:  # noqa: BLE001  one bad request must not end the gateway of a run
            log_exception("%s %s failed", request.method, request.path)
            return error_response(500, f"stoker's gateway failed ({type(error).__name__}); its log says more.")

    def close(self) -> None:
        self._uploads.close()
        self._xml.close()

    def _route(self, request: Request) -> Response:
        match request.path[1:].split("/"):
            case [""]:
                return json_response({"kind": "stoker#gateway"})
            case ["storage", "v1", *rest]:
                return self._storage(request, rest)
            case ["download", "storage", "v1", "b", name, "o", *key] if key:
                return objects.download(request, self._index.bucket(name), unquoted("/".join(key)))
            case ["upload", "storage", "v1", "b", name, "o"] | ["resumable", "upload", "storage", "v1", "b", name, "o"]:
                return self._uploads.insert(request, self._index.bucket(name))
            case ["batch", *_]:
                return batch.run(request, self.answer)
            case [name, *key]:
                return self._xml.answer(request, self._index.bucket(name), unquoted("/".join(key)))
        raise ApiError(404, f"No such path: {request.path}")

    def _storage(self, request: Request, rest: list[str]) -> Response:
        match rest:
            case ["b"]:
                return self._buckets(request)
            case ["b", name]:
                return self._bucket(request, name)
            case ["b", name, "o"]:
                return self._objects(request, name)
            case ["b", name, "o", *rest]:
                return self._object(request, name, rest)
            case ["b", name, *rest]:
                return _access(request, self._index.bucket(name).name, rest)
        raise ApiError(501, f"stoker's gateway does not serve {'/'.join(rest)}.")

    def _buckets(self, request: Request) -> Response:
        if request.method == "POST":
            return buckets.insert(request, self._index)
        return buckets.listing(request, self._index)

    def _bucket(self, request: Request, name: str) -> Response:
        bucket = self._index.bucket(name)
        if request.method == "DELETE":
            return buckets.delete(self._index, bucket)
        if request.method in ("PATCH", "PUT"):
            return buckets.change(request, bucket)
        return buckets.get(request, bucket)

    def _objects(self, request: Request, name: str) -> Response:
        bucket = self._index.bucket(name)
        if request.method == "POST":
            return self._uploads.insert(request, bucket)
        return objects.listing(request, bucket)

    def _object(self, request: Request, name: str, rest: list[str]) -> Response:
        bucket = self._index.bucket(name)
        match rest:
            case [key, "rewriteTo", "b", other, "o", target]:
                return objects.rewrite(request, (bucket, unquoted(key)), (self._index.bucket(other), unquoted(target)))
            case [key, "copyTo", "b", other, "o", target]:
                into = self._index.bucket(other)
                made = objects.copy(request, (bucket, unquoted(key)), (into, unquoted(target)))
                return json_response(object_resource(into.name, made, request.base_url))
            case [key, "moveTo", "o", target]:
                return objects.move(request, bucket, unquoted(key), unquoted(target))
            case [key, "compose"]:
                return objects.compose(request, bucket, unquoted(key))
            case [_, "acl" | "iam", *_]:
                return _access(request, bucket.name, rest[1:])
        key = unquoted("/".join(rest))
        if request.method == "DELETE":
            return objects.delete(request, bucket, key)
        if request.method in ("PATCH", "PUT"):
            return objects.change(request, bucket, key)
        return objects.get(request, bucket, key)


def _access(request: Request, bucket: str, rest: list[str]) -> Response:
    """Who may do what: here, whoever can reach the gateway may do everything."""
    match rest:
        case ["iam", "testPermissions"]:
            asked = request.query.get("permissions")
            return json_response(
                {"kind": "storage#testIamPermissionsResponse", "permissions": [asked] if asked else []}
            )
        case ["iam"]:
            return json_response({"kind": "storage#policy", "resourceId": f"projects/_/buckets/{bucket}", "version": 1})
        case ["acl" | "defaultObjectAcl", *_]:
            return json_response({"kind": "storage#objectAccessControls", "items": []})
    raise ApiError(501, f"stoker's gateway does not serve {'/'.join(rest)} of buckets.")
