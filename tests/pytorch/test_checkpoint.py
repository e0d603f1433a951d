"""Checkpoints on disk: the format, safety, what is refused, what is kept."""

import json
import math
import os
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy
import pytest
import safetensors.torch
import torch
from torch import nn

from stoker import pytorch
from stoker.context import Context
from stoker.errors import StokerError, UsageError
from stoker.pytorch import Batch, Keep
from stoker.pytorch.checkpoint import Checkpoint, CheckpointFiles, read_checkpoint, read_models
from stoker.pytorch.saving import CheckpointFolder, Saved
from stoker.pytorch.tree import flatten, unflatten
from stoker.pytorch.weights import read_tensors, write_tensors
from tests.pytorch.trials import OneVar, events

ALL_TYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2,
    torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
]  # fmt: skip


def some_tensors() -> dict[str, torch.Tensor]:
    named = {f"t.{dtype}": torch.arange(6).reshape(2, 3).to(dtype) for dtype in ALL_TYPES}
    return {**named, "empty": torch.zeros(0, 3), "scalar": torch.tensor(3.5), "strided": torch.ones(4, 4).t()[1:]}


def same(first: torch.Tensor, second: torch.Tensor) -> bool:
    return first.dtype is second.dtype and first.shape == second.shape and first.tolist() == second.tolist()


def test_our_files_are_read_by_the_safetensors_library_and_theirs_by_us(tmp_path: Path) -> None:
    tensors = some_tensors()

    write_tensors(tmp_path / "ours", tensors)
    safetensors.torch.save_file({name: value.contiguous() for name, value in tensors.items()}, tmp_path / "theirs")

    for read in (safetensors.torch.load_file(tmp_path / "ours"), read_tensors(tmp_path / "theirs")):
        assert read.keys() == tensors.keys()
        assert all(same(read[name], tensors[name]) for name in tensors)


@pytest.mark.parametrize("mapped", [False, True])
def test_a_tensor_read_can_be_changed_without_changing_the_file(mapped: bool, tmp_path: Path) -> None:
    write_tensors(tmp_path / "file", {"a": torch.zeros(100)})

    read_tensors(tmp_path / "file", mapped=mapped)["a"].fill_(1)

    assert read_tensors(tmp_path / "file")["a"].sum() == 0


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:4],
        lambda data: data[:40],
        lambda data: data[:-8],
        lambda data: b"\xff" * 8 + data[8:],
        lambda data: data[:8] + b"x" * (len(data) - 8),
        lambda data: data.replace(b"F32", b"F99"),
        lambda data: data.replace(b'"shape":[10]', b'"shape":[99]'),
    ],
)
def test_a_damaged_file_is_refused(damage: Any, mapped: bool, tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_tensors(path, {"a": torch.zeros(10)})

    path.write_bytes(damage(path.read_bytes()))

    with pytest.raises(StokerError, match="not a safetensors file|damaged"):
        read_tensors(path, mapped=mapped)


def test_any_plain_state_survives_the_trip_through_json() -> None:
    state = {
        "numbers": [1, 2.5, math.inf, True, None, 10**30, 1e-300, numpy.float64(0.1).item()],
        "tuple": (1, ("a", [2])),
        3: {"nested": {(1, 2): "key"}},
        "$odd": {"$tuple": 1},
        "set": {1, 2},
        "bytes": b"\x00\xff",
        "types": [torch.float16, torch.device("cpu")],
        "a.b": torch.tensor(1),
        "a": {"b": torch.tensor(2)},
        "ordered": OrderedDict(x=1),
    }

    flat = flatten(state)
    flat.skeleton = json.loads(json.dumps(flat.skeleton))
    back = unflatten(flat)

    assert back.pop("a.b").item() == state.pop("a.b").item() == 1  # type: ignore[attr-defined]
    assert back.pop("a")["b"].item() == state.pop("a")["b"].item() == 2  # type: ignore[index]
    assert back == state
    assert not flat.others


def test_nan_and_numpy_scalars_survive_too() -> None:
    flat = flatten({"nan": math.nan, "f": numpy.float64(0.1), "i": numpy.int64(3)})

    back = unflatten(flat)

    assert math.isnan(back["nan"])
    assert (back["f"], back["i"]) == (0.1, 3)
    assert type(back["f"]) is float


def write(folder: Path, **state: Any) -> Path:
    path = folder / "step-000000001"
    CheckpointFiles.of(Checkpoint({"step": 1}, [{"w": torch.ones(2), "_extra_state": {"n": 3}}], state)).write(path)
    return path


def test_what_is_neither_json_nor_a_plain_tensor_goes_to_a_file_of_its_own(tmp_path: Path) -> None:
    sparse = torch.eye(3).to_sparse()

    path = write(tmp_path, sparse=sparse)
    back = read_checkpoint(path)

    assert torch.equal(back.state["sparse"].to_dense(), torch.eye(3))
    assert back.models[0]["_extra_state"] == {"n": 3}
    assert sorted(os.listdir(path)) == [
        "checkpoint.json", "model.safetensors", "state.json", "state.pt", "state.safetensors",
    ]  # fmt: skip
    assert read_models(path)[0]["w"].tolist() == [1, 1]


def test_an_object_that_only_pickle_could_bring_back_is_refused_when_saving(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot hold callbacks.mine.history, a numpy.ndarray"):
        write(tmp_path, callbacks={"mine": {"history": numpy.zeros(3)}})
    with pytest.raises(UsageError, match=r"cannot hold path, a pathlib\..*Path"):
        write(tmp_path, path=Path())

    assert os.listdir(tmp_path) == []


def test_a_write_that_fails_is_said_and_not_announced(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")

    class Blocked(Context):
        checkpoint_dir = property(lambda self: str(tmp_path / "file" / "checkpoints"))  # type: ignore[assignment]

    run = Blocked(None, {})
    folder = CheckpointFolder(run, keep=None, smaller_is_better=True)
    folder.save(Checkpoint({"step": 1}, [], {}), score=None, metadata={})

    with pytest.raises(StokerError, match="Could not write the checkpoint .*Not a directory"):
        folder.finish()

    folder.close()
    assert events(run.run_dir, "checkpoint") == []


def test_keep_chooses_the_best_the_latest_and_every_nth() -> None:
    scores = {1: 5.0, 2: 3.0, 3: None, 4: 4.0, 5: math.nan, 6: 6.0, 7: None}
    saved = [Saved(Path(str(step)), step, score) for step, score in scores.items()]

    def stale(keep: Keep, smaller_is_better: bool = True) -> list[int]:
        return [item.step for item in keep.stale(saved, smaller_is_better=smaller_is_better)]

    assert stale(Keep()) == [1, 3, 4, 5, 6]
    assert stale(Keep(best=2, latest=2)) == [1, 3, 5]
    assert stale(Keep(), smaller_is_better=False) == [1, 2, 3, 4, 5]
    assert stale(Keep(best=0, every=3)) == [1, 2, 4, 5]


@pytest.mark.parametrize("wrong", [{"best": -1}, {"latest": 0}, {"every": 0}])
def test_keep_refuses_what_makes_no_sense(wrong: Any) -> None:
    with pytest.raises(UsageError, match="latest 1 or more"):
        Keep(**wrong)


class Other(OneVar):
    """Another model under the same name."""

    def __init__(self, context: Any, model: nn.Module) -> None:
        self.context = context
        self.callbacks = {}
        self.weights = []
        self.model = context.wrap_model(model)
        self.opt = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=0.1))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.Linear(2, 3, bias=False), r"Linear: weight is \[1, 1\] in the checkpoint and \[3, 2\] in the model\."),
        (nn.Linear(1, 1), r"Linear: bias is not in the checkpoint\."),
        (nn.Sequential(nn.Linear(1, 1, bias=False)), r"0.weight is not in the checkpoint; the checkpoint's weight is"),
    ],
)
def test_a_model_that_does_not_fit_is_told_what_differs(model: nn.Module, message: str, run_dir: Any) -> None:
    first = run_dir()
    context = pytorch.init()
    context.fit(context.build_trial(OneVar), max_length=Batch(1))
    run_dir(latest_checkpoint=events(first, "checkpoint")[0]["path"])
    context = pytorch.init()
    trial = context.build_trial(Other, model)

    with pytest.raises(UsageError, match=message):
        context.fit(trial, max_length=Batch(2))


def test_other_optimizers_and_numbers_of_models_are_told_too(run_dir: Any) -> None:
    class Two(OneVar):
        def __init__(self, context: Any) -> None:
            super().__init__(context)
            self.other = context.wrap_model(nn.Linear(1, 1))

    class TwoOptimizers(OneVar):
        def __init__(self, context: Any) -> None:
            super().__init__(context)
            context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=1))

    class Groups(OneVar):
        def __init__(self, context: Any) -> None:
            super().__init__(context)
            self.opt.add_param_group({"params": [nn.Parameter(torch.ones(1))]})

    first = run_dir()
    context = pytorch.init()
    context.fit(context.build_trial(OneVar), max_length=Batch(1))
    checkpoint = events(first, "checkpoint")[0]["path"]
    for trial_class, message in (
        (Two, r"holds 1 model\(s\), and this trial has wrapped 2"),
        (TwoOptimizers, r"holds 1 optimizer\(s\), and this trial has wrapped 2"),
        (Groups, r"does not fit optimizer 0 \(SGD\)"),
    ):
        context = pytorch.init()
        with pytest.raises(UsageError, match=message):
            context.fit(context.build_trial(trial_class), max_length=Batch(2), latest_checkpoint=checkpoint)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, "there is no such folder"),
        (lambda path: path.mkdir(), "it has no checkpoint.json"),
        (lambda path: (path.mkdir(), (path / "checkpoint.json").write_text('{"format": 99}')), "format 99"),
    ],
)
def test_a_path_that_is_no_checkpoint_is_told(make: Any, message: str, tmp_path: Path) -> None:
    make(tmp_path / "checkpoint")
    context = pytorch.init()

    with pytest.raises(UsageError, match=message):
        context.fit(context.build_trial(OneVar), max_length=Batch(1), latest_checkpoint=str(tmp_path / "checkpoint"))


def test_a_checkpoint_holds_no_pickle_and_describes_itself(run_dir: Any) -> None:
    first = run_dir(hparams={"lr": 0.1})
    context = pytorch.init(seed=5)
    context.fit(context.build_trial(OneVar), max_length=Batch(3), validation_period=Batch(3))

    path = Path(events(first, "checkpoint")[0]["path"])
    described = json.loads((path / "checkpoint.json").read_text())
    assert sorted(os.listdir(path)) == ["checkpoint.json", "model.safetensors", "state.json", "state.safetensors"]
    assert safetensors.torch.load_file(path / "model.safetensors").keys() == {"weight"}
    assert (described["step"], described["epoch"], described["seed"], described["trial_id"]) == (3, 0, 5, 7)
    assert described["hparams"] == {"lr": 0.1}
    assert described["trial_class"]["name"] == "OneVar"
    assert not list(first.glob("checkpoints/.*"))


def test_a_checkpoint_of_fused_optimizers_is_loaded_by_others_and_back(run_dir: Any) -> None:
    class Plain(OneVar):
        def __init__(self, context: Any) -> None:
            super().__init__(context)
            context.optimizers.clear()
            self.opt = context.wrap_optimizer(torch.optim.Adam(self.model.parameters(), lr=0.1, fused=self.fused))

        fused: bool | None = False

    class Fused(Plain):
        fused = None

    run_dir()
    context = pytorch.init()
    context.fit(straight := context.build_trial(Plain), max_length=Batch(6))
    for before, after in ((Plain, Fused), (Fused, Plain)):
        first = run_dir()
        context = pytorch.init()
        context.fit(context.build_trial(before), max_length=Batch(3))
        run_dir(latest_checkpoint=events(first, "checkpoint")[0]["path"])
        context = pytorch.init()
        context.fit(trial := context.build_trial(after), max_length=Batch(6))

        assert trial.opt.param_groups[0]["fused"] is (True if after is Fused else False)
        assert trial.weights == pytest.approx(straight.weights[3:], rel=1e-5)
