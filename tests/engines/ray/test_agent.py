"""The agent of a node without Ray around it: it is plain Python."""

import dis
import io
import subprocess
import sys
import tarfile
import textwrap
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from stoker.engines.ray import agent

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


def test_lifeline_is_closed_once_when_a_run_is_watched_and_ended_at_the_same_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread lets go at each step of the first. Closed twice, the number may be another run's lifeline."""
    closed: list[int] = []
    monkeypatch.setattr(agent.os, "close", closed.append)
    letting_go = agent.Node._let_go.__code__
    steps = len(list(dis.get_instructions(letting_go)))
    for step in range(steps):
        node = agent.Node("job.1.1", 0, agent.Site(str(tmp_path), "", "source"), None)  # type: ignore[arg-type]
        node._lifeline = 1000 + step
        other = threading.Thread(target=node._let_go)
        seen = 0

        def interrupt(frame: FrameType, event: str, argument: object) -> Any:
            nonlocal seen
            if frame.f_code is not letting_go:
                return None
            frame.f_trace_opcodes = True
            if event == "opcode":
                if seen == step:  # noqa: B023 -- called before the loop goes on
                    other.start()  # noqa: B023
                    other.join(0.05)  # noqa: B023 -- unless it waits for the first to be done
                seen += 1
            return interrupt

        before = sys.gettrace()
        sys.settrace(interrupt)
        node._let_go()
        sys.settrace(before)
        if other.ident is not None:
            other.join(60)

    assert closed == [1000 + step for step in range(steps)]
