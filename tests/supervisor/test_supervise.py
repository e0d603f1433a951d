"""Whole runs: real supervisors, real user code, and what the server is told of them."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stoker.run_dir import RunDir
from stoker.schema.event import Phase
from stoker.schema.launch import EnvironmentSpec
from tests.processes import processes_with_environment, wait_until
from tests.supervisor.conftest import RUN, Lab, replicas

pytestmark = pytest.mark.slow


def leftovers(run_dir: RunDir) -> list[int]:
    return processes_with_environment("STOKER_RUN_DIR", str(run_dir))


def test_run_is_told_from_its_first_phase_to_its_end(lab: Lab) -> None:
    run = lab.run(
        """
        import sys, stoker
        print("hello", *sys.argv[1:])
        print("on stderr", file=sys.stderr)
        ctx = stoker.init({"lr": 1, "depth": 2})
        ctx.report(3, loss=0.25, lr=ctx.hparams["lr"])
        ctx.progress(0.5)
        """,
        args=("--epochs", "3"),
        job_dir="/somewhere/out",
        hparams={"lr": 0.1},
    )

    events = lab.server.events[RUN]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert [event["phase"] for event in lab.server.of(RUN, "phase")] == list(Phase)
    assert run.lines() == ["hello --epochs 3 --job-dir /somewhere/out"]
    assert run.lines(stream="stderr") == ["on stderr"]
    (metric,) = lab.server.of(RUN, "metric")
    assert (metric["step"], metric["values"]) == (3, {"loss": 0.25, "lr": 0.1})
    assert [event["fraction"] for event in lab.server.of(RUN, "progress")] == [0.5]
    ended = lab.server.exit_of(RUN)
    assert (ended["phase"], ended["code"], ended["signal"], ended["stop"]) == (Phase.USER_CODE, 0, None, None)
    assert run.log == ""


def test_run_that_prints_nothing_ends_well(lab: Lab) -> None:
    run = lab.run("")

    assert lab.server.exit_of(RUN)["code"] == 0
    assert lab.server.of(RUN, "log") == []
    assert run.run_dir.spool_ack.read_text() == f"{len(lab.server.events[RUN])}\n"


def test_failure_has_the_users_traceback_and_says_so_in_a_line(lab: Lab) -> None:
    lab.run(
        """
        def inner():
            raise ValueError("bad learning rate")
        try:
            inner()
        except ValueError as error:
            raise RuntimeError("gave up") from error
        """
    )

    ended = lab.server.exit_of(RUN)
    assert (ended["phase"], ended["code"], ended["replica"]) == (Phase.USER_CODE, 1, "chief-0")
    assert ended["message"] == "chief-0 exited with code 1: RuntimeError: gave up"
    assert ended["traceback"].startswith("Traceback (most recent call last):")
    assert "ValueError: bad learning rate" in ended["traceback"]
    assert ended["traceback"].endswith("RuntimeError: gave up")


def test_exit_code_is_the_users(lab: Lab) -> None:
    lab.run("raise SystemExit(3)")

    ended = lab.server.exit_of(RUN)
    assert (ended["code"], ended["message"], ended["traceback"]) == (3, "chief-0 exited with code 3", "")


def test_run_fails_with_the_signals_name_when_user_code_is_killed(lab: Lab) -> None:
    lab.run("import os, signal; print('going', flush=True); os.kill(os.getpid(), signal.SIGKILL)")

    ended = lab.server.exit_of(RUN)
    assert (ended["signal"], ended["code"]) == ("SIGKILL", 137)
    assert ended["message"] == "chief-0 was killed by SIGKILL (out of memory?)"


def test_module_that_is_not_there_is_named(lab: Lab) -> None:
    lab.run("", module="nowhere.task")

    ended = lab.server.exit_of(RUN)
    assert ended["code"] == 1
    assert "No module named 'nowhere'" in ended["message"]


def test_command_runs_with_the_environments_python(lab: Lab) -> None:
    code = "import sys, os; print(sys.prefix == os.environ['VIRTUAL_ENV'], os.getcwd(), *sys.argv[1:])"
    run = lab.run(code, module=None, command=("python", "task.py", "--job-dir", "x"), args=("y",), job_dir="out")

    assert run.lines() == [f"True {lab.source} --job-dir x y"]


def test_command_that_is_not_there_fails_at_the_start(lab: Lab) -> None:
    lab.run("", module=None, command=("no-such-program",))

    ended = lab.server.exit_of(RUN)
    assert (ended["phase"], ended["code"]) == (Phase.START, None)
    assert ended["message"] == "Cannot start chief-0: No such file or directory: no-such-program."


@pytest.mark.parametrize("fields", [{"args": ("null\0byte",)}, {"source": "/no/such/folder"}])
def test_run_that_no_process_can_be_given_fails_at_the_start(lab: Lab, fields: dict[str, Any]) -> None:
    run = lab.run("", **fields)

    ended = lab.server.exit_of(RUN)
    assert (ended["phase"], ended["code"]) == (Phase.START, None)
    assert ended["message"].startswith("Cannot start chief-0: ")
    assert run.log == ""


def test_environment_that_cannot_be_made_fails_in_that_phase(lab: Lab) -> None:
    lab.run("", environment=EnvironmentSpec(runtime="no-such-runtime"))

    ended = lab.server.exit_of(RUN)
    assert (ended["phase"], ended["code"]) == (Phase.ENVIRONMENT, None)
    assert "no-such-runtime" in ended["message"]


def test_user_code_finds_its_variables_and_no_secrets(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    address = lab.home.server()
    assert address is not None
    monkeypatch.setenv("STOKER_SERVER", address.url)
    monkeypatch.setenv("STOKER_TOKEN", address.token)
    run = lab.run(
        """
        import json, os
        print(json.dumps(dict(os.environ)))
        """,
        environment=EnvironmentSpec(variables={"FLAVOUR": "vanilla"}),
    )

    seen = json.loads(run.lines()[0])
    assert seen["STOKER_RUN_DIR"] == str(run.run_dir)
    assert seen["FLAVOUR"] == "vanilla"
    assert seen["CLOUD_ML_JOB_ID"] == "taxi"
    assert json.loads(seen["TF_CONFIG"])["task"] == {"type": "chief", "index": 0}
    assert "STOKER_SERVER" not in seen
    assert "STOKER_TOKEN" not in seen
    assert address.token not in json.dumps(seen)
    assert address.token not in run.run_dir.launch.read_text()


def test_processes_are_noted_with_their_start_times(lab: Lab) -> None:
    run = lab.start(lab.launch("import time; open('../started', 'w'); time.sleep(600)"))
    wait_until((lab.source.parent / "started").exists, what="user code")

    noted = json.loads(run.run_dir.processes.read_text())
    pid, start = noted["replicas"]["chief-0"]["pid"], noted["replicas"]["chief-0"]["start"]
    assert noted["supervisor"]["pid"] == run.process.pid
    assert Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19] == str(start)
    lab.server.order_stop("cancel")
    run.wait()


# --- being told to stop

POLITE = """
    import os, stoker, time
    ctx = stoker.init()
    open(os.path.join(ctx.run_dir, "started"), "w")
    while not ctx.should_stop():
        time.sleep(0.01)
    print("saved, because of", ctx.stop_reason)
"""

DEAF = """
    import os, signal, time
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    open(os.path.join(os.environ["STOKER_RUN_DIR"], "started"), "w")
    time.sleep(600)
"""


@pytest.mark.parametrize("reason", ["cancel", "pause", "preempt", "prune"])
def test_order_to_stop_lets_user_code_save(lab: Lab, reason: str) -> None:
    run = lab.start(lab.launch(POLITE))
    run.wait_for_file("started")

    lab.server.order_stop(reason)
    ended = run.wait()

    assert run.lines() == [f"saved, because of {reason}"]
    assert (ended["stop"], ended["code"], ended["message"]) == (reason, 0, f"told to stop ({reason})")
    assert run.run_dir.stop.read_text().strip() == reason


def test_user_code_that_ignores_sigterm_is_killed_after_the_grace(lab: Lab) -> None:
    run = lab.start(lab.launch(DEAF, grace_s=0.2))
    run.wait_for_file("started")

    lab.server.order_stop("cancel")
    ended = run.wait()

    assert (ended["stop"], ended["signal"]) == ("cancel", "SIGKILL")
    assert "did not end within 0.2 s and was killed" in ended["message"]
    assert "out of memory" not in ended["message"]
    assert leftovers(run.run_dir) == []


def test_run_that_takes_longer_than_its_limit_is_stopped(lab: Lab) -> None:
    run = lab.start(lab.launch(POLITE, max_running_s=0.5))

    ended = run.wait()

    assert ended["stop"] == "timeout"
    assert ended["message"].startswith("ran longer than its limit of 0.5 s")
    assert run.run_dir.stop.read_text().strip() == "timeout"


def test_supervisor_that_gets_sigterm_ends_the_run_in_order(lab: Lab) -> None:
    run = lab.start(lab.launch(POLITE))
    run.wait_for_file("started")

    run.process.send_signal(signal.SIGHUP)  # ignored: its terminal is none of its business
    run.process.send_signal(signal.SIGTERM)
    ended = run.wait()

    assert (ended["stop"], ended["code"]) == ("preempt", 0)


def test_user_code_that_leaves_because_of_someone_elses_sigterm_is_preempted_not_done(lab: Lab) -> None:
    """A shutdown, a batch system or a `kill` asks user code itself; polite code saves and leaves with 0."""
    run = lab.start(lab.launch(POLITE))
    run.wait_for_file("started")
    chief = json.loads(run.run_dir.processes.read_bytes())["replicas"]["chief-0"]["pid"]

    os.kill(chief, signal.SIGTERM)
    ended = run.wait()

    assert (ended["stop"], ended["code"]) == ("preempt", 0)
    assert "SIGTERM from outside stoker" in ended["message"]


def test_order_to_stop_is_obeyed_while_the_environment_is_made(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "scratch").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))
    address = lab.home.server()
    assert address is not None
    requirement = f"slow @ {address.url}/held/slow-1.0-py3-none-any.whl"
    run = lab.start(lab.launch("", environment=EnvironmentSpec(requirements=(requirement,))))
    wait_until(lab.server.asked_for.is_set, what="the environment to be in the making")
    wait_until(lambda: lab.server.of(RUN, "phase"), what="the phase to be told while it goes on")

    lab.server.order_stop("cancel")
    ended = run.wait()

    assert (ended["phase"], ended["stop"], ended["code"]) == (Phase.ENVIRONMENT, "cancel", None)
    assert ended["message"] == "told to stop (cancel)"
    assert list((tmp_path / "scratch").glob("stoker-*")) == []


# --- several replicas


def test_one_rank_that_fails_stops_the_others_and_is_named(lab: Lab) -> None:
    run = lab.start(
        lab.launch(
            """
            import os, sys, time
            me = os.environ["STOKER_REPLICA"]
            folder = os.environ["STOKER_RUN_DIR"]
            open(os.path.join(folder, me), "w")
            if me == "worker-1":
                while not all(os.path.exists(os.path.join(folder, f"worker-{n}")) for n in range(3)):
                    time.sleep(0.01)
                sys.exit(5)
            time.sleep(600)
            """,
            replicas=replicas(workers=3),
        )
    )

    ended = run.wait()

    assert (ended["replica"], ended["code"], ended["signal"]) == ("worker-1", 5, None)
    assert ended["message"] == "worker-1 exited with code 5"
    assert ended["stop"] is None
    assert leftovers(run.run_dir) == []


def test_rank_that_failed_first_is_named_though_others_fail_because_of_it(lab: Lab) -> None:
    run = lab.start(
        lab.launch(
            """
            import os, socket, sys
            address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
            if os.environ["RANK"] == "0":
                with socket.create_server(address) as listener:
                    open(os.path.join(os.environ["STOKER_RUN_DIR"], "listening"), "w")
                    peer, _ = listener.accept()
                    if not peer.recv(1):
                        raise ConnectionError("peer closed the connection")
            while not os.path.exists(os.path.join(os.environ["STOKER_RUN_DIR"], "listening")):
                pass
            peer = socket.create_connection(address)
            raise MemoryError("the real reason")
            """,
            replicas=replicas(workers=1),
        )
    )

    ended = run.wait()

    assert ended["replica"] == "worker-0"
    assert ended["message"] == "worker-0 exited with code 1: MemoryError: the real reason"


def test_run_ends_with_chief_workers_and_evaluator_and_stops_parameter_servers(lab: Lab) -> None:
    run = lab.run(
        """
        import os, time
        me = os.environ["STOKER_REPLICA"]
        folder = os.environ["STOKER_RUN_DIR"]
        if me.startswith("ps"):
            open(os.path.join(folder, me), "w")
            time.sleep(600)
        while not os.path.exists(os.path.join(folder, "ps-0")):
            time.sleep(0.01)
        print(me)
        """,
        replicas=replicas(workers=1, ps=2, evaluators=1),
    )

    ended = lab.server.exit_of(RUN)
    assert (ended["code"], ended["replica"], ended["message"]) == (0, None, "")
    assert [run.lines(name) for name in ("chief-0", "worker-0", "evaluator-0")] == [
        ["chief-0"],
        ["worker-0"],
        ["evaluator-0"],
    ]


def test_parameter_servers_of_a_node_serve_on_until_told_that_all_nodes_have_done(lab: Lab) -> None:
    chief, worker, server = replicas(workers=1, ps=1)
    run = lab.start(
        lab.launch(
            """
            import os, time
            if os.environ["STOKER_REPLICA"] == "ps-0":
                time.sleep(600)
            """,
            replicas=(chief, replace(worker, node=1), server),
            addresses={"chief-0": "127.0.0.1:4001", "worker-0": "127.0.0.1:4002", "ps-0": "127.0.0.1:4003"},
        )
    )
    run.wait_for_file("serving")
    assert run.process.poll() is None

    run.process.send_signal(signal.SIGTERM)  # as the engine does

    ended = run.wait()
    assert (ended["code"], ended["stop"], ended["message"]) == (0, None, "")


@pytest.mark.parametrize("name", ["ps-0", "evaluator-0"])
def test_parameter_server_or_evaluator_that_dies_first_fails_the_run(lab: Lab, name: str) -> None:
    code = f"import os, time, sys; sys.exit(9) if os.environ['STOKER_REPLICA'] == {name!r} else time.sleep(600)"

    lab.run(code, replicas=replicas(ps=1, evaluators=1))

    ended = lab.server.exit_of(RUN)
    assert (ended["replica"], ended["code"]) == (name, 9)


def test_torch_ranks_meet_by_torchruns_variables(lab: Lab) -> None:
    run = lab.run(
        """
        import torch, torch.distributed as dist
        dist.init_process_group("gloo")
        total = torch.tensor([float(dist.get_rank())])
        dist.all_reduce(total)
        print(dist.get_rank(), dist.get_world_size(), total.item(), dist.is_torchelastic_launched())
        dist.destroy_process_group()
        """,
        replicas=replicas(workers=1),
    )

    assert lab.server.exit_of(RUN)["code"] == 0, run.lines(stream="stderr")
    assert run.lines("chief-0") == ["0 2 1.0 True"]
    assert run.lines("worker-0") == ["1 2 1.0 True"]


# --- user code that does not behave


def test_many_lines_arrive_whole_and_in_order(lab: Lab) -> None:
    run = lab.run("import sys\nfor n in range(300_000): sys.stdout.write(f'line {n}\\n')")

    assert run.lines() == [f"line {number}" for number in range(300_000)]
    logs = lab.server.of(RUN, "log")
    assert sum(block["count"] for block in logs) == 300_000
    assert [block["line"] for block in logs] == [1 + sum(b["count"] for b in logs[:n]) for n in range(len(logs))]


def test_fifty_megabytes_without_a_newline_arrive(lab: Lab) -> None:
    run = lab.run("import sys\nfor _ in range(50): sys.stdout.write('x' * 1_000_000)")

    lines = run.lines()
    assert sum(map(len, lines)) == 50_000_000
    assert set("".join(lines[:3])) == {"x"}
    assert lab.server.exit_of(RUN)["code"] == 0


def test_bytes_that_are_no_text_arrive_replaced(lab: Lab) -> None:
    run = lab.run("import sys; sys.stdout.buffer.write(b'caf\\xe9\\n\\x00\\xff\\xfe\\n' + 'é😀\\n'.encode())")

    assert run.lines() == ["caf\ufffd", "\x00\ufffd\ufffd", "é😀"]


def test_stderr_is_read_while_stdout_is_idle(lab: Lab) -> None:
    run = lab.run("import sys\nfor n in range(100_000): sys.stderr.write(f'{n}\\n')")

    assert run.lines(stream="stderr") == [str(number) for number in range(100_000)]
    assert run.lines() == []


def test_user_code_that_closes_its_stdout_goes_on(lab: Lab) -> None:
    run = lab.run(
        """
        import os, sys
        print("before", flush=True)
        os.close(1); os.close(0)
        os.write(2, b"after\\n")
        """
    )

    assert run.lines() == ["before"]
    assert run.lines(stream="stderr") == ["after"]
    assert lab.server.exit_of(RUN)["code"] == 0


OUTLIVING = """
    import os, signal, subprocess, sys, time
    mark = os.path.join(os.environ["STOKER_RUN_DIR"], "child")
    if "child" in sys.argv:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        open(mark, "w")
        while True:
            os.write(1, b"still here\\n")  # print writes the line and its end apart: two processes mix them
            time.sleep(0.001)
    subprocess.Popen([sys.executable, __file__, "child"], start_new_session="setsid" in sys.argv)
    while not os.path.exists(mark):
        time.sleep(0.01)
    os.write(1, b"parent leaves\\n")
"""


@pytest.mark.parametrize("where", ["setsid", "group"])
def test_children_that_outlive_user_code_are_ended_with_it(lab: Lab, where: str) -> None:
    run = lab.run(OUTLIVING, args=(where,))

    assert "parent leaves" in run.lines()
    assert set(run.lines()) == {"parent leaves", "still here"}
    assert lab.server.exit_of(RUN)["code"] == 0
    assert leftovers(run.run_dir) == []
    assert run.lines() == run.run_dir.output("chief-0", "stdout").read_text().splitlines()


def test_garbage_in_the_events_file_is_survived(lab: Lab) -> None:
    lab.run(
        """
        import os, stoker
        ctx = stoker.init()
        ctx.report(1, loss=1)
        with open(os.path.join(ctx.run_dir, "events.jsonl"), "ab") as file:
            file.write(b"\\xff nonsense\\n{}\\n")
        ctx.report(2, loss=1)
        with open(os.path.join(ctx.run_dir, "events.jsonl"), "ab") as file:
            file.write(b'{"type": "prog')
        """
    )

    assert [event["step"] for event in lab.server.of(RUN, "metric")] == [1, 2]
    complaints = [block for block in lab.server.of(RUN, "log") if block["replica"] == "supervisor"]
    assert complaints
    assert lab.server.exit_of(RUN)["code"] == 0


def test_hypertune_reports_are_metrics(lab: Lab) -> None:
    lab.run(
        """
        import json, os, time
        for step in range(3):  # as cloudml-hypertune does, with a new HyperTune() for each epoch
            line = {"timestamp": 100.0 + step, "trial": "0", "test_loss": str(1 / (step + 1)),
                    "global_step": str(step), "checkpoint_path": ""}
            with open(os.environ["CLOUD_ML_HP_METRIC_FILE"], "w") as file:
                file.write(json.dumps(line, sort_keys=True) + "\\n")
            seen = os.path.join(os.environ["STOKER_RUN_DIR"], "spool.jsonl")
            deadline = time.monotonic() + 60
            while step < 2 and f'"step":{step},' not in open(seen).read() and time.monotonic() < deadline:
                time.sleep(0.01)
        """
    )

    found = [(event["group"], event["step"], event["values"]) for event in lab.server.of(RUN, "metric")]
    assert found == [("hypertune", step, {"test_loss": 1 / (step + 1)}) for step in range(3)]


def test_run_directory_is_used_once(lab: Lab) -> None:
    run = lab.run("print('once')")

    again = lab.start(run.launch)

    assert again.process.wait(60) == 2
    assert "holds a run already" in again.log
    assert run.lines() == ["once"]


def test_run_json_that_is_none_is_one_line(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")

    done = subprocess.run([sys.executable, "-m", "stoker.supervisor", tmp_path], capture_output=True, text=True)

    assert done.returncode == 1
    assert done.stderr.startswith(f"error: {tmp_path}/run.json is not a run that this stoker can start")
    assert done.stderr.count("\n") == 1


def test_wrong_words_are_answered_with_the_right_ones() -> None:
    done = subprocess.run([sys.executable, "-m", "stoker.supervisor"], capture_output=True, text=True)

    words = "RUN_DIR [--node N] [--lifeline FD] [--drain]"
    assert (done.returncode, done.stderr) == (2, f"usage: python -m stoker.supervisor {words}\n")
