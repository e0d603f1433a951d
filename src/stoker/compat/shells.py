"""A job that is a shell: it waits for `stoker shell open`, and gives each a terminal in its environment and folder.

Its socket lies in the run's directory, which only its user can enter: that is all the signing in there is, and nothing
is left elsewhere however the job ends. Both sides send frames: a letter, a length, and so many bytes. `d` is what is
typed or printed, `w` the window's size, `x` the end.
"""

import contextlib
import json
import os
import pty
import select
import signal
import socket
import struct
import sys
import termios
from collections.abc import Iterator
from fcntl import ioctl
from typing import Any

from stoker.run_dir import RunDir

_HEAD = struct.Struct("!cI")


def send(to: socket.socket, kind: bytes, data: bytes = b"") -> None:
    to.sendall(_HEAD.pack(kind, len(data)) + data)


def receive(of: socket.socket) -> tuple[bytes, bytes]:
    """The next frame; an end, where the other side has gone."""
    head = _exactly(of, _HEAD.size)
    if len(head) < _HEAD.size:
        return b"x", b"255"
    kind, length = _HEAD.unpack(head)
    return kind, _exactly(of, length)


@contextlib.contextmanager
def inside(folder: str | os.PathLike[str]) -> Iterator[None]:
    """Work in this folder for a moment: the path of a socket may have only 100 characters, a run directory more."""
    before = os.open(".", os.O_RDONLY)
    try:
        os.chdir(folder)
        yield
    finally:
        os.fchdir(before)
        os.close(before)


def serve() -> None:
    """Until the job is ended: a terminal for everyone who comes."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children that serve one each are nobody's to wait for
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with socket.socket(socket.AF_UNIX) as listener:
        run_dir = RunDir(os.environ["STOKER_RUN_DIR"])
        with inside(run_dir):
            listener.bind(draft := f".{run_dir.shell.name}")
            os.chmod(draft, 0o600)
            listener.listen()
            os.replace(draft, run_dir.shell.name)
        print("Open a terminal here with `stoker shell open`.", flush=True)  # noqa: T201 - the job's log
        while True:
            connection, _ = listener.accept()
            if os.fork() == 0:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                listener.close()
                _serve_session(connection)
            connection.close()


def _serve_session(connection: socket.socket) -> None:
    """In a process of its own, which ends here: one shell, or one command, in a terminal."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _, asked = receive(connection)
    wanted = json.loads(asked)
    shell = os.environ.get("SHELL") or "/bin/sh"
    words = [shell, "-c", wanted["command"]] if wanted.get("command") else [shell]
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["TERM"] = wanted.get("term") or "dumb"
        os.execvp(words[0], words)
    _resize(terminal, wanted.get("size") or [24, 80])
    with contextlib.suppress(OSError):  # the connection has left; so does the shell, when its terminal closes
        _relay(connection, terminal)
    os._exit(0)


def _relay(connection: socket.socket, terminal: int) -> None:
    both: list[Any] = [connection, terminal]
    while True:
        ready, _, _ = select.select(both, [], [])
        if terminal in ready:
            try:
                data = os.read(terminal, 65536)
            except OSError:  # how a terminal says that nobody writes to it any more
                data = b""
            if not data:
                send(connection, b"x", str(_exit_code()).encode())
                return
            send(connection, b"d", data)
        if connection in ready:
            kind, data = receive(connection)
            if kind == b"x":
                return
            if kind == b"w":
                _resize(terminal, json.loads(data))
            else:
                os.write(terminal, data)


def _exit_code() -> int:
    _, status = os.wait()
    return os.waitstatus_to_exitcode(status)


def _resize(terminal: int, size: list[int]) -> None:
    ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", size[0], size[1], 0, 0))


def _exactly(of: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count and (more := of.recv(count - len(found))):
        found += more
    return found


if __name__ == "__main__":
    serve()
