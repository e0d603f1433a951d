"""Events reach the server in order and once, whatever the server does meanwhile."""

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stoker.host.home import Home
from stoker.supervisor.ship import BATCH_BYTES, OrderListener, Shipper
from stoker.supervisor.spool import Entry, Spool
from stoker.supervisor.tails.reports import supervisor_log
from tests.fakes import FakeServer
from tests.processes import DEADLINE_S, wait_until

RUN = "taxi.1.1"


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    spool = Spool(tmp_path / "spool.jsonl")
    yield spool
    spool.close()


@pytest.fixture
def stops() -> list[str]:
    return []


@pytest.fixture
def shipping(home: Home, spool: Spool, stops: list[str]) -> Callable[[], Shipper]:
    """Begins to ship the spool."""

    def begin() -> Shipper:
        shipper = Shipper(spool.path, run=RUN, node=0, find_server=home.server, on_stop=stops.append)
        spool.grew = shipper.wake
        shipper.start()
        return shipper

    return begin


def say(spool: Spool, *texts: str) -> None:
    spool.append([Entry(supervisor_log(text)) for text in texts])


def texts(server: FakeServer) -> list[str]:
    return [event["text"] for event in server.of(RUN, "log")]


def test_events_are_told_as_they_come_and_the_rest_at_the_end(
    server: FakeServer, spool: Spool, shipping: Callable[[], Shipper]
) -> None:
    shipper = shipping()
    say(spool, "one")
    wait_until(lambda: texts(server) == ["one"], what="the first event")

    say(spool, "two", "three")

    assert shipper.close(timeout_s=DEADLINE_S)
    assert texts(server) == ["one", "two", "three"]
    assert spool.path.with_suffix(".ack").read_text() == "3\n"


class Interrupted(Shipper):
    """Finds the spool empty; the last event and `close` come before it goes on from there."""

    spool: Spool

    def _next_batch(self) -> tuple[list[bytes], int]:
        found = super()._next_batch()
        if not found[0] and not self._closing.is_set():
            say(self.spool, "the last word")
            self._closing.set()  # as `close` does, from another thread
            self.wake()
        return found


def test_last_event_that_is_written_just_after_it_looked_is_told(home: Home, server: FakeServer, spool: Spool) -> None:
    shipper = Interrupted(spool.path, run=RUN, node=0, find_server=home.server, on_stop=lambda reason: None)
    shipper.spool = spool
    shipper.start()
    shipper.join(DEADLINE_S)

    assert shipper.has_sent_all
    assert texts(server) == ["the last word"]


def test_large_spool_is_told_in_batches(server: FakeServer, spool: Spool, shipping: Callable[[], Shipper]) -> None:
    for number in range(40):
        say(spool, f"{number} " + "x" * 200_000)

    assert shipping().close(timeout_s=DEADLINE_S)

    assert [text.split()[0] for text in texts(server)] == [str(number) for number in range(40)]
    assert 8 <= server.num_batches <= 12


def test_event_larger_than_a_batch_is_told(server: FakeServer, spool: Spool, shipping: Callable[[], Shipper]) -> None:
    say(spool, "small", "\x00" * BATCH_BYTES, "small again")

    assert shipping().close(timeout_s=DEADLINE_S)

    assert [len(text) for text in texts(server)] == [5, BATCH_BYTES, 11]


def test_many_small_events_are_told_in_few_batches(
    server: FakeServer, spool: Spool, shipping: Callable[[], Shipper]
) -> None:
    shipper = shipping()
    with server.held():  # while the server thinks, events gather
        for number in range(2000):
            say(spool, str(number))

    assert shipper.close(timeout_s=DEADLINE_S)
    assert texts(server) == [str(number) for number in range(2000)]
    assert server.num_batches < 10


def test_nothing_is_lost_or_doubled_when_servers_come_and_go(
    server: FakeServer, spool: Spool, shipping: Callable[[], Shipper]
) -> None:
    dice = random.Random(4)
    shipper = shipping()
    said = 0
    for _ in range(6):
        for _ in range(dice.randint(1, 30)):
            said += 1
            say(spool, str(said))
        if dice.random() < 0.5:
            wait_until(lambda: len(texts(server)) > 0, what="some of it to be told")
        server.stop()
        for _ in range(dice.randint(1, 30)):
            said += 1
            say(spool, str(said))
        server.start()

    assert shipper.close(timeout_s=DEADLINE_S)
    assert texts(server) == [str(number) for number in range(1, said + 1)]


def test_batch_whose_acknowledgement_was_lost_is_sent_again_and_taken_once(
    server: FakeServer, spool: Spool, shipping: Callable[[], Shipper]
) -> None:
    server.fail_next = 2
    say(spool, "one", "two")

    shipper = shipping()
    wait_until(lambda: server.fail_next == 0, what="the lost replies")
    say(spool, "three")

    assert shipper.close(timeout_s=DEADLINE_S)
    assert texts(server) == ["one", "two", "three"]


def test_shipper_waits_for_a_first_server(
    home: Home, spool: Spool, shipping: Callable[[], Shipper], server: FakeServer
) -> None:
    server.stop()
    home.server_file.unlink()
    shipper = shipping()
    say(spool, "one")

    server.start()

    assert shipper.close(timeout_s=DEADLINE_S)
    assert texts(server) == ["one"]


def test_server_that_lost_events_gets_them_again(
    server: FakeServer, spool: Spool, shipping: Callable[[], Shipper]
) -> None:
    shipper = shipping()
    say(spool, *map(str, range(20)))
    wait_until(lambda: len(texts(server)) == 20, what="all of it")
    del server.events[RUN][5:]  # restored from yesterday's copy

    say(spool, "20")

    assert shipper.close(timeout_s=DEADLINE_S)
    assert texts(server) == [str(number) for number in range(21)]


def test_next_shipper_goes_on_where_the_last_was_acknowledged(
    server: FakeServer, spool: Spool, shipping: Callable[[], Shipper]
) -> None:
    say(spool, "one", "two")
    assert shipping().close(timeout_s=DEADLINE_S)
    batches = server.num_batches
    say(spool, "three")

    assert shipping().close(timeout_s=DEADLINE_S)

    assert texts(server) == ["one", "two", "three"]
    assert server.num_batches == batches + 1


@pytest.mark.parametrize("hint", ["0", "99", "nonsense", "1"])
def test_wrong_hint_of_what_was_acknowledged_harms_nothing(
    server: FakeServer, spool: Spool, shipping: Callable[[], Shipper], hint: str
) -> None:
    say(spool, "one", "two", "three")
    assert shipping().close(timeout_s=DEADLINE_S)
    spool.path.with_suffix(".ack").write_text(hint)
    say(spool, "four")

    assert shipping().close(timeout_s=DEADLINE_S)

    assert texts(server) == ["one", "two", "three", "four"]


def test_hint_that_all_was_acknowledged_is_checked_with_the_server(
    server: FakeServer, spool: Spool, shipping: Callable[[], Shipper]
) -> None:
    say(spool, "one", "two", "three")
    spool.path.with_suffix(".ack").write_text("3")

    assert shipping().close(timeout_s=DEADLINE_S)

    assert texts(server) == ["one", "two", "three"]


def test_shipper_gives_up_when_the_server_does_not_know_the_run(
    server: FakeServer, spool: Spool, shipping: Callable[[], Shipper]
) -> None:
    server.unknown_runs.add(RUN)
    say(spool, "one")

    assert not shipping().close(timeout_s=DEADLINE_S)
    assert server.events == {}


def test_event_that_the_server_refuses_is_replaced_so_that_those_behind_it_arrive(
    server: FakeServer, spool: Spool, shipping: Callable[[], Shipper]
) -> None:
    server.refused_types.add("progress")
    say(spool, "one", "two")
    spool.add("progress", fraction=0.5)
    say(spool, "three", "four")

    assert shipping().close(timeout_s=DEADLINE_S)

    one, two, refused, three, four = texts(server)
    assert [one, two, three, four] == ["one", "two", "three", "four"]
    assert refused.startswith("An event of type progress was refused by the server")


def test_stop_comes_with_the_answer_to_events(
    server: FakeServer, spool: Spool, shipping: Callable[[], Shipper], stops: list[str]
) -> None:
    server.order_stop("pause")
    say(spool, "one")

    assert shipping().close(timeout_s=DEADLINE_S)

    assert stops == ["pause"]


def test_order_is_heard_while_nothing_is_said(server: FakeServer, home: Home, stops: list[str]) -> None:
    listener = OrderListener(run=RUN, find_server=home.server, on_stop=stops.append)
    listener.start()
    server.stop()  # and another comes

    server.start()
    server.order_stop("prune")

    listener.join(DEADLINE_S)
    assert stops == ["prune"]


def test_listener_leaves_when_the_server_does_not_know_the_run(
    server: FakeServer, home: Home, stops: list[str]
) -> None:
    server.unknown_runs.add(RUN)
    listener = OrderListener(run=RUN, find_server=home.server, on_stop=stops.append)
    listener.start()

    listener.join(DEADLINE_S)

    assert not listener.is_alive()
    assert stops == []


def test_node_is_named_in_every_batch(home: Home, server: FakeServer, spool: Spool) -> None:
    seen: list[int] = []
    take = server.take

    def note(run: str, body: bytes) -> dict[str, object]:
        seen.append(json.loads(body)["node"])
        return take(run, body)

    server.take = note  # type: ignore[method-assign]
    say(spool, "one")
    shipper = Shipper(spool.path, run=RUN, node=3, find_server=home.server, on_stop=lambda reason: None)
    shipper.start()

    assert shipper.close(timeout_s=DEADLINE_S)
    assert seen == [3]
