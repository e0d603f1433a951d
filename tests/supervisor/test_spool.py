"""The spool numbers events, and tells who comes next how far its inputs were read."""

import json
import shutil
from pathlib import Path

import pytest

from stoker.errors import ConflictError
from stoker.schema.event import EventBatch
from stoker.supervisor.spool import Entry, Position, Spool, recover, seq_of, without_positions
from stoker.supervisor.tails.reports import supervisor_log


def a_log(text: str, offset: int, *, is_open: bool = False) -> Entry:
    return Entry(supervisor_log(text), Position("logs/chief-0.stdout", offset, is_open))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "spool.jsonl"


def test_events_are_numbered_without_gaps_and_lines_counted(path: Path) -> None:
    spool = Spool(path)
    spool.add("phase", phase="package")
    spool.append([a_log("a\nb", 4), a_log("c", 6)])
    spool.close()

    events = [json.loads(line) for line in path.read_text().splitlines()]
    assert [event["seq"] for event in events] == [1, 2, 3]
    assert [event.get("line") for event in events] == [None, 1, 3]


def test_nothing_comes_after_the_end_however_late_another_thread_writes(path: Path) -> None:
    """As a preparation that was given up, which speaks as soon as the last event is written."""
    spool = Spool(path)
    late = [a_log("still preparing", 4)]
    spool.grew = lambda: spool.append([late.pop()]) if late else None

    spool.end(phase="package")
    spool.close()

    assert [json.loads(line)["type"] for line in path.read_text().splitlines()] == ["exited"]
    assert recover(path).has_ended


def test_spool_is_removed_only_when_nobody_can_read_it_any_more(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    spool = Spool(folder / "spool.jsonl")
    assert not spool.is_removed()

    folder.rename(tmp_path / "moved")  # as a disk that is away, and comes back
    assert not spool.is_removed()

    shutil.rmtree(tmp_path / "moved")
    assert spool.is_removed()
    spool.close()


def test_spooled_lines_are_what_the_server_takes(path: Path) -> None:
    spool = Spool(path)
    spool.add("phase", phase="user code")
    spool.append([a_log('a text with ,"read":["x",1,0,0] in it', 9)])
    spool.add("metric", step=1, values={"read": 1.0, "loss": "NaN"})
    spool.end(phase="user code", code=0)
    spool.close()
    lines = path.read_bytes().splitlines()

    body = b'{"node":0,"events":[' + b",".join(without_positions(lines)) + b"]}"
    batch = EventBatch.model_validate_json(body)

    assert [event.type for event in batch.events] == ["phase", "log", "metric", "exited"]
    assert [seq_of(line) for line in lines] == [1, 2, 3, 4]
    assert batch.events[1].text == 'a text with ,"read":["x",1,0,0] in it'


def test_next_writer_goes_on_where_the_last_one_was(path: Path) -> None:
    first = Spool(path)
    first.append([a_log("a\nb", 4), a_log("c", 6, is_open=True)])
    first.close()

    second = Spool(path)
    second.append([a_log("d", 8)])
    second.close()

    found = recover(path)
    assert (second.recovered.seq, second.recovered.lines) == (2, 3)
    assert second.recovered.position("logs/chief-0.stdout") == Position("logs/chief-0.stdout", 6, True)
    assert second.recovered.position("logs/chief-0.stderr") == Position("logs/chief-0.stderr", 0, False)
    assert (found.seq, found.lines) == (3, 4)


@pytest.mark.parametrize("lost_bytes", [1, 2, 20, 60])
def test_torn_last_line_is_cut_off_wherever_it_was_torn(path: Path, lost_bytes: int) -> None:
    spool = Spool(path)
    spool.append([a_log("a", 2), a_log("b", 4)])
    spool.close()
    path.write_bytes(path.read_bytes()[:-lost_bytes])

    again = Spool(path)
    again.append([a_log("b", 4)])
    again.close()

    texts = [json.loads(line)["text"] for line in path.read_text().splitlines()]
    assert again.recovered.position("logs/chief-0.stdout").offset == 2
    assert texts == ["a", "b"]


def test_spool_has_one_writer(path: Path) -> None:
    spool = Spool(path)

    with pytest.raises(ConflictError, match="Another supervisor"):
        Spool(path)

    spool.close()
    Spool(path).close()


def test_nothing_follows_the_end(path: Path) -> None:
    spool = Spool(path)
    spool.end(phase="environment", message="no")
    spool.add("phase", phase="start")
    spool.close()

    assert recover(path).seq == 1
    assert recover(path).has_ended


def test_whoever_waits_is_woken_after_the_write(path: Path) -> None:
    seen: list[int] = []
    spool = Spool(path)
    spool.grew = lambda: seen.append(recover(path).seq)

    spool.add("progress", fraction=0.5)
    spool.close()

    assert seen == [1]
