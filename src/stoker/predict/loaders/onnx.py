"""ONNX models, run by onnxruntime on the CPU."""

from collections.abc import Sequence
from pathlib import Path

import onnxruntime  # type: ignore[import-not-found,unused-ignore]  # an extra that few have

from stoker.errors import ConfigError
from stoker.predict.base import Instance, Prediction, Predictor
from stoker.predict.instances.answers import as_predictions
from stoker.predict.instances.arrays import arrays
from stoker.predict.instances.blame import predict_or_blame
from stoker.predict.instances.signatures import kind_of_dtype
from stoker.schema.bundle import FieldSpec, ModelCard

_DTYPES = {"tensor(float)": "float32", "tensor(double)": "float64", "tensor(float16)": "float16"}


def load(folder: Path, card: ModelCard) -> Predictor:
    path = next(iter(sorted(folder.glob("*.onnx"))), None)
    if path is None:
        raise ConfigError(f"No .onnx file in {folder}.")
    try:
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    except Exception as error:  # noqa: BLE001  onnxruntime's errors have no common class of their own
        what = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ConfigError(f"{path} cannot be loaded by onnxruntime: {what}") from error
    return OnnxPredictor(session, card)


class OnnxPredictor:
    """Inputs and outputs go by the graph's names; one output is bare."""

    def __init__(self, session: "onnxruntime.InferenceSession", card: ModelCard) -> None:
        fields = tuple(
            FieldSpec(
                name=given.name,
                dtype=kind_of_dtype(given.type),
                shape=tuple(size if isinstance(size, int) else None for size in given.shape[1:]),
            )
            for given in session.get_inputs()
        )
        self.card = card.with_(signature=card.signature.with_(inputs=fields))
        self._session = session
        self._dtypes = {given.name: _dtype(given.type) for given in session.get_inputs()}
        self._outputs = [given.name for given in session.get_outputs()]

    def predict(self, instances: Sequence[Instance]) -> list[Prediction]:
        return predict_or_blame(self._predict, instances, about=(RuntimeError,))

    def _predict(self, instances: Sequence[Instance]) -> list[Prediction]:
        if not instances:
            return []
        stacked = arrays(instances, self.card.signature)
        found = self._session.run(None, {name: stacked[name].astype(kind) for name, kind in self._dtypes.items()})
        return as_predictions(found[0] if len(found) == 1 else dict(zip(self._outputs, found, strict=True)))


def _dtype(kind: str) -> str:
    """numpy's name of `tensor(int64)` and its kin."""
    plain = kind.removeprefix("tensor(").removesuffix(")")
    return _DTYPES.get(kind, "object" if plain == "string" else plain)
