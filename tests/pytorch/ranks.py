"""Run a function on several ranks, each a process, as a supervisor would start them."""

import json
import multiprocessing
import multiprocessing.connection
import os
import socket
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

DEADLINE_S = 120


def run_ranks(function: Callable[..., Any], size: int, folder: Path, *args: Any, **launch: Any) -> list[Any]:
    """What the function returned on each rank. It is imported there by name, so it stands at the top of its module.

    All ranks share the run directory `folder`; `launch` goes into its run.json.
    """
    folder.mkdir(parents=True, exist_ok=True)
    launch = {"run": "job.1.1", "job": "job", "trial": 1, "trial_id": 7, **launch}
    (folder / "run.json").write_text(json.dumps(launch))
    # Forked from a server that has torch imported and no threads: a rank starts in milliseconds, not seconds.
    start = multiprocessing.get_context("forkserver")
    start.set_forkserver_preload(["torch", "torch.distributed.fsdp", "pytest", "stoker.pytorch"])
    port = _free_port()
    ranks = []
    for rank in range(size):
        here, there = start.Pipe(duplex=False)
        about = (function, args, rank, size, port, str(folder))
        process = start.Process(target=_be_rank, args=(there, *about))
        process.start()
        there.close()
        ranks.append((process, here))
    try:
        return [_result(rank, here) for rank, (_, here) in enumerate(ranks)]
    finally:
        for process, here in ranks:
            process.kill()
            process.join()
            here.close()


def _be_rank(there: Any, function: Callable[..., Any], args: Any, rank: int, size: int, port: int, folder: str) -> None:
    import torch

    torch.set_num_threads(1)
    multiprocessing.set_start_method("fork", force=True)  # for data workers: this process was not started by default
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(size),
        LOCAL_WORLD_SIZE=str(size),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
        STOKER_RUN_DIR=folder,
        STOKER_REPLICA="chief-0" if rank == 0 else f"worker-{rank - 1}",
    )
    try:
        there.send((True, function(*args)))
    except BaseException:  # noqa: BLE001 - SystemExit too is a result
        there.send((False, traceback.format_exc()))


def _result(rank: int, here: Any) -> Any:
    if not here.poll(DEADLINE_S):
        raise TimeoutError(f"rank {rank} said nothing for {DEADLINE_S} s")
    try:
        fine, result = here.recv()
    except EOFError:
        raise RuntimeError(f"rank {rank} died") from None
    if not fine:
        raise RuntimeError(f"rank {rank} failed:\n{result}")
    return result


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])
