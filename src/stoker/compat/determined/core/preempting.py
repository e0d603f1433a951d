"""`context.preempt`: whether this run is to save and end."""

import enum
from typing import Any

from stoker.context import Context


class PreemptMode(enum.Enum):
    """Who asks. When workers ask the chief, all ranks must call together and all get the same answer."""

    ChiefOnly = "CHIEF_ONLY"
    WorkersAskChief = "WORKERS_ASK_CHIEF"
    WorkersAskMaster = "WORKERS_ASK_MASTER"


class PreemptContext:
    """A stop of any reason (pause, cancel, preemption, the search's) is the same to the script: save and leave."""

    def __init__(self, run: Context, distributed: Any, *, mode: PreemptMode = PreemptMode.WorkersAskChief) -> None:
        self._run, self._distributed, self._mode = run, distributed, mode

    def should_preempt(self, auto_ack: bool = True) -> bool:
        if self._mode is PreemptMode.WorkersAskChief and self._distributed.size > 1:
            asked = self._run.should_stop() if self._distributed.rank == 0 else None
            return bool(self._distributed.broadcast(asked))
        if self._mode is PreemptMode.ChiefOnly and self._distributed.rank != 0:
            raise RuntimeError("should_preempt() on a rank other than the chief: PreemptMode.ChiefOnly was asked for.")
        return self._run.should_stop()

    def acknowledge_preemption_signal(self) -> None:
        """Nothing to say: the supervisor knows whom it told, and a run that was told goes on from its checkpoint."""

    def close(self) -> None:
        pass
