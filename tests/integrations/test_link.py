import os

import pytest
import torch.distributed

import stoker
from stoker.integrations.link import RunLink
from tests.integrations.conftest import tell_to_stop
from tests.pytorch.ranks import run_ranks


def test_names_of_other_libraries_are_sorted_into_groups(start_run):
    run = start_run()

    metrics = {"loss": 1, "eval_loss": 2.0, "val_loss": 3, "val/acc": 0.5, "value": 4, "test_f1": 1, "text": "x"}
    RunLink(None, keep=1).report(7, metrics)

    assert [(e["group"], e["step"], e["values"]) for e in run.events("metric")] == [
        ("training", 7, {"loss": 1.0, "value": 4.0}),
        ("validation", 7, {"loss": 3.0, "acc": 0.5}),
        ("test", 7, {"f1": 1.0}),
    ]


def test_the_newest_checkpoints_are_kept(start_run, tmp_path):
    run = start_run()
    link = RunLink(stoker.init(), keep=2)
    source = tmp_path / "weights.bin"
    source.write_text("x")

    for step in (1, 2, 3, 3):
        link.keep(str(source), step)

    assert [path.name for path in sorted((run.folder / "checkpoints").iterdir())] == [
        "step-000000002.bin",
        "step-000000003.bin",
    ]
    assert run.checkpoints() == [1, 2, 3, 3]


def test_keeping_nothing_is_refused():
    with pytest.raises(ValueError, match="keep is 0"):
        RunLink(None, keep=0)


def test_other_ranks_than_the_chief_say_nothing(start_run, monkeypatch, tmp_path):
    run = start_run()
    monkeypatch.setenv("RANK", "1")
    link = RunLink(None, keep=1)

    link.report(1, {"loss": 1.0})
    link.progress(0.5)
    link.keep(str(tmp_path), 1)

    assert not (run.folder / "events.jsonl").exists()


def train_until_told(last_step: int) -> int:
    """On a rank: the step after which it stops. Only the second rank is told, and the ranks keep no step together."""
    torch.distributed.init_process_group("gloo")
    link = RunLink(None, keep=1)
    link.begin()
    for step in range(1, last_step):
        if step == 3 and os.environ["RANK"] == "1":
            tell_to_stop()
        if link.should_stop(step):
            torch.distributed.destroy_process_group()
            return step
    raise AssertionError("never stopped")


@pytest.mark.slow
def test_ranks_stop_after_the_same_step(tmp_path):
    steps = run_ranks(train_until_told, 2, tmp_path, 10_000_000)

    assert steps[0] == steps[1] >= 3
