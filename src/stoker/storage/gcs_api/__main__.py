"""`python -m stoker.storage.gcs_api --home HOME`: serve until told to stop, or until the parent is gone."""

import argparse
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from stoker.errors import StokerError
from stoker.storage.gcs_api.server import Gateway


def main(argv: Sequence[str] | None = None) -> int:
    given = _parser().parse_args(argv)
    # Not an Event: to set it takes a lock, which the main thread may hold when it is interrupted by the signal.
    ends, end = os.pipe()
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, lambda received, frame: _tell(end))
    try:
        listening = None if given.fd is None else socket.socket(fileno=given.fd)
        gateway = Gateway(given.home, listening=listening, port=given.port)
    except (StokerError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201  this is a command
        return 2
    print(gateway.url, flush=True)  # noqa: T201  whoever started us reads it
    if given.until_eof:
        _watch(sys.stdin.buffer.read, end)
    if given.parent_pid is not None:
        _watch(lambda: _wait_for(given.parent_pid), end)
    os.read(ends, 1)
    gateway.discard_uploads()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m stoker.storage.gcs_api", description=__doc__)
    parser.add_argument("--home", type=Path, required=True, help="the folder whose config.toml maps the buckets")
    parser.add_argument("--port", type=int, default=0, help="on loopback; a free one if not given")
    parser.add_argument("--fd", type=int, help="a listening socket to serve instead")
    parser.add_argument("--until-eof", action="store_true", help="end when standard input ends")
    parser.add_argument("--parent-pid", type=int, help="end when this process does")
    return parser


def _tell(end: int) -> None:
    os.write(end, b".")


def _watch(wait: Callable[[], object], end: int) -> None:
    def watch() -> None:
        wait()
        _tell(end)

    threading.Thread(target=watch, daemon=True).start()


def _wait_for(pid: int) -> None:
    """Return when the process is gone."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    select.select([descriptor], [], [])


if __name__ == "__main__":
    sys.exit(main())
