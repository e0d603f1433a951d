"""AI Platform on a real Ray cluster: its scripts, unchanged, and the processes of every tier."""

import json
import shutil
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoker.client.client import connect
from stoker.host.home import Home
from stoker.schema.state import JobState
from tests.e2e.command import run, stoker, submit, write_package
from tests.e2e.ray_pool import assert_nothing_is_left, ray_pool, wait_ready
from tests.fixtures.datasets import write_houses, write_rides
from tests.ray_cluster import IS_WHOLE, NOT_WHOLE, RayCluster, python_with_ray

PYTHON = python_with_ray()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(PYTHON is None or not IS_WHOLE, reason=NOT_WHOLE)]

FIXTURES = Path(__file__).parent.parent / "fixtures"
# As large as AI Platform's, of processes small enough for six cores.
TIERS = """
    [pools.cluster.tiers]
    STANDARD_1 = { chief = { cpus = 0.1 }, worker = { count = 4, cpus = 0.1 }, ps = { count = 3, cpus = 0.1 } }
    PREMIUM_1 = { chief = { cpus = 0.1 }, worker = { count = 19, cpus = 0.1 }, ps = { count = 11, cpus = 0.1 } }
"""
CUSTOM = """
    trainingInput:
      scaleTier: CUSTOM
      masterType: n1-standard-1
      workerType: n1-standard-1
      workerCount: 2
      parameterServerType: n1-standard-1
      parameterServerCount: 1
"""
# Each process listens where TF_CONFIG says it is; the chief goes to see all others. Parameter servers serve for ever.
MEET = """
    import json, os, socket, threading, time
    config = json.loads(os.environ["TF_CONFIG"])
    task, cluster = config["task"], config["cluster"]
    here = cluster[task["type"]][task["index"]]
    host, port = here.split(":")
    listener = socket.create_server((host, int(port)))
    def answer():
        while True:
            connection = listener.accept()[0]
            connection.sendall(f"{task['type']} {task['index']}".encode())
            connection.close()
    threading.Thread(target=answer, daemon=True).start()
    def meet(address):
        deadline = time.time() + 120
        while True:
            try:
                with socket.create_connection(address.split(":"), timeout=60) as connection:
                    return connection.recv(100).decode()
            except OSError:
                if time.time() > deadline:
                    raise
                time.sleep(0.1)
    if task["type"] == "ps":
        time.sleep(3600)
    if task["type"] in ("master", "chief"):
        met = {name: [meet(address) for address in cluster[name]] for name in sorted(cluster)}
        print(json.dumps(met), flush=True)
        print(json.dumps(cluster), flush=True)
        open(os.environ["STOKER_RUN_DIR"] + "/done", "w").close()
    else:  # until the chief has met us
        run = os.environ["STOKER_RUN_DIR"].partition("/nodes/1")[0].partition("/nodes/2")[0]
        while not os.path.exists(run + "/done"):
            time.sleep(0.1)
"""


@pytest.fixture
def nodes(home: Home, cluster: RayCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    with ray_pool(home, cluster, monkeypatch, more=TIERS) as nodes:
        with connect(home) as client:
            wait_ready(client)
        yield nodes


@pytest.mark.timeout(1200)
def test_scripts_for_ai_platform_run_unchanged(nodes: Home, cluster: RayCluster, tmp_path: Path) -> None:
    for name in ("tabular_torch", "bert_text", "taxi_sklearn", "keras_task"):
        shutil.copytree(FIXTURES / name, tmp_path / name)
    rides = {"TAXI_TRAIN": write_rides(tmp_path / "rides.csv"), "TAXI_EVAL": write_rides(tmp_path / "more.csv", seed=1)}
    houses = {"TRAIN_DATA": write_houses(tmp_path / "a.csv"), "EVAL_DATA": write_houses(tmp_path / "b.csv", seed=1)}
    cloud = ["scripts/train-cloud.sh"]
    tasks = {
        "tabular_torch": (cloud, {**rides, "JOB_DIR": "out"}, "out/model.pth"),
        "bert_text": (cloud, {"JOB_DIR": "out"}, "out/finetuned-tiny-bert/pytorch_model.bin"),
        "taxi_sklearn": (["make", "submit_training"], {}, "jobs/models/simpletaxifare/model.joblib"),
        "keras_task": (cloud, {**houses, "OUTPUT_DIR": "out"}, "out"),
    }

    for name, (command, variables, leaves) in tasks.items():
        given = {key: str(value) for key, value in variables.items()}
        done = run(command, cwd=tmp_path / name, variables={**given, "JOB_NAME": f"{name}_1"})
        assert done.code == 0, (name, done.err)
        assert (tmp_path / name / leaves).exists(), name

    listed = json.loads(stoker("jobs", "list", "--json").out)
    assert {(job["id"], job["pool"], job["state"]) for job in listed} == {
        (f"{name}_1", "cluster", "SUCCEEDED") for name in tasks
    }
    assert_nothing_is_left(cluster, nodes)


@pytest.mark.parametrize(
    ("tier", "workers", "servers"), [("STANDARD_1", 4, 3), ("PREMIUM_1", 19, 11), ("CUSTOM", 2, 1)]
)
def test_tier_is_real_processes_on_several_nodes_that_find_each_other(
    home: Home, nodes: Home, cluster: RayCluster, tmp_path: Path, tier: str, workers: int, servers: int
) -> None:
    project = write_package(tmp_path / "project", task=textwrap.dedent(MEET))
    (tmp_path / "custom.yaml").write_text(textwrap.dedent(CUSTOM))
    size = ("--config", str(tmp_path / "custom.yaml")) if tier == "CUSTOM" else ("--scale-tier", tier)

    done = submit(project, "meet", "task", *size, "--stream-logs")

    assert done.code == 0, done.err
    with connect(home) as client:
        assert client.job("meet").state is JobState.SUCCEEDED
        told = [line for block in client.logs("meet").blocks for line in block.text.split("\n") if line.startswith("{")]
    met, addresses = (json.loads(line) for line in told)
    chief = next(name for name in met if name not in ("worker", "ps"))
    assert met == {
        chief: [f"{chief} 0"],
        "worker": [f"worker {index}" for index in range(workers)],
        "ps": [f"ps {index}" for index in range(servers)],
    }
    everyone = [address for listed in addresses.values() for address in listed]
    assert len(set(everyone)) == 1 + workers + servers
    assert len({address.partition(":")[0] for address in everyone}) == 3, "on all three nodes"
    assert_nothing_is_left(cluster, nodes)
