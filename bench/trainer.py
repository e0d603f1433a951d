"""What a training step costs beside a hand-written loop: `python bench/trainer.py [--quick]`.

Every figure is a ratio of CPU time to that of the raw loop in the same repetition: contenders take turns and the median
is taken, so that a busy machine slows all of them alike. Peers that are not installed are left out.

    raw loop             DataLoader over a TensorDataset, Adam: what everybody writes first
    raw loop, rows       the same over a dataset of which only its rows are known
    raw loop, by hand    whole-tensor slicing and a fused optimizer: what they write when they have measured
    stoker               the same DataLoader as the raw loop's: tensors are found in it by themselves
    stoker, rows         over the dataset of rows, so without that
    stoker, not fused    and without the fused optimizer: the trainer's own cost, over "raw loop, rows"
"""

import argparse
import copy
import functools
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from stoker import pytorch
from stoker.pytorch import Batch, fitting

sys.path.insert(0, str(Path(__file__).parent))
import trainer_peers  # noqa: E402

RESULTS = Path(__file__).parent / "results" / "trainer-cpu.json"
BASE = "raw loop"


class Work:
    """A model, its data, and a number of steps."""

    def __init__(self, name: str, *, batch_size: int, steps: int, samples: int) -> None:
        self.name = name
        self.batch_size = batch_size
        self.steps = steps
        self.samples = samples
        generator = torch.Generator().manual_seed(0)
        self.inputs, self.targets = self.make_data(generator)

    def make_data(self, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        raise NotImplementedError

    def make_model(self) -> nn.Module:
        raise NotImplementedError

    def loss(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return nn.functional.mse_loss(output, target)

    def loader(self, *, rows: bool = False) -> "DataLoader[Any]":
        data = TensorDataset(self.inputs, self.targets)
        return DataLoader(Rows(data) if rows else data, batch_size=self.batch_size, shuffle=True)


class Rows(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """A dataset of which nothing is known but its rows."""

    def __init__(self, data: TensorDataset) -> None:
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, index: int) -> Any:
        return self._data[index]


class MLP(Work):
    def __init__(self, name: str, sizes: list[int], **more: Any) -> None:
        self.sizes = sizes
        super().__init__(name, **more)

    def make_data(self, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        inputs = torch.randn(self.samples, self.sizes[0], generator=generator)
        return inputs, inputs.mean(1, keepdim=True).sin().expand(-1, self.sizes[-1]).contiguous()

    def make_model(self) -> nn.Module:
        layers: list[nn.Module] = []
        for before, after in zip(self.sizes, self.sizes[1:], strict=False):
            layers += [nn.Linear(before, after), nn.ReLU()]
        return nn.Sequential(*layers[:-1])


class Transformer(Work):
    def make_data(self, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        tokens = torch.randint(0, 1000, (self.samples, 64), generator=generator)
        return tokens, (tokens.sum(1) % 2).long()

    def make_model(self) -> nn.Module:
        layer = nn.TransformerEncoderLayer(128, 4, 256, batch_first=True, dropout=0.0)
        body = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        return nn.Sequential(nn.Embedding(1000, 128), body, Mean(), nn.Linear(128, 2))

    def loss(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(output, target)


class Mean(nn.Module):
    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden.mean(1)


def raw_loop(work: Work, *, rows: bool = False, by_hand: bool = False) -> None:
    torch.manual_seed(0)
    model = work.make_model()
    optimizer = torch.optim.Adam(model.parameters(), fused=by_hand or None)
    step = 0
    while step < work.steps:
        for inputs, targets in slices(work) if by_hand else work.loader(rows=rows):
            loss = work.loss(model(inputs), targets)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            if step % 100 == 0:
                loss.item()
            if step == work.steps:
                break


def slices(work: Work) -> Any:
    order = torch.randperm(work.samples)
    inputs, targets = work.inputs[order], work.targets[order]
    for start in range(0, work.samples, work.batch_size):
        yield inputs[start : start + work.batch_size], targets[start : start + work.batch_size]


class BenchTrial(pytorch.PyTorchTrial):
    def __init__(self, context: pytorch.PyTorchTrialContext, work: Work, fused: bool) -> None:
        self.context = context
        self.work = work
        self.model = context.wrap_model(work.make_model())
        self.opt = context.wrap_optimizer(torch.optim.Adam(self.model.parameters()), fused=None if fused else False)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        inputs, targets = batch
        loss = self.work.loss(self.model(inputs), targets)
        self.context.backward(loss)
        self.context.step_optimizer(self.opt)
        return {"loss": loss}


def stoker_trainer(work: Work, *, rows: bool = False, fused: bool = True) -> None:
    with pytorch.init() as context:
        trial = BenchTrial(context, work, fused)
        pytorch.Trainer(trial, context).fit(
            max_length=Batch(work.steps), training_data=work.loader(rows=rows), progress=False
        )


CONTENDERS: dict[str, Callable[[Work], None]] = {
    BASE: raw_loop,
    "raw loop, rows": functools.partial(raw_loop, rows=True),
    "raw loop, by hand": functools.partial(raw_loop, by_hand=True),
    "stoker": stoker_trainer,
    "stoker, rows": functools.partial(stoker_trainer, rows=True),
    "stoker, rows, not fused": functools.partial(stoker_trainer, rows=True, fused=False),
    **trainer_peers.available(),
}


def measure(work: Work, repetitions: int) -> dict[str, Any]:
    """CPU time of each contender over the raw loop's, by repetition; the median, and the quartiles."""
    ratios: dict[str, list[float]] = {}
    speeds: dict[str, list[float]] = {}
    warm = copy.copy(work)
    warm.steps = 5
    for run in CONTENDERS.values():
        run(warm)
    for _ in range(repetitions):
        taken = {}
        for name, run in CONTENDERS.items():
            begin, cpu = time.perf_counter(), time.process_time()
            run(work)
            taken[name] = time.process_time() - cpu
            speeds.setdefault(name, []).append(work.steps / (time.perf_counter() - begin))
        for name, seconds in taken.items():
            ratios.setdefault(name, []).append(taken[BASE] / seconds)
    return {
        name: {
            "speed over raw loop": round(statistics.median(values), 3),
            "quartiles": [round(value, 3) for value in statistics.quantiles(values, n=4)[::2]],
            "steps per second": round(statistics.median(speeds[name]), 1),
        }
        for name, values in ratios.items()
    }


class Heavy(pytorch.PyTorchTrial):
    """200 MB of weights that learn nothing."""

    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self.model = context.wrap_model(nn.ParameterList(torch.randn(1_250_000) for _ in range(40)))

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        return {"loss": torch.zeros(())}


def checkpoint_stall(repetitions: int) -> dict[str, Any]:
    """How long the loop stands still for a checkpoint of 200 MB, over a plain copy of the same memory.

    The copy is to memory that was written before, and so is ours but for the first; fresh memory takes much longer.
    """
    stalls, copies, fresh = [], [], []
    context = pytorch.init()
    trial = Heavy(context)
    weights = [weight.detach() for weight in trial.model.parameters()]
    warm = [weight.clone() for weight in weights]
    save = fitting.Fitting.checkpoint

    def timed(self: Any) -> None:
        self.folder.finish()  # the write before, if it is still under way, is not this one's stall
        begin = time.perf_counter()
        for weight, place in zip(weights, warm, strict=True):
            place.copy_(weight)
        copied = time.perf_counter()
        save(self)
        saved = time.perf_counter()
        kept = [weight.clone() for weight in weights]
        cloned = time.perf_counter()
        del kept
        for times, seconds in ((copies, copied - begin), (stalls, saved - copied), (fresh, cloned - saved)):
            times.append(seconds)

    fitting.Fitting.checkpoint = timed  # type: ignore[method-assign]
    data = pytorch.DataLoader(TensorDataset(torch.zeros(1000, 1)), batch_size=1)
    try:
        pytorch.Trainer(trial, context).fit(
            max_length=Batch(repetitions), checkpoint_period=Batch(1), training_data=data, progress=False
        )
    finally:
        fitting.Fitting.checkpoint = save  # type: ignore[method-assign]
    return {
        "stall over a copy": round(statistics.median(s / c for s, c in zip(stalls[1:], copies[1:], strict=True)), 2),
        "stall over a copy to fresh memory": round(
            statistics.median(s / c for s, c in zip(stalls[1:], fresh[1:], strict=True)), 2
        ),
        "first, over a copy to fresh memory": round(stalls[0] / fresh[0], 2),
        "stall, s": round(statistics.median(stalls[1:]), 4),
    }


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--quick", action="store_true", help="fewer repetitions, nothing written")
    quick = arguments.parse_args().quick
    torch.set_num_threads(1)
    works = [
        MLP("tiny MLP 32-64-64-1, batch 64", [32, 64, 64, 1], batch_size=64, steps=500, samples=6400),
        MLP("MLP 512 x 4, batch 256", [512, 512, 512, 512, 512], batch_size=256, steps=60, samples=5120),
        Transformer("transformer, 4 layers of 128, batch 16", batch_size=16, steps=15, samples=240),
    ]
    results: dict[str, Any] = {"torch": torch.__version__, "threads": torch.get_num_threads(), "load": os.getloadavg()}
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for work in works:
            results[work.name] = measure(work, 3 if quick else 11)
            print(json.dumps({work.name: results[work.name]}, indent=2))
        results["checkpoint of 200 MB"] = checkpoint_stall(4 if quick else 8)
        print(json.dumps(results["checkpoint of 200 MB"], indent=2))
    if not quick:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
