"""When the database fails: a lost connection is waited for, and what remains is a StoreError."""

import logging
import time
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from sqlalchemy.exc import DBAPIError, OperationalError, TimeoutError

from stoker.errors import StoreError

logger = logging.getLogger(__name__)

LOST_WAIT_S = 45.0  # shorter than a client waits for an answer
_LOOK_S = 0.1

T = TypeVar("T")
P = ParamSpec("P")


def transactions(kind: type[T]) -> type[T]:
    """Make a `transaction` of every public method of a class."""
    for name, method in vars(kind).items():
        if callable(method) and not name.startswith("_") and name != "close":
            setattr(kind, name, transaction(method))
    return kind


def transaction(method: Callable[P, T]) -> Callable[P, T]:
    """A method that is one transaction: done again, from its start, when the connection was lost before its end.

    StoreError if the database fails or does not come back. Errors that only a bug explains are passed on unchanged.
    """

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        deadline = 0.0
        while True:
            try:
                return method(*args, **kwargs)
            except TimeoutError as error:
                raise StoreError("The database is busy: all connections to it are in use.") from error
            except DBAPIError as error:
                lost = is_lost(error)
                if not lost and not isinstance(error, OperationalError):
                    raise
                deadline = deadline or time.monotonic() + LOST_WAIT_S
                if not lost or time.monotonic() > deadline:
                    logger.exception("%s failed", method.__qualname__)
                    what = "does not answer" if lost else "failed"
                    raise StoreError(f"The database {what}: {first_line(error)}") from error
            time.sleep(_LOOK_S)

    return call


def is_lost(error: BaseException) -> bool:
    """Whether it is the connection that failed, and not what was asked over it."""
    if not isinstance(error, DBAPIError):
        return False
    state = getattr(error.orig, "sqlstate", "")
    return error.connection_invalidated or (
        type(error.orig).__module__.startswith("psycopg")
        and type(error.orig).__name__ != "ProgrammingError"
        and (state is None or state.startswith(("08", "57P")))
    )


def first_line(error: DBAPIError) -> str:
    lines = str(error.orig).strip().splitlines() or [type(error.orig).__name__]
    return f"{lines[0]}."
