"""Determined's Core API over a run of ours: what its tutorials and tests expect of it."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.compat.conftest import Ran, events

Script = Callable[..., Ran]
MakeRun = Callable[..., Path]


def test_cluster_info_is_none_outside_a_job(script: Script) -> None:
    ran = script("import determined as det; print(det.get_cluster_info())")
    assert ran.stdout == "None\n", ran.stderr


def test_cluster_info_tells_trial_data_and_slots(script: Script, run_dir: MakeRun) -> None:
    path = run_dir(
        hparams={"lr": 0.1, "net": {"width": 3}},
        data={"url": "x"},
        origin={"platform": "determined", "slots": 4, "document": {"name": "mine"}},
    )
    ran = script(
        """
        import determined as det
        info = det.get_cluster_info()
        print(info.trial.hparams, info.trial.trial_id, info.trial.trial_seed, info.user_data, info.slot_ids)
        print(info.task_type, info.latest_checkpoint, info.trial._config, len(info.container_addrs))
        """,
        run_dir=path,
    )
    assert ran.stdout.splitlines() == [
        "{'lr': 0.1, 'net': {'width': 3}} 7 11 {'url': 'x'} [0, 1, 2, 3]",
        "TRIAL None {'name': 'mine'} 1",
    ], ran.stderr


def test_metrics_progress_and_groups_are_events(script: Script, run_dir: MakeRun) -> None:
    path = run_dir()
    ran = script(
        """
        import determined as det
        with det.core.init() as context:
            context.train.report_training_metrics(steps_completed=1, metrics={"loss": 0.5, "deep": {"a": 1}})
            context.train.report_validation_metrics(steps_completed=1, metrics={"acc": float("nan"), "name": "x"})
            context.train.report_metrics("inference", 2, {"rows": 3})
            context.train.report_progress(0.5)
            try:
                context.train.report_metrics("a.b", 1, {})
            except ValueError as error:
                print(error)
            try:
                context.train.report_validation_metrics(1, {"acc": None})
            except RuntimeError as error:
                print(error)
        """,
        run_dir=path,
    )
    assert ran.returncode == 0, ran.stderr
    assert "has no dots" in ran.stdout
    assert "'acc' is None" in ran.stdout
    assert "'name' is no number" in ran.stderr
    found = [(event.get("group"), event.get("step"), event.get("values")) for event in events(path)]
    assert found == [
        ("training", 1, {"loss": 0.5, "deep.a": 1.0}),
        ("validation", 1, {"acc": "NaN"}),
        ("inference", 2, {"rows": 3.0}),
        (None, None, None),
    ]


STORE = """
    import pathlib
    import determined as det
    info = det.get_cluster_info()
    with det.core.init() as context:
        start = 0
        if info.latest_checkpoint is not None:
            with context.checkpoint.restore_path(info.latest_checkpoint) as path:
                start = int((path / "state").read_text())
            print("from", start, context.checkpoint.get_metadata(info.latest_checkpoint))
        with context.checkpoint.store_path({"steps_completed": start + 5, "note": "hello"}) as (path, uuid):
            (path / "state").write_text(str(start + 5))
        print(uuid)
"""


def test_checkpoints_go_on_in_the_next_run(script: Script, run_dir: MakeRun) -> None:
    first = run_dir()
    ran = script(STORE, run_dir=first)
    uuid = ran.stdout.strip()
    event = events(first)[-1]
    assert event["step"] == 5
    assert event["path"] == str(first / "checkpoints" / uuid)
    assert event["metadata"]["note"] == "hello"
    again = script(STORE, run_dir=run_dir(latest_checkpoint=event["path"]))
    assert again.stdout.startswith("from 5 {'steps_completed': 5, 'note': 'hello'}"), again.stderr
    assert not list(first.glob("checkpoints/.*"))


def test_half_written_checkpoint_is_not_there(script: Script, run_dir: MakeRun) -> None:
    path = run_dir()
    ran = script(
        """
        import determined as det
        with det.core.init() as context:
            with context.checkpoint.store_path({"steps_completed": 1}) as (path, uuid):
                (path / "state").write_text("half")
                raise OSError("disk full")
        """,
        run_dir=path,
    )
    assert "disk full" in ran.stderr
    assert not (path / "events.jsonl").exists()
    assert [name for name in (path / "checkpoints").iterdir() if not name.name.startswith(".")] == []


def test_upload_download_select_and_delete(script: Script, run_dir: MakeRun) -> None:
    ran = script(
        """
        import os, pathlib
        import determined as det
        os.makedirs("mine/sub")
        pathlib.Path("mine/a.txt").write_text("a")
        pathlib.Path("mine/sub/b.bin").write_text("b")
        with det.core.init() as context:
            only_bin = lambda path: path.endswith(".bin")
            uuid = context.checkpoint.upload("mine", {"steps_completed": 3}, selector=only_bin)
            context.checkpoint.download(uuid, "back")
            print(sorted(str(path) for path in pathlib.Path("back").rglob("*") if path.is_file()))
            context.checkpoint.delete(uuid)
            try:
                context.checkpoint.download(uuid, "again")
            except FileNotFoundError as error:
                print("gone")
            try:
                context.checkpoint.upload("mine", {"step": 3})
            except ValueError as error:
                print(error)
        """,
        run_dir=run_dir(),
    )
    lines = ran.stdout.splitlines()
    assert lines[:2] == ["['back/metadata.json', 'back/sub/b.bin']", "gone"], ran.stderr
    assert "steps_completed" in lines[2]


RANKS = """
    import os, sys
    import determined as det
    distributed = det.core.DistributedContext.from_torch_distributed()
    with det.core.init(distributed=distributed) as context:
        d = context.distributed
        print(d.gather(d.rank * 10), d.broadcast(f"of {d.rank}"), d.allgather(d.rank), d.allgather_local("x"))
        metadata = {"steps_completed": 4, f"rank{d.rank}": "ok"}
        with context.checkpoint.store_path(metadata, shard=True) as (path, uuid):
            (path / f"shard{d.rank}").write_text(str(d.rank))
            (path / "same").write_text("same")
        try:
            with context.checkpoint.store_path({"steps_completed": 5}, shard=True) as (path, _):
                (path / "clash").write_text(str(d.rank))
        except RuntimeError as error:
            print("refused:", error)
        if d.rank != 0:
            try:
                context.checkpoint.upload(".", {"steps_completed": 1})
            except RuntimeError as error:
                print(error)
        print(context.preempt.should_preempt())
"""


def start_ranks(tmp_path: Path, run_dir: Path | None, size: int) -> list[Ran]:
    import os
    import textwrap

    (tmp_path / "ranks.py").write_text(textwrap.dedent(RANKS))
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("STOKER_")}
    own = {"STOKER_RUN_DIR": str(run_dir)} if run_dir else {}
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "stoker.compat.determined", "ranks.py"],
            cwd=tmp_path,
            env={**inherited, **own, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]
    return [Ran(p.args, p.returncode, out, err) for p in processes for out, err in [p.communicate(timeout=120)]]


def test_ranks_gather_shard_and_agree(tmp_path: Path, run_dir: MakeRun) -> None:
    path = run_dir()
    chief, *workers = start_ranks(tmp_path, path, 3)
    assert chief.stdout.splitlines()[0] == "[0, 10, 20] of 0 [0, 1, 2] ['x', 'x', 'x']", chief.stderr
    assert workers[1].stdout.splitlines()[0] == "None of 0 [0, 1, 2] ['x', 'x', 'x']", workers[1].stderr
    assert all("refused: Two ranks wrote clash" in ran.stdout for ran in (chief, *workers))
    assert "by the chief alone" in workers[0].stdout
    assert chief.stdout.splitlines()[-1] == "False"
    (kept,) = (event for event in events(path) if event["type"] == "checkpoint")
    assert sorted(name.name for name in Path(kept["path"]).iterdir()) == [
        "metadata.json", "same", "shard0", "shard1", "shard2",
    ]  # fmt: skip
    metadata = json.loads((Path(kept["path"]) / "metadata.json").read_text())
    assert metadata == {"steps_completed": 4, "rank0": "ok", "rank1": "ok", "rank2": "ok"}


def test_a_stop_is_a_preemption(script: Script, run_dir: MakeRun) -> None:
    path = run_dir()
    (path / "stop").write_text("pause")
    ran = script(
        """
        import determined as det
        with det.core.init() as context:
            print(context.preempt.should_preempt())
        """,
        run_dir=path,
    )
    assert ran.stdout == "True\n", ran.stderr


def test_invalid_hp_ends_with_zero_and_is_told(script: Script, run_dir: MakeRun) -> None:
    path = run_dir(in_search=True)
    ran = script(
        """
        import determined as det
        with det.core.init() as context:
            raise det.InvalidHP("too wide")
        """,
        run_dir=path,
    )
    assert ran.returncode == 0, ran.stderr
    assert [event["type"] for event in events(path)] == ["invalid_hp"]


def test_operations_of_the_older_dialect(script: Script, run_dir: MakeRun) -> None:
    path = run_dir(
        origin={"platform": "determined", "document": {"searcher": {"max_length": {"epochs": 12}, "metric": "loss"}}}
    )
    text = """
        import determined as det
        with det.core.init() as context:
            for op in context.searcher.operations():
                print(op.length, context.searcher.get_configured_units())
                op.report_progress(6)
                op.report_completed(0.5)
    """
    ran = script(text, run_dir=path)
    assert ran.stdout.split()[0] == "12", ran.stderr
    assert [event["fraction"] for event in events(path)] == [0.5]
    assert script(text).stdout.split()[0] == "1"
    refused = script(text, run_dir=run_dir())
    assert "searcher.max_length" in refused.stderr.splitlines()[-1]


def test_profiler_and_alert_and_metadata(script: Script, run_dir: MakeRun) -> None:
    path = run_dir()
    ran = script(
        """
        import json, os, time
        import determined as det
        with det.core.init() as context:
            context.alert(title="low disk", description="5% left", level="warn")
            context.train.set_metadata({"a": 1})
            print(context.train.get_metadata())
            context.profiler.on(sampling_interval=0.1, samples_per_report=1)
            events = os.path.join(os.environ["STOKER_RUN_DIR"], "events.jsonl")
            until = time.monotonic() + 60
            while time.monotonic() < until and not (os.path.exists(events) and "memory_free" in open(events).read()):
                time.sleep(0.05)
            context.profiler.off()
        """,
        run_dir=path,
    )
    assert ran.stdout == "{'a': 1}\n", ran.stderr
    assert "low disk: 5% left" in ran.stderr
    groups = {event["group"] for event in events(path)}
    assert {"cpu", "memory"} <= groups


def test_import_from_path_leaves_nothing_behind(script: Script, tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "model_def.py").write_text("which = 'old'\n")
    (tmp_path / "model_def.py").write_text("which = 'new'\n")
    ran = script(
        """
        import determined as det, model_def
        with det.import_from_path("code"):
            import model_def as old
            print(old.which)
        import model_def as again
        print(again.which, model_def is again)
        """
    )
    assert ran.stdout.split() == ["old", "new", "True"], ran.stderr


def test_unmanaged_script_goes_on_by_its_external_ids(script: Script) -> None:
    text = """
        from determined.experimental import core_v2
        config = core_v2.Config(name="n", hparams={"lr": 2}, external_experiment_id="e", external_trial_id="t")
        core_v2.init(config=config)
        print(core_v2.info.trial.hparams["lr"], core_v2.info.latest_checkpoint is None)
        core_v2.train.report_training_metrics(1, {"loss": 1})
        with core_v2.checkpoint.store_path({"steps_completed": 1}) as (path, uuid):
            (path / "x").write_text("x")
        core_v2.close()
    """
    assert script(text).stdout == "2 True\n"
    assert script(text).stdout == "2 False\n"


def test_loggers_of_lightning_report_to_the_scripts_run(script: Script, tmp_path: Path) -> None:
    pytest.importorskip("lightning", reason="pip install lightning, to test against it")
    ran = script(
        """
        from determined.experimental import core_v2
        from determined.lightning.experimental import DetLogger
        ids = core_v2.UnmanagedConfig(external_experiment_id="e", external_trial_id="t")
        logger = DetLogger(defaults=core_v2.DefaultConfig(name="n", hparams={"lr": 2}), unmanaged=ids)
        logger.log_metrics({"loss": 0.5, "epoch": 0}, step=3)
        print(core_v2.info.trial.experiment_id, core_v2.info.trial.hparams)
        """
    )
    assert ran.stdout == "e {'lr': 2}\n", ran.stderr
    (events,) = tmp_path.rglob("events.jsonl")
    assert '"step":3,"group":"training","values":{"loss":0.5}' in events.read_text()


@pytest.mark.parametrize(
    ("module", "sentence"),
    [
        ("determined.pytorch.deepspeed", "DeepSpeedTrial needs DeepSpeed"),
    ],
)
def test_what_cannot_be_is_one_sentence(script: Script, module: str, sentence: str) -> None:
    ran = script(f"import {module}")
    assert sentence in ran.stderr.splitlines()[-1]


def test_launchers_run_the_script_as_this_rank(script: Script, run_dir: MakeRun, tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text("import os, sys; print(os.environ.get('RANK'), sys.argv[1:]); sys.exit(3)\n")
    path = run_dir()
    launch = "import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_module(sys.argv[0], run_name='__main__')"
    for module in ("torch_distributed", "tensorflow", "horovod", "deepspeed"):
        ran = script(launch, f"determined.launch.{module}", "--", "python3", "work.py", "-x", run_dir=path, RANK="1")
        assert (ran.stdout, ran.returncode) == ("1 ['-x']\n", 3), ran.stderr
    ran = script(launch, "determined.launch.wrap_rank", "5", "--", "python3", "work.py", run_dir=path)
    assert (ran.stdout, ran.returncode) == ("[rank=5] None []\n", 3), ran.stderr


def test_torch_launcher_starts_a_rank_for_each_slot(script: Script, run_dir: MakeRun, tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text("import os; os.write(1, (os.environ['RANK'] + '\\n').encode())\n")
    path = run_dir(origin={"platform": "determined", "slots": 2})
    launch = "import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_module(sys.argv[0], run_name='__main__')"
    ran = script(launch, "determined.launch.torch_distributed", "python3", "work.py", run_dir=path)
    assert sorted(ran.stdout.split()) == ["0", "1"], ran.stderr


def test_horovod_on_several_slots_is_refused(script: Script, run_dir: MakeRun) -> None:
    path = run_dir(origin={"platform": "determined", "slots": 2})
    launch = "import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_module(sys.argv[0], run_name='__main__')"
    ran = script(launch, "determined.launch.horovod", "python3", "work.py", run_dir=path)
    assert ran.returncode == 1
    assert "Horovod on several slots" in ran.stderr


def test_sigusr1_shows_where_a_script_stands(script: Script, run_dir: MakeRun) -> None:
    ran = script(
        f"""
        import os
        import determined as det
        with det.core.init() as context:
            os.kill(os.getpid(), {int(signal.SIGUSR1)})
        print("on")
        """,
        run_dir=run_dir(),
    )
    assert ran.stdout == "on\n"
    assert "train.py" in ran.stderr


@pytest.mark.slow
@pytest.mark.parametrize("first", ["determined", "torch.distributed"])
def test_gloo_takes_the_place_of_nccl_where_there_is_no_gpu(script: Script, tmp_path: Path, first: str) -> None:
    ran = script(
        f"""
        import {first}
        import determined as det
        import torch.distributed as dist
        dist.init_process_group("nccl", init_method="file://{tmp_path}/ranks", rank=0, world_size=1)
        import torch
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1), device_ids=[torch.device("cpu")])
        print(dist.get_backend(), type(model.module).__name__)
        dist.destroy_process_group()
        """,
        CUDA_VISIBLE_DEVICES="",
    )

    assert ran.stdout == "gloo Linear\n", ran.stderr
    assert ran.stderr.count("gloo takes its place") == 1
