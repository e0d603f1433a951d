"""TensorFlow's SavedModels, by the signature that is asked for."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tensorflow

from stoker.errors import ConfigError, UsageError
from stoker.predict.base import Instance, Prediction, Predictor
from stoker.predict.instances.answers import as_predictions
from stoker.predict.instances.arrays import arrays
from stoker.predict.instances.blame import predict_or_blame
from stoker.schema.bundle import Dtype, FieldSpec, ModelCard, Signature

_DEFAULT = "serving_default"


def load(folder: Path, card: ModelCard, *, signature_name: str | None = None) -> Predictor:
    try:
        model = tensorflow.saved_model.load(str(folder))
    except Exception as error:  # noqa: BLE001  TensorFlow's errors have no common class
        what = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ConfigError(f"{folder} cannot be loaded by TensorFlow {tensorflow.__version__}: {what}") from error
    names = sorted(name for name in model.signatures if not name.startswith("__"))
    wanted = signature_name or (_DEFAULT if _DEFAULT in names else next(iter(names), _DEFAULT))
    if wanted not in names:
        raise UsageError(f"{folder} has no signature {wanted!r}. There are: {', '.join(names) or 'none'}.")
    return SavedModelPredictor(model, model.signatures[wanted], card)


class SavedModelPredictor:
    """Predictions are objects by the outputs' names, or bare with one output, as AI Platform gave them."""

    def __init__(self, model: Any, function: Any, card: ModelCard) -> None:
        self._model = model  # it owns the variables, and must live as long as the function
        self._function = function
        self._specs = dict(function.structured_input_signature[1])
        self.card = card.with_(signature=Signature(inputs=tuple(map(_field, self._specs.items()))))

    def predict(self, instances: Sequence[Instance]) -> list[Prediction]:
        return predict_or_blame(self._predict, instances, about=(tensorflow.errors.OpError,))

    def _predict(self, instances: Sequence[Instance]) -> list[Prediction]:
        if not instances:
            return []
        stacked = arrays(instances, self.card.signature)
        given = {name: tensorflow.constant(stacked[name].tolist(), spec.dtype) for name, spec in self._specs.items()}
        found = {name: value.numpy() for name, value in self._function(**given).items()}
        return as_predictions(next(iter(found.values())) if len(found) == 1 else found)


def _field(item: tuple[str, Any]) -> FieldSpec:
    name, spec = item
    dtype: Dtype = "any"
    if spec.dtype == tensorflow.string:
        dtype = "bytes"
    elif spec.dtype.is_floating:
        dtype = "float"
    elif spec.dtype == tensorflow.bool:
        dtype = "boolean"
    elif spec.dtype.is_integer:
        dtype = "integer"
    shape = None if spec.shape.rank is None else tuple(spec.shape.as_list()[1:])
    return FieldSpec(name=name, dtype=dtype, shape=shape)
