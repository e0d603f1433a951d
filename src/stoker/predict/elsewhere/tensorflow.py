"""A SavedModel in a process that has TensorFlow, for a stoker that has none."""

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stoker.errors import ConfigError
from stoker.predict.base import Instance, Prediction
from stoker.predict.instances.answers import as_predictions
from stoker.predict.instances.arrays import arrays
from stoker.predict.instances.blame import predict_or_blame
from stoker.schema.bundle import FieldSpec, ModelCard, Signature

if TYPE_CHECKING:
    from stoker.predict.elsewhere.runtime import Process


class RemoteSavedModel:
    """As `loaders.tensorflow` has it: instances are checked here, and go over as lists by the inputs' names."""

    def __init__(self, process: "Process", card: ModelCard, folder: Path) -> None:
        self._process = process
        said = process.start()
        if "error" in said:
            raise ConfigError(f"{folder} cannot be loaded by {process.python}: {said['error']}: {said['message']}")
        fields = (FieldSpec.model_validate(field) for field in said["inputs"])
        self.card = card.with_(signature=Signature(inputs=tuple(fields)))

    def predict(self, instances: Sequence[Instance]) -> list[Prediction]:
        return predict_or_blame(self._predict, instances, about=(ValueError,))

    def _predict(self, instances: Sequence[Instance]) -> list[Prediction]:
        if not instances:
            return []
        stacked = arrays(instances, self.card.signature)
        found = self._process.ask("predict", [[name, _as_text(value.tolist())] for name, value in stacked.items()])
        return as_predictions(next(iter(found.values())) if len(found) == 1 else found)


def _as_text(value: Any) -> Any:
    """Bytes as JSON can hold them."""
    if isinstance(value, bytes):
        return {"b64": base64.b64encode(value).decode()}
    return [_as_text(item) for item in value] if isinstance(value, list) else value
