"""Real processes killed at random moments; every event compared with what user code wrote, line by line."""

import json
import os
import random
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from stoker.client.client import Client, connect
from stoker.host.home import Home
from stoker.host.processes import ProcessId
from stoker.run_dir import RunDir
from stoker.schema.record import Job
from stoker.schema.state import JobState, RunState
from tests.e2e.conftest import kill_server
from tests.processes import processes_with_environment, wait_until

pytestmark = pytest.mark.slow

# Prints and reports numbered steps, checkpoints now and then, and goes on from where its latest checkpoint was.
STEADY = """
    import os, sys, time, stoker
    ctx = stoker.init()
    steps, pause_s = int(sys.argv[1]), float(sys.argv[2])
    first = int(open(ctx.latest_checkpoint).read()) if ctx.latest_checkpoint else 0
    for step in range(first, steps):
        print(f"step {step} of attempt {ctx.attempt}")
        print(f"warned at {step}", file=sys.stderr)
        ctx.report(step, loss=1.0 / (step + 1))
        if step % 10 == 9:
            with open("state.txt", "w") as file:
                file.write(str(step + 1))
            ctx.save_checkpoint("state.txt", step=step + 1)
        time.sleep(pause_s)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project" / "trainer"
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    (folder / "steady.py").write_text(textwrap.dedent(STEADY))
    return folder.parent


def submit(project: Path, name: str, *user_args: object, flags: tuple[str, ...] = ()) -> None:
    command = [sys.executable, "-m", "stoker.cli.main", "jobs", "submit", "training", name]
    command += ["--package-path", "trainer", "--module-name", "trainer.steady", "--region", "local", *flags]
    done = subprocess.run([*command, "--", *map(str, user_args)], cwd=project, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
def test_no_event_is_lost_or_doubled_when_the_server_is_killed_again_and_again(
    home: Home, project: Path, seed: int
) -> None:
    dice = random.Random(seed)
    names = [f"steady_{number}" for number in range(2)]
    for name in names:
        submit(project, name, 250, 0.02)

    for _ in range(8):
        seen = last_step(home, names[0])
        wait_until(lambda at=seen + dice.randint(1, 20): last_step(home, names[0]) >= min(at, 249), what="more steps")
        kill_server(home)
        if dice.random() < 0.5:  # sometimes it stays away for a while
            seen = last_step(home, names[0])
            wait_until(lambda at=seen + 10: last_step(home, names[0]) >= min(at, 249), what="steps with no server")
        connect(home).close()

    with connect(home) as client:
        for name in names:
            job = client.wait(name, timeout_s=120)
            assert job.state is JobState.SUCCEEDED, job.reason
            assert [run.attempt for run in job.trials[0].runs] == [1]
            assert_said_everything_once(client, home, job)


@pytest.mark.parametrize("seed", [3])
def test_run_is_restarted_from_its_checkpoint_when_the_supervisor_is_killed(
    home: Home, client: Client, project: Path, seed: int
) -> None:
    dice = random.Random(seed)
    submit(project, "orphan", 400, 0.02)

    for attempt in (1, 2):
        run_dir = home.run_dir("orphan", 1, attempt)
        wait_until(
            lambda d=run_dir: len(lines_written(d)) > 12 + dice.randint(0, 20), what=f"attempt {attempt} to work"
        )
        os.kill(supervisor_pid(run_dir), signal.SIGKILL)
        wait_until(lambda n=attempt + 1: home.run_dir("orphan", 1, n).path.exists(), what="the next attempt")
        assert not processes_with_environment("STOKER_RUN_DIR", str(run_dir)), "orphans of a lost run are still there"

    job = client.wait("orphan", timeout_s=120)
    assert job.state is JobState.SUCCEEDED, job.reason
    assert [run.state for run in job.trials[0].runs] == [RunState.LOST, RunState.LOST, RunState.SUCCEEDED]
    for attempt in (2, 3):
        first = lines_written(home.run_dir("orphan", 1, attempt))[0]
        assert int(first.split()[1]) > 0, "a restarted run went on from its checkpoint"
    wait_until(lambda: said_everything(client, home, client.job("orphan")), what="the lost runs' last words to arrive")
    assert_said_everything_once(client, home, client.job("orphan"))


def test_run_fails_with_the_signals_name_when_user_code_is_killed(home: Home, client: Client, project: Path) -> None:
    submit(project, "victim", 10_000, 0.02)
    run_dir = home.run_dir("victim", 1, 1)
    wait_until(lambda: len(lines_written(run_dir)) > 3, what="user code to work")

    os.kill(replica_pid(run_dir), signal.SIGKILL)

    job = client.wait("victim", timeout_s=60)
    assert job.state is JobState.FAILED
    assert job.trials[0].runs[0].exit is not None
    assert job.trials[0].runs[0].exit.signal == "SIGKILL"
    assert "SIGKILL" in job.reason
    assert_said_everything_once(client, home, job)


def test_everything_killed_at_once_is_picked_up_by_the_next_server(home: Home, client: Client, project: Path) -> None:
    submit(project, "blackout", 200, 0.02)
    run_dir = home.run_dir("blackout", 1, 1)
    wait_until(lambda: len(lines_written(run_dir)) > 20, what="user code to work")

    kill_server(home)
    os.kill(supervisor_pid(run_dir), signal.SIGKILL)
    os.kill(replica_pid(run_dir), signal.SIGKILL)

    job = client.wait("blackout", timeout_s=120)
    assert job.state is JobState.SUCCEEDED, job.reason
    assert [run.state for run in job.trials[0].runs] == [RunState.LOST, RunState.SUCCEEDED]
    wait_until(lambda: said_everything(client, home, client.job("blackout")), what="the lost run's last words")
    assert_said_everything_once(client, home, client.job("blackout"))


def test_next_server_takes_what_a_supervisor_left_that_was_told_to_leave(
    home: Home, client: Client, project: Path
) -> None:
    """Its run had ended and no server was there to hear of it; SIGTERM, as a shutdown of the machine sends."""
    submit(project, "unheard", 60, 0.02)
    run_dir = home.run_dir("unheard", 1, 1)
    wait_until(lambda: len(lines_written(run_dir)) > 3, what="user code to work")
    kill_server(home)
    wait_until(lambda: '"type":"exited"' in run_dir.spool.read_text(), what="the run to end")
    supervisor = ProcessId.of(supervisor_pid(run_dir))
    assert supervisor is not None

    supervisor.kill(signal.SIGTERM)
    wait_until(lambda: not supervisor.is_alive(), what="the supervisor to leave")
    with connect(home) as next_client:
        job = next_client.wait("unheard", timeout_s=120)

        assert job.state is JobState.SUCCEEDED, job.reason
        assert [run.attempt for run in job.trials[0].runs] == [1]
        assert_said_everything_once(next_client, home, job)


# --- what user code wrote, read from its own files; what the server was told, read from the API


def lines_written(run_dir: RunDir, stream: str = "stdout") -> list[str]:
    path = run_dir.output("chief-0", stream)
    return path.read_text().splitlines() if path.exists() else []


def last_step(home: Home, job: str) -> int:
    written = lines_written(home.run_dir(job, 1, 1))
    return int(written[-1].split()[1]) if written else -1


def metrics_written(run_dir: RunDir) -> list[tuple[int, float]]:
    events = [json.loads(line) for line in run_dir.events.read_text().splitlines()]
    return [(event["step"], event["values"]["loss"]) for event in events if event["type"] == "metric"]


def checkpoints_written(run_dir: RunDir) -> list[int]:
    events = [json.loads(line) for line in run_dir.events.read_text().splitlines()]
    return [event["step"] for event in events if event["type"] == "checkpoint"]


def lines_told(client: Client, job: str, run: str, stream: str) -> list[str]:
    told: list[str] = []
    after = 0
    while True:
        page = client.logs(job, after=after, limit=500)
        if not page.blocks:
            return told
        for block in page.blocks:
            if block.run == run and block.replica == "chief-0" and block.stream == stream:
                told += block.text.split("\n")
        after = page.cursor


def said_everything(client: Client, home: Home, job: Job) -> bool:
    return all(
        lines_told(client, job.id, run.id, stream) == lines_written(home.run_dir(job.id, 1, run.attempt), stream)
        for run in job.trials[0].runs
        for stream in ("stdout", "stderr")
    )


def assert_said_everything_once(client: Client, home: Home, job: Job) -> None:
    metrics = client.metrics(job.id)
    checkpoints = client.checkpoints(job.id)
    for run in job.trials[0].runs:
        run_dir = home.run_dir(job.id, 1, run.attempt)
        for stream in ("stdout", "stderr"):
            assert lines_told(client, job.id, run.id, stream) == lines_written(run_dir, stream)
        told = [(point.step, point.values["loss"]) for point in metrics if point.run == run.id]
        assert told == metrics_written(run_dir)
        assert [found.step for found in checkpoints if found.run == run.id] == checkpoints_written(run_dir)


def supervisor_pid(run_dir: RunDir) -> int:
    return int(json.loads(run_dir.processes.read_text())["supervisor"]["pid"])


def replica_pid(run_dir: RunDir) -> int:
    return int(json.loads(run_dir.processes.read_text())["replicas"]["chief-0"]["pid"])
