"""What a server of predictions is told when it starts, and what it may be told later."""

from typing import Annotated

from pydantic import Field

from stoker.schema.model import Model


class Limits(Model):
    """How much is taken in, and how long it may take."""

    max_batch: Annotated[int, Field(ge=1)] = 64  # instances in one call of the model
    max_delay_ms: Annotated[float, Field(ge=0)] = 0.0  # how long one may wait for others, when others are being served
    queue: Annotated[int, Field(ge=1)] = 1024  # requests that wait in one worker
    max_body_bytes: Annotated[int, Field(ge=1)] = 32 << 20
    timeout_s: Annotated[float, Field(gt=0)] = 60.0


class ModelLocation(Model):
    """Which model, which version of it, and the folder it lies in."""

    name: str
    version: str | None = None
    folder: str
    prediction_class: str | None = None
    runtime_version: str | None = None  # those it was made on, if it was registered with them
    python_version: str | None = None


class WorkerSettings(Model):
    """The first line a worker reads."""

    located: ModelLocation
    limits: Limits = Limits()
    trust_pickle: bool = False
    token: str | None = None
    listener: int  # a file descriptor that listens already
    reports: int = -1  # a file descriptor to write Reports to
    metrics: str  # the file of counters, shared by all workers
    slot: int  # this worker's place in it


class WorkerCommand(Model):
    """What a worker is told while it serves. `drain`: others serve now; finish, and leave when the clients have."""

    drain: bool = False


class Report(Model):
    """What a worker says: that it serves, or why it does not."""

    serving: bool = False
    error: str | None = None
    exit_code: int = 1  # what the command should end with, if nothing serves
