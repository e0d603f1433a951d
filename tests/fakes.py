"""Small real stand-ins for the other side of a contract."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from stoker.host.home import Home, ServerAddress
from stoker.schema.event import EventBatch, EventReply

_TOKEN = "token-of-the-fake-server"


class FakeServer:
    """What a supervisor sees of a server: takes events once, by number, and can order a stop.

    It keeps what it was told while it is away (`stop` and `start` again give it another port), as a real server's
    store does. Every batch is validated against the schema.
    """

    def __init__(self, home: Home) -> None:
        self.home = home
        self.events: dict[str, list[dict[str, Any]]] = {}
        self.num_batches = 0
        self.packages: dict[str, bytes] = {}  # by the path behind /packages/
        self.unknown_runs: set[str] = set()
        self.refused_types: set[str] = set()
        self.fail_next = 0  # answer so many event batches with 500, after having stored them: the ack is lost
        self._stop: str | None = None
        self._changed = threading.Condition()
        self.asked_for = (
            threading.Event()
        )  # somebody waits for something under /held/ or called held.whl, which never comes
        self._slow = threading.Event()
        self._slow.set()
        self._http: ThreadingHTTPServer | None = None

    def start(self) -> None:
        handler = type("Handler", (_Handler,), {"fake": self})
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._http.daemon_threads = True
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        self.home.make().write_server(
            ServerAddress(url=f"http://127.0.0.1:{self._http.server_port}", token=_TOKEN, pid=0)
        )

    def stop(self) -> None:
        """Go away, as a killed server does: its address stays written, and nobody answers there."""
        http, self._http = self._http, None
        if http is not None:
            http.shutdown()
            http.server_close()
            with self._changed:
                self._changed.notify_all()

    @property
    def is_up(self) -> bool:
        return self._http is not None

    @contextmanager
    def held(self) -> Iterator[None]:
        """While inside, requests with events wait: a slow server."""
        self._slow.clear()
        try:
            yield
        finally:
            self._slow.set()

    def order_stop(self, reason: str) -> None:
        with self._changed:
            self._stop = reason
            self._changed.notify_all()

    def hold(self) -> None:
        """Keep a request waiting until this server goes away."""
        self.asked_for.set()
        with self._changed:
            self._changed.wait_for(lambda: not self.is_up)

    def order(self, wait_s: float) -> dict[str, Any]:
        with self._changed:
            self._changed.wait_for(lambda: self._stop is not None or not self.is_up, timeout=wait_s)
            return {"stop": self._stop}

    def take(self, run: str, body: bytes) -> dict[str, Any]:
        self._slow.wait()
        batch = EventBatch.model_validate_json(body)
        with self._changed:
            known = self.events.setdefault(run, [])
            for event in batch.events:
                if event.type in self.refused_types:
                    raise ValueError(f"type {event.type} is refused")
            for event in batch.events:
                if event.seq == len(known) + 1:
                    known.append(event.model_dump())
            self.num_batches += 1
            self._changed.notify_all()
            reply = EventReply.model_validate({"acked": len(known), "stop": self._stop})
        return reply.model_dump(mode="json")

    def of(self, run: str, kind: str) -> list[dict[str, Any]]:
        return [event for event in list(self.events.get(run, ())) if event["type"] == kind]

    def lines(self, run: str, replica: str, stream: str = "stdout") -> list[str]:
        """All lines of a stream, as they were told."""
        blocks = [e for e in self.of(run, "log") if e["replica"] == replica and e["stream"] == stream]
        return [line for block in blocks for line in block["text"].split("\n")]

    def exit_of(self, run: str) -> dict[str, Any]:
        """How it ended; fails unless that is the last event."""
        last = self.events[run][-1]
        assert last["type"] == "exited", last
        return last

    def has_ended(self, run: str) -> bool:
        return bool(self.of(run, "exited"))


class _Handler(BaseHTTPRequestHandler):
    fake: FakeServer
    protocol_version = "HTTP/1.1"
    # Headers and body in one segment: two would wait for the other side's delayed acknowledgement.
    wbufsize = -1

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        run = self.path.split("/")[4]
        if run in self.fake.unknown_runs:
            return self.answer(404, {"error": f"No run {run}."})
        try:
            reply = self.fake.take(run, body)
        except ValueError as error:
            return self.answer(422, {"error": str(error), "problems": []})
        if self.fake.fail_next > 0:
            self.fake.fail_next -= 1
            return self.answer(500, {"error": "lost the reply"})
        return self.answer(200, reply)

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        if "/held/" in path or path.endswith("/held.whl"):
            self.fake.hold()
        if path.endswith("/orders"):
            run = path.split("/")[4]
            if run in self.fake.unknown_runs:
                return self.answer(404, {"error": f"No run {run}."})
            return self.answer(200, self.fake.order(float(query.partition("wait_s=")[2])))
        content = self.fake.packages.get(path.partition("/packages/")[2])
        if content is None:
            return self.answer(404, {"error": f"No {path}."})
        return self.send(200, content, "application/octet-stream")

    do_HEAD = do_GET  # as uv asks first, for what it must wait for

    def answer(self, status: int, reply: dict[str, Any]) -> None:
        self.send(status, json.dumps(reply).encode(), "application/json")

    def send(self, status: int, content: bytes, kind: str) -> None:
        if self.headers.get("Authorization") != f"Bearer {_TOKEN}":
            status, content = 401, b'{"error": "no token"}'
        if not self.fake.is_up:
            self.close_connection = True
            return  # killed in the midst of it
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def handle(self) -> None:
        try:
            super().handle()
        except OSError:
            pass  # the supervisor was killed in the midst of it

    def log_message(self, format: str, *args: object) -> None:
        pass
