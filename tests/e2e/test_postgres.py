"""Jobs and searches on PostgreSQL, by the command line, through kills of the server and a restart of the database."""

import json
import textwrap
from pathlib import Path

import pytest

from stoker.client.client import connect
from stoker.host.home import Home
from stoker.schema.state import JobState
from tests.e2e.command import Result, stoker, submit, write_package
from tests.e2e.conftest import kill_server
from tests.postgres import Cluster
from tests.processes import wait_until

pytestmark = pytest.mark.slow

# Goes on until it has been told enough, so that what happens meanwhile does not depend on how fast anything is.
STEADY = """
    import argparse, os, time
    import stoker

    parser = argparse.ArgumentParser()
    parser.add_argument("--x", type=float, default=0.0)
    parser.add_argument("--until")
    parser.add_argument("--job-dir")
    args = parser.parse_args()
    with stoker.init() as ctx:
        step = 0
        while step < 20 or not os.path.exists(args.until):
            step += 1
            print(f"step {step}", flush=True)
            ctx.report(step, loss=(args.x - 0.3) ** 2 + 1.0 / step)
            time.sleep(0.02)
"""


@pytest.fixture
def project(tmp_path: Path, home: Home) -> Path:
    return write_package(tmp_path / "project", steady=textwrap.dedent(STEADY))


def done(*words: str, cwd: Path | None = None) -> Result:
    result = stoker(*words, cwd=cwd)
    assert result.code == 0, result.err
    return result


def steps_of(home: Home, job: str) -> list[str]:
    with connect(home) as client:
        return [line for block in client.logs(job, text="step").blocks for line in block.text.splitlines()]


def wait_for_more(home: Home, job: str) -> None:
    seen = len(steps_of(home, job))
    wait_until(lambda: len(steps_of(home, job)) >= seen + 5, what=f"more steps of {job}")


def test_job_and_search_go_on_through_kills_of_server_and_database(
    home: Home, project: Path, tmp_path: Path, own_postgres: Cluster
) -> None:
    url = own_postgres.url("stoker")
    home.config.write_text(f'database = "{url}"\n')
    enough = tmp_path / "enough"

    assert submit(project, "steady", "steady", "--", "--until", str(enough)).code == 0
    wait_for_more(home, "steady")
    own_postgres.stop(mode="immediate")  # as by a power cut: no goodbye
    own_postgres.start()
    wait_for_more(home, "steady")
    kill_server(home)
    wait_for_more(home, "steady")
    space = {"x": {"type": "double", "min": 0, "max": 1}, "until": str(enough)}
    search = {"sampler": "random", "metric": "loss", "space": space, "max_trials": 4, "seed": 1}
    document = {"name": "hunt", "module": "trainer.steady", "search": search}
    (project / "hunt.yaml").write_text(json.dumps(document))
    name = done("experiment", "create", "hunt.yaml", ".", cwd=project).out.split()[-1]
    wait_for_more(home, name)
    kill_server(home)
    enough.touch()

    done("experiment", "wait", name)
    with connect(home) as client:
        job, hunt = client.wait("steady", timeout_s=60), client.wait(name, timeout_s=60)
        trials = client.trials(name).trials
    assert (job.state, hunt.state) == (JobState.SUCCEEDED, JobState.SUCCEEDED)
    assert [len(trial.runs) for trial in (*job.trials, *trials)] == [1] * 5
    said = steps_of(home, "steady")
    assert said == [f"step {number}" for number in range(1, len(said) + 1)]
    assert sorted(trial.outcome or "" for trial in trials) == ["completed"] * 4
    assert not home.database.exists()
    assert own_postgres.execute("SELECT count(*) FROM jobs", database="stoker") == [(2,)]


def test_second_home_is_sent_away_in_one_line(home: Home, tmp_path: Path, database: str) -> None:
    done("server", "start", "--database", database)

    other = {"STOKER_HOME": str(tmp_path / "other"), "STOKER_DATABASE": database}
    refused = stoker("server", "run", variables=other)

    assert refused.code == 2
    assert refused.err.count("\n") == 1
    assert f"is used by a server of {home.root} (pid " in refused.err
    again = stoker("server", "start", "--database", database)
    assert (again.code, "A server runs already" in again.err) == (2, True)
    done("server", "stop")


def test_store_is_copied_by_the_command_line(home: Home, project: Path, database: str) -> None:
    done("jobs", "submit", "training", "small", "--package-path", "trainer", "--module-name", "trainer.steady",
         "--stream-logs", "--", "--until", ".", cwd=project)  # fmt: skip
    running = stoker("server", "copy-store", "--to", database)
    assert (running.code, "A server uses" in running.err) == (2, True)
    done("server", "stop")

    copied = done("server", "copy-store", "--from", f"sqlite:///{home.database}", "--to", database)

    assert "both sides were read back and are the same" in copied.err
    home.config.write_text(f'database = "{database}"\n')
    assert json.loads(done("jobs", "describe", "small", "--json").out)["state"] == "SUCCEEDED"
    assert stoker("server", "copy-store", "--from", f"sqlite:///{home.database}", "--to", database).code == 2
    done("server", "stop")
