"""`determined.core`."""

from stoker.compat.determined.core.checkpoints import CheckpointContext, DownloadMode
from stoker.compat.determined.core.contexts import Context, TensorboardMode, init
from stoker.compat.determined.core.preempting import PreemptContext, PreemptMode
from stoker.compat.determined.core.profiling import ProfilerContext
from stoker.compat.determined.core.ranks import DistributedContext, DummyDistributedContext
from stoker.compat.determined.core.reporting import EarlyExitReason, TrainContext
from stoker.compat.determined.core.searching import SearcherContext, SearcherMode, SearcherOperation, Unit

# They had a dummy twin of each for code outside a cluster; ours are the same code with and without one.
DummyCheckpointContext = CheckpointContext
DummyPreemptContext = PreemptContext
DummyProfilerContext = ProfilerContext
DummySearcherContext = SearcherContext
DummyTrainContext = TrainContext

__all__ = [
    "CheckpointContext",
    "Context",
    "DistributedContext",
    "DownloadMode",
    "DummyCheckpointContext",
    "DummyDistributedContext",
    "DummyPreemptContext",
    "DummyProfilerContext",
    "DummySearcherContext",
    "DummyTrainContext",
    "EarlyExitReason",
    "PreemptContext",
    "PreemptMode",
    "ProfilerContext",
    "SearcherContext",
    "SearcherMode",
    "SearcherOperation",
    "TensorboardMode",
    "TrainContext",
    "Unit",
    "init",
]
