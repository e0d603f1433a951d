"""Read the multipart bodies of uploads and batches; written by hand because their content must stay byte for byte."""

import re
from dataclasses import dataclass

from stoker.storage.gcs_api.errors import ApiError

_BOUNDARY = re.compile(r"""boundary=(?:"([^"]+)"|'([^']+)'|([^;\s]+))""", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Part:
    """Header names are in lower case."""

    headers: dict[str, str]
    content: bytes


def split_parts(body: bytes, content_type: str) -> list[Part]:
    """The parts in order. ApiError 400 for what is not multipart."""
    found = _BOUNDARY.search(content_type)
    if found is None:
        raise ApiError(400, "A multipart body needs a boundary in its Content-Type.")
    mark = b"--" + (found[1] or found[2] or found[3]).encode("latin-1")
    start = body.find(mark)
    if start < 0:
        raise ApiError(400, "The multipart body does not have its boundary.")
    # Some clients end lines with \r\n, some with \n alone: then a \r before the boundary belongs to the content.
    newline = b"\r\n" if body[start + len(mark) :].startswith(b"\r\n") else b"\n"
    ends = newline + mark
    parts = []
    at = start + len(mark) + len(newline)
    while (end := body.find(ends, at)) >= 0:
        parts.append(_part(body[at:end], newline))
        at = end + len(ends)
        if body[at : at + 2] == b"--":
            return parts
        at += len(newline)
    raise ApiError(400, "The multipart body ends before its last boundary.")


def _part(data: bytes, newline: bytes) -> Part:
    if data.startswith(newline):
        return Part({}, data[len(newline) :])
    head, _, content = data.partition(newline * 2)
    return Part(parse_headers(head.decode("latin-1")), content)


def parse_headers(text: str) -> dict[str, str]:
    headers = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon:
            headers[name.strip().lower()] = value.strip()
    return headers
