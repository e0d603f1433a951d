"""XGBoost's models: model.bst (any format it writes), or a pickle of one of its estimators."""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import xgboost

from stoker.errors import ConfigError, UsageError
from stoker.predict.base import Instance, Prediction, Predictor
from stoker.predict.instances.answers import as_predictions
from stoker.predict.instances.arrays import Array, matrix
from stoker.predict.instances.blame import predict_or_blame
from stoker.predict.instances.signatures import of_booster
from stoker.predict.loaders import sklearn
from stoker.predict.versions import warn_of_other_versions
from stoker.schema.bundle import CARD, ModelCard

if TYPE_CHECKING:
    import pyarrow

_FILES = ("model.bst", "model.ubj")
# Names from a card are looked up here, never in the module: a card is not trusted.
_ESTIMATORS = ("XGBClassifier", "XGBRegressor", "XGBRanker", "XGBRFClassifier", "XGBRFRegressor")


def load(folder: Path, card: ModelCard, *, signature_name: str | None = None) -> Predictor:
    """`signature_name` is an estimator's method: predict (the default) or predict_proba."""
    warn_of_other_versions(card)
    path = _model_file(folder, card)
    if path is None:
        return sklearn.load(folder, card, signature_name=signature_name)
    name = card.metadata.get("estimator")
    is_estimator = name in _ESTIMATORS
    model = getattr(xgboost, str(name))() if is_estimator else xgboost.Booster()
    try:
        model.load_model(bytearray(path.read_bytes()))  # of a path it would guess by the ending, and warn
    except (ValueError, TypeError) as error:  # XGBoostError is a ValueError
        what = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise ConfigError(f"{path} cannot be loaded by XGBoost {xgboost.__version__}: {what}") from error
    if not is_estimator:
        return of_booster_object(model, card)
    if not card.signature.inputs:
        card = card.with_(signature=of_booster(model.get_booster()))
    method = signature_name or str(card.metadata.get("method", "predict"))
    method = "predict" if method == "serving_default" else method
    if method not in ("predict", "predict_proba") or not hasattr(model, method):
        raise UsageError(f"{name} has no {method!r}. Give predict or predict_proba as --signature-name.")
    return _predictor(getattr(model, method), card)


class XgboostPredictor:
    """Rows of numbers in, what the model's objective (or its estimator) gives out."""

    def __init__(self, call: Callable[[Array], Any], card: ModelCard) -> None:
        self.card = card
        self._call = call

    def predict(self, instances: Sequence[Instance]) -> list[Prediction]:
        return predict_or_blame(self._predict, instances)

    def _predict(self, instances: Sequence[Instance]) -> list[Prediction]:
        return as_predictions(self._call(matrix(instances, self.card.signature))) if instances else []


class XgboostTablePredictor(XgboostPredictor):
    """One whose features have names takes whole columns too; one thread after another, for XGBoost has its own."""

    def __init__(self, call: Callable[[Array], Any], card: ModelCard) -> None:
        super().__init__(call, card)
        self._turn = threading.Lock()

    def predict_table(self, table: "pyarrow.Table") -> "pyarrow.Table":
        from stoker.predict.instances.tables import answer_table, checked_table, matrix_of  # noqa: PLC0415  pyarrow is an extra

        rows = matrix_of(checked_table(table, self.card.signature))
        with self._turn:
            answers = self._call(rows)
        return answer_table(answers)


def _predictor(call: Callable[[Array], Any], card: ModelCard) -> Predictor:
    named = all(spec.name for spec in card.signature.inputs)
    return (XgboostTablePredictor if named else XgboostPredictor)(call, card)


def _model_file(folder: Path, card: ModelCard) -> Path | None:
    names = _FILES if card.files else (*_FILES, CARD)  # without a card, model.json is the model
    return next((folder / name for name in names if (folder / name).is_file()), None)


def of_booster_object(booster: Any, card: ModelCard) -> Predictor:
    """Of a booster that came out of a pickle."""
    if not card.signature.inputs:
        card = card.with_(signature=of_booster(booster))
    card = card.with_(framework="xgboost")
    return _predictor(_on_matrix(booster), card)


def _on_matrix(booster: Any) -> Callable[[Array], Any]:
    names = booster.feature_names
    return lambda rows: booster.predict(xgboost.DMatrix(rows, feature_names=names))
