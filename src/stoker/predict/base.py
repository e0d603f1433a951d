"""What every model is to those who serve it: instances in, predictions out."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    import pyarrow

    from stoker.schema.bundle import ModelCard

Instance = Any  # a JSON value: a number, a row, or an object of named fields
Prediction = Any  # a JSON value


class Predictor(Protocol):
    """A loaded model. The contract:

    1. `predict` answers with one JSON-ready prediction for each instance, in order.
    2. An instance's prediction does not depend on the others beside it, so batches may be cut anywhere.
    3. What is wrong with an instance raises `InstanceError`, which names its position and field; nothing else does.
    4. It may be called from one thread at a time; whoever shares it takes turns.
    """

    card: "ModelCard"

    def predict(self, instances: Sequence[Instance]) -> list[Prediction]: ...


@runtime_checkable
class TablePredictor(Predictor, Protocol):
    """One that takes whole columns, so that a million rows need no Python object each.

    The answer has the same rows in the same order. It agrees with `predict` on the same rows, to the last bit.
    `predict_table`, unlike `predict`, may be called from several threads at once, and best uses one core in each.
    """

    def predict_table(self, table: "pyarrow.Table") -> "pyarrow.Table": ...
