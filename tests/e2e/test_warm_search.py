"""Searches whose trials are forked: the same results as without, also when what forks them is killed."""

import contextlib
import json
import os
import signal
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from stoker.client.client import Client
from stoker.host import processes
from stoker.host.home import Home
from stoker.schema.record import Job
from stoker.schema.state import JobState
from tests.e2e.command import stoker, write_package
from tests.processes import processes_with_environment, wait_until

pytestmark = pytest.mark.slow

STEPS = """
    import os, random, time
    import numpy
    import stoker

    with stoker.init() as ctx:
        if ctx.hparams["x"] > 0.9:
            raise stoker.InvalidHP("too large")
        random.seed(ctx.seed)
        numpy.random.seed(ctx.seed % 2**31)
        print("noise", random.random(), numpy.random.random(), flush=True)
        begun = os.path.join(ctx.run_dir, "begun")
        open(begun, "w").close()
        for step in range(1, 6):
            ctx.report(step, loss=ctx.hparams["x"] + 1 / step)
            time.sleep(ctx.hparams["pause_s"])
"""


@pytest.fixture
def project(tmp_path: Path, home: Home) -> Path:
    return write_package(tmp_path / "project", steps=textwrap.dedent(STEPS))


def create(project: Path, *, pause_s: float, **search: object) -> str:
    space = {"x": {"type": "double", "min": 0, "max": 1}, "pause_s": pause_s}
    whole = {"sampler": "random", "metric": "loss", "space": space, "seed": 3, **search}
    document = {"name": "steps", "module": "trainer.steps", "search": whole, "restarts": {"max_restarts": 2}}
    (project / "steps.yaml").write_text(json.dumps(document))
    done = stoker("experiment", "create", "steps.yaml", ".", cwd=project)
    assert done.code == 0, done.err
    return done.out.split()[-1]


def was_cold(home: Home, name: str) -> list[bool]:
    logs = sorted((home.root / "runs" / name).glob("*/*/supervisor.log"))
    return ["is started cold" in log.read_text() for log in logs]


def test_search_gives_the_same_whether_its_trials_are_forked_or_not(home: Home, client: Client, project: Path) -> None:
    names = [create(project, pause_s=0, max_trials=5, max_concurrent_trials=1, warm=warm) for warm in (True, False)]

    jobs = [client.wait(name, timeout_s=200) for name in names]

    assert [job.state for job in jobs] == [JobState.SUCCEEDED] * 2
    found = [told(client, home, job) for job in jobs]
    assert found[0] == found[1]
    assert was_cold(home, names[0]) == [False] * len(found[0])
    assert not processes_with_environment("STOKER_RUN_DIR", str(home.root), prefix=True), "nothing of a trial is left"


def told(client: Client, home: Home, job: Job) -> list[object]:
    """Of each trial: what it was, how it ended, what it reported and said."""
    trials = client.trials(job.id, limit=100).trials
    texts = [home.run_dir(job.id, trial.number, 1).output("chief-0", "stdout").read_text() for trial in trials]
    return [
        (trial.number, trial.hparams, trial.outcome, trial.objectives, text)
        for trial, text in zip(trials, texts, strict=True)
    ]


def zygotes(home: Home) -> list[int]:
    found = []
    for pid in processes_with_environment("STOKER_ROOM", " " * 4096):
        with contextlib.suppress(OSError):  # another test's, gone meanwhile
            if os.readlink(f"/proc/{pid}/cwd") == str(home.zygotes):
                found.append(pid)
    return found


def nurseries(home: Home) -> list[int]:
    here = processes_with_environment("STOKER_HOME", str(home.root))
    return [process.pid for process in processes.with_words([b"stoker.supervisor.warm.nursery"]) if process.pid in here]


def children(home: Home) -> list[int]:
    return processes_with_environment("STOKER_RUN_DIR", str(home.root / "runs"), prefix=True)


def test_search_survives_kills_of_all_that_forks(home: Home, client: Client, project: Path) -> None:
    name = create(project, pause_s=0.1, max_trials=12, max_concurrent_trials=2)
    victims: list[Callable[[Home], list[int]]] = [zygotes, nurseries, children, zygotes]

    for count, find in enumerate(victims):
        wait_until(
            lambda at=2 * (count + 1): len(list((home.root / "runs" / name).glob("*/1/begun"))) >= at, what="trials"
        )
        wait_until(lambda find=find: find(home), what=find.__name__)
        for pid in find(home):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    job = client.wait(name, timeout_s=200)

    assert job.state is JobState.SUCCEEDED, job.reason
    trials = client.trials(name, limit=100).trials
    assert [trial.outcome for trial in trials if trial.outcome != "invalid_hp"] == ["completed"] * 12
    for trial in trials:
        if trial.outcome == "completed":
            assert steps_of_last_run(client, name, trial.number) == [1, 2, 3, 4, 5]


def steps_of_last_run(client: Client, name: str, trial: int) -> list[int]:
    points = [point for point in client.metrics(name) if point.trial == trial]
    last = max(point.run for point in points)
    return [point.step for point in points if point.run == last]
