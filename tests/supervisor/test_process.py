"""Ports, stop requests and signals: the small parts of starting and ending."""

import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from stoker.supervisor.process import StopRequest, find_ports, on_signals


def test_ports_are_free_and_differ() -> None:
    names = [f"worker-{number}" for number in range(50)]

    ports = find_ports(names, start_port=None)

    assert len(set(ports.values())) == 50
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", ports["worker-0"]))


def test_ports_follow_the_start_port() -> None:
    assert find_ports(["chief-0", "ps-0"], start_port=27182) == {"chief-0": 27182, "ps-0": 27183}


def test_stop_request_wakes_a_poller_from_another_thread() -> None:
    stop, poller = StopRequest(), select.poll()
    stop.watch(poller)

    threading.Thread(target=stop.ask, args=("cancel",)).start()
    woken = poller.poll(60_000)
    stop.heard()

    assert woken
    assert stop.reason == "cancel"
    assert poller.poll(0) == []
    stop.close()


def test_first_reason_to_stop_stays() -> None:
    stop = StopRequest()

    stop.ask("pause")
    stop.ask("cancel")

    assert stop.reason == "pause"
    assert not stop.at_once
    stop.close()


@pytest.mark.parametrize("line", range(6))
def test_first_reason_to_stop_stays_when_another_comes_in_the_midst_of_it(line: int) -> None:
    """A signal's handler runs between any two lines, and so do threads."""
    stop, before, heard = StopRequest(), sys.gettrace(), []
    seen = 0

    def interrupt(frame: FrameType, event: str, argument: object) -> Callable[..., Any] | None:
        nonlocal seen
        if frame.f_code is not StopRequest.ask.__code__:
            return None
        if event == "line":
            if seen == line:
                sys.settrace(None)
                stop.ask("cancel")
                heard.append(stop.reason)
            seen += 1
        return interrupt

    sys.settrace(interrupt)
    stop.ask("preempt")
    sys.settrace(before)

    assert [stop.reason] == (heard or ["preempt"])
    stop.close()


def test_stop_request_can_be_repeated_without_end() -> None:
    stop = StopRequest()

    for _ in range(100_000):  # more than a pipe holds
        stop.wake()

    stop.heard()
    stop.close()


@pytest.fixture
def usr1() -> object:
    before = signal.getsignal(signal.SIGUSR1)
    yield signal.SIGUSR1
    signal.signal(signal.SIGUSR1, before)


def test_signals_are_heard_until_they_are_restored(usr1: int) -> None:
    seen: list[str] = []
    signal.signal(usr1, lambda number, frame: seen.append("old"))

    restore = on_signals({usr1: lambda: seen.append("ours")})
    os.kill(os.getpid(), usr1)
    restore()
    os.kill(os.getpid(), usr1)

    assert seen == ["ours", "old"]


def test_ignored_signal_stays_ignored(usr1: int) -> None:
    signal.signal(usr1, signal.SIG_IGN)  # as nohup does

    restore = on_signals({usr1: lambda: pytest.fail("nohup was not respected")})
    os.kill(os.getpid(), usr1)
    restore()

    assert signal.getsignal(usr1) is signal.SIG_IGN
