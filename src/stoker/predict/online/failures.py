"""Which status an error is answered with, and in what words."""

from stoker.errors import ConflictError, NotFoundError, StokerError, UsageError
from stoker.predict.online.batching import BusyError

# What models raise for input they cannot take, when they do not say InstanceError.
_ABOUT_INPUT = (ValueError, TypeError, LookupError, ArithmeticError)


class Refusal(Exception):
    """A request that cannot be answered, with its status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def in_words(error: BaseException) -> tuple[int, str]:
    """The status and one line."""
    message = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, Refusal):
        return error.status, message
    if isinstance(error, TimeoutError):
        return 504, message
    if isinstance(error, BusyError):
        return 429, message
    if isinstance(error, UsageError | NotFoundError | ConflictError):
        return 400, message
    if isinstance(error, StokerError):
        return 500, f"The model failed: {message}"
    kind = type(error).__name__
    if isinstance(error, _ABOUT_INPUT):
        return 400, f"The model does not take these instances: {kind}: {message}"
    return 500, f"The model failed: {kind}: {message}"
