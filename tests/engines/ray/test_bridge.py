"""The engine's side of a bridge, without Ray: another program answers in its place."""

import sys
from pathlib import Path

import pytest

from stoker.engines.base import Liveness
from stoker.engines.ray.engine import Bridge, RayEngine
from stoker.engines.ray.notes import is_cancelled
from stoker.errors import StokerError
from stoker.host.home import Home
from stoker.schema.launch import Launch
from stoker.schema.pool import RayPool

# The first finds another at work, which leaves at that very moment; the second is the bridge, for one question.
BRIDGE = """#!{python}
import os, socket, sys
from pathlib import Path
home, name = sys.argv[4:6]
os.chdir(Path(home, "ray"))
if not Path("first").exists():
    Path("first").touch()
    sys.exit(0)
listener = socket.socket(socket.AF_UNIX)
listener.bind(name + ".sock")
listener.listen()
with listener.accept()[0] as asked:
    asked.recv(1000)
    asked.sendall(b'{{"answer": "here"}}' + bytes([10]))
"""


@pytest.mark.slow
def test_bridge_is_started_again_when_the_one_that_was_at_work_has_just_left(tmp_path: Path) -> None:
    home = Home(tmp_path / "home").make()
    python = tmp_path / "python"
    python.write_text(BRIDGE.format(python=sys.executable))
    python.chmod(0o755)

    assert Bridge(home, "cluster", RayPool(address="127.0.0.1:1", python=str(python))).ask("nodes") == "here"


def test_run_waits_for_a_cluster_that_does_not_answer_and_can_be_cancelled_meanwhile(tmp_path: Path) -> None:
    home = Home(tmp_path / "home").make()
    engine = RayEngine(home, "cluster", RayPool(address="127.0.0.1:1", python=str(tmp_path / "none")))
    launches = [
        Launch.from_json(
            {
                "run": f"{job}.1.1",
                "job": job,
                "trial": 1,
                "trial_id": 1,
                "attempt": 1,
                "command": ["true"],
                "replicas": [{"role": "chief", "index": 0, "rank": 0, "node": 0}],
            }
        )
        for job in ("waits", "began")
    ]

    waits, began = (engine.submit(launch) for launch in launches)
    home.run_dir("began", 1, 1).places.write_text('[{"id": "n", "host": "h"}]')

    assert [engine.find(launch) for launch in launches] == [waits, began]
    assert engine.poll([waits, began]) == {waits: Liveness.WAITING, began: Liveness.ALIVE}
    assert engine.diagnose(waits).startswith("waits: Pool 'cluster': cannot start ")
    engine.cancel(waits)
    assert is_cancelled(home.run_dir("waits", 1, 1))
    assert engine.drain(waits) is None
    with pytest.raises(StokerError, match="cannot start"):
        engine.cancel(began)
