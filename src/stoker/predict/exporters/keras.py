"""Keras models as model.keras; as a SavedModel when asked for and TensorFlow is the backend."""

from pathlib import Path
from typing import Any

import keras

from stoker.errors import ConfigError
from stoker.predict.exporters import Details, Exported, no_such_format
from stoker.predict.instances.signatures import of_keras


def export(model: Any, *, example: Any, format: str | None, details: Details) -> Exported:
    if format not in (None, "keras", "saved_model"):
        raise no_such_format(format, "Keras", ["keras", "saved_model"])
    if not model.built:
        raise ConfigError("The Keras model is not built: give it an Input layer, or call it on a batch first.")
    backend = keras.backend.backend()
    if format == "saved_model":
        if backend != "tensorflow":
            raise ConfigError(f"A SavedModel needs Keras on TensorFlow; this one is on {backend}. Leave format out.")
        packages = ("tensorflow", "keras")
        return Exported("tensorflow", lambda folder: model.export(str(folder), verbose=False), packages=packages)

    def fill(folder: Path) -> None:
        model.save(folder / "model.keras")

    return Exported("keras", fill, of_keras(model), packages=("keras", "numpy"), metadata={"backend": backend})
