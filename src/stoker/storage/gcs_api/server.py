"""A gateway in this process: its socket, its threads, its service."""

import socket
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from stoker.storage.bucket import BucketFolder
from stoker.storage.buckets import Buckets
from stoker.storage.gcs_api.http import HttpServer
from stoker.storage.gcs_api.listening import listen, url_of
from stoker.storage.gcs_api.peers import can_tell, is_same_user
from stoker.storage.gcs_api.service import Service
from stoker.storage.url import StorageUrl

_POLL_S = 0.05  # how long `close` may have to wait


class Gateway:
    """Serves from its making until `close`; also a context manager. ConfigError when the home's settings are bad."""

    def __init__(self, home: Path, *, listening: socket.socket | None = None, port: int = 0) -> None:
        buckets = Buckets.of_home(home)
        _sweep(buckets)
        self._service = Service(buckets)
        listening = listening or listen(port)
        self.url = url_of(listening)
        admits = is_same_user if can_tell() else _anybody
        self._server = HttpServer(listening, self._service.answer, admits=admits)
        threading.Thread(target=self._server.serve_forever, args=(_POLL_S,), name="gateway", daemon=True).start()

    def close(self) -> None:
        """Take no more requests, and discard uploads that are not finished."""
        self._server.shutdown()
        self._server.server_close()
        self.discard_uploads()

    def discard_uploads(self) -> None:
        """No client can come back to them once this process has ended."""
        self._service.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _sweep(buckets: Buckets) -> None:
    """Remove what uploads of dead gateways have left."""
    for name in buckets.names("gs"):
        store = buckets.store(StorageUrl("gs", name, ""))
        if isinstance(store, BucketFolder):
            store.sweep()


def _anybody(connection: socket.socket) -> bool:
    return True
