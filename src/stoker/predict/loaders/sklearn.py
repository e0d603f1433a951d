"""Scikit-learn's estimators, from pickles; the signature is what the estimator knows of itself."""

import warnings
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import joblib

from stoker.errors import ConfigError, StokerError, UsageError
from stoker.predict.base import Instance, Prediction, Predictor
from stoker.predict.instances.answers import as_predictions
from stoker.predict.instances.arrays import filled, matrix, width
from stoker.predict.instances.blame import BLOCK, predict_or_blame
from stoker.predict.instances.checking import checked
from stoker.predict.instances.signatures import of_estimator
from stoker.predict.versions import say_what_differs, warn_of_other_versions
from stoker.schema.bundle import ModelCard

if TYPE_CHECKING:
    import pyarrow

_FILES = ("model.joblib", "model.pkl")
_METHODS = ("predict", "predict_proba", "decision_function", "transform")


def load(folder: Path, card: ModelCard, *, signature_name: str | None = None) -> Predictor:
    """`signature_name` is the method to call: predict (the default), predict_proba, decision_function, transform."""
    warn_of_other_versions(card)
    return predictor(unpickled(folder), card, signature_name=signature_name)


def predictor(model: Any, card: ModelCard, *, signature_name: str | None = None) -> Predictor:
    """Of the estimator itself; XGBoost's boosters come in such pickles too, as on AI Platform."""
    if type(model).__module__.startswith("xgboost.") and type(model).__name__ == "Booster":
        from_booster: Predictor = import_module("stoker.predict.loaders.xgboost").of_booster_object(model, card)
        return from_booster
    method = signature_name or str(card.metadata.get("method", "predict"))
    if method in ("serving_default", ""):
        method = "predict"
    if method not in _METHODS or not hasattr(model, method):
        there = [name for name in _METHODS if hasattr(model, name)]
        raise UsageError(f"{card.name} has no {method!r}. Give one of {', '.join(there)} as --signature-name.")
    if type(model).__module__.startswith("xgboost."):
        card = card.with_(framework="xgboost")
    if not card.signature.inputs:
        card = card.with_(signature=of_estimator(model))
    if card.labels is None and getattr(model, "classes_", None) is not None:
        card = card.with_(labels=tuple(map(str, model.classes_)))
    return (TablePredictor if _takes_tables(card) else EstimatorPredictor)(model, card, method)


class EstimatorPredictor:
    """Anything with scikit-learn's `predict`."""

    def __init__(self, model: Any, card: ModelCard, method: str = "predict") -> None:
        self.model = model
        self.card = card
        self._call = getattr(model, method)
        self._names = [spec.name for spec in card.signature.inputs]
        self._is_numeric = width(card.signature) is not None
        # An estimator that was fitted on a table looks its columns up by name.
        self._frame = _frame() if getattr(model, "feature_names_in_", None) is not None else None

    def predict(self, instances: Sequence[Instance]) -> list[Prediction]:
        return predict_or_blame(self._predict, instances)

    def _predict(self, instances: Sequence[Instance]) -> list[Prediction]:
        return as_predictions(self._call(self._input(instances))[: len(instances)]) if instances else []

    def _input(self, instances: Sequence[Instance]) -> Any:
        signature = self.card.signature
        if not signature.inputs:
            return list(instances)
        if self._is_numeric:
            rows: Any = filled(matrix(instances, signature), BLOCK)
        else:
            rows = checked(instances, signature)
        if self._frame is not None:
            return self._frame(rows, columns=self._names)
        return [row[0] for row in rows] if len(self._names) == 1 and not self._is_numeric else rows


class TablePredictor(EstimatorPredictor):
    """One whose inputs are named numbers takes whole columns too."""

    def predict_table(self, table: "pyarrow.Table") -> "pyarrow.Table":
        from stoker.predict.instances.tables import answer_table, checked_table, matrix_of  # noqa: PLC0415  pyarrow is an extra

        rows = checked_table(table, self.card.signature)
        given = filled(matrix_of(rows), BLOCK)
        try:
            found = self._call(given if self._frame is None else self._frame(given, columns=self._names))
        except (ValueError, TypeError, LookupError) as error:
            self.predict(rows.to_pylist())  # names the row it fails on
            raise StokerError(f"{self.card.name} fails on a table, and on none of its rows: {error}") from error
        return answer_table(found[: rows.num_rows])


def _takes_tables(card: ModelCard) -> bool:
    inputs = card.signature.inputs
    return width(card.signature) == len(inputs) and all(spec.name for spec in inputs)


def unpickled(folder: Path) -> Any:
    """The object in model.joblib or model.pkl. Whoever calls has asked whether it is trusted."""
    path = next((folder / name for name in _FILES if (folder / name).is_file()), None)
    if path is None:
        raise ConfigError(f"No {' or '.join(_FILES)} in {folder}.")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            model = joblib.load(path)
        except ModuleNotFoundError as error:
            what = f"{path} needs the module {error.name!r}, which is not here."
            raise ConfigError(f"{what} Install the package that the model was trained with.") from error
        except Exception as error:  # noqa: BLE001  unpickling runs anything, so it raises anything
            raise ConfigError(f"{path} cannot be loaded: {type(error).__name__}: {error}".splitlines()[0]) from error
    say_what_differs(path, caught)
    if not callable(getattr(model, "predict", None)) and not callable(getattr(model, "transform", None)):
        raise ConfigError(f"{path} holds a {type(model).__name__}, which has no predict().")
    return model


def _frame() -> Any:
    try:
        from pandas import DataFrame  # noqa: PLC0415  only tables need it, and it takes a while
    except ModuleNotFoundError as error:
        raise ConfigError("This model was fitted on a table and needs pandas: pip install pandas.") from error
    return DataFrame
