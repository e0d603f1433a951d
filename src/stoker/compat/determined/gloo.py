"""`init_process_group("nccl")` on a machine without a GPU: gloo's then, so that code which asks for NCCL alone runs."""

import functools
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_MODULE = "torch.distributed"


def stand_in_for_nccl() -> None:
    """Now, if torch is there already; else as soon as it is, because torch takes seconds and may not be wanted."""
    if _MODULE in sys.modules:
        _change(sys.modules[_MODULE])
    elif not any(isinstance(finder, _Watch) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Watch())


class _Watch(MetaPathFinder):
    """Finds nothing itself; it is there to know when torch.distributed is imported."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _ThenChange(spec.loader)
        return spec


class _ThenChange(Loader):
    def __init__(self, own: Loader) -> None:
        self._own = own

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._own.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._own.exec_module(module)
        _change(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)


def _change(module: ModuleType) -> None:
    own = getattr(module, "init_process_group", None)  # not there, where torch was built without it
    if own is None or own.__module__ == __name__:
        return

    @functools.wraps(own, assigned=("__name__", "__doc__"))
    def init_process_group(backend: str | None = None, *args: Any, **settings: Any) -> Any:
        if backend is not None and "nccl" in str(backend) and not sys.modules["torch"].cuda.is_available():
            sys.stderr.write("warning: there is no GPU here for the nccl backend; gloo takes its place.\n")
            backend = "gloo"
            settings.pop("device_id", None)
            _take_models_on_cpus(sys.modules["torch"].nn.parallel.DistributedDataParallel)
        return own(backend, *args, **settings)

    module.init_process_group = init_process_group  # type: ignore[attr-defined]


def _take_models_on_cpus(parallel: type[Any]) -> None:
    """Code that asks for NCCL names each rank's GPU to DistributedDataParallel, too, which on CPUs wants no name."""
    own = parallel.__init__

    @functools.wraps(own)
    def init(
        self: Any, module: Any, device_ids: Any = None, output_device: Any = None, *args: Any, **more: Any
    ) -> None:
        own(self, module, None, None, *args, **more)

    parallel.__init__ = init
