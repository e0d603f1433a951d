"""One HTTP connection to a server, and its errors as ours.

Apart from the client, and without the schema, because every supervisor loads it: pydantic costs more to import than
the rest of a run's start. Written on http.client, because the usual HTTP libraries cost more than a submit.
"""

import http.client
import json as jsonlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO
from urllib.parse import urlencode, urlsplit

from stoker.errors import (
    ConfigError,
    ConflictError,
    DoesNotFitError,
    NotFoundError,
    ServerError,
    StokerError,
    UnreachableError,
    UsageError,
)
from stoker.host.home import ServerAddress

API = "/api/v1"
_ERRORS: dict[int, type[StokerError]] = {400: UsageError, 404: NotFoundError, 409: ConflictError, 422: ConfigError}
_ERRORS_BY_CODE: dict[str, type[StokerError]] = {str(DoesNotFitError.code): DoesNotFitError}

Params = Mapping[str, str | int | float | bool | None]


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    """One message of an event stream."""

    event: str
    data: str
    id: str


class Connection:
    """One kept-alive HTTP connection; not for several threads at once.

    Raises the StokerError the server answered with; ServerError when it cannot be reached. A request on a connection
    that the server had closed meanwhile is sent once more: every route but the event streams may be repeated safely.
    """

    def __init__(self, address: ServerAddress, *, timeout_s: float = 60.0) -> None:
        parts = urlsplit(address.url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._url = address.url
        self._http = kind(parts.hostname or "127.0.0.1", parts.port, timeout=timeout_s)
        self._headers = {"Authorization": f"Bearer {address.token}"}

    def request(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        json: object = None,
        body: bytes | BinaryIO | None = None,
        content_type: str = "application/octet-stream",
    ) -> Any:
        """The reply's JSON (None for an empty one)."""
        headers = dict(self._headers)
        if json is not None:
            body, content_type = jsonlib.dumps(json).encode(), "application/json"
        if body is not None:
            headers["Content-Type"] = content_type
        response, payload = self._send(method, _target(path, params), body, headers)
        if response.status >= 400:
            raise _error(response.status, payload, self._url)
        return jsonlib.loads(payload) if payload else None

    def download(self, path: str, to: BinaryIO, *, params: Params | None = None) -> None:
        """Stream a reply's body into a file."""
        try:
            self._http.request("GET", _target(path, params), headers=self._headers)
            response = self._http.getresponse()
            if response.status >= 400:
                raise _error(response.status, response.read(), self._url)
            while chunk := response.read(1 << 20):
                to.write(chunk)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise _unreachable(self._url, error) from error

    def events(self, path: str, *, params: Params | None = None) -> Iterator[ServerSentEvent]:
        """The messages of an event stream, until the server ends it."""
        try:
            self._http.request("GET", _target(path, params), headers={**self._headers, "Accept": "text/event-stream"})
            response = self._http.getresponse()
            if response.status >= 400:
                raise _error(response.status, response.read(), self._url)
            yield from _messages(response)
        except (OSError, http.client.HTTPException) as error:
            raise _unreachable(self._url, error) from error
        finally:
            self.close()

    def close(self) -> None:
        self._http.close()

    def _send(
        self, method: str, target: str, body: bytes | BinaryIO | None, headers: dict[str, str]
    ) -> tuple[http.client.HTTPResponse, bytes]:
        reused = self._http.sock is not None
        try:
            self._http.request(method, target, body=body, headers=headers)
            response = self._http.getresponse()
            return response, response.read()
        except (OSError, http.client.HTTPException) as error:
            self._http.close()
            if not reused or isinstance(error, TimeoutError):
                raise _unreachable(self._url, error) from error
        if body is not None and not isinstance(body, bytes):
            body.seek(0)
        return self._send(method, target, body, headers)


def _messages(response: http.client.HTTPResponse) -> Iterator[ServerSentEvent]:
    event, identity = "message", ""
    data: list[str] = []
    while raw := response.readline():
        line = raw.decode().rstrip("\r\n")
        if not line:
            if data:
                yield ServerSentEvent(event=event, data="\n".join(data), id=identity)
            event, data = "message", []
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            data.append(value)
        elif field == "event":
            event = value
        elif field == "id":
            identity = value
    if event != "end":
        raise http.client.IncompleteRead(b"")


def _target(path: str, params: Params | None) -> str:
    given = {name: _text(value) for name, value in (params or {}).items() if value is not None}
    return f"{path}?{urlencode(given)}" if given else path


def _text(value: str | int | float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _error(status: int, payload: bytes, url: str) -> StokerError:
    try:
        found = jsonlib.loads(payload)
        message, problems, code = str(found["error"]), found.get("problems", []), found.get("code")
    except (ValueError, KeyError, TypeError):
        message, problems, code = f"The server at {url} answered {status} {payload[:200]!r}.", [], None
    kind = _ERRORS_BY_CODE.get(str(code)) or _ERRORS.get(status, ServerError)
    if kind is ConfigError:
        return ConfigError(message, problems)
    return kind(message)


def _unreachable(url: str, error: Exception) -> UnreachableError:
    return UnreachableError(f"No answer from the server at {url}: {error or type(error).__name__}.")
