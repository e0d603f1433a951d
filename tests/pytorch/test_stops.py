"""Signals to a real process: it ends after the batch under way, with a checkpoint and the right exit code."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from stoker import pytorch
from stoker.pytorch import Batch
from tests.pytorch.trials import Watched, checkpoint_steps, events

SCRIPT = """
import sys
from stoker import pytorch
from tests.pytorch.trials import Watched

class Slow(Watched):
    def train_batch(self, batch, epoch_idx, batch_idx):
        if batch_idx == 2:
            print("ready", flush=True)
            sys.stdin.readline()  # the signal is sent while this batch is under way
        return super().train_batch(batch, epoch_idx, batch_idx)

context = pytorch.init()
context.fit(context.build_trial(Slow), max_length=pytorch.Batch(1000), progress=False)
print("after fit")
"""


class Script:
    """The script above in a process of its own, its second batch under way."""

    def __init__(self, folder: Path, **variables: str) -> None:
        environment = {**os.environ, "PYTHONPATH": os.fspath(Path(__file__).parents[2]), **variables}
        self.process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    def stop(self, number: int) -> tuple[int, str, str]:
        self.process.send_signal(number)
        # readline is interrupted and goes on, so the handler has run before the batch ends.
        out, err = self.process.communicate("go on\n", timeout=120)
        return self.process.returncode, out, err


@pytest.mark.slow
def test_a_supervisor_s_stop_ends_with_0_and_a_checkpoint(run_dir: Any, tmp_path: Path) -> None:
    folder = run_dir()
    script = Script(tmp_path, STOKER_RUN_DIR=str(folder))
    (folder / "stop").write_text("cancel")

    code, out, err = script.stop(signal.SIGTERM)

    assert (code, err) == (0, "")
    assert "after fit" not in out
    assert checkpoint_steps(folder) == [3]


@pytest.mark.slow
@pytest.mark.parametrize(("number", "expected"), [(signal.SIGTERM, 143), (signal.SIGINT, -signal.SIGINT)])
def test_without_a_supervisor_the_exit_code_is_the_signal_s(number: int, expected: int, tmp_path: Path) -> None:
    code, out, err = Script(tmp_path).stop(number)

    (run,) = (tmp_path / "stoker-runs").iterdir()
    assert code == expected
    assert "after fit" not in out
    assert checkpoint_steps(run) == [3]
    if number == signal.SIGINT:
        assert f"fit(latest_checkpoint='{events(run, 'checkpoint')[0]['path']}') goes on from there" in err


@pytest.fixture
def _usual_ctrl_c() -> None:
    """As in a process that was started from a terminal; the tests may have been started without one."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.mark.usefixtures("_usual_ctrl_c")
def test_handlers_are_put_back_and_those_of_others_left_alone() -> None:
    def mine(number: int, frame: Any) -> None: ...

    signal.signal(signal.SIGTERM, mine)
    seen = {}

    class Looking(Watched):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            seen.update({number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)})
            return super().train_batch(batch, epoch_idx, batch_idx)

    context = pytorch.init()
    before = signal.getsignal(signal.SIGINT)
    context.fit(context.build_trial(Looking), max_length=Batch(1))

    assert seen[signal.SIGTERM] is mine
    assert seen[signal.SIGINT] is not before
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.usefixtures("_usual_ctrl_c")
def test_a_second_ctrl_c_interrupts_at_once() -> None:
    class Stuck(Watched):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
            raise AssertionError("never reached")

    context = pytorch.init()
    with pytest.raises(KeyboardInterrupt):
        context.fit(context.build_trial(Stuck), max_length=Batch(1))


def test_every_start_trains_a_batch_so_that_one_stopped_again_and_again_comes_to_its_end(run_dir: Any) -> None:
    checkpoint, seen = None, 0
    for _ in range(4):
        folder = run_dir(latest_checkpoint=checkpoint)
        (folder / "stop").write_text("preempt")  # already there when it starts
        context = pytorch.init()
        trial = context.build_trial(Watched)
        with suppress(SystemExit):
            context.fit(trial, max_length=Batch(3))
        seen += len(trial.seen)
        saved = events(folder, "checkpoint")
        checkpoint = saved[-1]["path"] if saved else checkpoint

    assert seen == 3
    assert events(folder, "metric", "validation") != []  # put off by the last stop, made up for by the last run
