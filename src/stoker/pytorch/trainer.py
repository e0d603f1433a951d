"""The training loop. `Trainer.fit` is all of it."""

from typing import Any

import torch

from stoker.errors import UsageError
from stoker.pytorch.checkpoint import read_description
from stoker.pytorch.fitting import open_fitting
from stoker.pytorch.plan import FitPlan
from stoker.pytorch.saving import Keep
from stoker.pytorch.trial import PyTorchTrial, overrides
from stoker.pytorch.trial_context import PyTorchTrialContext
from stoker.pytorch.units import Batch, TrainUnit, unit_of


class Trainer:
    """Trains a trial: `Trainer(MyTrial(context), context).fit(max_length=Epoch(10))`."""

    def __init__(self, trial: PyTorchTrial, context: PyTorchTrialContext) -> None:
        if not isinstance(trial, PyTorchTrial):
            raise UsageError(f"Trainer got a {type(trial).__name__}: expected an instance of a PyTorchTrial of yours.")
        self._trial = trial
        self._context = context.context_of(trial)

    def fit(  # noqa: PLR0913 - one call says all of a training; the first nine are Determined's
        self,
        checkpoint_period: TrainUnit | None = None,
        validation_period: TrainUnit | None = None,
        max_length: TrainUnit | None = None,
        reporting_period: TrainUnit | None = Batch(100),
        checkpoint_policy: str = "best",
        latest_checkpoint: str | None = None,
        step_zero_validation: bool = False,
        test_mode: bool = False,
        profiling_enabled: bool = False,
        *,
        training_data: Any = None,
        validation_data: Any = None,
        metric: str | None = None,
        smaller_is_better: bool | None = None,
        keep: Keep | None = Keep(),
        stop_on_nan: bool = False,
        progress: bool = True,
    ) -> dict[str, Any]:
        """Train, and return the last metrics. Hooks of callbacks, in place:

            on_checkpoint_load_start                 if it goes on from a checkpoint
            on_trial_startup, on_training_start
            until max_length, or told to stop:
                on_training_epoch_start              before the first batch of an epoch
                trial.train_batch                    then LR schedulers
                on_training_epoch_end                after the last batch of an epoch
                if reporting, validation or a checkpoint is due:
                    on_training_workload_end         then the metrics are reported
                if validation is due:
                    on_validation_start, on_validation_epoch_start
                    trial.evaluate_batch             for every batch
                    on_validation_epoch_end, on_validation_end
                if a checkpoint is due, or the validation was the best yet:
                    on_checkpoint_save_start
                    on_checkpoint_write_end, on_checkpoint_upload_end
            on_trial_shutdown

        At the end there is a validation and a checkpoint in any case. A stop asked for from outside (a signal, the
        supervisor) is obeyed after the batch under way: a checkpoint, and the process ends. One asked for with
        `context.set_stop_requested` returns from here instead. Neither validates first; the run that goes on does.
        """
        context = self._context
        plan = FitPlan(
            max_length=Batch(1) if test_mode else self._max_length(max_length),
            validation_period=validation_period or context.told("validation_period"),
            checkpoint_period=checkpoint_period or context.told("checkpoint_period"),
            reporting_period=reporting_period,
            checkpoint_policy=checkpoint_policy,
            latest_checkpoint=self._latest_checkpoint(latest_checkpoint),
            step_zero_validation=step_zero_validation,
            test_mode=test_mode,
            metric=metric or context.searcher_config.get("metric"),
            smaller_is_better=context.searcher_config.get("smaller_is_better", True)
            if smaller_is_better is None
            else smaller_is_better,
            keep=keep,
            stop_on_nan=stop_on_nan,
            progress=progress,
        )
        if profiling_enabled and context.profiler is None:
            context.set_profiler(schedule=torch.profiler.schedule(wait=2, warmup=2, active=6, repeat=1))
        data = self._training_data(training_data)
        validation = self._validation_data(validation_data)
        with open_fitting(self._trial, context, plan, training_data=data, validation_data=validation) as fitting:
            while True:
                stopping = fitting.stop_asked()
                if not stopping and fitting.validation_is_due():
                    fitting.report()
                    fitting.validate()
                    stopping = fitting.stop_asked(after_validation=True)
                over = stopping or fitting.is_over()
                if over or fitting.report_is_due() or fitting.checkpoint_is_due():
                    fitting.report()
                if over or fitting.checkpoint_is_due():
                    fitting.checkpoint()
                if over:
                    break
                fitting.train_batch()
        if stopping:
            fitting.leave_if_told()
        return fitting.metrics

    def _max_length(self, given: TrainUnit | None) -> TrainUnit:
        """An experiment's file decides how long its trials are; what `fit` says is for training without one."""
        context = self._context
        wanted = context.told("max_length") or given or unit_of(context.searcher_config.get("max_length"))
        if wanted is None:
            raise UsageError("How long to train? Pass fit(max_length=Epoch(10)) or fit(max_length=Batch(1000)).")
        return wanted

    def _latest_checkpoint(self, given: str | None) -> str | None:
        resuming = self._context.resuming
        number = resuming.next_fit()
        if given is not None or resuming.path is None:
            return given
        return resuming.path if read_description(resuming.path)["fit"] == number else None

    def _training_data(self, given: Any) -> Any:
        if given is not None:
            return given
        if not overrides(self._trial, "build_training_data_loader"):
            raise UsageError(
                f"No training data: pass fit(training_data=loader), or write {type(self._trial).__name__}"
                ".build_training_data_loader(self)."
            )
        return self._trial.build_training_data_loader()

    def _validation_data(self, given: Any) -> Any:
        if given is not None or not overrides(self._trial, "build_validation_data_loader"):
            return given
        return self._trial.build_validation_data_loader()
