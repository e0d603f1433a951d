"""XGBoost's models in its own format, under AI Platform's name: model.bst."""

from pathlib import Path
from typing import Any

from stoker.predict.exporters import Details, Exported, no_such_format
from stoker.predict.instances.signatures import of_booster, of_estimator


def export(model: Any, *, example: Any, format: str | None, details: Details) -> Exported:
    if format not in (None, "bst", "ubj", "json"):
        raise no_such_format(format, "XGBoost", ["bst", "json"])
    is_estimator = hasattr(model, "get_booster")
    name = "model.bst"

    def fill(folder: Path) -> None:
        # XGBoost chooses by the name's ending, and knows .bst no more.
        written = folder / ("model.json" if format == "json" else "model.ubj")
        model.save_model(written)
        written.rename(folder / name)

    signature = of_booster(model.get_booster()) if is_estimator else of_booster(model)
    labels = None
    if is_estimator and hasattr(model, "classes_"):
        labels = [str(label) for label in model.classes_]
        signature = signature.with_(outputs=of_estimator(model).outputs)
    metadata = {"estimator": _public_name(model)} if is_estimator else {}
    return Exported("xgboost", fill, signature, labels, ("xgboost", "xgboost-cpu", "numpy"), metadata)


def _public_name(model: Any) -> str:
    """XGBoost's own class, though the model may be of one derived from it."""
    names = [each.__name__ for each in type(model).__mro__ if each.__module__.startswith("xgboost.")]
    return names[0]
