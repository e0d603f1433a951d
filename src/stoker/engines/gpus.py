"""Which of this machine's GPUs a run may use, so that two runs do not land on the same one.

HOME/gpus.json holds the claims of live runs. A claim dies with its supervisor; nobody has to give it back.
"""

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from stoker.atomic import replace_file
from stoker.host.home import Home
from stoker.host.locks import locked
from stoker.host.processes import ProcessId

_TINY = 1e-9


class Claim(NamedTuple):
    """A live run's part of some GPUs: `share` of each."""

    pid: int
    start: int
    devices: list[str]
    share: float


def start_on_gpus(
    home: Home, *, need: float, visible: Sequence[str], start: Callable[[str | None], ProcessId]
) -> ProcessId:
    """Call `start` with the CUDA_VISIBLE_DEVICES for a run that needs so many GPUs, and note whose they are.

    None (all that are visible) when it asks for none or there is none to give.
    """
    if need <= 0 or not visible:
        return start(None)
    path = home.gpus
    with locked(path.with_suffix(".lock")):
        claims = [claim for claim in _read(path) if ProcessId(claim.pid, claim.start).is_alive()]
        devices, share = choose(need, visible, claims)
        process = start(",".join(devices))
        claims.append(Claim(process.pid, process.start, devices, share))
        replace_file(path, json.dumps([claim._asdict() for claim in claims]))
    return process


def choose(need: float, visible: Sequence[str], claims: Sequence[Claim]) -> tuple[list[str], float]:
    """Whole GPUs that nobody uses; for a part of one, the fullest that still has room.

    The scheduler has counted that there is enough; where parts are spread so that it does not fit, the emptiest
    are shared.
    """
    used = {device: sum(claim.share for claim in claims if device in claim.devices) for device in visible}
    if need < 1:
        roomy = [device for device in visible if used[device] + need <= 1 + _TINY]
        best = max(roomy, key=lambda device: used[device]) if roomy else min(visible, key=lambda device: used[device])
        return [best], need
    emptiest = sorted(visible, key=lambda device: used[device])[: math.ceil(need - _TINY)]
    return sorted(emptiest, key=list(visible).index), 1.0


def _read(path: Path) -> list[Claim]:
    try:
        return [Claim(**claim) for claim in json.loads(path.read_text())]
    except (OSError, ValueError, TypeError):
        return []
