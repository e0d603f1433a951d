"""Keras models (.keras), on the backend they were saved on when it is installed."""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from stoker.errors import ConfigError
from stoker.predict.base import Instance, Prediction, Predictor
from stoker.predict.instances.answers import as_predictions
from stoker.predict.instances.arrays import arrays
from stoker.predict.instances.blame import BLOCK, predict_or_blame
from stoker.predict.instances.signatures import of_keras
from stoker.predict.versions import warn_of_other_versions
from stoker.schema.bundle import ModelCard

_BACKENDS = ("tensorflow", "torch", "jax")
_SMALL = 2_000_000  # parameters; as for torch


def load(folder: Path, card: ModelCard) -> Predictor:
    warn_of_other_versions(card)
    path = next(iter(sorted(folder.glob("*.keras"))), None)
    if path is None:
        raise ConfigError(f"No .keras file in {folder}.")
    keras = _keras(str(card.metadata.get("backend", "")))
    try:
        # Safe mode refuses layers that are Python code (Lambda), which would run with our rights.
        model = keras.saving.load_model(path, compile=False, safe_mode=True)
    except Exception as error:  # noqa: BLE001  a broken file, another version, a layer of the user's own
        what = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise ConfigError(f"{path} cannot be loaded by Keras {keras.__version__}: {what[:300]}") from error
    if not card.signature.inputs:
        card = card.with_(signature=of_keras(model))
    return KerasPredictor(model, card)


class KerasPredictor:
    """One input: bare arrays or rows. Several: objects by the inputs' names."""

    def __init__(self, model: Any, card: ModelCard) -> None:
        self.card = card
        self.model = model
        self._block = BLOCK if model.count_params() <= _SMALL else 1
        self._dtypes = [str(tensor.dtype) for tensor in getattr(model, "inputs", None) or ()]

    def predict(self, instances: Sequence[Instance]) -> list[Prediction]:
        return predict_or_blame(self._predict, instances, about=(RuntimeError,), block=self._block)

    def _predict(self, instances: Sequence[Instance]) -> list[Prediction]:
        if not instances:
            return []
        given = list(arrays(instances, self.card.signature).values())
        if len(self._dtypes) == len(given):
            given = [value.astype(dtype) for value, dtype in zip(given, self._dtypes, strict=True)]
        found = self.model.predict_on_batch(given[0] if len(given) == 1 else given)
        if isinstance(found, list | tuple):
            found = dict(zip([str(name) for name in self.model.output_names], found, strict=True))
        return as_predictions(found)


def _keras(saved_on: str) -> Any:
    """The module. It chooses its backend when it is first imported, and fails if that one is not there."""
    if "keras" not in sys.modules and "KERAS_BACKEND" not in os.environ:
        there = [name for name in (saved_on, *_BACKENDS) if name in _BACKENDS and find_spec(name)]
        if not there:
            raise ConfigError(f"Keras needs one of {', '.join(_BACKENDS)}, and none is installed: pip install torch.")
        os.environ["KERAS_BACKEND"] = there[0]
    return import_module("keras")
