"""A run seen from inside user code, with a supervisor and without one, on any Python."""

import errno
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import stoker
from stoker.context import Context


@pytest.fixture
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run's directory, as the supervisor makes it."""
    folder = tmp_path / "run"
    folder.mkdir()
    write_run(folder, run="taxi.2.3", job="taxi", trial=2, trial_id=9, attempt=3, seed=4, hparams={"lr": 0.1})
    monkeypatch.setenv("STOKER_RUN_DIR", str(folder))
    for name in ("RANK", "WORLD_SIZE", "STOKER_REPLICA"):
        monkeypatch.delenv(name, raising=False)
    return folder


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Plain `python train.py`, in a folder of its own."""
    monkeypatch.delenv("STOKER_RUN_DIR", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_run(run_dir: Path, **values: Any) -> None:
    (run_dir / "run.json").write_text(json.dumps(values))


def events(run_dir: "Path | str") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (Path(run_dir) / "events.jsonl").read_text().splitlines()]


@pytest.fixture(autouse=True)
def sigterm_as_it_was() -> Any:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def test_context_knows_its_run(run_dir: Path) -> None:
    write_run(
        run_dir, run="taxi.2.3", job="taxi", trial=2, trial_id=9, attempt=3, seed=4, job_dir="gs://b", data={"x": 1}
    )

    with stoker.init() as ctx:
        assert (ctx.run_id, ctx.job, ctx.trial, ctx.trial_id, ctx.attempt) == ("taxi.2.3", "taxi", 2, 9, 3)
        assert (ctx.seed, ctx.job_dir, ctx.config_data, ctx.latest_checkpoint) == (4, "gs://b", {"x": 1}, None)
        assert (ctx.rank, ctx.world_size, ctx.managed) == (0, 1, True)


def test_rank_comes_from_torchruns_variables(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "4")

    ctx = stoker.init()

    assert (ctx.rank, ctx.world_size) == (3, 4)


def test_hparams_of_the_run_win_over_defaults(run_dir: Path) -> None:
    assert stoker.init({"lr": 1.0, "depth": 2}).hparams == {"lr": 0.1, "depth": 2}


def test_metrics_are_written_as_they_are_reported(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_REPLICA", "worker-1")
    with stoker.init() as ctx:
        ctx.report(7, loss=0.25, **{"val/été": 1, 'a "quoted" name': 2})
        (first,) = events(run_dir)
        ctx.report(8, group="validation", loss=1e-30)

    assert (first["type"], first["step"], first["group"], first["replica"]) == ("metric", 7, "training", "worker-1")
    assert first["values"] == {"loss": 0.25, "val/été": 1.0, 'a "quoted" name': 2.0}
    assert isinstance(first["time"], float)
    assert (events(run_dir)[1]["group"], events(run_dir)[1]["values"]) == ("validation", {"loss": 1e-30})


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (1, 1.0),
        (True, 1.0),
        (0.1, 0.1),
        (-0.0, 0.0),
        (1e308, 1e308),
        (5e-324, 5e-324),
        (math.nan, "NaN"),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
        ("0.5", 0.5),
    ],
)
def test_metric_may_be_anything_that_is_a_number(run_dir: Path, value: Any, written: object) -> None:
    with stoker.init() as ctx:
        ctx.report(1, x=value)

    assert events(run_dir)[0]["values"] == {"x": written}


def test_metric_may_be_numpys_or_torchs(run_dir: Path) -> None:
    numpy = pytest.importorskip("numpy")
    with stoker.init() as ctx:
        ctx.report(numpy.int64(3), a=numpy.float32(0.5), b=numpy.array(2))

    assert (events(run_dir)[0]["step"], events(run_dir)[0]["values"]) == (3, {"a": 0.5, "b": 2.0})


def test_metric_that_is_no_number_is_an_error_of_user_code(run_dir: Path) -> None:
    with stoker.init() as ctx, pytest.raises(ValueError, match="could not convert"):
        ctx.report(1, loss="low")

    assert not (run_dir / "events.jsonl").exists()


@pytest.mark.parametrize(("given", "written"), [(0.4, 0.4), (-1, 0.0), (2, 1.0)])
def test_progress_is_a_fraction(run_dir: Path, given: float, written: float) -> None:
    with stoker.init() as ctx:
        ctx.progress(given)

    assert events(run_dir)[0]["fraction"] == written


def test_checkpoint_file_is_kept_in_the_run_directory(run_dir: Path, tmp_path: Path) -> None:
    source = tmp_path / "model.pt"
    source.write_bytes(b"12345")
    with stoker.init() as ctx:
        kept = ctx.save_checkpoint(source, step=3, epoch=1, note="good")
        source.write_bytes(b"changed")

    assert kept == str(run_dir / "checkpoints" / "step-000000003.pt")
    assert Path(kept).read_bytes() == b"12345"
    assert ctx.latest_checkpoint == kept
    (event,) = events(run_dir)
    assert (event["type"], event["step"], event["path"], event["size_bytes"]) == ("checkpoint", 3, kept, 5)
    assert event["metadata"] == {"epoch": 1, "note": "good"}


def test_checkpoint_folder_is_kept_whole_and_replaced_whole(run_dir: Path, tmp_path: Path) -> None:
    source = tmp_path / "state"
    (source / "deep").mkdir(parents=True)
    (source / "deep" / "a").write_bytes(b"123")
    (source / "b").write_bytes(b"4")
    with stoker.init() as ctx:
        ctx.save_checkpoint(source, step=3)
        (source / "b").unlink()
        kept = ctx.save_checkpoint(source, step=3)

    assert sorted(path.name for path in Path(kept).rglob("*")) == ["a", "deep"]
    assert [event["size_bytes"] for event in events(run_dir)] == [4, 3]
    assert [path.name for path in (run_dir / "checkpoints").iterdir()] == ["step-000000003"]


def test_checkpoint_that_is_there_already_is_not_copied(run_dir: Path) -> None:
    with stoker.init() as ctx:
        path = os.path.join(ctx.checkpoint_dir, "mine.pt")
        Path(path).write_bytes(b"1")
        kept = ctx.save_checkpoint(path, step=1)

    assert kept == path
    assert os.listdir(ctx.checkpoint_dir) == ["mine.pt"]


def test_checkpoint_that_is_nowhere_is_an_error(run_dir: Path) -> None:
    with stoker.init() as ctx, pytest.raises(FileNotFoundError, match="save it there first"):
        ctx.save_checkpoint("nowhere", step=1)

    assert not (run_dir / "events.jsonl").exists()


def test_metadata_that_json_has_no_word_for_does_not_end_the_training(run_dir: Path, tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    (tmp_path / "m").write_bytes(b"")
    with stoker.init() as ctx:
        ctx.save_checkpoint(tmp_path / "m", step=1, loss=numpy.float32(0.5), where=tmp_path)

    assert events(run_dir)[0]["metadata"] == {"loss": 0.5, "where": str(tmp_path)}


def test_restarted_run_has_its_latest_checkpoint(run_dir: Path) -> None:
    write_run(run_dir, latest_checkpoint="/runs/1/checkpoints/step-3")

    assert stoker.init().latest_checkpoint == "/runs/1/checkpoints/step-3"


# --- being told to stop


def test_stop_file_is_noticed_with_its_reason(run_dir: Path) -> None:
    ctx = stoker.init()
    assert not ctx.should_stop()
    assert ctx.stop_reason is None

    (run_dir / "stop").write_text("prune\n")
    fresh = stoker.init()  # the first asks the file system a few times a second only

    assert fresh.should_stop()
    assert fresh.stop_reason == "prune"


def test_sigterm_is_noticed_at_once_and_does_not_end_the_process(run_dir: Path) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    ctx = stoker.init()

    signal.raise_signal(signal.SIGTERM)

    assert ctx.should_stop()


def test_users_own_handler_is_left_alone(run_dir: Path) -> None:
    seen: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))

    stoker.init()
    signal.raise_signal(signal.SIGTERM)

    assert seen == [signal.SIGTERM]


def test_context_can_be_made_in_another_thread(run_dir: Path) -> None:
    made: list[Context] = []
    thread = threading.Thread(target=lambda: made.append(stoker.init()))
    thread.start()
    thread.join()

    (run_dir / "stop").write_text("cancel")

    assert made[0].should_stop()


def test_no_thread_and_no_socket_is_made(run_dir: Path) -> None:
    threads = threading.active_count()
    with stoker.init() as ctx:
        ctx.report(1, loss=1)
        opened = [
            os.readlink(f"/proc/self/fd/{fd}")
            for fd in os.listdir("/proc/self/fd")
            if os.path.exists(f"/proc/self/fd/{fd}")
        ]
        assert str(run_dir / "events.jsonl") in opened
        assert threading.active_count() == threads


# --- without a supervisor


def test_plain_python_works_and_writes_to_a_folder_of_its_own(elsewhere: Path) -> None:
    with stoker.init({"lr": 0.5}) as ctx:
        assert not (elsewhere / "stoker-runs").exists(), "made at the first write"
        ctx.report(1, loss=ctx.hparams["lr"])

    assert ctx.managed is False
    assert Path(ctx.run_dir).parent == elsewhere / "stoker-runs"
    assert events(ctx.run_dir)[0]["values"] == {"loss": 0.5}
    assert not ctx.should_stop()
    assert ctx.latest_checkpoint is None


def test_plain_python_keeps_its_own_sigterm(elsewhere: Path) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)

    stoker.init()

    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_run_directory_stays_where_it_was_when_user_code_moves(elsewhere: Path) -> None:
    ctx = stoker.init()
    (elsewhere / "other").mkdir()
    os.chdir(elsewhere / "other")

    with ctx:
        ctx.report(1, loss=1)

    assert Path(ctx.run_dir).parent == elsewhere / "stoker-runs"
    assert events(ctx.run_dir)


def test_run_directory_that_holds_no_run_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run.json").write_text("[]")
    monkeypatch.setenv("STOKER_RUN_DIR", str(tmp_path))

    with pytest.raises(ValueError, match="not a JSON object"):
        stoker.init()


# --- several processes, and other Pythons

WRITERS = """
import os, sys, stoker
ctx = stoker.init()
for step in range(2000):
    ctx.report(step, loss=step * 0.5, name_that_is_rather_long=1.0)
"""


@pytest.mark.slow
def test_lines_of_several_processes_do_not_mix(run_dir: Path) -> None:
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITERS], env={**os.environ, "STOKER_REPLICA": f"worker-{number}"})
        for number in range(3)
    ]
    assert [writer.wait(120) for writer in writers] == [0, 0, 0]

    found = events(run_dir)

    for number in range(3):
        steps = [event["step"] for event in found if event["replica"] == f"worker-{number}"]
        assert steps == list(range(2000))


def other_pythons() -> list[str]:
    root = os.environ.get("PYENV_ROOT", os.path.expanduser("~/.pyenv"))
    names = ["python3.7", "python3.8", "python3.9", "python3.10", "python3.12", "python3.13"]
    found = [path for name in names if (path := shutil.which(name)) and "shims" not in path]
    found += [str(path) for name in names for path in Path(root).glob(f"versions/{name[6:]}.*/bin/{name}")]
    return sorted({os.path.realpath(path) for path in found})


@pytest.mark.slow
@pytest.mark.parametrize("python", other_pythons())
def test_context_works_on_any_python(run_dir: Path, python: str) -> None:
    code = """if True:
        import stoker
        with stoker.init({"depth": 2}) as ctx:
            ctx.report(1, loss=float("nan"), x=0.5)
            ctx.progress(0.5)
            with open("model.bin", "w") as file:
                file.write("123")
            ctx.save_checkpoint("model.bin", step=2, note="x")
            print(ctx.hparams, ctx.should_stop(), ctx.trial, ctx.origin.trainer.given())
    """
    launch = json.loads((run_dir / "run.json").read_text())
    origin = {"platform": "determined", "trainer": {"max_length": {"epochs": 2}, "test_mode": None}, "later": 1}
    (run_dir / "run.json").write_text(json.dumps({**launch, "origin": origin}))
    environment = {**os.environ, "PYTHONPATH": str(Path(stoker.__file__).parents[1])}

    done = subprocess.run(
        [python, "-W", "error", "-c", code], cwd=run_dir, env=environment, capture_output=True, text=True
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout == "{'depth': 2, 'lr': 0.1} False 2 {'max_length': {'epochs': 2}}\n"
    assert [event["type"] for event in events(run_dir)] == ["metric", "progress", "checkpoint"]


def test_refused_hyperparameters_are_an_event_and_a_good_end_in_a_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run.json").write_text('{"in_search": true}')
    monkeypatch.setenv("STOKER_RUN_DIR", str(tmp_path))

    with pytest.raises(SystemExit) as left, stoker.init():
        raise stoker.InvalidHP('too "wide"')

    assert left.value.code == 0
    (line,) = (tmp_path / "events.jsonl").read_text().splitlines()
    event = json.loads(line)
    assert (event["type"], event["reason"]) == ("invalid_hp", 'too "wide"')


def test_refused_hyperparameters_are_an_error_without_a_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(stoker.InvalidHP), stoker.init():
        raise stoker.InvalidHP("too wide")


def test_event_cut_off_by_a_full_disk_is_reported_and_not_glued_to_the_next(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = stoker.init()
    write, room = os.write, [20]

    def short_write(descriptor: int, data: bytes) -> int:
        if room[0] == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        data, room[0] = data[: room[0]], max(room[0] - len(data), 0)
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", short_write)
    with pytest.raises(OSError, match="No space left"):
        context.report(1, loss=1.0)
    room[0] = 10_000
    context.report(2, loss=2.0)

    lines = (run_dir / "events.jsonl").read_bytes().splitlines()
    assert len(lines) == 2
    assert json.loads(lines[1])["step"] == 2


def test_folder_checkpoint_saved_again_is_never_missing(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed at any system call, one of the two is there under the checkpoint's name."""
    context = stoker.init()
    source = run_dir / "state"
    source.mkdir()
    (source / "weights").write_text("old")
    kept = Path(context.save_checkpoint(source, 5))
    (source / "weights").write_text("new")
    seen = []
    for name in ("rename", "replace"):
        real = getattr(os, name)

        def watched(*places: str, real: Any = real) -> None:
            seen.append(kept.exists())
            real(*places)
            seen.append(kept.exists())

        monkeypatch.setattr(os, name, watched)

    context.save_checkpoint(source, 5)

    assert seen
    assert all(seen)
    assert (kept / "weights").read_text() == "new"
    assert [path.name for path in kept.parent.iterdir()] == [kept.name]


def test_sigterm_that_is_not_the_supervisors_is_noted_once_user_code_knows_of_it(run_dir: Path) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    context = stoker.init()
    signal.raise_signal(signal.SIGTERM)
    assert not (run_dir / "interrupted").exists()

    assert context.should_stop()

    assert (run_dir / "interrupted").exists()


def test_sigterm_of_the_supervisor_is_no_interruption(run_dir: Path) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    context = stoker.init()
    (run_dir / "stop").write_text("cancel\n")
    signal.raise_signal(signal.SIGTERM)

    assert context.should_stop()

    assert not (run_dir / "interrupted").exists()
