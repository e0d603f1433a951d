"""`python -P -m stoker.supervisor.warm.nursery`: has loaded what a supervisor needs, and forks one for each run.

It belongs to the engine that started it: its standard input is a socket, which a request comes in by and an answer
goes out, a JSON object a packet. It ends when that does, or when it was idle for long. Supervisors are sessions of
their own and do not notice.
"""

import gc
import json
import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Mapping
from typing import Any, NoReturn

# What a supervisor loads late, so that user code need not wait for it, is here loaded once for all.
import stoker.packaging.environment.cache
import stoker.packaging.package.archive
import stoker.supervisor.ship
import stoker.supervisor.warm.launcher  # noqa: F401
from stoker.supervisor.__main__ import main as supervise
from stoker.supervisor.warm.zygote import MAX_MESSAGE_BYTES, Title, Unsafe, start_time

_IDLE_S = 60.0


def main() -> int:
    try:
        title = Title()
    except (Unsafe, OSError) as error:
        sys.stderr.write(f"No nursery: {error}.\n")
        return 1
    asked = socket.socket(fileno=os.dup(0))
    signal.signal(signal.SIGCHLD, lambda signum, frame: None)  # so that it ends a wait
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is meant for the server, which ends us
    gc.collect()
    gc.freeze()
    asked.send(b'{"ready": true}')
    return _serve(asked, title)


def _serve(asked: socket.socket, title: Title) -> int:
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_read, False)
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write)
    poller = select.poll()
    poller.register(asked, select.POLLIN)
    poller.register(wake_read, select.POLLIN)
    while True:
        ready = dict(poller.poll(_IDLE_S * 1000))
        if not ready:
            return 0
        if wake_read in ready:
            os.read(wake_read, 4096)
            _reap()
        events = ready.get(asked.fileno(), 0)
        if events & select.POLLHUP:
            return 0  # also if there is a request: who asked will not hear of it
        if events:
            request, lifelines, _, _ = socket.recv_fds(asked, MAX_MESSAGE_BYTES, 1)
            if not request:
                return 0
            heard, said = os.pipe()
            nursery = os.getpid()
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                for descriptor in (wake_read, wake_write, heard):
                    os.close(descriptor)
                asked.close()
                flags = ["--lifeline", str(lifelines[0])] if lifelines else []
                _become(json.loads(request), title, said, flags, nursery=nursery)
            for descriptor in (said, *lifelines):
                os.close(descriptor)
            os.read(heard, 1)  # only when it can be found by its command line is it known to anyone
            os.close(heard)
            asked.send(json.dumps({"pid": pid, "start": start_time(pid)}).encode())


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def _become(request: Mapping[str, Any], title: Title, said: int, flags: list[str], *, nursery: int) -> NoReturn:
    """In the child: what `posix_spawn` would have given it. Closes `said` once it has its own command line."""
    code = 1
    try:
        os.setsid()
        title.set_words([*request["words"], *flags])
        if os.getppid() != nursery:
            os._exit(code)  # who asked may have looked for us before we could be found, and started another
        os.close(said)
        for number in (signal.SIGCHLD, signal.SIGHUP, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _redirect(request["log"])
        os.environ.clear()
        os.environ.update(request["environment"])
        os.chdir(request["cwd"])
        os.umask(request["umask"])
        code = supervise([*request["arguments"], *flags])
    except BaseException:  # noqa: BLE001 -- as an interpreter does, at whose end we are
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)  # nothing of ours waits for an interpreter's end, which takes longer than a fork


def _redirect(log: str) -> None:
    for number, path, flags in ((0, os.devnull, os.O_RDONLY), (1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)):
        file = os.open(path, flags, 0o666)
        os.dup2(file, number)
        os.close(file)
    os.dup2(1, 2)


if __name__ == "__main__":
    sys.exit(main())
