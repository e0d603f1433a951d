"""One call of `fit`: the trial, its data and where training stands. `Trainer.fit` is the loop over it."""

import logging
import math
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from typing import Any

import torch

from stoker.errors import StokerError
from stoker.pytorch import rng, snapshot
from stoker.pytorch.callbacks import Callbacks
from stoker.pytorch.checkpoint import Checkpoint, read_checkpoint
from stoker.pytorch.data.loader import TrainingStream, open_training
from stoker.pytorch.evaluation import Evaluation
from stoker.pytorch.metrics import MetricWindow, Reducer, as_metrics, reduce_values
from stoker.pytorch.plan import FitPlan, Standing, score_of
from stoker.pytorch.progress import Progress
from stoker.pytorch.reporting import Reporter
from stoker.pytorch.run_info import InvalidHP
from stoker.pytorch.saving import CheckpointFolder
from stoker.pytorch.stops import StopSignals, StopVote
from stoker.pytorch.tensorboard import EventFile
from stoker.pytorch.trial import PyTorchTrial, check_trial
from stoker.pytorch.trial_context import PyTorchTrialContext

logger = logging.getLogger(__name__)


class Fitting:
    """The single steps of the loop. Made by `open_fitting`, which also closes what is opened here."""

    def __init__(
        self, trial: PyTorchTrial, context: PyTorchTrialContext, plan: FitPlan, stream: TrainingStream
    ) -> None:
        self.trial = trial
        self.context = context
        self.plan = plan
        self.epoch_length = stream.batches_per_epoch
        self.last_step = plan.last_step(self.epoch_length)
        self.standing = Standing()
        self.metrics: dict[str, Any] = {}  # what fit returns: of the last validation, or else of the last report
        self.samples = 0  # in the batch under way
        self.saved_path: str | None = plan.latest_checkpoint
        self.signals = StopSignals(context.run)
        self.callbacks = Callbacks(trial.build_callbacks())
        self.evaluation: Evaluation | None = None
        self.reporter: Reporter | None = None  # rank 0's, as is the folder
        self.folder: CheckpointFolder | None = None
        self._stream = stream
        self._window = MetricWindow("train_batch")
        self._vote = StopVote(context.distributed)
        self._trained = 0  # batches in this process
        self._save_wanted = False

    def train_batch(self) -> None:
        """Learn from the next batch."""
        context, step = self.context, self.standing.step
        epoch = context.epoch_of(step)
        context.begin_batch(step)
        if context.is_epoch_start():
            for callback in self.callbacks:
                callback.on_training_epoch_start(epoch)
        batch = next(self._stream)
        context.loss_weight = self._stream.weight
        self.samples = self.trial.get_batch_length(batch)
        returned = self.trial.train_batch(batch=batch, epoch_idx=epoch, batch_idx=step)
        context.end_batch(step)
        self._window.add(as_metrics(returned, "train_batch"), self.samples if context.loss_weight else 0)
        self.standing.step = step + 1
        self._trained += 1
        if context.is_epoch_end():
            for callback in self.callbacks:
                callback.on_training_epoch_end(epoch)
        if self.folder is not None and self.reporter is not None:
            self.folder.announce()
            self.reporter.batch(step + 1)

    def stop_asked(self, *, after_validation: bool = False) -> bool:
        """Whether to end here. Every start trains a batch at least, or one stopped again and again would never end."""
        if not self._trained:
            return False
        asked = self.signals.asked or self.context.get_stop_requested()
        return self._vote.any_asked(self.standing.step, asked, now=after_validation)

    def is_over(self) -> bool:
        return self.standing.step >= self.last_step

    def report_is_due(self) -> bool:
        return self._is_due(self.plan.reporting_period)

    def validation_is_due(self) -> bool:
        """By the period, at the end, or before the first batch if asked for; once for each step."""
        step = self.standing.step
        if self.evaluation is None or self.standing.validated_at == step:
            return False
        return (
            step == self.last_step
            or self._is_due(self.plan.validation_period)
            or (step == 0 and self.plan.step_zero_validation)
        )

    def checkpoint_is_due(self) -> bool:
        """By the period, or because a validation was the best yet."""
        return self._save_wanted or self._is_due(self.plan.checkpoint_period)

    def _is_due(self, period: Any) -> bool:
        return period is not None and period.is_due(self.standing.step, self.epoch_length)

    def report(self) -> None:
        """Read the metrics of the batches since the last report, and say them. Collective."""
        if not self._window.samples:
            return
        context, step = self.context, self.standing.step
        by_batch, samples = self._window.read(), self._window.samples
        self._window.clear()
        mine = {
            name: reduce_values(Reducer.AVG, [(row[name], n) for row, n in zip(by_batch, samples, strict=True)], name)
            for name in by_batch[0]
        }
        ranks = context.distributed.allgather((mine, self._bad_loss(by_batch)))
        metrics = {name: reduce_values(Reducer.AVG, [rank[name] for rank, _ in ranks])[0] for name in mine}
        metrics.update(context.reduce_metrics(for_training=True))
        metrics.update(batches=step, epochs=context.epoch_of(step))
        context.reducers.reset()
        for callback in self.callbacks:
            callback.on_training_workload_end(metrics, by_batch)
        if self.reporter is not None:
            self.reporter.training(step, metrics)
        if self.standing.validated_at < 0:
            self.metrics = metrics
        self._complain([bad for _, bad in ranks if bad])

    def _bad_loss(self, by_batch: list[dict[str, Any]]) -> str | None:
        """The first loss that is not finite, in words."""
        for batch_idx, row in enumerate(by_batch, start=self.standing.step - len(by_batch)):
            for name, value in row.items():
                if name.endswith("loss") and isinstance(value, float) and not math.isfinite(value):
                    return f"{name} is {value} at batch {batch_idx} (epoch {self.context.epoch_of(batch_idx)})"
        return None

    def _complain(self, bad: list[str]) -> None:
        if bad and self.plan.stop_on_nan:  # on all ranks alike, so that none waits for another
            raise StokerError(f"{bad[0]}, and fit was told stop_on_nan. Lower the learning rate, or clip gradients.")
        if bad and self.reporter is not None:
            logger.warning("%s; fit(stop_on_nan=True) would end here", bad[0])

    def validate(self) -> None:
        """Evaluate, report, and find out whether this is the best yet. Collective."""
        assert self.evaluation is not None  # validation_is_due saw it
        context, standing, plan = self.context, self.standing, self.plan
        metrics = self.evaluation.run(limit=1 if plan.test_mode else None)
        score = score_of(metrics, plan.metric)
        better = standing.improves(score, smaller_is_better=plan.smaller_is_better)
        if better:
            standing.best = score
        standing.validated_at = standing.step
        standing.score = score
        if score is None and plan.checkpoint_policy == "best" and self.reporter is not None:
            logger.warning("which metric is best? Pass fit(metric=…); until then every validation is saved")
        self._save_wanted = plan.checkpoint_policy == "all" or (
            plan.checkpoint_policy == "best" and (better or score is None)
        )
        self.metrics = metrics
        if self.reporter is not None:
            counts = {"batches": standing.step, "epochs": context.epoch_of(standing.step)}
            self.reporter.validation(standing.step, {**metrics, **counts})

    def checkpoint(self) -> None:
        """Save everything, unless this step is saved already. Collective."""
        context, standing = self.context, self.standing
        self._save_wanted = False
        if standing.checkpointed_at == standing.step:
            return
        standing.checkpointed_at = standing.step
        counters = {**asdict(standing), "epoch": context.epoch_of(standing.step)}
        description = snapshot.describe(context, self.trial, counters)
        taken = snapshot.take(context, self.callbacks, self._stream, description)
        if self.folder is not None and taken is not None:
            validated = standing.validated_at == standing.step
            score = standing.score if validated else None
            path = self.folder.save(taken, score=score, metadata={"framework": "stoker.pytorch"})
            self.saved_path = str(path)
        if self.callbacks.watch_writes:
            self._wait_for_write()

    def _wait_for_write(self) -> None:
        if self.folder is not None:
            self.folder.finish()
        self.saved_path = self.context.distributed.broadcast(self.saved_path)
        assert self.saved_path is not None  # just saved
        self.callbacks.wrote(self.saved_path, is_chief=self.folder is not None)

    def leave_if_told(self) -> None:
        """After a stop: end the process if it was told to from outside, on all ranks alike."""
        self.context.set_stop_requested(False)  # it was obeyed; another fit may follow
        if any(self.context.distributed.allgather(self.signals.asked)):
            self.signals.leave(self.standing.step, self.saved_path)


@contextmanager
def open_fitting(
    trial: PyTorchTrial, context: PyTorchTrialContext, plan: FitPlan, *, training_data: Any, validation_data: Any
) -> Iterator[Fitting]:
    """Open data and outputs, put back the checkpoint, call the hooks up to on_training_start; and close it all."""
    check_trial(trial)
    if not context.models:
        logger.warning("no model was wrapped with context.wrap_model: checkpoints will hold no weights")
    checkpoint = None if plan.latest_checkpoint is None else read_checkpoint(plan.latest_checkpoint)
    continues = checkpoint is not None and checkpoint.description["trial_id"] == context.run.trial_id
    stream = _open_stream(context, training_data, checkpoint if continues else None)
    with ExitStack() as closing:
        closing.callback(stream.close)
        fitting = Fitting(trial, context, plan, stream)
        if validation_data is not None:
            fitting.evaluation = Evaluation(trial, context, fitting.callbacks, validation_data)
        if checkpoint is not None and continues:
            fitting.standing = Standing.read(checkpoint.description)
        context.begin_training(fitting.standing.step, fitting.epoch_length)
        _put_back(fitting, checkpoint)
        if context.distributed.rank == 0:
            _open_outputs(fitting, closing)
        closing.enter_context(fitting.signals)
        if context.profiler is not None:
            closing.enter_context(context.profiler)
            closing.callback(setattr, context, "profiler", None)  # it cannot be started twice
        _start(fitting, closing)
        if checkpoint is not None and continues:
            snapshot.put_back_rng(checkpoint, context)
        del checkpoint  # as large as the model
        with _translated_errors(fitting):
            yield fitting


def _open_stream(context: PyTorchTrialContext, data: Any, checkpoint: Checkpoint | None) -> TrainingStream:
    rank = context.distributed.rank
    return open_training(
        data,
        seed=context.settings.seed,
        rank=rank,
        size=context.distributed.size,
        device=context.device if context.auto_to_device else "cpu",
        state=None if checkpoint is None else snapshot.data_state(checkpoint, rank),
    )


def _put_back(fitting: Fitting, checkpoint: Checkpoint | None) -> None:
    context = fitting.context
    if checkpoint is not None:
        snapshot.put_back(checkpoint, context, fitting.callbacks)
    elif context.distributed.rank:
        # Weights came from one seed on all ranks; from here on each draws its own dropout.
        rng.seed_all(rng.seed_of_rank(context.settings.seed, context.distributed.rank))


def _open_outputs(fitting: Fitting, closing: ExitStack) -> None:
    context, plan = fitting.context, fitting.plan
    progress = None
    if plan.progress:
        progress = Progress(sys.stderr, first=fitting.standing.step, total=fitting.last_step)
    events = EventFile(context.get_tensorboard_path()) if context.get_enable_tensorboard_logging() else None
    fitting.reporter = Reporter(context.run, events=events, progress=progress, total=fitting.last_step)
    fitting.folder = CheckpointFolder(context.run, keep=plan.keep, smaller_is_better=plan.smaller_is_better)
    closing.callback(fitting.reporter.close)
    closing.callback(fitting.folder.close)


def _start(fitting: Fitting, closing: ExitStack) -> None:
    for callback in fitting.callbacks:
        closing.callback(callback.on_trial_shutdown)
    if fitting.folder is not None:
        closing.callback(fitting.folder.finish)  # what was saved before an error counts, too
    for callback in fitting.callbacks:
        callback.on_trial_startup(fitting.standing.step, fitting.plan.latest_checkpoint)
    for callback in fitting.callbacks:
        callback.on_training_start()
    fitting.context.reducers.reset()


@contextmanager
def _translated_errors(fitting: Fitting) -> Iterator[None]:
    try:
        yield
    except InvalidHP:
        fitting.checkpoint()
        raise
    except RuntimeError as error:
        if not _is_out_of_memory(error):
            raise
        batch = f"batch {fitting.standing.step}, of {fitting.samples} sample(s)"
        raise StokerError(
            f"Out of memory on {fitting.context.device} at {batch}: {str(error).splitlines()[0]} Try a smaller batch"
            " size (init(aggregation_frequency=…) makes up for it), precision='bf16', or strategy='fsdp'."
        ) from error


def _is_out_of_memory(error: Exception) -> bool:
    return isinstance(error, torch.cuda.OutOfMemoryError) or "can't allocate memory" in str(error)
