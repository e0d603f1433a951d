"""The trainer's context: what `init` returns. Build a trial with it, train it, load it, predict with it."""

import logging
import os
from collections.abc import Mapping
from types import TracebackType
from typing import Any, NoReturn, TypeVar

import stoker.context
from stoker.errors import UsageError
from stoker.pytorch import rng
from stoker.pytorch.checkpoint import read_description
from stoker.pytorch.distributed import DistributedContext
from stoker.pytorch.inference import predict
from stoker.pytorch.loading import build_with_weights, find_checkpoint
from stoker.pytorch.parallel import STRATEGIES
from stoker.pytorch.precision import Precision
from stoker.pytorch.run_info import InvalidHP, Settings
from stoker.pytorch.trainer import Trainer
from stoker.pytorch.trial import PyTorchTrial
from stoker.pytorch.trial_context import PyTorchTrialContext
from stoker.pytorch.units import TrainUnit

logger = logging.getLogger(__name__)


T = TypeVar("T", bound=PyTorchTrial)


def init(  # noqa: PLR0913 - one call says all of a process; the first five are Determined's
    *,
    hparams: Mapping[str, Any] | None = None,
    exp_conf: Mapping[str, Any] | None = None,
    distributed: DistributedContext | None = None,
    aggregation_frequency: int = 1,
    enable_tensorboard_logging: bool = True,
    seed: int | None = None,
    precision: str = "fp32",
    compile: bool | dict[str, Any] = False,
    strategy: str = "ddp",
) -> "TrainerContext":
    """Join the run this process is part of, or be one of its own, and seed everything.

    `hparams` are defaults for those the run does not set. `aggregation_frequency`: batches to an optimizer step.
    `precision`: "fp32", "bf16" or "fp16". `compile`: torch.compile for wrapped models, or its options as a
    dict. `strategy`: "ddp" or "fsdp".
    """
    if not isinstance(aggregation_frequency, int) or aggregation_frequency < 1:
        raise UsageError(f"aggregation_frequency={aggregation_frequency!r}: expected a whole number of at least 1.")
    if strategy not in STRATEGIES:
        raise UsageError(f"strategy={strategy!r}: expected one of {', '.join(STRATEGIES)}.")
    run = stoker.context.init(hparams=dict(hparams or {}))
    document = run.origin.document if run.origin is not None else None
    settings = Settings(
        seed=run.seed if seed is None else seed,
        # An experiment's own file counts for more than what the code says of it.
        exp_conf=dict(document or exp_conf or {}),
        aggregation_frequency=aggregation_frequency,
        precision=Precision.parse(precision),
        compile=compile,
        strategy=strategy,
        tensorboard=enable_tensorboard_logging,
    )
    rng.seed_all(settings.seed)
    return TrainerContext(run, distributed or DistributedContext.from_env(), settings)


class TrainerContext(PyTorchTrialContext):
    """Both contexts in one: pass it to a trial as it is, or let `build_trial` give each trial one of its own."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._contexts: list[tuple[PyTorchTrial, PyTorchTrialContext]] = []

    def build_trial(self, trial_class: type[T], *args: Any, **kwargs: Any) -> T:
        """Make a trial. Several can be built; each has its own models, optimizers and counters."""
        context = self._new_context()
        try:
            trial = trial_class(context, *args, **kwargs)
        except InvalidHP as error:
            self._end_politely(error)
        self._contexts.append((trial, context))
        return trial

    def train(
        self,
        trial: PyTorchTrial,
        training_data: Any = None,
        validation_data: Any = None,
        *,
        min_validation_period: TrainUnit | None = None,
        min_checkpoint_period: TrainUnit | None = None,
        **settings: Any,
    ) -> dict[str, Any]:
        """Train a trial and return the last metrics. The settings are those of `Trainer.fit`.

        Loaders given here win over those the trial builds.
        """
        settings.setdefault("validation_period", min_validation_period)
        settings.setdefault("checkpoint_period", min_checkpoint_period)
        trainer = Trainer(trial, self)
        try:
            return trainer.fit(training_data=training_data, validation_data=validation_data, **settings)
        except InvalidHP as error:
            self._end_politely(error)

    fit = train

    def predict(self, trial: PyTorchTrial, data: Any, **settings: Any) -> Any:
        """What the trial says about each sample, in the data's order; `inference.predict` has the settings."""
        return predict(trial, data, context=self.context_of(trial), **settings)

    def load_checkpoint_trial(
        self,
        trial_class: type[T],
        *,
        trial_id: int | None = None,
        checkpoint: "str | os.PathLike[str] | None" = None,
        path: "str | os.PathLike[str] | None" = None,
        trial_kwargs: Mapping[str, Any] | None = None,
    ) -> T:
        """A trial with the weights of a checkpoint (a path), or of a trial's newest one.

        It is built with the hyperparameters it was trained with; those of this context fill in what is new since.
        """
        given = [value for value in (trial_id, checkpoint, path) if value is not None]
        if len(given) != 1:
            raise UsageError("load_checkpoint_trial needs trial_id=, checkpoint= or path=, and just one of them.")
        folder = checkpoint or path or find_checkpoint(self.run.run_dir, int(trial_id or 0))
        context = self._new_context()
        context.hparams = {**self.hparams, **read_description(folder)["hparams"]}
        trial = build_with_weights(trial_class, context, folder, trial_kwargs or {})
        self._contexts.append((trial, context))
        return trial

    def __enter__(self) -> "TrainerContext":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if error is None or isinstance(error, InvalidHP | SystemExit):
            self.close()
        # After an error the other ranks may be waiting for this one, and NCCL would wait for them while it closes.
        if isinstance(error, InvalidHP):
            self._end_politely(error)

    def close(self) -> None:
        """Leave the other ranks and close what the run has open."""
        self.distributed.close()
        self.run.__exit__()

    def _new_context(self) -> PyTorchTrialContext:
        return PyTorchTrialContext(self.run, self.distributed, self.settings, self.resuming)

    def context_of(self, trial: PyTorchTrial) -> PyTorchTrialContext:
        """The one it was built with: `MyTrial(context)` was given this one."""
        return next((context for known, context in self._contexts if known is trial), self)

    def _end_politely(self, error: InvalidHP) -> NoReturn:
        """Say that the hyperparameters cannot work, and end as if all were well: a search goes on with others."""
        logger.warning("these hyperparameters cannot work: %s", error)
        if self.distributed.rank == 0:
            self.run.invalid_hp(str(error))
        raise SystemExit(0) from error
