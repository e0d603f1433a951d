"""Where Determined's containers had things, on a machine without them."""

from pathlib import Path

import pytest

from stoker.compat.mounts import outside, with_links
from stoker.host.home import Home
from tests.compat.conftest import follow_experiment
from tests.e2e.conftest import home

__all__ = ["home"]  # a fixture, for the tests here


def test_paths_of_the_container_become_those_of_the_machine(tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    document = {
        "entrypoint": "python3 /run/determined/workdir/train.py --data=/corpus/train.csv /my/corpus --out /corpus2",
        "bind_mounts": [
            {"host_path": f"{tmp_path}/corpus/", "container_path": "/corpus"},
            {"host_path": "/no/such/folder", "container_path": "/lacking"},
            {"host_path": str(tmp_path), "container_path": "/unnamed"},
        ],
        "environment": {"image": "made/of:/corpus", "environment_variables": ["CORPUS=/corpus"]},
        "hyperparameters": {"lr": 0.1, "files": {"type": "categorical", "vals": ["/corpus/a", "b"]}},
        "data": {"dir": "/corpus"},
    }

    found = outside(document)

    corpus = f"{tmp_path}/corpus"
    assert found.document["entrypoint"] == f"python3 ./train.py --data={corpus}/train.csv /my/corpus --out /corpus2"
    assert found.document["environment"] == {"image": "made/of:/corpus", "environment_variables": [f"CORPUS={corpus}"]}
    assert found.document["hyperparameters"]["files"]["vals"] == [f"{corpus}/a", "b"]
    assert found.document["data"] == {"dir": corpus}
    assert found.notes == (
        f"/corpus of the container is {corpus} here",
        "/run/determined/workdir of the container is the job's own folder here",
        "bind_mounts: there is no /no/such/folder on this machine",
        f"bind_mounts: {tmp_path} is not mounted at /unnamed, should the code itself read that",
    )


def test_file_without_paths_of_a_container_stays_as_it_is() -> None:
    document = {"entrypoint": ["python3", "train.py", "gs://bucket/data"], "hyperparameters": {"x": 1}}

    assert outside(document).document == document
    assert not outside(document).notes
    values = {"command": ["python3", "train.py"], "origin": {"platform": "determined", "document": document}}
    assert with_links(values) is values


@pytest.mark.slow
def test_folder_mounted_into_the_working_directory_is_there(tmp_path: Path, home: Home) -> None:
    (tmp_path / "my corpus").mkdir()
    (tmp_path / "my corpus" / "word").write_text("mounted")
    files = {
        "train.py": "print(open('in/corpus/word').read(), open('own').read())\n",
        "own": "and shipped",
        "const.yaml": f"""
            entrypoint: python3 /run/determined/workdir/train.py
            bind_mounts:
              - {{host_path: {tmp_path}/my corpus, container_path: /run/determined/workdir/in/corpus}}
              - {{host_path: {tmp_path}, container_path: own}}
            searcher: {{name: single, metric: loss}}
        """,
    }

    ran = follow_experiment(tmp_path / "code", files)

    assert "mounted and shipped" in ran.out, ran.err
