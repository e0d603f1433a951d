"""A model that does as told, and a worker's server in a thread of this process."""

import asyncio
import contextlib
import http.client
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from stoker.errors import InstanceError
from stoker.predict.online.app import App, Served
from stoker.predict.online.batching import Batcher
from stoker.predict.online.http import HttpServer
from stoker.predict.online.metrics import Metrics
from stoker.predict.online.settings import Limits
from stoker.predict.online.worker_pool import listen
from stoker.schema.bundle import FieldSpec, ModelCard, Signature

ROW = Signature(inputs=(FieldSpec(name="", dtype="float", shape=(2,)),))
NAMED = Signature(inputs=(FieldSpec(name="a", dtype="float", shape=()), FieldSpec(name="b", dtype="float", shape=())))


class Adder:
    """Adds up each instance. "bad" is refused, "bug" fails, and `gate` holds every call until it is set."""

    def __init__(self, signature: Signature = ROW) -> None:
        self.card = ModelCard(
            name="adder", framework="custom", signature=signature, created=datetime(2026, 1, 1, tzinfo=UTC)
        )
        self.batches: list[int] = []
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()

    def predict(self, instances: Sequence[Any]) -> list[Any]:
        self.batches.append(len(instances))
        self.entered.set()
        self.gate.wait(60)
        return [self._one(instance, index) for index, instance in enumerate(instances)]

    def _one(self, instance: Any, index: int) -> Any:
        if instance == "bad":
            raise InstanceError("is bad", index=index, field="a")
        if instance == "value":
            raise ValueError("no such value")
        if instance == "bug":
            raise RuntimeError("it broke\nin two lines")
        if instance in ("nan", "inf"):
            return [float(instance), {"x": -float(instance)}]
        if isinstance(instance, dict):
            return {"sum": sum(instance.values()), "count": len(instance)}
        return sum(instance) if isinstance(instance, list) else instance


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Caller:
    """HTTP to a port."""

    def __init__(self, port: int) -> None:
        self.port = port

    def __call__(
        self, method: str, path: str, body: Any = None, *, kind: str = "application/json", **headers: str
    ) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection.request(method, path, data, {"Content-Type": kind, **headers})
        reply = connection.getresponse()
        answer = Answer(reply.status, {name.lower(): value for name, value in reply.getheaders()}, reply.read())
        connection.close()
        return answer

    def predict(self, *instances: Any) -> Answer:
        return self("POST", "/predict", {"instances": list(instances)})


@contextlib.contextmanager
def serving(
    model: Adder, folder: Path, *, limits: Limits | None = None, token: str | None = None, version: str | None = "v1"
) -> Iterator[Caller]:
    """What a worker does, without the process."""
    limits = limits or Limits()
    Metrics.make(folder / "metrics", slots=2)
    started = threading.Event()
    leave: list[Callable[[], object]] = []

    async def run() -> None:
        metrics = Metrics(folder / "metrics", 0)
        served = Served("adder", version, model, Batcher(model, limits=limits, observe=metrics.count_batch))
        app = App(served, metrics=metrics, token=token)
        server = HttpServer(
            app.answer,
            refuse=app.refuse,
            fail=app.fail,
            observe=lambda request, status, took_s: metrics.count_request(request.route, status, took_s),
            max_body_bytes=limits.max_body_bytes,
            timeout_s=limits.timeout_s,
        )
        await server.open(listener)
        left = asyncio.Event()
        loop = asyncio.get_running_loop()
        leave.append(lambda: loop.call_soon_threadsafe(left.set))
        started.set()
        while not left.is_set():
            now = asyncio.get_running_loop().time()
            server.tick(now)
            served.batcher.tick(now)
            metrics.set_queue(served.batcher.depth)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(left.wait(), 0.02)
        await server.close(grace_s=5)

    listener = listen("127.0.0.1", 0)
    port = listener.getsockname()[1]
    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    started.wait(60)
    try:
        yield Caller(port)
    finally:
        model.gate.set()
        leave[0]()
        thread.join(60)
