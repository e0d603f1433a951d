"""Determined's experiment file as it was written before 0.13 and 0.15, said in the words that came after.

Lengths were steps of `batches_per_step` batches each, and three searchers since gone had a budget instead of a number
of trials. A field that is there and empty was as good as absent, then and later.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from stoker.submission.reading import Document

_STEP = 100  # batches, where a file has no batches_per_step
_IN_STEPS = frozenset({"max_steps", "target_trial_steps", "step_budget"})
_FREE = frozenset({"data", "hyperparameters"})  # what is empty there is the user's own
_SUCCESSOR = {
    "adaptive": "adaptive_asha",
    "adaptive_simple": "adaptive_asha",
    "sync_halving": "async_halving",
}


def in_later_words(document: Mapping[str, Any]) -> tuple[Document, list[str]]:
    """The same experiment, and a line for each thing that is not quite the same."""
    values = _without_empty(document)
    searcher = values.get("searcher")
    searcher = dict(searcher) if isinstance(searcher, Mapping) else {}
    step = values.pop("batches_per_step", None)
    if step is not None:
        values.setdefault("scheduling_unit", step)
    if step is not None or not _IN_STEPS.isdisjoint(searcher):
        _count_batches(values, searcher, step if isinstance(step, int) else _STEP)
    notes = list(_succeed(searcher))
    if searcher:
        values["searcher"] = searcher
    return values, notes


def _without_empty(section: Mapping[str, Any]) -> Document:
    return {
        str(name): _without_empty(value) if isinstance(value, Mapping) and name not in _FREE else value
        for name, value in section.items()
        if value is not None
    }


def _count_batches(values: Document, searcher: Document, step: int) -> None:
    for then, later in (("max_steps", "max_length"), ("target_trial_steps", "max_length"), ("step_budget", "budget")):
        if isinstance(searcher.get(then), int):
            searcher.setdefault(later, {"batches": searcher.pop(then) * step})
    for name in ("min_validation_period", "min_checkpoint_period"):
        if isinstance(values.get(name), int):
            values[name] = {"batches": values[name] * step}


def _succeed(searcher: Document) -> Iterator[str]:
    """Turn a searcher that is gone into the one that took its place; its budget into the trials that cost as much."""
    name = searcher.get("name")
    if name not in _SUCCESSOR:
        return
    searcher["name"] = _SUCCESSOR[name]
    searcher.pop("train_stragglers", None)
    budget, length = _count(searcher.pop("budget", None)), _count(searcher.get("max_length"))
    if budget and length and "max_trials" not in searcher:
        searcher["max_trials"] = _trials_for(budget / length, searcher)
        yield f"searcher {name}: run as {_SUCCESSOR[name]} with {searcher['max_trials']} trials, which cost its budget"
    else:
        yield f"searcher {name}: run as {_SUCCESSOR[name]}, which took its place"


def _count(length: Any) -> int | None:
    """Of a length like {batches: 100}, or a bare number."""
    found = next(iter(length.values()), None) if isinstance(length, Mapping) else length
    return found if isinstance(found, int) and found > 0 else None


def _trials_for(full_lengths: float, searcher: Mapping[str, Any]) -> int:
    """So many that, halved rung by rung, they cost as much as so many trials of full length."""
    divisor = float(searcher.get("divisor") or 4)
    brackets = _rungs(searcher)
    # In a bracket of r rungs a trial's mean cost is (1 + (r - 1)(1 - 1/d)) / d^(r - 1) of the full length.
    costs = [(1 + (rungs - 1) * (1 - 1 / divisor)) / divisor ** (rungs - 1) for rungs in brackets]
    return max(round(sum(full_lengths / len(brackets) / cost for cost in costs)), 1)


def _rungs(searcher: Mapping[str, Any]) -> Sequence[int]:
    if searcher["name"] == "async_halving":
        return [int(searcher.get("num_rungs") or 1)]
    most = int(searcher.get("max_rungs") or 5)
    least = {"aggressive": most, "conservative": 1}.get(str(searcher.get("mode")), (most - 1) // 2 + 1)
    return range(least, most + 1)
