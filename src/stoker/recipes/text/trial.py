"""The fine-tuning itself, as a PyTorchTrial: one encoder, AdamW, a rate that warms up and falls, scores by document."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from stoker import pytorch
from stoker.recipes.best_weights import BestWeights
from stoker.recipes.text import scores
from stoker.recipes.text.batches import IGNORED, Batch
from stoker.recipes.text.encoder import Encoder
from stoker.recipes.text.graphs import GraphedGradients
from stoker.recipes.text.settings import TextSettings

logger = logging.getLogger(__name__)

OwnMetrics = Callable[[scores.Scored, Sequence[str]], Mapping[str, float]]

_INPUTS = ("input_ids", "attention_mask")


class TextTrial(pytorch.PyTorchTrial):
    """Fine-tunes `encoder.model`. `steps` is the number of optimizer steps in all, for the rate."""

    def __init__(  # noqa: PLR0913 - all but the first three by name
        self,
        context: pytorch.PyTorchTrialContext,
        encoder: Encoder,
        settings: TextSettings,
        *,
        steps: int,
        compiled: bool = False,
        own_metrics: OwnMetrics | None = None,
        callbacks: Mapping[str, pytorch.PyTorchCallback] | None = None,
    ) -> None:
        self.context = context
        self.settings = settings
        self.compiled = compiled
        # One compilation for all lengths: one for each would take longer than the training.
        how = {"dynamic": True} if compiled else False
        self.model = context.wrap_model(encoder.model.train(), compile=how)  # theirs come in eval mode
        self.optimizer = context.wrap_optimizer(_optimizer(self.model, settings))
        self.scheduler = context.wrap_lr_scheduler(
            _warm_up_and_fall(self.optimizer, steps=steps, warmup=round(steps * settings.warmup_share)),
            pytorch.LRScheduler.StepMode.STEP_EVERY_OPTIMIZER_STEP,
        )
        self._labels = encoder.labels
        self._own_metrics = own_metrics
        self._scored = context.wrap_reducer(self._metrics, for_training=False)
        self.best = BestWeights(encoder.model, metric=settings.metric, smaller_is_better=settings.smaller_is_better)
        self._callbacks = {"best weights": self.best, **(callbacks or {})}
        self._alone = context.distributed.size == 1
        self._graphs = self._graphed()

    def build_callbacks(self) -> dict[str, pytorch.PyTorchCallback]:
        return self._callbacks

    def get_batch_length(self, batch: Batch) -> int:
        return int(batch["count"])

    def train_batch(self, batch: Batch, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        loss = None if self._graphs is None else self._graphed_loss(batch)
        if loss is not None:
            self.context.step_optimizer(self.optimizer, clip_grads=self._clip, auto_zero_grads=False)
            return {"loss": loss}
        loss = self._loss(batch)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer, clip_grads=self._clip)
        return {"loss": loss}

    def evaluate_batch(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
        inputs = {name: batch[name] for name in _INPUTS}
        # Not through the compiled call: compiling once more takes longer than most evaluations.
        logits = (self.model.forward if self._alone else self.model)(**inputs).logits.float()
        real = slice(None, batch["count"])
        self._scored.update(scores.part(batch["documents"][real], batch["labels"][real], logits[real]))
        return {"loss": nn.functional.cross_entropy(logits[real], batch["labels"][real])}

    def prepare(self, batch: Batch) -> None:
        """Make ready for a batch of this shape, the largest there will be, before the first step."""
        if self._graphs is not None:
            self._attempt(self.context.to_device(batch), prepare=True)

    def close(self) -> None:
        """Give the GPU memory of the training back."""
        if self._graphs is not None:
            self._graphs.release()

    def _metrics(self, parts: list[torch.Tensor]) -> dict[str, Any]:
        scored = scores.combined(parts)
        own = {} if self._own_metrics is None else self._own_metrics(scored, self._labels)
        return {**scores.metrics_of(scored, self._labels), **own}

    def _loss(self, batch: Mapping[str, Any]) -> torch.Tensor:
        logits = self.model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
        return nn.functional.cross_entropy(logits.float(), batch["labels"], ignore_index=IGNORED)

    def _clip(self, params: Iterator[nn.Parameter]) -> None:
        nn.utils.clip_grad_norm_(params, self.settings.max_grad_norm)

    def _graphed(self) -> GraphedGradients | None:
        """CUDA graphs where they are simple: one rank, whole steps, a compiled model."""
        context = self.context
        wanted = self.settings.cuda_graphs and self.compiled and self._alone
        plain = context.settings.aggregation_frequency == 1 and context.scaler is None
        if not (wanted and plain and context.device.type == "cuda"):
            return None
        return GraphedGradients(self.model, self._loss)

    def _graphed_loss(self, batch: Batch) -> torch.Tensor | None:
        return self._attempt(batch, prepare=False)

    def _attempt(self, batch: Batch, *, prepare: bool) -> torch.Tensor | None:
        """None when this machine cannot capture the model: it then learns without graphs, from here on."""
        assert self._graphs is not None  # whoever calls has looked
        tensors = {name: batch[name] for name in (*_INPUTS, "labels")}
        try:
            if prepare:
                self._graphs.prepare(tensors)
                return None
            return self._graphs(tensors)
        except RuntimeError as error:
            reason = str(error).strip().splitlines()[0]
            logger.warning("no CUDA graphs for this model, so steps are slower: %s", reason)
            self._graphs.release()
            self._graphs = None
            return None


def _optimizer(model: nn.Module, settings: TextSettings) -> torch.optim.Optimizer:
    """AdamW; biases and norms do not decay."""
    decayed: list[nn.Parameter] = []
    free: list[nn.Parameter] = []
    for param in model.parameters():
        if param.requires_grad:
            (decayed if param.ndim > 1 else free).append(param)
    groups = [{"params": decayed, "weight_decay": settings.weight_decay}, {"params": free, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=settings.learning_rate)


def _warm_up_and_fall(
    optimizer: torch.optim.Optimizer, *, steps: int, warmup: int
) -> torch.optim.lr_scheduler.LRScheduler:
    def share(step: int) -> float:
        if step < warmup:
            return (step + 1) / (warmup + 1)
        return max(0.0, (steps - step) / max(1, steps - warmup))

    return torch.optim.lr_scheduler.LambdaLR(optimizer, share)
