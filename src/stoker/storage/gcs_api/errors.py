"""Refusals, in Google's words: a status, a reason, and a message."""

import json

from stoker.errors import StokerError
from stoker.storage.gcs_api.http import Response
from stoker.storage.object_store import PreconditionError

_REASONS = {
    400: "invalid",
    403: "forbidden",
    404: "notFound",
    405: "methodNotAllowed",
    409: "conflict",
    412: "conditionNotMet",
    413: "uploadTooLarge",
    416: "requestedRangeNotSatisfiable",
}


class ApiError(Exception):
    """Answered with this status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def no_object(bucket: str, key: str) -> ApiError:
    return ApiError(404, f"No such object: {bucket}/{key}")


def error_response(status: int, message: str) -> Response:
    reason = _REASONS.get(status, "backendError")
    error = {
        "code": status,
        "message": message,
        "errors": [{"message": message, "domain": "global", "reason": reason}],
    }
    return Response(status, {"Content-Type": "application/json; charset=UTF-8"}, json.dumps({"error": error}).encode())


def from_stoker(error: StokerError) -> Response:
    """What the storage below says. Google's clients try a 500 again for minutes, so a failing disk is a 507."""
    if isinstance(error, PreconditionError):
        return error_response(412, str(error))
    return error_response(507 if error.http_status == 500 else error.http_status, str(error))
