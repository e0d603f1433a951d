"""How long and how often: batches or epochs, as a number or as a schedule."""

from collections.abc import Container, Mapping
from typing import Any

from stoker.errors import UsageError


class TrainUnit:
    """`Batch(100)`: every 100 batches, or 100 batches long. `Batch([5, 30])`: after the 5th and the 30th."""

    def __init__(self, value: "int | Container[int]") -> None:
        if isinstance(value, bool) or not isinstance(value, int | Container) or isinstance(value, str | bytes):
            raise UsageError(
                f"{type(self).__name__}({value!r}): expected a whole number like {type(self).__name__}(100),"
                f" or a schedule like {type(self).__name__}([5, 30])."
            )
        if isinstance(value, int) and value < 1:
            raise UsageError(
                f"{type(self).__name__}({value}): a length or period is at least 1. For never, pass None instead."
            )
        self.value = value

    def is_due(self, step: int, epoch_length: int | None) -> bool:
        """Whether `step`, a number of batches trained, is a moment this period or schedule names."""
        count = self._count(step, epoch_length)
        if count is None or count == 0:
            return False
        return count % self.value == 0 if isinstance(self.value, int) else count in self.value

    def in_batches(self, epoch_length: int | None, *, what: str) -> int:
        """This length as a number of batches."""
        if not isinstance(self.value, int):
            raise UsageError(f"{what} is one length, like Batch(1000) or Epoch(10); a schedule has no length.")
        return self.value * self._batches_in_one(epoch_length, what=what)

    def check(self, epoch_length: int | None, *, what: str) -> None:
        """Say now, not after hours, that this unit cannot be counted on this data."""
        self._batches_in_one(epoch_length, what=what)

    def _count(self, step: int, epoch_length: int | None) -> int | None:
        """How many whole units `step` batches are; None between two of them."""
        raise NotImplementedError

    def _batches_in_one(self, epoch_length: int | None, *, what: str) -> int:
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.value!r})"


class Batch(TrainUnit):
    """Counted in batches: one call of `train_batch` each, on every rank at once."""

    def _count(self, step: int, epoch_length: int | None) -> int:
        return step

    def _batches_in_one(self, epoch_length: int | None, *, what: str) -> int:
        return 1


class Epoch(TrainUnit):
    """Counted in passes over the training data."""

    def _count(self, step: int, epoch_length: int | None) -> int | None:
        if epoch_length is None or step % epoch_length:
            return None
        return step // epoch_length

    def _batches_in_one(self, epoch_length: int | None, *, what: str) -> int:
        if epoch_length is None:
            raise UsageError(f"{what}={self!r}, but the training data has no length. Count in batches: Batch(1000).")
        return epoch_length


class Batches(Batch):
    """The plural reads better: `Batches(100)`."""


class Epochs(Epoch):
    """The plural reads better: `Epochs(10)`."""


def unit_of(given: Any) -> TrainUnit | None:
    """A length as job files write it, `{epochs: 20}` or `{batches: 1000}`; None for anything else."""
    if isinstance(given, Mapping) and "epochs" in given:
        return Epoch(given["epochs"])
    return Batch(given["batches"]) if isinstance(given, Mapping) and "batches" in given else None
