"""Predictions: in order, shared among ranks, gone on with after a stop."""

import os
import signal

import numpy
import pytest
import torch
from torch import nn
from torch.utils import data as torch_data

import stoker.pytorch
from stoker.errors import UsageError
from stoker.pytorch.data.loader import DataLoader
from tests.pytorch.ranks import run_ranks


class Numbers(torch_data.Dataset):
    """Sample i is ([i], [2 i]): an input and a label."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int):
        return torch.tensor([float(index)]), torch.tensor([2.0 * index])


class Triple(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([3.0]))
        self.noise = nn.Dropout(0.9)  # a model left in training mode would be found out

    def forward(self, x, scale=1.0):
        return self.noise(x * self.weight) * scale


class Trial(stoker.pytorch.PyTorchTrial):
    def __init__(self, context) -> None:
        self.context = context
        self.model = context.wrap_model(Triple())


@pytest.fixture
def context(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with stoker.pytorch.init() as context:
        yield context


def batches_of(length: int, size: int = 4):
    return DataLoader(Numbers(length), batch_size=size)


def test_predictions_come_in_the_order_of_the_data(context):
    trial = context.build_trial(Trial)
    trial.model.train()

    predictions = context.predict(trial, batches_of(11))

    assert predictions.tolist() == [[3.0 * i] for i in range(11)]
    assert predictions.requires_grad is False
    assert trial.model.training  # as it was


@pytest.mark.parametrize(
    ("batch", "expected"),
    [
        (torch.ones(2, 1), [[3.0], [3.0]]),
        ((torch.ones(2, 1), torch.zeros(2)), [[3.0], [3.0]]),
        ({"x": torch.ones(2, 1), "scale": 2.0, "labels": torch.zeros(2), "id": torch.zeros(2)}, [[6.0], [6.0]]),
        (({"x": torch.ones(2, 1)}, torch.zeros(2)), [[3.0], [3.0]]),
    ],
)
def test_a_trials_only_model_is_given_the_inputs_and_not_the_labels(context, batch, expected):
    trial = context.build_trial(Trial)

    assert context.predict(trial, [batch]).tolist() == expected


def test_predict_batch_decides_when_there_is_one(context):
    class Own(Trial):
        def predict_batch(self, batch):
            x, y = batch
            parity = ["odd" if number % 2 else "even" for number in x[:, 0].tolist()]
            return {"sum": x + y, "pair": (x.numpy(), [None] * len(x)), "parity": parity, "none": None}

    predictions = context.predict(context.build_trial(Own), batches_of(5, size=2))

    assert predictions["sum"].tolist() == [[0.0], [3.0], [6.0], [9.0], [12.0]]
    assert isinstance(predictions["pair"][0], numpy.ndarray)
    assert predictions["pair"][0].tolist() == [[0.0], [1.0], [2.0], [3.0], [4.0]]
    assert predictions["pair"][1] == [None] * 5
    assert predictions["parity"] == ["even", "odd", "even", "odd", "even"]
    assert "none" not in predictions


class NoModel(stoker.pytorch.PyTorchTrial):
    pass


class Scalars(Trial):
    def predict_batch(self, batch):
        return 3.0


@pytest.mark.parametrize(
    ("trial", "data", "expected"),
    [
        (NoModel, batches_of(3), "NoModel has no predict_batch and 0 wrapped models"),
        (Trial, DataLoader(Numbers(3), shuffle=True), "is shuffled"),
        (Trial, batches_of(0), "is empty"),
        (Trial, [{"text": torch.ones(1)}], "forward takes .*: nothing in common"),
        (Scalars, batches_of(3), "for a batch is a float: expected a tensor"),
    ],
)
def test_what_cannot_be_predicted_is_said_in_a_sentence(context, trial, data, expected):
    with pytest.raises(UsageError, match=expected):
        context.predict(context.build_trial(trial), data)


class Counting(Trial):
    """Fails, once, at a batch."""

    seen: list[int] = []
    fail_at: int | None = None

    def predict_batch(self, batch):
        if len(self.seen) == self.fail_at:
            raise RuntimeError("the power went out")
        self.seen.append(int(batch[0][0]))
        return self.model(batch[0])


@pytest.mark.parametrize("fail_at", [0, 3, 4, 5])
def test_with_a_folder_only_the_rest_is_predicted(context, tmp_path, monkeypatch, fail_at):
    monkeypatch.setattr(Counting, "seen", [])
    monkeypatch.setattr(Counting, "fail_at", fail_at)
    trial = context.build_trial(Counting)
    with pytest.raises(RuntimeError, match="the power went out"):
        context.predict(trial, batches_of(11, size=2), checkpoint_period=2, folder=tmp_path / "kept")
    monkeypatch.setattr(Counting, "seen", [])
    monkeypatch.setattr(Counting, "fail_at", None)

    predictions = context.predict(trial, batches_of(11, size=2), checkpoint_period=2, folder=tmp_path / "kept")

    assert predictions.tolist() == [[3.0 * i] for i in range(11)]
    assert Counting.seen == list(range(fail_at // 2 * 4, 11, 2))


def test_predictions_that_are_all_there_are_read_and_not_made_again(context, tmp_path, monkeypatch):
    monkeypatch.setattr(Counting, "seen", [])
    trial = context.build_trial(Counting)
    made = context.predict(trial, batches_of(11), folder=tmp_path / "kept")
    monkeypatch.setattr(Counting, "fail_at", 3)

    read = context.predict(trial, batches_of(11), folder=tmp_path / "kept")

    assert torch.equal(read, made)


def test_a_period_of_zero_is_refused(context):
    with pytest.raises(UsageError, match="checkpoint_period is 0"):
        context.predict(context.build_trial(Trial), batches_of(3), checkpoint_period=0)


def test_a_folder_with_predictions_for_other_data_is_refused(context, tmp_path):
    trial = context.build_trial(Trial)
    context.predict(trial, batches_of(8), checkpoint_period=1, folder=tmp_path / "kept")

    with pytest.raises(UsageError, match="holds predictions for 8 samples, and the data now has 9"):
        context.predict(trial, batches_of(9), folder=tmp_path / "kept")


class Stopped(Trial):
    """Counts its batches; the chief is told to stop during one of them."""

    stop_at = -1
    batches = 0

    def predict_batch(self, batch):
        self.batches += 1
        if self.batches == self.stop_at and self.context.distributed.rank == 0:
            os.kill(os.getpid(), signal.SIGTERM)
        return self.model(batch[0])


def predict_on_a_rank(stop_at: int):
    """How many batches this rank predicted, and all predictions, or the exit code."""
    with stoker.pytorch.init() as context:
        trial = context.build_trial(Stopped)
        trial.stop_at = stop_at
        try:
            predictions = context.predict(trial, batches_of(25, size=2), checkpoint_period=2)
        except SystemExit as stopped:
            return trial.batches, stopped.code
        return trial.batches, predictions.tolist()


@pytest.mark.slow
@pytest.mark.parametrize("size_after", [1, 3])
def test_two_ranks_told_to_stop_leave_and_others_go_on_where_they_were(tmp_path, size_after):
    stopped = run_ranks(predict_on_a_rank, 2, tmp_path / "1", 3, attempt=1)
    resumed = run_ranks(predict_on_a_rank, size_after, tmp_path / "2", -1, attempt=2)

    done = sum(batches for batches, _ in stopped)
    assert [code for _, code in stopped] == [0, 0]
    assert 0 < done < 13
    assert sum(batches for batches, _ in resumed) == 13 - done
    assert [predictions for _, predictions in resumed] == [[[3.0 * i] for i in range(25)]] * size_after
