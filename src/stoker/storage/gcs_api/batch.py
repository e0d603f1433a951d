"""Many small requests in one: each is answered as if it had come alone."""

import io
import os

from stoker.storage.gcs_api.errors import ApiError
from stoker.storage.gcs_api.http import Answer, Request, Response, split_target
from stoker.storage.gcs_api.multipart import Part, parse_headers, split_parts
from stoker.storage.gcs_api.resources import read_all

_LIMIT = 64 << 20


def run(request: Request, answer: Answer) -> Response:
    parts = split_parts(read_all(request.body, _LIMIT), request.headers.get("content-type", ""))
    boundary = f"batch_{os.urandom(16).hex()}"
    pieces = []
    for part in parts:
        response = answer(_nested(part, request))
        head = [f"--{boundary}", "Content-Type: application/http"]
        if "content-id" in part.headers:
            head.append(f"Content-ID: <response-{part.headers['content-id'].strip('<>')}>")
        headers = {**response.headers, "Content-Length": str(len(response.body))}
        head += ["", response.status_line, *(f"{name}: {value}" for name, value in headers.items()), "", ""]
        pieces += ["\r\n".join(head).encode(), response.body, b"\r\n"]
    pieces.append(f"--{boundary}--\r\n".encode())
    return Response(200, {"Content-Type": f"multipart/mixed; boundary={boundary}"}, b"".join(pieces))


def _nested(part: Part, request: Request) -> Request:
    text = part.content.replace(b"\r\n", b"\n").lstrip(b"\n")
    head, _, body = text.partition(b"\n\n")
    line, _, rest = head.decode("utf-8", "replace").partition("\n")
    words = line.split()
    if len(words) not in (2, 3):
        raise ApiError(400, f"A part of the batch is no request: {line!r}.")
    path, query = split_target(words[1])
    if not path.startswith("/storage/v1/") or query.get("alt") == "media" or "uploadType" in query:
        raise ApiError(400, "Uploads, downloads and batches cannot be part of a batch.")
    headers = {**parse_headers(rest), "host": request.headers.get("host", "")}
    return Request(words[0].upper(), path, query, headers, io.BytesIO(body))
