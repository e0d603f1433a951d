"""examples/cluster: manifests that hang together, scripts that parse, and only commands that there are."""

import importlib
import re
import shlex
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from stoker.cli.main import NOUNS
from stoker.terminal.parser import Parser, split_user_args

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples" / "cluster"
SCRIPTS = {
    "ray-on-slurm.sbatch": (EXAMPLES / "ray-on-slurm.sbatch").read_text(),
    "run.sh": (EXAMPLES / "run.sh").read_text(),
}


def documents(name: str) -> dict[str, dict[str, Any]]:
    return {found["kind"]: found for found in yaml.safe_load_all((EXAMPLES / name).read_text())}


CLUSTER = documents("raycluster.yaml")
SCRIPTS["start-server.sh"] = CLUSTER["ConfigMap"]["data"]["start-server.sh"]
SPECS = {
    "raycluster.yaml": CLUSTER["RayCluster"]["spec"],
    "rayjob.yaml": documents("rayjob.yaml")["RayJob"]["spec"]["rayClusterSpec"],
}


@pytest.mark.parametrize("name", SPECS)
def test_ray_cluster_has_the_shape_that_kuberay_wants(name: str) -> None:
    spec = SPECS[name]
    groups = [spec["headGroupSpec"], *spec["workerGroupSpecs"]]

    wanted = next(text for text in _extras()["ray"] if text.startswith("ray"))
    assert f">={'.'.join(spec['rayVersion'].split('.')[:2])}" in wanted, (
        "the version that stoker's bridge is tried with"
    )
    assert spec["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0", "KubeRay wants strings"
    for group in groups:
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
        pod = group["template"]["spec"]
        volumes = {volume["name"] for volume in pod["volumes"]}
        (container,) = pod["containers"]
        assert container["image"] == "IMAGE", "one image for all, by the name that the page tells to replace"
        assert container["resources"]["requests"] == container["resources"]["limits"], "Ray counts the limits"
        assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
        assert "home" in volumes, "checkpoints are reached from every node"
    for group in spec["workerGroupSpecs"]:
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]


def test_server_is_reached_by_the_name_and_port_that_nodes_are_told() -> None:
    service, cluster = CLUSTER["Service"], CLUSTER["RayCluster"]
    script = SCRIPTS["start-server.sh"]
    port = service["spec"]["ports"][0]["targetPort"]

    assert service["spec"]["selector"]["ray.io/cluster"] == cluster["metadata"]["name"]
    assert f"--server-url http://{service['metadata']['name']}:{port}" in script
    assert f"--port {port}" in script
    most = sum(group["maxReplicas"] for group in cluster["spec"]["workerGroupSpecs"])
    assert f"--max-nodes {most}" in script
    claims = {CLUSTER["PersistentVolumeClaim"]["metadata"]["name"]}
    pods = [cluster["spec"]["headGroupSpec"], *cluster["spec"]["workerGroupSpecs"]]
    found = [volume for pod in pods for volume in pod["template"]["spec"]["volumes"]]
    assert {volume["persistentVolumeClaim"]["claimName"] for volume in found if volume["name"] == "home"} == claims


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTS)
def test_script_is_a_shell_s(name: str) -> None:
    shell = "bash" if name.endswith("sbatch") else "sh"
    done = subprocess.run([shell, "-n"], input=SCRIPTS[name], text=True, capture_output=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", SCRIPTS)
def test_script_uses_commands_and_flags_that_there_are(name: str) -> None:
    said = [command for command in _commands(SCRIPTS[name]) if command[:1] == ["stoker"]]

    assert len(said) >= 3
    for _, noun, *words in said:
        parser = Parser(prog=f"stoker {noun}")
        importlib.import_module(NOUNS[noun].module).build(parser)
        ours, _ = split_user_args(words)
        parser.parse_args(ours)  # SystemExit or UsageError if not


def test_sbatch_says_what_it_needs_of_slurm() -> None:
    text = SCRIPTS["ray-on-slurm.sbatch"]
    asked = dict(re.findall(r"^#SBATCH --([a-z-]+)=(\S+)$", text, re.MULTILINE))

    assert asked["ntasks-per-node"] == "1", "one raylet a node"
    assert {"nodes", "cpus-per-task", "time", "signal"} <= asked.keys()
    assert text.startswith("#!/bin/bash\n")


def _extras() -> dict[str, list[str]]:
    found = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return dict(found["project"]["optional-dependencies"])


def _commands(script: str) -> list[list[str]]:
    """The simple commands of a script, without redirections; enough of a shell for these."""
    lines = re.sub(r"\\\n\s*", " ", script.replace("$server_port", "8081")).splitlines()
    lines = [
        re.sub(r"(^|\s)(exec|until)\s+(?=stoker)", " ", line) for line in lines if not line.lstrip().startswith("#")
    ]
    lines = [re.sub(r"\s*\d?>[^\s;|&]*(?:&1)?", "", re.sub(r"2>&1", "", line)) for line in lines]
    parts = [part for line in lines for part in re.split(r"\|\||&&|;|&(?!\d)", line)]
    return [shlex.split(part) for part in parts if part.strip().startswith("stoker ")]
