"""Metrics from event files as the real writers make them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stoker.pytorch.tensorboard import EventFile
from stoker.run_dir import RunDir
from stoker.schema.launch import Launch, Replica
from stoker.supervisor.inputs import Inputs
from stoker.supervisor.spool import Position, Spool
from stoker.supervisor.tails.eventfiles import EventFileTail


def tail_of(folder: Path, tag: str = "accuracy", *, offset: int = 0) -> EventFileTail:
    return EventFileTail([folder], tag=tag, replica="chief-0", positions=lambda source: Position(source, offset))


def told(tail: EventFileTail) -> list[tuple[int, Any]]:
    found = [entry.event for entry in tail.read(at_once=True)]
    return [(event["step"], *event["values"].values()) for event in found if event["type"] == "metric"]


def the_file(folder: Path) -> Path:
    (path,) = folder.glob("*tfevents*")
    return path


def write_by_torch(folder: Path) -> None:
    import torch
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(folder)) as writer:
        for step in (1, 2, 300):
            writer.add_scalar("accuracy", step / 4, step)
            writer.add_scalar("loss", 9.0, step)
            writer.add_histogram("weights", torch.ones(9), step)


def write_by_torch_as_tensors(folder: Path) -> None:
    """As TensorFlow 2 does."""
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(folder)) as writer:
        for step in (1, 2, 300):
            writer.add_scalar("accuracy", step / 4, step, new_style=True, double_precision=step == 2)


def write_by_us(folder: Path) -> None:
    file = EventFile(folder)
    for step in (1, 2, 300):
        file.add(step, {"loss": 9.0, "accuracy": step / 4})
    file.close()


@pytest.mark.parametrize("write", [write_by_torch, write_by_torch_as_tensors, write_by_us])
def test_scalars_of_every_writer_are_read(tmp_path: Path, write: Callable[[Path], None]) -> None:
    write(tmp_path / "logs" / "train")

    tail = tail_of(tmp_path)

    assert told(tail) == [(1, 0.25), (2, 0.5), (300, 75.0)]
    assert told(tail) == []


@pytest.mark.parametrize(("value", "named"), [(float("nan"), "NaN"), (float("-inf"), "-Infinity")])
def test_values_that_are_no_numbers_travel_by_name(tmp_path: Path, value: float, named: str) -> None:
    file = EventFile(tmp_path)
    file.add(1, {"accuracy": value})
    file.close()

    assert told(tail_of(tmp_path)) == [(1, named)]


def test_file_is_followed_byte_by_byte_as_it_grows(tmp_path: Path) -> None:
    write_by_us(tmp_path / "whole")
    data = the_file(tmp_path / "whole").read_bytes()
    growing = tmp_path / "growing" / "events.out.tfevents.1"
    growing.parent.mkdir()
    tail = tail_of(growing.parent)

    found = []
    for end in range(len(data) + 1):
        growing.write_bytes(data[:end])
        found += told(tail)

    assert found == [(1, 0.25), (2, 0.5), (300, 75.0)]


def test_next_supervisor_goes_on_where_the_last_one_was(tmp_path: Path) -> None:
    write_by_us(tmp_path)
    first, *_ = tail_of(tmp_path).read(at_once=True)

    assert told(tail_of(tmp_path, offset=first.position.offset)) == [(2, 0.5), (300, 75.0)]


def test_damaged_file_is_told_once_with_the_place_and_others_are_read(tmp_path: Path) -> None:
    write_by_us(tmp_path / "a")
    path = the_file(tmp_path / "a")
    data = bytearray(path.read_bytes())
    data[-6] ^= 1  # in the last record
    path.write_bytes(data)
    write_by_us(tmp_path / "b")
    tail = tail_of(tmp_path)

    entries = tail.read(at_once=True)

    logs = [entry.event["text"] for entry in entries if entry.event["type"] == "log"]
    assert len(logs) == 1
    assert str(path) in logs[0]
    assert "does not match its checksum" in logs[0]
    assert [e.event["step"] for e in entries if e.event["type"] == "metric"] == [1, 2, 1, 2, 300]
    assert tail.read(at_once=True) == []


def test_nothing_that_a_file_may_hold_ends_the_reading(tmp_path: Path) -> None:
    """Well framed, and no Event inside."""
    import random

    from stoker.formats.tfrecord import framed

    dice = random.Random(1)
    for number in range(300):
        payload = dice.randbytes(dice.randint(0, 40))
        (tmp_path / f"x.tfevents.{number}").write_bytes(framed(payload))

    entries = tail_of(tmp_path).read(at_once=True)

    assert {entry.event["type"] for entry in entries} <= {"log", "metric"}


def inputs_of(tmp_path: Path, *, metric: str | None = "accuracy") -> tuple[Inputs, Path]:
    run_dir = RunDir(tmp_path / "run")
    run_dir.write_launch("{}")
    chief = Replica(role="chief", index=0, rank=0)
    launch = Launch(
        run="j.1.1", job="j", trial=1, trial_id=1, attempt=1, replicas=(chief,),
        job_dir=str(tmp_path / "out"), in_search=True, metric=metric,
    )  # fmt: skip
    inputs = Inputs(run_dir, Spool(run_dir.spool))
    inputs.open([chief], launch=launch)
    return inputs, run_dir


def spooled(run_dir: RunDir) -> list[tuple[str, int]]:
    events = [json.loads(line) for line in run_dir.spool.read_text().splitlines()]
    return [(event["group"], event["step"]) for event in events if event["type"] == "metric"]


def test_event_files_are_read_when_nobody_reports_the_metric(tmp_path: Path) -> None:
    inputs, run_dir = inputs_of(tmp_path)
    write_by_us(tmp_path / "out" / "logs")

    inputs.finish()

    assert spooled(run_dir) == [("tensorboard", 1), ("tensorboard", 2), ("tensorboard", 300)]


@pytest.mark.parametrize("values", [{"accuracy": 0.5}, {"loss": 0.5}])
def test_event_files_are_left_alone_when_the_metric_is_reported(tmp_path: Path, values: dict[str, float]) -> None:
    inputs, run_dir = inputs_of(tmp_path)
    write_by_us(tmp_path / "out" / "logs")
    line = {"type": "metric", "time": 1.0, "step": 7, "values": values}
    run_dir.events.write_text(json.dumps(line) + "\n")

    inputs.finish()

    groups = {group for group, _ in spooled(run_dir)}
    assert groups == ({"training"} if "accuracy" in values else {"training", "tensorboard"})


def test_event_files_are_left_alone_without_a_search(tmp_path: Path) -> None:
    inputs, run_dir = inputs_of(tmp_path, metric=None)
    write_by_us(tmp_path / "out" / "logs")

    inputs.finish()

    assert spooled(run_dir) == []


def test_other_tags_are_told_when_the_one_that_is_searched_for_never_came(tmp_path: Path) -> None:
    inputs, run_dir = inputs_of(tmp_path, metric="val_accuracy")
    write_by_us(tmp_path / "out" / "logs")

    inputs.finish()

    events = [json.loads(line) for line in run_dir.spool.read_text().splitlines()]
    assert [(event["step"], event["values"]) for event in events] == [(300, {"loss": 9.0}), (300, {"accuracy": 75.0})]
