"""Holds one model in a process of its own Python, for a stoker whose libraries are others; runs from Python 3.7 on.

Messages are a line of JSON each, and the bytes of an array after it where the line says so. `python THIS FOLDER KIND
[SIGNATURE]`.
"""

import base64
import importlib
import json
import os
import struct
import sys
import warnings
from typing import Any, BinaryIO, Dict  # noqa: UP035  for Python 3.7

import numpy

_Words = Dict[str, Any]  # noqa: UP006  as above

_METHODS = ("predict", "predict_proba", "decision_function", "transform")
_PICKLES = ("model.joblib", "model.pkl")


def main() -> None:
    # What the model prints must not come between our words: they have a file of their own.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    try:
        model = _load(sys.argv[1], sys.argv[2])
    except Exception as error:  # noqa: BLE001  whatever it is, it is told
        _say(out, {"error": type(error).__name__, "message": str(error)})
        return
    _say(out, _described(model))
    for line in iter(sys.stdin.buffer.readline, b""):
        try:
            _answer(out, _called(model, json.loads(line)))
        except Exception as error:  # noqa: BLE001  whatever it is, it is told
            kinds = [kind.__name__ for kind in type(error).__mro__]
            _say(out, {"error": kinds[0], "kinds": kinds, "message": str(error)})


class _SavedModel:
    """TensorFlow's, by one of its signatures."""

    def __init__(self, folder: str, wanted: str) -> None:
        import tensorflow  # noqa: PLC0415

        self._tensorflow = tensorflow
        self._model = tensorflow.saved_model.load(folder)  # it owns the variables
        names = sorted(name for name in self._model.signatures if not name.startswith("__"))
        default = "serving_default" if "serving_default" in names else (names or ["none"])[0]
        if (wanted or default) not in names:
            raise ValueError(f"it has no signature {wanted or default!r}. There are: {', '.join(names) or 'none'}")
        self._function = self._model.signatures[wanted or default]
        self._specs = dict(self._function.structured_input_signature[1])

    def inputs(self) -> list:  # type: ignore[type-arg]
        return [{"name": name, "dtype": self._dtype(spec), "shape": _shape(spec)} for name, spec in self._specs.items()]

    def _dtype(self, spec: Any) -> str:
        if spec.dtype == self._tensorflow.string:
            return "bytes"
        if spec.dtype == self._tensorflow.bool:
            return "boolean"
        return "float" if spec.dtype.is_floating else "integer" if spec.dtype.is_integer else "any"

    def predict(self, rows: Any) -> _Words:
        given = {name: self._tensorflow.constant(_as_bytes(value), self._specs[name].dtype) for name, value in rows}
        return {name: _as_text(value.numpy().tolist()) for name, value in self._function(**given).items()}


def _shape(spec: Any) -> Any:
    return None if spec.shape.rank is None else spec.shape.as_list()[1:]


def _as_bytes(value: Any) -> Any:
    if isinstance(value, dict):
        return base64.b64decode(value["b64"])
    return [_as_bytes(item) for item in value] if isinstance(value, list) else value


def _as_text(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return [_as_text(item) for item in value] if isinstance(value, list) else value


def _load(folder: str, kind: str) -> Any:
    if kind == "tensorflow":
        return _SavedModel(folder, (sys.argv[3:] or [""])[0])
    path = next((os.path.join(folder, name) for name in _PICKLES if os.path.isfile(os.path.join(folder, name))), None)
    if path is not None:
        with open(path, "rb") as file:
            is_of_sklearn = b"sklearn.externals.joblib" in file.read()
        # Each of the two reads its own arrays alone.
        return importlib.import_module("sklearn.externals.joblib" if is_of_sklearn else "joblib").load(path)
    import xgboost  # noqa: PLC0415

    names = [name for name in ("model.bst", "model.ubj", "model.json") if os.path.isfile(os.path.join(folder, name))]
    model = xgboost.Booster() if kind == "xgboost" else getattr(xgboost, kind)()
    model.load_model(os.path.join(folder, names[0]))
    return model


def _described(model: Any) -> _Words:
    if isinstance(model, _SavedModel):
        return {"inputs": model.inputs()}
    found: _Words = {"class": type(model).__name__}
    found["methods"] = [name for name in _METHODS if hasattr(model, name)]
    classes = getattr(model, "classes_", None)
    found["classes"] = numpy.asarray(classes).tolist() if hasattr(classes, "tolist") else None
    names = getattr(model, "feature_names_in_", None)
    names = getattr(model, "feature_names", None) if names is None else names
    found["names"] = None if names is None else [str(name) for name in names]
    found["width"] = len(names) if names is not None else _width(model)
    return found


def _width(model: Any) -> Any:
    """How many numbers an instance is; None where the model does not tell, as most of old did not in one word."""
    if hasattr(model, "save_raw"):
        raw = bytes(model.save_raw())
        start = 4 if raw[:4] == b"binf" else 0  # of its parameters: the base score, then the number of features
        return struct.unpack_from("<I", raw, start + 4)[0] or None if len(raw) > start + 8 else None
    if getattr(model, "steps", None):
        return _width(model.steps[0][1])
    for name in ("n_features_in_", "n_features_"):
        if isinstance(getattr(model, name, None), int):
            return getattr(model, name)
    for name in ("coef_", "mean_", "scale_", "cluster_centers_", "components_", "feature_importances_", "theta_"):
        try:
            shape = getattr(getattr(model, name, None), "shape", None)
        except Exception:  # noqa: BLE001  xgboost's raise for boosters that have none
            continue
        if shape:
            return int(shape[-1])
    return None


def _called(model: Any, asked: _Words) -> Any:
    if isinstance(model, _SavedModel):
        return model.predict(asked["rows"])
    if "rows" in asked:
        rows = asked["rows"]
    else:
        data = sys.stdin.buffer.read(asked["bytes"])
        rows = numpy.frombuffer(data, dtype="<f8").reshape(asked["shape"])
    if hasattr(model, "save_raw"):
        import xgboost  # noqa: PLC0415

        return model.predict(xgboost.DMatrix(rows, feature_names=model.feature_names))
    if asked.get("columns"):
        import pandas  # noqa: PLC0415

        rows = pandas.DataFrame(rows, columns=asked["columns"])
    return getattr(model, asked["method"])(rows)


def _answer(out: BinaryIO, found: Any) -> None:
    if isinstance(found, dict):
        _say(out, {"values": found})
        return
    found = found.toarray() if hasattr(found, "toarray") else numpy.asarray(found)
    if found.dtype.kind not in "fiub":
        _say(out, {"values": found.tolist()})
        return
    data = numpy.ascontiguousarray(found)
    data = data.astype(data.dtype.newbyteorder("<"))
    _say(out, {"shape": data.shape, "dtype": data.dtype.str, "bytes": data.nbytes}, data.tobytes())


def _say(out: BinaryIO, words: _Words, data: bytes = b"") -> None:
    out.write(json.dumps(words).encode() + b"\n" + data)
    out.flush()


if __name__ == "__main__":
    main()
