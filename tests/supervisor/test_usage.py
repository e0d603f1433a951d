"""What a run uses of its machine: measured from real processes, told as metrics of their own group."""

import json
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stoker.host.home import Home
from stoker.host.processes import ProcessId
from stoker.run_dir import RunDir
from stoker.schema.event import Metric
from stoker.schema.launch import Launch
from stoker.supervisor import supervise
from stoker.supervisor.here import run_here
from stoker.supervisor.spool import Spool
from stoker.supervisor.usage import Usage, sums
from tests.processes import DEADLINE_S, wait_until
from tests.supervisor.conftest import replicas

pytestmark = pytest.mark.slow

# A parent that holds 64 MiB; its child moves to a session of its own and has used CPU time when it says so.
FAMILY = """
import os, subprocess, sys
held = bytearray(os.urandom(1 << 20) * 64)
child = "import os, time; os.setsid()\\nwhile time.process_time() < 0.3: pass\\n"
child += "print('ready', flush=True); time.sleep(600)"
one = subprocess.Popen([sys.executable, "-c", child])
one.wait()
"""
SMI = """#!/bin/sh
echo $$ > "{pid_file}"
echo "$@" > "{words_file}"
echo "0, GPU-aaaa-1, 40, 1000"
echo "1, GPU-bbbb-2, 10, [N/A]"
echo "0, GPU-aaaa-1, 60, 3000"
echo "7, GPU-cccc-3, 99, 9999"
exec sleep 600
"""


@pytest.fixture
def family() -> Any:
    process = subprocess.Popen([sys.executable, "-c", FAMILY], stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    leader = ProcessId.of(process.pid)
    assert leader is not None
    yield leader
    for pid in subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True).stdout.split():
        os.kill(int(pid), 9)
    process.wait(DEADLINE_S)
    process.stdout.close()


@pytest.fixture
def spool(tmp_path: Path) -> Any:
    spool = Spool(tmp_path / "spool.jsonl")
    yield spool
    spool.close()


def told(run_dir: RunDir) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run_dir.spool.read_text().splitlines()]


def test_use_is_the_sum_of_a_replicas_processes_and_of_those_that_left_its_session(
    family: ProcessId, spool: Spool, tmp_path: Path
) -> None:
    now = time.monotonic()
    usage = Usage({"chief-0": family}, gpus={}, since=now - 10, period_s=5)

    again = usage.look(spool)
    usage.look(spool)

    first, second = (Metric.model_validate(_without_read(event)) for event in told(RunDir(tmp_path)))
    assert (first.group, first.replica, first.step) == ("system", "chief-0", 10)
    assert first.values["processes"] == 2
    assert first.values["memory"] > 64 << 20
    assert 0.03 <= first.values["cpu"] < 2  # 0.3 s and the start of two interpreters, in ten seconds
    assert second.values["cpu"] < first.values["cpu"]  # both sleep since
    assert again >= now + 5


def test_use_of_other_processes_is_nobodys(family: ProcessId) -> None:
    assert sums({"worker-0": family}).keys() == {"worker-0"}
    assert sums({}) == {}


def test_long_run_is_looked_at_less_often(family: ProcessId, spool: Spool) -> None:
    usage = Usage({"chief-0": family}, gpus={}, since=time.monotonic() - 3600 * 24, period_s=5)

    assert usage.look(spool) >= time.monotonic() + 50


def test_gpus_are_told_of_by_the_replica_that_has_them(
    family: ProcessId, spool: Spool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, pid_file, words_file = tmp_path / "nvidia-smi", tmp_path / "pid", tmp_path / "words"
    program.write_text(SMI.format(pid_file=pid_file, words_file=words_file))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    usage = Usage({"chief-0": family}, gpus={"chief-0": "0,GPU-bbbb"}, since=time.monotonic() - 1, period_s=5)
    seen: dict[str, float] = {}

    def look() -> bool:
        usage.look(spool)
        seen.update(told(RunDir(tmp_path))[-1]["values"])
        return "gpu1_use" in seen

    wait_until(look, what="the program's lines")
    usage.close()

    assert seen["gpu0_use"] == 0.5  # the mean of what it said
    assert seen["gpu0_memory"] == 3000 << 20  # the most
    assert seen["gpu1_use"] == 0.1
    assert "gpu1_memory" not in seen
    assert not any(name.startswith("gpu7") for name in seen)
    assert "--id=0,GPU-bbbb" in words_file.read_text()
    assert ProcessId.of(int(pid_file.read_text())) is None


def test_run_tells_what_it_uses_once_it_has_gone_on_for_a_while(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervise, "_USAGE_S", 0.1)
    until_told = """
        import pathlib, time
        spool = pathlib.Path(r"{run_dir}/spool.jsonl")
        while '"system"' not in spool.read_text():
            time.sleep(0.02)
    """

    code, run_dir = _run(home, tmp_path / "long", lambda run_dir: until_told.format(run_dir=run_dir))

    assert code == 0
    metrics = [event for event in told(run_dir) if event["type"] == "metric"]
    assert {event["group"] for event in metrics} == {"system"}
    assert metrics[0]["values"].keys() >= {"cpu", "memory", "processes"}


def test_run_shorter_than_a_look_tells_nothing_and_loads_nothing(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervise, "_USAGE_S", DEADLINE_S)
    monkeypatch.delitem(sys.modules, "stoker.supervisor.usage")

    code, run_dir = _run(home, tmp_path / "short", lambda run_dir: "print('done')")

    assert code == 0
    assert [event for event in told(run_dir) if event["type"] == "metric"] == []
    assert "stoker.supervisor.usage" not in sys.modules


def _run(home: Home, folder: Path, code: Callable[[RunDir], str]) -> tuple[int, RunDir]:
    source, run_dir = folder / "source", RunDir(folder / "run")
    source.mkdir(parents=True)
    (source / "task.py").write_text(textwrap.dedent(code(run_dir)))
    values = {"run": "here.1.1", "job": "here", "trial": 1, "trial_id": 0, "attempt": 1, "module": "task"}
    launch = Launch(**{**values, "source": str(source), "replicas": replicas()})
    with open(os.devnull, "wb") as nowhere:
        return run_here(launch, run_dir, home=home, out=nowhere, err=nowhere), run_dir


def _without_read(event: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in event.items() if name != "read"}
