"""Jobs as a server would answer them, for what only prints."""

from typing import Any

from stoker.schema.event import Exited, Phase
from stoker.schema.job import JobSpec
from stoker.schema.record import Job, LogBlock, Run, SearchStatus, SearchSummary, Trial
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


def a_search_job(name: str = "mnist_1", state: JobState = JobState.SUCCEEDED, **search: Any) -> Job:
    values: dict[str, Any] = {
        "metric": "val_loss",
        "max_trials": 16,
        "space": {"learning_rate": {"type": "log", "min": 0.0001, "max": 1}, "layers": 3},
        **search,
    }
    job = a_job(state, spec={"name": name, "search": values})
    return job.with_(id=name, number=7, trials=(), search=SearchSummary(metric="val_loss", trials=4))


def a_trial(number: int = 1, state: JobState = JobState.SUCCEEDED, **fields: Any) -> Trial:
    values: dict[str, Any] = {
        "id": 100 + number,
        "hparams": {"learning_rate": number / 100, "layers": 3},
        "objective": 1 / number,
        "metrics": {"val_loss": 1 / number, "accuracy": number / 20},
        "outcome": "completed",
        "runs": (a_run(),),
        "seed": 41 + number,
        **fields,
    }
    return Trial(number=number, state=state, **values)


def a_status(name: str = "mnist_1", **fields: Any) -> SearchStatus:
    trials = tuple(a_trial(number) for number in (4, 3, 2, 1))
    values: dict[str, Any] = {
        "state": JobState.SUCCEEDED,
        "sampler": "random",
        "stopping": "asha",
        "objectives": ({"metric": "val_loss"},),
        "max_trials": 16,
        "progress": 1.0,
        "finished": True,
        "states": {"SUCCEEDED": 4},
        "outcomes": {"completed": 1, "stopped": 3},
        "best": trials,
        "curve": ((1, 1.0), (2, 0.5), (3, 1 / 3), (4, 0.25)),
        "importance": {"learning_rate": 0.75, "layers": 0.25},
        **fields,
    }
    return SearchStatus(job=name, **values)
