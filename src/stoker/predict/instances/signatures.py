"""What a model's inputs and outputs are, read off the model or off an example."""

from collections.abc import Mapping, Sequence
from typing import Any

from stoker.schema.bundle import Dtype, FieldSpec, Signature

_KINDS: dict[str, Dtype] = {"f": "float", "i": "integer", "u": "integer", "b": "boolean", "U": "string", "S": "bytes"}
_WORDS: tuple[tuple[str, Dtype], ...] = (
    ("float", "float"),
    ("double", "float"),
    ("bool", "boolean"),
    ("int", "integer"),
    ("str", "string"),
)


def of_estimator(model: Any) -> Signature:
    """Of anything that follows scikit-learn's manners; empty when it does not tell."""
    width = getattr(model, "n_features_in_", None)
    names = getattr(model, "feature_names_in_", None)
    takes_text, allows_nan = _tags(model)
    if width is None:
        return Signature(outputs=_outputs(model))
    dtype: Dtype = "any" if takes_text else "float"
    if names is not None:
        inputs = tuple(FieldSpec(name=str(name), dtype=dtype, shape=(), nullable=allows_nan) for name in names)
    else:
        inputs = (FieldSpec(name="", dtype=dtype, shape=(int(width),), nullable=allows_nan),)
    return Signature(inputs=inputs, outputs=_outputs(model))


def of_columns(columns: Mapping[str, Any], *, nullable: bool = False) -> tuple[FieldSpec, ...]:
    """Named arrays (an example's columns), each a field of its kind and of its shape without the batch."""
    return tuple(of_array(name, values, nullable=nullable) for name, values in columns.items())


def of_array(name: str, values: Any, *, nullable: bool = False) -> FieldSpec:
    """One batched array as a field."""
    dtype = _kind(values)
    if dtype == "any" and _is_text(values):
        dtype = "string"
    return FieldSpec(name=name, dtype=dtype, shape=tuple(int(size) for size in values.shape[1:]), nullable=nullable)


def kind_of_dtype(text: str) -> Dtype:
    """Of a dtype by its name: torch.float32, int64, bool, string."""
    for word, kind in _WORDS:
        if word in text:
            return kind
    return "any"


def _kind(values: Any) -> Dtype:
    kind = getattr(values.dtype, "kind", None)
    return kind_of_dtype(str(values.dtype)) if kind is None else _KINDS.get(kind, "any")


def _is_text(values: Any) -> bool:
    flat: Sequence[Any] = list(getattr(values, "flat", values))
    return bool(flat) and all(isinstance(value, str) for value in flat)


def _tags(model: Any) -> tuple[bool, bool]:
    """(may it take texts, does it take NaN), as far as it says: a pipeline is as its first step is."""
    first = model
    while getattr(first, "steps", None):
        first = first.steps[0][1]
    if hasattr(first, "transformers") or first is not model and not hasattr(first, "__sklearn_tags__"):
        return True, True  # each column goes its own way: the columns' own steps will say
    if hasattr(first, "func") and getattr(first, "validate", None) is False:
        return True, True  # a FunctionTransformer, which hands on whatever it is given
    try:
        tags = first.__sklearn_tags__().input_tags
        return bool(tags.string or tags.categorical), bool(tags.allow_nan)
    except (AttributeError, TypeError):  # older than 1.6, or somebody's own class
        return False, False


def _outputs(model: Any) -> tuple[FieldSpec, ...]:
    classes = getattr(model, "classes_", None)
    if classes is None or isinstance(classes, list):
        return ()
    kind = getattr(getattr(classes, "dtype", None), "kind", "O")
    return (FieldSpec(name="", dtype=_KINDS.get(kind, "any"), shape=()),)


def of_booster(booster: Any) -> Signature:
    """Of XGBoost's own model, which takes missing values everywhere."""
    names = booster.feature_names
    if names is not None:
        return Signature(inputs=tuple(FieldSpec(name=n, dtype="float", shape=(), nullable=True) for n in names))
    width = int(booster.num_features())
    return Signature(inputs=(FieldSpec(name="", dtype="float", shape=(width,), nullable=True),))


def of_keras(model: Any) -> Signature:
    """Of a built Keras model. One input goes without its name, which is nobody's choice (`keras_tensor_3`)."""
    inputs = getattr(model, "inputs", None) or ()
    fields = [
        FieldSpec(
            name=str(tensor.name) if len(inputs) > 1 else "",
            dtype=kind_of_dtype(str(tensor.dtype)),
            shape=tuple(tensor.shape[1:]),
        )
        for tensor in inputs
    ]
    return Signature(inputs=tuple(fields))
