"""The server as a process: one for a home, found by its file, gone when there is nothing to do."""

import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from stoker.client.client import Client, connect, is_alive
from stoker.host.home import Home
from stoker.schema.job import JobSpec
from stoker.schema.state import JobState
from stoker.server.__main__ import main
from tests.processes import wait_until

pytestmark = pytest.mark.slow


@contextmanager
def a_server(home: Home, *flags: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "stoker.server", *flags]
    environment = {**os.environ, "STOKER_HOME": str(home.root)}
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


def answering(home: Home) -> Client:
    def answers() -> bool:
        address = home.server()
        return address is not None and is_alive(address)

    wait_until(answers, what="the server to answer")
    return connect(home, start=False)


def test_server_says_where_it_is_and_leaves_when_told(home: Home) -> None:
    with a_server(home) as process:
        client = answering(home)
        address = home.server()
        assert address is not None
        assert address.pid == process.pid
        assert (home.server_file.stat().st_mode & 0o777) == 0o600
        assert (home.root / "token").read_text() == address.token
        assert client.health().home == str(home.root)

        process.send_signal(signal.SIGTERM)

        assert process.wait(60) == 0
        assert home.server() is None
        client.close()


def test_shutdown_ends_it_though_followers_wait(home: Home) -> None:
    with a_server(home) as process:
        client = answering(home)
        client.submit(JobSpec(name="sleeper", kind="command", command=("sleep", "600")))
        address = home.server()
        assert address is not None
        following = http.client.HTTPConnection("127.0.0.1", int(address.url.rpartition(":")[2]), timeout=60)
        headers = {"Authorization": f"Bearer {address.token}"}
        following.request("GET", "/api/v1/events", headers=headers)
        response = following.getresponse()
        response.readline()

        client.shutdown()

        assert process.wait(60) == 0
        response.read()
        response.close()
        following.close()
        client.close()

    with a_server(home):
        client = answering(home)
        client.cancel("sleeper")
        assert client.wait("sleeper", timeout_s=60).state is JobState.CANCELLED
        client.close()


def test_second_server_leaves_quietly(home: Home) -> None:
    with a_server(home) as first:
        answering(home).close()

        with a_server(home) as second:
            assert second.wait(60) == 0
            assert second.stderr is not None
            assert "running already" in second.stderr.read()

        assert first.poll() is None


def test_next_server_takes_over_when_the_last_was_killed(home: Home) -> None:
    with a_server(home) as first:
        answering(home).close()
        first.kill()
        first.wait()
        assert home.server() is not None, "it had no time to take its file away"

        with a_server(home) as second:
            wait_until(lambda: (found := home.server()) and found.pid == second.pid, what="the next server")
            answering(home).close()


def test_idle_server_goes_away(home: Home) -> None:
    with a_server(home, "--idle-exit-s", "0.5") as process:
        assert process.wait(60) == 0
        assert home.server() is None


def test_server_with_work_stays(home: Home) -> None:
    with a_server(home, "--idle-exit-s", "0.5") as process:
        client = answering(home)
        client.submit(JobSpec(name="sleeper", kind="command", command=("sleep", "4")))
        client.close()

        assert process.wait(120) == 0

    with a_server(home):
        client = answering(home)
        assert client.wait("sleeper", timeout_s=60).state is JobState.SUCCEEDED
        client.close()


def test_bad_config_is_told_and_nothing_starts(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    home.config.write_text("[pools.local]\ncpus = 'many'\n")

    assert main([]) == 2

    assert "pools.local.cpus" in capsys.readouterr().err
    assert home.server() is None


def test_port_that_is_taken_is_told(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()

        assert main(["--port", str(taken.getsockname()[1])]) == 2

    assert "cannot be had" in capsys.readouterr().err


def test_server_loads_no_heavy_library() -> None:
    script = "import json, sys, stoker.server.__main__; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    loaded = set(json.loads(done.stdout))
    assert not loaded & {"torch", "ray", "optuna", "pandas", "numpy", "httpx", "sqlalchemy.dialects.postgresql"}
