"""What a fine-tuning is told: the data, the encoder, and how to learn. The defaults are the fast ones."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from stoker.errors import UsageError

TINY = "tiny"  # as a model's name: a small encoder made on the spot, with a tokenizer learnt from the data

_POSITIVE = ("batch_size", "num_epochs", "learning_rate", "aggregation_frequency")
_CHOICES = {
    "precision": ("auto", "fp32", "bf16", "fp16"),
    "compile": ("auto", "on", "off"),
    "long_texts": ("truncate", "window"),
    "metric": ("loss", "accuracy", "f1"),
}


@dataclass(frozen=True, slots=True)
class TextSettings:
    """One fine-tuning. `batch_size` is that of an optimizer step over all ranks, but for `aggregation_frequency`."""

    dataset: str
    model: str = TINY
    eval_dataset: str | None = None  # without one: the dataset's own test part, or `eval_share` of its rows
    eval_share: float = 0.1
    text_column: str | None = None  # without one: "text", "sentence", "review", … whichever is there
    label_column: str | None = None
    labels: tuple[str, ...] | None = None  # without them: those that the training data has, sorted
    max_length: int | None = None  # tokens; without it: what the encoder takes, at most 512
    long_texts: Literal["truncate", "window"] = "truncate"
    stride: int = 64  # tokens that a window shares with the one before it
    batch_size: int = 16
    num_epochs: int = 1
    learning_rate: float = 2e-5
    weight_decay: float = 0.01
    warmup_share: float = 0.06  # of all steps; the rate then falls to nothing in a straight line
    max_grad_norm: float = 1.0
    aggregation_frequency: int = 1
    metric: Literal["loss", "accuracy", "f1"] = "loss"  # the weights of the epoch that is best by it are exported
    seed: int = 42
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"  # bf16 on GPUs that have it
    compile: Literal["auto", "on", "off"] = "auto"  # on GPUs, if there is more to do than compiling takes
    cuda_graphs: bool = True  # one for each length of a batch, where the model is compiled
    cache_dir: str | None = None

    def __post_init__(self) -> None:
        for name in _POSITIVE:
            if not getattr(self, name) > 0:
                raise UsageError(f"{name}={getattr(self, name)!r}: expected a number above 0.")
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise UsageError(f"{name}={getattr(self, name)!r}: expected one of {', '.join(choices)}.")
        if not 0 < self.eval_share < 1:
            raise UsageError(f"eval_share={self.eval_share!r}: expected a share between 0 and 1, like 0.1.")
        if self.max_length is not None and self.long_texts == "window" and self.stride >= self.max_length - 2:
            raise UsageError(
                f"stride={self.stride} with max_length={self.max_length}: a window must be longer than what it shares"
                " with the one before. Choose a smaller stride."
            )

    @property
    def smaller_is_better(self) -> bool:
        return self.metric == "loss"

    def with_hparams(self, hparams: Mapping[str, Any]) -> "TextSettings":
        """The same with what a search chose."""
        return dataclasses.replace(self, **hparams)
