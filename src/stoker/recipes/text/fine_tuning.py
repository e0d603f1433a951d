"""A fine-tuning from its settings to a model: read, tokenise, train, evaluate, export."""

import dataclasses
import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from stoker import pytorch
from stoker.recipes.text import scores
from stoker.recipes.text.batches import LengthOrder, TokenRows, loader
from stoker.recipes.text.encoder import Encoder, load_encoder
from stoker.recipes.text.export import export
from stoker.recipes.text.reading import LabelledTexts, TextData, read_data
from stoker.recipes.text.settings import TextSettings
from stoker.recipes.text.tokens import Cutting, tokenized
from stoker.recipes.text.trial import OwnMetrics, TextTrial

logger = logging.getLogger(__name__)

_WORTH_COMPILING = 1e14  # tokens times parameters: a million tokens for BERT-base


@dataclass(frozen=True, slots=True)
class FineTuned:
    """What came of it: the encoder with the weights of its best evaluation, that, and where it was exported."""

    encoder: Encoder
    metrics: dict[str, Any]
    model_dir: str | None  # a path or a storage URL

    @property
    def confusion(self) -> str:
        """The confusion matrix, for a terminal."""
        return scores.confusion_text(self.metrics["confusion"], self.encoder.labels)


def fine_tune(  # noqa: PLR0913 - all but the first by name
    settings: TextSettings,
    *,
    data: TextData | None = None,
    encoder: Encoder | None = None,
    model_dir: "str | Path | None" = None,
    own_metrics: OwnMetrics | None = None,
    callbacks: Mapping[str, pytorch.PyTorchCallback] | None = None,
    progress: bool = True,
) -> FineTuned:
    """Fine-tune an encoder on labelled texts; the data and the encoder are those of the settings unless given.

    `model_dir` is a folder or storage URL for the bundle; a supervised run keeps one besides.

    Joins the run this process is part of: hyperparameters that a search chose count for more than the settings, a
    restarted run goes on where it was. What is wrong with data or encoder is said before training starts.
    """
    with _context(settings) as context:
        settings = settings.with_hparams({name: context.run.hparams[name] for name in _SEARCHED})
        data = data or read_data(settings)
        encoder = encoder or load_encoder(
            settings.model,
            labels=data.labels,
            texts=data.train.texts,
            max_length=settings.max_length,
            seed=settings.seed,
        )
        train = _rows(data.train, encoder, settings, context)
        judged = _rows(data.evaluation, encoder, settings, context)
        batch_size = context.distributed.shard_batch_size(settings.batch_size)
        steps = math.ceil(len(train) / (batch_size * context.distributed.size)) * settings.num_epochs
        trial = context.build_trial(
            TextTrial,
            encoder,
            settings,
            steps=math.ceil(steps / settings.aggregation_frequency),
            compiled=_compiles(settings, encoder, train, context),
            own_metrics=own_metrics,
            callbacks=callbacks,
        )
        trial.prepare(train.longest_batch())
        context.train(
            trial,
            _loader(train, batch_size, settings),
            _loader(judged, batch_size, settings),
            max_length=pytorch.Epoch(settings.num_epochs),
            validation_period=pytorch.Epoch(1),
            metric=settings.metric,
            smaller_is_better=settings.smaller_is_better,
            progress=progress,
        )
        trial.close()
        trial.best.put_in_place()
        metrics = trial.best.metrics
        where = None
        if context.distributed.rank == 0:
            where = export(encoder, model_dir, settings=settings, metrics=metrics, run=context.run)
        return FineTuned(encoder=encoder, metrics=metrics, model_dir=where)


def _context(settings: TextSettings) -> pytorch.TrainerContext:
    gpu = torch.cuda.is_available()
    precision = settings.precision
    if precision == "auto":
        precision = "bf16" if gpu and torch.cuda.is_bf16_supported() else "fp32"
    hparams = {name: value for name, value in dataclasses.asdict(settings).items() if name in _SEARCHED}
    return pytorch.init(
        hparams=hparams,
        seed=settings.seed,
        precision=precision,
        aggregation_frequency=settings.aggregation_frequency,
    )


def _compiles(settings: TextSettings, encoder: Encoder, train: TokenRows, context: pytorch.TrainerContext) -> bool:
    """Compiling takes a minute or two, which a training of seconds never gets back."""
    if settings.compile != "auto":
        return settings.compile == "on"
    tokens = int(train.lengths.sum()) * settings.num_epochs
    work = tokens * sum(param.numel() for param in encoder.model.parameters())
    return context.device.type == "cuda" and work >= _WORTH_COMPILING


# What a search may choose, and what a checkpoint tells of. The context is made before them, so not its own settings.
_SEARCHED = (
    "model", "max_length", "long_texts", "stride", "batch_size", "num_epochs", "learning_rate", "weight_decay",
    "warmup_share", "max_grad_norm",
)  # fmt: skip


def _rows(known: LabelledTexts, encoder: Encoder, settings: TextSettings, context: pytorch.TrainerContext) -> TokenRows:
    cutting = Cutting(encoder.max_length, window=settings.long_texts == "window", stride=settings.stride)
    table = tokenized(known.texts, encoder.tokenizer, cutting, cache_dir=settings.cache_dir)
    logger.info("%d texts, %d rows, %d tokens", len(known), len(table), int(np.sum(table.lengths)))
    return TokenRows(
        table,
        known.labels,
        pad_id=encoder.tokenizer.pad_token_id,
        max_length=encoder.max_length,
        device=context.device,
        full=context.distributed.shard_batch_size(settings.batch_size),
    )


def _loader(rows: TokenRows, batch_size: int, settings: TextSettings) -> "pytorch.DataLoader[Any]":
    order = LengthOrder(rows.lengths, batch_size=settings.batch_size, seed=settings.seed)
    return loader(rows, batch_size=batch_size, order=order)
