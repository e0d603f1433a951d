"""`context.distributed`: which rank this is, and small objects passed among the ranks, over sockets of our own.

The chief listens and every other rank holds one connection to it, so nothing of torch's is needed or disturbed. Where
ranks share a run directory the chief notes its address there; else they meet at `chief_ip` and a port.
"""

import json
import os
import time
from multiprocessing.connection import Client, Connection, Listener
from typing import Any

from stoker.atomic import replace_file

_PORT = 12360
_MEET_S = 600.0  # ranks that install or download first may come late


class DistributedContext:
    """All methods but the accessors are collective: every rank calls them, in the same order."""

    def __init__(  # noqa: PLR0913 - Determined's
        self,
        *,
        rank: int,
        size: int,
        local_rank: int | None = None,
        local_size: int | None = None,
        cross_rank: int | None = None,
        cross_size: int | None = None,
        chief_ip: str | None = None,
        pub_port: int = _PORT,
        pull_port: int = _PORT + 16,
        port_offset: int = 0,
        force_tcp: bool = False,
    ) -> None:
        if size < 1 or not 0 <= rank < size:
            raise ValueError(f"rank {rank} of {size}: a rank is from 0 to size - 1.")
        self.rank, self.size = rank, size
        self.local_rank = rank if local_rank is None else local_rank
        self.local_size = size if local_size is None else local_size
        self.cross_rank = 0 if cross_rank is None else cross_rank
        self.cross_size = 1 if cross_size is None else cross_size
        if self.local_size < size and chief_ip is None:
            raise ValueError("Ranks on several nodes need chief_ip, the address of the first.")
        self._workers: list[Connection[Any, Any]] = []
        self._chief: Connection[Any, Any] | None = None
        self._listener: Listener | None = None
        self._closed = False
        if size > 1:
            where = _Meeting(chief_ip or "127.0.0.1", pub_port + port_offset)
            self._meet(where)

    @classmethod
    def from_torch_distributed(cls, chief_ip: str | None = None) -> "DistributedContext":
        """By torchrun's variables, which our supervisor sets as well."""
        missing = [name for name in ("RANK", "WORLD_SIZE") if name not in os.environ]
        if missing and "STOKER_RUN_DIR" not in os.environ:
            raise ValueError(f"from_torch_distributed() reads {' and '.join(missing)}: start the ranks with torchrun.")
        number = {name: int(os.environ.get(name, default)) for name, default in _TORCHRUN.items()}
        return cls(
            rank=number["RANK"],
            size=number["WORLD_SIZE"],
            local_rank=number["LOCAL_RANK"],
            local_size=int(os.environ.get("LOCAL_WORLD_SIZE", number["WORLD_SIZE"])),
            cross_rank=number["GROUP_RANK"],
            cross_size=number["GROUP_WORLD_SIZE"],
            chief_ip=chief_ip or os.environ.get("DET_CHIEF_IP") or os.environ.get("MASTER_ADDR"),
        )

    @classmethod
    def from_deepspeed(cls, chief_ip: str | None = None) -> "DistributedContext":
        """DeepSpeed uses torchrun's variables."""
        return cls.from_torch_distributed(chief_ip)

    @classmethod
    def from_horovod(cls, hvd: Any, chief_ip: str | None = None) -> "DistributedContext":
        return cls(
            rank=hvd.rank(),
            size=hvd.size(),
            local_rank=hvd.local_rank(),
            local_size=hvd.local_size(),
            cross_rank=hvd.cross_rank(),
            cross_size=hvd.cross_size(),
            chief_ip=chief_ip or os.environ.get("DET_CHIEF_IP"),
        )

    @classmethod
    def from_tf_config(cls) -> "tuple[DistributedContext, Any]":
        """The ranks of TF_CONFIG, and TensorFlow's strategy for them."""
        import tensorflow as tf  # type: ignore[import-untyped, unused-ignore]  # noqa: PLC0415

        config = json.loads(os.environ.get("TF_CONFIG", "{}"))
        addresses = [a for role in ("chief", "master", "worker") for a in config.get("cluster", {}).get(role, [])]
        if len(addresses) < 2:
            return DummyDistributedContext(), tf.distribute.get_strategy()
        task = config["task"]
        rank = task["index"] + (1 if task["type"] == "worker" and len(config["cluster"]) > 1 else 0)
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        host = addresses[0].rsplit(":", 1)[0]
        context = cls(rank=rank, size=len(addresses), local_rank=0, local_size=1, cross_rank=rank,
                      cross_size=len(addresses), chief_ip=host)  # fmt: skip
        return context, strategy

    def get_rank(self) -> int:
        return self.rank

    def get_local_rank(self) -> int:
        return self.local_rank

    def get_size(self) -> int:
        return self.size

    def get_num_agents(self) -> int:
        return self.cross_size

    def gather(self, stuff: Any) -> list[Any] | None:
        """Everybody's, by rank, on the chief; None elsewhere."""
        if self._chief is not None:
            self._chief.send(stuff)
            return None
        return [stuff, *(worker.recv() for worker in self._workers)]

    def broadcast(self, stuff: Any) -> Any:
        """The chief's, on every rank."""
        if self._chief is not None:
            return self._chief.recv()
        for worker in self._workers:
            worker.send(stuff)
        return stuff

    def allgather(self, stuff: Any) -> list[Any]:
        found: list[Any] = self.broadcast(self.gather(stuff))
        return found

    def gather_local(self, stuff: Any) -> list[Any] | None:
        """As gather, among the ranks of this node."""
        found = self.allgather_local(stuff)
        return found if self.local_rank == 0 else None

    def broadcast_local(self, stuff: Any = None) -> Any:
        return self.allgather_local(stuff)[0]

    def allgather_local(self, stuff: Any) -> list[Any]:
        everyone = self.allgather((self.cross_rank, self.local_rank, stuff))
        mine = [(local, thing) for cross, local, thing in everyone if cross == self.cross_rank]
        return [thing for _, thing in sorted(mine, key=lambda pair: int(pair[0]))]

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            for connection in [*self._workers, *filter(None, [self._chief])]:
                connection.close()
            if self._listener is not None:
                self._listener.close()

    def __enter__(self) -> "DistributedContext":
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def _meet(self, where: "_Meeting") -> None:
        if self.rank != 0:
            self._chief = where.find_chief()
            self._chief.send(self.rank)
            return
        self._listener = where.listen()
        by_rank: dict[int, Connection[Any, Any]] = {}
        while len(by_rank) < self.size - 1:
            connection = self._listener.accept()
            by_rank[connection.recv()] = connection
        self._workers = [by_rank[rank] for rank in sorted(by_rank)]


class DummyDistributedContext(DistributedContext):
    """The only rank."""

    def __init__(self) -> None:
        super().__init__(rank=0, size=1)


_TORCHRUN = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "GROUP_RANK": "0", "GROUP_WORLD_SIZE": "1"}


class _Meeting:
    """Where the ranks of a run find the chief.

    Objects are pickled, so connections are authenticated: by a secret in the note, which its owner alone can read.
    """

    def __init__(self, host: str, port: int) -> None:
        run_dir = os.environ.get("STOKER_RUN_DIR")
        self._note = os.path.join(run_dir, f".determined-chief-{port}") if run_dir else None
        self._address = (host, port)

    def listen(self) -> Listener:
        if self._note is None:
            return Listener(("", self._address[1]), backlog=128, authkey=self._open_key())
        key = os.urandom(16).hex()
        listener = Listener((self._address[0], 0), backlog=128, authkey=key.encode())
        host, port = listener.address
        replace_file(self._note, json.dumps([host, port, key]), mode=0o600)
        return listener

    def find_chief(self) -> "Connection[Any, Any]":
        until = time.monotonic() + _MEET_S
        while True:
            try:
                host, port, key = self._read()
                return Client((host, port), authkey=key)
            except (OSError, ValueError, EOFError) as error:
                if time.monotonic() > until:
                    place = self._note or self._address
                    raise TimeoutError(f"No chief answered at {place} in {_MEET_S:.0f} s.") from error
                time.sleep(0.02)

    def _read(self) -> tuple[str, int, bytes]:
        if self._note is None:
            return *self._address, self._open_key()
        with open(self._note) as file:
            host, port, key = json.load(file)
        return host, port, key.encode()

    def _open_key(self) -> bytes:
        """Without a run there is no place for a secret: as open as it was, on the port it was."""
        return f"{self._address[1]}".encode()
