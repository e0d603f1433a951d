"""Train a trial class by its experiment file alone: `entrypoint: model_def:MyTrial`, the older dialect's way."""

import importlib
import os
import sys
from collections.abc import Mapping
from typing import Any

from stoker import context as runs
from stoker import pytorch
from stoker.compat.determined import old_trial
from stoker.compat.determined.trial_context import init
from stoker.errors import StokerError, UsageError
from stoker.pytorch.units import unit_of


def train(spec: str) -> int:
    """Find the class, build it with the trial's hyperparameters, fit it as the file says."""
    try:
        train_class(find_class(spec))
    except StokerError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    return 0


def train_class(
    cls: type[Any], more: Mapping[str, Any] | None = None, hparams: Mapping[str, Any] | None = None
) -> None:
    """`more` are settings beside the file's, and `hparams` those that the run does not set."""
    origin = runs.init().origin
    settings = {**(origin.trainer.given() if origin is not None else {}), **(more or {})}
    if issubclass(cls, pytorch.PyTorchTrial):
        _train_pytorch(cls, settings, dict(hparams or {}))
    elif any(base.__name__ == "TFKerasTrial" for base in cls.__mro__):
        from stoker.compat.determined.keras_trial import train_keras  # noqa: PLC0415 - TensorFlow

        train_keras(cls, settings, dict(hparams or {}))
    else:
        raise UsageError(
            f"{cls.__module__}:{cls.__name__} is neither a PyTorchTrial nor a TFKerasTrial: those can be an entrypoint."
        )


def find_class(spec: str) -> type[Any]:
    module_name, _, class_name = spec.partition(":")
    sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name != module_name.split(".")[0]:
            raise  # something that it imports is missing: its traceback says where
        raise UsageError(
            f"entrypoint {spec}: there is no {module_name.replace('.', '/')}.py in the package."
        ) from error
    found = getattr(module, class_name, None)
    if not isinstance(found, type):
        raise UsageError(f"entrypoint {spec}: {module_name} has no class {class_name}.")
    return found


def _train_pytorch(cls: type[pytorch.PyTorchTrial], settings: dict[str, Any], hparams: dict[str, Any]) -> None:
    """Lengths and periods are in the run's data, where `fit` finds them by itself."""
    with init(hparams=hparams, aggregation_frequency=settings.get("aggregation_frequency", 1)) as context:
        trial = old_trial.build(cls, context) if old_trial.is_old(cls) else cls(context)
        names = ("step_zero_validation", "profiling_enabled", "test_mode")
        given = {name: settings[name] for name in names if name in settings}
        period = unit_of(settings.get("reporting_period"))
        pytorch.Trainer(trial, context).fit(
            reporting_period=period or pytorch.Batch(100),
            checkpoint_policy=settings.get("checkpoint_policy", "best"),
            **given,
        )
