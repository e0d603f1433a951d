"""Searches over HTTP: how one stands, one trial, one trial's log."""

import pytest

from stoker.client.client import Client
from stoker.errors import ConfigError, ConflictError, NotFoundError
from stoker.schema.state import JobState
from stoker.search.base import Outcome
from stoker.server.searches.status import SearchViews, search_status
from stoker.server.store.store import Store
from stoker.server.store.values import SearchResults
from tests.contracts.store import add, asked, finish, hear, hunt, log, over, say

pytestmark = pytest.mark.slow


def test_trial_is_found_by_its_id_with_its_job(client: Client, store: Store) -> None:
    hunt(store, trials=2)
    second = client.trials("hunt", trial=2).trials[0]

    found = client.trial(second.id)

    assert (found.job, found.number, found.hparams) == ("hunt", 2, {"lr": 0.02})
    with pytest.raises(NotFoundError, match="No trial has the id 9999"):
        client.trial(9999)


def test_log_of_one_trial_is_asked_for_by_its_number(client: Client, store: Store) -> None:
    hunt(store, trials=2)
    say(store, "hunt.1.1", log(1, "one"))
    say(store, "hunt.2.1", log(1, "two"))

    assert [block.text for block in client.logs("hunt", trial=2).blocks] == ["two"]
    assert [block.text for block in client.logs("hunt", trial=1, tail=5).blocks] == ["one"]
    with pytest.raises(ConfigError, match="trial"):
        client.logs("hunt", trial=0)


def test_max_slots_are_changed_and_refused(client: Client, store: Store) -> None:
    hunt(store, trials=1)
    add(store, "plain")

    changed = client.update("hunt", max_slots=3, priority=7)

    assert (changed.priority, changed.search and changed.search.max_slots) == (7, 3)
    with pytest.raises(ConflictError, match="has no search"):
        client.update("plain", max_slots=3)
    with pytest.raises(ConfigError, match="max_slots"):
        client.update("hunt", max_slots=0)


def test_kill_of_a_queued_job_cancels_it_and_of_an_ended_one_changes_nothing(client: Client, store: Store) -> None:
    hunt(store, trials=1)
    finish(store, add(store, "gone"))

    client.kill("hunt")

    assert client.wait("hunt", timeout_s=60).state is JobState.CANCELLED
    assert client.kill("gone").state is JobState.SUCCEEDED


class Counting:
    """A store that counts the trials it gives to whoever looks at a search."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.read: list[int] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    def search_results(self, job: str, *, after: int) -> SearchResults:
        found = self._store.search_results(job, after=after)
        self.read.append(len(found.results))
        return found


def test_search_looked_at_again_reads_only_what_is_new(store: Store) -> None:
    hunt(store, trials=10)
    counting = Counting(store)
    views = SearchViews(counting)  # type: ignore[arg-type]
    views.status("hunt", best=3)

    hear(store, {4: 0.5, 5: 0.25}, over(4, Outcome.COMPLETED))
    views.status("hunt", best=3)
    hear(store, {5: 0.125, 6: 0.75}, over(5, Outcome.FAILED), asked(11))
    views.status("hunt", best=3)
    status = views.status("hunt", best=3)

    assert counting.read == [10, 2, 3, 0]
    assert status == search_status(store, "hunt", best=3)
    assert [trial.number for trial in status.best] == [4, 6]
    assert status.curve == ((4, 0.5), (6, 0.5))
    assert status.outcomes == {"completed": 1, "failed": 1}
    assert status.states == {"QUEUED": 11}
