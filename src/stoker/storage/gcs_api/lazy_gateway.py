"""What a supervisor needs of the gateway: variables for user code, and a process started when a client connects."""

import json
import os
import select
import socket
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from stoker.host.home import Home
from stoker.storage.credentials import ANONYMOUS, CREDENTIALS, has_credentials
from stoker.storage.gcs_api.listening import listen, url_of

if TYPE_CHECKING:
    import subprocess

EMULATOR = "STORAGE_EMULATOR_HOST"
FOLDERS = "STOKER_GS_FOLDERS"  # read by job_modules/stoker_buckets
_MAX_STARTS = 5
_MISUSED = 2
_ENDING_S = 5.0


def variables(url: str) -> dict[str, str]:
    """What leads Google's clients in a process to the gateway, and keeps them from looking for credentials.

    For each that the user has set already, the user's is to be kept.
    """
    return {
        # google-cloud-storage, gcsfs and most others; with it, `storage.Client()` is anonymous by itself.
        EMULATOR: url,
        # Clients of before 2022 do not start without; newer ones ignore it beside the first.
        CREDENTIALS: ANONYMOUS,
        # Clients that ask for one without need would look for it at Google.
        "GOOGLE_CLOUD_PROJECT": "stoker",
        # google.auth would ask the metadata server of a Google machine, and wait for it.
        "NO_GCE_CHECK": "true",
        # gcsfs: anonymous, whatever lies in ~/.config/gcloud; and no question by gRPC to Google about each bucket.
        "FSSPEC_GCS_TOKEN": "anon",
        "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",
    }


def folders(home: Path, environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """What leads TensorFlow, whose client heeds no emulator, to the buckets that are folders of this machine."""
    if not (home / "config.toml").exists():
        return {FOLDERS: json.dumps({"*": str(Home(home).buckets)})}
    from stoker.storage.buckets import Buckets  # noqa: PLC0415  only homes with settings pay for it

    given = os.environ if environment is None else environment
    return {FOLDERS: json.dumps(Buckets.of_home(home, given).folders("gs"))}


def is_needed(home: Path, environment: Mapping[str, str] | None = None) -> bool:
    """Whether Google's clients in a run must be led to a gateway: not if all `gs://` is Google's, or theirs is set."""
    given = os.environ if environment is None else environment
    if given.get(EMULATOR):
        return False
    if not (home / "config.toml").exists():
        return not has_credentials(given)
    from stoker.storage.buckets import Buckets  # noqa: PLC0415  only homes with settings pay for it

    return Buckets.of_home(home, given).needs_gateway()


class LazyGateway:
    """A port on loopback whose gateway is started when a client connects, so that a run that needs none pays nothing.

    The gateway ends with `close`, or with this process, however it ends. If it dies, the next client starts another.
    """

    def __init__(self, home: Path) -> None:
        self._home = home
        self._listening = listen()
        self.url = url_of(self._listening)
        self._process: subprocess.Popen[bytes] | None = None
        self._is_closed = False
        self._lock = threading.Lock()
        self._wake_read, self._wake_write = os.pipe()
        self._thread = threading.Thread(target=self._wait_for_clients, name="lazy-gateway", daemon=True)
        self._thread.start()

    def variables(self) -> dict[str, str]:
        return {**variables(self.url), **folders(self._home)}

    def close(self) -> None:
        """End the gateway. Idempotent."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            os.write(self._wake_write, b".")
            if self._process is not None and self._process.stdin is not None:
                self._process.stdin.close()  # the end of its input ends it
        self._thread.join(timeout=_ENDING_S)
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
        self._thread.join()
        self._listening.close()
        os.close(self._wake_read)
        os.close(self._wake_write)

    def _wait_for_clients(self) -> None:
        for _ in range(_MAX_STARTS):
            ready, _, _ = select.select([self._listening.fileno(), self._wake_read], [], [])
            with self._lock:
                if self._is_closed or self._wake_read in ready:
                    return
                self._process = start(self._home, self._listening)
            with self._process as process:  # waits, and closes the pipe
                process.wait()
            if self._process.returncode == _MISUSED:
                break
        # It cannot live here, and has said why: clients are refused rather than left to wait.
        self._listening.close()


def start(home: Path, listening: socket.socket) -> "subprocess.Popen[bytes]":
    """A gateway on a socket that is listening already. It ends when its standard input does."""
    import subprocess  # noqa: PLC0415  the gateway's own process imports this file, and starts nothing

    environment = {name: value for name, value in os.environ.items() if name != EMULATOR}
    descriptor = listening.fileno()
    command = [
        sys.executable,
        "-P",
        "-m",
        "stoker.storage.gcs_api",
        "--home",
        str(home),
        "--fd",
        str(descriptor),
        "--until-eof",
    ]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, pass_fds=[descriptor], env=environment
    )
