"""Start processes that outlive this one. Not with subprocess: Popen objects want to be waited for."""

import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

_RESET = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGCHLD]


def spawn_detached(
    words: Sequence[str],
    *,
    environment: Mapping[str, str],
    log: Path | None = None,
    log_mode: int = 0o600,
    stdin: int | None = None,
) -> int:
    """The pid of a process that leads a session of its own, with all signals as at a program's first start.

    It reads `stdin` (nothing, if not given). What it prints goes to the end of `log`; without one, stdout goes nowhere
    and stderr is ours.
    """
    actions: list[tuple[int, ...] | tuple[int, int, str, int, int]] = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0) if stdin is None else (os.POSIX_SPAWN_DUP2, stdin, 0)
    ]
    if log is None:
        actions.append((os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0))
    else:
        actions.append((os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, log_mode))
        actions.append((os.POSIX_SPAWN_DUP2, 1, 2))
    return os.posix_spawn(
        words[0], list(words), environment, file_actions=actions, setsid=True, setsigmask=[], setsigdef=_RESET
    )


def exit_code(pid: int, *, if_unknown: int | None = None) -> int | None:
    """Of a child: None while it lives; `if_unknown` when someone else in this process waits for all children."""
    try:
        ended, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return if_unknown
    return os.waitstatus_to_exitcode(status) if ended else None
