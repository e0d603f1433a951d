"""The training itself, on the public trainer: one batch, one validation, and the best weights kept."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from stoker import pytorch
from stoker.recipes.best_weights import BestWeights
from stoker.recipes.tabular.data import Table
from stoker.recipes.tabular.features import Features
from stoker.recipes.tabular.ftrl import FTRL
from stoker.recipes.tabular.inference import infer
from stoker.recipes.tabular.scores import scores
from stoker.recipes.tabular.settings import Settings

# A metric of the user's own: (predicted, target) -> value. Predicted are probabilities by class, or values.
Metrics = dict[str, Callable[[torch.Tensor, torch.Tensor], float]]


class TableTrial(pytorch.PyTorchTrial):
    """Two optimizers when the model has a part called `wide`: FTRL for that, AdamW for the rest."""

    def __init__(
        self,
        context: pytorch.PyTorchTrialContext,
        net: nn.Module,
        features: Features,
        settings: Settings,
        *,
        steps: int,
        metrics: Metrics,
    ) -> None:
        self.context = context
        self.net = net
        self.features = features
        self.settings = settings
        self.metrics = metrics
        self.model = context.wrap_model(net)
        self.optimizers = [context.wrap_optimizer(each) for each in optimizers(net, settings)]
        for optimizer in self.optimizers:
            if not isinstance(optimizer, FTRL):  # FTRL slows down by itself
                schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step, steps))
                context.wrap_lr_scheduler(schedule, pytorch.LRScheduler.StepMode.STEP_EVERY_BATCH)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        numbers, codes, target, *weight = batch
        loss = loss_of(self.model(numbers, codes), target, weight[0] if weight else None, self.features)
        self.context.backward(loss)
        for optimizer in self.optimizers:
            self.context.step_optimizer(optimizer)
        return {"loss": loss}

    def evaluate_full_dataset(self, data_loader: Any) -> dict[str, Any]:
        return evaluate(self.net, self.features, data_loader, metrics=self.metrics)

    def build_callbacks(self) -> dict[str, pytorch.PyTorchCallback]:
        self.best = BestWeights(self.net)
        found: dict[str, pytorch.PyTorchCallback] = {"best": self.best}
        if self.settings.patience:
            found["stop"] = pytorch.EarlyStopping(self.context, metric="loss", patience=self.settings.patience)
        return found


def optimizers(net: nn.Module, settings: Settings) -> list[torch.optim.Optimizer]:
    wide = [param for name, param in net.named_parameters() if name.startswith("wide.")]
    rest = [param for name, param in net.named_parameters() if not name.startswith("wide.")]
    found: list[torch.optim.Optimizer] = []
    if wide:
        found.append(FTRL(wide, lr=settings.wide_learning_rate, l1=settings.wide_l1, l2=settings.wide_l2))
    if rest:
        found.append(torch.optim.AdamW(rest, lr=settings.learning_rate, weight_decay=settings.weight_decay))
    return found


def loss_of(
    outputs: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None, features: Features
) -> torch.Tensor:
    """Log-loss; of a regression the squared error in standard deviations. Weighted, if rows have weights."""
    reduction = "mean" if weight is None else "none"
    match features.metadata.task:
        case "binary":
            loss = nn.functional.binary_cross_entropy_with_logits(outputs[:, 0], target, reduction=reduction)
        case "multiclass":
            loss = nn.functional.cross_entropy(outputs, target.long(), reduction=reduction)
        case _:
            wanted = (target - features.target_mean) / features.target_std
            loss = nn.functional.mse_loss(outputs[:, 0], wanted, reduction=reduction)
    return loss if weight is None else (loss * weight).sum() / weight.sum().clamp(min=1e-12)


def evaluate(net: nn.Module, features: Features, table: Table, *, metrics: Metrics) -> dict[str, float]:
    """All metrics on a table, `loss` (what training lowers) among them."""
    was_training = net.training
    net.eval()
    predicted = infer(net, features, table.numbers, table.codes)
    net.train(was_training)
    found = scores(features.metadata.task, predicted, table.target, table.weight)
    loss = found["log_loss"] if "log_loss" in found else (found["rmse"] / features.target_std) ** 2
    own = {name: float(metric(predicted, table.target)) for name, metric in metrics.items()}
    return {"loss": loss, **found, **own}


def _rate(step: int, steps: int) -> float:
    """Up for a twentieth of the training, then down along a cosine to a twentieth of the rate."""
    warm = max(1, steps // 20)
    if step < warm:
        return (step + 1) / warm
    done = min(1.0, (step - warm) / max(1, steps - warm))
    return 0.05 + 0.95 * (1 + math.cos(math.pi * done)) / 2
