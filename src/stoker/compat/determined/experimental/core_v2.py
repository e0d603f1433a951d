"""`determined.experimental.core_v2`: the Core API for a script that nobody submitted; one context a process."""

from typing import Any

from stoker.compat.determined import unmanaged
from stoker.compat.determined.core import DistributedContext, PreemptMode, TensorboardMode
from stoker.compat.determined.unmanaged import Config, close, init, init_context, url_reverse_webui_exp_view
from stoker.compat.determined.unmanaged import Config as DefaultConfig
from stoker.compat.determined.unmanaged import Config as UnmanagedConfig

__all__ = [
    "Config",
    "DefaultConfig",
    "DistributedContext",
    "PreemptMode",
    "TensorboardMode",
    "UnmanagedConfig",
    "close",
    "init",
    "init_context",
    "url_reverse_webui_exp_view",
]


def __getattr__(name: str) -> Any:
    """`core_v2.train`, `.checkpoint`, …: of the context that `init` made."""
    return unmanaged.part(name)
