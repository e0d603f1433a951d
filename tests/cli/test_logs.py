"""Log lines as text and as JSON."""

import json
import time

import pytest

from stoker.cli.logs import Writer, _may_have_several
from stoker.compat.aiplatform.gcloud import replica_of_task
from tests.cli.records import NOW, a_block, a_job

CLOCK = time.strftime("%H:%M:%S", time.localtime(NOW))


def written(capsys: pytest.CaptureFixture[str], writer: Writer, text: str, **fields: object) -> str:
    writer.write(a_block(text, **fields))
    return capsys.readouterr().out


def test_lines_have_their_time(capsys: pytest.CaptureFixture[str]) -> None:
    writer = Writer(show_replica=False, as_json=False, colours=False)

    assert written(capsys, writer, "one\ntwo") == f"{CLOCK}  one\n{CLOCK}  two\n"


def test_lines_name_their_replica_if_there_are_several(capsys: pytest.CaptureFixture[str]) -> None:
    writer = Writer(show_replica=True, as_json=False, colours=False)

    assert written(capsys, writer, "hello", replica="worker-1") == f"{CLOCK}  worker-1    hello\n"


def test_lines_of_stokers_own_are_marked(capsys: pytest.CaptureFixture[str]) -> None:
    writer = Writer(show_replica=False, as_json=False, colours=False)

    assert written(capsys, writer, "installing", replica="supervisor") == f"{CLOCK}  stoker: installing\n"


def test_json_is_one_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    writer = Writer(show_replica=False, as_json=True, colours=False)

    lines = written(capsys, writer, "fine\nbad\u2028 thing", levels={1: "ERROR"}, stream="stderr").split("\n")

    assert lines.pop() == ""
    first, second = map(json.loads, lines)
    assert (first["level"], first["text"], first["stream"]) == ("INFO", "fine", "stderr")
    assert (second["level"], second["text"], second["time"]) == ("ERROR", "bad\u2028 thing", NOW)


@pytest.mark.parametrize(
    ("task", "replica"),
    [
        ("master-replica-0", "chief-0"),
        ("chief-replica-0", "chief-0"),
        ("worker-replica-2", "worker-2"),
        ("ps-replica-0", "ps-0"),
        ("service", "supervisor"),
        ("worker-1", "worker-1"),
    ],
)
def test_task_names_of_gcloud_are_understood(task: str, replica: str) -> None:
    assert replica_of_task(task) == replica


@pytest.mark.parametrize(
    ("resources", "several"),
    [
        ({}, False),
        ({"slots": 2}, True),
        ({"tier": "BASIC"}, False),
        ({"tier": "STANDARD_1"}, True),
        ({"roles": {"chief": {}}}, False),
        ({"roles": {"chief": {}, "ps": {"count": 1}}}, True),
    ],
)
def test_replicas_are_named_when_there_may_be_several(resources: dict[str, object], several: bool) -> None:
    assert _may_have_several(a_job(spec={"resources": resources})) is several


def test_a_restart_is_told_between_the_lines(capsys: pytest.CaptureFixture[str]) -> None:
    writer = Writer(show_replica=False, as_json=False, colours=False)

    writer.write(a_block("first"))
    writer.write(a_block("again", run="taxi_1.1.2", attempt=2))

    captured = capsys.readouterr()
    assert captured.out == f"{CLOCK}  first\n{CLOCK}  again\n"
    assert captured.err == "--- taxi_1.1.2 starts: run 2 ---\n"
