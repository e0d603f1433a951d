"""Horovod as it is seen by one process alone: ranks are torch's here, and known from the launcher's variables."""

import os
from typing import Any


class Horovod:
    """Answers who this process is; what would need Horovod itself says so."""

    def rank(self) -> int:
        return int(os.environ.get("RANK", "0"))

    def size(self) -> int:
        return int(os.environ.get("WORLD_SIZE", "1"))

    def local_rank(self) -> int:
        return int(os.environ.get("LOCAL_RANK", "0"))

    def local_size(self) -> int:
        return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))

    def init(self) -> None:
        """Nothing to begin."""

    def is_initialized(self) -> bool:
        return True

    def require_horovod_type(self, horovod_type: str, reason: str = "") -> None:
        """Determined's own: which of Horovod's modules it stands for."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if self.size() == 1 and name in ("allreduce", "allgather", "broadcast"):
            return lambda value, *args, **kwargs: value
        raise RuntimeError(
            f"hvd.{name}: Horovod is not supported. Ranks are torch's here: use torch.distributed, and the launcher"
            " determined.launch.torch_distributed."
        )


hvd = Horovod()
