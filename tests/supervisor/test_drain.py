"""A supervisor is killed at any moment; what it left is told by another, each line once."""

import json
import os
import random
import shutil
import signal
from pathlib import Path

import pytest

from stoker.host.home import Home
from stoker.run_dir import RunDir
from stoker.supervisor.__main__ import drain
from tests.fakes import FakeServer
from tests.processes import DEADLINE_S, kill_all_with_environment, wait_until
from tests.supervisor.conftest import RUN, Lab, Supervised

TALKATIVE = """
    import json, os, stoker, sys, time
    ctx = stoker.init()
    for step in range(100_000):
        print(f"step {step} é")
        print(f"warned at {step}", file=sys.stderr)
        ctx.report(step, loss=step / 7)
        if step % 10 == 0:
            line = {"timestamp": float(step), "global_step": str(step), "loss": str(step), "trial": "0"}
            with open(os.environ["CLOUD_ML_HP_METRIC_FILE"], "a") as file:
                file.write(json.dumps(line) + "\\n")
            time.sleep(0.001)
"""


def written(run_dir: RunDir, stream: str) -> list[str]:
    path = run_dir.output("chief-0", stream)
    return path.read_text().splitlines() if path.exists() else []


def steps_reported(run_dir: RunDir) -> list[int]:
    return [json.loads(line)["step"] for line in run_dir.events.read_text().splitlines()]


def steps_of_hypertune(run_dir: RunDir) -> list[int]:
    lines = run_dir.metric_file("chief-0").read_text().splitlines()
    return [int(json.loads(line)["global_step"]) for line in lines]


def assert_told_all_once(server: FakeServer, run_dir: RunDir) -> None:
    events = server.events[RUN]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    for stream in ("stdout", "stderr"):
        assert server.lines(RUN, "chief-0", stream) == written(run_dir, stream)
    metrics = server.of(RUN, "metric")
    assert [e["step"] for e in metrics if e["group"] == "training"] == steps_reported(run_dir)
    assert [e["step"] for e in metrics if e["group"] == "hypertune"] == steps_of_hypertune(run_dir)
    blocks = server.of(RUN, "log")
    assert [block["line"] for block in blocks] == [1 + sum(b["count"] for b in blocks[:n]) for n in range(len(blocks))]


def kill_user_code(run: Supervised) -> None:
    kill_all_with_environment("STOKER_RUN_DIR", str(run.run_dir))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_drain_tells_every_line_once_when_the_supervisor_was_killed(lab: Lab, seed: int) -> None:
    dice = random.Random(seed)
    run = lab.start(lab.launch(TALKATIVE))
    enough = dice.randint(1, 300)
    wait_until(lambda: len(written(run.run_dir, "stdout")) > enough, what="user code to talk")
    if seed % 2:
        server_is_away = dice.randint(1, 300)
        lab.server.stop()
        wait_until(lambda: len(written(run.run_dir, "stdout")) > enough + server_is_away, what="more talk")

    run.kill()
    before = len(written(run.run_dir, "stdout"))
    wait_until(lambda: len(written(run.run_dir, "stdout")) > before, what="user code to go on without it")
    kill_user_code(run)
    lab.server.stop()
    lab.server.start()
    drained = lab.start(run.launch, "--drain")

    assert drained.process.wait(DEADLINE_S) == 0, drained.log
    assert_told_all_once(lab.server, run.run_dir)
    assert not lab.server.has_ended(RUN), "how it ended is not for a drain to say"


@pytest.mark.slow
def test_drain_that_is_killed_is_drained_again(lab: Lab) -> None:
    run = lab.start(lab.launch(TALKATIVE))
    wait_until(lambda: len(written(run.run_dir, "stdout")) > 2000, what="user code to talk")
    lab.server.stop()
    run.kill()
    kill_user_code(run)

    first = lab.start(run.launch, "--drain")  # there is no server: it waits for one
    second = lab.start(run.launch, "--drain")  # and this one for the first
    size_bytes = run.run_dir.spool.stat().st_size
    wait_until(
        lambda: run.run_dir.spool.stat().st_size >= size_bytes and first.process.poll() is None,
        what="the first to be at work",
    )
    first.kill()
    lab.server.start()

    assert second.process.wait(DEADLINE_S) == 0
    assert_told_all_once(lab.server, run.run_dir)


@pytest.mark.slow
def test_drain_tells_how_it_ended_when_only_the_shipping_was_cut_short(lab: Lab) -> None:
    lab.server.stop()
    run = lab.start(lab.launch("print('done')"))
    wait_until(lambda: '"type":"exited"' in spool_of(run), what="the run to end")
    run.kill()

    lab.server.start()
    drained = lab.start(run.launch, "--drain")

    assert drained.process.wait(DEADLINE_S) == 0
    assert lab.server.exit_of(RUN)["code"] == 0
    assert drained.lines() == ["done"]


def spool_of(run: Supervised) -> str:
    path = run.run_dir.spool
    return path.read_text() if path.exists() else ""


@pytest.mark.slow
def test_every_prefix_of_a_spool_can_be_drained(lab: Lab, tmp_path: Path) -> None:
    """What kill -9 leaves is the spool cut anywhere, also within a line; here it is cut everywhere."""
    run = lab.run(TALKATIVE.replace("100_000", "12"))
    spool = run.run_dir.spool.read_bytes()
    spool = spool[: spool.rindex(b'{"seq":')]  # without how it ended
    dice = random.Random(1)

    for number, cut in enumerate(sorted({0, len(spool), *(dice.randint(0, len(spool)) for _ in range(40))})):
        copy = RunDir(tmp_path / f"copy-{number}")
        shutil.copytree(run.run_dir, copy)
        copy.spool.write_bytes(spool[:cut])
        copy.spool_ack.unlink()
        home = Home(tmp_path / f"home-{number}")
        server = FakeServer(home)
        server.start()

        assert drain(copy, home=home) == 0

        assert_told_all_once(server, copy)
        server.stop()


@pytest.mark.slow
def test_user_code_is_not_disturbed_when_its_supervisor_is_killed(lab: Lab) -> None:
    run = lab.start(lab.launch(TALKATIVE))
    wait_until(lambda: len(written(run.run_dir, "stdout")) > 10, what="user code to talk")
    pid = json.loads(run.run_dir.processes.read_text())["replicas"]["chief-0"]["pid"]

    run.kill()

    before = len(written(run.run_dir, "stdout"))
    wait_until(lambda: len(written(run.run_dir, "stdout")) > before + 100, what="user code to go on")
    os.kill(pid, signal.SIGKILL)
