"""A run as data: what is written is what is read, with pydantic and without."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from stoker.errors import StokerError
from stoker.origin import Origin, Platform, TrainerSettings
from stoker.run_dir import RunDir
from stoker.schema.job import JobSpec
from stoker.schema.launch import Archive, EnvironmentSpec, Launch, Replica, Role

IDS: dict[str, Any] = {"run": "taxi.2.3", "job": "taxi", "trial": 2, "trial_id": 7, "attempt": 3}
CHIEF = Replica(role=Role.CHIEF, index=0, rank=0, cpus=2.0, gpu_resource="a100")
WHOLE = Launch(
    **IDS,
    package="0" * 64,
    import_roots=("src",),
    environment=EnvironmentSpec(
        runtime="2.1",
        requirements=("tiny",),
        archives=(Archive(hash="ab" * 32, filename="x.whl"),),
        variables={"A": "b"},
    ),
    command=("python", "task.py"),
    args=("--epochs", "3"),
    hparams={"lr": 0.1, "layers": [1, 2]},
    data={"x": [1]},
    origin=Origin(Platform.DETERMINED, trainer=TrainerSettings(max_length={"epochs": 2}), slots=2),
    replicas=(CHIEF, Replica(role=Role.PS, index=0, rank=None, node=1)),
    addresses={"chief-0": "host:2222"},
    max_running_s=5.0,
)


def test_launch_is_read_as_it_was_written(tmp_path: Path) -> None:
    WHOLE.write(RunDir(tmp_path / "run"))

    assert Launch.read(RunDir(tmp_path / "run")) == WHOLE
    assert (WHOLE.num_nodes, WHOLE.world_size, WHOLE.on_node(0)) == (2, 1, (CHIEF,))


def test_pydantic_reads_and_writes_the_same_json() -> None:
    adapter = TypeAdapter(Launch)

    assert adapter.validate_json(json.dumps(WHOLE.to_json())) == WHOLE
    assert json.loads(adapter.dump_json(WHOLE)) == json.loads(json.dumps(WHOLE.to_json()))


def test_all_but_the_ids_and_the_replicas_have_defaults_that_are_the_same_for_both() -> None:
    given = {**IDS, "replicas": [{"role": "chief", "index": 0, "rank": 0}]}

    assert TypeAdapter(Launch).validate_python(given) == Launch.from_json(given)


@pytest.mark.parametrize("place", ["", "environment", "replicas"])
def test_unknown_fields_are_errors_for_pydantic_and_left_out_by_a_supervisor(place: str) -> None:
    values = json.loads(json.dumps(WHOLE.to_json()))
    into = {"": values, "environment": values["environment"], "replicas": values["replicas"][0]}[place]
    into["new_field"] = 1

    assert Launch.from_json(values) == WHOLE
    with pytest.raises(ValidationError, match="new_field"):
        TypeAdapter(Launch).validate_python(values)


def test_unknown_field_of_an_environment_is_named_to_the_user() -> None:
    values = {"name": "taxi", "module": "task", "environment": {"pyhton": "3.11"}}

    with pytest.raises(StokerError, match="1 bad field") as raised:
        JobSpec.parse(values, source="job.yaml")

    assert list(raised.value.problems) == ["environment.pyhton: no such field"]


RUN_JSON_OF_0_1 = (
    '{"run":"taxi.1.1","job":"taxi","trial":1,"trial_id":7,"attempt":1,"package":null,"source":"/code",'
    '"import_roots":["."],"environment":{"runtime":null,"python":null,"requirements":[],"archives":[],'
    '"prefer_runtime":false,"variables":{"A":"b"}},"module":"task","command":null,"args":["x"],"hparams":{"lr":0.1},'
    '"data":{"rows":3,"stoker":{"experiment":{"name":"n"},"slots":2}},"job_dir":null,"replicas":[{"cpus":1.0,'
    '"memory_gb":0.0,"gpus":0.0,"role":"chief","index":0,"rank":0,"node":0,"gpu_resource":null}],"addresses":{},'
    '"start_port":null,"chief_name":"chief","in_search":false,"metric":null,"warm":false,"latest_checkpoint":null,'
    '"artifacts":null,"seed":0,"max_running_s":null,"grace_s":30.0}'
)


def test_run_json_of_0_1_0_is_read(tmp_path: Path) -> None:
    run_dir = RunDir(tmp_path)
    run_dir.write_launch(RUN_JSON_OF_0_1)

    launch = Launch.read(run_dir)

    assert launch.replicas == (Replica(role=Role.CHIEF, index=0, rank=0),)
    assert (launch.args, launch.variables, launch.data) == (("x",), {"A": "b"}, {"rows": 3})
    assert launch.origin == Origin(Platform.DETERMINED, document={"name": "n"}, slots=2)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"replicas": 3}', '{"replicas": [{"role": "king"}]}'])
def test_what_is_not_a_launch_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    RunDir(tmp_path).write_launch(text)

    with pytest.raises(StokerError, match=r"run\.json is not a run that this stoker can start"):
        Launch.read(RunDir(tmp_path))


def test_launch_is_there_without_pydantic() -> None:
    script = "import stoker.schema.launch, stoker.supervisor.__main__, sys; sys.exit('pydantic' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
