"""What supervisors say and are told, over HTTP."""

import threading

import pytest

from stoker.client.client import Client
from stoker.schema.event import EventBatch, Exited, Phase, PhaseStarted
from stoker.schema.job import JobSpec
from stoker.schema.state import JobState
from stoker.server.store.store import Store
from stoker.server.store.values import LogFilter
from tests.contracts.store import log
from tests.processes import wait_until
from tests.server.asking import API, ask
from tests.server.conftest import Served
from tests.server.fakes import FakeEngine

pytestmark = pytest.mark.slow

EVENTS = f"{API}/runs/taxi.1.1/events"
ORDERS = f"{API}/runs/taxi.1.1/orders"


@pytest.fixture
def started(client: Client, engine: FakeEngine) -> str:
    client.submit(JobSpec(name="taxi", module="trainer.task"))
    wait_until(lambda: engine.runs == ["taxi.1.1"], what="the run to start")
    return "taxi.1.1"


def a_batch(*events: object) -> dict[str, object]:
    return EventBatch.model_validate({"events": events}).model_dump(mode="json")


def test_events_are_acknowledged_and_taken_once(served: Served, started: str, store: Store) -> None:
    batch = a_batch(log(1, "one"), log(2, "two"))

    replies = [ask(served, "POST", EVENTS, body=batch).json for _ in range(2)]

    assert replies == [{"acked": 2, "stop": None}] * 2
    assert [block.text for block in store.log_page("taxi", LogFilter()).blocks] == ["one", "two"]


def test_exit_ends_the_job(served: Served, started: str, client: Client) -> None:
    begun = PhaseStarted(seq=1, time=1.0, phase=Phase.USER_CODE)
    ask(served, "POST", EVENTS, body=a_batch(begun))
    wait_until(lambda: client.job("taxi").state is JobState.RUNNING, what="RUNNING")

    ask(served, "POST", EVENTS, body=a_batch(Exited(seq=2, time=2.0, phase=Phase.USER_CODE, code=0)))

    assert client.wait("taxi", timeout_s=60).state is JobState.SUCCEEDED


def test_nan_travels(served: Served, started: str, client: Client) -> None:
    metric = {"type": "metric", "seq": 1, "time": 1.0, "step": 1, "values": {"loss": "NaN", "best": "-Infinity"}}

    ask(served, "POST", EVENTS, body={"node": 0, "events": [metric]})

    (point,) = client.metrics("taxi")
    assert point.values["loss"] != point.values["loss"]
    assert point.values["best"] == float("-inf")
    assert client.job("taxi").trials[0].metrics["best"] == float("-inf")


def test_unknown_run_is_not_found(served: Served) -> None:
    for method, path, body in [("POST", "events", a_batch()), ("GET", "orders", None)]:
        answer = ask(served, method, f"{API}/runs/nope.1.1/{path}", body=body)
        assert answer.status == 404
        assert "nope.1.1" in answer.json["error"]


def test_batch_with_bad_fields_is_refused_whole(served: Served, started: str, store: Store) -> None:
    bad = {"type": "log", "seq": "two"}

    answer = ask(served, "POST", EVENTS, body={"events": [*a_batch(log(1))["events"], bad]})  # type: ignore[misc]

    assert answer.status == 422
    assert any("seq" in problem for problem in answer.json["problems"])
    assert store.log_page("taxi", LogFilter()).blocks == ()


def test_orders_answer_at_once_when_there_is_one(served: Served, started: str, client: Client) -> None:
    assert ask(served, "GET", f"{ORDERS}?wait_s=0").json == {"stop": None}
    client.cancel("taxi")
    wait_until(lambda: ask(served, "GET", f"{ORDERS}?wait_s=0").json["stop"], what="the order")

    assert ask(served, "GET", f"{ORDERS}?wait_s=60").json == {"stop": "cancel"}
    assert ask(served, "POST", EVENTS, body=a_batch(log(1))).json == {"acked": 1, "stop": "cancel"}


def test_waiting_supervisor_hears_of_an_order(served: Served, started: str, client: Client) -> None:
    heard: list[object] = []
    waiting = threading.Thread(target=lambda: heard.append(ask(served, "GET", f"{ORDERS}?wait_s=60").json))
    waiting.start()

    client.pause("taxi")
    waiting.join(timeout=60)

    assert heard == [{"stop": "pause"}]
