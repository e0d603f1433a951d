"""The walk of a job by the command line: submit, watch, steer, and see why it failed."""

import json
import os
import signal
import subprocess
import zipfile
from pathlib import Path

import pytest

from stoker.client.client import Client
from stoker.host.home import Home
from stoker.schema.state import JobState
from tests.e2e.command import DEADLINE_S, STOKER, Result, stoker, submit, write_package
from tests.processes import wait_until

pytestmark = pytest.mark.slow

TASK = """
import os, sys
print("args", sys.argv[1:])
print("job", os.environ["CLOUD_ML_JOB_ID"])
"""
FAIL = """
def load():
    raise ValueError("no fares in file")
print("about to fail")
load()
"""
KILL = """
import os, signal
os.kill(os.getpid(), signal.SIGKILL)
"""
TALK = """
import logging, sys
logging.basicConfig(level="INFO")
logging.info("all is well")
logging.warning("fares are odd")
logging.error("fares are gone")
print("progress on stderr", file=sys.stderr)
for number in range(20):
    print("line", number)
"""
SLEEP = """
import time
print("asleep", flush=True)
while True:
    time.sleep(0.05)
"""


@pytest.fixture
def project(tmp_path: Path, home: Home) -> Path:
    return write_package(tmp_path / "project", task=TASK, fail=FAIL, kill=KILL, talk=TALK, sleep=SLEEP)


def wait_for_state(client: Client, name: str, state: JobState) -> None:
    wait_until(lambda: client.job(name).state is state, what=f"job {name} to be {state}")


def test_a_submitted_job_says_what_gcloud_said(project: Path) -> None:
    result = submit(project, "walk_1", "task", "--region", "us-central1")

    assert result.code == 0
    assert result.out.startswith("jobId: walk_1\nstate: ")
    assert "Job [walk_1] submitted successfully." in result.err
    assert "stoker jobs describe walk_1" in result.err
    assert "stoker jobs stream-logs walk_1" in result.err
    assert stoker("jobs", "wait", "walk_1").code == 0


def test_user_args_arrive_verbatim_and_job_dir_last(project: Path) -> None:
    result = submit(
        project, "walk_1", "task", "--stream-logs", "--job-dir", "out", "--", "--a b", "--", "", "--help", "ü"
    )

    assert result.code == 0, result.err
    assert f"args {['--a b', '--', '', '--help', 'ü', '--job-dir', str(project / 'out')]}" in result.lines
    assert "job walk_1" in result.lines
    assert (project / "out").is_dir()
    assert "SUCCEEDED" in result.err


def test_a_job_dir_in_the_cloud_is_handed_on_as_it_is(project: Path) -> None:
    result = submit(project, "walk_1", "task", "--stream-logs", "--job-dir", "gs://bucket/out")

    assert "args ['--job-dir', 'gs://bucket/out']" in result.lines
    assert not (project / "gs:").exists()


def test_a_failed_job_shows_phase_traceback_and_exit_code(project: Path) -> None:
    result = submit(project, "fails", "fail", "--stream-logs")
    described = stoker("jobs", "describe", "fails").out

    assert result.code == 1
    assert "ValueError: no fares in file" in result.lines
    assert "Job [fails] FAILED" in result.err
    assert "phase:      user code" in described
    assert "exit code 1 (chief-0)" in described
    assert "in load" in described
    assert described.rstrip().endswith("ValueError: no fares in file")
    found = json.loads(stoker("jobs", "describe", "fails", "--json").out)
    assert found["state"] == "FAILED"
    assert found["trials"][0]["runs"][0]["exit"]["code"] == 1


def test_a_killed_job_shows_the_signals_name(project: Path) -> None:
    result = submit(project, "killed", "kill", "--stream-logs")

    assert result.code == 1
    assert "SIGKILL" in result.err
    assert "signal SIGKILL (chief-0)" in stoker("jobs", "describe", "killed").out


def test_logs_are_chosen_by_level_text_and_number(project: Path) -> None:
    assert submit(project, "talks", "talk", "--stream-logs").code == 0

    def logs(*words: str) -> list[str]:
        return stoker("jobs", "logs", "talks", *words).lines

    warnings = logs("--level", "warning")
    assert [line.rpartition(":")[2] for line in warnings] == ["fares are odd", "fares are gone"]
    assert logs("--text", "line 7") == ["line 7"]
    assert logs("--regex", r"line 1[89]$") == ["line 18", "line 19"]
    assert logs("--tail", "3", "--text", "line") == ["line 17", "line 18", "line 19"]
    assert logs("--task-name", "worker-replica-0") == []
    assert logs("--rank", "0", "--text", "line 3") == ["line 3"]
    assert logs("--since", "1h", "--text", "line 3") == ["line 3"]
    assert logs("--until", "1h") == []
    first, *_ = map(json.loads, stoker("jobs", "logs", "talks", "--json", "--text", "stderr").out.splitlines())
    assert (first["level"], first["stream"], first["replica"]) == ("INFO", "stderr", "chief-0")


def test_jobs_are_listed_and_filtered(project: Path, client: Client) -> None:
    for name, words in (("census_1", ("--labels", "team=a")), ("census_2", ("--labels", "team=b,kind=x"))):
        assert submit(project, name, "task", *words).code == 0
    assert submit(project, "taxi_1", "fail").code == 0
    assert stoker("jobs", "wait", "census_1", "census_2", "taxi_1").code == 1

    def listed(*words: str) -> list[str]:
        return [job["id"] for job in json.loads(stoker("jobs", "list", "--json", *words).out)]

    assert listed() == ["taxi_1", "census_2", "census_1"]
    assert listed("--state", "failed") == ["taxi_1"]
    assert listed("--name", "census*") == ["census_2", "census_1"]
    assert listed("--label", "team=b") == ["census_2"]
    assert listed("--label", "team=b", "--label", "kind=y") == []
    assert listed("--label", "team=b", "--label", "kind=x") == ["census_2"]
    assert listed("--limit", "1") == ["taxi_1"]
    assert listed("--filter", "jobId:census* AND state:SUCCEEDED") == ["census_2", "census_1"]
    table = stoker("jobs", "list").out.splitlines()
    assert table[0].split() == ["JOB", "STATE", "CREATED", "DURATION", "PROGRESS", "POOL"]
    assert len(table) == 4
    assert stoker("jobs", "describe", "taxi_1", "--format", "value(state)").out == "FAILED\n"


def test_a_job_is_cancelled_and_its_follower_ends(project: Path, client: Client) -> None:
    assert submit(project, "sleeps", "sleep").code == 0
    wait_for_state(client, "sleeps", JobState.RUNNING)
    follower = subprocess.Popen([*STOKER, "jobs", "stream-logs", "sleeps"], stdout=subprocess.PIPE, text=True)
    assert follower.stdout is not None
    assert "asleep" in follower.stdout.readline()

    assert stoker("jobs", "cancel", "sleeps").code == 0

    assert follower.wait(timeout=120) == 1
    follower.stdout.close()
    assert stoker("jobs", "wait", "sleeps").code == 1
    assert client.job("sleeps").state is JobState.CANCELLED
    assert stoker("jobs", "cancel", "sleeps").code == 0  # a finished job stays as it is
    assert stoker("jobs", "describe", "sleeps", "--format", "value(state)").out == "CANCELLED\n"


def test_ctrl_c_stops_following_not_the_job(project: Path, client: Client) -> None:
    flags = ["--package-path", "trainer", "--module-name", "trainer.sleep", "--stream-logs"]
    follower = subprocess.Popen(
        [*STOKER, "jobs", "submit", "training", "sleeps", *flags],
        cwd=project,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert follower.stdout is not None
    assert "asleep" in follower.stdout.readline()

    follower.send_signal(signal.SIGINT)
    _, err = follower.communicate(timeout=120)

    assert follower.returncode == 130
    assert "Job [sleeps] goes on" in err
    assert client.job("sleeps").state is JobState.RUNNING


def test_a_job_is_paused_and_resumed(project: Path, client: Client) -> None:
    assert submit(project, "sleeps", "sleep").code == 0
    wait_for_state(client, "sleeps", JobState.RUNNING)

    assert stoker("jobs", "pause", "sleeps").code == 0
    wait_for_state(client, "sleeps", JobState.PAUSED)
    assert stoker("jobs", "resume", "sleeps").code == 0
    wait_for_state(client, "sleeps", JobState.RUNNING)

    described = stoker("jobs", "describe", "sleeps").out
    assert "told to stop: pause" in described


def test_waiting_has_an_end(project: Path) -> None:
    assert submit(project, "sleeps", "sleep").code == 0

    result = stoker("jobs", "wait", "sleeps", "--timeout", "0.5s")

    assert result.code == 124
    assert "is still" in result.err


def test_labels_and_priority_are_changed(project: Path, client: Client) -> None:
    assert submit(project, "walk_1", "task", "--labels", "a=1,b=2").code == 0

    assert stoker("jobs", "update", "walk_1", "--update-labels", "b=3,c=4", "--remove-labels", "a").code == 0
    assert client.job("walk_1").labels == {"b": "3", "c": "4"}
    assert stoker("jobs", "update", "walk_1", "--clear-labels", "--priority", "7").code == 0
    assert (client.job("walk_1").labels, client.job("walk_1").priority) == ({}, 7)
    assert stoker("jobs", "update", "walk_1").code == 2
    assert stoker("jobs", "update", "walk_1", "--update-labels", "A=b").code == 2


def test_a_dry_run_prints_the_launch_and_stores_nothing(project: Path, home: Home) -> None:
    result = submit(project, "walk_1", "task", "--dry-run", "--job-dir", "out", "--", "-x")

    launch = json.loads(result.out)["launch"]
    assert (launch["job"], launch["module"], launch["args"]) == ("walk_1", "trainer.task", ["-x"])
    assert [replica["role"] for replica in launch["replicas"]] == ["chief"]
    assert json.loads(stoker("jobs", "list", "--json").out) == []
    assert not list(home.packages.glob("*.tar.gz"))
    assert not (project / "out").exists()


def test_the_same_submission_again_is_the_same_job(project: Path) -> None:
    first, second = (submit(project, "walk_1", "task", "--json") for _ in range(2))

    assert (first.code, second.code) == (0, 0)
    assert json.loads(first.out)["number"] == json.loads(second.out)["number"]


def test_a_stoker_yaml_is_a_job_file(project: Path) -> None:
    (project / "stoker.yaml").write_text("name: from_file\nmodule: trainer.task\nargs: [--epochs, 3]\n")

    created = stoker("jobs", "create", "stoker.yaml", "--stream-logs", cwd=project)
    submitted = submit(project, "by_config", "task", "--config", "stoker.yaml", "--stream-logs", "--", "--epochs", "4")

    assert created.code == 0, created.err
    assert "args ['--epochs', '3']" in created.lines
    assert "job from_file" in created.lines
    assert "args ['--epochs', '4']" in submitted.lines


def test_a_command_job_runs_in_its_directory(project: Path) -> None:
    (project / "hello.py").write_text("import sys; print('hello', sys.argv[1:])\n")
    (project / "job.yaml").write_text("command: [python, hello.py, 1]\n")

    result = stoker("jobs", "create", "job.yaml", "--stream-logs", cwd=project)

    assert result.code == 0, result.err
    assert "hello ['1']" in result.lines
    (job,) = json.loads(stoker("jobs", "list", "--json").out)
    assert job["id"].startswith("project_2")  # the directory's name and the time


def test_a_prebuilt_wheel_is_installed_and_run(tmp_path: Path, home: Home) -> None:
    wheel = write_wheel(tmp_path / "fares-1.0-py3-none-any.whl", "fares", "print('fares from a wheel')\n")

    result = stoker(
        "jobs",
        "submit",
        "training",
        "wheel_1",
        "--packages",
        str(wheel),
        "--module-name",
        "fares.task",
        "--stream-logs",
    )
    refused = stoker("jobs", "submit", "training", "w_2", "--packages", str(wheel), "--module-name", "fares.tusk")

    assert result.code == 0, result.err
    assert "fares from a wheel" in result.lines
    assert refused.code == 2
    assert "No module 'fares.tusk' in fares-1.0" in refused.err


def write_wheel(path: Path, name: str, code: str) -> Path:
    info = f"{name}-1.0.dist-info"
    files = {
        f"{name}/__init__.py": "",
        f"{name}/task.py": code,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(path, "w") as wheel:
        for file, text in files.items():
            wheel.writestr(file, text)
        wheel.writestr(f"{info}/RECORD", "".join(f"{file},,\n" for file in [*files, f"{info}/RECORD"]))
    return path


def test_the_server_is_looked_at_and_stopped(home: Home) -> None:
    assert stoker("server", "status").code == 1

    assert stoker("server", "start").code == 0
    status = json.loads(stoker("server", "status", "--json").out)
    assert status["home"] == str(home.root)
    os.kill(status["pid"], 0)
    assert f"pid:      {status['pid']}" in stoker("server", "status").out
    assert stoker("pools", "list").out.split()[:2] == ["POOL", "ENGINE"]
    assert json.loads(stoker("pools", "list", "--json").out)[0]["name"] == "local"
    assert stoker("ui").out.startswith(f"{status['url']}/?token=")

    assert stoker("server", "stop").code == 0
    assert json.loads(stoker("server", "status", "--json").out) == {"running": False, "home": str(home.root)}
    assert stoker("server", "stop").code == 0


def test_settings_are_shown_with_their_origin(home: Home) -> None:
    (home.config).write_text("[pools.local]\ncpus = 4\n")

    settings = {each["name"]: each for each in json.loads(stoker("config", "show", "--json").out)}

    assert settings["home"]["origin"] == "environment: STOKER_HOME"
    assert (settings["pools.local.cpus"]["value"], settings["pools.local.cpus"]["origin"]) == (
        "4",
        f"file: {home.config}",
    )


def test_jobs_names_are_completed(project: Path) -> None:
    assert submit(project, "census_1", "task").code == 0

    assert stoker("__complete", "jobs", "describe", "cen").out == "census_1\n"


# --- stoker local train

ENVIRONMENT = """
import json, os
names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK")
print(json.dumps({"tf": json.loads(os.environ["TF_CONFIG"]), **{n: os.environ.get(n) for n in names}}), flush=True)
"""


def local_train(project: Path, module: str, *words: str) -> Result:
    flags = ("--package-path", "trainer", "--module-name", f"trainer.{module}")
    return stoker("local", "train", *flags, *words, cwd=project)


def test_local_train_needs_no_server_and_ends_with_the_users_exit_code(tmp_path: Path, home: Home) -> None:
    project = write_package(tmp_path / "project", leave="import sys; print(sys.argv[1:]); sys.exit(7)\n")

    result = local_train(project, "leave", "--job-dir", "out", "--", "--epochs", "3")

    assert result.code == 7
    assert result.out == "['--epochs', '3', '--job-dir', 'out']\n"
    assert (project / "out").is_dir()
    assert home.server() is None


def test_local_train_starts_many_processes(tmp_path: Path, home: Home) -> None:
    project = write_package(tmp_path / "project", show=ENVIRONMENT)

    result = local_train(
        project,
        "show",
        "--distributed",
        "--worker-count",
        "2",
        "--parameter-server-count",
        "1",
        "--evaluator-count",
        "1",
    )

    assert result.code == 0, result.err
    shown = {}
    for line in result.out.splitlines():
        replica, _, text = line.partition("] ")
        shown[replica.lstrip("[")] = json.loads(text)
    assert set(shown) >= {"chief-0", "worker-0", "worker-1"}
    cluster = shown["chief-0"]["tf"]["cluster"]
    assert {role: len(addresses) for role, addresses in cluster.items()} == {"chief": 1, "worker": 2, "ps": 1}
    assert shown["worker-1"]["tf"]["task"] == {"type": "worker", "index": 1}
    assert (shown["worker-1"]["RANK"], shown["worker-1"]["WORLD_SIZE"]) == ("2", "3")


def test_local_train_of_torch_code_starts_no_parameter_servers(tmp_path: Path, home: Home) -> None:
    project = write_package(tmp_path / "project", show=f"if False:\n    import torch\n{ENVIRONMENT}")

    result = local_train(project, "show", "--distributed", "--worker-count", "1")

    assert result.code == 0, result.err
    assert sorted(line.partition("]")[0] for line in result.out.splitlines()) == ["[chief-0", "[worker-0"]


def test_local_train_warns_of_counts_that_change_nothing(project: Path) -> None:
    result = local_train(project, "task", "--worker-count", "3")

    assert result.code == 0
    assert "--worker-count is ignored if --distributed is not provided." in result.err


def test_local_train_of_the_current_directory(project: Path) -> None:
    result = stoker("local", "train", "--module-name", "trainer.task", cwd=project)

    assert result.code == 0, result.err
    assert result.out.startswith("args []\n")


def test_the_page_is_opened_for_somebody_at_a_screen(home: Home, tmp_path: Path) -> None:
    browser, opened = tmp_path / "browser", tmp_path / "opened"
    browser.write_text(f'#!/bin/sh\necho "$1" >> {opened}\n')
    browser.chmod(0o755)
    keyboard, terminal = os.openpty()

    def at_the_terminal(*words: str) -> None:
        environment = {**os.environ, "BROWSER": str(browser)}
        subprocess.run([*STOKER, "ui", *words], stdout=terminal, env=environment, check=True, timeout=DEADLINE_S)

    url = stoker("ui", variables={"BROWSER": str(browser)}).out.strip()
    at_the_terminal("--no-open")
    assert not opened.exists()

    at_the_terminal()

    assert opened.read_text().strip() == url
    os.close(terminal)
    os.close(keyboard)
