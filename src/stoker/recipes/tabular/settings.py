"""How to train: what a task's flags set, and a search changes."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from stoker.errors import UsageError


@dataclass(frozen=True, slots=True)
class Settings:
    """Hyperparameters, with defaults that do well on most tables."""

    model: str = "wide_deep"  # linear, deep, wide_deep, periodic
    batch_size: int = 1024
    num_epochs: int = 10
    learning_rate: float = 0.003
    weight_decay: float = 0.0
    wide_learning_rate: float = 0.05
    wide_l1: float = 0.0
    wide_l2: float = 0.0
    hidden: tuple[int, ...] = (64, 32)
    dropout: float = 0.0
    patience: int = 3  # validations without a better loss before it stops; 0: never
    test_split: float = 0.1  # of the training data, to validate on; 0: the evaluation files are used
    seed: int = 42

    def __post_init__(self) -> None:
        whole = ("batch_size", "num_epochs")
        problems = [f"{name} is {getattr(self, name)}, expected 1 or more" for name in whole if getattr(self, name) < 1]
        if not 0 <= self.test_split < 1:
            problems.append(f"test_split is {self.test_split}, expected 0 or more and below 1")
        if not self.learning_rate > 0 or not self.wide_learning_rate > 0:
            problems.append("a learning rate must be above 0")
        if problems:
            raise UsageError("; ".join(problems).capitalize() + ".")

    def changed_by(self, hparams: Mapping[str, Any]) -> "Settings":
        """With a search's values in place: `learning_rate`, or `learning-rate` as AI Platform wrote it."""
        kinds = {field.name: type(getattr(self, field.name)) for field in fields(self)}
        given = {str(name).replace("-", "_"): value for name, value in hparams.items()}
        return replace(self, **{name: kinds[name](value) for name, value in given.items() if name in kinds})

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
