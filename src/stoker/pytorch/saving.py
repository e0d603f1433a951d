"""Save checkpoints while training goes on: copy to memory, let a thread write, announce, delete what is not kept."""

import math
import shutil
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from stoker.context import Context
from stoker.errors import StokerError, UsageError
from stoker.pytorch.checkpoint import Checkpoint, CheckpointFiles


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint that is on disk, and its validation's metric if there is one."""

    path: Path
    step: int
    score: float | None = None
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Keep:
    """Which checkpoints stay on disk: so many of the best by the metric, so many of the latest, and every n-th batch's.

    The latest one always stays: a restarted run goes on from it.
    """

    best: int = 1
    latest: int = 1
    every: int | None = None

    def __post_init__(self) -> None:
        if self.best < 0 or self.latest < 1 or (self.every is not None and self.every < 1):
            raise UsageError(f"{self}: best is 0 or more, latest 1 or more (a restart needs it), every 1 or more.")

    def stale(self, saved: list[Saved], *, smaller_is_better: bool) -> list[Saved]:
        """Those that can go; `saved` is in the order they were written."""
        scored = [item for item in saved if item.score is not None and not math.isnan(item.score)]
        scored.sort(key=lambda item: item.score or 0.0, reverse=not smaller_is_better)
        kept = {item.path for item in (*scored[: self.best], *saved[-self.latest :])}
        return [item for item in saved if item.path not in kept and (self.every is None or item.step % self.every)]


class CheckpointFolder:
    """Where rank 0 of a run writes. One write at a time: a second waits for the first, so memory stays bounded."""

    def __init__(self, run: Context, *, keep: Keep | None, smaller_is_better: bool) -> None:
        self._run = run
        self._keep = keep
        self._smaller_is_better = smaller_is_better
        self._saved: list[Saved] = []
        self._pending: tuple[Future[None], Saved] | None = None
        self._copy = _HostCopy()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="stoker-checkpoint")

    def save(self, checkpoint: Checkpoint, *, score: float | None, metadata: Mapping[str, Any]) -> Path:
        """Copy a checkpoint to memory and start writing it. `announce` or `finish` completes it."""
        self.finish()
        step = int(checkpoint.description["step"])
        path = _free_path(Path(self._run.checkpoint_dir), step)
        files = CheckpointFiles.of(checkpoint)
        self._copy.take(files)
        self._pending = self._thread.submit(self._write, files, path), Saved(path, step, score, dict(metadata))
        return path

    def _write(self, files: CheckpointFiles, path: Path) -> None:
        self._copy.wait()
        files.write(path)

    def announce(self) -> None:
        """If a write has ended since, tell the run and delete what need not be kept. Never waits."""
        if self._pending is None or not self._pending[0].done():
            return
        written, saved = self._pending
        self._pending = None
        try:
            written.result()
        except OSError as error:
            raise StokerError(
                f"Could not write the checkpoint {saved.path}: {error.strerror or error}."
                " Make room there or write fewer (checkpoint_period, keep), then start again: it goes on from the last."
            ) from error
        self._run.save_checkpoint(saved.path, saved.step, **saved.metadata)
        self._saved.append(saved)
        if self._keep is not None:
            for stale in self._keep.stale(self._saved, smaller_is_better=self._smaller_is_better):
                self._saved.remove(stale)
                # After the newer one is announced, never before: a restart must find what it was told of.
                self._thread.submit(shutil.rmtree, stale.path, ignore_errors=True)

    def finish(self) -> None:
        """Wait until the write under way is on disk, and announce it."""
        if self._pending is not None:
            self._pending[0].exception()
            self.announce()

    def close(self) -> None:
        """End the thread, after what it still has to do."""
        self._thread.shutdown(wait=True)


def _free_path(folder: Path, step: int) -> Path:
    """A second fit in one run may come to the same step; both are kept."""
    path = folder / f"step-{step:09d}"
    number = 1
    while path.exists():
        number += 1
        path = folder / f"step-{step:09d}-{number}"
    return path


class _HostCopy:
    """Copies of tensors in CPU memory that is used again each time: fresh pages cost more than the copy itself."""

    def __init__(self) -> None:
        self._memory: dict[tuple[str, str], torch.Tensor] = {}
        self._copied: torch.cuda.Event | None = None

    @torch.no_grad()
    def take(self, files: CheckpointFiles) -> None:
        """Put copies in the tensors' places.

        From a GPU nothing waits here: the copies are queued on the training stream, before whatever changes the
        tensors next, and the thread waits for them.
        """
        from_gpu = False
        for file, name, tensor in list(files.all_tensors()):
            from_gpu = from_gpu or tensor.is_cuda
            files.tensors[file][name] = self._place(file, name, tensor).copy_(tensor, non_blocking=True)
        if from_gpu:
            self._copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._copied.record()

    def wait(self) -> None:
        if self._copied is not None:
            self._copied.synchronize()
            self._copied = None

    def _place(self, file: str, name: str, tensor: torch.Tensor) -> torch.Tensor:
        known = self._memory.get((file, name))
        if known is None or known.shape != tensor.shape or known.dtype is not tensor.dtype:
            known = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=tensor.is_cuda)
            self._memory[file, name] = known
        return known
