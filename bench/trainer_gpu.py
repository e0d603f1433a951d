"""The trainer on one GPU: speed beside a raw loop, and proof that it is right: `python bench/trainer_gpu.py`.

Needs torch alone (PYTHONPATH=src where stoker is not installed). Writes bench/results/trainer-gpu.json, or to $OUT.

    speed        steps per second over those of the raw DataLoader loop, contenders taking turns, medians
    resume       every following loss and the final weights bit for bit, in each precision and compiled
    no waiting   torch raises on any synchronisation between two reports; and the profiler counts those of the runtime
                 (the one cudaDeviceSynchronize it sees is its own, when it stops)
    checkpoint   how long the loop stands still for 200 MB
"""

import contextlib
import functools
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
import trainer as on_cpu  # noqa: E402 - the same work, models and peers as there
import trainer_peers  # noqa: E402
from stoker import pytorch  # noqa: E402
from stoker.pytorch import Batch, fitting  # noqa: E402

RESULTS = Path(os.environ.get("OUT") or Path(__file__).parent / "results").absolute() / "trainer-gpu.json"
STEPS, REPETITIONS = 1000, 5
WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cudaMemcpy")


def raw_loop(work: Any, *, rows: bool = False, resident: bool = False) -> None:
    """Batches moved one by one; or (resident) all data on the GPU and a fused optimizer, as one would by hand."""
    torch.manual_seed(0)
    model = work.make_model().cuda()
    optimizer = torch.optim.Adam(model.parameters(), fused=resident or None)
    inputs_all, targets_all = (work.inputs.cuda(), work.targets.cuda()) if resident else (None, None)
    step = 0
    while step < work.steps:
        for inputs, targets in resident_batches(work, inputs_all, targets_all) if resident else work.loader(rows=rows):
            inputs, targets = inputs.cuda(non_blocking=True), targets.cuda(non_blocking=True)
            loss = work.loss(model(inputs), targets)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            if step % 100 == 0:
                loss.item()
            if step == work.steps:
                break


def resident_batches(work: Any, inputs: Any, targets: Any) -> Iterator[Any]:
    order = torch.randperm(work.samples, device="cuda")
    inputs, targets = inputs[order], targets[order]
    for start in range(0, work.samples, work.batch_size):
        yield inputs[start : start + work.batch_size], targets[start : start + work.batch_size]


def speed() -> dict[str, Any]:
    work = on_cpu.MLP("tiny MLP", [32, 64, 64, 1], batch_size=64, steps=STEPS, samples=6400)
    base = "raw loop"
    contenders: dict[str, Callable[[Any], None]] = {
        base: raw_loop,
        "raw loop, rows": functools.partial(raw_loop, rows=True),
        "raw loop, by hand": functools.partial(raw_loop, resident=True),
        "stoker": on_cpu.stoker_trainer,
        "stoker, rows": functools.partial(on_cpu.stoker_trainer, rows=True),
        **trainer_peers.available(),
    }
    taken: dict[str, list[float]] = {name: [] for name in contenders}
    for repetition in range(-1, REPETITIONS):
        for name, run in list(contenders.items()):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            try:
                run(work)
            except Exception as error:  # noqa: BLE001 - a peer that does not run here is no reason to stop
                if "stoker" in name or name == base:
                    raise
                print(f"{name} left out: {type(error).__name__}: {error}")
                del contenders[name], taken[name]
                continue
            torch.cuda.synchronize()
            if repetition >= 0:  # the first round warms up
                taken[name].append(time.perf_counter() - begin)
    like = {"stoker, rows": "raw loop, rows"}
    return {
        name: {
            "steps per second": round(STEPS / statistics.median(seconds), 1),
            "speed over raw loop": round(
                statistics.median(b / s for b, s in zip(taken[base], seconds, strict=True)), 3
            ),
            "speed over the raw loop on the same data": round(
                statistics.median(b / s for b, s in zip(taken[like.get(name, base)], seconds, strict=True)), 3
            ),
        }
        for name, seconds in taken.items()
    }


class Learner(pytorch.PyTorchTrial):
    def __init__(self, context: Any) -> None:
        self.context = context
        model = nn.Sequential(
            nn.Linear(32, 64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)
        )
        self.model = context.wrap_model(model)
        self.opt = context.wrap_optimizer(torch.optim.AdamW(self.model.parameters(), lr=0.01))
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.opt, T_max=50)
        context.wrap_lr_scheduler(scheduler, pytorch.LRScheduler.StepMode.STEP_EVERY_BATCH)
        self.losses: list[torch.Tensor] = []

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        inputs, targets = batch
        output = self.model(inputs)
        loss = nn.functional.mse_loss(output, targets)
        self.context.backward(loss)
        self.context.step_optimizer(self.opt, clip_grads=lambda params: nn.utils.clip_grad_norm_(params, 1.0))
        self.losses.append(loss.detach())
        return {"loss": loss, "float32": torch.tensor(float(output.dtype is torch.float32))}


def learn(steps: int, latest_checkpoint: str | None = None, **init: Any) -> tuple[list[float], dict[str, Any], str]:
    work = on_cpu.MLP("tiny MLP", [32, 64, 64, 1], batch_size=64, steps=steps, samples=640)
    context = pytorch.init(seed=1, **init)
    trial = context.build_trial(Learner)
    context.fit(
        trial, work.loader(), max_length=Batch(steps), latest_checkpoint=latest_checkpoint, progress=False, keep=None
    )
    weights = {name: value.cpu() for name, value in trial.model.state_dict().items()}
    return [loss.item() for loss in trial.losses], weights, str(context.run.latest_checkpoint)


def resume() -> dict[str, Any]:
    found = {}
    for name, init in {
        "fp32": {},
        "bf16": {"precision": "bf16"},
        "fp16": {"precision": "fp16"},
        "bf16, aggregation": {"precision": "bf16", "aggregation_frequency": 4},
        "compiled": {"compile": True},
        "bf16, compiled": {"precision": "bf16", "compile": True},
    }.items():
        losses, weights, _ = learn(40, **init)
        before, _, checkpoint = learn(17, **init)
        after, weights_after, _ = learn(40, checkpoint, **init)
        found[name] = {
            "losses bit for bit": before + after == losses,
            "weights bit for bit": all(torch.equal(weights[key], weights_after[key]) for key in weights),
            "learns": statistics.mean(losses[-5:]) < 0.5 * statistics.mean(losses[:5]),
            "first and last loss": [losses[0], losses[-1]],
        }
    return found


@contextlib.contextmanager
def between_reports(around: Callable[[], contextlib.AbstractContextManager[Any]]) -> Iterator[None]:
    """Every batch inside `around`; reports, validations and checkpoints outside of it."""
    train_batch = fitting.Fitting.train_batch

    def wrapped(self: Any) -> None:
        with around():
            train_batch(self)

    fitting.Fitting.train_batch = wrapped  # type: ignore[method-assign]
    try:
        yield
    finally:
        fitting.Fitting.train_batch = train_batch  # type: ignore[method-assign]


@contextlib.contextmanager
def raising_on_waits() -> Iterator[None]:
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def no_waiting() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, init in {"fp32": {}, "bf16": {"precision": "bf16"}, "fp16": {"precision": "fp16"}}.items():
        for rows in (False, True):
            work = on_cpu.MLP("tiny MLP", [32, 64, 64, 1], batch_size=64, steps=250, samples=6400)
            context = pytorch.init(**init)
            trial = on_cpu.BenchTrial(context, work, True)
            loader = work.loader(rows=rows)
            with between_reports(raising_on_waits):  # 250 batches, 2.5 epochs, reports after 100 and 200
                pytorch.Trainer(trial, context).fit(max_length=Batch(250), training_data=loader, progress=False)
            found[f"{name}{', rows' if rows else ''}"] = "none"
    found["by the profiler"] = profiled_waits()
    return found


def profiled_waits() -> dict[str, Any]:
    """Waits in the CUDA runtime over 90 batches that lie between two reports."""
    work = on_cpu.MLP("tiny MLP", [32, 64, 64, 1], batch_size=64, steps=200, samples=6400)
    context = pytorch.init()
    trial = on_cpu.BenchTrial(context, work, True)
    counted: dict[str, int] = {}

    def count(profiler: Any) -> None:
        for event in profiler.key_averages():
            counted[event.key] = counted.get(event.key, 0) + event.count

    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    schedule = torch.profiler.schedule(wait=104, warmup=1, active=90, repeat=1)
    context.set_profiler(activities=activities, schedule=schedule, on_trace_ready=count)
    pytorch.Trainer(trial, context).fit(max_length=Batch(199), training_data=work.loader(), progress=False)
    waits = {name: counted.get(name, 0) for name in (*WAITS, "aten::item", "aten::_local_scalar_dense")}
    kernels = (
        counted.get("cudaLaunchKernel", 0) + counted.get("cuLaunchKernel", 0) + counted.get("cudaLaunchKernelExC", 0)
    )
    return {"batches": 90, "kernels launched": kernels, **waits}


def checkpoint_stall() -> dict[str, Any]:
    """Beside a plain copy of the same 200 MB to pinned memory."""
    stalls, copies = [], []

    class Heavy(pytorch.PyTorchTrial):
        def __init__(self, context: Any) -> None:
            self.context = context
            self.model = context.wrap_model(nn.ParameterList(torch.randn(1_250_000) for _ in range(40)))

        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
            return {"loss": torch.zeros(())}

    save = fitting.Fitting.checkpoint

    def timed(self: Any) -> None:
        self.folder.finish()
        weights = list(self.context.models[0].parameters())
        pinned = [torch.empty(weight.shape, pin_memory=True) for weight in weights]
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for weight, place in zip(weights, pinned, strict=True):
            place.copy_(weight.detach(), non_blocking=True)
        torch.cuda.synchronize()
        copies.append(time.perf_counter() - begin)
        begin = time.perf_counter()
        save(self)
        torch.cuda.synchronize()
        stalls.append(time.perf_counter() - begin)

    context = pytorch.init()
    trial = Heavy(context)
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.zeros(100, 1)), batch_size=1)
    fitting.Fitting.checkpoint = timed  # type: ignore[method-assign]
    try:
        pytorch.Trainer(trial, context).fit(
            max_length=Batch(7), checkpoint_period=Batch(1), training_data=data, progress=False
        )
    finally:
        fitting.Fitting.checkpoint = save  # type: ignore[method-assign]
    return {
        "stall over a copy": round(statistics.median(s / c for s, c in zip(stalls[1:], copies[1:], strict=True)), 2),
        "first": round(stalls[0] / copies[0], 2),
        "stall, ms": round(1000 * statistics.median(stalls[1:]), 2),
        "copy, ms": round(1000 * statistics.median(copies[1:]), 2),
    }


def main() -> None:
    if not torch.cuda.is_available():
        sys.exit("bench/trainer_gpu.py needs a GPU, and torch sees none here.")
    results: dict[str, Any] = {"torch": torch.__version__, "gpu": torch.cuda.get_device_name()}
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for part in (no_waiting, resume, checkpoint_stall, speed):
            results[part.__name__.replace("_", " ")] = part()
            print(json.dumps({part.__name__: results[part.__name__.replace("_", " ")]}, indent=2), flush=True)
            RESULTS.parent.mkdir(exist_ok=True)
            RESULTS.write_text(json.dumps(results, indent=2) + "\n")
        os.chdir("/")


if __name__ == "__main__":
    main()
