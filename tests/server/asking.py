"""Raw HTTP for tests: what the client hides."""

import http.client
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.server.conftest import TOKEN, Served

API = "/api/v1"
BEARER = {"Authorization": f"Bearer {TOKEN}"}


@dataclass(frozen=True, slots=True)
class Answer:
    """Status, headers and body."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def ask(
    served: Served, method: str, path: str, *, body: Any = None, headers: Mapping[str, str] = BEARER, **more: Any
) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=60)
    try:
        given = dict(headers)
        if body is not None and not isinstance(body, bytes):
            body, given["Content-Type"] = json.dumps(body).encode(), "application/json"
        connection.request(method, path, body=body, headers=given, **more)
        response = connection.getresponse()
        return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
    finally:
        connection.close()


@dataclass(frozen=True, slots=True)
class Said:
    """One server-sent event."""

    event: str
    id: str
    data: Any


def stream(served: Served, path: str, headers: Mapping[str, str] = BEARER) -> Iterator[Said]:
    """Server-sent events as they come, until the response ends. The server listens when this returns."""
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=60)
    connection.request("GET", path, headers=dict(headers))
    response = connection.getresponse()
    assert response.status == 200, response.read()
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.readline().startswith(b":"), "a comment comes first"
    return _events(connection, response)


def _events(connection: http.client.HTTPConnection, response: http.client.HTTPResponse) -> Iterator[Said]:
    fields: dict[str, str] = {}
    try:
        while raw := response.readline():
            name, _, value = raw.decode().rstrip("\n").partition(": ")
            if name:
                fields[name] = value
            elif "data" in fields:
                yield Said(fields.get("event", ""), fields.get("id", ""), json.loads(fields["data"]))
                fields = {}
            else:
                fields = {}
    finally:
        response.close()
        connection.close()
