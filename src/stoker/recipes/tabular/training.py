"""Train, evaluate, export: files and metadata in, a model bundle and a report out."""

import logging
import tempfile
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import Subset, TensorDataset

from stoker import pytorch
from stoker.errors import UsageError
from stoker.host.home import Home
from stoker.recipes.tabular.bundle import name_of, write_bundle
from stoker.recipes.tabular.data import Table, check_classes, load
from stoker.recipes.tabular.features import Features, fit
from stoker.recipes.tabular.inference import exact, one_thread
from stoker.recipes.tabular.metadata import Metadata
from stoker.recipes.tabular.models import Build, build_named
from stoker.recipes.tabular.report import write_report
from stoker.recipes.tabular.settings import Settings
from stoker.recipes.tabular.trial import Metrics, TableTrial, evaluate
from stoker.run_dir import RunDir
from stoker.storage import Storage

logger = logging.getLogger(__name__)

_MOST_VALIDATED = 1_000_000  # rows: they are held in memory, and more tell nothing new
_SMALL_STEP = 200_000_000  # multiplications in a batch, roughly


@dataclass(frozen=True)
class Result:
    """What came out. `metrics` are those on the evaluation files; `folder` is the run's own copy of the bundle."""

    net: nn.Module
    features: Features
    metrics: dict[str, float]
    history: list[dict[str, float]]
    folder: Path


def train(  # noqa: PLR0913 - one call says all of a training
    metadata: Metadata,
    *,
    train_files: Sequence[str],
    eval_files: Sequence[str],
    settings: Settings = Settings(),
    build: Build | None = None,
    metrics: Metrics | None = None,
    output: str | None = None,
    name: str = "model",
    cache: Path | None = None,
) -> Result:
    """Train a model of the table, evaluate it, and leave a bundle that predicts from CSV, JSON and tf.Example.

    `build(features, **settings)` makes a model of your own, `metrics` adds metrics. The bundle and report.html lie in
    the run's directory and, with `output` (a folder or URL), under OUTPUT/NAME. Whatever is wrong with the data is a
    UsageError before training starts.
    """
    storage = Storage(Home.find().root)
    with pytorch.init(hparams=settings.to_json(), seed=settings.seed) as context:
        settings = settings.changed_by(context.hparams)
        build = build or build_named(settings.model)
        name_of(build)  # now, not after the training
        table = load(train_files, metadata, cache=cache, storage=storage)
        check_classes(table, metadata)
        held_out = load(eval_files, metadata, vocabularies=table.vocabularies, cache=cache, storage=storage)
        features = fit(table, metadata)
        net = build(features, hidden=settings.hidden, dropout=settings.dropout)
        history = _fit(context, net, features, table, held_out, settings=settings, metrics=metrics or {})
        found = evaluate(exact(net), features, held_out, metrics=metrics or {})
        folder = RunDir(context.run.run_dir).models / name
        if context.distributed.rank == 0:
            context.run.report(len(history), group="evaluation", **found)
            _export(context, net, features, settings, found, build=build, name=name)
            report = Path(context.run.run_dir) / "report.html"
            write_report(report, exact(net), features, held_out, metrics=found, history=history)
            if output is not None:
                _hand_out(storage, folder, report, f"{output.rstrip('/')}/{name}")
        return Result(net, features, found, history, folder)


def _fit(
    context: pytorch.TrainerContext,
    net: nn.Module,
    features: Features,
    table: Table,
    held_out: Table,
    *,
    settings: Settings,
    metrics: Metrics,
) -> list[dict[str, float]]:
    """Train `net`; it has the best weights afterwards. Returns the validations' metrics."""
    rows, validation = _split(table, held_out, settings)
    batch_size = context.distributed.shard_batch_size(settings.batch_size)
    loader = pytorch.DataLoader(_dataset(table, rows), batch_size, shuffle=True)
    length = len(table) if rows is None else len(rows)
    trial = context.build_trial(
        TableTrial,
        net,
        features,
        settings,
        steps=settings.num_epochs * -(-length // settings.batch_size),
        metrics=metrics,
    )
    with _few_threads(net, settings.batch_size):
        context.train(
            trial,
            loader,
            validation,
            max_length=pytorch.Epoch(settings.num_epochs),
            validation_period=pytorch.Epoch(1),
            metric="loss",
            smaller_is_better=True,
        )
    trial.best.put_in_place()
    return trial.best.history


def _few_threads(net: nn.Module, batch_size: int) -> AbstractContextManager[None]:
    """One thread for small steps: to share them out takes longer than to do them, 25 times so on a busy machine."""
    is_small = batch_size * sum(param.numel() for param in net.parameters()) < _SMALL_STEP
    return one_thread() if is_small else nullcontext()


def _split(table: Table, held_out: Table, settings: Settings) -> tuple[torch.Tensor | None, Table]:
    """The rows to learn from (None: all), and the table to validate on."""
    if not settings.test_split:
        return None, held_out
    order = torch.randperm(len(table), generator=torch.Generator().manual_seed(settings.seed))
    count = min(max(1, int(len(table) * settings.test_split)), _MOST_VALIDATED)
    if count >= len(table):
        raise UsageError(f"The training data has {len(table)} row(s): too few to validate on a part of them.")
    return order[count:], table.rows(order[:count])


def _dataset(table: Table, rows: torch.Tensor | None) -> "TensorDataset | Subset[tuple[torch.Tensor, ...]]":
    """Whole tensors: the trainer gathers batches of them without looking at single rows."""
    tensors = TensorDataset(*table.tensors)
    return tensors if rows is None else Subset(tensors, rows)  # type: ignore[arg-type]  # a tensor is a sequence, too


def _export(
    context: pytorch.TrainerContext,
    net: nn.Module,
    features: Features,
    settings: Settings,
    found: dict[str, float],
    *,
    build: Build,
    name: str,
) -> None:
    """As a bundle of the run, which the supervisor tells the server of."""
    with tempfile.TemporaryDirectory(prefix="stoker-model-") as scratch:
        draft = Path(scratch) / name
        write_bundle(draft, net, features, settings, name=name, build=build, metrics=found)
        context.run.save_model(str(draft), name, metrics=found)


def _hand_out(storage: Storage, folder: Path, report: Path, target: str) -> None:
    if storage.local_path(target) != folder:
        storage.copy(str(folder), f"{target}/", recursive=True)
    storage.copy(str(report), f"{target}.report.html")
    logger.info("model written to %s", target)
