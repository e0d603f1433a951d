"""A tag stands for one answer: who has it is told that nothing has changed."""

import gzip
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from stoker.schema.state import JobState
from stoker.server.live.wakeups import Wakeups
from stoker.server.store.values import TrialRow
from stoker.server.views.columns import TrialColumns


class Trials:
    """A store of one trial that goes on; `when_asked` is what happens while somebody's question is on its way."""

    def __init__(self) -> None:
        self.progress = 0.0
        self.when_asked: list[Callable[[], object]] = []
        self.pages = self

    def summary(self, job: str) -> Any:
        if self.when_asked:
            self.when_asked.pop()()
        return SimpleNamespace(search=None)

    def trial_rows_but(self, job: str, settled: set[int]) -> list[TrialRow]:
        row = TrialRow(1, JobState.RUNNING, None, None, self.progress, 1.0, None, 0, None, "", {}, {}, False)
        return [row]


def test_rows_are_not_called_by_an_older_version_when_two_ask_at_once() -> None:
    trials, wakeups = Trials(), Wakeups()
    columns = TrialColumns(trials, wakeups)  # type: ignore[arg-type]
    heard: list[tuple[str, bytes]] = []

    def ask() -> None:
        answer = columns.answer("job", ["progress"])
        heard.append((answer.tag, gzip.decompress(answer.body).partition(b'"columns"')[2]))

    def meanwhile() -> None:
        trials.progress = 0.5
        wakeups.job_changed("job")
        ask()
        trials.progress = 0.6  # stored, and not told yet

    ask()
    trials.when_asked = [meanwhile]
    ask()
    wakeups.job_changed("job")
    ask()

    assert len({tag for tag, _ in heard}) == len(set(heard)), "one tag, two answers"
    assert b"0.6" in heard[-1][1]
