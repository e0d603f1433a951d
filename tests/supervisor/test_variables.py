"""What a replica finds around it, by table."""

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest

from stoker.host import processes
from stoker.run_dir import RunDir
from stoker.schema.launch import EnvironmentSpec, Launch, Replica, Role
from stoker.supervisor.variables import (
    addressed,
    command,
    process_environment,
    split_gpus,
    variables,
)
from tests.supervisor.conftest import replicas

PYTHON = Path("/environment/bin/python")
RUN_DIR = RunDir("/home/runs/taxi/1/1")
TORCHRUN = {
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_NAME", "ROLE_RANK",
    "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT",
    "TORCHELASTIC_MAX_RESTARTS", "TORCHELASTIC_USE_AGENT_STORE",
}  # fmt: skip


def a_launch(**fields: Any) -> Launch:
    values: dict[str, Any] = {"run": "taxi.2.3", "job": "taxi", "trial": 2, "trial_id": 7, "attempt": 3}
    values |= {"module": "trainer.task", "replicas": replicas(), "package": "0" * 64}
    return Launch(**{**values, **fields})


def ports_of(launch: Launch) -> dict[str, int]:
    return {replica.name: 2222 + place for place, replica in enumerate(addressed(launch))}


def found(launch: Launch, name: str = "chief-0", *, clustered: bool = True) -> dict[str, str]:
    (replica,) = [replica for replica in launch.replicas if replica.name == name]
    return variables(launch, replica, ports=ports_of(launch), run_dir=RUN_DIR, clustered=clustered)


def tf_config(launch: Launch, name: str = "chief-0", *, clustered: bool = True) -> dict[str, Any]:
    config: dict[str, Any] = json.loads(found(launch, name, clustered=clustered)["TF_CONFIG"])
    return config


# --- the command line


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "PYTHON -m trainer.task"),
        ({"args": ("--epochs", "3")}, "PYTHON -m trainer.task --epochs 3"),
        ({"args": ("x",), "job_dir": "gs://b/o"}, "PYTHON -m trainer.task x --job-dir gs://b/o"),
        ({"hparams": {"lr": 0.1}, "args": ("x",)}, "PYTHON -m trainer.task x"),
        (
            {"hparams": {"learning-rate": 1e-5, "n_units": 8, "kind": "a b", "bias": True}, "in_search": True},
            "PYTHON -m trainer.task --learning-rate 1e-05 --n_units 8 --kind a b --bias true",
        ),
        (
            {"hparams": {"lr": 0.1}, "in_search": True, "args": ("x",), "job_dir": "out"},
            "PYTHON -m trainer.task x --lr 0.1 --job-dir out",
        ),
        ({"module": None, "command": ("python", "a.py"), "job_dir": "out"}, "PYTHON a.py"),
        ({"module": None, "command": ("python3", "a.py"), "args": ("b",)}, "PYTHON a.py b"),
        ({"module": None, "command": ("bash", "python")}, "bash python"),
    ],
)
def test_command_line(fields: dict[str, Any], words: str) -> None:
    assert " ".join(command(a_launch(**fields), PYTHON)) == words.replace("PYTHON", str(PYTHON))


# --- TF_CONFIG and CLUSTER_SPEC


def test_single_machine_job_is_a_cluster_of_one() -> None:
    config = tf_config(a_launch())

    assert config["cluster"] == {"chief": ["127.0.0.1:2222"]}
    assert config["task"] == {"type": "chief", "index": 0}
    assert config["environment"] == "cloud"


def test_cluster_has_chief_ps_and_workers_but_no_evaluator() -> None:
    launch = a_launch(replicas=replicas(workers=2, ps=1, evaluators=1))
    cluster = {
        "chief": ["127.0.0.1:2222"],
        "ps": ["127.0.0.1:2223"],
        "worker": ["127.0.0.1:2224", "127.0.0.1:2225"],
    }

    for name, task in [
        ("chief-0", {"type": "chief", "index": 0}),
        ("worker-1", {"type": "worker", "index": 1}),
        ("ps-0", {"type": "ps", "index": 0}),
        ("evaluator-0", {"type": "evaluator", "index": 0}),
    ]:
        assert tf_config(launch, name)["cluster"] == cluster
        assert tf_config(launch, name)["task"] == task


def test_chief_is_master_where_it_was() -> None:
    config = tf_config(a_launch(chief_name="master", replicas=replicas(workers=1)))

    assert set(config["cluster"]) == {"master", "worker"}
    assert config["task"] == {"type": "master", "index": 0}


def test_trial_is_named_in_searches_alone() -> None:
    assert tf_config(a_launch(in_search=True))["task"] == {"type": "chief", "index": 0, "trial": "2"}
    assert found(a_launch(in_search=True))["CLOUD_ML_TRIAL_ID"] == "2"
    assert found(a_launch(in_search=True, metric="accuracy"))["CLOUD_ML_HP_METRIC_TAG"] == "accuracy"
    assert "CLOUD_ML_HP_METRIC_TAG" not in found(a_launch())
    assert "trial" not in tf_config(a_launch())["task"]
    assert "CLOUD_ML_TRIAL_ID" not in found(a_launch())


def test_local_train_without_distributed_has_an_empty_cluster_and_task() -> None:
    launch = a_launch(package=None, source="/src", args=("--epochs", "3"))
    config = tf_config(launch, clustered=False)

    assert (config["cluster"], config["task"], config["environment"]) == ({}, {}, "cloud")
    assert config["job"]["job_name"] == "trainer.task"
    assert config["job"]["args"] == ["--epochs", "3"]


def test_job_in_tf_config_is_what_was_asked_for() -> None:
    config = tf_config(a_launch(args=("--epochs", "3"), job_dir="gs://b/o"))

    assert config["job"] == {
        "job_name": "taxi",
        "args": ["--epochs", "3"],
        "python_module": "trainer.task",
        "job_dir": "gs://b/o",
    }


def test_cluster_spec_is_like_tf_config_with_open_ports() -> None:
    launch = a_launch(replicas=replicas(workers=1, evaluators=1), in_search=True)
    spec = json.loads(found(launch, "worker-0")["CLUSTER_SPEC"])

    assert spec["cluster"] == tf_config(launch)["cluster"]
    assert spec["task"] == {"type": "worker", "index": 0, "trial": "2"}
    assert spec["open_ports"] == [2223]
    assert json.loads(found(launch, "evaluator-0")["CLUSTER_SPEC"])["open_ports"] == []


# --- the rest


def test_ids_files_and_folders() -> None:
    seen = found(a_launch(job_dir="gs://bucket/out/"))

    assert seen["STOKER_RUN_DIR"] == str(RUN_DIR)
    assert seen["STOKER_REPLICA"] == "chief-0"
    assert seen["CLOUD_ML_JOB_ID"] == "taxi"
    assert seen["CLOUD_ML_HP_METRIC_FILE"] == f"{RUN_DIR}/hypertune/chief-0.metrics"
    assert seen["AIP_MODEL_DIR"] == "gs://bucket/out/model/"
    assert seen["AIP_CHECKPOINT_DIR"] == "gs://bucket/out/checkpoints/"
    assert seen["AIP_TENSORBOARD_LOG_DIR"] == "gs://bucket/out/logs/"


def test_without_a_job_dir_there_are_no_folders_of_vertex() -> None:
    assert not [name for name in found(a_launch()) if name.startswith("AIP_")]


def test_one_process_has_none_of_torchruns_variables() -> None:
    assert not TORCHRUN & set(found(a_launch(replicas=replicas(ps=1, evaluators=1))))


@pytest.mark.parametrize(("name", "rank"), [("chief-0", 0), ("worker-0", 1), ("worker-1", 2)])
def test_ranks_have_torchruns_variables(name: str, rank: int) -> None:
    launch = a_launch(replicas=replicas(workers=2, ps=1))
    seen = found(launch, name)

    assert TORCHRUN <= set(seen)
    assert seen["RANK"] == seen["LOCAL_RANK"] == seen["ROLE_RANK"] == str(rank)
    assert seen["WORLD_SIZE"] == seen["LOCAL_WORLD_SIZE"] == seen["ROLE_WORLD_SIZE"] == "3"
    assert (seen["GROUP_RANK"], seen["GROUP_WORLD_SIZE"], seen["ROLE_NAME"]) == ("0", "1", "default")
    assert (seen["MASTER_ADDR"], seen["MASTER_PORT"]) == ("127.0.0.1", "2222")
    assert seen["TORCHELASTIC_RUN_ID"] == "taxi.2.3"
    assert seen["TORCHELASTIC_RESTART_COUNT"] == "2"
    assert seen["TORCHELASTIC_USE_AGENT_STORE"] == "False"
    assert not TORCHRUN & set(found(launch, "ps-0"))


def test_variables_are_those_that_torchs_own_agent_sets() -> None:
    """Read in the installed torch, so that a new one that sets another is noticed."""
    torch = importlib.util.find_spec("torch")
    if torch is None or torch.origin is None:
        pytest.skip("torch is not installed")
    elastic = Path(torch.origin).parent / "distributed" / "elastic"
    agent = (elastic / "agent" / "server" / "local_elastic_agent.py").read_text()
    start = agent.index("worker_env = {")
    names = set(re.findall(r'"([A-Z_]+)":', agent[start : agent.index("}", agent.index("ASYNC_ERROR", start))]))
    names.add("LOCAL_RANK")  # set beside

    assert names == TORCHRUN | {"TORCH_NCCL_ASYNC_ERROR_HANDLING"}  # which a user's own replaces: see below


def test_local_ranks_are_counted_per_node() -> None:
    ranked = [Replica(role=Role.CHIEF, index=0, rank=0, node=0), Replica(role=Role.WORKER, index=0, rank=1, node=0)]
    ranked += [Replica(role=Role.WORKER, index=1, rank=2, node=1), Replica(role=Role.WORKER, index=2, rank=3, node=1)]
    seen = found(a_launch(replicas=tuple(ranked)), "worker-2")

    assert (seen["RANK"], seen["LOCAL_RANK"], seen["LOCAL_WORLD_SIZE"]) == ("3", "1", "2")
    assert (seen["GROUP_RANK"], seen["GROUP_WORLD_SIZE"], seen["WORLD_SIZE"]) == ("1", "2", "4")


def test_users_variables_are_there_but_do_not_replace_the_contract() -> None:
    spec = EnvironmentSpec(variables={"A": "1", "PYTHONUNBUFFERED": "", "CLOUD_ML_JOB_ID": "mine"})
    seen = found(a_launch(environment=spec))

    assert (seen["A"], seen["PYTHONUNBUFFERED"], seen["CLOUD_ML_JOB_ID"]) == ("1", "", "taxi")


# --- the whole environment


def whole(inherited: dict[str, str], own: dict[str, str] | None = None, **fields: Any) -> dict[str, str]:
    return process_environment(inherited, own or {}, launch=a_launch(**fields), root=Path("/package"))


def test_environment_is_inherited_less_the_servers_address_and_token() -> None:
    seen = whole({"HOME": "/root", "STOKER_SERVER": "http://x", "STOKER_TOKEN": "t", "STOKER_HOME": "/h"})

    assert seen["HOME"] == "/root"
    assert not {"STOKER_SERVER", "STOKER_TOKEN"} & set(seen)


def test_import_roots_come_before_the_inherited_path() -> None:
    assert whole({"PYTHONPATH": "/mine"}, import_roots=(".", "src"))["PYTHONPATH"] == "/package:/package/src:/mine"
    assert whole({}, import_roots=(".",))["PYTHONPATH"] == "/package"


def test_threads_are_limited_when_there_are_several_and_nobody_said_otherwise() -> None:
    several = replicas(workers=1)

    assert whole({}, replicas=several)["OMP_NUM_THREADS"] == "1"
    assert whole({}, replicas=several)["TORCH_NCCL_ASYNC_ERROR_HANDLING"] == "1"
    assert whole({"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}, replicas=several)["TORCH_NCCL_ASYNC_ERROR_HANDLING"] == "0"
    assert whole({"OMP_NUM_THREADS": "4"}, replicas=several)["OMP_NUM_THREADS"] == "4"
    assert whole({}, {"OMP_NUM_THREADS": "2"}, replicas=several)["OMP_NUM_THREADS"] == "2"
    assert "OMP_NUM_THREADS" not in whole({})


def test_run_inside_a_run_does_not_see_the_outer_ones_cluster() -> None:
    outer = {"STOKER_RUN_DIR": "/outer", "RANK": "3", "WORLD_SIZE": "4", "TF_CONFIG": "{}", "CLOUD_ML_TRIAL_ID": "9"}

    assert not set(outer) - {"STOKER_RUN_DIR"} & set(whole(outer)) - {"STOKER_RUN_DIR"}
    assert whole({"RANK": "3"})["RANK"] == "3", "a shell's own variables are the user's business"


# --- GPUs


def with_gpus(*amounts: float) -> tuple[Replica, ...]:
    return tuple(Replica(role="worker", index=n, rank=n, gpus=gpus) for n, gpus in enumerate(amounts))


@pytest.mark.parametrize(
    ("amounts", "visible", "expected"),
    [
        ((1, 1), "0123", ["0", "1"]),
        ((2, 1, 1), "0123", ["0,1", "2", "3"]),
        ((0, 1), "01", [None, "0"]),
        ((1,), "", [None]),
        ((0.5, 0.5, 1), "01", ["0", "0", "1"]),
        ((0.5, 1, 0.5), "012", ["0", "1", "2"]),
        ((0.6, 0.6), "01", ["0", "1"]),
        ((1, 1, 1), "01", ["0", "1", "0"]),
        ((4,), "01", ["0,1"]),
    ],
)
def test_gpus_are_split(amounts: tuple[float, ...], visible: str, expected: list[str | None]) -> None:
    split = split_gpus(with_gpus(*amounts), list(visible))

    assert [split.get(f"worker-{n}") for n in range(len(amounts))] == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [("0,1", ["0", "1"]), ("GPU-abc, GPU-def", ["GPU-abc", "GPU-def"]), ("", []), ("-1", []), ("NoDevFiles", [])],
)
def test_visible_gpus_are_those_we_were_given(given: str, expected: list[str]) -> None:
    assert processes.visible_gpus({"CUDA_VISIBLE_DEVICES": given}) == expected
