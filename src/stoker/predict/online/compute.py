"""One call of the model for several requests, such that one's bad instance is nobody else's trouble."""

from collections.abc import Sequence

from stoker.errors import InstanceError, StokerError
from stoker.predict.base import Instance, Prediction, Predictor

Outcome = list[Prediction] | BaseException


def compute(predictor: Predictor, requests: Sequence[Sequence[Instance]]) -> list[Outcome]:
    """Predictions of each request, or what it raised. Blocks; raises nothing."""
    outcomes: dict[int, Outcome] = {}
    left = list(range(len(requests)))
    while left:
        together = [instance for number in left for instance in requests[number]]
        try:
            found = _predict(predictor, together)
        except InstanceError as error:
            number, index = _owner(requests, left, error.index)
            outcomes[number] = InstanceError(error.reason, index=index, field=error.field)
            left.remove(number)  # the others are asked again without it
        except BaseException as error:  # noqa: BLE001  whatever a model raises, the worker must survive it
            if len(left) > 1:
                outcomes.update((number, compute(predictor, [requests[number]])[0]) for number in left)
            else:
                outcomes[left[0]] = error
            left = []
        else:
            start = 0
            for number in left:
                outcomes[number] = found[start : start + len(requests[number])]
                start += len(requests[number])
            left = []
    return [outcomes[number] for number in range(len(requests))]


def _predict(predictor: Predictor, instances: list[Instance]) -> list[Prediction]:
    found = predictor.predict(instances)
    if len(found) != len(instances):
        raise StokerError(f"it gave {len(found)} predictions for {len(instances)} instances.")
    return found


def _owner(requests: Sequence[Sequence[Instance]], numbers: Sequence[int], index: int) -> tuple[int, int]:
    """Which request the instance at `index` of all belongs to, and where it is in that one."""
    for number in numbers:
        if index < len(requests[number]):
            return number, index
        index -= len(requests[number])
    return numbers[-1], len(requests[numbers[-1]]) - 1  # a predictor that counts wrongly must not end the worker
