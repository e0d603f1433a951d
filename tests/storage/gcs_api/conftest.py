"""A gateway of its own for every test, and a process that is led to it."""

import http.client
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stoker.storage.gcs_api import variables
from stoker.storage.gcs_api.server import Gateway


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def gateway(home: Path) -> Iterator[Gateway]:
    with Gateway(home) as gateway:
        yield gateway


@pytest.fixture
def led(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> Gateway:
    """This process has the variables that a supervisor gives to user code."""
    for name, value in variables(gateway.url).items():
        monkeypatch.setenv(name, value)
    return gateway


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Caller:
    """Plain HTTP on one connection that is kept."""

    def __init__(self, url: str) -> None:
        self._connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=60)

    def __call__(
        self, method: str, path: str, body: bytes | str | None | Any = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        if isinstance(body, dict):
            body = json.dumps(body)
        self._connection.request(method, path, body=body, headers=dict(headers or {}))
        response = self._connection.getresponse()
        return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())

    def close(self) -> None:
        self._connection.close()


@pytest.fixture
def call(gateway: Gateway) -> Iterator[Caller]:
    caller = Caller(gateway.url)
    yield caller
    caller.close()
