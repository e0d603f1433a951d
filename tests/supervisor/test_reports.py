"""Lines of events.jsonl become events; what is no event hurts nobody."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

import stoker
from stoker.run_dir import RunDir
from stoker.schema.event import EventBatch
from stoker.supervisor.spool import Entry, Position
from stoker.supervisor.tails.reports import ReportTail


def write(run_dir: RunDir, data: str | bytes) -> None:
    with run_dir.events.open("ab") as file:
        file.write(data if isinstance(data, bytes) else data.encode())


def events(entries: list[Entry]) -> list[dict[str, Any]]:
    """As the server would see them."""
    numbered = [{"seq": seq, **entry.event, **_line(entry)} for seq, entry in enumerate(entries, 1)]
    batch = EventBatch.model_validate_json(json.dumps({"events": numbered}))
    return [event.model_dump() for event in batch.events]


def _line(entry: Entry) -> dict[str, int]:
    return {"line": 1} if entry.event["type"] == "log" else {}


def test_what_a_context_reports_arrives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    RunDir(tmp_path).write_launch("{}")
    monkeypatch.setenv("STOKER_RUN_DIR", str(tmp_path))
    monkeypatch.setenv("STOKER_REPLICA", "worker-1")
    (tmp_path / "model.bin").write_bytes(b"12345")
    with stoker.init() as context:
        context.report(3, loss=0.25, perplexity=float("inf"))
        context.report(4, group="validation", loss=float("nan"))
        kept = context.save_checkpoint(tmp_path / "model.bin", step=4, epoch=1, note="é", tags=[1, 2])
        context.progress(0.5)

    metric, validation, checkpoint, progress = events(ReportTail(RunDir(tmp_path)).read())

    assert (metric["replica"], metric["step"], metric["group"]) == ("worker-1", 3, "training")
    assert metric["values"] == {"loss": 0.25, "perplexity": math.inf}
    assert validation["group"] == "validation"
    assert math.isnan(validation["values"]["loss"])
    assert (checkpoint["step"], checkpoint["path"], checkpoint["size_bytes"]) == (4, kept, 5)
    assert checkpoint["metadata"] == {"epoch": 1, "note": "é", "tags": "[1, 2]"}
    assert progress["fraction"] == 0.5


def test_torn_line_waits_for_its_end(tmp_path: Path) -> None:
    tail = ReportTail(RunDir(tmp_path))
    line = json.dumps({"type": "progress", "time": 1.0, "fraction": 0.5}) + "\n"

    write(RunDir(tmp_path), line + line[:10])
    first = tail.read()
    write(RunDir(tmp_path), line[10:])
    second = tail.read()

    assert [len(first), len(second)] == [1, 1]
    assert [entry.position.offset for entry in first + second] == [len(line), 2 * len(line)]


def test_reading_goes_on_from_a_position(tmp_path: Path) -> None:
    lines = [json.dumps({"type": "progress", "time": 1.0, "fraction": number / 4}) + "\n" for number in range(4)]
    write(RunDir(tmp_path), "".join(lines))

    entries = ReportTail(RunDir(tmp_path), position=Position("events.jsonl", len(lines[0] + lines[1]))).read()

    assert [entry.event["fraction"] for entry in entries] == [0.5, 0.75]


@pytest.mark.parametrize(
    "line",
    [
        "not json",
        "[1, 2]",
        '"text"',
        "{}",
        '{"type": "exited", "code": 0}',
        '{"type": ["metric"]}',
        '{"type": "metric", "values": {"loss": 1}}',
        '{"type": "metric", "step": "3", "values": {"loss": 1}}',
        '{"type": "metric", "step": 1.5, "values": {"loss": 1}}',
        '{"type": "metric", "step": true, "values": {"loss": 1}}',
        '{"type": "metric", "step": 99999999999999999999, "values": {"loss": 1}}',
        '{"type": "metric", "step": 1, "values": {"loss": "low"}}',
        '{"type": "metric", "step": 1, "values": [1]}',
        '{"type": "metric", "step": 1, "values": {"loss": 1' + "0" * 400 + "}}",
        '{"type": "metric", "step": 1, "values": {"loss": 1' + "0" * 5000 + "}}",
        '{"type": "progress", "fraction": NaN}',
        '{"type": "progress", "fraction": 0.5, "time": "now"}',
        '{"type": "checkpoint", "step": 1}',
        '{"type": "checkpoint", "step": 1, "path": 7}',
        "[" * 100_000,
        b"\xff\xfe\x00",
    ],
)
def test_bad_line_becomes_a_line_of_the_supervisors_log(tmp_path: Path, line: str | bytes) -> None:
    good = '{"type": "progress", "time": 1.0, "fraction": 0.5}\n'
    write(RunDir(tmp_path), good)
    write(RunDir(tmp_path), line)
    write(RunDir(tmp_path), "\n" + good)

    found = events(ReportTail(RunDir(tmp_path)).read())

    assert [event["type"] for event in found] == ["progress", "progress", "log"]
    assert found[2]["replica"] == "supervisor"
    assert found[2]["levels"] == {0: "WARNING"}
    assert "\n" not in found[2]["text"]


def test_many_bad_lines_are_one_complaint(tmp_path: Path) -> None:
    write(RunDir(tmp_path), "nonsense\n" * 1000)

    entries = ReportTail(RunDir(tmp_path)).read()

    assert len(entries) == 1
    assert "and 999 more" in entries[0].event["text"]
    assert entries[0].position.offset == 9000


def test_half_characters_are_replaced(tmp_path: Path) -> None:
    write(RunDir(tmp_path), '{"type": "metric", "step": 1, "values": {"\\ud800": 1}, "group": "\\udfff"}\n')

    (metric,) = events(ReportTail(RunDir(tmp_path)).read())

    assert metric["values"] == {"?": 1.0}
    assert metric["group"] == "?"


def test_last_line_may_lack_its_end(tmp_path: Path) -> None:
    write(RunDir(tmp_path), '{"type": "progress", "time": 1.0, "fraction": 0.5}')
    tail = ReportTail(RunDir(tmp_path))

    assert tail.read() == []
    assert [entry.event["type"] for entry in tail.finish()] == ["progress"]


def test_line_without_an_end_does_not_fill_the_memory(tmp_path: Path) -> None:
    write(RunDir(tmp_path), b"x" * 9_000_000)
    tail = ReportTail(RunDir(tmp_path))

    entries = tail.read()
    while tail.has_more:
        entries += tail.read()
    entries += tail.finish()

    assert {entry.event["type"] for entry in entries} == {"log"}
    assert entries[-1].position.offset == 9_000_000


def test_event_glued_to_a_torn_one_is_kept(tmp_path: Path) -> None:
    whole = b'{"type":"metric","step":2,"values":{"loss":2.0},"time":1.0,"replica":"worker-0"}'
    (tmp_path / "events.jsonl").write_bytes(b'{"type":"metric","step":1,"val' + whole + b"\n")

    entries = ReportTail(RunDir(tmp_path)).read()

    assert [entry.event["type"] for entry in entries] == ["metric", "log"]
    assert entries[0].event["step"] == 2
