"""What `fit` was asked for, checked; and where training stands on the way."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from stoker.errors import UsageError
from stoker.pytorch.saving import Keep
from stoker.pytorch.units import Batch, TrainUnit

_PERIODS = ("validation_period", "checkpoint_period", "reporting_period")


@dataclass(frozen=True, slots=True)
class FitPlan:
    """The arguments of one `fit`."""

    max_length: TrainUnit
    validation_period: TrainUnit | None = None
    checkpoint_period: TrainUnit | None = None
    reporting_period: TrainUnit | None = Batch(100)
    checkpoint_policy: str = "best"
    latest_checkpoint: str | None = None
    step_zero_validation: bool = False
    test_mode: bool = False
    metric: str | None = None
    smaller_is_better: bool = True
    keep: Keep | None = Keep()
    stop_on_nan: bool = False
    progress: bool = True

    def __post_init__(self) -> None:
        for name in ("max_length", *_PERIODS):
            value = getattr(self, name)
            if value is not None and not isinstance(value, TrainUnit):
                raise UsageError(f"{name}={value!r}: expected Batch(100) or Epoch(1), so that it has a unit.")
        if self.checkpoint_policy not in ("best", "all", "none"):
            raise UsageError(f"checkpoint_policy={self.checkpoint_policy!r}: expected 'best', 'all' or 'none'.")

    def last_step(self, epoch_length: int | None) -> int:
        """After how many batches training ends; says now if some period cannot be counted on this data."""
        for name in _PERIODS:
            period = getattr(self, name)
            if period is not None:
                period.check(epoch_length, what=name)
        return self.max_length.in_batches(epoch_length, what="max_length")


@dataclass(slots=True)
class Standing:
    """Where training stands, kept in checkpoints. Steps are numbers of batches trained; -1 is never."""

    step: int = 0
    validated_at: int = -1
    checkpointed_at: int = -1
    best: float | None = None  # the metric's best value so far
    score: float | None = None  # and its value at the last validation

    @classmethod
    def read(cls, description: Mapping[str, Any]) -> "Standing":
        """As a checkpoint's description holds it."""
        return cls(**{item.name: description[item.name] for item in fields(cls)})

    def improves(self, score: float | None, *, smaller_is_better: bool) -> bool:
        """Whether this is the best value yet; NaN never is."""
        if score is None or score != score:
            return False
        if self.best is None:
            return True
        return score < self.best if smaller_is_better else score > self.best


def score_of(metrics: dict[str, Any], metric: str | None) -> float | None:
    """The value that decides which checkpoint is best; None if nobody said which metric that is and it is not clear."""
    if metric is not None and metric not in metrics:
        raise UsageError(
            f"The metric to compare checkpoints by is {metric!r}, but validation gave {', '.join(sorted(metrics))}."
            " Pass fit(metric=…) one of these."
        )
    candidates = (
        [metric] if metric else ["loss", "validation_loss", "val_loss", *(metrics if len(metrics) == 1 else ())]
    )
    for name in candidates:
        if isinstance(metrics.get(name), int | float):
            return float(metrics[name])
    return None
