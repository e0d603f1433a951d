"""Processes that outlive the one that started them."""

import os
import signal
import sys
from pathlib import Path

import pytest

from stoker.host.spawn import exit_code, spawn_detached
from tests.processes import wait_until

SCRIPT = (
    "import os, signal, sys;"
    " print(os.getsid(0) == os.getpid(), signal.getsignal(signal.SIGTERM).name, sys.stdin.read());"
    " sys.stderr.write('to the log\\n'); sys.exit(3)"
)


@pytest.mark.slow
def test_process_has_a_session_and_default_signals_and_prints_to_its_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        pid = spawn_detached([sys.executable, "-c", SCRIPT], environment=os.environ, log=log)
    finally:
        signal.signal(signal.SIGTERM, before)

    wait_until(lambda: log.exists() and log.read_text().endswith("log\n"), what="its last line")
    while (code := exit_code(pid)) is None:
        pass

    assert code == 3
    assert log.read_text() == "True SIG_DFL \nto the log\n"
    assert log.stat().st_mode & 0o777 == 0o600
    assert exit_code(pid, if_unknown=0) == 0, "it is nobody's child any more"
