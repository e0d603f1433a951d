"""Find lines by regular expressions in a process apart, which the kernel ends when one takes too long.

Python's `re` cannot be interrupted and holds the interpreter's lock while it tries: one pattern like `(a+)+$` on one
unlucky line would stop the whole server for years.
"""

import json
import re
import subprocess
import sys
import threading
from collections.abc import Sequence

from stoker.errors import UsageError

_LIMIT_S = 2.0  # of CPU, for the lines of one block
_MAX_PATTERN = 1000

# A signal's default action ends it in the midst of a match, and also when its server is gone.
_CHILD = """
import json, re, signal, sys
for request in sys.stdin:
    limit_s, pattern, lines = json.loads(request)
    signal.setitimer(signal.ITIMER_VIRTUAL, limit_s)
    find = re.compile(pattern).search
    found = [at for at, line in enumerate(lines) if find(line)]
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    print(json.dumps(found), flush=True)
"""


def check_pattern(pattern: str) -> None:
    """UsageError for what is no regular expression."""
    if len(pattern) > _MAX_PATTERN:
        raise UsageError(f"A regular expression may have {_MAX_PATTERN} characters; this one has {len(pattern)}.")
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise UsageError(f"{pattern!r} is not a regular expression: {error}.") from error


class Matcher:
    """The process apart, started at the first question; questions wait for their turn."""

    def __init__(self, *, limit_s: float = _LIMIT_S) -> None:
        self._limit_s = limit_s
        self._child: subprocess.Popen[str] | None = None
        self._turn = threading.Lock()

    def find(self, pattern: str, lines: Sequence[str]) -> list[int]:
        """Which lines the pattern is found in. UsageError if that takes too long."""
        with self._turn:
            answer = self._ask(json.dumps([self._limit_s, pattern, lines]))
            if not answer:
                self._end()
                raise UsageError(
                    f"{pattern!r} takes too long on this log. Leave out repeats within repeats, like (a+)+, or look"
                    " for plain text."
                )
        return [int(at) for at in json.loads(answer)]

    def close(self) -> None:
        with self._turn:
            self._end()

    def _ask(self, question: str) -> str:
        child = self._child or self._start()
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            child.stdin.write(question + "\n")
            child.stdin.flush()
            return child.stdout.readline()
        except OSError:
            return ""

    def _start(self) -> subprocess.Popen[str]:
        # -S: no site-packages, which this needs nothing of. An empty environment: it is nobody's run or server.
        command = [sys.executable, "-I", "-S", "-c", _CHILD]
        self._child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={})
        return self._child

    def _end(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.communicate()
            self._child = None
