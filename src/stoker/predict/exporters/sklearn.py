"""Scikit-learn's estimators as model.joblib, with what they know of their columns and classes."""

from pathlib import Path
from typing import Any

import joblib

from stoker.predict.exporters import Details, Exported, no_such_format
from stoker.predict.instances.signatures import of_array, of_estimator
from stoker.schema.bundle import Signature


def export(model: Any, *, example: Any, format: str | None, details: Details) -> Exported:
    if format not in (None, "joblib"):
        raise no_such_format(format, "scikit-learn", ["joblib"])

    def fill(folder: Path) -> None:
        joblib.dump(model, folder / "model.joblib")

    classes = getattr(model, "classes_", None)
    labels = None if classes is None or isinstance(classes, list) else [str(label) for label in classes]
    packages = ("scikit-learn", "joblib", "numpy", *(["pandas"] if hasattr(model, "feature_names_in_") else []))
    return Exported("sklearn", fill, _signature(model, example), labels, packages)


def _signature(model: Any, example: Any) -> Signature:
    """The model's own; where the example is a table, its columns say which kind they are and whether they have gaps."""
    own = of_estimator(model)
    if example is None or not hasattr(example, "columns"):
        return own
    inputs = []
    for name in example.columns:
        has_gaps = bool(example[name].isnull().any())
        spec = of_array(str(name), example[name].dropna().to_numpy(), nullable=has_gaps)
        # A column of whole numbers in an example may hold others elsewhere: to an estimator both are numbers.
        inputs.append(spec.with_(dtype="float") if spec.dtype == "integer" else spec)
    return own.with_(inputs=inputs)
