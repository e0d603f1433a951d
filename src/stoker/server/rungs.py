"""The rungs of a search with successive halving: who reached each, who went on, who was stopped there."""

import re
from collections.abc import Mapping, Sequence

from stoker.schema.search import Asha, AsyncHalving
from stoker.schema.views import BracketRungs, Rung, Rungs, RungTrial
from stoker.search.asha import plan_brackets
from stoker.search.searcher import planned_trials
from stoker.server.store.base import Store
from stoker.server.store.page_store import TrialRow

# The words of search/asha.py, which is where a trial was stopped.
_STOPPED_AT = re.compile(r"(?:at rung|reached|at) (\d+)")


def find_rungs(store: Store, job: str, rows: Sequence[TrialRow] | None = None) -> Rungs:
    """Empty for a job whose trials are not halved; NotFoundError."""
    spec = store.job(job).spec.search
    if spec is None or not isinstance(spec.stopping, Asha | AsyncHalving):
        return Rungs(job=job, metric=spec.metric if spec is not None else None)
    rows = store.pages.trial_rows(job) if rows is None else rows
    going = store.pages.last_steps(job, [row.number for row in rows if not _STOPPED_AT.search(row.stopped)])
    brackets = []
    for number, plan in enumerate(plan_brackets(spec, planned_trials(spec))):
        mine = [row for row in rows if row.bracket == number]
        rungs = tuple(
            Rung(time=time, trials=tuple(seen for row in mine if (seen := _at(row, time, going)) is not None))
            for time in plan.rungs
        )
        brackets.append(BracketRungs(bracket=number, rungs=rungs))
    return Rungs(job=job, metric=spec.metric, brackets=tuple(brackets))


def _at(row: TrialRow, time: int, going: Mapping[int, int]) -> RungTrial | None:
    """How a trial stands at a rung; None if it has not come so far."""
    stopped = _STOPPED_AT.search(row.stopped)
    reached = int(stopped[1]) if stopped else going.get(row.number, 0)
    if reached < time:
        return None
    if stopped and reached == time:
        is_whole = row.stopped.startswith("finished")
        return RungTrial(trial=row.number, value=row.objective, outcome="finished" if is_whole else "stopped")
    return RungTrial(trial=row.number, outcome="promoted")
