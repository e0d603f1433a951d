"""Real workers behind one socket: killed, replaced and ended while clients go on asking."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.predict.online.fakes import Caller
from tests.processes import processes_with_environment, wait_until

pytestmark = pytest.mark.slow

# Which version serves is what a file says, as a registry would say it.
SCRIPT = """
import json, logging, sys
from pathlib import Path
from stoker.predict.online.worker_pool import WorkerPool, listen
from stoker.predict.online.settings import Limits, ModelLocation

logging.basicConfig(level=logging.WARNING, format="%(message)s")
listener = listen("127.0.0.1", 0)
WorkerPool(
    lambda: ModelLocation.model_validate_json(Path(sys.argv[1]).read_text()),
    listener,
    workers=int(sys.argv[2]),
    limits=Limits(timeout_s=30),
    trust_pickle=True,
    watch_s=0.05,
).run(lambda located: print(listener.getsockname()[1], flush=True))
"""

PREDICTOR = """
import os, time
VERSION = {version!r}
def predict(instances):
    for instance in instances:
        if isinstance(instance, str) and os.path.exists(instance):
            while os.path.exists(instance):
                time.sleep(0.01)
    return [[VERSION, os.getpid()] for _ in instances]
"""


class Served:
    """A worker pool in a process of its own."""

    def __init__(self, folder: Path, *, workers: int) -> None:
        self._folder = folder
        self._log = folder / "log"
        self.choose("v1")
        command = [sys.executable, "-c", SCRIPT, str(folder / "located"), str(workers)]
        environment = {**os.environ, "STOKER_HOME": str(folder)}
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=environment, text=True)
        assert self.process.stdout is not None
        self.call = Caller(int(self.process.stdout.readline() or self.fail()))

    def fail(self) -> Any:
        raise AssertionError(self.said())

    def choose(self, version: str, code: str = PREDICTOR) -> None:
        model = self._folder / version
        model.mkdir(exist_ok=True)
        (model / "predictor.py").write_text(code.format(version=version))
        draft = self._folder / "draft"
        draft.write_text(json.dumps({"name": "m", "version": version, "folder": str(model)}))
        draft.replace(self._folder / "located")

    def said(self) -> str:
        return self._log.read_text()

    def workers(self) -> list[int]:
        found = processes_with_environment("STOKER_HOME", str(self._folder))
        return [pid for pid in found if b"stoker.predict.online.worker\0" in Path(f"/proc/{pid}/cmdline").read_bytes()]


@contextmanager
def worker_pool(folder: Path, *, workers: int) -> Iterator[Served]:
    served = Served(folder, workers=workers)
    try:
        yield served
    finally:
        with served.process:
            served.process.terminate()


class Asking:
    """Clients that keep their connections and ask until told to stop; whatever is not a 200 is remembered."""

    def __init__(self, port: int, *, clients: int = 3) -> None:
        self.versions: list[str] = []
        self.failures: list[str] = []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(port,)) for _ in range(clients)]

    def __enter__(self) -> "Asking":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)

    def _ask(self, port: int) -> None:
        import http.client

        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        while not self._stop.is_set():
            try:
                connection.request("POST", "/predict", b'{"instances": [1]}')
                reply = connection.getresponse()
                body = reply.read()
                if reply.status == 200:
                    self.versions.append(json.loads(body)["predictions"][0][0])
                else:
                    self.failures.append(body.decode())
            except (OSError, http.client.HTTPException) as error:
                self.failures.append(repr(error))
                connection.close()
            self._stop.wait(0.002)
        connection.close()


def test_a_new_version_takes_over_without_a_failed_request(tmp_path: Path) -> None:
    with worker_pool(tmp_path, workers=2) as served, Asking(served.call.port) as asking:
        wait_until(lambda: len(asking.versions) > 20, what="answers")
        served.choose("v2")
        wait_until(lambda: asking.versions[-20:] == ["v2"] * 20, what="the new version")
        served.choose("v3", "raise OSError('disk full')")
        wait_until(lambda: "version v3 is not taken" in served.said(), what="a refusal")
        count = len(asking.versions)
        wait_until(lambda: len(asking.versions) > count + 20, what="more answers")
        path = "/v1/models/m/versions/v2:predict"
        assert served.call("POST", path, {"instances": [1]}).json["predictions"][0][0] == "v2"

    assert asking.failures == []
    assert asking.versions[0] == "v1"
    assert asking.versions[-1] == "v2"
    assert "disk full" in served.said()


def test_a_killed_worker_is_replaced_and_the_other_goes_on(tmp_path: Path) -> None:
    with worker_pool(tmp_path, workers=2) as served:
        killed, other = served.workers()
        os.kill(killed, signal.SIGKILL)
        assert served.call.predict(1).json["predictions"][0][0] == "v1"
        wait_until(lambda: "serves again" in served.said(), what="a new worker")

        assert re.search(rf"worker \d \(pid {killed}\) ended: signal SIGKILL", served.said())
        assert other in served.workers()
        assert len(served.workers()) == 2
        assert b"stoker_serve_workers 2" in served.call("GET", "/metrics").body


def test_what_is_in_flight_is_answered_before_the_end(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    answers = []
    with worker_pool(tmp_path, workers=1) as served:
        thread = threading.Thread(target=lambda: answers.append(served.call.predict(str(gate))))
        thread.start()
        busy = "stoker_serve_batch_instances_count 1"
        wait_until(lambda: busy in served.call("GET", "/metrics").body.decode(), what="a call of the model")
        served.process.send_signal(signal.SIGTERM)
        gate.unlink()
        thread.join(60)

        assert served.process.wait(60) == 0
    assert [answer.json["predictions"][0][0] for answer in answers] == ["v1"]


def test_workers_leave_when_their_parent_is_gone(tmp_path: Path) -> None:
    with worker_pool(tmp_path, workers=1) as served:
        served.process.kill()
        wait_until(lambda: not served.workers(), what="the worker's end")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "No model in"),
        ({"predictor.py": "import nothing_of_the_kind"}, "nothing_of_the_kind"),
        ({"model.json": "{}"}, "bad fields"),
    ],
)
def test_what_cannot_be_served_ends_the_command_with_one_message(
    tmp_path: Path, files: dict[str, str], message: str
) -> None:
    model = tmp_path / "m"
    model.mkdir()
    for name, text in files.items():
        (model / name).write_text(text)

    command = [str(Path(sys.executable).with_name("stoker")), "serve", str(model), "--port", "0", "--trust"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)

    assert done.returncode in (1, 2)
    assert done.stdout == ""
    assert message in done.stderr
    assert "Traceback" not in done.stderr
