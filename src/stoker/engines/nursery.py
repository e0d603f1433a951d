"""The engine's side of a nursery: a process that has loaded what a supervisor needs, and forks one in milliseconds.

A convenience only: without it, or when it is killed, supervisors are started as fresh processes.
"""

import json
import os
import select
import signal
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

from stoker.host.processes import ProcessId
from stoker.host.spawn import spawn_detached

_ROOM = " " * 4096  # a word that its forks overwrite with their own, so that they are found by their command line
_ANSWER_S = 10.0
_MAX_BYTES = 1 << 16


class Unanswered(Exception):
    """The nursery was killed, or is stuck."""


class Nursery:
    """One at a time, started on demand; it ends with this process, or after a minute without a request."""

    def __init__(self, python: str = sys.executable) -> None:
        self._python = python
        self._socket: socket.socket | None = None
        self._pid = 0
        self._is_ready = False

    def start(self, environment: Mapping[str, str]) -> None:
        """Begin to have one. Does nothing when there is one."""
        if self._socket is not None:
            return
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        words = [self._python, "-P", "-m", "stoker.supervisor.warm.nursery", _ROOM]
        with its:
            self._pid = spawn_detached(words, environment=environment, stdin=its.fileno())
        ours.settimeout(_ANSWER_S)
        self._socket, self._is_ready = ours, False

    def fork(
        self, words: list[str], *, log: Path, environment: Mapping[str, str], lifeline: int | None = None
    ) -> ProcessId | None:
        """Start `python -P -m stoker.supervisor …`; None while there is none that is ready.

        It hears of the end of a `lifeline` (the reading end of a pipe) as if `--lifeline` were among its words.
        Unanswered if it was asked and went away: it may have done so before or after it forked.
        """
        if self._socket is None or not self._has_begun():
            return None
        request = {"words": words, "arguments": words[4:], "log": str(log), "environment": dict(environment)}
        try:
            message = json.dumps({**request, "cwd": _cwd(), "umask": _umask()}).encode()
            socket.send_fds(self._socket, [message], [] if lifeline is None else [lifeline])
            answer = json.loads(self._socket.recv(_MAX_BYTES))
            return ProcessId(answer["pid"], answer["start"])
        except (OSError, ValueError, KeyError) as error:
            self.end()
            raise Unanswered from error

    def __del__(self) -> None:
        self.end()

    def end(self) -> None:
        """It is gone when this returns; its forks go on."""
        if self._socket is None:
            return
        self._socket.close()
        self._socket = None
        os.kill(self._pid, signal.SIGKILL)  # our child until we wait for it, so its pid is no other's
        os.waitpid(self._pid, 0)

    def _has_begun(self) -> bool:
        assert self._socket is not None
        events = select.select([self._socket], [], [], 0)[0]
        if not events:
            return self._is_ready
        # It says once that it is ready; whatever else there is to read is its end.
        self._is_ready = not self._is_ready and self._hear_ready()
        if not self._is_ready:
            self.end()
        return self._is_ready

    def _hear_ready(self) -> bool:
        assert self._socket is not None
        try:
            return bool(self._socket.recv(_MAX_BYTES))
        except OSError:
            return False


def _cwd() -> str:
    try:
        return os.getcwd()
    except OSError:
        return "/"  # it was removed


def _umask() -> int:
    """Read it without changing it, which other threads would notice."""
    with open("/proc/self/status") as status:
        return next((int(line.split()[1], 8) for line in status if line.startswith("Umask:")), 0o022)
