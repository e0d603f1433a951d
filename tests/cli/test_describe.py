"""`jobs describe`: what a person needs to know, and above all why a job failed."""

from stoker.cli.describe import command_line, page
from stoker.cli.logs import ending, exit_code
from stoker.schema.event import Phase
from stoker.schema.record import Job
from stoker.schema.state import JobState, RunState, StopReason
from tests.cli.records import NOW, a_failed_run, a_job, a_run


def described(job: Job) -> str:
    return "\n".join(page(job, now=NOW))


def test_a_job_that_succeeded_says_where_everything_is() -> None:
    job = a_job(
        spec={"args": ["--epochs", "3"], "job_dir": "/data/out"},
        trial={"metrics": {"loss": 0.25}, "latest_checkpoint": "/home/runs/taxi_1/1/1/checkpoints/step-000000009"},
        labels={"team": "fares"},
        priority=5,
    )

    text = described(job)

    for part in (
        "jobId:          taxi_1",
        "state:          SUCCEEDED",
        "ran for:        1m 00s",
        "priority:       5",
        "labels:         team=fares",
        "command:        python -m trainer.task --epochs 3 --job-dir /data/out",
        "job-dir:        /data/out",
        "run directory:  /home/runs/taxi_1/1/1",
        "checkpoint:     /home/runs/taxi_1/1/1/checkpoints/step-000000009",
        "metrics:        loss=0.25",
        "(1m ago)",
    ):
        assert part in text
    assert "Failure" not in text


def test_a_job_that_waits_says_why() -> None:
    job = a_job(JobState.QUEUED, reason="needs 4 CPUs, 2 of 2 are in use", started=None, ended=None)

    assert "why:            needs 4 CPUs, 2 of 2 are in use" in described(job)


def test_a_failed_job_shows_phase_exit_code_and_the_users_own_traceback() -> None:
    job = a_job(JobState.FAILED, runs=(a_failed_run(),), reason="chief-0 exited with code 1")

    text = described(job)

    assert "phase:      user code" in text
    assert "ended by:   exit code 1 (chief-0)" in text
    assert text.endswith("ValueError: no fares")


def test_a_killed_job_shows_the_signals_name() -> None:
    run = a_failed_run(code=None, signal="SIGKILL", traceback="")

    assert "ended by:   signal SIGKILL (chief-0)" in described(a_job(JobState.FAILED, runs=(run,)))


def test_a_job_whose_environment_failed_says_so() -> None:
    run = a_failed_run(phase=Phase.ENVIRONMENT, code=None, replica=None, traceback="")

    assert "phase:      environment" in described(a_job(JobState.FAILED, runs=(run,)))


def test_restarts_are_listed() -> None:
    runs = (a_failed_run(1), a_run(2, RunState.LOST, message="its supervisor vanished"), a_run(3))

    text = described(a_job(runs=runs))

    assert "Runs of trial 1:" in text
    assert "its supervisor vanished" in text
    assert "Failure" not in text  # it went well in the end


def test_a_run_that_was_told_to_stop_says_why() -> None:
    runs = (a_run(1, RunState.STOPPED, stop=StopReason.PAUSE), a_run(2, RunState.RUNNING, ended=None))

    assert "told to stop: pause" in described(a_job(JobState.RUNNING, runs=runs, ended=None))


def test_a_command_job_shows_its_command() -> None:
    job = a_job(spec={"kind": "command", "module": None, "command": ["python", "train.py", "a b"]})

    assert command_line(job) == "python train.py 'a b'"


def test_the_last_line_after_following_says_how_it_ended() -> None:
    succeeded = a_job()
    failed = a_job(JobState.FAILED, reason="chief-0 exited with code 1")

    assert ending(succeeded) == "Job [taxi_1] SUCCEEDED after 1m 10s."
    assert ending(failed).startswith("Job [taxi_1] FAILED after 1m 10s: chief-0 exited with code 1\n")
    assert [exit_code(job) for job in (succeeded, failed, a_job(JobState.CANCELLED))] == [0, 1, 1]
