"""`python -m stoker.engines.ray.bridge HOME POOL SETTINGS`: the one process of a pool that speaks to its Ray cluster.

A process of its own, with the pool's own Python, because the versions of Ray and Python have to be the cluster's, and
because Ray is large and slow to import. Answers JSON lines on a Unix socket in HOME/ray; ends when nobody asks.
"""

import json
import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stoker.host.home import Home
from stoker.host.locks import try_lock

if TYPE_CHECKING:
    from stoker.engines.ray.cluster import Cluster

logger = logging.getLogger("stoker.engines.ray.bridge")

_IDLE_S = 60.0
_REACH_S = 5.0
_LOOK_S = 1.0
_TELL_S = 0.5
_TROUBLE_S = 3.0
_CONNECT_S = 60.0


def main(words: list[str]) -> int:
    home, pool, settings = Path(words[0]), words[1], json.loads(words[2])
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    folder = Home(home).ray
    if try_lock(folder / f"{pool}.lock") is None:
        return 0  # there is one
    os.chdir(folder)  # a Unix socket's path may not be long
    bridge = _Bridge(home, pool, settings)
    bridge.serve(f"{pool}.sock")
    return 0


class _Bridge:
    def __init__(self, home: Path, pool: str, settings: Mapping[str, Any]) -> None:
        self._home, self._pool, self._settings = home, pool, settings
        self._cluster: Cluster | None = None
        self._trouble = ""
        self._connected = threading.Event()
        self._asked = time.monotonic()

    def serve(self, path: str) -> None:
        Path(path).unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(f".{path}")
        os.chmod(f".{path}", 0o600)
        listener.listen(64)
        os.rename(f".{path}", path)  # whoever finds it is answered
        threading.Thread(target=self._accept, args=(listener,), name="accept", daemon=True).start()
        threading.Thread(target=self._give_up, name="give up", daemon=True).start()
        try:
            cluster = connect(self._home, self._settings)
            cluster.take_over_all()
            self._cluster = cluster
        except Exception as error:  # noqa: BLE001 -- Ray raises all kinds; whoever asks is told in one line
            logger.exception("cannot connect")
            self._trouble = _in_words(error, self._settings["address"])
        self._connected.set()
        self._stay()
        Path(path).unlink(missing_ok=True)

    def _give_up(self) -> None:
        """Ray's own attempts to connect may never end, and cannot be broken off."""
        if not self._connected.wait(_CONNECT_S + _TROUBLE_S):
            os._exit(1)

    def _stay(self) -> None:
        """Until nobody has asked for a while; meanwhile tell supervisors where the server is."""
        if self._cluster is None:
            time.sleep(_TROUBLE_S)  # those who wait are told; the next to ask tries anew
            return
        told = ""
        while time.monotonic() - self._asked < _IDLE_S:
            time.sleep(_TELL_S)
            written = _read(self._home / "server.json")
            if written and written != told:
                told = written
                self._cluster.tell_server()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=self._converse, args=(connection,), daemon=True).start()

    def _converse(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rwb") as file:
            for line in file:
                self._asked = time.monotonic()
                file.write(json.dumps(self._answer(json.loads(line))).encode() + b"\n")
                file.flush()
                self._asked = time.monotonic()

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        if not self._connected.wait(_CONNECT_S):
            self._trouble = f"The cluster at {self._settings['address']} did not take us in within {_CONNECT_S:g} s."
        cluster = self._cluster
        if cluster is None:
            return {"error": self._trouble, "is_away": True}
        calls = ("submit", "find", "poll", "diagnose", "cancel", "drain", "poll_drain", "nodes")
        name = request.pop("call")
        assert name in calls, name
        try:
            _check_head(self._settings["address"])
            return {"answer": getattr(cluster, name)(**request)}
        except Exception as error:  # noqa: BLE001 -- as above
            logger.exception("%s", name)
            is_away = isinstance(error, OSError) or type(error).__module__ == "ray.exceptions"
            return {"error": _in_words(error, self._settings["address"]), "is_away": is_away}


def connect(home: Path, settings: Mapping[str, Any]) -> "Cluster":
    """Connect this process to the cluster; the versions are compared by Ray as it does so."""
    address = settings["address"]
    # First, because Ray itself goes on trying for a minute.
    socket.create_connection(_place(address), timeout=_REACH_S).close()
    if "RAY_AUTH_MODE" not in os.environ and _has_token():
        # So does `ray start` itself, unasked; a cluster without tokens takes us in all the same.
        os.environ["RAY_AUTH_MODE"] = "token"
    import ray  # noqa: PLC0415 -- seconds; and where it is missing, that is to be said over the socket

    from stoker.engines.ray.cluster import NAMESPACE, Cluster  # noqa: PLC0415

    ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, logging_level=logging.WARNING)
    return Cluster(home, settings=settings)


def _place(address: str) -> tuple[str, int]:
    host, _, port = address.removeprefix("ray://").rpartition(":")
    return host, int(port)


def _check_head(address: str) -> None:
    """Raise if nobody listens there any more: Ray's own calls would hang for a minute, and all that wait for them.

    Only a refusal counts: a head that does not answer may be cut off for a while, or busy.
    """
    try:
        socket.create_connection(_place(address), timeout=_LOOK_S).close()
    except ConnectionRefusedError:
        raise
    except OSError:
        pass


def _has_token() -> bool:
    """Whether there is a token where Ray looks for one."""
    path = os.environ.get("RAY_AUTH_TOKEN_PATH") or os.path.expanduser("~/.ray/auth_token")
    return "RAY_AUTH_TOKEN" in os.environ or os.path.isfile(path)


def _in_words(error: Exception, address: str) -> str:
    """One line for a person; what to do, where that is known."""
    text = " ".join(str(error).split()) or repr(error)
    if isinstance(error, ModuleNotFoundError):
        return (
            f"{sys.executable} has no module {error.name!r}. Install Ray there (pip install 'stoker[ray]'), or set"
            " python under the pool to a Python that has it."
        )
    if "ersion mismatch" in text:
        return f"{text} Set python under the pool to a Python with the cluster's versions."
    if "uthentication" in text or "UNAUTHENTICATED" in text or "oken" in text:
        return f"The cluster at {address} refused us: {text} Set RAY_AUTH_MODE and RAY_AUTH_TOKEN for the server."
    if isinstance(error, ConnectionError) and error.errno is None:  # Ray's own: a port is there, as was seen before
        return (
            f"The cluster at {address} did not take us in: it is no Ray head, or its token is another."
            " Set RAY_AUTH_MODE and RAY_AUTH_TOKEN for the server."
        )
    if isinstance(error, OSError):
        return f"Nothing answers at {address}: {error.strerror or error}. Is the cluster up (`ray status`)?"
    return text


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
