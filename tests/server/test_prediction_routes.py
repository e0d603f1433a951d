"""Predictions are passed on to this machine alone."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from stoker.errors import UsageError
from stoker.server.routes.predictions import PredictionRoutes, Question, loopback_of


class Doubler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        answer = {
            "path": self.path,
            "token": self.headers["authorization"],
            "predictions": [2 * x for x in asked["instances"]],
        }
        found = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(found)))
        self.end_headers()
        self.wfile.write(found)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def served_model() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Doubler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_question_is_passed_on_and_its_answer_comes_back(served_model: str) -> None:
    question = Question(url=served_model, instances=(1, 2.5), version="v2", token="t")

    found = json.loads(bytes(PredictionRoutes().predict("taxi", question).body))

    assert found["status"] == 200
    assert found["answer"] == {
        "path": "/v1/models/taxi/versions/v2:predict",
        "token": "Bearer t",
        "predictions": [2, 5.0],
    }


@pytest.mark.parametrize(
    "url",
    [
        "http://10.0.0.1:8080",
        "http://example.com:8080",
        "http://127.0.0.1.example.com:80",
        "https://127.0.0.1:8080",
        "http://127.0.0.1:8080/admin",
        "http://user@127.0.0.1:8080",
        "http://127.0.0.1",
        "file:///etc/passwd",
        "http://[::1",
        "",
    ],
)
def test_question_to_anywhere_else_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="on this machine"):
        loopback_of(url)


def test_addresses_of_this_machine_are_taken() -> None:
    assert loopback_of("localhost:8080") == ("localhost", 8080)
    assert loopback_of("http://[::1]:81/") == ("::1", 81)


def test_model_names_cannot_leave_the_path(served_model: str) -> None:
    with pytest.raises(UsageError, match="name"):
        PredictionRoutes().predict("../x", Question(url=served_model, instances=(1,)))
