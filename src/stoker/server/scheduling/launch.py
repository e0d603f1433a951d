"""From what is stored to what is started: a run as a Launch, without I/O."""

from stoker.schema.job import JobSpec
from stoker.schema.launch import Launch, Replica
from stoker.schema.record import Job, Run, Trial
from stoker.schema.search import Single

_LEAST_S = 1.0


def build_launch(job: Job, trial: Trial, run: Run, replicas: tuple[Replica, ...]) -> Launch:
    """`replicas` are what the job comes to on its pool (`scheduling.placement.replicas_for`)."""
    spec = job.spec
    return Launch(
        run=run.id,
        job=job.id,
        trial=trial.number,
        trial_id=trial.id,
        attempt=run.attempt,
        package=spec.package,
        import_roots=spec.import_roots,
        environment=spec.environment,
        module=spec.module,
        command=spec.command,
        args=spec.args,
        hparams=trial.hparams,
        data=spec.data,
        origin=spec.origin,
        job_dir=job_dir_of(spec, trial),
        replicas=replicas,
        chief_name=spec.chief_name,
        in_search=spec.search is not None,
        metric=spec.search.metric if spec.search is not None else None,
        warm=spec.search is not None and spec.search.warm and not isinstance(spec.search.sampler, Single),
        latest_checkpoint=trial.latest_checkpoint,
        seed=spec.seed if trial.seed is None else trial.seed,
        max_running_s=_left_s(spec.limits.max_running_s, trial),
        grace_s=spec.limits.grace_s,
    )


def find_run(job: Job, run: str) -> tuple[Trial, Run]:
    """The run of this name, and its trial."""
    return next((trial, found) for trial in job.trials for found in trial.runs if found.id == run)


def job_dir_of(spec: JobSpec, trial: Trial) -> str | None:
    """Each trial of a search has a folder of its own, named by its number, as on AI Platform."""
    if spec.job_dir is None or spec.search is None:
        return spec.job_dir
    return f"{spec.job_dir.rstrip('/')}/{trial.number}"


def _left_s(max_running_s: float | None, trial: Trial) -> float | None:
    """The limit is the job's: what earlier runs have used is gone."""
    if max_running_s is None:
        return None
    used = sum(run.ended - run.started for run in trial.runs if run.started is not None and run.ended is not None)
    return max(max_running_s - max(used, 0.0), _LEAST_S)
