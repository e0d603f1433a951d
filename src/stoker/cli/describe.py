"""`stoker jobs describe`: all that is known of a job, on one page, the reason for a failure last and in full."""

import shlex
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from stoker.cli import search_report
from stoker.compat.aiplatform.gcloud import print_as
from stoker.terminal.output import STATE_COLOURS, ago, duration, paint, print_json, table
from stoker.terminal.parser import Arguments

if TYPE_CHECKING:
    from stoker.schema.event import Exited
    from stoker.schema.record import Job, Run, SearchStatus, Trial


def describe(arguments: Arguments) -> None:
    from stoker.client.client import connect

    client = connect()
    job = client.job(arguments.name)
    if arguments.json:
        print_json(job)
    elif arguments.format:
        print_as(arguments.format, [job], single=True)
    elif arguments.summarize:
        print("\n".join(_summary(job)))
    else:
        search = client.search(job.id) if job.spec.search is not None else None
        print("\n".join(page(job, now=time.time(), search=search)))


def page(job: "Job", *, now: float, search: "SearchStatus | None" = None) -> Iterator[str]:
    """The whole page, line by line; of a search what it found instead of each trial's runs."""
    width = 16
    for name, value in [*_facts(job, now=now), *(search_report.facts(search) if search else _places(job))]:
        first, *rest = value.splitlines() or [""]
        yield f"{name + ':':<{width}}{first}"
        yield from (" " * width + line for line in rest)
    if search is not None:
        yield from search_report.report(search)
    for trial in job.trials if search is None else ():
        if len(trial.runs) > 1 or len(job.trials) > 1:
            yield ""
            yield from _runs(trial, now=now)
    if (failure := _last_failure(job)) is not None:
        yield ""
        yield from _failure(failure)


def _facts(job: "Job", *, now: float) -> Iterator[tuple[str, str]]:
    yield "jobId", job.id
    yield "state", paint(job.state, STATE_COLOURS.get(job.state))
    if job.reason:
        yield "failed because" if job.state.value == "FAILED" else "why", job.reason
    yield "created", _moment(job.created, now=now)
    if job.started is not None:
        yield "started", _moment(job.started, now=now)
    if job.ended is not None:
        yield "ended", _moment(job.ended, now=now)
    if job.started is not None:
        yield "ran for", duration((job.ended or now) - job.started)
    if job.progress is not None and job.spec.search is None:
        yield "progress", f"{job.progress:.0%}"
    yield "pool", job.pool
    if job.priority:
        yield "priority", str(job.priority)
    if job.labels:
        yield "labels", ", ".join(f"{key}={value}" for key, value in sorted(job.labels.items()))
    yield "command", command_line(job)
    if job.spec.kind == "predict":
        yield from _prediction(job)
    if job.spec.job_dir is not None:
        yield "job-dir", job.spec.job_dir


def _prediction(job: "Job") -> Iterator[tuple[str, str]]:
    """What a batch prediction is about, and what came of it."""
    asked = job.spec.data.get("prediction", {})
    model = asked.get("model", {})
    yield "model", str(model.get("reference") or model.get("url"))
    yield "input", "\n".join(asked.get("input_paths", ())) + f" ({asked.get('data_format')})"
    yield "output", str(asked.get("output_path"))
    counted = job.trials[-1].metrics if job.trials else {}
    for name in ("predictionCount", "errorCount"):
        if name in counted:
            yield name, f"{counted[name]:.0f}"


def _places(job: "Job") -> Iterator[tuple[str, str]]:
    """Where what it made can be found."""
    if not job.trials:
        return
    trial = job.trials[-1]
    if trial.runs and trial.runs[-1].directory:
        yield "run directory", trial.runs[-1].directory
    if trial.latest_checkpoint is not None:
        yield "checkpoint", trial.latest_checkpoint
    if trial.metrics and job.spec.kind != "predict":
        newest = "  ".join(f"{name}={value:.6g}" for name, value in sorted(trial.metrics.items()))
        yield "metrics", f"{newest}\n(all of them: stoker jobs metrics {job.id})"


def command_line(job: "Job") -> str:
    """What the job runs, as one would type it."""
    spec = job.spec
    if spec.command is not None:
        return shlex.join(spec.command or ())
    words = ["python", "-m", spec.module or "", *spec.args]
    if spec.job_dir is not None:
        words += ["--job-dir", spec.job_dir]
    return shlex.join(words)


def _runs(trial: "Trial", *, now: float) -> Iterator[str]:
    rows = []
    for run in trial.runs:
        took = "" if run.started is None else duration((run.ended or now) - run.started)
        rows.append([str(run.attempt), run.state.value, str(run.phase or ""), took, _exit_words(run)])
    yield f"Runs of trial {trial.number}:"
    yield table(["RUN", "STATE", "PHASE", "RAN FOR", "ENDED BY"], rows)


def _exit_words(run: "Run") -> str:
    if run.stop is not None:
        return f"told to stop: {run.stop}"
    if run.exit is not None:
        return exit_words(run.exit)
    return run.message


def exit_words(exit: "Exited") -> str:
    """`exit code 1 (worker-1)`, `SIGKILL (chief-0)`."""
    who = f" ({exit.replica})" if exit.replica else ""
    if exit.signal is not None:
        return f"signal {exit.signal}{who}"
    return "" if exit.code is None else f"exit code {exit.code}{who}"


def _last_failure(job: "Job") -> "Run | None":
    """The newest run that ended badly, if that is what the job's state rests on."""
    if job.state.value not in ("FAILED", "QUEUED", "PREPARING"):
        return None
    runs = [run for trial in job.trials for run in trial.runs if run.state.value in ("FAILED", "LOST")]
    return runs[-1] if runs else None


def _failure(run: "Run") -> Iterator[str]:
    exit = run.exit
    phase = exit.phase if exit is not None else run.phase
    yield paint(f"Failure of run {run.id}", "red")
    if phase is not None:
        yield f"  phase:      {phase}"
    if exit is not None and (words := exit_words(exit)):
        yield f"  ended by:   {words}"
    message = run.message or (exit.message if exit is not None else "")
    if message:
        yield f"  message:    {message}"
    if exit is not None and exit.traceback:
        yield "  traceback:"
        yield from (f"    {line}" for line in exit.traceback.rstrip().splitlines())


def _summary(job: "Job") -> Iterator[str]:
    """gcloud's --summarize: one table of what matters."""
    rows = [
        [job.id, job.state.value, _clock(job.created), _clock(job.started), _clock(job.ended)],
    ]
    yield table(["JOB", "STATE", "CREATED", "STARTED", "ENDED"], rows, colours=[STATE_COLOURS.get(job.state.value)])


def _moment(then: float, *, now: float) -> str:
    return f"{_clock(then)} ({ago(then, now=now)})"


def _clock(then: float | None) -> str:
    return "" if then is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(then))
