"""The user's own code: a predictor.py beside the model, or AI Platform's custom prediction routine.

predictor.py     load(model_dir) and predict(instances); or load() returns an object with predict(instances)
the class        from_path(cls, model_dir) and predict(self, instances, **kwargs), named by `module.Class`
"""

import inspect
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from stoker.errors import ConfigError, StokerError
from stoker.predict.base import Instance, Prediction, Predictor
from stoker.predict.instances.answers import as_predictions
from stoker.predict.instances.blame import predict_or_blame
from stoker.predict.instances.checking import checked
from stoker.schema.bundle import ModelCard

FILE = "predictor.py"

Predict = Callable[[Sequence[Instance]], Any]


def load(folder: Path, card: ModelCard) -> Predictor:
    # A bundle's files are all listed in its card; what Python would leave beside them is not.
    sys.dont_write_bytecode = True
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    name = card.metadata.get("prediction_class")
    return CustomPredictor(_of_class(str(name), folder) if name else _of_file(folder), card)


class CustomPredictor:
    """What the code answers, one prediction for each instance. Its own failures are StokerErrors that say so."""

    def __init__(self, call: Predict, card: ModelCard) -> None:
        self.card = card
        self._call = call

    def predict(self, instances: Sequence[Instance]) -> list[Prediction]:
        if self.card.signature.inputs:
            checked(instances, self.card.signature)
        return predict_or_blame(self._predict, instances)

    def _predict(self, instances: Sequence[Instance]) -> list[Prediction]:
        if not instances:
            return []
        try:
            found = self._call(list(instances))
        except (StokerError, ValueError, TypeError, LookupError, ArithmeticError):
            raise  # about what it was given
        except Exception as error:
            raise StokerError(f"The model's own code failed: {type(error).__name__}: {error}") from error
        if isinstance(found, dict) or not hasattr(found, "__iter__"):
            raise StokerError(f"The model's own code answered with a {type(found).__name__}, not a list.")
        return as_predictions(found if hasattr(found, "tolist") else list(found))


def _of_file(folder: Path) -> Predict:
    path = folder / FILE
    if not path.is_file():
        raise ConfigError(f"No {FILE} in {folder}: it should have load(model_dir) and predict(instances).")
    spec = spec_from_file_location(f"stoker_predictor_{abs(hash(str(path)))}", path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path} is no Python module.")
    module = module_from_spec(spec)
    model = None
    try:
        spec.loader.exec_module(module)
        if hasattr(module, "load"):
            model = module.load(str(folder))
    except Exception as error:  # noqa: BLE001  it is the user's code
        raise ConfigError(f"{path} fails while it is loaded: {type(error).__name__}: {error}") from error
    call: Predict | None = getattr(module, "predict", None) or getattr(model, "predict", None)
    if call is None:
        raise ConfigError(f"{path} has no predict(instances), and neither has what its load(model_dir) returns.")
    return call


def _of_class(name: str, folder: Path) -> Predict:
    module, _, attribute = name.rpartition(".")
    if not module:
        raise ConfigError(f"The prediction class {name!r} has no module: write it as module.Class.")
    try:
        made = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        what = f"No prediction class {name!r}: {error}."
        raise ConfigError(f"{what} Install its package here, or put its module into {folder}.") from error
    if not callable(getattr(made, "from_path", None)) or not callable(getattr(made, "predict", None)):
        raise ConfigError(f"{name} needs from_path(cls, model_dir) and predict(self, instances, **kwargs).")
    _check_arguments(made, name)
    try:
        call: Predict = made.from_path(str(folder)).predict
    except Exception as error:  # noqa: BLE001  it is the user's code
        raise ConfigError(f"{name}.from_path fails: {type(error).__name__}: {error}") from error
    return call


def _check_arguments(made: Any, name: str) -> None:
    """As AI Platform did, before any instance comes."""
    for method, given in (("from_path", ["DIR"]), ("predict", [None, []])):
        try:
            inspect.signature(getattr(made, method)).bind(*given)
        except TypeError as error:
            wanted = "from_path(cls, model_dir)" if method == "from_path" else "predict(self, instances, **kwargs)"
            raise ConfigError(f"{name}.{method} does not take {wanted}: {error}.") from error
