"""What people and tools see of a training: progress lines, TensorBoard files, events."""

import io
import struct
import warnings
from pathlib import Path
from typing import Any

import pytest

from stoker import pytorch
from stoker.pytorch import Batch
from stoker.pytorch.progress import Progress
from stoker.pytorch.tensorboard import EventFile
from tests.pytorch.trials import OneVar, events


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_log_gets_plain_lines_at_most_one_a_second() -> None:
    stream, clock = io.StringIO(), Clock()
    progress = Progress(stream, first=100, total=1000, clock=clock)

    for step in range(101, 1001):
        clock.now += 0.1
        progress.batch(step)
        if step % 2 == 0:
            progress.training(step, {"loss": 1 / step, "batches": step, "epochs": 1})
    progress.validation(1000, {"loss": 0.25})
    progress.close()

    lines = stream.getvalue().splitlines()
    assert lines[0] == "batch 102/1000  loss 0.0098039  10 batches/s  1:29 left"
    assert lines[-2] == "batch 1000/1000  loss 0.001  10 batches/s"
    assert lines[-1] == "batch 1000/1000  validation  loss 0.25"
    assert 85 <= len(lines) <= 95


def test_a_terminal_gets_one_line_rewritten_in_place() -> None:
    stream, clock = Terminal(), Clock()
    progress = Progress(stream, first=0, total=4000, clock=clock)

    for step in range(1, 5):
        clock.now += 0.06
        progress.batch(step)
    progress.training(4, {"loss": 0.5})
    progress.validation(4, {"loss": 0.25})
    progress.close()

    assert stream.getvalue().split("\r") == [
        "batch 1/4000  16.7 batches/s  3:59 left",
        " " * 39,
        "batch 3/4000  16.7 batches/s  3:59 left",
        " " * 39,
        "batch 4/4000  loss 0.5  16.7 batches/s  3:59 left",
        " " * 49,
        "batch 4/4000  validation  loss 0.25\n",
    ]


def test_nothing_is_said_when_progress_is_off(capsys: pytest.CaptureFixture[str]) -> None:
    context = pytorch.init()
    context.fit(context.build_trial(OneVar), max_length=Batch(1), progress=False)

    assert capsys.readouterr() == ("", "")


def read_scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """As TensorBoard itself reads them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its own
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    found = EventAccumulator(str(folder))
    found.Reload()
    return {tag: [(point.step, point.value) for point in found.Scalars(tag)] for tag in found.Tags()["scalars"]}


def test_tensorboard_reads_our_event_files() -> None:
    context = pytorch.init()
    context.fit(
        context.build_trial(OneVar), max_length=Batch(300), reporting_period=Batch(150), validation_period=Batch(150)
    )

    scalars = read_scalars(context.get_tensorboard_path())
    reported = {group: events(context.run.run_dir, "metric", group) for group in ("training", "validation")}
    for group, found in reported.items():
        expected = [(event["step"], pytest.approx(event["values"]["loss"])) for event in found]
        assert scalars[f"{group}/loss"] == expected
    assert [step for step, _ in scalars["training/loss"]] == [150, 300]


def test_values_beyond_float32_become_infinities() -> None:
    folder = Path("board")
    file = EventFile(folder)
    file.add(2**40, {"large": 1e300, "small": -1e300, "nan": float("nan")})
    file.close()

    scalars = read_scalars(folder)
    assert scalars["large"] == [(2**40, float("inf"))]
    assert scalars["small"] == [(2**40, float("-inf"))]
    assert scalars["nan"][0][1] != scalars["nan"][0][1]
    assert struct.calcsize("<f") == 4


@pytest.mark.parametrize("how", ["init", "context"])
def test_no_event_files_when_switched_off(how: str) -> None:
    context = pytorch.init(enable_tensorboard_logging=how != "init")
    trial = context.build_trial(OneVar)
    if how == "context":
        trial.context.set_enable_tensorboard_logging(False)
    context.fit(trial, max_length=Batch(1))

    assert not context.get_tensorboard_path().exists()


def test_a_writer_for_images_is_tensorboard_s_own() -> None:
    context = pytorch.init()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        writer = context.get_tensorboard_writer()
    writer.add_scalar("mine", 1.0, 5)
    writer.close()

    assert context.get_tensorboard_writer() is writer
    assert read_scalars(context.get_tensorboard_path())["mine"] == [(5, 1.0)]


def test_checkpoint_events_say_what_and_how_large(run_dir: Any) -> None:
    folder = run_dir()
    context = pytorch.init()
    context.fit(context.build_trial(OneVar), max_length=Batch(3))

    (event,) = events(folder, "checkpoint")
    assert event["step"] == 3
    assert event["size_bytes"] == sum(file.stat().st_size for file in Path(event["path"]).iterdir())
    assert event["metadata"] == {"framework": "stoker.pytorch"}
