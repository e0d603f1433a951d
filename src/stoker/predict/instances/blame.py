"""Find the instance a model chokes on, since frameworks name none."""

from collections.abc import Callable, Sequence

from stoker.errors import InstanceError, StokerError
from stoker.predict.base import Instance, Prediction

# What frameworks raise for values they cannot take. Others are faults of the model or the machine.
_ABOUT_INPUT: tuple[type[Exception], ...] = (ValueError, TypeError, LookupError, ArithmeticError, UnicodeError)

# Rows in a block: with fewer, OpenBLAS and MKL take other ways for the rest (measured: 4 for most shapes, 16 for all).
BLOCK = 16

Call = Callable[[Sequence[Instance]], list[Prediction]]


def predict_or_blame(
    call: Call, instances: Sequence[Instance], *, about: tuple[type[Exception], ...] = (), block: int = 1
) -> list[Prediction]:
    """`call` on all instances; if it fails for what they hold, InstanceError with the first that fails alone.

    `block` is for models whose matrix products give a row other last bits when more or fewer rows are beside it: they
    are called with a multiple of so many, the first instance standing in for what is missing.
    """
    kinds = _ABOUT_INPUT + about
    missing = -len(instances) % block
    try:
        found = call([*instances, *[instances[0]] * missing] if missing else instances)
    except StokerError:
        raise
    except kinds as error:
        raise _first_bad(call, instances, error, kinds) from error
    if len(found) != len(instances) + missing:
        raise StokerError(f"The model answered {len(instances) + missing} instances with {len(found)} predictions.")
    return found[: len(instances)] if missing else found


def _first_bad(
    call: Call, instances: Sequence[Instance], error: Exception, kinds: tuple[type[Exception], ...]
) -> StokerError:
    """Halve what holds it until one is left: all before that one are good."""
    good, bad = 0, len(instances)
    while bad - good > 1:
        middle = (good + bad) // 2
        if _failure(call, instances[good:middle], kinds) is None:
            good = middle
        else:
            bad = middle
    alone = error if len(instances) == 1 else _failure(call, instances[good:bad], kinds)
    if alone is not None:
        return InstanceError(_why(alone), index=good)
    return StokerError(f"The model fails on these {len(instances)} instances together, on none alone: {_why(error)}")


def _failure(call: Call, instances: Sequence[Instance], kinds: tuple[type[Exception], ...]) -> Exception | None:
    try:
        call(instances)
    except kinds as error:
        return error
    return None


def _why(error: Exception) -> str:
    """The line of a message that says it; TensorFlow's begins with a heading and a stack."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    plain = [line for line in lines if not line[0].isspace() and line[0] != "<" and not line.endswith(":")]
    plain = [line for line in plain if not line.startswith("Detected at node")]
    return f"the model refuses it: {next(iter([*plain, *lines]), type(error).__name__).strip()}"
