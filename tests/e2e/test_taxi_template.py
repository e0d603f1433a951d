"""The taxi template as a stranger goes through it: data in gs:// and no cloud, a job, the registry, the server, curl.

Its commands are its own README's, but for the server's port.
"""

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from stoker.host.home import Home
from tests.e2e.command import STOKER, Result, run, stoker

pytest.importorskip("gcsfs", reason="gcsfs is not installed")
pytestmark = pytest.mark.slow


def did(result: Result) -> Result:
    assert result.code == 0, result.out + result.err
    return result


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
def test_a_taxi_model_goes_from_the_template_to_curl(home: Home, tmp_path: Path) -> None:
    did(stoker("init", "taxi", "--template", "sklearn", cwd=tmp_path))
    project = tmp_path / "taxi"
    shown = re.findall(r"^\$ (.*)$", (project / "README.md").read_text(), re.MULTILINE)

    trained = did(run(["make", "submit_training", "JOB_NAME=taxi_1"], cwd=project))
    bucket = home.root / "buckets" / "my-bucket"
    assert (bucket / "models" / "taxi" / "model.joblib").exists(), trained.out
    for words in ("stoker models create ", "stoker versions create "):
        (command,) = [line for line in shown if line.startswith(words)]
        did(run(["bash", "-c", command], cwd=project))

    (serve,) = [shlex.split(line) for line in shown if line.startswith("stoker serve ")]
    (curl,) = [line for line in shown if line.startswith("curl ")]
    port = serve[serve.index("--port") + 1]
    assert f":{port}/" in curl
    serve[serve.index("--port") + 1] = "0"
    with subprocess.Popen([*STOKER, *serve[1:]], cwd=project, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            url = server.stdout.readline().strip()
            asked = did(run(["bash", "-c", curl.replace(f":{port}/", f":{url.rpartition(':')[2]}/") + " -sS"]))
        finally:
            server.terminate()

    (fare,) = json.loads(asked.out)["predictions"]
    assert fare == pytest.approx(3.8 + 16, abs=1)  # 10 km at 1.60
