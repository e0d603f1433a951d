"""TensorBoard's writer for code that made its own, before a trial's context had one."""

from typing import Any

from stoker.compat.determined.cluster import run_context
from stoker.run_dir import RunDir


class TorchWriter:
    """`writer` is torch's SummaryWriter, in the run's folder."""

    def __init__(self) -> None:
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 - takes a second

        self.writer: Any = SummaryWriter(log_dir=str(RunDir(run_context().run_dir).tensorboard))

    def add_scalar(self, name: str, value: float, step: int) -> None:
        self.writer.add_scalar(name, value, step)

    def reset(self) -> None:
        """Open a new file at the next write, so that what was written is whole."""
        self.writer.close()

    def flush(self) -> None:
        self.writer.flush()
