"""What a supervisor needs of the gateway: the variables for user code, and a process started at the first knock."""

import os
import select
import socket
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from stoker.gateway.http import listen
from stoker.storage import Storage

if TYPE_CHECKING:
    import subprocess

EMULATOR = "STORAGE_EMULATOR_HOST"


def variables(url: str) -> dict[str, str]:
    """What leads Google's clients in a process to the gateway, and keeps them from looking for credentials."""
    return {
        # google-cloud-storage, gcsfs and most others; with it, `storage.Client()` is anonymous by itself.
        EMULATOR: url,
        # Clients that ask for one without need would look for it at Google.
        "GOOGLE_CLOUD_PROJECT": "stoker",
        # google.auth would ask the metadata server of a Google machine, and wait for it.
        "NO_GCE_CHECK": "true",
        # gcsfs: anonymous, whatever lies in ~/.config/gcloud; and no question by gRPC to Google about each bucket.
        "FSSPEC_GCS_TOKEN": "anon",
        "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",
    }


def is_needed(home: Path, environment: Mapping[str, str] | None = None) -> bool:
    """Whether Google's clients in a run must be led to a gateway: not if all `gs://` is Google's, or theirs is set."""
    given = os.environ if environment is None else environment
    return not given.get(EMULATOR) and Storage(home, environment=given).buckets.needs_gateway()


class Doorway:
    """A port on loopback whose gateway is started when somebody connects, so that a run that needs none pays nothing.

    The gateway ends with `close`, or with this process, however it ends.
    """

    def __init__(self, home: Path) -> None:
        self._home = home
        self._listening = listen()
        self._process: subprocess.Popen[bytes] | None = None
        self._wake_read, self._wake_write = os.pipe()
        self._thread = threading.Thread(target=self._wait, name="gateway-doorway", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listening.getsockname()[1]}"

    def variables(self) -> dict[str, str]:
        return variables(self.url)

    def close(self) -> None:
        os.write(self._wake_write, b".")
        self._thread.join()
        if self._process is not None:
            # The end of its input ends it, and it has nothing to finish.
            self._process.kill()
            self._process.communicate()
        self._listening.close()
        os.close(self._wake_read)
        os.close(self._wake_write)

    def _wait(self) -> None:
        ready, _, _ = select.select([self._listening.fileno(), self._wake_read], [], [])
        if self._wake_read not in ready:
            self._process = start(self._home, self._listening)


def start(home: Path, listening: socket.socket) -> "subprocess.Popen[bytes]":
    """A gateway on a socket that is listening already. It ends when its standard input does."""
    import subprocess  # noqa: PLC0415  the gateway's own process imports this file, and starts nothing

    environment = {name: value for name, value in os.environ.items() if name != EMULATOR}
    descriptor = listening.fileno()
    command = [sys.executable, "-m", "stoker.gateway", "--home", str(home), "--fd", str(descriptor), "--until-eof"]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, pass_fds=[descriptor], env=environment
    )
