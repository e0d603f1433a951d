"""Logs and metrics over HTTP: pages, filters, and following."""

import threading
from collections.abc import Callable

import pytest

from stoker.client.client import Client
from stoker.schema.event import Event, EventBatch, Exited, Metric, Phase
from stoker.schema.job import JobSpec
from stoker.server.store.store import Store
from tests.contracts.store import log
from tests.processes import wait_until
from tests.server.asking import API, ask, stream
from tests.server.conftest import Served
from tests.server.fakes import FakeEngine

pytestmark = pytest.mark.slow

LOGS = f"{API}/jobs/taxi/logs"
METRICS = f"{API}/jobs/taxi/metrics"

Say = Callable[..., None]


@pytest.fixture
def say(client: Client, engine: FakeEngine, served: Served) -> Say:
    client.submit(JobSpec(name="taxi", module="trainer.task"))
    wait_until(lambda: engine.runs == ["taxi.1.1"], what="the run to start")

    def say(*events: Event) -> None:
        body = EventBatch(events=events).model_dump(mode="json")
        assert ask(served, "POST", f"{API}/runs/taxi.1.1/events", body=body).status == 200

    return say


def the_end(seq: int) -> Exited:
    return Exited(seq=seq, time=9.0, phase=Phase.USER_CODE, code=0)


def test_log_is_read_page_by_page(client: Client, say: Say) -> None:
    say(*(log(n, f"line {n}", line=n) for n in range(1, 6)))

    first = client.logs("taxi", limit=2)
    second = client.logs("taxi", limit=2, after=first.cursor)

    assert [block.text for block in (*first.blocks, *second.blocks)] == ["line 1", "line 2", "line 3", "line 4"]


def test_log_is_filtered(client: Client, say: Say) -> None:
    say(log(1, "good\nbad\nugly", levels={1: "ERROR"}, time=1_700_000_000.0))

    def lines(**which: object) -> list[str]:
        return [line for b in client.logs("taxi", **which).blocks for line in b.text.split("\n")]  # type: ignore[arg-type]

    assert lines(level="error") == ["bad"]
    assert lines(text="UGL") == ["ugly"]
    assert lines(regex="^g") == ["good"]
    assert lines(tail=1) == ["ugly"]
    assert lines(replica="worker-0") == []
    assert lines(since="2023-11-14T22:13:00+00:00") == ["good", "bad", "ugly"]
    assert lines(since="2023-11-14T22:14:00+00:00") == []
    assert lines(until=1_699_999_999) == []


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("regex=(", "not a regular expression"),
        ("level=LOUD", "No log level"),
        ("since=yesterday", "not a time"),
        ("tail=-1", "tail"),
        ("colour=red", "colour"),
        ("follow=true&regex=(", "not a regular expression"),
    ],
)
def test_bad_query_is_refused(served: Served, say: Say, query: str, words: str) -> None:
    answer = ask(served, "GET", f"{LOGS}?{query}")

    assert 400 <= answer.status < 500
    assert words in answer.body.decode()


@pytest.mark.parametrize("path", ["logs", "logs?follow=true", "metrics", "metrics?follow=true", "checkpoints"])
def test_unknown_job_is_not_found(served: Served, path: str) -> None:
    assert ask(served, "GET", f"{API}/jobs/nope/{path}").status == 404


def test_follower_hears_what_was_said_and_what_comes_until_the_end(served: Served, say: Say) -> None:
    say(log(1, "before"))
    heard = []

    for said in stream(served, f"{LOGS}?follow=true"):
        heard.append((said.event, said.data.get("text", said.data.get("state"))))
        if len(heard) == 1:
            say(log(2, "while"))
        if len(heard) == 2:
            say(log(3, "last"), the_end(4))

    assert heard == [("log", "before"), ("log", "while"), ("log", "last"), ("end", "SUCCEEDED")]


def test_broken_stream_is_taken_up_where_it_was(served: Served, say: Say) -> None:
    say(*(log(n, f"line {n}") for n in range(1, 5)), the_end(5))
    first = next(iter(stream(served, f"{LOGS}?follow=true")))
    assert first.data["cursor"] == int(first.id)

    from tests.server.asking import BEARER

    by_header = list(stream(served, f"{LOGS}?follow=true&tail=1", headers={**BEARER, "Last-Event-ID": first.id}))
    by_cursor = list(stream(served, f"{LOGS}?follow=true&after={first.id}"))

    assert [said.data.get("text") for said in by_header[:-1]] == ["line 2", "line 3", "line 4"]
    assert by_cursor == by_header


def test_follower_with_a_tail_begins_there(served: Served, say: Say) -> None:
    say(log(1, "old\nnewer\nnewest"))
    heard = []

    for said in stream(served, f"{LOGS}?follow=true&tail=2"):
        heard.append(said.data.get("text"))
        if len(heard) == 1:
            say(log(2, "new"), the_end(3))

    assert heard == ["newer\nnewest", "new", None]


def test_follower_with_a_filter_hears_only_what_matches(served: Served, say: Say) -> None:
    heard = []
    for number, said in enumerate(after_saying(say, served, log(1, "noise"), log(2, "signal 1"))):
        heard.append(said)
        if number == 0:
            say(log(3, "noise"), log(4, "signal 2\nnoise"), the_end(5))

    assert heard == ["signal 1", "signal 2", None]


def after_saying(say: Say, served: Served, *events: Event) -> "list[str] | object":
    say(*events)
    return (said.data.get("text") for said in stream(served, f"{LOGS}?follow=true&text=signal"))


def test_client_follows_a_busy_job_without_loss(client: Client, served: Served, say: Say) -> None:
    blocks = 300

    def speak() -> None:
        for seq in range(1, blocks + 1):
            say(log(seq, "\n".join(f"{seq}.{n}" for n in range(50)), line=50 * seq - 49))
        say(the_end(blocks + 1))

    speaking = threading.Thread(target=speak)
    speaking.start()

    told = [line for block in client.follow("taxi") for line in block.text.split("\n")]

    speaking.join()
    assert told == [f"{seq}.{n}" for seq in range(1, blocks + 1) for n in range(50)]


def test_slow_follower_stalls_nobody(served: Served, say: Say, client: Client) -> None:
    slow = iter(stream(served, f"{LOGS}?follow=true"))
    big = "x" * 500_000
    say(log(1, big))
    next(slow)  # and reads no more for now

    for seq in range(2, 30):
        say(log(seq, big))
    say(the_end(30))

    assert client.wait("taxi", timeout_s=60).state == "SUCCEEDED"
    assert sum(said.event == "log" for said in slow) == 28


def test_metrics_of_any_number_come_as_one_list(client: Client, served: Served, say: Say) -> None:
    assert client.metrics("taxi") == ()
    say(*(Metric(seq=n, time=1.0, step=n, values={"loss": 1 / n}) for n in range(1, 2501)))

    assert [point.step for point in client.metrics("taxi")] == list(range(1, 2501))


def test_metrics_are_followed(served: Served, say: Say) -> None:
    steps: list[int] = []
    say(Metric(seq=1, time=1.0, step=1, values={"loss": 1.0}))

    for said in stream(served, f"{METRICS}?follow=true"):
        if said.event == "end":
            break
        steps += [point["step"] for point in said.data]
        if steps == [1]:
            say(Metric(seq=2, time=1.0, step=2, values={"loss": 0.5}), the_end(3))

    assert steps == [1, 2]


def test_checkpoints_are_listed(client: Client, store: Store, say: Say) -> None:
    from stoker.schema.event import Checkpoint

    say(Checkpoint(seq=1, time=5.0, step=10, path="/c/10", size_bytes=3, metadata={"best": True}))

    (found,) = client.checkpoints("taxi")

    assert (found.run, found.step, found.path, found.metadata) == ("taxi.1.1", 10, "/c/10", {"best": True})
