"""The gateway as a process: it says where it is, outlives nobody, comes when called, and lets in its user alone."""

import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

import pytest

from stoker.storage.gcs_api import LazyGateway, is_needed, variables
from stoker.storage.gcs_api.peers import can_tell, is_same_user
from tests.processes import wait_until
from tests.storage.gcs_api.conftest import Caller

UPLOAD = "/upload/storage/v1/b/bucket/o?uploadType=media&name="


def start(home: Path, *options: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "stoker.storage.gcs_api", "--home", str(home), *options]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def url_of(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.slow
def test_gateway_says_where_it_is_and_ends_with_its_input(tmp_path: Path) -> None:
    with start(tmp_path, "--until-eof") as process:
        with urllib.request.urlopen(url_of(process), timeout=60) as answer:
            assert answer.status == 200
        assert process.stdin is not None
        process.stdin.close()

        assert process.wait(timeout=60) == 0


# The signal comes when the main thread has begun to wait: of an Event, it holds the lock just then.
INTERRUPTED = """
import os, signal, sys, threading
wait, read = threading.Condition.wait, os.read
def waits(condition, timeout=None):
    if sys._getframe(2).f_code.co_name == "main":
        signal.raise_signal(signal.SIGTERM)
    return wait(condition, timeout)
def reads(descriptor, size):
    if sys._getframe(1).f_code.co_name == "main":
        signal.raise_signal(signal.SIGTERM)
    return read(descriptor, size)
threading.Condition.wait, os.read = waits, reads
from stoker.storage.gcs_api.__main__ import main
sys.exit(main(["--home", sys.argv[1]]))
"""


@pytest.mark.slow
def test_gateway_ends_when_a_signal_comes_as_it_begins_to_wait(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED, str(tmp_path)], capture_output=True, timeout=60)

    assert done.returncode == 0


@pytest.mark.slow
def test_gateway_ends_with_the_process_it_is_for(tmp_path: Path) -> None:
    parent = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with start(tmp_path, "--parent-pid", str(parent.pid)) as process:
        assert url_of(process).startswith("http://127.0.0.1:")
        parent.kill()
        parent.communicate()

        assert process.wait(timeout=60) == 0


@pytest.mark.slow
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_the_gateway_and_its_unfinished_uploads(tmp_path: Path, signum: int) -> None:
    with start(tmp_path) as process:
        call = Caller(url_of(process))
        begun = call("POST", "/upload/storage/v1/b/bucket/o?uploadType=resumable&name=x", {})
        call("PUT", "/" + begun.headers["location"].split("/", 3)[3], b"a" * 10, {"Content-Range": "bytes 0-9/*"})
        partial = tmp_path / "buckets/bucket/.stoker/partial"
        assert len(list(partial.iterdir())) == 1
        call.close()
        process.send_signal(signum)

        assert process.wait(timeout=60) == 0
    assert list(partial.iterdir()) == []


@pytest.mark.slow
def test_bad_settings_are_said_in_full(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('[storage.buckets]\n"gs://x" = 1\n')

    with start(tmp_path) as process:
        _, complaint = process.communicate(timeout=60)

    assert process.returncode == 2
    assert 'storage.buckets."gs://x"' in complaint
    assert "Traceback" not in complaint


@pytest.mark.slow
def test_killed_gateway_leaves_old_or_new_and_nothing_half(tmp_path: Path) -> None:
    old, new = b"o" * 2_000_000, b"n" * 2_000_000
    for moment in range(5):
        with start(tmp_path) as process:
            call = Caller(url_of(process))
            call("POST", f"{UPLOAD}data", old)
            sent = threading.Event()

            def overwrite(call: Caller = call, sent: threading.Event = sent) -> None:
                sent.set()
                try:
                    for _ in range(100):
                        call("POST", f"{UPLOAD}data", new)
                except OSError:
                    pass  # it was killed

            thread = threading.Thread(target=overwrite)
            thread.start()
            sent.wait()
            threading.Event().wait(0.003 * moment)  # another moment each time
            process.kill()
            thread.join()
            call.close()
        data = (tmp_path / "buckets/bucket/data").read_bytes()
        assert data in (old, new)


@pytest.mark.slow
def test_two_gateways_agree_who_was_first(tmp_path: Path) -> None:
    with start(tmp_path, "--until-eof") as one, start(tmp_path, "--until-eof") as other:
        urls = [url_of(one), url_of(other)]
        for round_ in range(10):
            outcomes: list[int] = []

            def write(url: str, round_: int = round_, outcomes: list[int] = outcomes) -> None:
                call = Caller(url)
                outcomes.append(call("POST", f"{UPLOAD}lock-{round_}&ifGenerationMatch=0", url.encode()).status)
                call.close()

            threads = [threading.Thread(target=write, args=(url,)) for url in urls * 3]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert sorted(outcomes) == [200, 412, 412, 412, 412, 412]
        for process in (one, other):
            process.communicate(timeout=60)


@pytest.mark.slow
def test_lazy_gateway_starts_a_process_at_the_first_connection(tmp_path: Path) -> None:
    gateway = LazyGateway(tmp_path)
    try:
        assert gateway._process is None
        call = Caller(gateway.url)
        assert call("POST", f"{UPLOAD}x", b"x").status == 200
        call.close()
        first = gateway._process
        assert first is not None

        first.kill()
        wait_until(lambda: first.returncode is not None, what="the gateway to be missed")
        call = Caller(gateway.url)
        assert call("GET", "/bucket/x").body == b"x"
        call.close()
    finally:
        gateway.close()
        gateway.close()
    assert gateway._process is not None
    assert gateway._process.returncode == 0
    with pytest.raises(OSError, match="refused"):
        Caller(gateway.url)("GET", "/")


def test_lazy_gateway_starts_nothing_when_unused(tmp_path: Path) -> None:
    gateway = LazyGateway(tmp_path)
    gateway.close()

    assert gateway._process is None


@pytest.mark.slow
def test_lazy_gateway_refuses_when_the_gateway_cannot_live(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    gateway = LazyGateway(tmp_path)
    (tmp_path / "config.toml").write_text("[storage\n")

    with pytest.raises(OSError, match="reset|refused|closed"):
        Caller(gateway.url)("GET", "/")
    gateway.close()

    assert "config.toml is not TOML" in capfd.readouterr().err


@pytest.mark.slow
def test_gateway_ends_when_its_supervisor_is_killed(tmp_path: Path) -> None:
    code = (
        "import sys, time, pathlib, urllib.request; from stoker.storage.gcs_api import LazyGateway\n"
        "gateway = LazyGateway(pathlib.Path(sys.argv[1])); urllib.request.urlopen(gateway.url)\n"
        "print(gateway._process.pid, flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True) as supervisor:
        assert supervisor.stdout is not None
        gateway = int(supervisor.stdout.readline())
        supervisor.kill()

    wait_until(lambda: not is_running(gateway), what="the gateway to end")


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def test_gateway_is_needed_unless_the_user_has_chosen(tmp_path: Path) -> None:
    assert is_needed(tmp_path, {})
    assert not is_needed(tmp_path, {"STORAGE_EMULATOR_HOST": "http://mine"})
    assert not is_needed(tmp_path, {"GOOGLE_APPLICATION_CREDENTIALS": "/key.json"})


def test_variables_name_the_gateway_and_credentials_that_are_there() -> None:
    given = variables("http://127.0.0.1:1")

    assert given["STORAGE_EMULATOR_HOST"] == "http://127.0.0.1:1"
    assert os.path.isfile(given["GOOGLE_APPLICATION_CREDENTIALS"])


@pytest.mark.skipif(not can_tell(), reason="this machine does not tell whose a socket is")
def test_connection_of_the_same_user_is_let_in() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
        accepted, _ = server.accept()
        with accepted:
            assert is_same_user(accepted)


@pytest.mark.slow
@pytest.mark.skipif(not can_tell() or os.getuid() != 0, reason="needs to be root, to become somebody else")
def test_connection_of_another_user_is_shut(tmp_path: Path) -> None:
    code = (
        "import os, sys, socket; os.setuid(65534)\n"
        "try:\n"
        "    with socket.socket() as door:\n"
        "        door.connect(('127.0.0.1', int(sys.argv[1].rpartition(':')[2])))\n"
        "        door.sendall(b'GET / HTTP/1.0\\r\\n\\r\\n')\n"
        "        print('let in' if door.recv(1) else 'shut')\n"
        "except OSError as error: print('shut')"
    )
    with start(tmp_path, "--until-eof") as process:
        done = subprocess.run([sys.executable, "-c", code, url_of(process)], capture_output=True, text=True)
        process.communicate(timeout=60)

    assert done.stdout == "shut\n", done.stderr
