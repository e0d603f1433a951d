"""The agent of a node without Ray around it: it is plain Python."""

import io
import subprocess
import sys
import tarfile
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

pytestmark = pytest.mark.slow


def run(code: str, home: Path) -> "subprocess.CompletedProcess[str]":
    """This code with an agent of that home; an agent ends its whole process."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        tar.add(ROOT / "src" / "stoker" / "__init__.py", "stoker/__init__.py")
    (home / "archive").write_bytes(buffer.getvalue())
    begin = """
        import asyncio, os, sys, time
        from pathlib import Path
        from stoker.engines.ray.agent import Agent, Site
        home = Path(sys.argv[1])
        def agent(idle_s):
            return Agent(Site(str(home), "", "source"), (home / "archive").read_bytes(), idle_s=idle_s)
    """
    text = textwrap.dedent(begin) + textwrap.dedent(code)
    words = [sys.executable, "-c", text, str(home)]
    environment = {"PYTHONPATH": str(ROOT / "src"), "PATH": "/usr/bin:/bin"}
    return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=120)


def test_agent_with_nothing_to_do_leaves(tmp_path: Path) -> None:
    done = run("agent(0.1)\ntime.sleep(100)", tmp_path)

    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "stoker" / "source" / "stoker" / "__init__.py").exists(), "it brought the source along"


def test_run_that_was_ended_before_it_began_is_not_started_by_a_late_call(tmp_path: Path) -> None:
    done = run(
        """
        one = agent(100)
        async def late():
            assert await one.do("job.1.1", 0, "end")
            await one.do("job.1.1", 0, "start", "{}", {}, {}, {})
            return await one.do("job.1.1", 0, "watch")
        print(asyncio.run(late())["in_order"], (home / "runs").exists(), flush=True)
        os._exit(0)
        """,
        tmp_path,
    )

    assert (done.stdout, done.stderr) == ("False False\n", "")
