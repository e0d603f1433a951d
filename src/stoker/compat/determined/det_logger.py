"""Determined's logger for Lightning: ours, in a script that core_v2 makes a run of."""

from typing import Any

from stoker.compat.determined import unmanaged as core_v2
from stoker.compat.determined.cluster import run_context
from stoker.compat.determined.unmanaged import Config
from stoker.integrations.lightning import StokerLogger


class DetLogger(StokerLogger):
    """`Trainer(logger=DetLogger(config=core_v2.Config(name="x")))`; core_v2's parts can be used from then on."""

    def __init__(
        self,
        *,
        defaults: Config | None = None,
        unmanaged: Config | None = None,
        config: Config | None = None,
        client: Any = None,
    ) -> None:
        core_v2.init(defaults=defaults, unmanaged=unmanaged, config=config)
        super().__init__(run_context())

    @property
    def name(self) -> str:
        return "DetLogger"
