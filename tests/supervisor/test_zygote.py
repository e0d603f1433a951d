"""A zygote's own bookkeeping, in an interleaving that processes come to once in a long while."""

import subprocess
import sys

import pytest

# In a process of its own, because a zygote waits for all children there are.
SCRIPT = """
import os, select, signal, socket
from stoker.supervisor.warm.zygote import Zygote

class Bare(Zygote):
    def __init__(self):
        self._connections, self._children = {}, {}
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)

zygote, poller = Bare(), select.poll()

def connect():
    theirs, ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    zygote._connections[ours.fileno()] = ours
    poller.register(ours, select.POLLIN)
    return theirs, ours.fileno()

supervisor, number = connect()
child = os.fork()
if child == 0:
    supervisor.close()
    signal.alarm(60)  # should all of this be killed
    signal.pause()
zygote._children[child] = number

supervisor.close()  # it was killed
zygote._hear(number, poller)  # so its child is
another, again = connect()
assert again == number
os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
os.write(zygote._wake_write, b".")
zygote._reap(poller)

another.setblocking(False)
try:
    print("heard", another.recv(1000))
except BlockingIOError:
    print("heard nothing", again in zygote._connections, zygote._children)
"""


@pytest.mark.slow
def test_end_of_a_killed_supervisors_child_is_not_told_to_the_next_that_connects() -> None:
    """The kernel gives the next connection the lowest free number: that of the one which has just ended."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60)

    assert (done.stdout, done.stderr) == ("heard nothing True {}\n", "")


# As TensorFlow's modules do, which call functions of another module for every name that they are asked for.
ENDING = """
import sys, types
from stoker.supervisor.warm.zygote import leave

loaded = set(sys.modules)

class Answering(types.ModuleType):
    def __getattribute__(self, name):
        return look(types.ModuleType.__getattribute__(self, name))

def look(found):
    return found

sys.modules["answering"] = kept = Answering("answering")
kept.value, kept.other = 1, 2
look = None  # as in a module that is emptied before
leave(3, loaded)
"""


@pytest.mark.slow
def test_modules_that_answer_by_code_of_their_own_do_not_keep_a_trial_from_ending() -> None:
    done = subprocess.run([sys.executable, "-c", ENDING], capture_output=True, text=True, timeout=60)

    assert (done.returncode, done.stderr) == (3, "")
