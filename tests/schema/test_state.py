"""States: which moves a run may make, and what runs add up to for people."""

import pytest

from stoker.errors import ConflictError
from stoker.schema.state import Intent, JobState, RunState, StopReason, check_move, fold_job, fold_trial

FINAL = {RunState.SUCCEEDED, RunState.FAILED, RunState.STOPPED, RunState.LOST}


def test_final_states_are_those_that_nothing_follows() -> None:
    assert {state for state in RunState if state.is_final} == FINAL


@pytest.mark.parametrize("old", sorted(FINAL))
@pytest.mark.parametrize("new", list(RunState))
def test_a_run_that_has_ended_never_moves_again(old: RunState, new: RunState) -> None:
    with pytest.raises(ConflictError, match=f"A run that is {old} cannot become {new}"):
        check_move(old, new)


def test_a_run_cannot_run_before_the_engine_has_it() -> None:
    check_move(RunState.QUEUED, RunState.STARTING)
    check_move(RunState.STARTING, RunState.RUNNING)

    with pytest.raises(ConflictError):
        check_move(RunState.QUEUED, RunState.RUNNING)


@pytest.mark.parametrize(
    ("runs", "intent", "expected"),
    [
        ([], Intent.RUN, JobState.QUEUED),
        ([], Intent.STOP, JobState.CANCELLED),
        ([(RunState.QUEUED, None)], Intent.RUN, JobState.QUEUED),
        ([(RunState.STARTING, None)], Intent.RUN, JobState.PREPARING),
        ([(RunState.RUNNING, None)], Intent.RUN, JobState.RUNNING),
        ([(RunState.RUNNING, StopReason.CANCEL)], Intent.STOP, JobState.CANCELLING),
        ([(RunState.RUNNING, StopReason.PAUSE)], Intent.PAUSE, JobState.PAUSING),
        ([(RunState.STOPPED, StopReason.PAUSE)], Intent.PAUSE, JobState.PAUSED),
        ([(RunState.STOPPED, StopReason.PAUSE)], Intent.STOP, JobState.CANCELLED),
        ([(RunState.STOPPED, StopReason.CANCEL)], Intent.STOP, JobState.CANCELLED),
        ([(RunState.STOPPED, StopReason.TIMEOUT)], Intent.RUN, JobState.FAILED),
        ([(RunState.STOPPED, StopReason.PRUNE)], Intent.RUN, JobState.SUCCEEDED),
        ([(RunState.LOST, None)], Intent.RUN, JobState.FAILED),
        ([(RunState.FAILED, None), (RunState.RUNNING, None)], Intent.RUN, JobState.RUNNING),
        ([(RunState.FAILED, None), (RunState.SUCCEEDED, None)], Intent.RUN, JobState.SUCCEEDED),
    ],
)
def test_a_trial_is_its_newest_run_seen_with_the_users_intent(
    runs: list[tuple[RunState, StopReason | None]], intent: Intent, expected: JobState
) -> None:
    assert fold_trial(runs, intent) is expected


@pytest.mark.parametrize(
    ("trials", "expected"),
    [
        ([], JobState.QUEUED),
        ([JobState.SUCCEEDED, JobState.RUNNING], JobState.RUNNING),
        ([JobState.FAILED, JobState.QUEUED], JobState.QUEUED),
        ([JobState.FAILED, JobState.SUCCEEDED], JobState.SUCCEEDED),
        ([JobState.FAILED, JobState.FAILED], JobState.FAILED),
        ([JobState.SUCCEEDED, JobState.CANCELLED], JobState.CANCELLED),
    ],
)
def test_a_job_is_its_most_alive_trial(trials: list[JobState], expected: JobState) -> None:
    assert fold_job(trials, Intent.RUN) is expected


@pytest.mark.parametrize("state", list(JobState))
def test_every_trial_state_has_a_place_in_the_fold(state: JobState) -> None:
    assert fold_job([state], Intent.RUN) is state
