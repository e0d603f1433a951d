"""A server that answers from a table: what the real client sends and reads, without what a server does."""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

Reply = Any  # a JSON value; a callable of the query is asked for one


@dataclass(slots=True)
class Recorded:
    """Replies by `METHOD /path` (without /api/v1); what was asked, in order, with its body."""

    replies: dict[str, Reply]
    asked: list[tuple[str, Any]] = field(default_factory=list)
    url: str = ""


@contextmanager
def recorded_server(replies: Mapping[str, Reply]) -> Iterator[Recorded]:
    recorded = Recorded({"GET /health": {"name": "stoker", "version": "0", "pid": 1, "url": "", "home": ""}, **replies})

    class Answer(BaseHTTPRequestHandler):  # HTTP/1.0: no connection is kept, so a client that leaves has none open
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            body = self._body()
            question = f"{self.command} {unquote(parts.path).removeprefix('/api/v1')}"
            recorded.asked.append((question, json.loads(body) if body.startswith(b"{") else None))
            found = recorded.replies.get(question)
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            found = found(query) if callable(found) else found
            self._send(404 if found is None else 200, {"error": f"No {question}."} if found is None else found)

        do_POST = do_PATCH = do_PUT = do_DELETE = do_HEAD = do_GET  # noqa: N815  http.server's names

        def _body(self) -> bytes:
            """All of it: one who is answered before he has sent everything may find a broken pipe."""
            if self.headers.get("Transfer-Encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            found = b""
            while size := int(self.rfile.readline(), 16):
                found += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return found

        def _send(self, status: int, value: Any) -> None:
            data = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    recorded.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield recorded
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
