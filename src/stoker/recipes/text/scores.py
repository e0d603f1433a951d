"""How good the predictions are: accuracy, F1, the confusion matrix; as numbers, as text, as a picture."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

_WIDEST = 12  # letters of a label in the table


@dataclass(frozen=True, slots=True)
class Scored:
    """One row a document: its label, and the mean of its windows' logits."""

    labels: torch.Tensor
    logits: torch.Tensor


def part(documents: torch.Tensor, labels: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    """A batch's share of the evaluation, as one tensor: document, label, logits."""
    return torch.cat([documents.double()[:, None], labels.double()[:, None], logits.double()], dim=1)


def combined(parts: Sequence[torch.Tensor]) -> Scored:
    """Documents in order, each with the mean of the logits of its windows."""
    rows = torch.cat([each.cpu() for each in parts])
    numbers, which, counts = torch.unique(rows[:, 0], return_inverse=True, return_counts=True)
    sums = torch.zeros(len(numbers), rows.shape[1] - 1, dtype=torch.float64).index_add_(0, which, rows[:, 1:])
    means = sums / counts[:, None]
    return Scored(labels=means[:, 0].round().long(), logits=means[:, 1:])


def metrics_of(scored: Scored, labels: Sequence[str]) -> dict[str, Any]:
    """All metrics by name; `confusion` is a matrix with a row for each true class."""
    guesses = scored.logits.argmax(1)
    size = len(labels)
    confusion = torch.bincount(scored.labels * size + guesses, minlength=size * size).view(size, size).double()
    right = confusion.diagonal()
    of_class, guessed = confusion.sum(1), confusion.sum(0)
    f1 = 2 * right / (of_class + guessed).clamp(min=1)
    return {
        "accuracy": float(right.sum() / confusion.sum()),
        "f1": float(f1[(of_class + guessed) > 0].mean()),  # as scikit-learn: over the classes that occur
        **{f"f1_{label}": float(value) for label, value in zip(labels, f1, strict=True)},
        "confusion": confusion.long(),
    }


def confusion_text(confusion: torch.Tensor, labels: Sequence[str]) -> str:
    """The matrix for a terminal: a line for each true class, a column for each guess."""
    names = [label if len(label) <= _WIDEST else label[: _WIDEST - 1] + "…" for label in labels]
    width = max(len(str(int(confusion.max()))), *map(len, names))
    corner = "is \\ guessed"
    left = max(len(corner), *map(len, names))
    lines = ["  ".join([corner.ljust(left), *(name.rjust(width) for name in names)])]
    for name, row in zip(names, confusion.tolist(), strict=True):
        lines.append("  ".join([name.ljust(left), *(str(number).rjust(width) for number in row)]))
    return "\n".join(lines)


def draw_confusion(confusion: torch.Tensor, labels: Sequence[str], path: Path) -> bool:
    """The matrix as a picture; False where matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - optional
    except ImportError:
        return False
    size = 2 + 0.6 * len(labels)
    figure = Figure(figsize=(size + 1, size), layout="constrained")
    axes = figure.subplots()
    shares = confusion.double() / confusion.sum(1, keepdim=True).clamp(min=1)
    axes.imshow(shares.numpy(), cmap="Blues", vmin=0, vmax=1)
    axes.set_xticks(range(len(labels)), labels, rotation=45, ha="right")
    axes.set_yticks(range(len(labels)), labels)
    axes.set_xlabel("guessed")
    axes.set_ylabel("is")
    for row, numbers in enumerate(confusion.tolist()):
        for column, number in enumerate(numbers):
            colour = "white" if shares[row, column] > 0.5 else "black"
            axes.text(column, row, str(number), ha="center", va="center", color=colour)
    figure.savefig(path, dpi=120)
    return True
