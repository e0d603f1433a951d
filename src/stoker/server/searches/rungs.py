"""The rungs of a search with successive halving: who reached each, who went on, who was stopped there."""

import re
from collections.abc import Sequence

from stoker.schema.search import Asha, AsyncHalving
from stoker.schema.views import BracketRungs, Rung, Rungs, RungTrial
from stoker.search.asha import plan_brackets
from stoker.search.searcher import planned_trials
from stoker.server.store.store import Store
from stoker.server.store.values import TrialRow

# The words of search/asha.py, which is where a trial was stopped.
_STOPPED_AT = re.compile(r"(?:at rung|reached|at) (\d+)")


def find_rungs(store: Store, job: str, rows: Sequence[TrialRow] | None = None) -> Rungs:
    """Empty for a job whose trials are not halved; NotFoundError."""
    spec = store.job(job).spec.search
    if spec is None or not isinstance(spec.stopping, Asha | AsyncHalving):
        return Rungs(job=job, metric=spec.metric if spec is not None else None)
    rows = store.pages.trial_rows(job) if rows is None else rows
    stopped = {row.number: int(found[1]) for row in rows if (found := _STOPPED_AT.search(row.stopped))}
    going = store.pages.last_steps(job, [row.number for row in rows if row.number not in stopped])
    reached = going | stopped
    brackets = []
    for number, plan in enumerate(plan_brackets(spec, planned_trials(spec))):
        mine = [row for row in rows if row.bracket == number]
        rungs = tuple(
            Rung(
                time=time,
                trials=tuple(
                    _at(row, is_last=stopped.get(row.number) == time)
                    for row in mine
                    if reached.get(row.number, 0) >= time
                ),
            )
            for time in plan.rungs
        )
        brackets.append(BracketRungs(bracket=number, rungs=rungs))
    return Rungs(job=job, metric=spec.metric, brackets=tuple(brackets))


def _at(row: TrialRow, *, is_last: bool) -> RungTrial:
    """How a trial stands at a rung that it has come to; `is_last` if it was stopped there."""
    if not is_last:
        return RungTrial(trial=row.number, outcome="promoted")
    is_whole = row.stopped.startswith("finished")
    return RungTrial(trial=row.number, value=row.objective, outcome="finished" if is_whole else "stopped")
