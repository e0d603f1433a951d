"""Every error stoker raises on purpose: what happened, what was expected, what to do now.

    StokerError             exit 1: it was asked for rightly and failed
    ├── UsageError          exit 2: the user's words are wrong (a flag, a file, a name, a package)
    │   ├── ConfigError     a file or request with bad fields; all of them at once
    │   ├── DoesNotFitError a job is larger than its pool can ever be
    │   └── InstanceError   one thing to predict for is not what the model takes
    ├── NotFoundError       exit 2: no such job, pool, runtime, package
    ├── ConflictError       exit 2: the name is taken, or the state does not allow it
    ├── WaitTimeoutError    exit 1: not done in the time given for it
    └── ServerError         exit 1: the server failed
        ├── UnreachableError    exit 1: nothing answers there (any more)
        └── StoreError          exit 1: its database failed or does not answer; nothing was done

The command line prints the message alone; a traceback means a bug in stoker.
"""

from collections.abc import Sequence


class StokerError(Exception):
    """A failure with a message fit for a person."""

    exit_code = 1
    http_status = 500
    code: str | None = None  # in the server's answer, where the status does not say which error it is


class UsageError(StokerError):
    """The request itself is wrong; nothing was done."""

    exit_code = 2
    http_status = 400


class ConfigError(UsageError):
    """A file or request has bad fields; `problems` holds one line for each, with its path."""

    http_status = 422

    def __init__(self, message: str, problems: Sequence[str] = ()) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join([message, *(f"  {problem}" for problem in problems)]))


class DoesNotFitError(UsageError):
    """A job is larger than its pool can ever be."""

    code = "does_not_fit"


class NotFoundError(StokerError):
    """What was named is not there."""

    exit_code = 2
    http_status = 404


class ConflictError(StokerError):
    """The name is taken, or the thing is not in a state that allows this."""

    exit_code = 2
    http_status = 409


class ServerError(StokerError):
    """The server could not be reached, or failed."""


class UnreachableError(ServerError):
    """Nothing answers at the server's address, or it broke off."""


class WaitTimeoutError(StokerError, TimeoutError):
    """What was waited for has not happened in the time given for it."""


class StoreError(ServerError):
    """The server's database failed or does not answer. Nothing was done; try again."""

    http_status = 503


class InstanceError(UsageError):
    """Something to predict for is not what the model takes; `index` counts from 0, `field` is None for the whole."""

    def __init__(self, message: str, *, index: int, field: str | None = None) -> None:
        super().__init__(f"instance {index}{f', field {field!r}' if field else ''}: {message}")
        self.reason, self.index, self.field = message, index, field
