"""GPUs by claim: no two live runs on one, unless they asked for parts."""

import os
from pathlib import Path

import pytest

from stoker.engines.gpus import Claim, choose, start_on_gpus
from stoker.host.home import Home
from stoker.host.processes import ProcessId

FOUR = ["0", "1", "2", "3"]


def a_claim(*devices: str, share: float = 1.0) -> Claim:
    return Claim(pid=1, start=1, devices=list(devices), share=share)


@pytest.mark.parametrize(
    ("need", "claims", "expected"),
    [
        (1, [], ["0"]),
        (2, [], ["0", "1"]),
        (1, [a_claim("0")], ["1"]),
        (2, [a_claim("0"), a_claim("2")], ["1", "3"]),
        (0.5, [a_claim("0")], ["1"]),
        (0.5, [a_claim("0"), a_claim("1", share=0.5)], ["1"]),
        (0.5, [a_claim("0", share=0.6), a_claim("1", share=0.2)], ["1"]),
        (1, [a_claim("0", share=0.5)], ["1"]),
    ],
)
def test_a_run_gets_gpus_that_have_room(need: float, claims: list[Claim], expected: list[str]) -> None:
    assert choose(need, FOUR, claims)[0] == expected


def test_a_claim_lives_as_long_as_its_supervisor(tmp_path: Path) -> None:
    home = Home(tmp_path)
    me = ProcessId.of(os.getpid())
    assert me is not None
    dead = ProcessId(me.pid, me.start - 1)
    given: list[str | None] = []

    def start_as(process: ProcessId) -> None:
        def start(devices: str | None) -> ProcessId:
            given.append(devices)
            return process

        start_on_gpus(home, need=1, visible=["7", "9"], start=start)

    start_as(me)
    start_as(dead)
    start_as(me)

    assert given == ["7", "9", "9"]


def test_a_run_that_asks_for_none_is_left_alone(tmp_path: Path) -> None:
    me = ProcessId.of(os.getpid())
    assert me is not None
    given: list[str | None] = []

    start_on_gpus(Home(tmp_path), need=0, visible=FOUR, start=lambda devices: given.append(devices) or me)

    assert given == [None]
    assert not list(tmp_path.iterdir())
