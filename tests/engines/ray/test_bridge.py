"""The engine's side of a bridge, without Ray: another program answers in its place."""

import sys
from pathlib import Path

import pytest

from stoker.engines.ray.engine import Bridge
from stoker.home import Home
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
