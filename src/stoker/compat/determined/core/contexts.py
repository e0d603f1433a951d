"""`core.init()`: all that a script of the Core API uses, tied to this process's run."""

import enum
import faulthandler
import logging
import os
import signal
import threading
from types import TracebackType
from typing import Any

from stoker.compat.determined.cluster import ClusterInfo, get_cluster_info, run_context
from stoker.compat.determined.core.checkpoints import CheckpointContext
from stoker.compat.determined.core.preempting import PreemptContext, PreemptMode
from stoker.compat.determined.core.profiling import ProfilerContext
from stoker.compat.determined.core.ranks import DummyDistributedContext
from stoker.compat.determined.core.reporting import EarlyExitReason, TrainContext
from stoker.compat.determined.core.searching import SearcherContext
from stoker.context import InvalidHP

logger = logging.getLogger("determined.core")


class TensorboardMode(enum.Enum):
    AUTO = "AUTO"
    MANUAL = "MANUAL"


class Context:
    """A context manager; leaving it with `InvalidHP` tells the search and ends the process with 0."""

    def __init__(self, distributed: Any, *, preempt_mode: PreemptMode, storage: "str | dict[str, Any] | None") -> None:
        run = run_context()
        if not run.managed and distributed.size > 1:  # no supervisor gave the ranks one run directory
            run.run_dir = distributed.broadcast(run.run_dir)
        self.info: ClusterInfo | None = get_cluster_info()
        self.distributed = distributed
        self.train = TrainContext(run)
        self.checkpoint = CheckpointContext(run, distributed, storage=_folder(storage))
        self.preempt = PreemptContext(run, distributed, mode=preempt_mode)
        self.searcher = SearcherContext(run, distributed)
        self.profiler = ProfilerContext(run, distributed)
        self.experimental = None

    def alert(self, title: str | None = None, description: str | None = None, level: Any = None) -> None:
        """Say something to people. It was a webhook there; here it is a line of the job's log."""
        name = getattr(level, "value", level) or "info"
        logger.warning("alert (%s): %s%s", name, title or "", f": {description}" if description else "")

    def start(self) -> None:
        """Taken for old code's sake: nothing has to be started."""

    def close(self, exc_type: Any = None, exc_val: Any = None, exc_tb: Any = None) -> None:
        self.profiler.off()
        self.distributed.close()
        run_context().__exit__()

    def __enter__(self) -> "Context":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if isinstance(error, InvalidHP) and self.distributed.rank == 0:
            logger.warning("these hyperparameters cannot work: %s", error)
            self.train.report_early_exit(EarlyExitReason.INVALID_HP)
        self.close()
        if isinstance(error, InvalidHP):
            raise SystemExit(0) from error


def init(
    *,
    distributed: Any = None,
    checkpoint_storage: "str | dict[str, Any] | None" = None,
    preempt_mode: PreemptMode = PreemptMode.WorkersAskChief,
    tensorboard_mode: TensorboardMode = TensorboardMode.AUTO,
) -> Context:
    """The Core API of this process. With several ranks, pass the DistributedContext that says which one this is."""
    if distributed is None:
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise ValueError(
                "This run has several ranks: pass distributed=core.DistributedContext.from_torch_distributed() to"
                " core.init, so that they can find one another."
            )
        distributed = DummyDistributedContext()
    if threading.current_thread() is threading.main_thread() and not faulthandler.is_enabled():
        faulthandler.register(signal.SIGUSR1, chain=False)  # kill -USR1 shows where a hung script stands, as ever
    return Context(distributed, preempt_mode=preempt_mode, storage=checkpoint_storage)


def _folder(storage: "str | dict[str, Any] | None") -> str | None:
    """Where checkpoints go when the script says so itself; a run's own folder is the default."""
    if storage is None or isinstance(storage, str):
        return storage
    for key in ("container_path", "host_path"):
        if key in storage:
            return os.path.join(storage[key], storage.get("storage_path") or "")
    scheme = {"gcs": "gs", "s3": "s3"}.get(str(storage.get("type")))
    if scheme is None:
        raise ValueError(
            f"checkpoint_storage of type {storage.get('type')!r}: expected directory, shared_fs, gcs or s3."
        )
    return "/".join([f"{scheme}://{storage['bucket']}", *filter(None, [str(storage.get("prefix") or "").strip("/")])])
