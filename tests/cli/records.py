"""Jobs as a server would answer them, for what only prints."""

from typing import Any

from stoker.schema.event import Exited, Phase
from stoker.schema.job import JobSpec
from stoker.schema.record import Job, LogBlock, Run, Trial
from stoker.schema.state import Intent, JobState, RunState

NOW = 1_800_000_000.0


def a_run(attempt: int = 1, state: RunState = RunState.SUCCEEDED, **fields: Any) -> Run:
    values: dict[str, Any] = {
        "id": f"taxi_1.1.{attempt}",
        "created": NOW - 100,
        "started": NOW - 90,
        "ended": NOW - 30,
        "directory": f"/home/runs/taxi_1/1/{attempt}",
        **fields,
    }
    return Run(attempt=attempt, state=state, **values)


def a_failed_run(attempt: int = 1, **exit: Any) -> Run:
    values: dict[str, Any] = {
        "seq": 9,
        "time": NOW - 30,
        "phase": Phase.USER_CODE,
        "code": 1,
        "replica": "chief-0",
        "traceback": "Traceback (most recent call last):\n  File trainer/task.py\nValueError: no fares",
        **exit,
    }
    return a_run(attempt, RunState.FAILED, exit=Exited(**values), message="chief-0 exited with code 1")


def a_job(
    state: JobState = JobState.SUCCEEDED,
    *,
    runs: tuple[Run, ...] = (),
    spec: dict[str, Any] | None = None,
    trial: dict[str, Any] | None = None,
    **fields: Any,
) -> Job:
    values: dict[str, Any] = {"created": NOW - 100, "started": NOW - 90, "ended": NOW - 30, **fields}
    trial_fields: dict[str, Any] = {"id": 1, "number": 1, "hparams": {}, "state": state, **(trial or {})}
    return Job(
        id="taxi_1",
        number=1,
        owner="me",
        kind="train",
        state=state,
        pool="local",
        priority=values.pop("priority", 0),
        labels=values.pop("labels", {}),
        intent=Intent.RUN,
        spec=JobSpec.model_validate({"name": "taxi_1", "module": "trainer.task", **(spec or {})}),
        trials=(Trial(runs=runs or (a_run(),), **trial_fields),),
        **values,
    )


def a_block(text: str, **fields: Any) -> LogBlock:
    values: dict[str, Any] = {
        "cursor": 1,
        "run": "taxi_1.1.1",
        "trial": 1,
        "attempt": 1,
        "node": 0,
        "replica": "chief-0",
        "stream": "stdout",
        "time": NOW,
        "line": 1,
        **fields,
    }
    return LogBlock(text=text, **values)
