"""`torch_batch_process`: a class of the user's sees every batch once, over all ranks and restarts."""

import json
import os
import signal
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils import data as torch_data

from stoker.errors import UsageError
from stoker.pytorch.inference import TorchBatchProcessor, torch_batch_process
from tests.pytorch.ranks import run_ranks
from tests.pytorch.trials import events

NUMBERS = torch_data.TensorDataset(torch.arange(26.0))


class Recorder(TorchBatchProcessor):
    """Writes down what is called, and the numbers it sees into a file for each batch."""

    calls: list[tuple] = []
    stop_at: int | None = None

    def __init__(self, context) -> None:
        self.context = context
        self.model = context.prepare_model_for_inference(nn.Dropout(0.9))
        self.total = context.wrap_reducer(sum, name="total")
        context.report_task_using_checkpoint("best")

    def process_batch(self, batch, batch_idx) -> None:
        (numbers,) = self.context.to_device(batch)
        numbers = self.model(numbers)
        self.calls.append(("batch", batch_idx, [int(n) for n in numbers]))
        self.total.update(float(numbers.sum()))
        with self.context.upload_path() as folder:
            name = f"{self.context.get_distributed_rank()}-of-{self.context.get_distributed_size()}-{batch_idx}.json"
            (folder / name).write_text(json.dumps(numbers.tolist()))
        if batch_idx == self.stop_at and self.context.get_distributed_rank() == 0:
            os.kill(os.getpid(), signal.SIGTERM)

    def on_checkpoint_start(self) -> None:
        self.calls.append(("checkpoint",))

    def on_finish(self) -> None:
        self.calls.append(("finish",))


@pytest.fixture(autouse=True)
def nothing_recorded():
    Recorder.calls.clear()
    Recorder.stop_at = None


def results(folder: Path) -> list[float]:
    return sorted(number for file in folder.glob("*.json") for number in json.loads(file.read_text()))


def test_all_batches_are_processed_with_a_checkpoint_every_few(run_dir):
    run = run_dir()

    torch_batch_process(Recorder, NUMBERS, batch_size=5, checkpoint_interval=2)

    kinds = [call[0] for call in Recorder.calls]
    assert kinds == ["batch", "batch", "checkpoint"] * 3 + ["finish"]
    assert [call[1] for call in Recorder.calls if call[0] == "batch"] == [0, 1, 2, 3, 4, 5]
    assert results(run / "output") == list(range(26))
    assert not list((run / "output").glob(".partial*"))


def test_metrics_progress_and_what_was_used_are_reported(run_dir):
    run = run_dir()

    torch_batch_process(Recorder, NUMBERS, batch_size=5, checkpoint_interval=2)

    metrics = events(run, "metric")
    assert [(m["group"], m["step"], m["values"]) for m in metrics] == [
        ("inference", 2, {"total": sum(range(10))}),
        ("inference", 4, {"total": sum(range(10, 20))}),
        ("inference", 6, {"total": sum(range(20, 26))}),
    ]
    assert [e["fraction"] for e in events(run, "progress")] == pytest.approx([1 / 3, 2 / 3, 1])
    assert {e["metadata"]["checkpoint"] for e in events(run, "checkpoint")} == {"best"}


def test_it_works_without_a_supervisor(tmp_path):
    torch_batch_process(Recorder, NUMBERS, batch_size=13)

    (output,) = (tmp_path / "stoker-runs").glob("*/output")
    assert results(output) == list(range(26))


def test_a_restarted_run_goes_on_after_the_last_checkpoint_into_the_same_results(run_dir):
    first = run_dir()
    Recorder.stop_at = 2
    with pytest.raises(SystemExit) as stopped:
        torch_batch_process(Recorder, NUMBERS, batch_size=5, checkpoint_interval=2)
    assert stopped.value.code == 0
    assert Recorder.calls[-1] == ("checkpoint",)  # not finished
    checkpoint = [e["path"] for e in events(first, "checkpoint")][-1]
    Recorder.calls.clear()

    run_dir(latest_checkpoint=checkpoint)
    torch_batch_process(Recorder, NUMBERS, batch_size=5, checkpoint_interval=2)

    assert [call[1] for call in Recorder.calls if call[0] == "batch"] == [4, 5]
    assert results(first / "output") == list(range(26))


def test_max_batches_are_counted_on_each_rank(run_dir):
    run = run_dir()

    torch_batch_process(Recorder, NUMBERS, batch_size=5, max_batches=2)

    assert results(run / "output") == list(range(10))
    assert Recorder.calls[-1] == ("finish",)


@pytest.mark.parametrize("name", ["shuffle", "sampler", "batch_sampler"])
def test_options_that_would_change_the_order_are_refused(name):
    with pytest.raises(ValueError, match=f"dataloader_kwargs has {name}"):
        torch_batch_process(Recorder, NUMBERS, dataloader_kwargs={name: True})


def test_other_bad_arguments_are_refused_in_a_sentence():
    with pytest.raises(ValueError, match="batch_size is given twice"):
        torch_batch_process(Recorder, NUMBERS, batch_size=2, dataloader_kwargs={"batch_size": 2})
    with pytest.raises(ValueError, match="max_batches is 0"):
        torch_batch_process(Recorder, NUMBERS, max_batches=0)
    with pytest.raises(ValueError, match="checkpoint_interval is 0"):
        torch_batch_process(Recorder, NUMBERS, checkpoint_interval=0)
    with pytest.raises(UsageError, match="needs a dataset with a length"):
        torch_batch_process(Recorder, iter([1]))


def process_on_a_rank() -> list[tuple]:
    torch_batch_process(Recorder, NUMBERS, batch_size=4, checkpoint_interval=1)
    return Recorder.calls


@pytest.mark.slow
def test_ranks_share_the_batches_and_checkpoint_together(tmp_path):
    by_rank = run_ranks(process_on_a_rank, 2, tmp_path)  # 7 batches: the second rank has none in the last round

    assert [[call[0] for call in calls].count("checkpoint") for calls in by_rank] == [4, 4]
    assert [[call[2][0] for call in calls if call[0] == "batch"] for calls in by_rank] == [[0, 8, 16, 24], [4, 12, 20]]
    assert results(tmp_path / "output") == list(range(26))
    metrics = events(tmp_path, "metric")
    assert [m["values"]["total"] for m in metrics] == [sum(range(i, min(i + 8, 26))) for i in (0, 8, 16, 24)]
    assert {m["replica"] for m in metrics} == {"chief-0"}
