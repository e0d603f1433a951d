"""Find the instance a model chokes on, since frameworks name none."""

from collections.abc import Callable, Sequence

from stoker.errors import InstanceError, StokerError
from stoker.predict.base import Instance, Prediction

# What frameworks raise for values they cannot take. Others are faults of the model or the machine.
_ABOUT_INPUT: tuple[type[Exception], ...] = (ValueError, TypeError, LookupError, ArithmeticError, UnicodeError)

Call = Callable[[Sequence[Instance]], list[Prediction]]


def predict_or_blame(
    call: Call, instances: Sequence[Instance], *, about: tuple[type[Exception], ...] = ()
) -> list[Prediction]:
    """`call` on all instances; if it fails for what they hold, InstanceError with the first that fails alone."""
    kinds = _ABOUT_INPUT + about
    try:
        found = call(instances)
    except StokerError:
        raise
    except kinds as error:
        raise _first_bad(call, instances, error, kinds) from error
    if len(found) != len(instances):
        raise StokerError(f"The model answered {len(instances)} instances with {len(found)} predictions.")
    return found


def _first_bad(
    call: Call, instances: Sequence[Instance], error: Exception, kinds: tuple[type[Exception], ...]
) -> StokerError:
    if len(instances) == 1:
        return InstanceError(_why(error), index=0)
    for index, instance in enumerate(instances):
        try:
            call([instance])
        except kinds as bad:
            return InstanceError(_why(bad), index=index)
    return StokerError(f"The model fails on these {len(instances)} instances together, on none alone: {_why(error)}")


def _why(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"the model refuses it: {lines[0] if lines else type(error).__name__}"
