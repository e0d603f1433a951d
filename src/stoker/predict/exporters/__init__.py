"""Write a trained model as a bundle, whatever framework it is of; none is imported that the model's maker did not."""

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any, TypedDict, Unpack

from stoker.errors import ConfigError
from stoker.predict import bundle
from stoker.predict.instances.answers import as_json
from stoker.predict.versions import installed
from stoker.schema.bundle import ModelCard, Origin, Signature

# By the class that says so, the first that fits: a transformers model is a torch module, and so is Keras's on torch;
# XGBoost's estimators are scikit-learn's.
_EXPORTERS = (
    ("transformers.", "PreTrainedModel", "transformers"),
    ("keras.", "Model", "keras"),
    ("torch.", "Module", "torch"),
    ("xgboost.", "Booster", "xgboost"),
    ("xgboost.", "XGBModel", "xgboost"),
    ("sklearn.", "BaseEstimator", "sklearn"),
)


class Details(TypedDict, total=False):
    """What a bundle may say besides what the model knows of itself."""

    metrics: Mapping[str, float]
    labels: Sequence[Any]  # of classes, in the order of a classifier's outputs
    metadata: Mapping[str, Any]
    signature: Signature
    origin: Origin | Mapping[str, Any]
    tokenizer: Any  # of a transformers model


@dataclass(frozen=True, slots=True)
class Exported:
    """What an exporter found out: how to write the model's files, and what the card should say."""

    framework: str
    fill: Callable[[Path], None]
    signature: Signature = Signature()
    labels: Sequence[Any] | None = None
    packages: tuple[str, ...] = ()  # what it takes to predict
    metadata: dict[str, Any] = field(default_factory=dict)


def export(
    model: Any,
    folder: str | os.PathLike[str],
    *,
    name: str,
    example: Any = None,
    format: str | None = None,
    **details: Unpack[Details],
) -> ModelCard:
    """Write a bundle at `folder`: the framework is told by the model's type, a path's files are taken as they are.

    `example` is a batch of inputs (torch needs one; elsewhere it gives the inputs' kinds). `format` is "onnx" or
    "saved_model" for those instead of the framework's own. ConfigError says what is missing.
    """
    exported = _exported(model, example=example, format=format, details=details)
    labels = details.get("labels", exported.labels)
    card = ModelCard.parse(
        {
            "name": name,
            "framework": exported.framework,
            "signature": details.get("signature", exported.signature),
            "labels": None if labels is None else [str(label) for label in labels],
            "metrics": {key: float(value) for key, value in details.get("metrics", {}).items()},
            "metadata": as_json({**exported.metadata, **details.get("metadata", {})}),
            "requirements": installed(*exported.packages),
            "python": platform.python_version(),
            "created": datetime.now(UTC),
            "origin": details.get("origin", Origin()),
        },
        source=f"model {name!r}",
    )
    return bundle.write(Path(folder), card, exported.fill)


def _exported(model: Any, *, example: Any, format: str | None, details: Details) -> Exported:
    if isinstance(model, str | os.PathLike):
        from_files: Exported = _module("files").export(model)
        return from_files
    kind = kind_of(model)
    if kind is None:
        raise ConfigError(
            f"No exporter for a {type(model).__module__}.{type(model).__name__}. Save it to a folder with a"
            " predictor.py (load(model_dir), predict(instances)) and give the folder."
        )
    exported: Exported = _module(kind).export(model, example=example, format=format, details=details)
    return exported


def kind_of(model: Any) -> str | None:
    """Which framework's model it is, by the names of its classes."""
    classes = [(each.__module__ + ".", each.__name__) for each in type(model).__mro__]
    for module, name, kind in _EXPORTERS:
        if any(at.startswith(module) and found == name for at, found in classes):
            return kind
    return "sklearn" if hasattr(model, "predict") and hasattr(model, "fit") else None


def no_such_format(format: str, framework: str, known: Sequence[str]) -> ConfigError:
    """What to raise for a format that the framework has no way to write."""
    return ConfigError(f"A model of {framework} cannot be saved as {format!r}. There are: {', '.join(known)}.")


def _module(kind: str) -> Any:
    return import_module(f"{__name__}.{kind}")
