"""The states of a run and who may follow whom; a job's and a trial's state is a fold over runs, never stored."""

from collections.abc import Sequence
from enum import StrEnum

from stoker.errors import ConflictError


class RunState(StrEnum):
    """One attempt at a trial. `store.move_run` is the only thing that changes it."""

    QUEUED = "QUEUED"  # waits for a place
    STARTING = "STARTING"  # the engine has it: package, environment, start
    RUNNING = "RUNNING"  # user code has begun
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"  # ended badly by itself, or could not be started
    STOPPED = "STOPPED"  # was told to stop and did; `stop` says why
    LOST = "LOST"  # its supervisor vanished

    @property
    def is_final(self) -> bool:
        return not _NEXT[self]


_NEXT: dict[RunState, frozenset[RunState]] = {
    RunState.QUEUED: frozenset({RunState.STARTING, RunState.FAILED, RunState.STOPPED}),
    RunState.STARTING: frozenset(
        {RunState.RUNNING, RunState.SUCCEEDED, RunState.FAILED, RunState.STOPPED, RunState.LOST}
    ),
    RunState.RUNNING: frozenset({RunState.SUCCEEDED, RunState.FAILED, RunState.STOPPED, RunState.LOST}),
    RunState.SUCCEEDED: frozenset(),
    RunState.FAILED: frozenset(),
    RunState.STOPPED: frozenset(),
    RunState.LOST: frozenset(),
}


def check_move(old: RunState, new: RunState) -> None:
    if new not in _NEXT[old]:
        raise ConflictError(f"A run that is {old} cannot become {new}.")


class StopReason(StrEnum):
    """Why a run is told to stop: one path for all of them."""

    CANCEL = "cancel"
    PAUSE = "pause"
    PREEMPT = "preempt"
    PRUNE = "prune"
    TIMEOUT = "timeout"


class Intent(StrEnum):
    """What the user wants of a job now."""

    RUN = "run"
    PAUSE = "pause"
    STOP = "stop"


class JobState(StrEnum):
    """AI Platform's words for a job, and two for pausing."""

    QUEUED = "QUEUED"
    PREPARING = "PREPARING"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLING = "CANCELLING"
    CANCELLED = "CANCELLED"
    PAUSING = "PAUSING"
    PAUSED = "PAUSED"

    @property
    def is_final(self) -> bool:
        return self in {JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED}


_TRIAL = {
    RunState.QUEUED: JobState.QUEUED,
    RunState.STARTING: JobState.PREPARING,
    RunState.RUNNING: JobState.RUNNING,
    RunState.SUCCEEDED: JobState.SUCCEEDED,
    RunState.FAILED: JobState.FAILED,
    RunState.LOST: JobState.FAILED,
}


def fold_trial(runs: Sequence[tuple[RunState, StopReason | None]], intent: Intent) -> JobState:
    """A trial is what its newest run is, seen with what the user wants.

    The scheduler adds the next run in the same transaction that ends the last, so a final newest run is the end,
    but for a pause, which has no next run until the user resumes.
    """
    if not runs:
        return JobState.CANCELLED if intent is Intent.STOP else JobState.QUEUED
    state, stop = runs[-1]
    if state is RunState.STOPPED:
        if stop is StopReason.PAUSE:
            return JobState.CANCELLED if intent is Intent.STOP else JobState.PAUSED
        return {StopReason.PRUNE: JobState.SUCCEEDED, StopReason.TIMEOUT: JobState.FAILED}.get(
            stop or StopReason.CANCEL, JobState.CANCELLED
        )
    if not state.is_final and intent is Intent.STOP:
        return JobState.CANCELLING
    if not state.is_final and intent is Intent.PAUSE:
        return JobState.PAUSING
    return _TRIAL[state]


def fold_job(trials: Sequence[JobState], intent: Intent) -> JobState:
    """A job is its most alive trial; ended, it succeeded if any trial did."""
    if not trials:
        return {Intent.RUN: JobState.QUEUED, Intent.PAUSE: JobState.PAUSED, Intent.STOP: JobState.CANCELLED}[intent]
    present = set(trials)
    for state in _MOST_ALIVE_FIRST:
        if state in present:
            return state
    raise AssertionError(f"no order for {present}")


_MOST_ALIVE_FIRST = (
    JobState.CANCELLING,
    JobState.PAUSING,
    JobState.RUNNING,
    JobState.PREPARING,
    JobState.QUEUED,
    JobState.PAUSED,
    JobState.CANCELLED,
    JobState.SUCCEEDED,
    JobState.FAILED,
)
