"""The one context of a process that uses core_v2."""

import atexit
import os
from dataclasses import dataclass
from typing import Any

from stoker.compat.determined import core
from stoker.compat.determined.cluster import ClusterInfo, TrialInfo, checkpoint_name, run_context
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
    """The same without making it the process's."""
    # Once it was two: what a script says unless a job does, and what it says of a run without one.
    config = _merged(config, settings.pop("unmanaged", None), settings.pop("defaults", None))
    settings.pop("unmanaged_info", None)
    if config.checkpoint_storage is not None:
        settings.setdefault("checkpoint_storage", config.checkpoint_storage)
    run = run_context()
    run.hparams = {**(config.hparams or {}), **run.hparams}
    if not run.managed and config.external_trial_id is not None:
        # The same ids again are the same run, started again.
        known = [config.external_experiment_id or config.name or "unmanaged", config.external_trial_id]
        run.run_dir = os.path.abspath(os.path.join("stoker-runs", *known))
    context = core.init(**settings)
    if context.info is None:
        context.info = _info(run, config)
    return context


def _merged(*configs: Config | None) -> Config:
    """Of several, the first word on each thing."""
    said = [vars(config) for config in configs if config is not None]
    return Config(**{name: value for each in reversed(said) for name, value in each.items() if value is not None})


def _info(run: Run, config: Config) -> ClusterInfo:
    """As if it were a job, as far as a script can tell."""
    kept = [os.path.join(run.checkpoint_dir, name) for name in os.listdir(run.checkpoint_dir) if name[0] != "."]
    latest = max(kept, key=os.path.getmtime, default=None)
    name = config.external_experiment_id or config.name or "unmanaged"
    return ClusterInfo(
        task_id=f"{name}.{config.external_trial_id or 1}",
        allocation_id=str(os.getpid()),
        task_type="TRIAL",
        slot_ids=[0],
        gpu_uuids=[],
        container_addrs=["127.0.0.1"],
        container_slot_counts=[1],
        container_rank=0,
        user_data=dict(config.data or {}),
        latest_checkpoint=checkpoint_name(latest),
        _trial_info=TrialInfo(trial_id=1, experiment_id=name, trial_seed=run.seed, hparams=run.hparams),
    )


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
