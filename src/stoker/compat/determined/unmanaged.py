"""The one context of a process that uses core_v2."""

import atexit
from dataclasses import dataclass
from typing import Any

from stoker.compat.determined import core
from stoker.compat.determined.cluster import run_context
from stoker.context import Context as Run

_PARTS = ("checkpoint", "distributed", "info", "preempt", "profiler", "searcher", "train")


@dataclass
class Config:
    """What the script says of itself. Its hyperparameters are defaults for those a job sets."""

    name: str | None = None
    hparams: dict[str, Any] | None = None
    data: dict[str, Any] | None = None
    description: str | None = None
    labels: list[str] | None = None
    workspace: str | None = None
    project: str | None = None
    checkpoint_storage: "str | dict[str, Any] | None" = None
    searcher: dict[str, Any] | None = None
    external_experiment_id: str | None = None
    external_trial_id: str | None = None
    max_restarts: int | None = None
    reproducibility: dict[str, Any] | None = None


_made: "core.Context | None" = None


def init(*, config: Config | None = None, **settings: Any) -> None:
    """Make the context of this process; `core_v2.train` and its kin are then its parts."""
    global _made
    if _made is None:
        atexit.register(close)
    _made = init_context(config=config, **settings)


def init_context(*, config: Config | None = None, client: Any = None, **settings: Any) -> "core.Context":
    config = config or Config()
    settings.pop("defaults", None)
    settings.pop("unmanaged_info", None)
    if config.checkpoint_storage is not None:
        settings.setdefault("checkpoint_storage", config.checkpoint_storage)
    context = core.init(**settings)
    run: Run = run_context()
    run.hparams = {**(config.hparams or {}), **run.hparams}
    return context


def close() -> None:
    global _made
    if _made is not None:
        _made.close()
        _made = None


def url_reverse_webui_exp_view() -> str:
    """Where the run is to be seen: there is no page for a run that was not submitted, so its folder."""
    return f"file://{run_context().run_dir}"


def part(name: str) -> Any:
    if name not in _PARTS:
        raise AttributeError(f"core_v2 has no attribute {name!r}")
    if _made is None:
        raise RuntimeError(f"core_v2.{name} is there after core_v2.init().")
    return getattr(_made, name)
