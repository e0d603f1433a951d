"""The habits of those who typed `det`: checkpoints, labels, the file, the code, commands."""

import argparse
import json
import socket
import textwrap
from pathlib import Path
from types import SimpleNamespace

import pytest

from stoker.compat.commands.determined import shell
from stoker.compat.shells import inside
from stoker.errors import StokerError
from stoker.host.home import Home
from stoker.schema.state import JobState
from tests.e2e.command import run, stoker
from tests.e2e.conftest import home

__all__ = ["home"]  # a fixture, for the tests here

pytestmark = pytest.mark.slow

TRAIN = """
    import determined as det

    with det.core.init() as context:
        x = det.get_cluster_info().trial.hparams["x"]
        (context.train.get_tensorboard_path() / "events").touch()
        context.train.report_validation_metrics(1, {"loss": x * x})
        with context.checkpoint.store_path({"steps_completed": 1}) as (path, uuid):
            (path / "x").write_text(str(x))
"""
CONFIG = """
    name: squares
    entrypoint: python3 train.py
    hyperparameters: {x: {type: categorical, vals: [3, 1]}}
    searcher: {name: grid, metric: loss, smaller_is_better: true}
"""


def test_what_det_could_do_with_an_experiment(home: Home, tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text(textwrap.dedent(TRAIN))
    (code / "grid.yaml").write_text(textwrap.dedent(CONFIG))

    def out(*words: str) -> str:
        ran = stoker(*words, cwd=tmp_path)
        assert ran.code == 0, ran.err
        return ran.out

    def refused(*words: str) -> str:
        ran = stoker(*words, cwd=tmp_path)
        assert ran.code != 0
        return ran.err

    out("e", "create", "code/grid.yaml", "code")
    stoker("e", "wait", "1", cwd=tmp_path)

    best = json.loads(out("e", "list-checkpoints", "1", "--best", "1", "--json"))[0]
    uuid = best["path"].rsplit("/", 1)[-1]
    assert uuid in out("c", "list", "squares_1")
    assert uuid in out("checkpoint", "describe", uuid)
    assert (tmp_path / out("c", "download", uuid).strip() / "x").read_text() == "1"
    assert (tmp_path / out("e", "download", "1", "-o", "top").strip() / "x").read_text() == "1"
    assert (tmp_path / out("t", "download", f"1/{best['trial']}", "--uuid", uuid, "-o", "t").strip() / "x").exists()
    assert "name: squares" in out("e", "config", "1")
    out("e", "download-model-def", "1", "-o", "again")
    assert (tmp_path / "again" / "train.py").read_text() == (code / "train.py").read_text()
    assert "exists" in refused("e", "download-model-def", "1", "-o", "again")

    assert out("e", "ls", "--csv").splitlines()[1].startswith("squares_1,SUCCEEDED,1,")
    assert len(out("e", "lt", "1", "--csv").splitlines()) == 3
    assert any(line.endswith(f",{uuid}") for line in out("e", "lc", "1", "--csv").splitlines()[1:])
    worst = out("e", "download", "1", "--sort-by", "loss", "--smaller-is-better", "false", "-q", "-o", "worst")
    assert (tmp_path / worst.strip() / "x").read_text() == "3"
    assert (tmp_path / out("t", "download", "1/1", "--sort-by", "loss", "-o", "by").strip() / "x").exists()
    assert "no checkpoint where 'speed'" in refused("t", "download", "1/1", "--sort-by", "speed")
    out("e", "wait", "1", "--polling-interval", "1")

    assert "one of many" in refused("t", "kill", "1/1")
    assert "`stoker experiment archive 1`" in refused("e", "delete", "1", "--yes")
    assert "nothing to set" in refused("e", "set", "log-retention", "1", "30")
    assert "No checkpoint 'none'" in refused("c", "describe", "none")
    assert "--yes" in refused("c", "delete", uuid)
    assert out("c", "delete", uuid, "--yes").strip() == uuid
    assert not Path(best["path"]).exists()
    assert "DELETED" in out("c", "describe", uuid)

    out("e", "label", "add", "1", "baseline")
    out("e", "archive", "1")
    assert "squares_1" not in out("e", "list")
    assert "squares_1" in out("e", "list", "--all")
    out("e", "unarchive", "1")
    assert out("e", "list", "--json").count("squares_1") >= 1
    assert "has no trial" in refused("tensorboard", "start", "-t", "1/99")


def test_a_command_is_a_job(home: Home, tmp_path: Path) -> None:
    (tmp_path / "hello.py").write_text("import sys; print('hello', sys.argv[1:])\n")

    (tmp_path / "volume").mkdir()
    (tmp_path / "settings.yaml").write_text("work_dir: null\nidle_timeout: 2h\nresources: {slots: 0}\n")
    words = (
        "-w",
        "team",
        "--config-file",
        "settings.yaml",
        "-v",
        f"{tmp_path}/volume:in",
        "python3 hello.py -n $PWD/in",
    )

    ran = stoker("cmd", "run", "-c", ".", *words, cwd=tmp_path)

    assert ran.code == 0, ran.err
    assert "hello ['-n', " in ran.out
    assert "idle_timeout: 2h" in stoker("cmd", "config", "cmd_1", cwd=tmp_path).out
    assert stoker("cmd", "ls", "-q", cwd=tmp_path).out == "cmd_1\n"
    assert "cmd_1" in stoker("command", "list", cwd=tmp_path).out
    failed = stoker("cmd", "run", "exit 3", cwd=tmp_path)
    assert failed.code == 1
    assert stoker("cmd", "run", "-d", "sleep 300", cwd=tmp_path).out.strip() == "cmd_3"
    assert "cmd_3" in stoker("j", "list", cwd=tmp_path).out
    assert "priority 700" in stoker("j", "update", "cmd_3", "--priority", "700", cwd=tmp_path).out
    assert "Only its priority" in stoker("j", "update", "cmd_3", "--weight", "2", cwd=tmp_path).err
    assert "cmd_3" in stoker("cmd", "set", "priority", "cmd_3", "600", cwd=tmp_path).out
    assert stoker("cmd", "kill", "-f", "none", "cmd_3", cwd=tmp_path).out.strip() == "cmd_3"
    assert "Which command?" in stoker("cmd", "run", cwd=tmp_path).err
    assert "cmd_3" in stoker("cmd", "describe", "cmd_3", cwd=tmp_path).out
    shell = stoker("shell", "start", "--", "echo $((6 * 7)); exit 3", cwd=tmp_path)
    assert shell.code == 3, shell.err
    assert shell.out.replace("\r", "").splitlines()[:2] == ["shell_1", "42"]
    assert stoker("shell", "open", "shell_1", "--", "true", cwd=tmp_path).code == 0
    assert "There is no ssh" in stoker("shell", "show-ssh-command", "shell_1", "--", "-L80:x:80", cwd=tmp_path).err
    assert "has not said its address" in stoker("notebook", "open", "shell_1", cwd=tmp_path).err
    stoker("shell", "kill", "shell_1", cwd=tmp_path)
    assert "has ended" in stoker("shell", "open", "shell_1", cwd=tmp_path).err


def test_shell_that_is_being_killed_is_one_that_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It no longer listens, and its run is not yet over: that is not a shell of another machine."""
    with socket.socket(socket.AF_UNIX) as gone, inside(tmp_path):
        gone.bind("shell.sock")
    states = iter([JobState.CANCELLING, JobState.CANCELLED])
    client = SimpleNamespace(job=lambda _: SimpleNamespace(state=next(states)))
    run = SimpleNamespace(directory=str(tmp_path))
    monkeypatch.setattr("stoker.client.client.connect", lambda: client)
    monkeypatch.setattr(shell, "find_job", lambda client, name: name)
    monkeypatch.setattr(shell, "all_trials", lambda client, name: [SimpleNamespace(runs=[run])])

    with pytest.raises(StokerError, match=r"shell_1 has ended \(CANCELLED\)"):
        shell.open_(argparse.Namespace(name="shell_1", user_args=()))


def test_what_stands_before_det_in_old_scripts_is_no_obstacle(home: Home, tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text("import determined; print('trial', determined.get_cluster_info().trial.hparams)")
    (code / "grid.yaml").write_text(textwrap.dedent(CONFIG))
    path = stoker("gcloud-shim", cwd=code).out
    words = ["det -m host:80 user login bob", "det w create Team", "project=$(det p list Team --json | tr -dc 0-9)"]
    words += ['det e create --project_id "$project" grid.yaml . --local -t']
    ran = run(["sh", "-c", "\n".join([path, "set -e", *words])], cwd=code)
    assert ran.code == 0, ran.err
    assert ran.err.count("nothing to do here") == 2
    assert "trial {'x': " in ran.out
    assert len(json.loads(stoker("e", "list-trials", "1", "--json", cwd=code).out)) == 1
    assert "no users" in stoker("-m", "host", "user", "create", "bob", cwd=code).err
