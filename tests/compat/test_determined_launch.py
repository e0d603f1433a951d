"""Ranks that Determined's launchers start, as jobs."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from stoker.compat.dialects import determined
from stoker.compat.eras import supply
from stoker.host.home import Home
from stoker.packaging.environment.runtimes import Runtime
from stoker.packaging.package.requirements import OVERRIDE
from stoker.packaging.package.tree import source_of_directory, walk
from tests.compat.conftest import follow_experiment
from tests.e2e.conftest import home

__all__ = ["home"]  # a fixture, for the tests here

# Nothing of it says determined.
TRAIN = """
import torch
import torch.distributed as dist

dist.init_process_group("nccl")
total = torch.ones(1) * (dist.get_rank() + 1)
dist.all_reduce(total)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1), device_ids=[dist.get_rank()])
if dist.get_rank() == 0:
    print("backend", dist.get_backend(), "sum", total.item())
dist.destroy_process_group()
"""
CONFIG = """
entrypoint: python3 -m determined.launch.torch_distributed python3 train.py
resources: {slots_per_trial: 2, resource_pool: a100s}
searcher: {name: single, metric: loss}
environment:
  environment_variables: ["CUDA_VISIBLE_DEVICES="]
max_restarts: 0
"""


@pytest.mark.slow
def test_ranks_that_ask_for_nccl_have_gloo_where_there_is_no_gpu(tmp_path: Path, home: Home) -> None:
    ran = follow_experiment(tmp_path / "code", {"train.py": TRAIN, "const.yaml": CONFIG})

    assert "backend gloo sum 3.0" in ran.out, ran.out + ran.err
    assert "There is no pool 'a100s' here: the job runs in pool 'local'." in ran.err
    assert "there is no GPU here for the nccl backend; gloo takes its place" in ran.out + ran.err


@pytest.mark.parametrize(
    ("entrypoint", "slots", "is_told"),
    [
        ("python3 -m determined.launch.torch_distributed python3 train.py", 1, True),
        ("torchrun --nproc_per_node 2 train.py", 1, True),
        ("bash train.sh", 2, True),
        ("python3 train.py", 1, False),
        ("model_def:MyTrial", 2, False),
    ],
)
def test_jobs_of_ranks_are_told_what_to_do_without_nccl(entrypoint: str, slots: int, is_told: bool) -> None:
    document = {"entrypoint": entrypoint, "resources": {"slots_per_trial": slots}, "searcher": {"name": "single"}}
    document["searcher"] |= {"metric": "loss", "max_length": {"batches": 1}}

    values = determined.read(document, source="const.yaml").values

    assert ("STOKER_NCCL" in values["environment"]["variables"]) is is_told


def test_data_that_git_leaves_out_ships_beside_a_detignore(tmp_path: Path) -> None:
    files = {".detignore": "*.zip\n", ".gitignore": "*.npy\n", "data/.gitignore": "*\n"}
    for name, text in {**files, "train.py": "", "data/x.npy": "", "data/x.zip": ""}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)

    assert set(walk(source_of_directory(tmp_path)).paths) == {*files, "train.py", "data/x.npy"}


def test_pins_of_a_laptop_are_lower_bounds_for_code_that_imports_determined(tmp_path: Path) -> None:
    class Index:
        """Has everything, but for scipy 1.6.0."""

        def release_dates(self, lines: Sequence[str]) -> dict[str, str]:
            return {}

        def resolves(self, runtime: Runtime, lines: Sequence[str], as_of: str | None) -> bool:
            return f"{OVERRIDE}scipy>=1.6.0" in lines

        def has_wheel(self, line: str, runtime: Runtime) -> bool:
            return True

    pins = ("torch==1.8.0", "scipy==1.6.0", "tqdm==4.56.0")
    program = supply.Program({"train.py": b"import determined\n"}, pins, {"command": ["python3", "train.py"]})

    found = supply.supply_for(program, home=Home(tmp_path).make(), index=Index())

    assert (found.python, found.as_of) == (None, None)
    assert "Pins are lower bounds for code that imports determined; the job runs on default" in found.notes[0]
    ends = {line.removeprefix(OVERRIDE) for line in found.requirements}
    assert {"torch>=1.8.0", "scipy>=1.6.0", "tqdm>=4.56.0"} <= ends
