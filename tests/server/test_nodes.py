"""How a run on several nodes ended, from how each of them did."""

import pytest

from stoker.schema.event import Exited, Phase
from stoker.schema.state import StopReason
from stoker.server.store.events import exit_of


def an_exit(time: float, **fields: object) -> Exited:
    return Exited.model_validate({"seq": 9, "time": time, "phase": Phase.USER_CODE, **fields})


FINE = an_exit(5, code=0)
KILLED = an_exit(4, code=137, signal="SIGKILL", replica="worker-0", message="worker-0 was killed by SIGKILL")
CUT_OFF = an_exit(3, code=1, replica="chief-0", message="chief-0 exited with code 1: RuntimeError: [gloo] closed")
TOLD = an_exit(6, code=0, stop=StopReason.CANCEL)
TAKEN = an_exit(2, code=None, stop=StopReason.PREEMPT)


@pytest.mark.parametrize(
    ("exits", "was_told", "expected"),
    [
        pytest.param([FINE, FINE], False, FINE, id="all well"),
        pytest.param([CUT_OFF, KILLED], False, KILLED, id="who only lost its connection comes after"),
        pytest.param([CUT_OFF, TOLD], False, CUT_OFF, id="who was told because of a failure is not how it ended"),
        pytest.param([CUT_OFF, TAKEN], False, TAKEN, id="a node that was taken away preempts the run"),
        pytest.param([FINE, TAKEN], False, FINE, id="a parameter server is stopped when the chief has ended"),
        pytest.param([TOLD, TOLD], True, TOLD, id="cancelled"),
    ],
)
def test_run_ends_as_its_nodes_did(exits: list[Exited], was_told: bool, expected: Exited) -> None:
    assert exit_of(dict(enumerate(exits)), was_told=was_told) is expected
