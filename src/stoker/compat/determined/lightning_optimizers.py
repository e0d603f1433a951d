"""What a LightningModule's `configure_optimizers` returns, in each of its forms."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau

from stoker.errors import UsageError


@dataclass(frozen=True, slots=True)
class Schedule:
    """A scheduler, and when it steps."""

    scheduler: Any
    interval: str = "epoch"
    frequency: int = 1


def read_optimizers(found: Any) -> tuple[list[Optimizer], list[Schedule]]:
    """One optimizer, several, one list of them and one of schedulers, a dict, or several dicts."""
    if isinstance(found, Optimizer):
        return [found], []
    if isinstance(found, Mapping):
        schedule = found.get("lr_scheduler")
        return [_optimizer(found.get("optimizer"))], [] if schedule is None else [_schedule(schedule)]
    if not isinstance(found, Sequence) or not found:
        raise UsageError(
            f"configure_optimizers returned {found!r}: expected an optimizer, a list of them, two lists (optimizers,"
            " schedulers), or a dict with 'optimizer' and 'lr_scheduler'."
        )
    if len(found) == 2 and all(isinstance(part, list | tuple) for part in found):
        return [_optimizer(one) for one in found[0]], [_schedule(one) for one in found[1]]
    pairs = [read_optimizers(one) for one in found]
    return [one for optimizers, _ in pairs for one in optimizers], [one for _, own in pairs for one in own]


def _optimizer(found: Any) -> Optimizer:
    if not isinstance(found, Optimizer):
        raise UsageError(f"configure_optimizers has {found!r} where an optimizer is expected.")
    return found


def _schedule(found: Any) -> Schedule:
    settings = dict(found) if isinstance(found, Mapping) else {"scheduler": found}
    scheduler = settings.get("scheduler")
    if not callable(getattr(scheduler, "step", None)):
        raise UsageError(f"configure_optimizers has {scheduler!r} where a scheduler is expected.")
    if isinstance(scheduler, ReduceLROnPlateau) or settings.get("reduce_on_plateau"):
        raise UsageError(
            "LightningAdapter has never stepped ReduceLROnPlateau. Use another scheduler, or Lightning's own Trainer"
            " with stoker.integrations.lightning."
        )
    interval = settings.get("interval", "epoch")
    if interval not in ("epoch", "step"):
        raise UsageError(f"A scheduler's interval is {interval!r}: expected 'epoch' or 'step'.")
    return Schedule(scheduler, interval, int(settings.get("frequency", 1)))
